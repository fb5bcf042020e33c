// What is special about the fabric over TCP: peers that are no fabric at all, what it costs, and what it
// says.

#include "hawser/transport/fabric/tcp_fabric.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/tcp_frame.h"
#include "hawser/transport/fabric/tcp_greeting.h"
#include "hawser/transport/fabric/tcp_socket.h"

namespace {

// Of this whole program: how often, and how much.
std::atomic<size_t> allocations = 0;
std::atomic<size_t> allocated_bytes = 0;

void* Allocate(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  allocated_bytes.fetch_add(size, std::memory_order_relaxed);
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace hawser::fabric {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr CompletionStatus kSuccess = CompletionStatus::kSuccess;
constexpr CompletionStatus kFlushed = CompletionStatus::kFlushed;

SocketAddress Loopback(uint16_t port = 0) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return SocketAddress(reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
}

FabricUnderTest Tcp(const TcpFabricOptions& options) {
  return {"Tcp", [options] { return CreateTcpFabric(options); }, Loopback()};
}

class TcpFabricTest : public ::testing::Test {
 protected:
  TcpFabricCounters counters_;
  FabricWorld world_{Tcp({.rnr_timeout = absl::Milliseconds(20), .counters = &counters_})};
};

// Somebody with a socket who says whatever it wants.
class Stranger {
 public:
  explicit Stranger(FabricWorld& world) : Stranger(world, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const SocketAddress address = world.listener().address();
    EXPECT_EQ(connect(socket_.get(), address.get(), address.length_bytes()), 0);
  }
  // With a socket that is connected already, or will be.
  Stranger(FabricWorld& world, int fd) : world_(world), socket_(fd) {}

  int fd() const { return socket_.get(); }
  void Close() { socket_.Reset(); }

  void Say(absl::string_view bytes) {
    // Refused if the other side has closed already.
    [[maybe_unused]] const ssize_t n = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void Say(const FrameHeader& header, absl::string_view payload = {}) {
    Say(absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&header), sizeof(header)), payload));
  }

  // Whatever has come, without waiting; notes the end.
  void Listen() {
    char buffer[65536];
    ssize_t n;
    while ((n = recv(socket_.get(), buffer, sizeof(buffer), MSG_DONTWAIT)) > 0) heard_.append(buffer, n);
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) closed_ = true;
  }
  const std::string& heard() const { return heard_; }
  void HearUntilClosed() {
    world_.Until([&] { return Listen(), closed_; }, "the stranger's connection is closed");
  }
  void HearBytes(size_t bytes) {
    world_.Until([&] { return Listen(), heard_.size() >= bytes; }, "the stranger hears enough");
  }
  bool closed() {
    Listen();
    return closed_;
  }
  FrameHeader FrameAt(size_t offset) const {
    FrameHeader header;
    std::memcpy(&header, heard_.data() + offset, sizeof(header));
    return header;
  }

  // Greets properly, and `endpoint` accepts; then frames can be said and heard.
  void BecomePeerOf(Endpoint& endpoint) {
    Say(EncodeGreeting(GreetingKind::kConnect, 16, ""));
    HAWSER_UNTIL(world_, !world_.requests().requests.empty());
    ASSERT_TRUE(endpoint.qp().Accept(std::move(world_.requests().requests[0]), "").ok());
    world_.requests().requests.clear();
    HearBytes(kGreetingHeaderBytes);
    heard_.clear();
    HAWSER_UNTIL(world_, endpoint.news().established());
  }

 private:
  FabricWorld& world_;
  UniqueFd socket_;
  std::string heard_;
  bool closed_ = false;
};

// --- Whoever comes to the port
// ---------------------------------------------------------------------------------------

TEST_F(TcpFabricTest, RandomBytesAtThePortAreHungUpOn) {
  std::mt19937 random(1);
  for (int i = 0; i < 100; ++i) {
    Stranger stranger(world_);
    std::string bytes(1 + random() % 3000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    stranger.Say(bytes);
    stranger.HearUntilClosed();
    EXPECT_EQ(stranger.heard(), "");
  }
  EXPECT_TRUE(world_.requests().requests.empty());
}

TEST_F(TcpFabricTest, ABrowserIsToldWhatThisPortIs) {
  for (absl::string_view request :
       {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}) {
    Stranger browser(world_);
    browser.Say(request);
    browser.HearUntilClosed();
    EXPECT_THAT(browser.heard(), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
    EXPECT_THAT(browser.heard(), HasSubstr("Hawser RPC"));
    const size_t body = browser.heard().find("\r\n\r\n") + 4;
    EXPECT_THAT(browser.heard(),
                HasSubstr(absl::StrCat("Content-Length: ", browser.heard().size() - body, "\r\n")));
  }
}

TEST_F(TcpFabricTest, AGreetingMayComeByteByByte) {
  Stranger stranger(world_);
  for (char byte : EncodeGreeting(GreetingKind::kConnect, 3, "private")) {
    EXPECT_TRUE(world_.requests().requests.empty());
    stranger.Say(std::string(1, byte));
    world_.PollSome(3);
  }
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
  EXPECT_EQ(std::string(world_.requests().requests[0]->private_data()), "private");
}

TEST_F(TcpFabricTest, AGreetingCutShortIsForgotten) {
  const std::string greeting = EncodeGreeting(GreetingKind::kConnect, 3, "private");
  for (size_t length = 0; length < greeting.size(); ++length) {
    Stranger stranger(world_);
    stranger.Say(greeting.substr(0, length));
    world_.PollSome(3);
    stranger.Close();
  }
  world_.PollSome(10);
  EXPECT_TRUE(world_.requests().requests.empty());
}

TEST_F(TcpFabricTest, WhoSaysNothingIsDroppedInTime) {
  FabricWorld impatient(Tcp({.half_open_timeout = absl::Milliseconds(20)}));
  Stranger silent(impatient);
  Stranger half(impatient);
  half.Say(kGreetingMagic);
  silent.HearUntilClosed();
  half.HearUntilClosed();
}

TEST_F(TcpFabricTest, OfTooManyWhoSayNothingTheOldestGoes) {
  FabricWorld patient(Tcp({.half_open_max = 4, .half_open_timeout = absl::InfiniteDuration()}));
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 6; ++i) strangers.push_back(std::make_unique<Stranger>(patient));
  strangers[0]->HearUntilClosed();
  strangers[1]->HearUntilClosed();
  patient.PollSome();
  for (int i = 2; i < 6; ++i) EXPECT_FALSE(strangers[i]->closed());
  strangers[2]->Say(EncodeGreeting(GreetingKind::kConnect, 1, ""));
  HAWSER_UNTIL(patient, patient.requests().requests.size() == 1);
}

TEST_F(TcpFabricTest, AnotherVersionIsRejectedWithOurs) {
  Stranger stranger(world_);
  std::string greeting = EncodeGreeting(GreetingKind::kConnect, 3, "");
  greeting[8] = 2;
  stranger.Say(greeting);
  stranger.HearUntilClosed();
  EXPECT_EQ(stranger.heard(), EncodeGreeting(GreetingKind::kReject, 0, ""));
}

TEST_F(TcpFabricTest, MorePrivateDataThanAllowedIsRejected) {
  Stranger stranger(world_);
  stranger.Say(EncodeGreeting(GreetingKind::kConnect, 3, std::string(kConnectPrivateDataMax + 1, 'x')));
  stranger.HearUntilClosed();
  EXPECT_TRUE(world_.requests().requests.empty());
}

TEST_F(TcpFabricTest, WithoutFileDescriptorsTheListenerRestsAndRecovers) {
  Endpoint& a = world_.NewEndpoint(0);
  ASSERT_TRUE(a.qp().Connect(world_.listener().address(), "").ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  close(next);
  rlimit tight = before;
  tight.rlim_cur = next;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  world_.PollSome(50);
  // The listener is readable all the time; still, sleeping is possible.
  const uint64_t epoll_calls = counters_.epoll_calls.load();
  const absl::Time start = absl::Now();
  while (absl::Now() - start < absl::Milliseconds(40)) {
    world_.completion_queue(1).Wait(absl::Milliseconds(40));
    world_.completion_queue(1).Poll({});
  }
  EXPECT_LT(counters_.epoll_calls.load() - epoll_calls, 20u);
  EXPECT_TRUE(world_.requests().requests.empty());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
}

TEST_F(TcpFabricTest, BothFamiliesCanListenOnOnePortOfAllInterfaces) {
  sockaddr_in6 any = {};
  any.sin6_family = AF_INET6;
  RequestRecorder requests;
  auto v6 = world_.fabric().Listen(world_.completion_queue(),
                                   SocketAddress(reinterpret_cast<sockaddr*>(&any), sizeof(any)), requests);
  ASSERT_TRUE(v6.ok()) << v6.status();
  sockaddr_in any4 = {};
  any4.sin_family = AF_INET;
  SocketAddress v4_address(reinterpret_cast<sockaddr*>(&any4), sizeof(any4));
  v4_address.set_port((*v6)->address().port());
  const auto v4 = world_.fabric().Listen(world_.completion_queue(), v4_address, requests);
  EXPECT_TRUE(v4.ok()) << v4.status();
}

// --- Whom we connect to
// ----------------------------------------------------------------------------------------------

// A listener that is no fabric. Connects an endpoint to it, which is told `answer`; returns why that failed.
absl::Status ConnectToStranger(FabricWorld& world, absl::string_view answer) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress any_port = Loopback();
  EXPECT_EQ(bind(listener.get(), any_port.get(), any_port.length_bytes()), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  Endpoint& a = world.NewEndpoint(0);
  EXPECT_TRUE(a.qp().Connect(LocalAddress(listener.get()), "").ok());
  Stranger stranger(world, accept(listener.get(), nullptr, nullptr));
  stranger.HearBytes(kGreetingHeaderBytes);
  stranger.Say(answer);
  stranger.Close();
  HAWSER_UNTIL(world, a.news().ended());
  EXPECT_THAT(a.news().told, ElementsAre("failed"));
  return a.news().why;
}

TEST_F(TcpFabricTest, WhyConnectingFailedIsSaid) {
  const absl::Status closed = ConnectToStranger(world_, "");
  EXPECT_THAT(closed, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(closed.message()), HasSubstr("closed the connection without an answer"));

  const absl::Status http = ConnectToStranger(world_, "HTTP/1.1 400 Bad Request\r\n\r\n");
  EXPECT_THAT(http, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(http.message()),
              HasSubstr("no Hawser server on a TCP fabric; it answered \"HTTP/1.1 400"));

  std::string other_version = EncodeGreeting(GreetingKind::kReject, 0, "");
  other_version[8] = 7;
  const absl::Status version = ConnectToStranger(world_, other_version);
  EXPECT_THAT(version, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(version.message()),
              HasSubstr("speaks version 7 of the TCP fabric's protocol, we speak version 1"));

  const absl::Status itself = ConnectToStranger(world_, EncodeGreeting(GreetingKind::kConnect, 0, ""));
  EXPECT_THAT(std::string(itself.message()), HasSubstr("nobody listens there"));

  std::string malformed = EncodeGreeting(GreetingKind::kAccept, 0, "");
  malformed[11] = static_cast<char>(kAcceptPrivateDataMax + 1);
  EXPECT_THAT(std::string(ConnectToStranger(world_, malformed).message()), HasSubstr("malformed answer"));
}

TEST_F(TcpFabricTest, ARefusedConnectionSaysThatNobodyListens) {
  const SocketAddress nobody = world_.listener().address();
  world_.CloseListener();
  Endpoint& a = world_.NewEndpoint(0);
  ASSERT_TRUE(a.qp().Connect(nobody, "").ok());
  HAWSER_UNTIL(world_, a.news().ended());
  EXPECT_EQ(a.news().why.message(),
            absl::StrCat("connect to ", nobody.ToString(),
                         ": connection refused (ECONNREFUSED): nobody listens there"));
}

TEST_F(TcpFabricTest, NoAddressCannotBeConnectedTo) {
  Endpoint& a = world_.NewEndpoint(0);
  EXPECT_THAT(a.qp().Connect(SocketAddress(), ""), HasCode(absl::StatusCode::kInvalidArgument));
}

// --- Peers that break the protocol
// -----------------------------------------------------------------------------------

class HostilePeerTest : public TcpFabricTest {
 protected:
  HostilePeerTest() {
    peer_.BecomePeerOf(b_);
    EXPECT_TRUE(b_.Receive(1, b_.At(0, 1000)).ok());
    readable_ = b_.Grant(b_.At(1000, 1000), QueuePair::Access::kRead);
    writable_ = b_.Grant(b_.At(2000, 1000), QueuePair::Access::kWrite);
  }

  void ExpectBrokenProtocol(absl::string_view how) {
    HAWSER_UNTIL(world_, b_.news().ended());
    EXPECT_THAT(b_.news().why, HasCode(absl::StatusCode::kDataLoss));
    EXPECT_THAT(std::string(b_.news().why.message()),
                StartsWith(absl::StrCat("peer ", b_.qp().peer_address().ToString(),
                                        " broke the fabric's protocol: ")));
    EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr(std::string(how)));
    world_.ExpectEverythingComesBack(b_);
    for (const Completion& receive : b_.receives) EXPECT_EQ(receive.status, kFlushed);
    peer_.HearUntilClosed();
  }

  uint64_t AddressOf(size_t offset) { return reinterpret_cast<uint64_t>(b_.memory() + offset); }

  Endpoint& b_ = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 4});
  Stranger peer_{world_};
  uint32_t readable_ = 0;
  uint32_t writable_ = 0;
};

TEST_F(HostilePeerTest, AFrameOfUnknownKind) {
  peer_.Say({.kind = static_cast<FrameKind>(77)});
  ExpectBrokenProtocol("unknown kind 77");
}

TEST_F(HostilePeerTest, AFrameWithAFlagThatIsNone) {
  peer_.Say({.kind = FrameKind::kAck, .flags = 2});
  ExpectBrokenProtocol("flags 2 and reserved bits 0");
}

TEST_F(HostilePeerTest, AFrameWithReservedBits) {
  peer_.Say({.kind = FrameKind::kSend, .reserved = 16, .length_bytes = 1}, "x");
  ExpectBrokenProtocol("flags 0 and reserved bits 16");
}

TEST_F(HostilePeerTest, AnAcknowledgementWithAPayload) {
  peer_.Say({.kind = FrameKind::kAck, .length_bytes = 3}, "abc");
  ExpectBrokenProtocol("kind 5, which has no payload, with one of 3 bytes");
}

TEST_F(HostilePeerTest, AnEmptySend) {
  peer_.Say({.kind = FrameKind::kSend});
  ExpectBrokenProtocol("SEND of 0 bytes");
}

TEST_F(HostilePeerTest, AHugeSend) {
  peer_.Say({.kind = FrameKind::kSend, .length_bytes = ~0u});
  ExpectBrokenProtocol("SEND of 4294967295 bytes");
}

TEST_F(HostilePeerTest, AHugeWrite) {
  peer_.Say({.kind = FrameKind::kWrite, .length_bytes = ~0u, .key = writable_, .address = AddressOf(2000)});
  ExpectBrokenProtocol("WRITE of 4294967295 bytes");
}

TEST_F(HostilePeerTest, AnEmptyRead) {
  peer_.Say({.kind = FrameKind::kReadRequest, .key = readable_, .address = AddressOf(1000)});
  ExpectBrokenProtocol("READ of 0 bytes");
}

TEST_F(HostilePeerTest, AnAcknowledgementOfWhatWasNeverSent) {
  peer_.Say({.kind = FrameKind::kAck, .acknowledged = 1});
  ExpectBrokenProtocol("acknowledged 1 requests of 0 that were sent");
}

TEST_F(HostilePeerTest, AnAcknowledgementThatGoesBack) {
  peer_.Say({.kind = FrameKind::kAck, .acknowledged = ~0u});
  ExpectBrokenProtocol("acknowledged 4294967295 requests of 0");
}

TEST_F(HostilePeerTest, ARefusalOfWhatWasNeverSent) {
  peer_.Say({.kind = FrameKind::kNak, .status = static_cast<uint8_t>(CompletionStatus::kRemoteAccessError)});
  ExpectBrokenProtocol("refused request 0");
}

TEST_F(HostilePeerTest, ARefusalWithAStatusThatMeansSuccess) {
  ASSERT_TRUE(b_.Send(1, b_.At(0, 1)).ok());
  peer_.Say({.kind = FrameKind::kNak, .status = static_cast<uint8_t>(kSuccess)});
  ExpectBrokenProtocol("refused request 0 with status 0");
}

TEST_F(HostilePeerTest, AReadResponseThatNobodyAskedFor) {
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = 10}, "0123456789");
  ExpectBrokenProtocol("answered a READ (number 0, 10 bytes) when none was outstanding");
}

TEST_F(HostilePeerTest, AReadResponseLongerThanTheRead) {
  ASSERT_TRUE(b_.Read(1, b_.At(5000, 10), b_.memory(), 1).ok());
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = 11, .acknowledged = 1}, "0123456789a");
  ExpectBrokenProtocol(
      "READ 0 at offset 0 with 11 bytes, where READ 0 at offset 0 with 1 to 10 bytes was due");
  EXPECT_EQ(b_.Text(5000, 11), std::string(11, '\0'));
}

TEST_F(HostilePeerTest, ARefusalOfAReadThatIsAnsweredAlready) {
  ASSERT_TRUE(b_.Read(1, b_.At(5000, 10), b_.memory(), 1).ok());
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = 10}, "0123456789");
  peer_.Say({.kind = FrameKind::kNak, .status = static_cast<uint8_t>(CompletionStatus::kRemoteAccessError)});
  ExpectBrokenProtocol("answered READ 0 but acknowledged only 0 requests");
}

TEST_F(HostilePeerTest, AReadResponseAtAnotherOffset) {
  ASSERT_TRUE(b_.Read(1, b_.At(5000, 10), b_.memory(), 1).ok());
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = 5, .acknowledged = 1, .address = 5}, "01234");
  ExpectBrokenProtocol("at offset 5");
}

TEST_F(HostilePeerTest, AReadResponseToAnotherRead) {
  ASSERT_TRUE(b_.Read(1, b_.At(5000, 10), b_.memory(), 1).ok());
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = 5, .acknowledged = 1, .key = 1}, "01234");
  ExpectBrokenProtocol("answered READ 1");
}

TEST_F(HostilePeerTest, ARefusalThatJumpsOverAnOutstandingRead) {
  ASSERT_TRUE(b_.Read(1, b_.At(5000, 10), b_.memory(), 1).ok());
  ASSERT_TRUE(b_.Send(2, b_.At(0, 1)).ok());
  peer_.Say({.kind = FrameKind::kNak,
             .status = static_cast<uint8_t>(CompletionStatus::kRnrRetryExceeded),
             .acknowledged = 1,
             .key = 1});
  ExpectBrokenProtocol("1 READs outstanding");
}

TEST_F(HostilePeerTest, MoreReadsThanAgreedAreAnsweredWithARefusal) {
  std::string requests;
  for (int i = 0; i < 5;
       ++i) {  // One more than read_depth, in one piece, so that none is answered in between.
    const FrameHeader read = {
        .kind = FrameKind::kReadRequest, .length_bytes = 100, .key = readable_, .address = AddressOf(1000)};
    requests.append(reinterpret_cast<const char*>(&read), sizeof(read));
  }
  peer_.Say(requests);
  peer_.HearBytes(4 * (sizeof(FrameHeader) + 100) + sizeof(FrameHeader));
  const FrameHeader refusal = peer_.FrameAt(4 * (sizeof(FrameHeader) + 100));
  EXPECT_EQ(refusal.kind, FrameKind::kNak);
  EXPECT_EQ(refusal.status, static_cast<uint8_t>(CompletionStatus::kRemoteInvalidRequest));
  EXPECT_EQ(refusal.key, 4u);
  HAWSER_UNTIL(world_, b_.news().ended());
  EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr("more READs outstanding than the 4 agreed"));
  world_.ExpectEverythingComesBack(b_);
}

TEST_F(HostilePeerTest, AConnectionThatEndsInTheMiddleOfAFrameSaysSo) {
  peer_.Say({.kind = FrameKind::kSend, .length_bytes = 100}, "only a part");
  world_.PollSome(5);
  peer_.Close();
  HAWSER_UNTIL(world_, b_.news().ended());
  EXPECT_THAT(b_.news().why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr("in the middle of a frame"));
  world_.ExpectEverythingComesBack(b_);
  EXPECT_THAT(b_.receives, ElementsAre(CompletionIs(1, kFlushed)));
}

TEST_F(HostilePeerTest, APeerThatDiesWhileItsSendWaitsForAReceive) {
  const FrameHeader send = {.kind = FrameKind::kSend, .length_bytes = 1};
  peer_.Say(send, "1");
  peer_.Say(send, "2");
  HAWSER_UNTIL(world_, b_.receives.size() == 1);
  world_.PollSome(5);
  const linger reset = {.l_onoff = 1, .l_linger = 0};
  setsockopt(peer_.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  peer_.Close();
  HAWSER_UNTIL(world_, b_.news().ended());
}

TEST_F(HostilePeerTest, FramesMayComeByteByByte) {
  const FrameHeader send = {.kind = FrameKind::kSend, .flags = kAckRequestedFlag, .length_bytes = 5};
  const FrameHeader write = {
      .kind = FrameKind::kWrite, .length_bytes = 5, .key = writable_, .address = AddressOf(2000)};
  std::string bytes(reinterpret_cast<const char*>(&write), sizeof(write));
  bytes += "write";
  bytes.append(reinterpret_cast<const char*>(&send), sizeof(send));
  bytes += "hello";
  for (char byte : bytes) {
    EXPECT_TRUE(b_.receives.empty());
    peer_.Say(std::string(1, byte));
    world_.PollSome(2);
  }
  HAWSER_UNTIL(world_, b_.receives.size() == 1);
  EXPECT_EQ(b_.Text(0, 5), "hello");
  EXPECT_EQ(b_.Text(2000, 5), "write");
  peer_.HearBytes(sizeof(FrameHeader));
  EXPECT_EQ(peer_.FrameAt(0).acknowledged, 2u);
}

// Frames that are nearly right, and rubbish: each ends its own connection or none, and touches only what was
// granted.
TEST_F(TcpFabricTest, RandomFramesHarmNobodyElse) {
  std::mt19937_64 random(7);
  auto [c, d] = world_.Connect();
  for (int round = 0; round < 300; ++round) {
    Endpoint& b = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 4}, 8192);
    Stranger peer(world_);
    peer.BecomePeerOf(b);
    for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(b.Receive(i, b.At(i * 64, 64)).ok());
    const uint32_t keys[] = {b.Grant(b.At(1024, 1024), QueuePair::Access::kRead),
                             b.Grant(b.At(2048, 1024), QueuePair::Access::kWrite), 0,
                             static_cast<uint32_t>(random())};
    ASSERT_TRUE(b.Read(1, b.At(3072, 1024), b.memory(), 1).ok());
    ASSERT_TRUE(b.Send(2, b.At(0, 10)).ok());
    std::string said;
    for (int i = 0; i < 8; ++i) {
      const uint32_t lengths[] = {0, 1, 10, 64, 65, 1024, static_cast<uint32_t>(random())};
      const FrameHeader header = {
          .kind = static_cast<FrameKind>(random() % 8),
          .flags = static_cast<uint8_t>(random()),
          .status = static_cast<uint8_t>(random() % 10),
          .length_bytes = lengths[random() % 7],
          .acknowledged = static_cast<uint32_t>(random() % 4 == 0 ? random() : random() % 3),
          .key = keys[random() % 4],
          .address = reinterpret_cast<uint64_t>(b.memory()) + random() % 4096};
      said.append(reinterpret_cast<const char*>(&header), sizeof(header));
      said.append(random() % 2 == 0 ? header.length_bytes % 2048 : random() % 100, 'x');
    }
    peer.Say(said);
    world_.PollSome(4);
    peer.Close();
    HAWSER_UNTIL(world_, b.news().ended() || b.sends.size() == b.sends_posted);
    world_.ExpectEverythingComesBack(b);
    EXPECT_EQ(b.Text(256, 768), std::string(768, '\0'));     // Between the receives and the grants,
    EXPECT_EQ(b.Text(1024, 1024), std::string(1024, '\0'));  // granted for reading only,
    EXPECT_EQ(b.Text(4096, 4096), std::string(4096, '\0'));  // and behind everything.
  }
  ASSERT_TRUE(d.Receive(1, d.At(0, 100)).ok());
  ASSERT_TRUE(c.Send(1, c.At(0, 100)).ok());
  HAWSER_UNTIL(world_, c.sends.size() == 1 && d.receives.size() == 1);
}

// --- What it costs
// ---------------------------------------------------------------------------------------------------

TEST_F(TcpFabricTest, NoByteOfAReadIsCopied) {
  constexpr uint32_t kReads = 8, kBytes = 1 << 20;
  auto [a, b] =
      world_.Connect({.send_depth = 256, .receive_depth = 256, .read_depth = 4}, (kReads + 1) * kBytes);
  const uint32_t rkey = b.Grant(b.At(0, kReads * kBytes), QueuePair::Access::kRead);
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(a.Receive(i, a.At(kReads * kBytes + i * 1000, 1000)).ok());
    ASSERT_TRUE(b.Receive(i, b.At(kReads * kBytes + i * 1000, 1000)).ok());
  }
  for (uint64_t i = 0; i < kReads; ++i) {
    ASSERT_TRUE(a.Read(i, a.At(i * kBytes, kBytes), b.memory() + i * kBytes, rkey).ok());
  }
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(a.Send(100 + i, a.At(kReads * kBytes, 100)).ok());
    ASSERT_TRUE(b.Send(100 + i, b.At(kReads * kBytes, 100)).ok());
    if (i % 8 == 0) world_.PollOnce();
  }
  HAWSER_UNTIL(world_, a.sends.size() == kReads + 200 && b.sends.size() == 200 && a.receives.size() == 200);
  EXPECT_EQ(counters_.read_bytes.load(), uint64_t{kReads} * kBytes);
  EXPECT_EQ(counters_.read_bytes_copied.load(), 0u);
}

TEST_F(TcpFabricTest, AChainLeavesInOneSystemCall) {
  auto [a, b] = world_.Connect({.send_depth = 64, .receive_depth = 64});
  for (uint64_t i = 0; i < 64; ++i) ASSERT_TRUE(b.Receive(i, b.At(i * 1000, 1000)).ok());
  std::vector<Sge> sges;
  for (int i = 0; i < 64; ++i)
    sges.push_back(a.At(i * 1000, i % 3 == 0 ? 900 : 60));  // Copied ones and others.
  std::vector<SendWorkRequest> chain;
  for (int i = 0; i < 64; ++i) chain.push_back({.wr_id = 1, .signaled = i == 63, .sges = {&sges[i], 1}});
  const uint64_t before = counters_.send_calls.load();
  ASSERT_TRUE(a.qp().PostSend(chain).ok());
  EXPECT_EQ(counters_.send_calls.load() - before, 1u);
  HAWSER_UNTIL(world_, b.receives.size() == 64 && a.sends.size() == 1);
}

// One side's part of a round: sleeps until the message is there, takes it, answers it.
void TakeAndAnswer(Endpoint& me, uint64_t round) {
  Completion completions[8];
  size_t count = 0;
  while (count == 0) {
    me.completion_queue().Wait(absl::InfiniteDuration());
    count = me.completion_queue().Poll(absl::MakeSpan(completions));
  }
  const Sge buffer = me.At(1024, 64), message = me.At(0, 64);
  const ReceiveWorkRequest receive = {0, buffer};
  ASSERT_TRUE(me.qp().PostReceive({&receive, 1}).ok());
  const SendWorkRequest send = {.wr_id = round, .signaled = round % 16 == 15, .sges = {&message, 1}};
  ASSERT_TRUE(me.qp().PostSend({&send, 1}).ok());
}

TEST_F(TcpFabricTest, ARoundOfPingPongCostsThreeSystemCallsASide) {
  auto [a, b] = world_.Connect();
  for (Endpoint* side : {&a, &b}) {
    ASSERT_TRUE(side->Receive(0, side->At(1024, 64)).ok());
    ASSERT_TRUE(side->Receive(0, side->At(1024, 64)).ok());
  }
  ASSERT_TRUE(a.Send(1, a.At(0, 64)).ok());
  constexpr uint64_t kRounds = 200;
  for (uint64_t round = 0; round < kRounds; ++round) {
    if (round == 10) {
      counters_.send_calls = 0;
      counters_.receive_calls = 0;
      counters_.epoll_calls = 0;
    }
    TakeAndAnswer(b, round);
    TakeAndAnswer(a, round);
  }
  // Acknowledgements included: they travel with the messages.
  EXPECT_EQ(counters_.send_calls.load(), 2 * (kRounds - 10));
  EXPECT_EQ(counters_.receive_calls.load(), 2 * (kRounds - 10));
  EXPECT_EQ(counters_.epoll_calls.load(), 2 * (kRounds - 10));
}

TEST_F(TcpFabricTest, SpinningOnOneConnectionIsOneSystemCallAPoll) {
  auto [a, b] = world_.Connect();
  world_.PollSome(100);
  counters_.receive_calls = 0;
  counters_.epoll_calls = 0;
  Completion completion;
  for (int i = 0; i < 320; ++i) a.completion_queue().Poll({&completion, 1});
  EXPECT_EQ(counters_.receive_calls.load() + counters_.epoll_calls.load(), 320u);
  EXPECT_EQ(counters_.epoll_calls.load(), 10u);  // For new connections, timers and the like.
}

TEST_F(TcpFabricTest, AnAcknowledgementLeavesBeforeItsSideSleeps) {
  auto [a, b] = world_.Connect();
  ASSERT_TRUE(b.Receive(1, b.At(0, 100)).ok());
  ASSERT_TRUE(a.Send(1, a.At(0, 100)).ok());
  Completion completion;
  while (b.completion_queue().Poll({&completion, 1}) == 0) {
  }
  b.completion_queue().Wait(absl::InfiniteDuration());  // Returns: there is something for Poll() to do.
  b.completion_queue().Poll({&completion, 1});
  Completion done;
  size_t count = 0;
  while (count == 0) {
    a.completion_queue().Wait(absl::Seconds(20));
    count = a.completion_queue().Poll({&done, 1});
  }
  EXPECT_THAT(done, CompletionIs(1, kSuccess));
}

TEST_F(TcpFabricTest, TrafficAllocatesNothing) {
  auto [a, b] = world_.Connect({.send_depth = 32, .receive_depth = 32}, 1 << 20);
  const auto poll = [](Endpoint& side, size_t wanted) {
    Completion completions[32];
    for (size_t count = 0; count < wanted;) {
      const size_t n = side.completion_queue().Poll(absl::MakeSpan(completions));
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(completions[i].status, kSuccess);
      if (n == 0) side.completion_queue().Wait(absl::Milliseconds(1));
      count += n;
    }
  };
  const auto round = [&, &a = a, &b = b] {
    const absl::StatusOr<uint32_t> rkey = b.qp().Grant(b.At(0, 500000), QueuePair::Access::kRead);
    for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(b.Receive(i, b.At(600000 + 1000 * i, 1000)).ok());
    for (uint64_t i = 0; i < 8; ++i)
      ASSERT_TRUE(a.Send(i, a.At(i, 100 + 100 * static_cast<uint32_t>(i)), i == 7).ok());
    poll(b, 8);
    ASSERT_TRUE(a.Read(9, a.At(0, 500000), b.memory(), *rkey).ok());
    b.completion_queue().Wake();
    b.completion_queue().Wait(absl::InfiniteDuration());
    Completion none;
    for (int i = 0; i < 200; ++i) b.completion_queue().Poll({&none, 1});
    for (size_t done = 0; done < 2;) {
      Completion completions[4];
      done += a.completion_queue().Poll(absl::MakeSpan(completions));
      b.completion_queue().Poll({&none, 1});
    }
    b.qp().Revoke(*rkey, 1);
    while (b.completion_queue().Poll({&none, 1}) == 0) {
    }
  };
  round();  // The first may still fill this or that.
  const size_t before = allocations.load();
  for (int i = 0; i < 50; ++i) round();
  EXPECT_EQ(allocations.load() - before, 0u);
}

TEST_F(TcpFabricTest, AnIdleConnectionTakesLessThan8KiB) {
  NewsRecorder news;
  const size_t before = allocated_bytes.load();
  std::unique_ptr<QueuePair> qp =
      world_.fabric()
          .CreateQueuePair(world_.completion_queue(0),
                           {.send_depth = 24, .receive_depth = 12, .read_depth = 16}, news)
          .value();
  EXPECT_LT(allocated_bytes.load() - before, 8u * 1024);
}

TEST_F(TcpFabricTest, ABusyConnectionLeavesTheOthersTheirTurn) {
  auto [a, b] = world_.Connect({.send_depth = 64, .receive_depth = 64}, 64 << 20);
  auto [c, d] = world_.Connect();
  for (uint64_t i = 0; i < 60; ++i) ASSERT_TRUE(b.Receive(i, b.At(i << 20, 1 << 20)).ok());
  ASSERT_TRUE(d.Receive(1, d.At(0, 100)).ok());
  for (uint64_t i = 0; i < 60; ++i) ASSERT_TRUE(a.Send(i, a.At(i << 20, 1 << 20)).ok());
  world_.PollSome(2);
  ASSERT_TRUE(c.Send(1, c.At(0, 100)).ok());
  // All live on the same two completion queues. A few polls are enough, however much a has to send.
  const size_t before = b.receives.size();
  HAWSER_UNTIL(world_, d.receives.size() == 1);
  EXPECT_LT(b.receives.size() - before, 20u);
  HAWSER_UNTIL(world_, b.receives.size() == 60 && a.sends.size() == 60);
}

TEST_F(TcpFabricTest, APeerThatWasNotReceivedFromIsRememberedWhenItLeaves) {
  auto [a, b] = world_.Connect();
  ASSERT_TRUE(a.Send(1, a.At(0, 10)).ok());
  HAWSER_UNTIL(world_, a.sends.size() == 1 && b.news().ended());
  EXPECT_THAT(a.sends[0], CompletionIs(1, CompletionStatus::kRnrRetryExceeded));
  EXPECT_THAT(std::string(b.news().why.message()),
              HasSubstr("after it was refused: its SEND found no posted receive for 20ms"));
}

TEST_F(TcpFabricTest, AReceiveInTimeLetsWaitingSendsIn) {
  FabricWorld patient(Tcp({.rnr_timeout = absl::Seconds(60)}));
  auto [a, b] = patient.Connect({.send_depth = 64, .receive_depth = 64});
  for (uint64_t i = 0; i < 64; ++i) {
    a.Fill(i * 100, absl::StrCat("message ", 100 + i));
    ASSERT_TRUE(a.Send(i, a.At(i * 100, 11)).ok());
  }
  for (uint64_t i = 0; i < 64; ++i) {  // One at a time: each lets one in.
    patient.PollSome(3);
    ASSERT_TRUE(b.Receive(i, b.At(i * 100, 100)).ok());
    HAWSER_UNTIL(patient, b.receives.size() == i + 1);
    EXPECT_EQ(b.Text(i * 100, 11), absl::StrCat("message ", 100 + i));
  }
  HAWSER_UNTIL(patient, a.sends.size() == 64);
}

}  // namespace
}  // namespace hawser::fabric
