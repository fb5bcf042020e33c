// The peers that connect to a port of the TCP fabric, and those that it connects to.
#include <arpa/inet.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/tests/transport/fabric/tcp_stage.h"
#include "hawser/transport/fabric/tcp/greeting.h"
#include "hawser/transport/fabric/tcp/socket.h"

namespace hawser::fabric {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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
  constexpr absl::Duration kExpires = absl::Milliseconds(20);
  FabricWorld impatient(Tcp({.half_open_timeout = kExpires}));
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

// A connected socket from 127.0.0.`host`.
int ConnectFrom(FabricWorld& world, uint8_t host) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in from = {};
  from.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&from), sizeof(from)), 0);
  const SocketAddress address = world.listener().address();
  EXPECT_EQ(connect(fd, address.get(), address.length_bytes()), 0);
  return fd;
}

TEST_F(TcpFabricTest, AFloodFromOneHostCostsAPeerOfAnotherNothing) {
  FabricWorld patient(Tcp({.half_open_max = 8, .half_open_timeout = absl::InfiniteDuration()}));
  Stranger slow(patient, ConnectFrom(patient, 1));
  patient.PollSome(3);
  std::vector<std::unique_ptr<Stranger>> flood;
  for (int i = 0; i < 100; ++i) {
    flood.push_back(std::make_unique<Stranger>(patient, ConnectFrom(patient, 2)));
    patient.PollSome(1);
  }
  flood[80]->HearUntilClosed();
  EXPECT_FALSE(slow.closed());
  slow.Say(EncodeGreeting(GreetingKind::kConnect, 1, ""));
  HAWSER_UNTIL(patient, patient.requests().requests.size() == 1);
}

// Twenty milliseconds, with 30,000 connections a second from the same host.
TEST_F(TcpFabricTest, APeerMayTakeItsTimeInAFloodFromItsOwnHost) {
  Stranger slow(world_, ConnectFrom(world_, 1));
  std::vector<std::unique_ptr<Stranger>> flood;
  for (int i = 0; i < 600; ++i) {
    flood.push_back(std::make_unique<Stranger>(world_, ConnectFrom(world_, 1)));
    world_.PollSome(1);
  }
  slow.Say(EncodeGreeting(GreetingKind::kConnect, 1, ""));
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
}

TEST_F(TcpFabricTest, WithoutFileDescriptorsAHalfOpenPeerMakesRoom) {
  FabricWorld patient(Tcp({.half_open_timeout = absl::InfiniteDuration()}));
  Stranger silent(patient, ConnectFrom(patient, 2));
  patient.PollSome(5);
  Endpoint& a = patient.NewEndpoint(0);
  ASSERT_THAT(a.qp().Connect(patient.listener().address(), ""), IsOk());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  close(next);
  rlimit tight = before;
  tight.rlim_cur = next;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  HAWSER_UNTIL(patient, patient.requests().requests.size() == 1);
  EXPECT_TRUE(silent.closed());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
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
  ASSERT_THAT(a.qp().Connect(world_.listener().address(), ""), IsOk());
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

SocketAddress V6(const in6_addr& host, uint16_t port = 0) {
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = host;
  v6.sin6_port = htons(port);
  return SocketAddress(reinterpret_cast<sockaddr*>(&v6), sizeof(v6));
}

TEST_F(TcpFabricTest, AllAddressesOfIpv6AreThoseOfIpv4Too) {
  RequestRecorder requests;
  auto listener = world_.fabric().Listen(world_.completion_queue(), V6(in6addr_any), requests);
  ASSERT_THAT(listener, IsOk());
  const uint16_t port = (*listener)->address().port();
  for (const SocketAddress& address : {Loopback(port), V6(in6addr_loopback, port)}) {
    Endpoint& a = world_.NewEndpoint(0);
    EXPECT_THAT(a.qp().Connect(address, ""), IsOk());
    HAWSER_UNTIL(world_, !requests.requests.empty());
    EXPECT_EQ(requests.requests[0]->peer_address().ToString(), a.qp().local_address().ToString());
    Endpoint& b = world_.NewEndpoint(0);
    EXPECT_THAT(b.qp().Accept(*requests.requests[0], ""), IsOk());
    requests.requests.clear();
    EXPECT_EQ(b.qp().peer_address().family(), address.family());
    EXPECT_EQ(b.qp().local_address().ToString(), address.ToString());
    HAWSER_UNTIL(world_, a.news().established());
  }
}

TEST_F(TcpFabricTest, OneAddressOfIpv6LeavesThePortToIpv4) {
  RequestRecorder requests;
  const auto listen = [&](const SocketAddress& address) {
    return world_.fabric().Listen(world_.completion_queue(), address, requests);
  };
  // A port that IPv4 has: connections of other tests hold theirs for a minute after their end.
  const uint16_t port = (*listen(Loopback()))->address().port();
  const auto v6 = listen(V6(in6addr_loopback, port));
  ASSERT_THAT(v6, IsOk());
  const auto v4 = listen(Loopback(port));
  EXPECT_THAT(v4, IsOk());
}

// --- A SEND and its receive
// ------------------------------------------------------------------------------------------

TEST_F(TcpFabricTest, AReceiveThatIsBeingFilledIsNotWithdrawn) {
  Endpoint& b = world_.NewEndpoint(1);
  Stranger peer(world_);
  peer.BecomePeerOf(b);
  ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
  ASSERT_THAT(b.Receive(2, b.At(100, 100)), IsOk());
  peer.Say({.kind = FrameKind::kSend, .length_bytes = 6}, "one");
  HAWSER_UNTIL(world_, b.Text(0, 3) == "one");
  uint64_t withdrawn[2];
  ASSERT_EQ(b.qp().WithdrawReceives(absl::MakeSpan(withdrawn)), 1u);
  EXPECT_EQ(static_cast<uint32_t>(withdrawn[0]), 2u);  // The endpoint marks its receives above that.
  b.receives_posted -= 1;
  peer.Say("two");
  HAWSER_UNTIL(world_, b.receives.size() == 1);
  EXPECT_THAT(b.receives[0], CompletionIs(1, CompletionStatus::kSuccess));
  EXPECT_EQ(b.Text(0, 6), "onetwo");
}

TEST_F(TcpFabricTest, WhatIsSentInsideAnOfferAcknowledgesTheSend) {
  Endpoint& b = world_.NewEndpoint(1);
  Stranger peer(world_);
  peer.BecomePeerOf(b);
  int offers = 0;
  b.news().take_send = [&](absl::string_view) {
    const uint8_t answer[3] = {'y', 'e', 's'};
    EXPECT_TRUE(b.qp().PostInline(answer));
    b.qp().RingDoorbell();
    return ++offers > 0;
  };
  ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
  peer.Say({.kind = FrameKind::kSend, .flags = kAckRequestedFlag, .length_bytes = 3}, "one");
  peer.HearBytes(sizeof(FrameHeader) + 3);
  EXPECT_EQ(offers, 1);
  EXPECT_EQ(peer.FrameAt(0).kind, FrameKind::kSend);
  EXPECT_EQ(peer.FrameAt(0).acknowledged, 1u);
  world_.PollSome();
  peer.Listen();
  EXPECT_EQ(peer.heard().size(), sizeof(FrameHeader) + 3) << "no acknowledgement besides";
}

// While a SEND waits for a receive, a socket that is full is watched for room only.
TEST_F(TcpFabricTest, AFullSocketIsReadAgainAfterASendHasWaited) {
  // When that timeout expires, epoll reports an error, and what has arrived is read before the connection
  // ends.
  FabricWorld world(Tcp(
      {.unacknowledged_timeout = 10 * kPatience, .send_buffer_bytes = 64 * 1024, .counters = &counters_}));
  constexpr uint32_t kMegabyte = 1024 * 1024;
  Endpoint& b = world.NewEndpoint(1, {.sends_wait = true}, kMegabyte);
  Stranger peer(world);
  peer.BecomePeerOf(b);
  for (uint64_t i = 0; i < 32; ++i) ASSERT_THAT(b.Send(i, b.At(0, kMegabyte)), IsOk());
  const uint64_t watch_calls = counters_.watch_calls.load();
  peer.Say({.kind = FrameKind::kSend, .length_bytes = 3}, "one");
  HAWSER_UNTIL(world, counters_.watch_calls.load() > watch_calls);
  for (uint64_t i = 1; i <= 2; ++i) ASSERT_THAT(b.Receive(i, b.At(0, 3)), IsOk());
  HAWSER_UNTIL(world, b.receives.size() == 1);
  peer.Say({.kind = FrameKind::kSend, .length_bytes = 3}, "two");
  HAWSER_UNTIL(world, b.receives.size() == 2);
  EXPECT_EQ(b.Text(0, 3), "two");
  EXPECT_FALSE(b.news().ended()) << b.news().why;
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
  EXPECT_THAT(a.qp().Connect(LocalAddress(listener.get()), ""), IsOk());
  Stranger stranger(world, accept(listener.get(), nullptr, nullptr));
  stranger.HearBytes(kGreetingHeaderBytes);
  stranger.Say(answer);
  stranger.Close();
  HAWSER_UNTIL(world, a.news().ended());
  EXPECT_THAT(a.news().told, ElementsAre("failed"));
  return a.news().why;
}

TEST_F(TcpFabricTest, WhatWasCopiedAndNotSentEndsWithTheConnection) {
  constexpr size_t kConnections = 40, kCopiesBytes = 16 * 1024, kStockMax = 8;
  const uint8_t message[1] = {7};
  std::vector<Endpoint*> endpoints;
  for (size_t i = 0; i < kConnections; ++i) endpoints.push_back(&world_.Connect().a);
  const size_t before = mallinfo2().uordblks;
  for (Endpoint* endpoint : endpoints) ASSERT_TRUE(endpoint->qp().PostInline(message));
  for (Endpoint* endpoint : endpoints) endpoint->qp().Disconnect();
  if (before == 0) GTEST_SKIP() << "the allocator of a sanitizer does not count";
  EXPECT_LE(mallinfo2().uordblks, before + (kStockMax + 2) * kCopiesBytes);
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
  EXPECT_THAT(std::string(itself.message()), HasSubstr("nothing listens there"));

  for (uint32_t depth : {0u, 17u}) {  // Offered were 16.
    const absl::Status depth_status =
        ConnectToStranger(world_, EncodeGreeting(GreetingKind::kAccept, depth, ""));
    EXPECT_THAT(std::string(depth_status.message()), HasSubstr(absl::StrCat("READ depth of ", depth)));
  }

  std::string malformed = EncodeGreeting(GreetingKind::kAccept, 0, "");
  malformed[11] = static_cast<char>(kAcceptPrivateDataMax + 1);
  EXPECT_THAT(std::string(ConnectToStranger(world_, malformed).message()), HasSubstr("malformed answer"));
}

TEST_F(TcpFabricTest, ARefusedConnectionSaysThatNobodyListens) {
  const SocketAddress nobody = world_.listener().address();
  world_.CloseListener();
  Endpoint& a = world_.NewEndpoint(0);
  ASSERT_THAT(a.qp().Connect(nobody, ""), IsOk());
  HAWSER_UNTIL(world_, a.news().ended());
  EXPECT_EQ(a.news().why.message(),
            absl::StrCat("connect to ", nobody.ToString(),
                         ": connection refused (ECONNREFUSED): nothing listens there"));
}

// PROTOCOL.md: key and address of a SEND are 0. Whatever the caller left in the work request, or an earlier
// request in its place of the queue, is not for the peer.
TEST_F(TcpFabricTest, ASendNamesNoMemory) {
  Endpoint& b = world_.NewEndpoint(1, {.send_depth = 4});
  Stranger peer(world_);
  peer.BecomePeerOf(b);
  size_t heard = 0;
  for (int i = 0; i < 20; ++i) {
    const bool reads = i % 2 == 0;
    const Sge sge = b.At(0, reads ? 8 : 1000);
    ASSERT_THAT(b.qp().PostSend({{{.opcode = reads ? Opcode::kRead : Opcode::kSend,
                                   .signaled = true,
                                   .sges = {&sge, 1},
                                   .remote_address = 0xa5a5a5a5a5a5,
                                   .rkey = 0xa5a5}}}),
                IsOk());
    peer.HearBytes(heard + sizeof(FrameHeader) + (reads ? 0 : 1000));
    const FrameHeader header = peer.FrameAt(heard);
    heard = peer.heard().size();
    EXPECT_EQ(header.kind, reads ? FrameKind::kReadRequest : FrameKind::kSend);
    EXPECT_EQ(header.address, reads ? 0xa5a5a5a5a5a5u : 0u);
    EXPECT_EQ(header.key, reads ? 0xa5a5u : 0u);
    const auto number = static_cast<uint32_t>(i);
    if (reads) {
      peer.Say(
          {.kind = FrameKind::kReadResponse, .length_bytes = 8, .acknowledged = number + 1, .key = number},
          "8 bytes.");
    } else {
      peer.Say({.kind = FrameKind::kAck, .acknowledged = number + 1});
    }
    HAWSER_UNTIL(world_, (world_.PollSome(), b.sends.size() == static_cast<size_t>(i) + 1));
  }
}

TEST_F(TcpFabricTest, NoAddressCannotBeConnectedTo) {
  Endpoint& a = world_.NewEndpoint(0);
  EXPECT_THAT(a.qp().Connect(SocketAddress(), ""), HasCode(absl::StatusCode::kInvalidArgument));
}

// --- What a drain looks at
// ---------------------------------------------------------------------------------------------------------

// A peer that READs 16 MiB and does not read its socket, whose buffers take less.
TEST_F(TcpFabricTest, WhatAPeerTakesOfAnAnswerIsProgressAndWhatFollowsIsNot) {
  constexpr uint32_t kChunk = 1 << 20, kChunks = 16;
  constexpr int64_t kWhole = int64_t{kChunks} * (kChunk + kChunk / kReadFragmentMax * sizeof(FrameHeader));
  Endpoint& b =
      world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 16}, kChunk * kChunks);
  Stranger peer(world_);
  peer.BecomePeerOf(b);
  const Granted all = b.Grant(b.At(0, kChunk * kChunks), QueuePair::Access::kRead);
  const int64_t before = b.qp().progress().sent;
  for (uint32_t i = 0; i < kChunks; ++i) {
    peer.Say({.kind = FrameKind::kReadRequest,
              .length_bytes = kChunk,
              .key = all.rkey,
              .address = all.address + i * kChunk});
  }
  HAWSER_UNTIL(world_, b.qp().progress().sent > before);
  world_.PollSome();
  const int64_t full = b.qp().progress().sent;
  EXPECT_LT(full, kWhole) << "more than the buffers of sockets have";
  HAWSER_UNTIL(world_, (peer.Listen(), b.qp().progress().sent > full));
  HAWSER_UNTIL(world_, (peer.Listen(), b.qp().progress().sent == kWhole));
  ASSERT_THAT(b.Send(1, b.At(0, 100)), IsOk());
  world_.PollSome();
  EXPECT_LE(b.qp().progress().sent, kWhole) << "something else was sent";
}

// The SENDs go before the answer, and take more than the buffers of the sockets.
TEST_F(TcpFabricTest, WhatIsSentBeforeAnAnswerIsProgressAsWell) {
  constexpr uint32_t kSend = 64 << 10, kSends = 256, kRead = 8;
  constexpr int64_t kWhole = int64_t{kSends} * (sizeof(FrameHeader) + kSend) + sizeof(FrameHeader) + kRead;
  Endpoint& b = world_.NewEndpoint(1, {.send_depth = kSends, .receive_depth = 8, .read_depth = 16}, kSend);
  Stranger peer(world_);
  peer.BecomePeerOf(b);
  const Granted all = b.Grant(b.At(0, kSend), QueuePair::Access::kRead);
  for (uint32_t i = 0; i < kSends; ++i) ASSERT_THAT(b.Send(i, b.At(0, kSend), /*signaled=*/false), IsOk());
  world_.PollSome();
  EXPECT_LE(b.qp().progress().sent, 0) << "no answer is behind it";
  peer.Say({.kind = FrameKind::kReadRequest, .length_bytes = kRead, .key = all.rkey, .address = all.address});
  HAWSER_UNTIL(world_, b.qp().progress().sent > 0);
  world_.PollSome();
  const int64_t full = b.qp().progress().sent;
  EXPECT_LT(full, kWhole);
  HAWSER_UNTIL(world_, (peer.Listen(), b.qp().progress().sent > full));
  HAWSER_UNTIL(world_, (peer.Listen(), b.qp().progress().sent == kWhole));
}

TEST_F(TcpFabricTest, EachPartOfAnAnswerThatArrivesIsProgress) {
  Endpoint& b = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 16});
  Stranger peer(world_);
  peer.BecomePeerOf(b);
  ASSERT_THAT(b.Read(1, b.At(0, 8192), {.address = 4096, .rkey = 7}), IsOk());
  peer.HearBytes(sizeof(FrameHeader));
  uint64_t arrived = b.qp().progress().arrived;
  peer.Say({.kind = FrameKind::kReadResponse, .length_bytes = 8192, .acknowledged = 1}, "one");
  HAWSER_UNTIL(world_, b.qp().progress().arrived != arrived);
  arrived = b.qp().progress().arrived;
  peer.Say("two");
  HAWSER_UNTIL(world_, b.qp().progress().arrived != arrived);
  EXPECT_TRUE(b.sends.empty()) << "the READ has not completed";
}

}  // namespace
}  // namespace hawser::fabric
