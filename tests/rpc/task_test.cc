// Handlers that are coroutines, and the calls that handlers make for their callers.

#include "hawser/rpc/task.h"

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

#include "hawser/rpc/sleep.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kNap = absl::Seconds(3);

Task SleepOnce(DeferredCall call, absl::Duration time, Box<absl::Status>& slept) {
  absl::Status status = co_await Sleep(call.context(), time);
  slept.Put(status);
  co_return status;
}

// A server whose handlers call another server over a channel on their own poller.
class TaskTest : public testing::Test {
 protected:
  TaskTest() {
    service_.test = this;
    EXPECT_THAT(front_.AddService(&service_), IsOk());
    channel_ = *Channel::Connect(*front_.Listen(TestUri()));
  }
  ~TaskTest() override { back_.held.DropAll(); }

  struct Front final : ProbeServiceImpl {
    absl::Status Act(ServerContext& context, probe::Probe::ActParams::Reader request,
                     probe::Probe::ActResults::Builder reply) override {
      if (test->answer_) return test->answer_(context.Defer());
      return test->Answer(context.Defer(), request, reply);
    }
    TaskTest* test = nullptr;
  };

  Task Answer(DeferredCall call, probe::Probe::ActParams::Reader request,
              probe::Probe::ActResults::Builder reply) {
    const std::shared_ptr<int> local = alive_;
    auto pending = SendAct(to_back_, request.getNumber(), CallOptions::For(call.context()));
    auto asked = co_await pending;
    if (throws_) throw std::runtime_error("no luck");
    if (!asked.ok()) co_return asked.status();
    reply.setNumber((*asked)->getNumber() + 1);
    co_return absl::OkStatus();
  }

  std::shared_ptr<int> alive_ = std::make_shared<int>();  // Each coroutine keeps one reference.
  bool throws_ = false;
  std::function<Task(DeferredCall)> answer_;  // Instead of Answer().
  TestServer back_;
  std::shared_ptr<Channel> to_back_ = back_.Connect();
  Front service_;
  Server front_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(TaskTest, AnswersWithWhatItReturns) {
  const auto reply = SendAct(channel_, 41).Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->getNumber(), 42u);
  EXPECT_TRUE(Eventually([&] { return alive_.use_count() == 1; }));
}

TEST_F(TaskTest, AnswersWithTheStatusThatItReturns) {
  back_.probe.on_act = [](ServerContext&, uint64_t) { return absl::AbortedError("on purpose"); };
  const absl::Status status = SendAct(channel_, 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kAborted));
  EXPECT_TRUE(Eventually([&] { return alive_.use_count() == 1; }));
}

TEST_F(TaskTest, AnExceptionAfterCoAwaitIsTheAnswer) {
  throws_ = true;
  const absl::Status status = SendAct(channel_, 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInternal));
  EXPECT_THAT(std::string(status.message()), HasSubstr("its text is in the log"));
  EXPECT_TRUE(Eventually([&] { return alive_.use_count() == 1; })) << "its frame is destroyed";
  EXPECT_TRUE(Eventually([&] { return front_.stats().calls_running == 0; }));
}

// Undefined in C++, and diagnosed by clang; what gcc makes of it without sanitizers is an end.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
Task Forgets(DeferredCall call) {
  absl::Status slept = co_await Sleep(call.context(), absl::ZeroDuration());
  EXPECT_THAT(slept, IsOk());
}

TEST_F(TaskTest, EndingWithoutCoReturnIsInternal) {
  answer_ = Forgets;
  const absl::Status status = SendAct(channel_, 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInternal));
  EXPECT_EQ(status.message(), "the handler of probe.capnp:Probe.act ended without co_return");
}
#endif

TEST_F(TaskTest, ItsCallsEndWithTheDeadlineOfItsOwn) {
  Box<absl::Duration> remaining;
  back_.probe.on_act = [&](ServerContext& context, uint64_t) {
    remaining.Put(context.TimeRemaining());
    return absl::OkStatus();
  };
  EXPECT_THAT(SendAct(channel_, 1, {.timeout = absl::Seconds(30)}).Wait(), IsOk());
  const absl::Duration left = remaining.Take();
  EXPECT_GT(left, absl::Seconds(10)) << "the default";
  EXPECT_LE(left, absl::Seconds(30));
}

TEST_F(TaskTest, ItsCallsAreCancelledWithItsOwn) {
  back_.probe.on_act = back_.held.Handler();
  auto call = SendAct(channel_, 1);
  DeferredCall deferred = back_.held.Take();
  call.Cancel();
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kCancelled));
  EXPECT_TRUE(Eventually([&] { return deferred.context().cancelled(); }));
  EXPECT_TRUE(Eventually([&] { return alive_.use_count() == 1; }));
}

TEST_F(TaskTest, ASleepOfNoTimeEndsAtOnce) {
  Box<absl::Status> slept;
  for (const absl::Duration time : {absl::ZeroDuration(), -kNap, -absl::InfiniteDuration()}) {
    answer_ = [&](DeferredCall call) { return SleepOnce(std::move(call), time, slept); };
    EXPECT_THAT(SendAct(channel_, 1).Wait(), IsOk());
    EXPECT_THAT(slept.Take(), IsOk());
  }
}

TEST_F(TaskTest, ASleepEndsAsSoonAsItsCallerStopsWaiting) {
  Box<absl::Status> slept;
  for (const absl::Duration time : {kLong, absl::InfiniteDuration()}) {
    answer_ = [&](DeferredCall call) { return SleepOnce(std::move(call), time, slept); };
    auto call = SendAct(channel_, 1, {.timeout = 2 * kLong});
    ASSERT_TRUE(Eventually([&] { return front_.stats().calls_running == 1; }));
    call.Cancel();
    EXPECT_THAT(slept.Take(), HasCode(absl::StatusCode::kCancelled));
    EXPECT_TRUE(Eventually([&] { return front_.stats().calls_running == 0; }));
  }
}

TEST(SleepTest, ItEndsAfterItsTime) {
  ClockedRuntime clocked;
  Box<absl::Status> slept;
  Box<bool> sleeps;
  {
    TestServer server({.runtime = clocked.get()});
    server.probe.on_act = [&](ServerContext& context, uint64_t) -> absl::Status {
      absl::Status status = SleepOnce(context.Defer(), kNap, slept);
      sleeps.Put(true);
      return status;
    };
    auto call = SendAct(server.Connect(), 1, {.timeout = kLong});
    sleeps.Take();
    ASSERT_NO_FATAL_FAILURE(clocked.Pass(kNap - absl::Nanoseconds(1)));
    EXPECT_EQ(slept.size(), 0u);
    ASSERT_NO_FATAL_FAILURE(clocked.Pass(absl::Nanoseconds(1)));
    EXPECT_THAT(slept.Take(), IsOk());
    EXPECT_THAT(call.Wait(), IsOk());
  }
}

TEST(CallOptionsForTest, ACallOfACancelledOneIsCancelled) {
  TestServer back, front;
  front.probe.on_act = front.held.Handler();
  const auto to_back = back.Connect();
  auto call = SendAct(front.Connect(), 1);
  DeferredCall deferred = front.held.Take();
  call.Cancel();
  ASSERT_TRUE(Eventually([&] { return deferred.context().cancelled(); }));
  CallOptions options = CallOptions::For(deferred.context());
  options.deadline = absl::InfiniteFuture();
  EXPECT_THAT(SendAct(to_back, 1, options).Wait().status(), HasCode(absl::StatusCode::kCancelled));
}

// Everything is on one poller, so that each step runs inside the one before.
TEST(CallOptionsForTest, WhatHearsOfItsEndMayFinishTheCallThatWasCancelled) {
  TestServer back, front({.pollers = 1});
  front.probe.on_act = front.held.Handler();
  back.probe.on_act = back.held.Handler();
  const auto to_back = *Channel::Connect(back.uri, {.server = &front.server});
  const auto to_front = front.Connect();
  auto call = SendAct(to_front, 1);
  DeferredCall deferred = front.held.Take();
  std::atomic<bool> heard{false};
  deferred.context().OnCancel([&] { heard = true; });
  auto inner = SendAct(to_back, 1, CallOptions::For(deferred.context()));
  DeferredCall back_deferred = back.held.Take();
  Box<absl::Status> ended;
  inner.Then([&](auto reply) {
    deferred.Finish();
    ended.Put(reply.status());
  });
  call.Cancel();
  EXPECT_THAT(ended.Take(), HasCode(absl::StatusCode::kCancelled));
  auto later = SendAct(to_front, 2);
  front.held.Take().Finish();
  EXPECT_THAT(later.Wait(), IsOk());
  EXPECT_FALSE(heard) << "of a call that had finished";
}

TEST(CallOptionsForTest, ACallThatOutlivesItsHandlerGoesOn) {
  TestServer back, front;
  front.probe.on_act = front.held.Handler();
  back.probe.on_act = back.held.Handler();
  const auto to_back = back.Connect();
  auto call = SendAct(front.Connect(), 1);
  DeferredCall deferred = front.held.Take();
  auto inner = SendAct(to_back, 1, CallOptions::For(deferred.context()));
  DeferredCall back_deferred = back.held.Take();
  deferred.Finish();
  EXPECT_THAT(call.Wait(), IsOk());
  back_deferred.Finish();
  EXPECT_THAT(inner.Wait(), IsOk());
}

}  // namespace
}  // namespace hawser
