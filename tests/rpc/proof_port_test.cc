// Credentials over an RDMA device that takes its ports from TCP (iWARP): the server tells at which other port
// it takes proofs, and no program that the client dials can pass a proof on.

#include <sys/socket.h>
#include <sys/time.h>
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

// Whether a listener over TCP closes the connection of a peer that says this.
bool ClosesOn(uint16_t port, absl::string_view bytes) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const SocketAddress address = AddressAt(port);
  EXPECT_EQ(connect(fd, address.get(), address.length_bytes()), 0);
  EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  char answer;
  const bool closes = recv(fd, &answer, 1, 0) <= 0;
  close(fd);
  return closes;
}

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
    options.tls_host = Host();
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
  ExpectLargeMessagesAreRead(channel);
  EXPECT_EQ(AllViolations(server), 0u);
}

TEST_P(ProofPortTest, CallsToAClientAreProvedThereAsWell) {
  TestServer server(AsServer(), AnyPort());
  ExpectCallsToAClient(server, AsClient());
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
  ExpectNothingIsLeftOfEndedChannels(server, AsClient());
  EXPECT_EQ(AllViolations(server), 0u);
}

// The other end sees it: the question is of no use to anybody, and would hold its memory until the timeout.
TEST_P(ProofPortTest, AQuestionEndsWithItsChannel) {
  if (GetParam() != Over::kPlain) GTEST_SKIP() << "the other end is a socket";
  const HeldPort port;
  ASSERT_EQ(listen(port.fd(), 1), 0);
  ChannelOptions options = AsClient();
  options.connect_timeout = absl::Hours(1);
  const auto channel = *Channel::Create(UriAt(port.port()), std::move(options));
  const int fd = accept4(port.fd(), nullptr, nullptr, SOCK_CLOEXEC);
  const timeval patience = {.tv_sec = absl::ToInt64Seconds(kLong)};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  char bytes[256];
  EXPECT_GT(recv(fd, bytes, sizeof(bytes), 0), 0);
  channel->Close();
  ssize_t n;
  do {
    n = recv(fd, bytes, sizeof(bytes), 0);
  } while (n > 0);
  EXPECT_EQ(n, 0);
  close(fd);
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

TEST_P(ProofPortTest, AServerWithoutCredentialsIsRefused) {
  ServerOptions options;
  options.runtime = runtime_;
  TestServer server(std::move(options), AnyPort());
  const absl::Status status = Channel::Connect(server.uri, AsClient()).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(status), AllOf(HasSubstr("was asked: "), HasSubstr("ServerOptions::credentials")));
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
  const HeldPort closed;
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

TEST_P(ProofPortTest, AClientAsksOnceMoreIfTheRejectionIsLost) {
  TestServer server(AsServer(), AnyPort());
  const uint16_t told = *ToldPort(PortOf(server.uri));
  for (const int lost : {1, 2}) {
    std::atomic<int> connects{0};
    const auto redirects = Rejecting([&] { return ++connects <= lost ? "" : Telling(told); });
    const absl::Status status = Channel::Connect(UriAt(redirects->address().port()), AsClient()).status();
    EXPECT_THAT(Text(status), HasSubstr(lost == 1 ? "elsewhere" : "was asked: "));
    EXPECT_EQ(connects, lost == 1 ? 3 : 2);  // The last one of three has the proof.
  }
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

// Otherwise a program that passes TLS on to an older server gets an unbound proof, if it tells no port.
TEST_P(ProofPortTest, ARejectionWithoutAPortIsNotFollowedByTlsAtTheDialedPort) {
  if (GetParam() != Over::kExecuting) GTEST_SKIP() << "nothing else can have the TCP port";
  const std::shared_ptr<Runtime> tcp = *Runtime::Default("tcp");
  std::vector<std::unique_ptr<RawEnd>> ends;
  fabric::ListenOptions with_tls;
  with_tls.tls = *tls::Context::Create(Credentials("server.example.org"), nullptr);
  std::atomic<int> proofs{0};
  const RawListener older(
      tcp, AddressAt(0),
      [&](std::unique_ptr<fabric::ConnectRequest> request) {
        ++proofs;
        ends.push_back(std::make_unique<RawEnd>(tcp, *request, Encode(HelloOf(Role::kProveForward))));
      },
      with_tls);
  std::atomic<int> connects{0};
  const RawListener rejects(runtime_, older.address(), [&](auto request) {
    ++connects;
    request->Reject(transport::EncodeRejection(absl::UnauthenticatedError("as an older one")));
  });
  const absl::Status status = Channel::Connect(UriAt(older.address().port()), AsClient()).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(status), HasSubstr("as an older one"));
  EXPECT_EQ(connects, 1);
  EXPECT_EQ(proofs, 0);
}

TEST_P(ProofPortTest, AnotherReasonOfTheRejectionIsPassedOn) {
  const auto rejects =
      Rejecting([] { return transport::EncodeRejection(absl::PermissionDeniedError("not today")); });
  const absl::Status status = Channel::Connect(UriAt(rejects->address().port()), AsClient()).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Text(status), AllOf(HasSubstr("not today"), Not(HasSubstr("ServerOptions::credentials"))));
}

TEST_P(ProofPortTest, APeerThatAcceptsTheQuestionIsNoServer) {
  std::vector<std::unique_ptr<RawEnd>> ends;
  const RawListener accepts(runtime_, AddressAt(0), [&](std::unique_ptr<fabric::ConnectRequest> request) {
    ends.push_back(std::make_unique<RawEnd>(runtime_, *request, Encode(HelloOf(Role::kProveForward))));
  });
  const absl::Status status = Channel::Connect(UriAt(accepts.address().port()), AsClient()).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(status), HasSubstr("accepts what no server"));
}

TEST_P(ProofPortTest, APeerThatNeverAnswersIsGivenUpAtTheTimeout) {
  std::vector<std::unique_ptr<fabric::ConnectRequest>> held;
  const RawListener silent(runtime_, AddressAt(0), [&](auto request) { held.push_back(std::move(request)); });
  ChannelOptions options = AsClient();
  options.connect_timeout = kExpires;
  const absl::Status status = Channel::Connect(UriAt(silent.address().port()), std::move(options)).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Text(status), HasSubstr("did not say in time"));
}

// iWARP begins so over TCP, and a client of auto:// tries RDMA first.
TEST_P(ProofPortTest, AnIwarpConnectAtATcpPortIsNoViolation) {
  TestServer server(AsServer(), AnyPort());
  TestServer plain({}, absl::StrCat("tcp://", Host(), ":0"));
  const std::string rest(4, '\0');
  for (const auto& [its, port] :
       {std::pair(&server, *ToldPort(PortOf(server.uri))), std::pair(&plain, PortOf(plain.uri))}) {
    EXPECT_TRUE(ClosesOn(port, absl::StrCat("MPA ID Req Frame", rest)));
    EXPECT_TRUE(ClosesOn(port, absl::StrCat("MPA ID Rep Frame", rest)));
    EXPECT_TRUE(Eventually([&, of = its] { return AllViolations(*of) == 1; }));
    EXPECT_EQ(Violations(*its, Violation::kGreeting), 1u);
  }
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
  const Proxy tls(absl::StrCat("tcp://", Host(), ":", *ToldPort(PortOf(server.uri))));
  ProgramInBetween program(runtime_, AddressAt(0), PortOf(tls.uri()));
  const auto channel = *Channel::Create(UriAt(program.port()), AsClient());
  ExpectNotPassedOn(server, program.TakeConnect());
}

// The client reaches the server itself over RDMA, and TLS by another port than the server's.
TEST_P(ProofPortTest, ATlsSessionThatWasPassedOnGivesNoProof) {
  TestServer server(AsServer(), AnyPort());
  const uint16_t told = *ToldPort(PortOf(server.uri));
  const Proxy tls(absl::StrCat("tcp://", Host(), ":", told));
  transport::Handshake hello = HelloOf(Role::kProveForward);
  hello.features = transport::kFeatureBoundProof;
  RawEnd client(*Runtime::Default("tcp"), AddressAt(PortOf(tls.uri())), Encode(hello), Tls());
  ASSERT_TRUE(client.accepted());
  transport::Proof proof = client.proof();
  proof.bound_to = transport::Dialed{AddressAt(PortOf(server.uri)), AddressAt(PortOf(tls.uri()))};
  ExpectNotPassedOn(server, EncodeConnect(HelloOf(Role::kForward), proof));
}

class ProofAddressTest : public ProofPortTest {
 protected:
  // A proof of a client that has dialed `host` over RDMA, at the server's port.
  std::string ConnectFor(const TestServer& server, const std::string& host) {
    const uint16_t told = *ToldPort(PortOf(server.uri));
    transport::Handshake hello = HelloOf(Role::kProveForward);
    hello.features = transport::kFeatureBoundProof;
    client_ = std::make_unique<RawEnd>(*Runtime::Default("tcp"), AddressAt(told), Encode(hello), Tls());
    EXPECT_TRUE(client_->accepted());
    transport::Proof proof = client_->proof();
    proof.bound_to = transport::Dialed{AddressAt(PortOf(server.uri), host), AddressAt(told)};
    return EncodeConnect(HelloOf(Role::kForward), proof);
  }

 private:
  std::unique_ptr<RawEnd> client_;
};

TEST_P(ProofAddressTest, AProofForTheSamePortOfAnotherAddressCannotBePassedOn) {
  TestServer server(AsServer(), AnyPort());
  EXPECT_TRUE(RawEnd(runtime_, AddressAt(PortOf(server.uri)), ConnectFor(server, Host())).accepted());
  EXPECT_TRUE(Eventually([&] { return server.server.stats().connections == 0; }));
  ExpectNotPassedOn(server, ConnectFor(server, "127.0.0.3"));
}

// The address of such a listener is no peer's; what the peer has dialed counts.
TEST_P(ProofAddressTest, AServerAtAllAddressesTakesProofsForTheOneThatWasDialed) {
  TestServer server(AsServer(), "rdma://0.0.0.0:0");
  const auto channel = Channel::Connect(UriAt(PortOf(server.uri)), AsClient());
  ASSERT_THAT(channel.status(), IsOk());
  EXPECT_THAT(SendAct(*channel, 1).Wait(), IsOk());
  (*channel)->Close();
  EXPECT_TRUE(Eventually([&] { return server.server.stats().connections == 0; }));
  ExpectNotPassedOn(server, ConnectFor(server, "127.0.0.3"));
}

INSTANTIATE_TEST_SUITE_P(Over, ProofAddressTest, FabricsWithPortsOfTcp(), OverName);
INSTANTIATE_TEST_SUITE_P(Over, ProofPortTest, FabricsWithPortsOfTcp(), OverName);

// A device with ports of its own: the same port for both.
TEST(ProofPassedOnTest, OverADeviceWithPortsOfItsOwnItCannotBePassedOnEither) {
  if (TestScheme() == "rdma") return;
  constexpr char kHost[] = "127.0.0.1";  // See PlainFabric.
  const CertificateAuthority authority;
  const auto runtime = *Runtime::CreateOn(std::make_shared<PlainFabric>(), {}, /*start_threads=*/true);
  ServerOptions as_server;
  as_server.runtime = runtime;
  as_server.credentials = authority.Issue(LoopbackNames());
  TestServer server(std::move(as_server), "rdma://127.0.0.1:0");
  const Proxy tls(absl::StrCat("tcp://127.0.0.1:", PortOf(server.uri)));
  ProgramInBetween program(runtime, AddressAt(PortOf(tls.uri()), kHost), 0);
  ChannelOptions as_client;
  as_client.runtime = runtime;
  as_client.credentials = authority.Issue(LoopbackNames());
  const auto channel = *Channel::Create(absl::StrCat("rdma://127.0.0.1:", program.port()), as_client);
  const RawEnd passes_on(runtime, AddressAt(PortOf(server.uri), kHost), program.TakeConnect());
  EXPECT_THAT(passes_on.rejection(), HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(passes_on.rejection()), HasSubstr("another address or port"));
  // A client that asks there is told that port.
  const RawEnd asks(runtime, AddressAt(PortOf(server.uri), kHost), Encode(HelloOf(Role::kProveForward)));
  EXPECT_EQ(*transport::DecodeProofPort(asks.data()), PortOf(server.uri));
}

}  // namespace
}  // namespace hawser
