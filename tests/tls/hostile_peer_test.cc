// Peers of a listener over TCP that requires TLS: without it, without an end, without manners.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/base/unique_fd.h"
#include "hawser/base/violation.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tests/tls/sessions.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/tests/transport/fabric/tcp_stage.h"
#include "hawser/transport/fabric/tcp/fabric.h"
#include "hawser/transport/fabric/tcp/frame.h"
#include "hawser/transport/fabric/tcp/frame_reader.h"
#include "hawser/transport/fabric/tcp/greeting.h"
#include "hawser/transport/fabric/tcp/receive_queue.h"
#include "hawser/transport/fabric/tcp/send_queue.h"
#include "hawser/transport/fabric/tcp/socket.h"
#include "hawser/transport/fabric/tcp/stream.h"

namespace hawser::fabric {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using tls::Context;
using tls::End;
using tls::RawOptions;
using tls::RawPeer;
using tls::Side;
using tls::Socket;
using tls::SocketPair;

// The credentials of each side, and the peers of which the listener has told.
struct Security {
  std::shared_ptr<Context> server, client;  // Null: it speaks no TLS.
  std::vector<absl::Status> bad_peers;
};

// A fabric over TCP whose listeners and connections have these.
class SecureFabric final : public Fabric {
 public:
  SecureFabric(std::unique_ptr<Fabric> real, Security& security)
      : real_(std::move(real)), security_(security) {}

  absl::string_view scheme() const override { return real_->scheme(); }
  bool sends_can_wait() const override { return real_->sends_can_wait(); }
  size_t sge_max() const override { return real_->sge_max(); }
  Atomics atomics() const override { return real_->atomics(); }
  bool carries_tls() const override { return real_->carries_tls(); }
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(uint8_t* address, size_t length_bytes) override {
    return real_->Register(address, length_bytes);
  }
  absl::StatusOr<std::unique_ptr<CompletionQueue>> CreateCompletionQueue(uint32_t depth) override {
    return real_->CreateCompletionQueue(depth);
  }
  absl::StatusOr<std::unique_ptr<QueuePair>> CreateQueuePair(CompletionQueue& completion_queue,
                                                             const QueuePairOptions& options,
                                                             ConnectionHandler& handler) override {
    QueuePairOptions secure = options;
    secure.tls = security_.client;
    secure.tls_host = "localhost";
    return real_->CreateQueuePair(completion_queue, secure, handler);
  }
  absl::StatusOr<std::unique_ptr<Listener>> Listen(CompletionQueue& completion_queue,
                                                   const SocketAddress& address, ListenHandler& handler,
                                                   const ListenOptions&) override {
    handlers_.push_back(std::make_unique<Recorder>(handler, security_.bad_peers));
    return real_->Listen(completion_queue, address, *handlers_.back(), {.tls = security_.server});
  }

 private:
  class Recorder final : public ListenHandler {
   public:
    Recorder(ListenHandler& next, std::vector<absl::Status>& bad_peers)
        : next_(next), bad_peers_(bad_peers) {}
    void OnConnectRequest(std::unique_ptr<ConnectRequest> request) override {
      next_.OnConnectRequest(std::move(request));
    }
    void OnBadPeer(const SocketAddress&, const absl::Status& why) override { bad_peers_.push_back(why); }

   private:
    ListenHandler& next_;
    std::vector<absl::Status>& bad_peers_;
  };

  const std::unique_ptr<Fabric> real_;
  Security& security_;
  std::vector<std::unique_ptr<Recorder>> handlers_;
};

class TlsListenerTest : public ::testing::Test {
 protected:
  TlsListenerTest() {
    security_.server = tls::NewContext(server_);
    security_.client = tls::NewContext(client_);
  }

  FabricWorld& NewWorld(const TcpFabricOptions& options = {}) {
    FabricUnderTest under_test = {
        "Tls",
        [this, options] { return std::make_shared<SecureFabric>(CreateTcpFabric(options), security_); }};
    under_test.listen_address = Loopback();
    world_ = std::make_unique<FabricWorld>(under_test);
    return *world_;
  }

  Socket Dial() {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress address = world_->listener().address();
    EXPECT_EQ(connect(socket.fd(), address.get(), address.length_bytes()), 0);
    const int on = 1;
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    fcntl(socket.fd(), F_SETFL, O_NONBLOCK);
    return socket;
  }
  // From 127.0.1.0 + `host`.
  Socket DialFrom(uint32_t host) {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in from = {};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xffu) + 256 + host);
    EXPECT_EQ(bind(socket.fd(), reinterpret_cast<sockaddr*>(&from), sizeof(from)), 0);
    const SocketAddress address = world_->listener().address();
    EXPECT_EQ(connect(socket.fd(), address.get(), address.length_bytes()), 0);
    fcntl(socket.fd(), F_SETFL, O_NONBLOCK);
    return socket;
  }
  // The first bytes of a client.
  static std::string Hello() {
    SocketPair recorded;
    RawPeer raw(Side::kClient, std::move(recorded.client), {});
    raw.Step();
    return recorded.server.Receive();
  }
  static bool IsReadable(int fd) {
    pollfd readable = {.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&readable, 1, 0) == 1;
  }
  // The server has answered them, or has closed them.
  static size_t CountReadable(const std::vector<Socket>& sockets) {
    return static_cast<size_t>(std::count_if(sockets.begin(), sockets.end(),
                                             [](const Socket& each) { return IsReadable(each.fd()); }));
  }
  // Until the handshake is done.
  std::unique_ptr<RawPeer> DialTls() {
    auto raw = std::make_unique<RawPeer>(Side::kClient, Dial(), RawOptions{.credentials = &client_});
    HAWSER_UNTIL(*world_, raw->Step() == 1 || raw->has_failed());
    EXPECT_FALSE(raw->has_failed()) << raw->error();
    return raw;
  }
  // DialTls(), and `b` accepts.
  std::unique_ptr<RawPeer> BecomePeerOf(Endpoint& b) {
    std::unique_ptr<RawPeer> raw = DialTls();
    Write(*raw, EncodeGreeting(GreetingKind::kConnect, 16, ""));
    HAWSER_UNTIL(*world_, !world_->requests().requests.empty());
    EXPECT_THAT(b.qp().Accept(*world_->requests().requests[0], ""), IsOk());
    world_->requests().requests.clear();
    HAWSER_UNTIL(*world_, b.news().established());
    std::string answer;
    HAWSER_UNTIL(*world_, (answer += raw->Read(), answer.size() >= kGreetingHeaderBytes));
    return raw;
  }
  void Write(RawPeer& raw, absl::string_view bytes) {
    EXPECT_EQ(SSL_write(raw.ssl(), bytes.data(), static_cast<int>(bytes.size())),
              static_cast<int>(bytes.size()));
  }
  static std::string Bytes(const FrameHeader& header, absl::string_view payload = {}) {
    return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&header), sizeof(header)), payload);
  }

  // An honest client gets in, and its message arrives.
  void ExpectAnHonestClientGetsIn() {
    Endpoint& a = world_->NewEndpoint(0);
    Endpoint& b = world_->NewEndpoint(1);
    ASSERT_THAT(a.qp().Connect(world_->listener().address(), ""), IsOk());
    HAWSER_UNTIL(*world_, !world_->requests().requests.empty() || a.news().ended());
    ASSERT_FALSE(a.news().ended()) << a.news().why;
    ASSERT_FALSE(world_->requests().requests.empty());
    ASSERT_THAT(b.qp().Accept(*world_->requests().requests[0], ""), IsOk());
    world_->requests().requests.clear();
    HAWSER_UNTIL(*world_, (a.news().established() && b.news().established()) || b.news().ended());
    ASSERT_FALSE(b.news().ended()) << b.news().why;
    ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
    a.Fill(0, "honest");
    ASSERT_THAT(a.Send(1, a.At(0, 6)), IsOk());
    HAWSER_UNTIL(*world_, b.receives.size() == 1);
    EXPECT_EQ(b.Text(0, 6), "honest");
  }

  CertificateAuthority authority_;
  TlsCredentials client_ =
      authority_.Issue({.dns = {"client.example.org"}, .uris = {"spiffe://example.org/client"}});
  TlsCredentials server_ = authority_.Issue();
  Security security_;
  std::unique_ptr<FabricWorld> world_;
};

TEST_F(TlsListenerTest, AnHonestClientIsKnown) {
  NewWorld();
  auto [a, b] = world_->Connect();
  ASSERT_NE(b.qp().peer_identity(), nullptr);
  EXPECT_TRUE(b.qp().peer_identity()->HasUri("spiffe://example.org/client"));
  ASSERT_NE(a.qp().peer_identity(), nullptr);
  EXPECT_TRUE(a.qp().peer_identity()->HasDnsName("localhost"));
  ExpectAnHonestClientGetsIn();
}

// Neither side's flight fits into the socket, nor do the tickets, which have the client's certificate in
// them.
TEST_F(TlsListenerTest, LargeCertificatesPassTinySockets) {
  const CertificateOptions large = {.padding_bytes = 20'000};
  security_.client = tls::NewContext(authority_.Issue({}, large));
  security_.server = tls::NewContext(authority_.Issue(LoopbackNames(), large));
  NewWorld({.send_buffer_bytes = 1, .receive_buffer_bytes = 1});
  for (int i = 0; i < 3; ++i) ExpectAnHonestClientGetsIn();
}

// A server that does not read for a while: the client keeps the rest of its flight, and its greeting behind
// it.
TEST_F(TlsListenerTest, AClientWaitsForAServerThatDoesNotRead) {
  security_.client = tls::NewContext(authority_.Issue({}, {.padding_bytes = 25'000}));
  NewWorld({.send_buffer_bytes = 1});
  const Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int bytes = 1;
  setsockopt(listener.fd(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  const SocketAddress any = Loopback();
  ASSERT_EQ(bind(listener.fd(), any.get(), any.length_bytes()), 0);
  ASSERT_EQ(listen(listener.fd(), 1), 0);
  Endpoint& a = world_->NewEndpoint(0);
  ASSERT_THAT(a.qp().Connect(LocalAddress(listener.fd()), ""), IsOk());
  RawPeer raw(Side::kServer, Socket(accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)),
              {.credentials = &server_});
  world_->PollSome(10);
  raw.Step();  // Which reads the client's hello, and sends all of its own flight.
  world_->PollSome(50);
  EXPECT_FALSE(a.news().ended()) << a.news().why;
  HAWSER_UNTIL(*world_, raw.Step() == 1 || raw.has_failed());
  ASSERT_FALSE(raw.has_failed()) << raw.error();
  std::string greeting;
  HAWSER_UNTIL(*world_,
               (greeting += raw.Read(), greeting.size() >= kGreetingHeaderBytes) || a.news().ended());
  EXPECT_FALSE(a.news().ended()) << a.news().why;
  EXPECT_EQ(greeting.substr(0, kGreetingMagicBytes), kGreetingMagic);
}

TEST_F(TlsListenerTest, APlainGreetingHearsThatTlsIsNeeded) {
  NewWorld();
  Stranger peer(*world_);
  peer.Say(EncodeGreeting(GreetingKind::kConnect, 16, ""));
  peer.HearUntilClosed();
  ASSERT_EQ(peer.heard().size(), kGreetingHeaderBytes);
  EXPECT_EQ(peer.heard().substr(0, kGreetingMagicBytes), kGreetingMagic);
  EXPECT_EQ(peer.heard()[10], static_cast<char>(GreetingKind::kReject));
  EXPECT_EQ(peer.heard()[15], kNeedsTls);
  ASSERT_EQ(security_.bad_peers.size(), 1u);
  EXPECT_EQ(ViolationOf(security_.bad_peers[0]), Violation::kTls);
  EXPECT_THAT(std::string(security_.bad_peers[0].message()), HasSubstr("ChannelOptions::credentials"));
  ExpectAnHonestClientGetsIn();
}

TEST_F(TlsListenerTest, AClientWithoutCredentialsLearnsWhatItLacks) {
  security_.client = nullptr;
  NewWorld();
  Endpoint& a = world_->NewEndpoint(0);
  ASSERT_THAT(a.qp().Connect(world_->listener().address(), ""), IsOk());
  HAWSER_UNTIL(*world_, a.news().ended());
  EXPECT_THAT(a.news().why, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(std::string(a.news().why.message()), HasSubstr("ChannelOptions::credentials"));
}

TEST_F(TlsListenerTest, AServerWithoutCredentialsIsNamed) {
  security_.server = nullptr;
  NewWorld();
  Endpoint& a = world_->NewEndpoint(0);
  ASSERT_THAT(a.qp().Connect(world_->listener().address(), ""), IsOk());
  HAWSER_UNTIL(*world_, a.news().ended());
  EXPECT_THAT(a.news().why, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(std::string(a.news().why.message()), HasSubstr("without TLS"));
  ASSERT_EQ(security_.bad_peers.size(), 1u);
  EXPECT_THAT(std::string(security_.bad_peers[0].message()), HasSubstr("ServerOptions::credentials"));
  security_.client = nullptr;
  ExpectAnHonestClientGetsIn();
}

TEST_F(TlsListenerTest, OtherProtocolsAreNamed) {
  NewWorld();
  for (const absl::string_view text :
       {"GET / HTTP/1.1\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "\x80\x2e\x01\x03\x01 SSL 2 "}) {
    security_.bad_peers.clear();
    Stranger peer(*world_);
    peer.Say(text);
    peer.HearUntilClosed();
    ASSERT_EQ(security_.bad_peers.size(), 1u);
  }
  ExpectAnHonestClientGetsIn();
}

TEST_F(TlsListenerTest, AClientOfAnotherAuthorityIsRefusedOnBothSides) {
  const CertificateAuthority other("other authority");
  security_.client = tls::NewContext(other.Issue({}, {.authorities = authority_.authorities_path()}));
  NewWorld();
  Endpoint& a = world_->NewEndpoint(0);
  ASSERT_THAT(a.qp().Connect(world_->listener().address(), ""), IsOk());
  HAWSER_UNTIL(*world_, a.news().ended());
  EXPECT_THAT(a.news().why, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(std::string(a.news().why.message()),
              HasSubstr("none of its authorities has issued our certificate"));
  ASSERT_EQ(security_.bad_peers.size(), 1u);
  EXPECT_THAT(std::string(security_.bad_peers[0].message()), HasSubstr("CN=other authority"));
  EXPECT_THAT(world_->requests().requests, IsEmpty());
}

TEST_F(TlsListenerTest, AServerOfAnotherAuthorityIsRefusedOnBothSides) {
  const CertificateAuthority other("other authority");
  security_.server =
      tls::NewContext(other.Issue(LoopbackNames(), {.authorities = authority_.authorities_path()}));
  NewWorld();
  Endpoint& a = world_->NewEndpoint(0);
  ASSERT_THAT(a.qp().Connect(world_->listener().address(), ""), IsOk());
  HAWSER_UNTIL(*world_, a.news().ended() && !security_.bad_peers.empty());
  EXPECT_THAT(a.news().why, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(std::string(a.news().why.message()), HasSubstr("CN=other authority"));
  EXPECT_THAT(std::string(security_.bad_peers[0].message()), HasSubstr("none of its authorities"));
}

TEST_F(TlsListenerTest, AClientWithoutACertificateIsRefused) {
  NewWorld();
  RawPeer raw(Side::kClient, Dial());
  HAWSER_UNTIL(*world_, raw.Step() == 0 || (raw.Read(), raw.has_failed()));
  ASSERT_EQ(security_.bad_peers.size(), 1u);
  EXPECT_THAT(std::string(security_.bad_peers[0].message()),
              MatchesRegex("peer tcp://[^ ]*: TLS: it has sent no certificate"));
  EXPECT_THAT(world_->requests().requests, IsEmpty());
}

TEST_F(TlsListenerTest, AHandshakeThatTricklesEndsInTime) {
  NewWorld({.half_open_timeout = absl::Seconds(2)});
  SocketPair recorded;
  RawPeer raw(Side::kClient, std::move(recorded.client), {.credentials = &client_});
  raw.Step();
  const std::string hello = recorded.server.Receive();
  ASSERT_GT(hello.size(), 150u);
  Stranger peer(*world_);
  const absl::Time start = absl::Now();
  size_t said = 0;
  HAWSER_UNTIL(*world_, (([&] {
                           // A byte each 20 ms.
                           if (absl::Now() - start > absl::Milliseconds(20) * said && said < hello.size()) {
                             peer.Say(hello.substr(said++, 1));
                           }
                         }()),
                         peer.closed()));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(1990));
  EXPECT_LT(said, hello.size());
  ExpectAnHonestClientGetsIn();
}

TEST_F(TlsListenerTest, APeerThatNeverGreetsEndsInTime) {
  NewWorld({.half_open_timeout = absl::Seconds(2)});
  std::unique_ptr<RawPeer> raw = DialTls();
  HAWSER_UNTIL(*world_, (raw->Read(), raw->has_failed()));
  // One that keeps asking for new keys meanwhile has no more time.
  raw = DialTls();
  HAWSER_UNTIL(*world_, (SSL_key_update(raw->ssl(), SSL_KEY_UPDATE_REQUESTED), raw->Step(), raw->Read(),
                         raw->has_failed()));
  EXPECT_THAT(world_->requests().requests, IsEmpty());
}

// What a client sends up to a byte, and then nothing: the connection ends at once if it is closed, and the
// listener serves others.
TEST_F(TlsListenerTest, AHandshakeThatIsCutEndsItsConnectionAlone) {
  NewWorld();
  size_t cut = 1;
  for (bool complete = false; !complete && cut < 10'000; cut += 13) {
    SocketPair tapped;
    RawPeer raw(Side::kClient, std::move(tapped.client), {.credentials = &client_});
    Socket line = Dial();
    size_t passed = 0;
    HAWSER_UNTIL(*world_, (([&] {
                             complete = raw.Step() == 1;
                             const std::string bytes = tapped.server.Receive();
                             passed += line.Send(absl::string_view(bytes).substr(0, cut - passed));
                             tapped.server.Send(line.Receive());
                             complete = complete && passed < cut;
                           }()),
                           passed >= cut || complete || raw.has_failed()));
    ASSERT_FALSE(raw.has_failed()) << raw.error();
    line.Close();
    world_->PollSome(3);
  }
  EXPECT_GT(cut, 700u);
  EXPECT_THAT(world_->requests().requests, IsEmpty());
  ExpectAnHonestClientGetsIn();
}

TEST_F(TlsListenerTest, RandomBytesEndTheirConnectionAlone) {
  NewWorld();
  unsigned seed = 1;
  for (int i = 0; i < 300; ++i) {
    std::string noise(1 + rand_r(&seed) % 3000, ' ');
    for (char& c : noise) c = static_cast<char>(rand_r(&seed));
    if (i % 3 == 1) noise = "\x16" + noise;
    if (i % 3 == 2) noise = std::string("\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03", 11) + noise;
    Stranger peer(*world_);
    peer.Say(noise);
    shutdown(peer.fd(), SHUT_WR);
    peer.HearUntilClosed();
  }
  for (const absl::Status& why : security_.bad_peers) EXPECT_LE(why.message().size(), 1000u);
  ExpectAnHonestClientGetsIn();
}

TEST_F(TlsListenerTest, HandshakesThatAreNeverFinishedAreBounded) {
  NewWorld({.half_open_max = 64, .half_open_per_host_max = 48});
  SocketPair recorded;
  RawPeer raw(Side::kClient, std::move(recorded.client), {.credentials = &client_});
  raw.Step();
  const std::string hello = recorded.server.Receive();
  std::vector<Socket> open;
  for (int i = 0; i < 2'000; ++i) {
    open.push_back(Dial());
    open.back().Send(hello);
    world_->PollSome(1);
    if (open.size() < 100) continue;
    // The oldest have been dropped.
    open.erase(std::remove_if(open.begin(), open.end(),
                              [](Socket& each) {
                                bool is_closed = false;
                                each.Receive(&is_closed);
                                return is_closed;
                              }),
               open.end());
    ASSERT_LT(open.size(), 100u);
  }
  ExpectAnHonestClientGetsIn();
}

// Handshakes take turns by host, so that numbers gain a host nothing.
TEST_F(TlsListenerTest, AClientOfAnotherHostNeedNotWaitForAFlood) {
  NewWorld();
  const std::string hello = Hello();
  constexpr size_t kFlood = 150;
  std::vector<Socket> flood;
  for (size_t i = 0; i < kFlood; ++i) {
    flood.push_back(DialFrom(1));
    flood.back().Send(hello);
  }
  Endpoint& a = world_->NewEndpoint(0);
  ASSERT_THAT(a.qp().Connect(world_->listener().address(), ""), IsOk());
  HAWSER_UNTIL(*world_, !world_->requests().requests.empty() || a.news().ended());
  EXPECT_FALSE(a.news().ended()) << a.news().why;
  EXPECT_LT(CountReadable(flood), kFlood / 3);
  world_->requests().requests.clear();
  HAWSER_UNTIL(*world_, CountReadable(flood) == kFlood);
}

// New hosts without end, more than there is time for: the second half of a handshake goes before their first
// ones.
TEST_F(TlsListenerTest, AHandshakeThatHasBegunGoesBeforeThoseOfNewHosts) {
  NewWorld();
  const std::string hello = Hello();
  std::vector<Socket> flood;
  uint32_t hosts = 0;
  const auto more = [&](int count) {
    for (int i = 0; i < count; ++i) {
      flood.push_back(DialFrom(++hosts));
      flood.back().Send(hello);
    }
  };
  more(100);
  // What waits before it comes to its first turn, and not for ever: hosts that come later wait behind it.
  Endpoint& a = world_->NewEndpoint(0);
  ASSERT_THAT(a.qp().Connect(world_->listener().address(), ""), IsOk());
  for (int i = 0; i < 1000 && world_->requests().requests.empty() && !a.news().ended(); ++i) {
    more(2);
    world_->PollSome(1);
  }
  EXPECT_FALSE(a.news().ended()) << a.news().why;
  EXPECT_FALSE(world_->requests().requests.empty());
  EXPECT_LT(CountReadable(flood), flood.size()) << "the flood was no flood";
}

// If there are too many peers, those make room that wait for their first turn.
TEST_F(TlsListenerTest, AHandshakeThatHasBegunMakesNoRoomForNewHosts) {
  NewWorld({.half_open_max = 32, .half_open_per_host_max = 24});
  const std::string hello = Hello();
  RawPeer raw(Side::kClient, Dial(), {.credentials = &client_});
  raw.Step();
  HAWSER_UNTIL(*world_, IsReadable(raw.fd()));  // The server's answer.
  std::vector<Socket> flood;
  for (uint32_t i = 1; i <= 200; ++i) {
    flood.push_back(DialFrom(i));
    flood.back().Send(hello);
  }
  world_->PollSome(6);
  HAWSER_UNTIL(*world_, raw.Step() == 1 || raw.has_failed());
  ASSERT_FALSE(raw.has_failed()) << raw.error();
  Write(raw, EncodeGreeting(GreetingKind::kConnect, 16, ""));
  HAWSER_UNTIL(*world_, !world_->requests().requests.empty() || (raw.Read(), raw.has_failed()));
  EXPECT_FALSE(raw.has_failed()) << raw.error();
}

TEST_F(TlsListenerTest, ManyWholeHandshakesFromOneAddress) {
  NewWorld();
  const absl::Time end = absl::Now() + absl::Seconds(2);
  int count = 0;
  for (; count < 10'000 && (count < 20 || absl::Now() < end); ++count) DialTls();
  ExpectAnHonestClientGetsIn();
}

class TlsPeerTest : public TlsListenerTest {
 protected:
  TlsPeerTest() { NewWorld(); }

  void ExpectBrokenProtocol(RawPeer& raw, Endpoint& b, absl::string_view how) {
    HAWSER_UNTIL(*world_, b.news().ended());
    EXPECT_THAT(b.news().why, HasCode(absl::StatusCode::kDataLoss));
    EXPECT_THAT(std::string(b.news().why.message()), HasSubstr(std::string(how)));
    world_->ExpectEverythingComesBack(b);
    HAWSER_UNTIL(*world_, (raw.Read(), raw.has_failed()));
  }
};

TEST_F(TlsPeerTest, FramesThatAreNoneEndTheConnection) {
  {
    Endpoint& b = world_->NewEndpoint(1);
    std::unique_ptr<RawPeer> raw = BecomePeerOf(b);
    Write(*raw, Bytes({.kind = static_cast<FrameKind>(77)}));
    ExpectBrokenProtocol(*raw, b, "unknown kind 77");
  }
  Endpoint& b = world_->NewEndpoint(1);
  std::unique_ptr<RawPeer> raw = BecomePeerOf(b);
  Write(*raw, std::string(5000, '\xff'));
  ExpectBrokenProtocol(*raw, b, "broke the fabric's protocol");
  ExpectAnHonestClientGetsIn();
}

TEST_F(TlsPeerTest, PlainBytesBehindTheHandshakeEndTheConnection) {
  Endpoint& b = world_->NewEndpoint(1);
  std::unique_ptr<RawPeer> raw = BecomePeerOf(b);
  raw->socket().Send(Bytes({.kind = FrameKind::kAck}));
  HAWSER_UNTIL(*world_, b.news().ended());
  EXPECT_EQ(ViolationOf(b.news().why), Violation::kTls) << b.news().why;
  world_->ExpectEverythingComesBack(b);
  ExpectAnHonestClientGetsIn();
}

TEST_F(TlsPeerTest, ARecordThatIsCutIsTheEndOfTheConnection) {
  Endpoint& b = world_->NewEndpoint(1);
  std::unique_ptr<RawPeer> raw = BecomePeerOf(b);
  raw->socket().Send(absl::string_view("\x17\x03\x03\x40\x00half", 9));
  world_->PollSome(10);
  EXPECT_FALSE(b.news().ended());
  raw->socket().Close();
  HAWSER_UNTIL(*world_, b.news().ended());
  EXPECT_THAT(b.news().why, HasCode(absl::StatusCode::kUnavailable));
  world_->ExpectEverythingComesBack(b);
}

TEST_F(TlsPeerTest, AFrameByteByByteIsOne) {
  Endpoint& b = world_->NewEndpoint(1);
  ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
  std::unique_ptr<RawPeer> raw = BecomePeerOf(b);
  for (const char c : Bytes({.kind = FrameKind::kSend, .length_bytes = 5}, "hello")) {
    Write(*raw, absl::string_view(&c, 1));
    world_->PollSome(2);
  }
  HAWSER_UNTIL(*world_, b.receives.size() == 1);
  EXPECT_EQ(b.Text(0, 5), "hello");
  raw->socket().Close();
  HAWSER_UNTIL(*world_, b.news().ended());
  world_->ExpectEverythingComesBack(b);
}

// The greeting and the first frames in one record: nothing reports them again.
TEST_F(TlsPeerTest, FramesThatCameWithTheGreetingAreRead) {
  std::unique_ptr<RawPeer> raw = DialTls();
  std::string bytes = EncodeGreeting(GreetingKind::kConnect, 16, "");
  for (int i = 0; i < 3; ++i) bytes += Bytes({.kind = FrameKind::kSend, .length_bytes = 5}, "hello");
  Write(*raw, bytes);
  HAWSER_UNTIL(*world_, !world_->requests().requests.empty());
  world_->PollSome(10);
  Endpoint& b = world_->NewEndpoint(1);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  ASSERT_THAT(b.qp().Accept(*world_->requests().requests[0], ""), IsOk());
  HAWSER_UNTIL(*world_, b.receives.size() == 3);
  EXPECT_EQ(b.Text(200, 5), "hello");
  raw->socket().Close();
  HAWSER_UNTIL(*world_, b.news().ended());
  world_->ExpectEverythingComesBack(b);
}

TEST_F(TlsPeerTest, RequestsForNewKeysThatAreNotReadEndOneConnection) {
  // On a busy machine it takes long until both sockets are full of answers.
  NewWorld({.unacknowledged_timeout = 10 * kPatience, .send_buffer_bytes = 16 * 1024});
  Endpoint& b = world_->NewEndpoint(1);
  std::unique_ptr<RawPeer> raw = BecomePeerOf(b);
  auto [honest, server] = world_->Connect();
  Endpoint& receiver = server;
  uint64_t sent = 0;
  HAWSER_UNTIL(*world_,
               (([&] {
                  for (int i = 0; i < 200; ++i) {
                    if (SSL_key_update(raw->ssl(), SSL_KEY_UPDATE_REQUESTED) != 1 || raw->Step() != 1) break;
                  }
                }()),
                b.news().ended()));
  // Another connection of the same queue does not notice.
  for (; sent < 20; ++sent) {
    ASSERT_THAT(server.Receive(sent, server.At(0, 100)), IsOk());
    ASSERT_THAT(honest.Send(sent, honest.At(0, 10)), IsOk());
    HAWSER_UNTIL(*world_, receiver.receives.size() == sent + 1);
  }
  EXPECT_EQ(ViolationOf(b.news().why), Violation::kTls) << b.news().why;
  EXPECT_THAT(std::string(b.news().why.message()), HasSubstr("new keys"));
  world_->ExpectEverythingComesBack(b);
}

TEST_F(TlsPeerTest, AnotherConnectionGetsItsTurnsInAFloodOfNewKeys) {
  Endpoint& b = world_->NewEndpoint(1);
  std::unique_ptr<RawPeer> raw = BecomePeerOf(b);
  auto [honest, server] = world_->Connect();
  Endpoint& receiver = server;
  for (uint64_t sent = 0; sent < 50; ++sent) {
    for (int i = 0; i < 500; ++i) {
      if (SSL_key_update(raw->ssl(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1 || raw->Step() != 1) break;
    }
    ASSERT_THAT(server.Receive(sent, server.At(0, 100)), IsOk());
    ASSERT_THAT(honest.Send(sent, honest.At(0, 10)), IsOk());
    HAWSER_UNTIL(*world_, receiver.receives.size() == sent + 1);
  }
  EXPECT_FALSE(b.news().ended()) << b.news().why;
  raw->socket().Close();
  HAWSER_UNTIL(*world_, b.news().ended());
  world_->ExpectEverythingComesBack(b);
}

// A frame whose bytes come as a record each. Decrypting a record takes as long as some hundred bytes of a
// long one, so a turn ends after so many.
TEST(TlsRecordsTest, ATurnEndsHoweverShortTheRecordsAre) {
  const CertificateAuthority authority;
  const TlsCredentials credentials = authority.Issue();
  const std::shared_ptr<Context> context = tls::NewContext(credentials);
  SocketPair sockets;
  Stream stream{UniqueFd(dup(sockets.server.fd()))};
  auto session = context->NewSession(Side::kServer, stream.fd(), {}, {});
  ASSERT_THAT(session, IsOk());
  stream.StartTls(*std::move(session), {});
  RawPeer raw(Side::kClient, std::move(sockets.client), {.credentials = &credentials});
  for (int i = 0; i < 10; ++i) {
    raw.Step();
    stream.tls()->Handshake();
  }
  ASSERT_EQ(raw.Step(), 1) << raw.error();

  constexpr size_t kBytes = 4000;
  SocketPair line;
  SSL_set_fd(raw.ssl(), line.client.fd());
  std::string records;
  const FrameHeader header = {.kind = FrameKind::kSend, .length_bytes = kBytes};
  for (const char c : absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&header), sizeof(header)),
                                   std::string(kBytes, 'x'))) {
    ASSERT_EQ(SSL_write(raw.ssl(), &c, 1), 1);
    records += line.server.Receive();
  }
  ASSERT_EQ(raw.socket().Send(records), records.size());

  TcpSendQueue send_queue(4, 1);
  TcpReceiveQueue receive_queue({.send_depth = 4, .receive_depth = 4, .read_depth = 1}, 1);
  FrameReader reader(send_queue, receive_queue);
  std::vector<uint8_t> memory(kBytes), staging(64 * 1024);
  receive_queue.Reserve(1);
  receive_queue.Place(0, {.wr_id = 1, .buffer = {memory.data(), kBytes, 0}});
  receive_queue.Post(1);
  size_t before = 0;
  FrameReader::Result result = FrameReader::Result::kMore;
  for (int turns = 0; result == FrameReader::Result::kMore; ++turns) {
    ASSERT_LT(turns, 100);
    result = reader.Read(stream, absl::MakeSpan(staging), nullptr, nullptr);
    const auto after = static_cast<size_t>(std::count(memory.begin(), memory.end(), 'x'));
    EXPECT_LE(after - before, 1200u) << "records in one turn";
    before = after;
  }
  EXPECT_EQ(result, FrameReader::Result::kDrained);
  EXPECT_EQ(before, kBytes);
}

// The tool "openssl", with certificates that it has made itself, as a user makes them.
class OpensslToolTest : public TlsListenerTest {
 protected:
  // The folder with root.pem, {client,server}.{pem,key}; the latter have the certificate of an intermediate
  // authority behind their own.
  std::string MakeCertificates(const std::string& new_key) {
    const std::string folder = authority_.NewPath("tool");
    const std::string script = absl::StrCat(
        "set -e; mkdir ", folder, "; cd ", folder, "; new_key() { openssl genpkey ", new_key,
        " -out $1.key; }\n",
        "new_key root; new_key below; new_key client; new_key server\n"
        "openssl req -x509 -new -key root.key -subj '/CN=root' -days 2 -out root.pem"
        " -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign\n"
        "printf 'basicConstraints=critical,CA:TRUE\\nkeyUsage=critical,keyCertSign\\n' > below.ext\n"
        "openssl req -new -key below.key -subj '/CN=below' |"
        " openssl x509 -req -CA root.pem -CAkey root.key -CAcreateserial -days 2 -extfile below.ext -out "
        "below.pem\n"
        "for each in client server; do\n"
        "  printf "
        "\"subjectAltName=DNS:localhost,URI:spiffe://example.org/"
        "$each\\nextendedKeyUsage=serverAuth,clientAuth\\n\""
        " > $each.ext\n"
        "  openssl req -new -key $each.key -subj / | openssl x509 -req -CA below.pem -CAkey below.key "
        "-CAcreateserial"
        " -days 2 -extfile $each.ext -out $each.pem\n"
        "  cat below.pem >> $each.pem\n"
        "done\n");
    const std::string path = authority_.NewPath("script.sh");
    ReplaceFile(path, script);
    EXPECT_EQ(system(absl::StrCat("sh ", path, " 2> ", path, ".log").c_str()), 0) << ReadFile(path + ".log");
    return folder;
  }

  void ExpectTheToolGetsIn(const std::string& new_key) {
    const std::string folder = MakeCertificates(new_key);
    const auto path = [&](absl::string_view name) { return absl::StrCat(folder, "/", name); };
    security_.server = tls::NewContext(
        {.certificate = path("server.pem"), .key = path("server.key"), .authorities = path("root.pem")});
    NewWorld();
    ReplaceFile(path("greeting"), EncodeGreeting(GreetingKind::kConnect, 16, "from the tool"));
    // What it gets on its standard input goes to the server; without -ign_eof it ends with that.
    const pid_t tool = fork();
    if (tool == 0) {
      const int in = open(path("greeting").c_str(), O_RDONLY);
      const int out = open(path("said").c_str(), O_WRONLY | O_CREAT, 0600);
      dup2(in, 0);
      dup2(out, 1);
      dup2(out, 2);
      alarm(30);
      execlp("openssl", "openssl", "s_client", "-connect",
             absl::StrCat("127.0.0.1:", world_->listener().address().port()).c_str(), "-alpn", "hawser/1",
             "-cert", path("client.pem").c_str(), "-cert_chain", path("client.pem").c_str(), "-key",
             path("client.key").c_str(), "-CAfile", path("root.pem").c_str(), "-servername", "localhost",
             "-verify_hostname", "localhost", "-verify_return_error", "-brief", "-ign_eof", nullptr);
      _exit(127);
    }
    ASSERT_GT(tool, 0);
    HAWSER_UNTIL(*world_, !world_->requests().requests.empty() || !security_.bad_peers.empty());
    ASSERT_THAT(security_.bad_peers, IsEmpty());
    ASSERT_FALSE(world_->requests().requests.empty()) << ReadFile(path("said"));
    EXPECT_EQ(world_->requests().requests[0]->private_data(), "from the tool");
    ASSERT_NE(world_->requests().requests[0]->peer_identity(), nullptr);
    EXPECT_EQ(world_->requests().requests[0]->peer_identity()->ToString(),
              "DNS:localhost, URI:spiffe://example.org/client");
    world_->requests().requests.clear();  // Rejects it, so that the tool ends.
    int status = 0;
    HAWSER_UNTIL(*world_, waitpid(tool, &status, WNOHANG) == tool);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_THAT(ReadFile(path("said")), AllOf(HasSubstr("CONNECTION ESTABLISHED"), HasSubstr("TLSv1.3"),
                                              HasSubstr("Verification: OK"), HasSubstr("HAWSER")));
  }
};

TEST_F(OpensslToolTest, WithKeysOfP256) {
  ExpectTheToolGetsIn("-algorithm EC -pkeyopt ec_paramgen_curve:P-256");
}
TEST_F(OpensslToolTest, WithKeysOfRsa) {
  ExpectTheToolGetsIn("-algorithm RSA -pkeyopt rsa_keygen_bits:2048");
}
TEST_F(OpensslToolTest, WithKeysOfEd25519) { ExpectTheToolGetsIn("-algorithm ED25519"); }

}  // namespace
}  // namespace hawser::fabric
