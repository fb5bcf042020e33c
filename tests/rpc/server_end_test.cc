// The end of a server with unfinished calls.

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "hawser/rpc/log.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"
#include "tests/rpc/taken.h"

namespace hawser {
namespace {

using testing::HasSubstr;

// While this object exists, it keeps the lines of the log about a server's end.
class LogLines {
 public:
  LogLines() {
    SetLogSink([this](LogSeverity, absl::string_view line) {
      if (absl::StrContains(line, "the end of a Server")) lines_.Put(std::string(line));
    });
  }
  ~LogLines() { SetLogSink(nullptr); }
  std::string Take() { return lines_.Take(); }

 private:
  Box<std::string> lines_;
};

// Runs each handler on a thread of its own.
std::function<void(absl::AnyInvocable<void()>)> OnThreads(std::deque<std::thread>& threads) {
  return [&threads](absl::AnyInvocable<void()> handler) { threads.emplace_back(std::move(handler)); };
}

void JoinAll(std::deque<std::thread>& threads) {
  for (std::thread& thread : threads) thread.join();
}

TEST(ServerEndTest, DoesNotWaitForADeferredCallForEver) {
  LogLines log;
  auto server = std::make_unique<TestServer>(ServerOptions{.handler_grace = kExpires});
  server->probe.on_act = server->held.Handler();
  auto call = SendAct(server->Connect(), 1);
  DeferredCall leaked = server->held.Take();
  server.reset();
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  const std::string line = log.Take();
  EXPECT_THAT(line,
              HasSubstr("the end of a Server does not wait any more for calls that were deferred (1): "));
  EXPECT_THAT(line, HasSubstr("Probe.act, call "));
  EXPECT_TRUE(leaked.context().cancelled());
  leaked.Finish();
}

TEST(ServerEndTest, WaitsForADeferredCallThatIsFinishedInTime) {
  {
    TestServer server({.handler_grace = 2 * kLong});
    server.probe.on_act = server.held.Handler();
    auto call = SendAct(server.Connect(), 1);
    auto deferred = std::make_shared<DeferredCall>(server.held.Take());
    deferred->context().OnCancel([deferred] { deferred->Finish(); });
  }
}

TEST(ServerEndTest, WaitsForAHandlerThatHasNotReturnedAndNamesIt) {
  std::deque<std::thread> threads;
  absl::Notification go_on;
  std::atomic<bool> returned{false};
  LogLines log;
  auto server =
      std::make_unique<TestServer>(ServerOptions{.executor = OnThreads(threads), .handler_grace = kExpires});
  Box<bool> started;
  server->probe.on_act = [&](ServerContext&, uint64_t) {
    started.Put(true);
    go_on.WaitForNotification();
    returned = true;
    return absl::OkStatus();
  };
  auto call = SendAct(server->Connect(), 1);
  started.Take();
  std::thread ending([&] {
    server.reset();
    EXPECT_TRUE(returned);
  });
  EXPECT_THAT(call.Wait(), ::testing::Not(IsOk())) << "answered although its handler runs";
  EXPECT_THAT(log.Take(), HasSubstr("waits for handlers that have not returned (1): "));
  EXPECT_THAT(log.Take(), HasSubstr("Probe.act, call ")) << "said again";
  go_on.Notify();
  ending.join();
  JoinAll(threads);
}

TEST(ServerEndTest, DoesNotWaitForAHandlerThatItsExecutorNeverRan) {
  std::deque<absl::AnyInvocable<void()>> never_run;
  int runs = 0;
  LogLines log;
  {
    TestServer ended(
        {.executor = [&](absl::AnyInvocable<void()> handler) { never_run.push_back(std::move(handler)); },
         .handler_grace = kExpires});
    ended.probe.on_act = [&](ServerContext&, uint64_t) {
      ++runs;
      return absl::OkStatus();
    };
    auto call = SendAct(ended.Connect(), 1);
    ASSERT_TRUE(Eventually([&] { return ended.server.stats().calls_running == 1; }));
  }
  ASSERT_EQ(never_run.size(), 1u);
  EXPECT_THAT(log.Take(), HasSubstr("calls that the executor has not run (1): probe.capnp:Probe.act, call "));
  never_run.front()();
  EXPECT_EQ(runs, 0) << "its service may be destroyed";
}

TEST(ServerEndTest, NoOnCancelCallbackRunsAfterIt) {
  for (int i = 0; i < 20; ++i) {
    std::atomic<bool> ended{false}, late{false};
    auto server = std::make_unique<TestServer>(ServerOptions{.handler_grace = absl::ZeroDuration()});
    server->probe.on_act = server->held.Handler();
    auto call = SendAct(server->Connect(), 1);
    auto deferred = std::make_shared<DeferredCall>(server->held.Take());
    Box<bool> gone;  // Filled when the callback is destroyed, whether it has run or not.
    std::shared_ptr<bool> callback_alive(new bool, [&gone](bool* object) {
      delete object;
      gone.Put(true);
    });
    deferred->context().OnCancel([&, callback_alive = std::move(callback_alive)] { late = ended.load(); });
    server.reset();
    ended = true;
    EXPECT_THAT(call.Wait(), ::testing::Not(IsOk()));
    deferred.reset();
    gone.Take();
    EXPECT_FALSE(late);
  }
}

TEST(ServerEndTest, AHandlerWhoseCallerHasGoneIsNotRunByTheExecutor) {
  std::deque<absl::AnyInvocable<void()>> waiting;
  absl::Mutex mutex;
  TestServer server({.executor = [&](absl::AnyInvocable<void()> handler) {
    absl::MutexLock lock(&mutex);
    waiting.push_back(std::move(handler));
  }});
  const auto wait_for = [&](size_t count) {
    return Eventually([&] {
      absl::MutexLock lock(&mutex);
      return waiting.size() == count;
    });
  };
  const auto channel = server.Connect({.connection = {.slots = 1}});
  auto call = SendAct(channel, 1);
  ASSERT_TRUE(wait_for(1));
  call.Cancel();
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kCancelled));
  // The slot is free only when the server has received the cancellation.
  auto next = SendAct(channel, 2);
  ASSERT_TRUE(wait_for(2));
  {
    absl::MutexLock lock(&mutex);
    waiting.front()();
  }
  EXPECT_EQ(server.probe.runs, 0);
}

TEST(ServerEndTest, ShutdownInAHandlerIsRefusedIfItWouldLastForEver) {
  std::deque<std::thread> threads;
  {
    TestServer server({.executor = OnThreads(threads)});
    server.probe.on_act = [&](ServerContext&, uint64_t) {
      return server.server.Shutdown(absl::InfiniteFuture());
    };
    EXPECT_THAT(SendAct(server.Connect(), 1).Wait().status(), HasCode(absl::StatusCode::kFailedPrecondition));
  }
  JoinAll(threads);
}

TEST(ServerEndTest, WaitOnAServerThatListensNowhereReturns) {
  Server server;
  const absl::Status status = server.Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), HasSubstr("listens nowhere"));
}

TEST(ServerEndTest, WaitInAHandlerIsRefused) {
  std::deque<std::thread> threads;
  {
    TestServer on_poller, on_threads({.executor = OnThreads(threads)});
    for (TestServer* server : {&on_poller, &on_threads}) {
      server->probe.on_act = [server](ServerContext&, uint64_t) { return server->server.Wait(); };
      EXPECT_THAT(SendAct(server->Connect(), 1).Wait().status(),
                  HasCode(absl::StatusCode::kFailedPrecondition));
    }
  }
  JoinAll(threads);
}

// A client that was stopped: its poller takes nothing. The server's clock is the test's.
class StoppedClientTest : public ::testing::Test {
 protected:
  // Returns once the server has told the client that it goes away.
  void BeginShutdown() {
    shutdown_ = std::thread([this] {
      EXPECT_THAT(server_.server.Shutdown(absl::InfiniteFuture()), IsOk());
      done_ = true;
    });
    EXPECT_TRUE(Eventually([&] {
      Taken taken(server_.server);
      const auto connections = taken.Get().getConnections();
      return connections.size() == 1 && connections[0].getState() == "draining";
    }));
  }
  void ExpectDone() {
    EXPECT_TRUE(Eventually([&] { return done_.load(); }));
    if (!done_) servers_.Pass(absl::Minutes(1));  // Then the client is taken for dead.
    shutdown_.join();
  }
  bool done() const { return done_; }

  ClockedRuntime servers_;
  TestServer server_{{.runtime = servers_.get()}};
  Driven client_;
  std::shared_ptr<Channel> channel_ = server_.Connect({.backoff_min = kLong, .runtime = client_.runtime});

 private:
  std::thread shutdown_;
  std::atomic<bool> done_{false};
};

constexpr absl::Duration kStep = absl::Milliseconds(100);
const absl::Duration kLeaves = 5 * kStep;

TEST_F(StoppedClientTest, WithoutACallItHoldsUpAShutdownForHalfASecond) {
  ASSERT_THAT(SendAct(channel_, 1).Wait(), IsOk());
  BeginShutdown();
  ASSERT_NO_FATAL_FAILURE(servers_.Pass(kLeaves - kStep));
  EXPECT_FALSE(done());
  ASSERT_NO_FATAL_FAILURE(servers_.Pass(2 * kStep));
  ExpectDone();
}

TEST_F(StoppedClientTest, ThatHasNeverCalledDoesNotHoldItUpEither) {
  BeginShutdown();
  ASSERT_NO_FATAL_FAILURE(servers_.Pass(kLeaves + kStep));
  ExpectDone();
}

TEST_F(StoppedClientTest, WithACallHasThatTimeFromItsAnswerOn) {
  server_.probe.on_act = server_.held.Handler();
  auto call = SendAct(channel_, 1, {.timeout = kLong});
  DeferredCall held = server_.held.Take();
  BeginShutdown();
  ASSERT_NO_FATAL_FAILURE(servers_.Pass(4 * kLeaves));
  EXPECT_FALSE(done());
  held.Finish();
  ASSERT_NO_FATAL_FAILURE(servers_.Pass(kLeaves - kStep));
  EXPECT_FALSE(done());
  ASSERT_NO_FATAL_FAILURE(servers_.Pass(2 * kStep));
  ExpectDone();
  EXPECT_THAT(call.Wait(), IsOk()) << "it was answered";
}

TEST(ServerEndDeathTest, InOneOfItsOwnHandlersIsACheck) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [](bool on_poller) {
    std::deque<std::thread> threads;
    ServerOptions options;
    if (!on_poller) options.executor = OnThreads(threads);
    auto server = std::make_unique<TestServer>(std::move(options));
    server->probe.on_act = [&](ServerContext&, uint64_t) {
      server.reset();
      return absl::OkStatus();
    };
    SendAct(server->Connect(), 1).Wait().IgnoreError();
  };
  EXPECT_DEATH(end(false),
               "~Server\\(\\) was called in a handler or callback.* let another thread destroy it");
  EXPECT_DEATH(end(true),
               "~Server\\(\\) was called in the handler of probe.capnp:Probe.act.* let another thread");
}

TEST(ServerEndDeathTest, InACallbackOnOneOfItsPollersIsACheck) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    auto server = std::make_unique<TestServer>();
    const std::shared_ptr<Channel> channel = server->Connect({.server = &server->server});
    absl::Notification done;
    SendAct(channel, 1).Then([&](const absl::StatusOr<Reply<probe::Probe::ActResults>>&) {
      server.reset();
      done.Notify();
    });
    done.WaitForNotification();
  };
  EXPECT_DEATH(end(),
               "~Server\\(\\) was called in the callback of probe.capnp:Probe.act.* let another thread");
}

}  // namespace
}  // namespace hawser
