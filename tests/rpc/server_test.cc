// Where a server listens, where its handlers run, and how it ends.

#include "hawser/rpc/server.h"

#include <capnp/message.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/executor.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string PortOf(const std::string& uri) { return uri.substr(uri.rfind(':') + 1); }

absl::Status CallAt(const std::string& uri) {
  absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(uri);
  if (!channel.ok()) return channel.status();
  return SendAct(*channel, 1).Wait().status();
}

// ---- Addresses

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

// Where there is RDMA, only an answer tells whether it leads to the peer, and Create() waits for none.
TEST(AutoTest, CreateTakesTcpWhereThereIsNoRdma) {
  TestServer server({}, "auto://" + TestHost() + ":0");
  const absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Create(server.uri);
  if (TestScheme() == "rdma") {
    EXPECT_THAT(channel.status(), HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(channel.status().message()), HasSubstr("Channel::Connect()"));
    return;
  }
  ASSERT_THAT(channel.status(), IsOk());
  EXPECT_EQ((*channel)->peer_address(), server.server.addresses()[0]);
  EXPECT_FALSE((*channel)->why_not_rdma().empty());
  EXPECT_THAT(SendAct(*channel, 1).Wait().status(), IsOk());
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

// ---- Services

TEST(ServerTest, TwoServicesForOneMethodAreRefused) {
  ProbeServiceImpl one, other;
  Server server;
  EXPECT_THAT(server.AddService(&one), IsOk());
  EXPECT_THAT(server.AddService(&one), IsOk()) << "the same one again does no harm";
  const absl::Status status = server.AddService(&other);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(std::string(status.message()), HasSubstr("probe.capnp:Probe"));
}

TEST(ServerTest, AServiceComesBeforeTheFirstListen) {
  TestServer server;
  ProbeServiceImpl late;
  EXPECT_THAT(server.server.AddService(&late), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST(ServerTest, AnInterfaceThatIsNotServedIsNamedBesideThoseThatAre) {
  TestServer server;
  const auto channel = server.Connect();
  const absl::Status status = probe::UnservedStub(channel).Call().Send().Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(std::string(status.message()),
              MatchesRegex("calling probe.capnp:Unserved.call at " + server.uri +
                           ": the server implements no interface 0x[0-9a-f]{16}; it implements: "
                           "probe.capnp:Probe. Was the service given to AddService\\(\\)\\?"));
}

TEST(ServerTest, AMethodOfANewerSchemaIsNamed) {
  TestServer server;
  const auto channel = server.Connect();
  Method method = probe::ProbeStub::kAct;
  method.ordinal = 77;
  method.name = "probe.capnp:Probe.actAnew";
  Call<probe::Probe::ActParams, probe::Probe::ActResults> call(channel, method, {});
  const absl::Status status = call.Send().Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_EQ(std::string(status.message()),
            "calling probe.capnp:Probe.actAnew at " + server.uri +
                ": the server's probe.capnp:Probe has no method @77: the caller's schema is newer");
}

TEST(ServerTest, AServerWithoutServicesSaysSo) {
  Server server;
  const std::string uri = *server.Listen(TestUri());
  const absl::Status status = CallAt(uri);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(std::string(status.message()), HasSubstr("it implements: none. Was the service given to"));
}

// What a handler says is the handler's.
TEST(ServerTest, AHandlersOwnUnimplementedIsLeftAlone) {
  TestServer server;
  server.probe.on_act = [](ServerContext&, uint64_t) { return absl::UnimplementedError("not on Sundays"); };
  EXPECT_EQ(CallAt(server.uri), absl::UnimplementedError("not on Sundays"));
}

TEST(MethodTableTest, NamesAFewInterfacesAndCountsTheRest) {
  std::deque<std::string> names;
  std::deque<Method> methods;
  MethodTable table;
  for (uint64_t i = 0; i < 40; ++i) {
    names.push_back(absl::StrCat("a.capnp:I", 10 + i, ".get"));
    methods.push_back({i, 0, names.back().c_str(), false});
    table.Add(methods.back(), nullptr, nullptr);
  }
  EXPECT_THAT(table.InterfaceNames(), testing::StartsWith("a.capnp:I10, a.capnp:I11, "));
  EXPECT_THAT(table.InterfaceNames(), testing::EndsWith("a.capnp:I25 and 24 more"));
  EXPECT_EQ(table.InterfaceName(7), "a.capnp:I17");
}

// ---- Handlers

TEST(ServerTest, HandlersRunOnTheExecutor) {
  Box<absl::AnyInvocable<void()>> jobs;
  std::thread worker([&] {
    for (int i = 0; i < 20; ++i) jobs.Take()();
  });
  const std::thread::id worker_id = worker.get_id();
  std::set<std::thread::id> ids;
  {
    TestServer server({.executor = [&](absl::AnyInvocable<void()> job) { jobs.Put(std::move(job)); }});
    server.probe.on_act = [&](ServerContext&, uint64_t) {
      ids.insert(std::this_thread::get_id());
      return absl::OkStatus();
    };
    const auto channel = server.Connect();
    for (int i = 0; i < 20; ++i) EXPECT_THAT(SendAct(channel, i).Wait().status(), IsOk());
  }
  // A reply is no order between threads that a sanitizer sees: over RDMA it comes by memory that the device
  // wrote.
  worker.join();
  EXPECT_EQ(ids, std::set<std::thread::id>{worker_id});
}

TEST(ServerTest, AHandlerThatTheExecutorDropsAnswersNevertheless) {
  TestServer server({.executor = [](absl::AnyInvocable<void()>) {}});
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait().status(), HasCode(absl::StatusCode::kUnavailable));
}

// So a caller may send it elsewhere, whatever its method. The channel itself does not: the next executor is
// the same one.
TEST(ServerTest, ACallThatTheExecutorDropsWasNotRun) {
  std::atomic<int> dropped{0};
  TestServer server({.executor = [&](absl::AnyInvocable<void()>) { ++dropped; }});
  const auto channel = server.Connect();
  for (const absl::Status& status :
       {SendAct(channel, 1).Wait().status(), SendActAgain(channel, 1).Wait().status()}) {
    EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
    EXPECT_FALSE(WasSent(status)) << status;
  }
  EXPECT_EQ(dropped, 2);
}

TEST(ServerTest, AHandlerMayAnswerLaterFromAnyThread) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  std::vector<PendingCall<probe::Probe::ActResults>> calls;
  for (int i = 0; i < 64; ++i) calls.push_back(SendAct(channel, i));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 16; ++i) server.held.Take().Finish();
    });
  }
  for (int i = 0; i < 64; ++i) {
    const auto reply = calls[i].Wait();
    ASSERT_THAT(reply.status(), IsOk());
    EXPECT_EQ((*reply)->getNumber(), static_cast<uint64_t>(i));
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ServerTest, ADeferredCallThatIsDroppedAnswersInternal) {
  TestServer server;
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    (void)context.Defer();
    return absl::OkStatus();
  };
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait().status(), HasCode(absl::StatusCode::kInternal));
}

TEST(ServerTest, AHandlerThatDefersAndFailsAnswersOnce) {
  TestServer server;
  server.probe.on_act = [&](ServerContext& context, uint64_t number) {
    server.held.Handler()(context, number).IgnoreError();
    return absl::AbortedError("changed my mind");
  };
  const auto channel = server.Connect();
  EXPECT_THAT(SendAct(channel, 1).Wait().status(), HasCode(absl::StatusCode::kAborted));
  server.held.Take().Finish();
  EXPECT_THAT(SendAct(channel, 1).Wait().status(), HasCode(absl::StatusCode::kAborted));
  server.held.Take().Finish();
}

// On the poller and on the executor, where the two meet in any order.
TEST(ServerTest, AnErrorOfAHandlerThatHasDroppedItsDeferredCallIsTheAnswer) {
  const auto executor = Executor::Create({.threads = 1});
  ASSERT_THAT(executor.status(), IsOk());
  for (const bool has_executor : {false, true}) {
    ServerOptions options;
    if (has_executor) options.executor = (*executor)->ForHandlers();
    TestServer server(std::move(options));
    const auto channel = server.Connect();
    server.probe.on_act = [](ServerContext& context, uint64_t) {
      const DeferredCall dropped = context.Defer();
      return absl::ResourceExhaustedError("the queue is full");
    };
    absl::Status status = SendAct(channel, 1).Wait().status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
    EXPECT_EQ(status.message(), "the queue is full");

    server.probe.on_act = [](ServerContext& context, uint64_t) -> absl::Status {
      const DeferredCall dropped = context.Defer();
      throw std::runtime_error("on purpose");
    };
    status = SendAct(channel, 1).Wait().status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInternal));
    EXPECT_THAT(std::string(status.message()), HasSubstr("threw"));

    server.probe.on_act = [](ServerContext& context, uint64_t) {
      context.Defer().Finish(absl::AbortedError("first"));
      return absl::ResourceExhaustedError("the queue is full");
    };
    EXPECT_THAT(SendAct(channel, 1).Wait().status(), HasCode(absl::StatusCode::kAborted));
  }
}

// Another thread drops the call while its handler runs.
TEST(ServerTest, ADeferredCallThatIsDroppedEarlyAnswersOnceItsHandlerHasReturned) {
  TestServer server;
  server.probe.on_act = [](ServerContext& context, uint64_t number) {
    std::thread([call = context.Defer()] {}).join();
    return number == 0 ? absl::OkStatus() : absl::AbortedError("the handler's");
  };
  const auto channel = server.Connect();
  EXPECT_THAT(SendAct(channel, 0).Wait().status(), HasCode(absl::StatusCode::kInternal));
  EXPECT_THAT(SendAct(channel, 1).Wait().status(), HasCode(absl::StatusCode::kAborted));
}

// The calls of one connection take turns on one object.
TEST(ServerTest, EachCallKeepsItsOwnRequest) {
  TestServer server;
  std::vector<Kept<probe::Probe::ActParams>> kept;
  server.probe.on_act = [&](ServerContext& context, uint64_t number) {
    if (number != 2) kept.push_back(context.Keep(context.request<probe::Probe::ActParams>()));
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  for (const uint64_t number : {1, 2, 3}) EXPECT_THAT(SendAct(channel, number).Wait(), IsOk());
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0]->getNumber(), 1u);
  EXPECT_EQ(kept[1]->getNumber(), 3u);
}

// ---- The end

TEST(ShutdownTest, RunningCallsEndAndNewOnesAreRefused) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  auto running = SendAct(channel, 1, {.timeout = kLong});
  DeferredCall deferred = server.held.Take();
  std::thread shutdown([&] { EXPECT_THAT(server.server.Shutdown(absl::Now() + kLong), IsOk()); });
  EXPECT_TRUE(Eventually([&] { return channel->state() == ChannelState::kTransientFailure; }));
  const absl::Status refused = SendAct(channel, 2).Wait().status();
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(WasSent(refused));
  deferred.Finish();
  EXPECT_THAT(running.Wait().status(), IsOk());
  shutdown.join();
  EXPECT_THAT(server.server.Wait(), IsOk());
  EXPECT_THAT(server.server.Listen("tcp://127.0.0.1:0").status(),
              HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(server.server.stats().connections, 0u);
}

TEST(ShutdownTest, WhatStillRunsAtTheDeadlineIsCancelled) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  auto running = SendAct(channel, 1, {.timeout = kLong});
  DeferredCall deferred = server.held.Take();
  EXPECT_THAT(server.server.Shutdown(absl::Now() + kExpires), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(deferred.context().cancelled());
  EXPECT_THAT(running.Wait().status(), HasCode(absl::StatusCode::kUnavailable));
}

TEST(ShutdownTest, IdleClientsDoNotDelayIt) {
  TestServer server;
  std::vector<std::shared_ptr<Channel>> channels;
  for (int i = 0; i < 10; ++i) channels.push_back(server.Connect());
  EXPECT_THAT(server.server.Shutdown(absl::Now() + kLong), IsOk());
  EXPECT_THAT(server.server.Shutdown(absl::Now() + kLong), IsOk()) << "a second time";
}

TEST(ShutdownTest, AfterItTheServerListensNowhere) {
  TestServer server;
  EXPECT_EQ(server.server.addresses(), std::vector<std::string>{server.uri});
  EXPECT_THAT(server.server.Shutdown(absl::Now() + kLong), IsOk());
  EXPECT_TRUE(server.server.addresses().empty());
  EXPECT_THAT(server.server.Listen(TestUri()).status(), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST(ShutdownTest, InAHandlerItIsRefusedWithTheReason) {
  Box<absl::Status> status;
  TestServer server;
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    status.Put(server.server.Shutdown(absl::InfinitePast()));
    return absl::OkStatus();
  };
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait(), IsOk());
  EXPECT_THAT(status.Take(), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST(ShutdownTest, TheDestructorWaitsForHandlers) {
  std::atomic<bool> finished{false};
  std::thread finisher;
  std::shared_ptr<Channel> channel;
  std::optional<PendingCall<probe::Probe::ActResults>> call;
  {
    TestServer server;
    server.probe.on_act = server.held.Handler();
    channel = server.Connect();
    call.emplace(SendAct(channel, 1, {.timeout = kLong}));
    auto deferred = std::make_shared<DeferredCall>(server.held.Take());
    finisher = std::thread([deferred, &finished] {
      EXPECT_TRUE(Eventually([&] { return deferred->context().cancelled(); }));
      finished = true;
      deferred->Finish();
    });
  }
  EXPECT_TRUE(finished);
  finisher.join();
  EXPECT_THAT(call->Wait().status(), HasCode(absl::StatusCode::kUnavailable));
}

// ---- Memory and pollers

TEST(ServerTest, SharesARuntimeWithChannels) {
  const auto runtime = transport::Runtime::Create(TestScheme());
  ASSERT_THAT(runtime, IsOk());
  ServerOptions server_options;
  server_options.runtime = *runtime;
  ChannelOptions channel_options;
  channel_options.runtime = *runtime;
  {
    TestServer server(server_options);
    EXPECT_THAT(SendAct(server.Connect(channel_options), 1).Wait(), IsOk());
  }
  TestServer another(server_options);
  EXPECT_THAT(SendAct(another.Connect(channel_options), 1).Wait(), IsOk());
}

TEST(ServerTest, ARuntimeOfAnotherFabricIsRefusedOnBothSides) {
  const auto runtime = transport::Runtime::Create(TestScheme());
  ASSERT_THAT(runtime, IsOk());
  const std::string uri = TestScheme() == "tcp" ? "rdma://127.0.0.1:1" : "tcp://127.0.0.1:1";
  ServerOptions options;
  options.runtime = *runtime;
  Server server(options);
  EXPECT_THAT(server.Listen(uri).status(), HasCode(absl::StatusCode::kInvalidArgument));
  ChannelOptions channel_options;
  channel_options.runtime = *runtime;
  EXPECT_THAT(Channel::Connect(uri, channel_options).status(), HasCode(absl::StatusCode::kInvalidArgument));
}

// ---- Many connections

TEST(ServerTest, ConnectionsAreDealtOutOverThePollers) {
  TestServer server({.pollers = 3});
  std::set<std::thread::id> ids;
  absl::Mutex mutex;
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    absl::MutexLock lock(&mutex);
    ids.insert(std::this_thread::get_id());
    return absl::OkStatus();
  };
  std::vector<std::shared_ptr<Channel>> channels;
  for (int i = 0; i < 6; ++i) channels.push_back(server.Connect());
  for (const auto& channel : channels) EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  absl::MutexLock lock(&mutex);
  EXPECT_EQ(ids.size(), 3u);
}

TEST(ServerTest, OneConnectionTooManyIsRejectedWithTheReason) {
  TestServer server({.connections_max = 2});
  const auto one = server.Connect();
  auto two = server.Connect();
  const absl::Status status = Channel::Connect(server.uri, TryingOnce()).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), HasSubstr("connections_max"));
  two.reset();
  EXPECT_TRUE(Eventually([&] { return Channel::Connect(server.uri).ok(); })) << "its place is not free again";
  EXPECT_THAT(SendAct(one, 1).Wait(), IsOk());
}

// How many connections the server has refused.
uint64_t Refused(TestServer& server) {
  capnp::MallocMessageBuilder message;
  server.server.FillIn(message.initRoot<observe::wire::Snapshot>());
  uint64_t count = 0;
  for (const auto refusal : message.getRoot<observe::wire::Snapshot>().asReader().getRefusals()) {
    count += refusal.getCount();
  }
  return count;
}

TEST(ServerTest, ConnectTriesAgainWhatAServerRefusesForLackOfRoom) {
  TestServer server({.connections_max = 1});
  auto first = server.Connect();
  absl::StatusOr<std::shared_ptr<Channel>> second;
  std::thread connects([&] {
    second = Channel::Connect(server.uri, {.connect_timeout = kLong, .backoff_max = absl::Milliseconds(20)});
  });
  EXPECT_TRUE(Eventually([&] { return Refused(server) >= 3; }));
  first.reset();
  connects.join();
  ASSERT_THAT(second.status(), IsOk());
  EXPECT_THAT(SendAct(*second, 1).Wait(), IsOk());
}

TEST(ServerTest, ConnectSaysInTimeThatAServerHasNoRoom) {
  TestServer server({.connections_max = 1});
  const auto first = server.Connect();
  const absl::Status status = Channel::Connect(server.uri, {.connect_timeout = absl::Seconds(2),
                                                            .backoff_max = absl::Milliseconds(20)})
                                  .status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), HasSubstr("connections_max"));
  EXPECT_GE(Refused(server), 2u);
  EXPECT_THAT(SendAct(first, 1).Wait(), IsOk());
}

TEST(ServerTest, ConnectionsLeaveMemoryForMessages) {
  const transport::ConnectionOptions large = {.receive_buffer_bytes = 65536};  // 38 receives: 2.4 MiB.
  TestServer server({.pool = {.limit_bytes = 64 << 20}, .connection = large});
  std::vector<std::shared_ptr<Channel>> channels;
  absl::Status refused;
  while (refused.ok() && channels.size() < 100) {
    absl::StatusOr<std::shared_ptr<Channel>> channel =
        Channel::Connect(server.uri, TryingOnce({.connection = large}));
    refused = channel.status();
    if (!channel.ok()) break;
    EXPECT_THAT(SendAct(*channel, 1).Wait(), IsOk());
    channels.push_back(*std::move(channel));
  }
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("limit_bytes"));
  EXPECT_EQ(channels.size(), 18u);  // From one host: 15 sixteenths of 48 MiB.
  for (const auto& channel : channels) {
    auto call = probe::ProbeStub(channel).Echo();
    call.request().initData(100'000);
    EXPECT_THAT(call.Send().Wait(), IsOk());
  }
}

TEST(ServerTest, StatsCountConnectionsAndCalls) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  auto call = SendAct(channel, 1);
  DeferredCall deferred = server.held.Take();
  EXPECT_EQ(server.server.stats().connections, 1u);
  EXPECT_EQ(server.server.stats().calls_running, 1u);
  EXPECT_GT(server.server.stats().leased_bytes, 0u);
  deferred.Finish();
  EXPECT_THAT(call.Wait(), IsOk());
  EXPECT_TRUE(Eventually([&] { return server.server.stats().calls_running == 0; }));
  EXPECT_EQ(server.server.stats().calls_total, 1u);
}

TEST(ServerTest, StatsSayWhatThePollersOfBothSidesDecided) {
  ServerOptions options;
  options.pollers = 2;
  TestServer server(options);
  const auto channel = server.Connect();
  const PollerStats before = channel->poller_stats();  // The runtime may have served other tests.
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_THAT(SendAct(channel, i).Wait().status(), IsOk());
  }
  const PollerStats client = channel->poller_stats();
  EXPECT_EQ(client.sent.whole - before.sent.whole, 10u) << ToString(client);
  EXPECT_EQ(client.received.whole - before.received.whole, 10u) << ToString(client);
  EXPECT_EQ(client.sent.pushed + client.sent.read, before.sent.pushed + before.sent.read) << ToString(client);
  EXPECT_GT(client.turns_of_waiting_threads + client.turns_of_own_thread,
            before.turns_of_waiting_threads + before.turns_of_own_thread)
      << ToString(client);
  const ServerStats stats = server.server.stats();
  ASSERT_EQ(stats.pollers.size(), 2u);
  EXPECT_EQ(stats.pollers[0].received.whole + stats.pollers[1].received.whole, 10u);
  EXPECT_EQ(stats.pollers[0].sent.whole + stats.pollers[1].sent.whole, 10u);
  EXPECT_EQ(stats.pollers[0].turns_of_waiting_threads + stats.pollers[1].turns_of_waiting_threads, 0u);
  EXPECT_GE(stats.pollers[0].turns_of_own_thread + stats.pollers[1].turns_of_own_thread, 1u);
}

TEST(ServerTest, AServiceOwnsMemoryBeforeItCanBeCalled) {
  Server server;
  const absl::StatusOr<Buffer> buffer = server.AllocateBuffer(100, TestUri());
  ASSERT_THAT(buffer, IsOk());
  EXPECT_EQ(buffer->size_bytes(), 100u);
  const uint64_t leased_bytes = server.stats().leased_bytes;
  EXPECT_GE(leased_bytes, 100u);
  ProbeServiceImpl probe;
  EXPECT_THAT(server.AddService(&probe), IsOk()) << "it has not listened yet";
  const absl::StatusOr<std::string> uri = server.Listen(TestUri());
  ASSERT_THAT(uri, IsOk());
  const absl::StatusOr<Buffer> later = server.AllocateBuffer(100);
  ASSERT_THAT(later, IsOk());
  EXPECT_EQ(server.stats().leased_bytes, 2 * leased_bytes) << "it is not of the same pool";
}

TEST(ServerTest, AHandlerTakesMemoryForItsReplyFromTheDeviceOfItsCaller) {
  struct Pages final : ProbeServiceImpl {
    absl::Status Echo(ServerContext& context, probe::Probe::EchoParams::Reader request,
                      probe::Probe::EchoResults::Builder reply) override {
      const uint64_t leased_bytes = server->stats().leased_bytes;
      absl::StatusOr<Buffer> page = context.AllocateBuffer(request.getData().size());
      if (!page.ok()) return page.status();
      EXPECT_EQ(page->size_bytes(), request.getData().size());
      EXPECT_GT(server->stats().leased_bytes, leased_bytes) << "it is of the pool of the server";
      std::copy(request.getData().begin(), request.getData().end(), page->data());
      const uint8_t* const at = page->data();
      capnp::Orphan<capnp::Data> value = context.Attach(*std::move(page));
      EXPECT_TRUE(request.getData().size() == 0 || value.getReader().begin() == at) << "it was copied";
      reply.adoptData(std::move(value));
      return absl::OkStatus();
    }
    Server* server = nullptr;
  };
  Server pages_server;
  Pages pages;
  pages.server = &pages_server;
  ASSERT_THAT(pages_server.AddService(&pages), IsOk());
  const auto channel = *Channel::Connect(*pages_server.Listen(TestUri()));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{1} << 20}) {
    auto call = probe::ProbeStub(channel).Echo();
    memset(call.request().initData(size).begin(), 'x', size);
    const auto reply = call.Send().Wait();
    ASSERT_THAT(reply, IsOk()) << size;
    const capnp::Data::Reader data = (*reply)->getData();
    EXPECT_EQ(data.size(), size);
    EXPECT_TRUE(std::all_of(data.begin(), data.end(), [](uint8_t byte) { return byte == 'x'; }));
  }
}

TEST(ServerTest, AHandlerGetsNoMemoryBeyondTheLimit) {
  TestServer server({.pool = {.limit_bytes = 16 << 20}});
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    return context.AllocateBuffer(size_t{64} << 20).status();
  };
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait().status(), HasCode(absl::StatusCode::kResourceExhausted));
}

TEST(ServerTest, MemoryBeforeTheFirstListenWantsToKnowOfWhatDevice) {
  Server server;
  EXPECT_THAT(server.AllocateBuffer(100).status(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(server.AllocateBuffer(100, "nonsense").status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(server.AllocateBuffer(100, "auto://127.0.0.1:0"), IsOk());
  ASSERT_THAT(server.Listen("tcp://127.0.0.1:0"), IsOk());
  const absl::StatusOr<Buffer> buffer = server.AllocateBuffer(100);
  ASSERT_THAT(buffer, IsOk());
  EXPECT_EQ(buffer->size_bytes(), 100u);
}

}  // namespace
}  // namespace hawser
