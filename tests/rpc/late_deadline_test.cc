// Deadlines while a callback holds the poller that keeps them.

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/test_clock.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LateDeadlineTest : public ::testing::TestWithParam<absl::Duration> {
 protected:
  std::shared_ptr<Channel> Connect(TestServer& server) { return server.Connect({.runtime = runtime_}); }
  // A callback of a call to another server holds the poller of all channels until go_on_.
  void Hold() {
    const auto holder = Connect(quick_);
    SendAct(holder, 1).Then([this](auto) {
      holds_.Put(true);
      in_time_ = go_on_.WaitForNotificationWithTimeout(kLong / 2);
      released_.Put(true);
    });
    holds_.Take();
  }
  void Release() {
    go_on_.Notify();
    released_.Take();
    EXPECT_TRUE(in_time_) << "Wait() waited for the callback";
  }

  const std::shared_ptr<transport::Runtime> runtime_ =
      *transport::Runtime::Create(TestScheme(), {.pollers = 1});
  TestServer quick_;
  TestServer slow_;
  Box<bool> holds_, released_;
  absl::Notification go_on_;
  bool in_time_ = false;
};

TEST_P(LateDeadlineTest, WaitEndsAtTheDeadlineThoughACallbackHolds) {
  const auto channel = Connect(slow_);
  Hold();
  const absl::Status status = SendAct(channel, 1, {.timeout = GetParam()}).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("Probe.act at"), HasSubstr("by the callback of probe.capnp:Probe.act")));
  Release();
  EXPECT_THAT(SendAct(channel, 2).Wait().status(), IsOk());
}

TEST_P(LateDeadlineTest, ACallThatWasSentBeforeTheHoldIsGivenUpToo) {
  slow_.probe.on_act = slow_.held.Handler();
  const auto channel = Connect(slow_);
  // A short one may expire on the way to the server, and then another is sent.
  std::optional<PendingCall<probe::Probe::ActResults>> call;
  ASSERT_TRUE(Eventually([&] {
    call.emplace(SendAct(channel, 1, {.timeout = GetParam()}));
    const absl::Time end = absl::Now() + GetParam();
    while (slow_.probe.runs == 0 && absl::Now() < end) continue;
    return slow_.probe.runs > 0;
  }));
  DeferredCall held = slow_.held.Take();
  Hold();
  EXPECT_THAT(call->Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  held.Finish();  // The answer arrives while the poller is held, and is dropped.
  Release();
  slow_.probe.on_act = [](ServerContext&, uint64_t) { return absl::OkStatus(); };
  EXPECT_THAT(SendAct(channel, 2).Wait().status(), IsOk());
}

TEST_P(LateDeadlineTest, ConnectEndsAtItsTimeoutThoughACallbackHolds) {
  Hold();
  const absl::Status status =
      Channel::Connect(slow_.uri, {.connect_timeout = GetParam(), .runtime = runtime_}).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(status.message()), HasSubstr("by the callback of probe.capnp:Probe.act"));
  Release();
}

// The longer timeout counts from Send() only if the caller reads the clock there. It does while a callback
// holds the poller.
constexpr absl::Duration kExpiresWhileHeld = absl::Milliseconds(500);
INSTANTIATE_TEST_SUITE_P(OfHalfASecondAndOfMore, LateDeadlineTest,
                         ::testing::Values(kExpiresWhileHeld, 4 * kExpiresWhileHeld));

// The handler's answer at the deadline may arrive before the caller's own timer runs.
TEST_F(LateDeadlineTest, AHandlerThatStopsAtTheDeadlineIsNotTakenForOneThatCancels) {
  Box<bool> stopped;
  slow_.probe.on_act = [&](ServerContext& context, uint64_t) {
    while (!context.cancelled()) continue;
    stopped.Put(true);
    return absl::CancelledError("stopped on purpose");
  };
  const auto channel = Connect(slow_);
  Box<absl::Status> result;
  SendAct(channel, 1, {.timeout = absl::Seconds(2)}).Then([&](auto reply) { result.Put(reply.status()); });
  Hold();
  stopped.Take();
  Release();
  EXPECT_THAT(result.Take(), HasCode(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(LateDeadlineTest, AWaitThatBeginsLateEndsAtTheDeadlineOfTheCall) {
  slow_.probe.on_act = slow_.held.Handler();
  const auto channel = Connect(slow_);
  auto call = SendAct(channel, 1, {.timeout = absl::Seconds(3)});
  DeferredCall held = slow_.held.Take();
  Hold();
  // Most of the time passes.
  EXPECT_THAT(SendAct(channel, 1, {.timeout = absl::Milliseconds(2500)}).Wait(), Not(IsOk()));
  const absl::Time begin = absl::Now();
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(2.9));
  held.Finish();
  Release();
}

TEST_F(LateDeadlineTest, AResultThatIsThereInTimeWins) {
  const auto channel = Connect(slow_);
  // Callbacks hold the poller for a millisecond each, one after the other.
  const auto busy = Connect(quick_);
  std::atomic<bool> stop{false};
  Box<bool> stopped;
  std::function<void()> hold_again = [&] {
    SendAct(busy, 1).Then([&](const auto&) {
      const absl::Time start = absl::Now();
      while (absl::Now() - start < absl::Milliseconds(1)) continue;
      if (stop) return stopped.Put(true);
      hold_again();
    });
  };
  hold_again();
  constexpr absl::Duration kExpiresOrNot = absl::Microseconds(50);
  for (int i = 0; i < 200; ++i) {
    // Each call has one result, of either kind, and does not affect the next call.
    const absl::Status status = SendAct(channel, 2, {.timeout = kExpiresOrNot * i}).Wait().status();
    EXPECT_TRUE(status.ok() || absl::IsDeadlineExceeded(status)) << status;
  }
  stop = true;
  stopped.Take();
  EXPECT_THAT(SendAct(channel, 2).Wait().status(), IsOk());
}

TEST(LateCallbackTest, ACallbackThatHearsOfItsDeadlineLateHearsWhy) {
  TestServer server;
  transport::TestClock clock;
  const auto runtime = *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/false, clock);
  ChannelOptions options;
  options.runtime = runtime;
  auto channel = server.Connect(std::move(options));
  server.probe.on_act = [&](ServerContext& context, uint64_t number) {
    return number == 2 ? server.held.Handler()(context, number) : absl::OkStatus();
  };
  bool done = false;
  absl::Status late;
  SendAct(channel, 2, {.timeout = absl::Seconds(5)}).Then([&](const auto& reply) {
    late = reply.status();
    done = true;
  });
  SendAct(channel, 1, {.timeout = kLong}).Then([&](const auto&) { clock.Advance(absl::Milliseconds(6950)); });
  EXPECT_TRUE(Eventually([&] {
    runtime->poller(0).PollOnce();
    return done;
  }));
  EXPECT_THAT(late, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(late.message()), AllOf(HasSubstr("noticed 1.95 s late"),
                                                 HasSubstr("ran the callback of probe.capnp:Probe.act")));
  server.held.Take().Finish();
  channel.reset();
  DriveToTheEnd(runtime);
}

// Both sides check the deadline. The client's clock does not advance here, so the server is first.
TEST(LateCallbackTest, WhatTheServerSaysAtTheDeadlineNamesTheMethod) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  transport::TestClock clock;
  const auto runtime = *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/false, clock);
  ChannelOptions options;
  options.runtime = runtime;
  auto channel = server.Connect(std::move(options));
  absl::Status said;
  SendAct(channel, 1, {.timeout = absl::Seconds(2)}).Then([&](const auto& reply) { said = reply.status(); });
  EXPECT_TRUE(Eventually([&] {
    runtime->poller(0).PollOnce();
    return !said.ok();
  }));
  EXPECT_THAT(said, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(said.message()), HasSubstr("Probe.act: the caller's deadline has passed"));
  server.held.Take().Finish();
  channel.reset();
  DriveToTheEnd(runtime);
}

}  // namespace
}  // namespace hawser
