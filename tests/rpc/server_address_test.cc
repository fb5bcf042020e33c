// Where a server listens, and how clients find it.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string PortOf(const std::string& uri) { return uri.substr(uri.rfind(':') + 1); }

TEST(ServerAddressTest, Ipv6Works) {
  TestServer server({}, "tcp://[::1]:0");
  EXPECT_THAT(server.uri, MatchesRegex("tcp://\\[::1\\]:[0-9]+"));
  EXPECT_THAT(CallAt(server.uri), IsOk());
}

// The address of a caller as its handler sees it.
std::string CallerOf(TestServer& server, const std::string& uri, ChannelOptions options = {}) {
  std::string caller;
  server.probe.on_act = [&](ServerContext& context, uint64_t) {
    caller = context.peer_address();
    return options.services.empty() || context.peer() != nullptr ? absl::OkStatus()
                                                                 : absl::InternalError("no peer()");
  };
  absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(uri, options);
  EXPECT_THAT(channel.status(), IsOk());
  if (!channel.ok()) return "";
  EXPECT_THAT(SendAct(*channel, 1).Wait().status(), IsOk());
  return caller;
}

TEST(ServerAddressTest, AllAddressesOfIpv6AreThoseOfIpv4Too) {
  TestServer server({}, "tcp://[::]:0");
  EXPECT_THAT(server.uri, MatchesRegex("tcp://\\[::\\]:[0-9]+"));
  ProbeServiceImpl offered;
  ChannelOptions options;
  options.services = {&offered};
  const std::string port = PortOf(server.uri);
  EXPECT_THAT(CallerOf(server, "tcp://127.0.0.1:" + port, options),
              MatchesRegex("tcp://127\\.0\\.0\\.1:[0-9]+"));
  EXPECT_THAT(CallerOf(server, "tcp://[::1]:" + port, options), MatchesRegex("tcp://\\[::1\\]:[0-9]+"));
}

TEST(ServerAddressTest, AnIpv4HostIsOneHostHoweverItComes) {
  ServerOptions options;
  options.connections_per_host_max = 1;
  TestServer server(options, "tcp://[::]:0");
  const std::string port = PortOf(server.uri);
  const std::shared_ptr<Channel> first = *Channel::Connect("tcp://127.0.0.1:" + port);
  EXPECT_THAT(Channel::Connect("tcp://127.0.0.1:" + port, TryingOnce()).status(),
              HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Channel::Connect("tcp://127.0.0.2:" + port, TryingOnce()).status(),
              HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Channel::Connect("tcp://[::1]:" + port).status(), IsOk());
}

TEST(ServerAddressTest, AHostNameMeansAllItsAddresses) {
  TestServer server({}, "tcp://localhost:0");
  EXPECT_THAT(server.uri, MatchesRegex("tcp://localhost:[0-9]+"));
  EXPECT_THAT(CallAt(server.uri), IsOk());
  EXPECT_THAT(CallAt("tcp://127.0.0.1:" + PortOf(server.uri)), IsOk());
}

TEST(ServerAddressTest, AClientTriesEachAddressOfAName) {
  TestServer server({}, "tcp://127.0.0.1:0");  // On 127.0.0.1 only; localhost may be ::1 first.
  EXPECT_THAT(CallAt("tcp://localhost:" + PortOf(server.uri)), IsOk());
}

TEST(ServerAddressTest, SeveralAddressesServeTheSame) {
  TestServer server;
  const absl::StatusOr<std::string> second = server.server.Listen("tcp://127.0.0.1:0");
  const absl::StatusOr<std::string> third = server.server.Listen("tcp://[::1]:0");
  ASSERT_TRUE(second.ok() && third.ok());
  for (const std::string& uri : {server.uri, *second, *third}) {
    EXPECT_THAT(CallAt(uri), IsOk()) << uri;
  }
  EXPECT_EQ(server.probe.runs, 3);
}

TEST(ServerAddressTest, APortInUseIsNamed) {
  TestServer server;
  Server other;
  const absl::Status status = other.Listen(server.uri).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(std::string(status.message()), HasSubstr(PortOf(server.uri)));
}

TEST(ServerAddressTest, AWrongUriIsRefusedOnBothSides) {
  Server server;
  for (const char* uri : {"", "kv1:7470", "auto://kv1", "tcp://kv1", "tcp://:7470", "tcp://kv1:70000",
                          "tcp://[::1:7470", "ftp://kv1:21", "tcp://::1:7470"}) {
    EXPECT_THAT(server.Listen(uri).status(), HasCode(absl::StatusCode::kInvalidArgument)) << uri;
    EXPECT_THAT(Channel::Connect(uri).status(), HasCode(absl::StatusCode::kInvalidArgument)) << uri;
  }
  EXPECT_THAT(Channel::Connect("tcp://127.0.0.1:0").status(), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST(ServerAddressTest, AnUnknownSchemeIsToldAllThatThereAre) {
  const auto all = testing::AllOf(HasSubstr("tcp://"), HasSubstr("rdma://"), HasSubstr("auto://"));
  Server server;
  for (const char* uri : {"ftp://kv1:21", "kv1:7470", "TCP://127.0.0.1:0"}) {
    EXPECT_THAT(std::string(server.Listen(uri).status().message()), all) << uri;
    EXPECT_THAT(std::string(Channel::Connect(uri).status().message()), all) << uri;
  }
  EXPECT_THAT(std::string(transport::Runtime::Create("auto").status().message()), HasSubstr("wants one of"));
}

struct Shadow {
  const char* first;
  const char* second;
  bool collide;
};

TEST(ServerAddressTest, AddressesThatShadowEachOtherAreRefused) {
  for (const Shadow& shadow :
       {Shadow{"[::]", "127.0.0.1", true}, Shadow{"127.0.0.1", "[::]", true}, Shadow{"[::]", "0.0.0.0", true},
        Shadow{"0.0.0.0", "[::]", true}, Shadow{"0.0.0.0", "127.0.0.1", true}, Shadow{"[::]", "[::1]", true},
        Shadow{"127.0.0.1", "127.0.0.1", true}, Shadow{"[::]", "localhost", true},
        Shadow{"0.0.0.0", "[::1]", false}, Shadow{"127.0.0.1", "127.0.0.2", false},
        Shadow{"[::1]", "0.0.0.0", false}}) {
    Server server;
    const std::string first = *server.Listen(absl::StrCat("tcp://", shadow.first, ":0"));
    const std::string second = absl::StrCat("tcp://", shadow.second, ":", PortOf(first));
    const absl::Status status = server.Listen(second).status();
    if (!shadow.collide) {
      EXPECT_THAT(status, IsOk()) << first << " " << second;
      continue;
    }
    EXPECT_THAT(status, HasCode(absl::StatusCode::kAlreadyExists)) << first << " " << second;
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr(second), HasSubstr("this server listens on " + first)));
  }
}

// Where there is RDMA, it is taken; the same test then shows that.
TEST(AutoTest, TakesRdmaOrTcpAndSaysWhich) {
  TestServer server({}, "auto://" + TestHost() + ":0");
  EXPECT_THAT(server.uri, testing::StartsWith("auto://"));
  const std::vector<std::string> addresses = server.server.addresses();
  ASSERT_FALSE(addresses.empty());
  EXPECT_THAT(addresses[0], testing::StartsWith("tcp://"));
  EXPECT_EQ(PortOf(addresses.back()), PortOf(server.uri));
  EXPECT_EQ(server.server.why_not_rdma().empty(), addresses.size() == 2);
  // Software RDMA on a busy machine may take longer than an attempt has, and then it is TCP.
  std::shared_ptr<Channel> channel;
  ASSERT_TRUE(Eventually([&] {
    channel = server.Connect();
    return channel != nullptr && channel->peer_address() == addresses.back();
  }));
  EXPECT_EQ(channel->why_not_rdma().empty(), addresses.size() == 2);
  EXPECT_THAT(SendAct(channel, 1).Wait().status(), IsOk());
}

TEST(AutoTest, TheRuntimeInTheOptionsSaysWhichNetwork) {
  TestServer server({}, "auto://" + TestHost() + ":0");
  ChannelOptions options;
  options.runtime = *transport::Runtime::Create(TestScheme());
  const std::shared_ptr<Channel> channel = server.Connect(std::move(options));
  ASSERT_NE(channel, nullptr);
  EXPECT_THAT(channel->peer_address(), testing::StartsWith(TestScheme() + "://"));
  if (TestScheme() == "rdma") {
    EXPECT_EQ(channel->why_not_rdma(), "");
  } else {
    EXPECT_THAT(channel->why_not_rdma(), HasSubstr("serves tcp://, not rdma://"));
  }
  EXPECT_THAT(SendAct(channel, 1).Wait().status(), IsOk());
}

TEST(AutoTest, NobodyThereIsAnErrorThatNamesBothNetworks) {
  const absl::Status nobody = Channel::Connect("auto://127.0.0.1:1").status();
  EXPECT_THAT(nobody, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(nobody.message()), testing::HasSubstr("and over RDMA: "));
}

TEST(ServerOptionsTest, ListenRefusesThoseThatServeNoClient) {
  const std::pair<ServerOptions, const char*> wrong[] = {
      {{.pollers = -1}, "ServerOptions::pollers is -1: from 0 to 1024"},
      {{.connection = {.slots = 0}}, "ConnectionOptions::slots is 0: from 1 to 1024"},
      {{.connection = {.receive_buffer_bytes = 64}},
       "ConnectionOptions::receive_buffer_bytes is 64: from 512 to 65536"},
      {{.connection = {.receive_buffer_bytes = 1000}},
       "ConnectionOptions::receive_buffer_bytes is 1000: a multiple of 64 from 512 to 65536"},
      {{.pool = {.limit_bytes = 2 << 20}}, "limit_bytes 2097152 is too little"},
  };
  for (const auto& [options, text] : wrong) {
    Server server(options);
    const absl::Status status = server.Listen(TestUri()).status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
}

TEST(ChannelOptionsTest, CreateRefusesThoseThatConnectNowhere) {
  const absl::Status status = Channel::Create("tcp://127.0.0.1:1", {.connection = {.slots = 1025}}).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()), HasSubstr("ConnectionOptions::slots is 1025: from 1 to 1024"));
}

// Only an answer tells whether RDMA leads to the peer, and these wait for none. On a machine without RDMA,
// too: a program that works there works where there is some.
TEST(AutoTest, WhatDoesNotWaitForAnAnswerRefusesItOnEveryMachine) {
  TestServer server({}, "auto://" + TestHost() + ":0");
  const std::pair<absl::Status, const char*> refused[] = {
      {Channel::Create(server.uri).status(), "Channel::Create() does not wait"},
      {Channel::ConnectAny({server.uri}).status(), "Channel::ConnectAny() does not wait"}};
  for (const auto& [status, who] : refused) {
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr(server.uri), HasSubstr(who), HasSubstr("use Channel::Connect()")));
  }
}

TEST(AutoTest, CreateTakesTheNetworkOfItsRuntime) {
  TestServer server({}, "auto://" + TestHost() + ":0");
  ChannelOptions options;
  options.runtime = *transport::Runtime::Create(TestScheme());
  const absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Create(server.uri, std::move(options));
  ASSERT_THAT(channel.status(), IsOk());
  EXPECT_THAT(SendAct(*channel, 1).Wait().status(), IsOk());
}

TEST(AutoTest, CreateRefusesAWrongAddressAtOnce) {
  EXPECT_THAT(Channel::Create("auto://kv1").status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Channel::Create("auto://127.0.0.1:0").status(), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST(ServerAddressTest, ANameThatDoesNotResolveIsNamed) {
  Server server;
  const std::string uri = "tcp://no-such-host.invalid:7470";
  // A machine without a name server cannot tell an unknown name from a name server that is down.
  const auto not_found =
      testing::AnyOf(HasCode(absl::StatusCode::kNotFound), HasCode(absl::StatusCode::kUnavailable));
  const absl::Status listening = server.Listen(uri).status();
  EXPECT_THAT(listening, not_found);
  EXPECT_THAT(std::string(listening.message()), HasSubstr("no-such-host.invalid"));
  const absl::Status connecting = Channel::Connect(uri).status();
  EXPECT_THAT(connecting, not_found);
  EXPECT_THAT(std::string(connecting.message()), HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace hawser
