// Credentials over an RDMA device that takes its ports from TCP (iWARP): the server tells at which other port
// it takes proofs, and no program that the client dials can pass a proof on.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/tests/testing/proxy.h"
#include "hawser/tls/context.h"
#include "tests/rpc/proof_ports.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using transport::Role;

const CallOptions kPatient = {.timeout = kLong, .wait_for_ready = true};

class ListenerImpl final : public probe::ListenerService {
 public:
  absl::Status Notify(ServerContext& context, probe::Listener::NotifyParams::Reader,
                      probe::Listener::NotifyResults::Builder) override {
    callers.Put(context.peer_identity());
    return absl::OkStatus();
  }
  Box<PeerIdentity> callers;
};

// A TCP port that nothing listens on, and that no other program gets meanwhile.
class ClosedPort {
 public:
  ClosedPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    SocketAddress any = AddressAt(0);
    EXPECT_EQ(bind(socket_, any.get(), any.length_bytes()), 0);
    sockaddr_in bound = {};
    socklen_t length = sizeof(bound);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &length), 0);
    port_ = ntohs(bound.sin_port);
  }
  ~ClosedPort() { close(socket_); }
  ClosedPort(const ClosedPort&) = delete;
  uint16_t port() const { return port_; }

 private:
  const int socket_;
  uint16_t port_ = 0;
};

std::string Telling(uint16_t port) {
  return transport::EncodeRejection(absl::FailedPreconditionError("elsewhere"), port);
}

// A program that clients dial. It tells those that ask to prove at `told`, and keeps their connects that have
// a proof without an answer, so that the TLS session goes on.
class ProgramInBetween {
 public:
  ProgramInBetween(const std::shared_ptr<Runtime>& runtime, const SocketAddress& address, uint16_t told)
      : listener_(runtime, address, [this, told](std::unique_ptr<fabric::ConnectRequest> request) {
          const auto hello = transport::DecodeConnect(request->private_data());
          if (!hello.ok() || (hello->features & transport::kFeatureProof) == 0) {
            return request->Reject(Telling(told));
          }
          const std::string connect(request->private_data().substr(0, 56));
          requests_.push_back(std::move(request));
          connects_.Put(connect);
        }) {}

  uint16_t port() const { return listener_.address().port(); }
  std::string TakeConnect() { return connects_.Take(); }

 private:
  std::vector<std::unique_ptr<fabric::ConnectRequest>> requests_;  // On the poller.
  Box<std::string> connects_;
  RawListener listener_;
};

class ProofPortTest : public ProofPortsTest {
 protected:
  std::unique_ptr<RawListener> Rejecting(std::function<std::string()> rejection) {
    return std::make_unique<RawListener>(
        runtime_, AddressAt(0),
        [rejection = std::move(rejection)](auto request) { request->Reject(rejection()); });
  }
  fabric::QueuePairOptions Tls() const {
    fabric::QueuePairOptions options;
    options.tls = *tls::Context::Create(Credentials("client.example.org"), nullptr);
    options.tls_host = TestHost();
    return options;
  }
  // The server refuses what was made for another address or port.
  void ExpectNotPassedOn(const TestServer& server, const std::string& connect) {
    const RawEnd passes_on(runtime_, AddressAt(PortOf(server.uri)), connect);
    ASSERT_FALSE(passes_on.accepted());
    EXPECT_THAT(passes_on.rejection(), HasCode(absl::StatusCode::kUnauthenticated));
    EXPECT_THAT(Text(passes_on.rejection()), HasSubstr("another address or port"));
    EXPECT_TRUE(Eventually([&] { return Violations(server, Violation::kTls) == 1; }));
    EXPECT_EQ(server.server.stats().connections, 0u);
  }
};

TEST_P(ProofPortTest, BothSidesAreAuthenticatedByAPortThatTheServerTells) {
  TestServer server(AsServer(), AnyPort());
  EXPECT_EQ(server.server.addresses().size(), 1u);
  const auto channel = server.Connect(AsClient());
  ASSERT_NE(channel, nullptr);
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_TRUE(channel->peer_identity().HasDnsName("server.example.org"));
  auto call = probe::ProbeStub(channel).Echo({.timeout = kLong});
  call.request().initData(3'000'000)[2'999'999] = 7;
  const auto reply = call.Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->getData()[2'999'999], 7);
  EXPECT_EQ(AllViolations(server), 0u);
}

TEST_P(ProofPortTest, CallsToAClientAreProvedThereAsWell) {
  TestServer server(AsServer(), AnyPort());
  ListenerImpl listener;
  ChannelOptions options = AsClient();
  options.services = {&listener};
  const auto channel = server.Connect(std::move(options));
  const std::shared_ptr<Channel> back = WayBack(server, channel);
  EXPECT_TRUE(back->peer_identity().HasDnsName("client.example.org"));
  EXPECT_THAT(probe::ListenerStub(back).Notify({.timeout = kLong}).Send().Wait().status(), IsOk());
  EXPECT_TRUE(listener.callers.Take().HasDnsName("server.example.org"));
}

TEST_P(ProofPortTest, AChannelAsksAgainWhenItConnectsAgain) {
  auto server = std::make_unique<TestServer>(AsServer(), AnyPort());
  const std::string uri = server->uri;
  ChannelOptions options = AsClient();
  options.backoff_min = options.backoff_max = absl::Milliseconds(10);
  const auto channel = server->Connect(std::move(options));
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  const uint16_t told = *ToldPort(PortOf(uri));
  server.reset();
  const RawListener other(*Runtime::Default("tcp"), AddressAt(told),
                          [](auto) {});  // The old port is another's now.
  server = std::make_unique<TestServer>(AsServer(), uri);
  EXPECT_NE(*ToldPort(PortOf(uri)), told);
  EXPECT_THAT(SendActAgain(channel, 1, kPatient).Wait().status(), IsOk());
}

TEST_P(ProofPortTest, ChannelsThatEndWhileTheyAskLeaveNothing) {
  TestServer server(AsServer(), AnyPort());
  const ChannelOptions options = AsClient();
  for (int i = 0; i < 50; ++i) {
    const auto channel = *Channel::Create(server.uri, options);
    for (int spins = 0; spins < i * 20; ++spins) sched_yield();
    if (i % 2 == 0) channel->Close();
  }
  EXPECT_TRUE(Eventually([&] { return server.server.stats().connections == 0; }));
  EXPECT_THAT(SendAct(server.Connect(options), 1).Wait(), IsOk());
  EXPECT_EQ(AllViolations(server), 0u);
}

// ---- Older peers

TEST_P(ProofPortTest, AClientThatDoesNotAskGetsARejectionWithoutAPort) {
  TestServer server(AsServer(), AnyPort());
  const RawEnd older(runtime_, AddressAt(PortOf(server.uri)), Encode(HelloOf(Role::kForward)));
  EXPECT_THAT(older.rejection(), HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(older.rejection()), HasSubstr("set ChannelOptions::credentials"));
  EXPECT_EQ(*transport::DecodeProofPort(older.data()), 0);
  EXPECT_TRUE(Eventually([&] { return Violations(server, Violation::kTls) == 1; }));
}

TEST_P(ProofPortTest, AProofOfAClientThatBindsNoneIsGood) {
  TestServer server(AsServer(), AnyPort());
  RawEnd older(*Runtime::Default("tcp"), AddressAt(*ToldPort(PortOf(server.uri))),
               Encode(HelloOf(Role::kProveForward)), Tls());
  ASSERT_TRUE(older.accepted());
  EXPECT_EQ(transport::DecodeAccept(older.data(), Role::kProveForward)->features, 0u);
  const transport::Proof proof = older.proof();
  const std::string connect = EncodeConnect(HelloOf(Role::kForward), proof);
  EXPECT_TRUE(RawEnd(runtime_, AddressAt(PortOf(server.uri)), connect).accepted());
}

TEST_P(ProofPortTest, AServerThatTellsAPortAndBindsNoProofIsRefused) {
  std::vector<std::unique_ptr<RawEnd>> ends;
  const std::shared_ptr<Runtime> tcp = *Runtime::Default("tcp");
  fabric::ListenOptions with_tls;
  with_tls.tls = *tls::Context::Create(Credentials("server.example.org"), nullptr);
  const RawListener older(
      tcp, AddressAt(0),
      [&](std::unique_ptr<fabric::ConnectRequest> request) {
        ends.push_back(std::make_unique<RawEnd>(tcp, *request, Encode(HelloOf(Role::kProveForward))));
      },
      with_tls);
  std::atomic<int> connects{0};
  const auto redirects = Rejecting([&] {
    ++connects;
    return Telling(older.address().port());
  });
  const absl::Status status = Channel::Connect(UriAt(redirects->address().port()), AsClient()).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(status), HasSubstr("binds no proof"));
  EXPECT_EQ(connects, 1);  // The proof was not sent.
}

// ---- Hostile ones

TEST_P(ProofPortTest, APortOfTheSystemIsNotDialed) {
  for (const uint16_t port : {0, 1, 80, 1023}) {
    const auto redirects = Rejecting([port] { return Telling(port); });
    const absl::Status status = Channel::Connect(UriAt(redirects->address().port()), AsClient()).status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(Text(status), HasSubstr(absl::StrCat("TCP port ", port, ":")));
  }
}

TEST_P(ProofPortTest, APortThatIsClosedIsNamedAndSoIsTheDialedOne) {
  const ClosedPort closed;
  const auto redirects = Rejecting([&] { return Telling(closed.port()); });
  const uint16_t dialed = redirects->address().port();
  const absl::Status status = Channel::Connect(UriAt(dialed), AsClient()).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Text(status),
              AllOf(HasSubstr(absl::StrCat("at port ", closed.port(), ", which the server at port ", dialed)),
                    HasSubstr("firewall"), HasSubstr("ServerOptions::proof_ports")));
}

TEST_P(ProofPortTest, AClientIsSentElsewhereOnce) {
  TestServer server(AsServer(), AnyPort());
  const uint16_t told = *ToldPort(PortOf(server.uri));
  std::atomic<int> connects{0};
  const auto redirects = Rejecting([&] {
    ++connects;
    return Telling(told);
  });
  const absl::Status status = Channel::Connect(UriAt(redirects->address().port()), AsClient()).status();
  EXPECT_THAT(status, Not(IsOk()));
  EXPECT_THAT(Text(status), HasSubstr("elsewhere"));
  EXPECT_EQ(connects, 2);  // It asks, and connects.
}

TEST_P(ProofPortTest, ARejectionThatWasCutShortTellsNoPort) {
  const auto redirects = Rejecting([] {
    std::string rejection = Telling(2000);
    rejection.pop_back();
    return rejection;
  });
  const absl::Status status = Channel::Connect(UriAt(redirects->address().port()), AsClient()).status();
  EXPECT_THAT(Text(status), HasSubstr("cut short"));
}

TEST_P(ProofPortTest, AskingCostsTheServerNoConnectionAndIsNoViolation) {
  TestServer server(AsServer(), AnyPort());
  for (int i = 0; i < 20; ++i) EXPECT_THAT(ToldPort(PortOf(server.uri)), IsOk());
  EXPECT_EQ(server.server.stats().connections, 0u);
  EXPECT_EQ(AllViolations(server), 0u);
}

// ---- Programs in between

TEST_P(ProofPortTest, AProofForAnotherPortOfTheServersHostCannotBePassedOn) {
  TestServer server(AsServer(), AnyPort());
  ProgramInBetween program(runtime_, AddressAt(0), *ToldPort(PortOf(server.uri)));
  const auto channel = *Channel::Create(UriAt(program.port()), AsClient());
  ExpectNotPassedOn(server, program.TakeConnect());
}

TEST_P(ProofPortTest, AProofWhoseTlsSessionWasPassedOnCannotBePassedOnEither) {
  TestServer server(AsServer(), AnyPort());
  const Proxy tls(absl::StrCat("tcp://", TestHost(), ":", *ToldPort(PortOf(server.uri))));
  ProgramInBetween program(runtime_, AddressAt(0), PortOf(tls.uri()));
  const auto channel = *Channel::Create(UriAt(program.port()), AsClient());
  ExpectNotPassedOn(server, program.TakeConnect());
}

// The client reaches the server itself over RDMA, and TLS by another port than the server's.
TEST_P(ProofPortTest, ATlsSessionThatWasPassedOnGivesNoProof) {
  TestServer server(AsServer(), AnyPort());
  const uint16_t told = *ToldPort(PortOf(server.uri));
  const Proxy tls(absl::StrCat("tcp://", TestHost(), ":", told));
  transport::Handshake hello = HelloOf(Role::kProveForward);
  hello.features = transport::kFeatureBoundProof;
  RawEnd client(*Runtime::Default("tcp"), AddressAt(PortOf(tls.uri())), Encode(hello), Tls());
  ASSERT_TRUE(client.accepted());
  transport::Proof proof = client.proof();
  proof.bound_to = transport::Dialed{AddressAt(PortOf(server.uri)), AddressAt(PortOf(tls.uri()))};
  ExpectNotPassedOn(server, EncodeConnect(HelloOf(Role::kForward), proof));
}

INSTANTIATE_TEST_SUITE_P(Over, ProofPortTest, FabricsWithPortsOfTcp(), OverName);

// A device with ports of its own: the same port for both.
TEST(ProofPassedOnTest, OverADeviceWithPortsOfItsOwnItCannotBePassedOnEither) {
  if (TestScheme() == "rdma") return;
  const CertificateAuthority authority;
  const auto runtime = *Runtime::CreateOn(std::make_shared<PlainFabric>(), {}, /*start_threads=*/true);
  ServerOptions as_server;
  as_server.runtime = runtime;
  as_server.credentials = authority.Issue(LoopbackNames());
  TestServer server(std::move(as_server), "rdma://127.0.0.1:0");
  const Proxy tls(absl::StrCat("tcp://127.0.0.1:", PortOf(server.uri)));
  ProgramInBetween program(runtime, AddressAt(PortOf(tls.uri())), 0);
  ChannelOptions as_client;
  as_client.runtime = runtime;
  as_client.credentials = authority.Issue(LoopbackNames());
  const auto channel = *Channel::Create(absl::StrCat("rdma://127.0.0.1:", program.port()), as_client);
  const RawEnd passes_on(runtime, AddressAt(PortOf(server.uri)), program.TakeConnect());
  EXPECT_THAT(passes_on.rejection(), HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(passes_on.rejection()), HasSubstr("another address or port"));
  // A client that asks there is told that port.
  const RawEnd asks(runtime, AddressAt(PortOf(server.uri)), Encode(HelloOf(Role::kProveForward)));
  EXPECT_EQ(*transport::DecodeProofPort(asks.data()), PortOf(server.uri));
}

}  // namespace
}  // namespace hawser
