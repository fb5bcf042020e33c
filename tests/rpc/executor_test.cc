// Handlers, and parts of coroutines, on threads of their own.

#include "hawser/rpc/executor.h"

#include <atomic>
#include <coroutine>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "hawser/rpc/sleep.h"
#include "hawser/rpc/task.h"
#include "hawser/rpc/trace.h"
#include "hawser/tests/testing/child.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::unique_ptr<Executor> NewExecutor(const Executor::Options& options = {}) {
  absl::StatusOr<std::unique_ptr<Executor>> executor = Executor::Create(options);
  EXPECT_THAT(executor, IsOk());
  return *std::move(executor);
}

// An executor whose only thread is held, with room for one in its queue.
struct Busy {
  Busy() {
    EXPECT_TRUE(executor->Run([this] {
      holds.Notify();
      go_on.WaitForNotification();
    }));
    holds.WaitForNotification();
  }
  ~Busy() {
    if (!go_on.HasBeenNotified()) go_on.Notify();
  }

  absl::Notification holds, go_on;
  std::unique_ptr<Executor> executor = NewExecutor({.threads = 1, .queue_max = 1});
};

TEST(ExecutorTest, ItsDestructorRunsWhatIsQueued) {
  std::atomic<int> runs = 0;
  {
    const auto executor = NewExecutor({.threads = 2});
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(executor->Run([&] { ++runs; }));
  }
  EXPECT_EQ(runs, 100);
}

TEST(ExecutorTest, AFullQueueTakesNothing) {
  Busy busy;
  std::atomic<int> runs = 0;
  EXPECT_TRUE(busy.executor->Run([&] { ++runs; }));
  EXPECT_FALSE(busy.executor->Run([&] { ++runs; }));
  busy.go_on.Notify();
  EXPECT_TRUE(Eventually([&] { return busy.executor->Run([&] { ++runs; }); }));
  busy.executor.reset();
  EXPECT_EQ(runs, 2);
}

TEST(ExecutorTest, AnExceptionDoesNotEndItsThread) {
  const auto executor = NewExecutor();
  absl::Notification ran;
  executor->Run([] { throw std::runtime_error("no luck"); });
  executor->Run([&] { ran.Notify(); });
  ran.WaitForNotification();
}

TEST(ExecutorTest, AnEmptyFunctionRunsNothing) {
  const auto executor = NewExecutor();
  EXPECT_TRUE(executor->Run(nullptr));
  EXPECT_TRUE(executor->Run(std::function<void()>()));
  absl::Notification ran;
  executor->Run([&] { ran.Notify(); });
  ran.WaitForNotification();
}

TEST(ExecutorTest, OptionsOutOfRangeAreRefused) {
  for (const Executor::Options& options :
       {Executor::Options{.threads = 0}, Executor::Options{.threads = -1}, Executor::Options{.threads = 1025},
        Executor::Options{.queue_max = 0}}) {
    EXPECT_THAT(Executor::Create(options).status(), HasCode(absl::StatusCode::kInvalidArgument));
  }
}

TEST(ExecutorTest, HandlersRunThereAndMayWait) {
  TestServer back;
  const auto executor = NewExecutor();
  TestServer front({.executor = executor->ForHandlers()});
  const auto to_back = back.Connect();
  front.probe.on_act = [&](ServerContext& context, uint64_t number) {
    return SendAct(to_back, number, CallOptions::For(context)).Wait().status();
  };
  EXPECT_THAT(SendAct(front.Connect(), 1).Wait(), IsOk());
}

TEST(ExecutorTest, AHandlerThatFindsNoRoomEndsWithUnavailable) {
  Busy busy;
  EXPECT_TRUE(busy.executor->Run([] {}));
  {
    TestServer server({.executor = busy.executor->ForHandlers()});
    EXPECT_THAT(SendAct(server.Connect(), 1).Wait().status(), HasCode(absl::StatusCode::kUnavailable));
    EXPECT_EQ(server.probe.runs, 0);
  }
}

struct Seen {
  absl::Status scheduled;
  std::thread::id before, after;
  std::string trace;
};

Task ScheduleOnce([[maybe_unused]] DeferredCall call, Executor& executor, Box<Seen>& seen) {
  const std::thread::id before = std::this_thread::get_id();
  absl::Status scheduled = co_await executor.Schedule();
  const TraceContext* trace = TraceContext::Current();
  seen.Put({scheduled, before, std::this_thread::get_id(), trace != nullptr ? trace->ToString() : ""});
  co_return scheduled;
}

TEST(ExecutorTest, ACoroutineGoesOnThereWithItsTrace) {
  const auto executor = NewExecutor();
  TestServer server;
  Box<Seen> all_seen;
  server.probe.on_act = [&](ServerContext& context, uint64_t) -> absl::Status {
    return ScheduleOnce(context.Defer(), *executor, all_seen);
  };
  const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736";
  const Metadata metadata = {{"traceparent", trace + "-00f067aa0ba902b7-01"}};
  EXPECT_THAT(SendAct(server.Connect(), 1, {.metadata = &metadata}).Wait(), IsOk());
  const Seen seen = all_seen.Take();
  EXPECT_NE(seen.before, seen.after);
  EXPECT_THAT(seen.trace, StartsWith(trace));
}

TEST(ExecutorTest, ACoroutineThatFindsNoRoomGoesOnWhereItWas) {
  Busy busy;
  EXPECT_TRUE(busy.executor->Run([] {}));
  TestServer server;
  Box<Seen> all_seen;
  server.probe.on_act = [&](ServerContext& context, uint64_t) -> absl::Status {
    return ScheduleOnce(context.Defer(), *busy.executor, all_seen);
  };
  const absl::Status status = SendAct(server.Connect(), 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), HasSubstr("queue_max"));
  const Seen seen = all_seen.Take();
  EXPECT_EQ(seen.before, seen.after);
}

TEST(ExecutorTest, ACoroutineThatIsDestroyedWhileQueuedIsNotResumed) {
  Busy busy;
  {
    Executor::Scheduled scheduled = busy.executor->Schedule();
    EXPECT_TRUE(scheduled.await_suspend(std::noop_coroutine()));
    EXPECT_FALSE(busy.executor->Run([] {})) << "it is in the queue";
  }
  EXPECT_TRUE(busy.executor->Run([] {})) << "it is not";
}

TEST(ExecutorTest, InAChildOfForkItRunsNothing) {
  auto executor = NewExecutor();
  EXPECT_TRUE(InChild([&] {
    const bool refuses = !executor->Run([] {});
    executor.reset();
    return refuses;
  }));
}

}  // namespace
}  // namespace hawser
