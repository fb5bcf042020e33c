// With TLS, the connections of one session are between the same two identities.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hawser/rpc/interceptor.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tls/context.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/fabrics.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/uri.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAnyPort[] = "tcp://127.0.0.1:0";

std::string Text(const absl::Status& status) { return std::string(status.message()); }

std::shared_ptr<tls::Context> ContextOf(const TlsCredentials& credentials) {
  return *tls::Context::Create(credentials, nullptr);
}

CertificateNames OnLoopback(const std::string& dns) {
  CertificateNames names = LoopbackNames();
  names.dns = {dns};
  return names;
}

SocketAddress AddressOf(const std::string& uri) {
  return transport::Resolve(*transport::ParseUri(uri))->front();
}

// Runs `code` on `poller`, and waits. Any thread.
void RunOn(transport::Poller& poller, const std::function<void()>& code) {
  const auto done = std::make_shared<transport::WaitEvent>();
  poller.Run([&code, done] {
    code();
    done->Set();
  });
  poller.WaitFor(*done);
}

class ListenerImpl final : public probe::ListenerService {
 public:
  std::function<absl::Status(ServerContext&)> on_notify = [](ServerContext&) { return absl::OkStatus(); };

  absl::Status Notify(ServerContext& context, probe::Listener::NotifyParams::Reader,
                      probe::Listener::NotifyResults::Builder) override {
    return on_notify(context);
  }
};

absl::Status Notify(const std::shared_ptr<Channel>& to) {
  return probe::ListenerStub(to).Notify({.timeout = kLong}).Send().Wait().status();
}

// Answers nothing.
class NoService final : public transport::RequestHandler {
 private:
  void OnRequest(transport::ExchangeId, transport::IncomingMessagePtr, int64_t) override {}
  void OnBadRequest(transport::ExchangeId, const absl::Status&) override {}
  void OnCancel(transport::ExchangeId, const absl::Status&) override {}
};

// A client with any handshake.
class Peer final : transport::ConnectionObserver {
 public:
  explicit Peer(std::shared_ptr<tls::Context> tls) : security_{std::move(tls), "127.0.0.1"} {}
  ~Peer() {
    std::atomic<bool> asked{false};
    poller_.Run([&] {
      if (connection_ != nullptr) connection_->Close();
      asked = true;
    });
    EXPECT_TRUE(Eventually([&] { return asked && gone_; }));
  }

  // OK: the connection is established.
  absl::Status Dial(const std::string& uri, transport::Role role,
                    const transport::SessionToken& session = {}) {
    poller_.Run([&, uri] {
      transport::Handshake hello;
      hello.role = role;
      hello.session = session;
      transport::RequestHandler* const handler = role == transport::Role::kReverse ? &nothing_ : nullptr;
      gone_ = false;
      connection_ = *transport::Connection::Dial(poller_, AddressOf(uri), {}, hello, absl::Seconds(5), *this,
                                                 handler, security_);
    });
    return states_.Take();
  }
  const transport::SessionToken& session() const { return session_; }

 private:
  void OnReady(const transport::Handshake& peer) override {
    session_ = peer.session;
    states_.Put(absl::OkStatus());
  }
  void OnClosed(const absl::Status& why) override {
    connection_ = nullptr;
    states_.Put(why);
    gone_ = true;
  }

  const transport::Security security_;
  NoService nothing_;
  transport::Poller& poller_ = (*transport::Runtime::Default("tcp"))->poller(0);
  transport::Connection* connection_ = nullptr;
  transport::SessionToken session_ = {};
  Box<absl::Status> states_;
  std::atomic<bool> gone_{true};
};

// One authority, a server, and two clients that both are allowed to call it.
class TlsSessionTest : public ::testing::Test {
 protected:
  const CertificateAuthority authority_;
  const TlsCredentials a_ = authority_.Issue(OnLoopback("a.example.org"));
  const TlsCredentials b_ = authority_.Issue(OnLoopback("b.example.org"));
};

TEST_F(TlsSessionTest, NoReverseConnectionUnderAnotherCertificate) {
  TestServer server({.credentials = authority_.Issue()}, kAnyPort);
  Peer client(ContextOf(a_));
  ASSERT_THAT(client.Dial(server.uri, transport::Role::kForward), IsOk());
  {
    Peer thief(ContextOf(b_));
    const absl::Status status = thief.Dial(server.uri, transport::Role::kReverse, client.session());
    EXPECT_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
    // It names the certificate that it saw, and not whose session it is.
    EXPECT_THAT(Text(status),
                AllOf(HasSubstr("certificate"), HasSubstr("b.example.org"), Not(HasSubstr("a.example.org"))));
  }
  {
    Peer without(nullptr);
    EXPECT_THAT(without.Dial(server.uri, transport::Role::kReverse, client.session()),
                HasCode(absl::StatusCode::kUnauthenticated));
  }
  Peer own(ContextOf(authority_.Issue(OnLoopback("a.example.org"))));  // A renewed certificate.
  EXPECT_THAT(own.Dial(server.uri, transport::Role::kReverse, client.session()), IsOk());
}

TEST_F(TlsSessionTest, NoProbeUnderAnotherCertificate) {
  TestServer server({.credentials = authority_.Issue()}, kAnyPort);
  Peer client(ContextOf(a_)), thief(ContextOf(b_)), own(ContextOf(a_));
  ASSERT_THAT(client.Dial(server.uri, transport::Role::kForward), IsOk());
  EXPECT_THAT(thief.Dial(server.uri, transport::Role::kProbe, client.session()),
              HasCode(absl::StatusCode::kPermissionDenied));
  const absl::Status answer = own.Dial(server.uri, transport::Role::kProbe, client.session());
  EXPECT_THAT(answer, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Text(answer), HasSubstr("the session is open"));
}

TEST_F(TlsSessionTest, CallsToAClientAreBetweenTheSameTwo) {
  TestServer server({.credentials = b_}, kAnyPort);
  Box<PeerIdentity> callers;
  ListenerImpl listener;
  listener.on_notify = [&](ServerContext& context) {
    callers.Put(context.peer_identity());
    return absl::OkStatus();
  };
  const auto channel = server.Connect({.services = {&listener}, .credentials = a_});
  const std::shared_ptr<Channel> back = WayBack(server, channel);
  EXPECT_TRUE(back->peer_identity().HasDnsName("a.example.org"));
  ASSERT_THAT(Notify(back), IsOk());
  EXPECT_TRUE(callers.Take().HasDnsName("b.example.org"));
  EXPECT_EQ(server.server.stats().connections, 2u);
}

// While a handler holds the session's poller, the client asks the server over TLS whether it is only busy.
TEST_F(TlsSessionTest, AServerThatIsOnlyBusyKeepsItsClients) {
  ClockedRuntime clients(*transport::CreateFabric("tcp"));
  ServerOptions options;
  options.credentials = authority_.Issue();
  options.pollers = 1;
  Box<bool> held, go;  // The handler of the second call may still be about to use them when the test ends.
  TestServer server(std::move(options), kAnyPort);
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    held.Put(true);
    go.Take();
    return absl::OkStatus();
  };
  const auto channel = server.Connect({.credentials = a_, .runtime = clients.get()});
  auto call = SendAct(channel, 1, {.timeout = absl::Minutes(2)});
  held.Take();
  auto late = SendAct(channel, 1, {.timeout = kLong});
  clients.PassBesideABusyServer(kLong, 1);  // Without probes the connection were lost before.
  const absl::Status status = late.Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(Text(status), HasSubstr("its poller has been held"));
  go.Put(true);
  go.Put(true);
  EXPECT_THAT(call.Wait().status(), IsOk());
}

// A server that changes its certificate between the forward and the reverse connection.
class TwoFaced final : transport::Acceptor::Handler {
 public:
  explicit TwoFaced(const TlsCredentials& first) { Listen(first, 0); }
  ~TwoFaced() {
    RunOn(poller(), [&] {
      acceptor_.reset();
      for (auto& end : ends_) {
        if (end->connection != nullptr) end->connection->Close();
      }
    });
    EXPECT_TRUE(Eventually([&] {
      bool open = false;
      RunOn(poller(), [&] {
        for (auto& end : ends_) open = open || end->connection != nullptr;
      });
      return !open;
    }));
  }

  // Takes the next connection, once it listens with `next`.
  void Accept(const TlsCredentials& next) {
    auto request = requests_.Take();
    Listen(next, port_);
    RunOn(poller(), [&] {
      End& end = *ends_.emplace_back(std::make_unique<End>());
      const bool forward = request->hello().role == transport::Role::kForward;
      end.connection = *transport::Connection::Accept(poller(), std::move(*request), {}, {1}, end,
                                                      forward ? &nothing_ : nullptr);
    });
  }
  std::string uri() const { return transport::Uri{"tcp", "127.0.0.1", port_}.ToString(); }

 private:
  struct End final : transport::ConnectionObserver {
    void OnReady(const transport::Handshake&) override {}
    void OnClosed(const absl::Status&) override { connection = nullptr; }
    transport::Connection* connection = nullptr;
  };

  void Listen(const TlsCredentials& credentials, uint16_t port) {
    RunOn(poller(), [&] {
      acceptor_.reset();
      SocketAddress address = *transport::ParseNumericHost("127.0.0.1");
      address.set_port(port);
      acceptor_ = *transport::Acceptor::Listen(poller(), address, *this, ContextOf(credentials));
      port_ = acceptor_->address().port();
    });
  }
  void OnPeer(transport::PeerRequest request) override {
    requests_.Put(std::make_shared<transport::PeerRequest>(std::move(request)));
  }
  transport::Poller& poller() { return runtime_->poller(0); }

  const std::shared_ptr<transport::Runtime> runtime_ = *transport::Runtime::Create("tcp", {.pollers = 1});
  NoService nothing_;
  uint16_t port_ = 0;
  Box<std::shared_ptr<transport::PeerRequest>> requests_;
  std::vector<std::unique_ptr<End>> ends_;
  std::unique_ptr<transport::Acceptor> acceptor_;
};

TEST_F(TlsSessionTest, AReverseConnectionToAnotherServerIsClosed) {
  TwoFaced server(a_);
  ListenerImpl listener;
  Box<absl::Status> failures;
  ChannelOptions options;
  options.services = {&listener};
  options.credentials = authority_.Issue();
  options.backoff_min = options.backoff_max = absl::Seconds(30);
  options.on_state_change = [&](ChannelState, const absl::Status& why) { failures.Put(why); };
  const auto channel = *Channel::Create(server.uri(), std::move(options));
  server.Accept(b_);
  server.Accept(b_);
  const absl::Status why = failures.Take();
  EXPECT_THAT(why, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(why),
              AllOf(HasSubstr("reverse connection"), HasSubstr("a.example.org"), HasSubstr("b.example.org")));
  EXPECT_FALSE(channel->peer_identity().is_authenticated);
}

TEST_F(TlsSessionTest, AReverseConnectionToTheSameServerIsNot) {
  TwoFaced server(a_);
  ListenerImpl listener;
  Box<ChannelState> states;
  ChannelOptions options;
  options.services = {&listener};
  options.credentials = authority_.Issue();
  options.on_state_change = [&](ChannelState state, const absl::Status&) { states.Put(state); };
  const auto channel = *Channel::Create(server.uri(), std::move(options));
  server.Accept(authority_.Issue(OnLoopback("a.example.org")));  // A renewed certificate.
  server.Accept(a_);
  EXPECT_EQ(states.Take(), ChannelState::kReady);
  EXPECT_TRUE(channel->peer_identity().HasDnsName("a.example.org"));
}

TEST_F(TlsSessionTest, AClientWithoutANameGetsNoReverseConnection) {
  const CertificateAuthority authority;
  TestServer server({.credentials = authority.Issue()}, kAnyPort);
  const TlsCredentials nameless = authority.Issue({.common_name = "somebody"});
  EXPECT_THAT(SendAct(server.Connect({.credentials = nameless}), 1).Wait(), IsOk());
  ListenerImpl listener;
  ChannelOptions options;
  options.services = {&listener};
  options.credentials = nameless;
  const absl::Status refused = Channel::Connect(server.uri, std::move(options)).status();
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Text(refused), HasSubstr("with a name"));
}

}  // namespace
}  // namespace hawser
