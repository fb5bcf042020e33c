// Channels and servers with credentials. What is said about TLS itself is tested in tests/tls.

#include <capnp/message.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/rpc/interceptor.h"
#include "hawser/rpc/log.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/connections.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Over TCP whatever the other tests run over: the only network with TLS.
constexpr char kAnyPort[] = "tcp://127.0.0.1:0";

CertificateNames Names(const std::string& dns) {
  CertificateNames names = LoopbackNames();
  names.dns = {dns};
  return names;
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// One authority, which a server and its clients believe.
class TlsTest : public ::testing::Test {
 protected:
  TlsCredentials ServerCredentials() { return authority_.Issue(Names("server.example.org")); }
  TlsCredentials ClientCredentials(const std::string& dns = "client.example.org") {
    CertificateNames names;
    names.dns = {dns};
    return authority_.Issue(names);
  }
  ChannelOptions AsClient() { return {.credentials = ClientCredentials()}; }

  const CertificateAuthority authority_;
  const CertificateAuthority strange_{"strange authority"};
};

TEST_F(TlsTest, EachSideSeesTheNamesOfTheOther) {
  TestServer server({.credentials = ServerCredentials()}, kAnyPort);
  Box<PeerIdentity> callers;
  server.probe.on_act = [&](ServerContext& context, uint64_t) {
    callers.Put(context.peer_identity());
    return absl::OkStatus();
  };
  CertificateNames names;
  names.dns = {"client.example.org", "other.example.org"};
  names.uris = {"spiffe://example.org/client"};
  const auto channel = server.Connect({.credentials = authority_.Issue(names)});
  ASSERT_THAT(SendAct(channel, 1).Wait().status(), IsOk());
  const PeerIdentity caller = callers.Take();
  EXPECT_TRUE(caller.is_authenticated);
  EXPECT_THAT(caller.dns_names, ElementsAre("client.example.org", "other.example.org"));
  EXPECT_THAT(caller.uris, ElementsAre("spiffe://example.org/client"));
  const PeerIdentity called = channel->peer_identity();
  EXPECT_TRUE(called.is_authenticated);
  EXPECT_TRUE(called.HasDnsName("server.example.org"));
}

TEST_F(TlsTest, EachOfSeveralConnectionsIsAuthenticated) {
  TestServer server({.credentials = ServerCredentials()}, kAnyPort);
  Box<std::pair<std::string, bool>> callers;
  server.probe.on_act = [&](ServerContext& context, uint64_t number) {
    callers.Put({context.peer_address(), context.peer_identity().HasDnsName("client.example.org")});
    return server.held.Handler()(context, number);
  };
  ChannelOptions options = AsClient();
  options.connections = 3;
  const auto channel = server.Connect(options);
  EXPECT_TRUE(channel->peer_identity().HasDnsName("server.example.org"));
  ASSERT_TRUE(Eventually([&] { return ReadyConnections(*channel) == 3; }));
  std::vector<PendingCall<probe::Probe::ActResults>> calls;
  std::set<std::string> peers;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(SendAct(channel, 1));
    const auto [peer, known] = callers.Take();
    EXPECT_TRUE(known);
    peers.insert(peer);
  }
  EXPECT_EQ(peers.size(), 3u);
  for (int i = 0; i < 3; ++i) server.held.Take().Finish();
  for (auto& call : calls) EXPECT_THAT(call.Wait(), IsOk());
}

TEST_F(TlsTest, ASnapshotHasTheHandshakes) {
  const auto handshakes = [](const Server& of) {
    capnp::MallocMessageBuilder message;
    of.FillIn(message.initRoot<observe::wire::Snapshot>());
    const auto tls = message.getRoot<observe::wire::Snapshot>().asReader().getTls();
    return std::vector<uint64_t>{tls.getFull() + tls.getResumed(), tls.getFailed()};
  };
  TestServer server({.credentials = ServerCredentials()}, kAnyPort);
  const auto channel = server.Connect(AsClient());
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_THAT(Channel::Connect(server.uri, {.credentials = strange_.Issue()}), Not(IsOk()));
  // The client may know first.
  EXPECT_TRUE(Eventually([&] { return handshakes(server.server) == std::vector<uint64_t>{1, 1}; }));
  EXPECT_THAT(handshakes(TestServer().server), ElementsAre(0, 0));
}

TEST_F(TlsTest, LargeMessagesCrossBothWays) {
  TestServer server({.credentials = ServerCredentials()}, kAnyPort);
  const auto channel = server.Connect(AsClient());
  for (const size_t bytes : {10, 3000, 100'000, 20'000'000}) {
    auto call = probe::ProbeStub(channel).Echo({.timeout = kLong});
    auto data = call.request().initData(static_cast<unsigned>(bytes));
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i * 7);
    const auto reply = call.Send().Wait();
    ASSERT_THAT(reply.status(), IsOk());
    const auto echoed = (*reply)->getData();
    ASSERT_EQ(echoed.size(), bytes);
    bool same = true;
    for (size_t i = 0; i < bytes; ++i) same = same && echoed[i] == static_cast<uint8_t>(i * 7);
    EXPECT_TRUE(same);
  }
}

TEST_F(TlsTest, AuthorizeDecidesByIdentity) {
  ServerOptions options;
  options.credentials = ServerCredentials();
  options.authorize = [](const ServerContext& context) {
    if (context.peer_identity().HasDnsName("client.example.org")) return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrCat(context.peer_identity().ToString(), " may not call ", context.method().name));
  };
  TestServer server(std::move(options), kAnyPort);
  EXPECT_THAT(SendAct(server.Connect(AsClient()), 1).Wait(), IsOk());
  const auto intruder = server.Connect({.credentials = ClientCredentials("intruder.example.org")});
  const absl::Status status = SendAct(intruder, 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Text(status), HasSubstr("DNS:intruder.example.org may not call"));
  EXPECT_EQ(server.probe.runs, 1);
}

// Records who the peer of each call is.
class Peers final : public Interceptor {
 public:
  absl::StatusOr<std::unique_ptr<Call>> Begin(const Beginning& call) override {
    seen.Put({call.side, call.peer_identity.ToString()});
    return nullptr;
  }
  Box<std::pair<Side, std::string>> seen;
};

TEST_F(TlsTest, InterceptorsSeeThePeer) {
  const auto at_client = std::make_shared<Peers>(), at_server = std::make_shared<Peers>();
  TestServer server({.credentials = ServerCredentials(), .interceptors = {at_server}}, kAnyPort);
  ChannelOptions options = AsClient();
  options.interceptors = {at_client};
  ASSERT_THAT(SendAct(server.Connect(std::move(options)), 1).Wait(), IsOk());
  const auto client_saw = at_client->seen.Take(), server_saw = at_server->seen.Take();
  EXPECT_EQ(client_saw.first, Interceptor::Side::kClient);
  EXPECT_THAT(client_saw.second, HasSubstr("DNS:server.example.org"));
  EXPECT_EQ(server_saw.first, Interceptor::Side::kServer);
  EXPECT_EQ(server_saw.second, "DNS:client.example.org");
}

// ---- Peers that are not trusted.

TEST_F(TlsTest, AClientWithoutCredentialsHearsThatTheServerWantsThem) {
  TestServer server({.credentials = ServerCredentials()}, kAnyPort);
  const absl::Status status = Channel::Connect(server.uri).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(status), HasSubstr("credentials"));
  EXPECT_EQ(server.server.stats().calls_total, 0u);
}

TEST_F(TlsTest, AServerWithoutCredentialsIsNotBelieved) {
  TestServer server({}, kAnyPort);
  const absl::Status status = Channel::Connect(server.uri, AsClient()).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(status), HasSubstr("credentials"));
}

TEST_F(TlsTest, AClientOfAnotherAuthorityIsNotBelieved) {
  TestServer server({.credentials = ServerCredentials()}, kAnyPort);
  const TlsCredentials strange =
      strange_.Issue(LoopbackNames(), {.authorities = authority_.authorities_path()});
  EXPECT_THAT(Channel::Connect(server.uri, {.credentials = strange}).status(),
              HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_TRUE(Eventually([&] { return server.server.stats().violations[Violation::kTls] == 1; }));
  EXPECT_THAT(SendAct(server.Connect(AsClient()), 1).Wait(), IsOk());
}

TEST_F(TlsTest, AServerOfAnotherAuthorityIsNotBelieved) {
  const TlsCredentials strange =
      strange_.Issue(LoopbackNames(), {.authorities = authority_.authorities_path()});
  TestServer server({.credentials = strange}, kAnyPort);
  EXPECT_THAT(Channel::Connect(server.uri, AsClient()).status(), HasCode(absl::StatusCode::kUnauthenticated));
}

TEST_F(TlsTest, AServerOfAnotherNameIsNotBelieved) {
  CertificateNames names;
  names.dns = {"kv2.example.org"};
  TestServer server({.credentials = authority_.Issue(names)}, kAnyPort);
  const absl::Status status = Channel::Connect(server.uri, AsClient()).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(status), AllOf(HasSubstr("127.0.0.1"), HasSubstr("kv2.example.org")));
}

TEST_F(TlsTest, TheCertificateIsForTheNameInTheUriNotForItsAddress) {
  CertificateNames names;
  names.dns = {"localhost"};
  TestServer server({.credentials = authority_.Issue(names)}, kAnyPort);
  const std::string port = server.uri.substr(server.uri.rfind(':'));
  EXPECT_THAT(Channel::Connect(absl::StrCat("tcp://localhost", port), AsClient()).status(), IsOk());
  EXPECT_THAT(Channel::Connect(server.uri, AsClient()).status(), HasCode(absl::StatusCode::kUnauthenticated));
}

TEST_F(TlsTest, ServerNameSaysWhoTheServerIs) {
  CertificateNames names;
  names.dns = {"kv2.example.org"};
  names.uris = {"spiffe://example.org/kv2"};
  TestServer server({.credentials = authority_.Issue(names)}, kAnyPort);
  for (const auto& [name, is_the_servers] : {std::pair<std::string, bool>{"kv2.example.org", true},
                                             {"spiffe://example.org/kv2", true},
                                             {"kv1.example.org", false},
                                             {"spiffe://example.org/kv", false}}) {
    TlsCredentials credentials = ClientCredentials();
    credentials.server_name = name;
    EXPECT_THAT(Channel::Connect(server.uri, {.credentials = credentials}).status(),
                HasCode(is_the_servers ? absl::StatusCode::kOk : absl::StatusCode::kUnauthenticated))
        << name;
  }
}

TEST_F(TlsTest, CallsFailWithUnauthenticatedUnsent) {
  TestServer server({.credentials = ServerCredentials()}, kAnyPort);
  Box<std::pair<ChannelState, absl::Status>> states;
  const auto channel =
      *Channel::Create(server.uri, {.backoff_min = absl::Seconds(10),
                                    .backoff_max = absl::Seconds(10),
                                    .on_state_change = [&](ChannelState state, const absl::Status& why) {
                                      states.Put({state, why});
                                    }});
  const auto [state, why] = states.Take();
  EXPECT_EQ(state, ChannelState::kTransientFailure);
  EXPECT_THAT(why, HasCode(absl::StatusCode::kUnauthenticated));
  const absl::Status status = SendAct(channel, 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_FALSE(WasSent(status));
  const absl::Status late =
      SendAct(channel, 1, {.timeout = kExpires, .wait_for_ready = true}).Wait().status();
  EXPECT_THAT(late, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(Text(late), HasSubstr("credentials"));
}

// ---- Certificates that change.

TEST_F(TlsTest, ACallThatWaitsGoesOnceTheCertificateIsMended) {
  const TlsCredentials credentials =
      strange_.Issue(LoopbackNames(), {.authorities = authority_.authorities_path()});
  TestServer server({.credentials = credentials}, kAnyPort);
  Box<ChannelState> states;
  ChannelOptions options = AsClient();
  options.backoff_min = absl::Milliseconds(1);
  options.backoff_max = absl::Milliseconds(20);
  options.on_state_change = [&](ChannelState state, const absl::Status&) { states.Put(state); };
  const auto channel = *Channel::Create(server.uri, std::move(options));
  auto call = SendAct(channel, 1, kPatient);
  EXPECT_EQ(states.Take(), ChannelState::kTransientFailure);
  authority_.Issue(LoopbackNames(),
                   {.certificate_path = credentials.certificate, .key_path = credentials.key});
  EXPECT_THAT(call.Wait().status(), IsOk());
}

TEST_F(TlsTest, ARenewedCertificateIsForTheNextConnection) {
  const TlsCredentials credentials = authority_.Issue(Names("old.example.org"));
  TestServer server({.credentials = credentials}, kAnyPort);
  const auto channel = server.Connect(AsClient());
  authority_.Issue(Names("new.example.org"),
                   {.certificate_path = credentials.certificate, .key_path = credentials.key});
  EXPECT_TRUE(
      Eventually([&] { return server.Connect(AsClient())->peer_identity().HasDnsName("new.example.org"); }));
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_TRUE(channel->peer_identity().HasDnsName("old.example.org"));
  EXPECT_EQ(channel->state(), ChannelState::kReady);
}

TEST_F(TlsTest, FilesThatCannotBeUsedAreToldAndTheOldOnesServe) {
  Box<std::string> lines;
  SetLogSink([&](LogSeverity, absl::string_view line) { lines.Put(std::string(line)); });
  const TlsCredentials credentials = ServerCredentials();
  {
    TestServer server({.credentials = credentials}, kAnyPort);
    ReplaceFile(credentials.key, "no key");
    EXPECT_TRUE(
        Eventually([&] { return SendAct(server.Connect(AsClient()), 1).Wait().ok() && lines.size() > 0; }));
    EXPECT_THAT(lines.Take(), AllOf(HasSubstr("TLS goes on"), HasSubstr(credentials.key)));
  }
  SetLogSink(nullptr);
}

TEST_F(TlsTest, FilesThatCannotBeUsedAtFirstAreInvalid) {
  TlsCredentials credentials = ServerCredentials();
  credentials.key = "/no/such/key.pem";
  const absl::Status created = Channel::Create("tcp://127.0.0.1:1", {.credentials = credentials}).status();
  EXPECT_THAT(created, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Text(created), AllOf(HasSubstr("ChannelOptions::credentials"), HasSubstr("/no/such/key.pem")));
  Server server({.credentials = credentials});
  const absl::Status listening = server.Listen(kAnyPort).status();
  EXPECT_THAT(listening, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Text(listening), AllOf(HasSubstr("ServerOptions::credentials"), HasSubstr("/no/such/key.pem")));
}

TEST_F(TlsTest, ACertificateThatCannotServeIsRefusedAtListen) {
  const struct {
    CertificateNames names;
    CertificateOptions options;
    const char* why;
  } certificates[] = {
      {Names("server.example.org"), {.not_after = -absl::Minutes(1)}, "it has expired at "},
      {Names("server.example.org"), {.extended_key_usage = "clientAuth"}, "(serverAuth)"},
      {{.common_name = "localhost"}, {}, "it has no subjectAltName"},
  };
  for (const auto& [names, options, why] : certificates) {
    Server server({.credentials = authority_.Issue(names, options)});
    const absl::Status listening = server.Listen(kAnyPort).status();
    EXPECT_THAT(listening, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(Text(listening), AllOf(HasSubstr("ServerOptions::credentials"), HasSubstr(why)));
    // A client may use it: the server decides.
    EXPECT_THAT(Channel::Create("tcp://127.0.0.1:1", {.credentials = authority_.Issue(names, options)}),
                IsOk());
  }
}

TEST_F(TlsTest, AChannelReconnectsToARestartedServer) {
  const TlsCredentials credentials = ServerCredentials();
  auto server = std::make_unique<TestServer>(ServerOptions{.credentials = credentials}, kAnyPort);
  const std::string uri = server->uri;
  ChannelOptions options = AsClient();
  options.backoff_min = absl::Milliseconds(1);
  options.backoff_max = absl::Milliseconds(20);
  const auto channel = server->Connect(std::move(options));
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(SendAct(channel, 1, kPatient).Wait(), IsOk());
    EXPECT_TRUE(channel->peer_identity().HasDnsName("server.example.org"));
    server.reset();
    EXPECT_TRUE(Eventually([&] { return !channel->peer_identity().is_authenticated; }));
    server = std::make_unique<TestServer>(ServerOptions{.credentials = credentials}, uri);
  }
  EXPECT_THAT(SendAct(channel, 1, kPatient).Wait(), IsOk());
  channel->Close();
  EXPECT_TRUE(Eventually([&] { return !channel->peer_identity().is_authenticated; }));
}

// ---- Where there is TLS.

TEST_F(TlsTest, EachAddressOfAServerHasIt) {
  TestServer server({.credentials = ServerCredentials()}, kAnyPort);
  const absl::StatusOr<std::string> second = server.server.Listen(kAnyPort);
  ASSERT_THAT(second.status(), IsOk());
  for (const std::string& uri : {server.uri, *second}) {
    EXPECT_THAT(SendAct(*Channel::Connect(uri, AsClient()), 1).Wait(), IsOk());
    EXPECT_THAT(Channel::Connect(uri).status(), HasCode(absl::StatusCode::kUnauthenticated));
  }
}

TEST_F(TlsTest, AutoTakesTcpIfAllHasToBeEncrypted) {
  ServerOptions as_server;
  as_server.credentials = ServerCredentials();
  as_server.credentials->require_encryption = true;
  ChannelOptions as_client = AsClient();
  as_client.credentials->require_encryption = true;
  TestServer server(std::move(as_server), "auto://127.0.0.1:0");
  ASSERT_EQ(server.server.addresses().size(), 1u);
  EXPECT_TRUE(absl::StartsWith(server.server.addresses()[0], "tcp://"));
  EXPECT_THAT(server.server.why_not_rdma(), AllOf(HasSubstr("require_encryption"), HasSubstr("rdma://")));
  for (const bool waits : {true, false}) {
    const auto channel =
        waits ? Channel::Connect(server.uri, as_client) : Channel::Create(server.uri, as_client);
    ASSERT_THAT(channel.status(), IsOk());
    EXPECT_THAT(SendAct(*channel, 1).Wait(), IsOk());
    EXPECT_THAT((*channel)->why_not_rdma(), HasSubstr("require_encryption"));
    EXPECT_TRUE((*channel)->peer_identity().is_authenticated);
  }
  EXPECT_THAT(server.server.AllocateBuffer(100, "auto://127.0.0.1:0"), IsOk());
}

TEST_F(TlsTest, ChannelsAndServersShareARuntimeWithAndWithoutIt) {
  const auto runtime = *transport::Runtime::Create("tcp");
  TestServer with({.runtime = runtime, .credentials = ServerCredentials()}, kAnyPort);
  TestServer without({.runtime = runtime}, kAnyPort);
  ChannelOptions options = AsClient();
  options.runtime = runtime;
  EXPECT_THAT(SendAct(with.Connect(options), 1).Wait(), IsOk());
  EXPECT_THAT(SendAct(without.Connect({.runtime = runtime}), 1).Wait(), IsOk());
  options.runtime = nullptr;
  options.server = &without.server;
  const auto channel = with.Connect(options);
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_TRUE(channel->peer_identity().is_authenticated);
}

// ---- A server without credentials.

TEST_F(TlsTest, AServerThatOthersReachWithoutCredentialsSaysSoOnce) {
  Box<std::string> lines;
  SetLogSink([&](LogSeverity severity, absl::string_view line) {
    EXPECT_EQ(severity, LogSeverity::kWarning);
    lines.Put(std::string(line));
  });
  {
    TestServer server({}, kAnyPort);
    TestServer with({.credentials = ServerCredentials()}, "tcp://0.0.0.0:0");
    const absl::StatusOr<std::string> open = server.server.Listen("tcp://0.0.0.0:0");
    ASSERT_THAT(open, IsOk());
    EXPECT_THAT(server.server.Listen("tcp://[::]:0"), IsOk());
    SetLogSink(nullptr);  // Waits for the lines.
    EXPECT_EQ(lines.size(), 1u);
    EXPECT_THAT(lines.Take(), AllOf(HasSubstr(absl::StrCat("listens on ", *open, " without credentials")),
                                    HasSubstr("ServerOptions::credentials")));
  }
}

}  // namespace
}  // namespace hawser
