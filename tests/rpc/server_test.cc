// What a server serves, where its handlers run, and how it ends.

#include "hawser/rpc/server.h"

#include <atomic>
#include <deque>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/rpc/executor.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

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
  EXPECT_FALSE(WasSent(status)) << "another server may have it";
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
  EXPECT_FALSE(WasSent(status));
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
  const absl::Status status = CallAt(server.uri);
  EXPECT_EQ(status, absl::UnimplementedError("not on Sundays"));
  EXPECT_TRUE(WasSent(status)) << "it ran";
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

// The call of a handler that runs, and whose caller has gone.
DeferredCall CallWhoseCallerHasGone(TestServer& server) {
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  auto running = SendAct(channel, 1);
  DeferredCall deferred = server.held.Take();
  channel->Close();
  EXPECT_TRUE(Eventually([&] { return server.server.stats().connections == 0; }));
  return deferred;
}

TEST(ShutdownTest, IsNotOkWhileAHandlerRunsWhoseCallerHasGone) {
  TestServer server;
  DeferredCall deferred = CallWhoseCallerHasGone(server);
  EXPECT_TRUE(deferred.context().cancelled());
  for (const char* how : {"the first", "another"}) {
    EXPECT_THAT(server.server.Shutdown(absl::Now() + kExpires), HasCode(absl::StatusCode::kDeadlineExceeded))
        << how;
  }
  deferred.Finish();
  EXPECT_THAT(server.server.Shutdown(absl::Now() + kLong), IsOk());
}

TEST(ShutdownTest, WaitsForAHandlerWhoseCallerHasGone) {
  TestServer server;
  DeferredCall deferred = CallWhoseCallerHasGone(server);
  std::atomic<bool> ends{false};
  std::thread shutdown([&] {
    EXPECT_THAT(server.server.Shutdown(absl::Now() + kLong), IsOk());
    EXPECT_TRUE(ends);
  });
  EXPECT_TRUE(Eventually([&] { return server.server.addresses().empty(); })) << "it has begun";
  ends = true;
  deferred.Finish();
  shutdown.join();
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

}  // namespace
}  // namespace hawser
