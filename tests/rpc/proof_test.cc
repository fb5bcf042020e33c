// Credentials over RDMA: what tests/rpc/tls_test.cc and tls_session_test.cc say of TCP, and bad proofs. On a
// machine without an RDMA device over what looks like one (PlainFabric).

#include "hawser/transport/wire/proof.h"

#include <atomic>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/violation.h"
#include "hawser/tests/testing/plain_fabric.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tls/context.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/connection/prover.h"
#include "hawser/transport/poller/poller_client.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/security.h"
#include "hawser/transport/uri.h"
#include "tests/rpc/credentials_probe.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Null: a real device serves.
std::shared_ptr<Runtime> NewRuntime() {
  if (TestScheme() == "rdma") return nullptr;
  return *Runtime::CreateOn(std::make_shared<PlainFabric>(), {}, /*start_threads=*/true);
}

std::string AnyPort() { return absl::StrCat("rdma://", TestHost(), ":0"); }

CertificateNames Names(const std::string& dns) {
  CertificateNames names = LoopbackNames();
  names.dns = {dns};
  names.ips.push_back(TestHost());
  return names;
}

// A client of transport/ that says what it likes when it connects over RDMA.
class RawClient {
 public:
  RawClient(transport::Poller& poller, const SocketAddress& address, const std::string& connect)
      : poller_(poller) {
    auto owned = std::make_unique<Client>(poller, results_);
    client_ = owned.get();
    poller.Run([&] {
      poller.Adopt(std::move(owned));
      client_->Connect(address, connect);
    });
    std::tie(status_, accept_) = results_.Take();
  }
  ~RawClient() {
    Box<bool> done;
    poller_.Run([&] {
      client_->Finish();
      done.Put(true);
    });
    done.Take();
  }

  // OK: the server has accepted.
  const absl::Status& status() const { return status_; }
  const std::string& accept() const { return accept_; }

 private:
  using Result = std::pair<absl::Status, std::string>;

  // Lives until Finish().
  class Client final : public transport::PollerClient, public fabric::ConnectionHandler {
   public:
    Client(transport::Poller& poller, Box<Result>& results) : poller_(poller), results_(results) {}
    void Connect(const SocketAddress& address, const std::string& connect) {
      queue_pair_ = *poller_.fabric().CreateQueuePair(poller_.completion_queue(), {}, *this);
      const absl::Status status = queue_pair_->Connect(address, connect);
      if (!status.ok()) Notify({status, ""});
    }
    void Finish() {
      Disconnect();
      poller_.MarkClosed(this);
    }

   private:
    void OnCompletion(const transport::WorkId&, const fabric::Completion&) override {}
    void Flush() override {}
    void FlushIfLong() override {}
    void Disconnect() override {
      if (queue_pair_ != nullptr) queue_pair_->Disconnect();
    }
    void OnEstablished(absl::string_view data) override { Notify({absl::OkStatus(), std::string(data)}); }
    void OnConnectFailed(const absl::Status&, absl::string_view data) override {
      Notify({transport::DecodeRejection(data), ""});
    }
    void OnDisconnected(const absl::Status& why) override { Notify({why, ""}); }
    void Notify(Result result) {
      if (!std::exchange(told_, true)) results_.Put(std::move(result));
    }

    transport::Poller& poller_;
    Box<Result>& results_;
    bool told_ = false;
    std::unique_ptr<fabric::QueuePair> queue_pair_;
  };

  transport::Poller& poller_;
  Box<Result> results_;
  Client* client_;
  absl::Status status_;
  std::string accept_;
};

transport::Security SecurityOf(const std::shared_ptr<Runtime>& runtime, const TlsCredentials& credentials) {
  transport::Security security;
  security.tls = *tls::Context::Create(credentials, nullptr);
  security.host = TestHost();
  security.prove_over = *Runtime::Default("tcp");
  security.runtime = runtime;
  return security;
}

// A proof that a test may use as it likes.
class TestProof final : transport::Prover::Client {
 public:
  TestProof(const std::shared_ptr<Runtime>& runtime, const TlsCredentials& credentials,
            const SocketAddress& address, const transport::Handshake& hello)
      : poller_(runtime->poller(0)) {
    const transport::Security security = SecurityOf(runtime, credentials);
    poller_.Run([&] {
      transport::Prover::Client& client = *this;
      prover_ =
          std::make_shared<transport::Prover>(poller_, address, SocketAddress(), hello, security, client);
      prover_->Start(absl::Seconds(60));
    });
    result_ = *results_.Take();
  }
  ~TestProof() { End(); }

  const transport::Proof& proof() const { return result_.proof; }
  // The TLS session ends.
  void End() {
    Box<bool> done;
    poller_.Run([&] {
      prover_->Abandon();
      done.Put(true);
    });
    done.Take();
  }

 private:
  void OnProof(absl::StatusOr<transport::Prover::Result> result) override { results_.Put(std::move(result)); }

  transport::Poller& poller_;
  std::shared_ptr<transport::Prover> prover_;
  Box<absl::StatusOr<transport::Prover::Result>> results_;
  transport::Prover::Result result_;
};

// A client that stays connected, and calls nothing.
class SilentClient final : transport::ConnectionObserver {
 public:
  SilentClient(const std::shared_ptr<Runtime>& runtime, const TlsCredentials& credentials,
               const SocketAddress& address)
      : poller_(runtime->poller(0)) {
    poller_.Run([&] {
      transport::ConnectionObserver& observer = *this;
      connection_ = *transport::Connection::Dial(poller_, address, {}, {}, absl::Seconds(30), observer,
                                                 nullptr, SecurityOf(runtime, credentials));
    });
    session_ = sessions_.Take();
  }
  ~SilentClient() {
    poller_.Run([this] {
      if (connection_ != nullptr) connection_->Close();
    });
    gone_.Take();
  }
  const transport::SessionToken& session() const { return session_; }

 private:
  void OnReady(const transport::Handshake& peer) override { sessions_.Put(peer.session); }
  void OnClosed(const absl::Status& why) override {
    EXPECT_THAT(why, HasCode(absl::StatusCode::kCancelled));
    connection_ = nullptr;
    gone_.Put(true);
  }

  transport::Poller& poller_;
  transport::Connection* connection_ = nullptr;
  Box<transport::SessionToken> sessions_;
  Box<bool> gone_;
  transport::SessionToken session_;
};

class RdmaProofTest : public ::testing::Test {
 protected:
  ServerOptions AsServer() {
    ServerOptions options;
    options.runtime = runtime_;
    options.credentials = authority_.Issue(Names("server.example.org"));
    return options;
  }
  ChannelOptions AsClient(const std::string& dns = "client.example.org") {
    ChannelOptions options = WithoutCredentials();
    options.credentials = authority_.Issue(Names(dns));
    return options;
  }
  ChannelOptions WithoutCredentials() {
    ChannelOptions options;
    options.runtime = runtime_;
    return options;
  }
  std::shared_ptr<Runtime> ClientRuntime() {
    return runtime_ != nullptr ? runtime_ : *Runtime::Default("rdma");
  }
  static SocketAddress AddressOf(const TestServer& server) {
    return transport::Resolve(*transport::ParseUri(server.uri))->front();
  }
  static transport::Handshake Hello() { return HelloOf(transport::Role::kForward); }
  static uint64_t Attacks(const TestServer& server) {
    return server.server.stats().violations.by_reason[static_cast<size_t>(Violation::kTls)];
  }

  const CertificateAuthority authority_;
  const CertificateAuthority strange_{"strange authority"};
  const std::shared_ptr<Runtime> runtime_ = NewRuntime();
};

TEST_F(RdmaProofTest, EachSideSeesTheNamesOfTheOther) {
  ServerOptions options = AsServer();
  options.authorize = [](const ServerContext& context) {
    return context.peer_identity().HasDnsName("client.example.org")
               ? absl::OkStatus()
               : absl::PermissionDeniedError(context.peer_identity().ToString());
  };
  TestServer server(std::move(options), AnyPort());
  ASSERT_EQ(server.server.addresses().size(), 1u);
  const auto channel = server.Connect(AsClient());
  EXPECT_TRUE(absl::StartsWith(channel->peer_address(), "rdma://"));
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_TRUE(channel->peer_identity().HasDnsName("server.example.org"));
  const auto other = server.Connect(AsClient("other.example.org"));
  const absl::Status status = SendAct(other, 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Text(status), HasSubstr("other.example.org"));
  EXPECT_EQ(server.server.stats().connections, 2u);
  EXPECT_EQ(Attacks(server), 0u);
}

TEST_F(RdmaProofTest, LargeMessagesAreReadAsEver) {
  TestServer server(AsServer(), AnyPort());
  const auto channel = server.Connect(AsClient());
  ExpectLargeMessagesAreRead(channel);
}

TEST_F(RdmaProofTest, AClientWithoutCredentialsIsRefused) {
  TestServer server(AsServer(), AnyPort());
  const absl::Status status = Channel::Connect(server.uri, WithoutCredentials()).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(status), HasSubstr("ChannelOptions::credentials"));
  EXPECT_TRUE(Eventually([&] { return Attacks(server) == 1; }));
  EXPECT_EQ(server.server.stats().connections, 0u);
}

TEST_F(RdmaProofTest, AServerWithoutCredentialsIsRefused) {
  ServerOptions options;
  options.runtime = runtime_;
  TestServer server(std::move(options), AnyPort());
  const absl::Status status = Channel::Connect(server.uri, AsClient()).status();
  // Nothing listens over TCP.
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Text(status), HasSubstr("ServerOptions::credentials"));
}

TEST_F(RdmaProofTest, EachSideBelievesItsOwnAuthoritiesOnly) {
  TestServer server(AsServer(), AnyPort());
  for (const bool own_authorities : {true, false}) {
    ChannelOptions stranger = WithoutCredentials();
    CertificateOptions certificate;
    if (own_authorities) certificate.authorities = authority_.authorities_path();
    stranger.credentials = strange_.Issue(Names("client.example.org"), certificate);
    EXPECT_THAT(Channel::Connect(server.uri, stranger).status(), HasCode(absl::StatusCode::kUnauthenticated));
  }
  ChannelOptions wrong_name = AsClient();
  wrong_name.credentials->server_name = "another.example.org";
  EXPECT_THAT(Channel::Connect(server.uri, wrong_name).status(), HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_EQ(server.server.stats().connections, 0u);
}

TEST_F(RdmaProofTest, OverTcpThePortTakesProofsOnly) {
  TestServer server(AsServer(), AnyPort());
  ChannelOptions options = AsClient();
  options.runtime = nullptr;
  const absl::Status status =
      Channel::Connect(absl::StrCat("tcp", server.uri.substr(4)), std::move(options)).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(Text(status), HasSubstr("rdma://"));
}

TEST_F(RdmaProofTest, AServerThatIsNotOverRdmaTakesNoProofs) {
  ServerOptions options = AsServer();
  options.runtime = nullptr;
  TestServer server(std::move(options), absl::StrCat("tcp://", TestHost(), ":0"));
  const absl::Status status =
      Channel::Connect(absl::StrCat("rdma", server.uri.substr(3)), AsClient()).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Text(status), HasSubstr("does not listen over RDMA; connect to it with tcp://"));
}

TEST_F(RdmaProofTest, CallsToAClientAreBetweenTheSameTwo) {
  TestServer server(AsServer(), AnyPort());
  ExpectCallsToAClient(server, AsClient());
}

TEST_F(RdmaProofTest, AServerThatIsOnlyBusyKeepsItsClients) {
  // The runtime of the server would be held, too.
  ClockedRuntime clients(runtime_ != nullptr ? std::make_shared<PlainFabric>() : NewTestFabric());
  ServerOptions as_server = AsServer();
  as_server.pollers = 1;
  Box<bool> held, go;  // The handler of the second call may still be about to use them when the test ends.
  TestServer server(std::move(as_server), AnyPort());
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    held.Put(true);
    go.Take();
    return absl::OkStatus();
  };
  ChannelOptions options = AsClient();
  options.runtime = clients.get();
  const auto channel = server.Connect(std::move(options));
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

TEST_F(RdmaProofTest, AChannelConnectsAgain) {
  auto server = std::make_unique<TestServer>(AsServer(), AnyPort());
  const std::string uri = server->uri;
  ChannelOptions options = AsClient();
  options.backoff_min = options.backoff_max = absl::Milliseconds(10);
  const auto channel = server->Connect(std::move(options));
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  server.reset();
  server = std::make_unique<TestServer>(AsServer(), uri);
  EXPECT_THAT(SendActAgain(channel, 1, kPatient).Wait().status(), IsOk());
  EXPECT_TRUE(channel->peer_identity().HasDnsName("server.example.org"));
}

TEST_F(RdmaProofTest, ChannelsThatEndWhileTheyConnectLeaveNothing) {
  TestServer server(AsServer(), AnyPort());
  ExpectNothingIsLeftOfEndedChannels(server, AsClient());
  EXPECT_EQ(Attacks(server), 0u);
}

TEST_F(RdmaProofTest, AServerMayListenOverBoth) {
  TestServer server(AsServer(), AnyPort());
  const absl::Status taken = server.server.Listen(absl::StrCat("tcp", server.uri.substr(4))).status();
  EXPECT_THAT(taken, Not(IsOk()));
  if (runtime_ != nullptr) return;  // It is for one network.
  EXPECT_THAT(taken, HasCode(absl::StatusCode::kAlreadyExists));
  TestServer both(AsServer(), absl::StrCat("tcp://", TestHost(), ":0"));
  const std::string rdma = absl::StrCat("rdma", both.uri.substr(3));
  ASSERT_THAT(both.server.Listen(rdma).status(), IsOk());
  TestServer automatic(AsServer(), absl::StrCat("auto://", TestHost(), ":0"));
  EXPECT_EQ(automatic.server.addresses().size(), 2u) << automatic.server.why_not_rdma();
  for (const std::string& uri : {both.uri, rdma, automatic.uri}) {
    const auto channel = Channel::Connect(uri, AsClient());
    ASSERT_THAT(channel.status(), IsOk());
    EXPECT_EQ(absl::StartsWith((*channel)->peer_address(), "rdma://"), uri != both.uri);
    EXPECT_THAT(SendAct(*channel, 1).Wait(), IsOk());
  }
}

TEST_F(RdmaProofTest, RequireEncryptionRefusesRdma) {
  ChannelOptions as_client = AsClient();
  as_client.credentials->require_encryption = true;
  const absl::Status connecting =
      Channel::Create(absl::StrCat("rdma://", TestHost(), ":1"), as_client).status();
  EXPECT_THAT(connecting, HasCode(absl::StatusCode::kInvalidArgument));
  ServerOptions as_server = AsServer();
  as_server.credentials->require_encryption = true;
  Server server(std::move(as_server));
  const absl::Status listening = server.Listen(AnyPort()).status();
  EXPECT_THAT(listening, HasCode(absl::StatusCode::kInvalidArgument));
  for (const absl::Status& status : {connecting, listening}) {
    EXPECT_THAT(Text(status), AllOf(HasSubstr("require_encryption"), HasSubstr("tcp://")));
  }
  EXPECT_TRUE(server.addresses().empty());
}

// ---- Bad proofs

TEST_F(RdmaProofTest, AReplayedProofIsRefused) {
  TestServer server(AsServer(), AnyPort());
  const TestProof proof(ClientRuntime(), *AsClient().credentials, AddressOf(server), Hello());
  const std::string connect = EncodeConnect(Hello(), proof.proof());
  transport::Poller& poller = ClientRuntime()->poller(0);
  EXPECT_THAT(RawClient(poller, AddressOf(server), connect).status(), IsOk());
  const absl::Status status = RawClient(poller, AddressOf(server), connect).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(status), HasSubstr("used before"));
  EXPECT_TRUE(Eventually([&] { return Attacks(server) == 1; }));
}

TEST_F(RdmaProofTest, AProofOfAnotherSessionIsRefused) {
  TestServer server(AsServer(), AnyPort());
  const TestProof proof(ClientRuntime(), *AsClient().credentials, AddressOf(server), Hello());
  const TestProof other(ClientRuntime(), *AsClient("b.example.org").credentials, AddressOf(server), Hello());
  const transport::Proof mixed{proof.proof().number, other.proof().key};
  const absl::Status status =
      RawClient(ClientRuntime()->poller(0), AddressOf(server), EncodeConnect(Hello(), mixed)).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_TRUE(Eventually([&] { return Attacks(server) == 1; }));
}

TEST_F(RdmaProofTest, AProofIsGoneWithItsTlsSession) {
  TestServer server(AsServer(), AnyPort());
  // Until the server has heard of the end, the proof is good; so another one each time.
  EXPECT_TRUE(Eventually([&] {
    TestProof proof(ClientRuntime(), *AsClient().credentials, AddressOf(server), Hello());
    proof.End();
    const absl::Status status =
        RawClient(ClientRuntime()->poller(0), AddressOf(server), EncodeConnect(Hello(), proof.proof()))
            .status();
    return absl::IsUnavailable(status) && absl::StrContains(status.message(), "connect again");
  }));
  EXPECT_EQ(Attacks(server), 0u);
}

TEST_F(RdmaProofTest, ASessionThatWasStolenGivesNothing) {
  TestServer server(AsServer(), AnyPort());
  transport::Poller& poller = ClientRuntime()->poller(0);
  const SilentClient client(ClientRuntime(), *AsClient("a.example.org").credentials, AddressOf(server));
  for (const transport::Role role : {transport::Role::kReverse, transport::Role::kProbe}) {
    transport::Handshake hello = Hello();
    hello.role = role;
    hello.session = client.session();
    const auto dial = [&](const std::string& dns) {
      const TestProof of(ClientRuntime(), *AsClient(dns).credentials, AddressOf(server), hello);
      return RawClient(poller, AddressOf(server), EncodeConnect(hello, of.proof())).status();
    };
    EXPECT_THAT(dial("b.example.org"), HasCode(absl::StatusCode::kPermissionDenied));
    EXPECT_THAT(dial("a.example.org"),
                HasCode(role == transport::Role::kReverse ? absl::StatusCode::kOk
                                                          : absl::StatusCode::kUnavailable));  // Not busy.
  }
}

TEST_F(RdmaProofTest, AProofIsOfOneServer) {
  TestServer server(AsServer(), AnyPort()), other(AsServer(), AnyPort());
  const TestProof proof(ClientRuntime(), *AsClient().credentials, AddressOf(server), Hello());
  EXPECT_THAT(
      RawClient(ClientRuntime()->poller(0), AddressOf(other), EncodeConnect(Hello(), proof.proof())).status(),
      HasCode(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace hawser
