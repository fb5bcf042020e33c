// Every call has a deadline, on both sides.

#include <string>
#include <utility>

#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/test_clock.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

TEST(DeadlineTest, AHandlerThatNeverAnswersIsNotWaitedForLonger) {
  ClockedRuntime clients;
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect({.runtime = clients.get()});
  Box<absl::Status> ended;
  SendAct(channel, 1, {.timeout = kLong}).Then([&](const auto& reply) { ended.Put(reply.status()); });
  DeferredCall deferred = server.held.Take();
  clients.Pass(kLong - absl::Milliseconds(1));
  EXPECT_EQ(ended.size(), 0u) << "too early";
  clients.Pass(absl::Milliseconds(1));
  const absl::Status status = ended.Take();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(WasSent(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Probe.act"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("; nothing has come from it for "));
}

TEST(DeadlineTest, TheHandlerHearsThatTheDeadlinePassed) {
  ClockedRuntime serving, clients;
  TestServer server({.runtime = serving.get()});
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect({.runtime = clients.get()});
  auto call = SendAct(channel, 1, {.timeout = kLong});
  DeferredCall deferred = server.held.Take();
  Box<bool> heard;
  deferred.context().OnCancel([&] { heard.Put(true); });
  serving.Pass(kLong + absl::Milliseconds(1));  // On its way the time was rounded up.
  EXPECT_TRUE(heard.Take());
  clients.Pass(kLong);
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(deferred.context().cancelled());
  EXPECT_EQ(deferred.context().TimeRemaining(), absl::ZeroDuration());
}

TEST(DeadlineTest, TheHandlerSeesHowLongTheCallerStillWaits) {
  TestServer server;
  Box<absl::Duration> seen;
  server.probe.on_act = [&](ServerContext& context, uint64_t) {
    seen.Put(context.TimeRemaining());
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  EXPECT_THAT(SendAct(channel, 1, {.timeout = absl::Seconds(30)}).Wait(), IsOk());
  const absl::Duration relative = seen.Take();
  EXPECT_LE(relative, absl::Seconds(31));  // The clock of a turn may be a little ahead.
  EXPECT_GT(relative, absl::Seconds(1));
  EXPECT_THAT(SendAct(channel, 1, {.deadline = absl::Now() + absl::Seconds(40)}).Wait(), IsOk());
  const absl::Duration absolute = seen.Take();
  EXPECT_LE(absolute, absl::Seconds(41));
  EXPECT_GT(absolute, absl::Seconds(30));
}

TEST(DeadlineTest, TheEarlierOfDeadlineAndTimeoutCounts) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  const CallOptions soon_timeout = {.deadline = absl::Now() + absl::Hours(1), .timeout = kExpires};
  EXPECT_THAT(SendAct(channel, 1, soon_timeout).Wait().status(),
              HasCode(absl::StatusCode::kDeadlineExceeded));
  const CallOptions soon_deadline = {.deadline = absl::Now() + kExpires, .timeout = absl::Hours(1)};
  EXPECT_THAT(SendAct(channel, 1, soon_deadline).Wait().status(),
              HasCode(absl::StatusCode::kDeadlineExceeded));
}

TEST(DeadlineTest, WithoutOneTheChannelsDefaultCounts) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect({.default_timeout = kExpires});
  EXPECT_THAT(SendAct(channel, 1).Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
}

// On the wire 71 minutes fit. A shorter time than the caller's would end the call before its caller gives up.
TEST(DeadlineTest, OneThatIsTooFarAwayDoesNotTravelAndNorDoesNone) {
  TestServer back;
  Box<absl::Duration> seen;
  back.probe.on_act = [&](ServerContext& context, uint64_t) {
    seen.Put(context.TimeRemaining());
    return absl::OkStatus();
  };
  // Counts where the handler's call has no deadline here: its caller alone does not say how long it waits.
  const auto to_back = back.Connect({.default_timeout = absl::Seconds(30)});
  TestServer front;
  front.probe.on_act = [&](ServerContext& context, uint64_t number) {
    seen.Put(context.TimeRemaining());
    SendAct(to_back, number, CallOptions::For(context))
        .Then([call = context.Defer()](const auto& reply) mutable { call.Finish(reply.status()); });
    return absl::OkStatus();
  };
  const auto endless = front.Connect({.default_timeout = absl::InfiniteDuration()});
  EXPECT_THAT(SendAct(endless, 1).Wait(), IsOk());
  EXPECT_EQ(seen.Take(), absl::InfiniteDuration());
  EXPECT_LE(seen.Take(), absl::Seconds(31)) << "behind it";

  EXPECT_THAT(SendAct(endless, 1, {.timeout = absl::Minutes(72)}).Wait(), IsOk());
  EXPECT_EQ(seen.Take(), absl::InfiniteDuration());
  EXPECT_LE(seen.Take(), absl::Seconds(31)) << "behind it";

  EXPECT_THAT(SendAct(endless, 1, {.timeout = absl::Minutes(71)}).Wait(), IsOk());
  const absl::Duration there = seen.Take();
  EXPECT_GT(there, absl::Minutes(70));
  EXPECT_LE(there, absl::Minutes(72));
  const absl::Duration behind = seen.Take();
  EXPECT_GT(behind, absl::Minutes(70));
  EXPECT_LE(behind, absl::Minutes(72));
}

TEST(DeadlineTest, ACallOfAnEndlessOneMayHaveItsOwnTimeout) {
  TestServer server;
  Box<absl::Duration> seen;
  const auto channel = server.Connect({.default_timeout = absl::InfiniteDuration()});
  server.probe.on_act = [&](ServerContext& context, uint64_t number) {
    seen.Put(context.TimeRemaining());
    if (number == 0) return absl::OkStatus();
    CallOptions options = CallOptions::For(context);
    options.timeout = kLong;
    SendAct(channel, 0, options).Then([call = context.Defer()](const auto& reply) mutable {
      call.Finish(reply.status());
    });
    return absl::OkStatus();
  };
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_EQ(seen.Take(), absl::InfiniteDuration());
  EXPECT_LE(seen.Take(), kLong + absl::Seconds(2));
}

// The server does not know the deadline, so the caller says when it has passed.
TEST(DeadlineTest, TheHandlerHearsOfOneThatDidNotTravel) {
  ClockedRuntime clients;
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect({.runtime = clients.get()});
  auto call = SendAct(channel, 1, {.timeout = absl::Minutes(72)});
  DeferredCall deferred = server.held.Take();
  EXPECT_EQ(deferred.context().TimeRemaining(), absl::InfiniteDuration());
  Box<bool> heard;
  deferred.context().OnCancel([&] { heard.Put(true); });
  clients.Pass(absl::Minutes(72));
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(heard.Take());
}

// Only the callback moves the clock, so the call must not expire.
TEST(DeadlineTest, ATimeoutCountsFromSendNotFromTheStartOfTheTurn) {
  TestServer server;
  transport::TestClock clock;
  const auto runtime = *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/false, clock);
  ChannelOptions options;
  options.runtime = runtime;
  auto channel = server.Connect(std::move(options));
  server.probe.on_act = [&](ServerContext& context, uint64_t number) {
    return number == 2 ? server.held.Handler()(context, number) : absl::OkStatus();
  };
  bool sent = false, done = false;
  absl::Status late;
  const auto turn_until = [&](const bool& condition) {
    return Eventually([&] {
      runtime->poller(0).PollOnce();
      return condition;
    });
  };
  SendAct(channel, 1, {.timeout = kLong}).Then([&](const auto&) {
    clock.Advance(absl::Seconds(8));  // The client tells the server 8.9 s; the server's clock runs.
    SendAct(channel, 2, {.timeout = absl::Milliseconds(900)}).Then([&](const auto& reply) {
      late = reply.status();
      done = true;
    });
    sent = true;
  });
  ASSERT_TRUE(turn_until(sent));
  for (int i = 0; i < 5; ++i) runtime->poller(0).PollOnce();
  EXPECT_FALSE(done) << late;
  server.held.Take().Finish();
  ASSERT_TRUE(turn_until(done));
  EXPECT_THAT(late, IsOk());
  channel.reset();
  DriveToTheEnd(runtime);
}

TEST(DeadlineTest, ZeroOrPastFailsWithoutSending) {
  TestServer server;
  const auto channel = server.Connect();
  for (const CallOptions& options :
       {CallOptions{.timeout = absl::ZeroDuration()}, CallOptions{.timeout = absl::Seconds(-5)},
        CallOptions{.timeout = -absl::InfiniteDuration()}, CallOptions{.deadline = absl::UnixEpoch()},
        CallOptions{.deadline = absl::InfinitePast()}}) {
    const absl::Status status = SendAct(channel, 1, options).Wait().status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
    EXPECT_FALSE(WasSent(status));
  }
  EXPECT_EQ(server.probe.runs, 0);
}

TEST(DeadlineTest, ACallThatWaitsForASlotEndsAtItsDeadline) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect({.connection = {.slots = 1}});
  auto holder = SendAct(channel, 1, {.timeout = kLong});
  DeferredCall deferred = server.held.Take();
  const absl::Status status = SendAct(channel, 2, {.timeout = kExpires}).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(WasSent(status));
  deferred.Finish();
  EXPECT_THAT(holder.Wait(), IsOk());
  EXPECT_EQ(server.probe.runs, 1);
}

TEST(DeadlineTest, ACallThatWaitsForAConnectionEndsAtItsDeadline) {
  std::string uri;
  {
    TestServer gone;
    uri = gone.uri;
  }
  const auto channel = *Channel::Create(uri);
  const absl::Status status =
      SendAct(channel, 1, {.timeout = kExpires, .wait_for_ready = true}).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(WasSent(status));
}

// The server READs the large request after its SEND. A very short deadline expires before or during the
// READs.
TEST(DeadlineTest, ReachesARequestThatIsBeingRead) {
  TestServer server;
  const auto channel = server.Connect();
  std::vector<uint8_t> bytes(32 << 20, 1);
  constexpr absl::Duration kExpiresBeforeTheEnd = absl::Microseconds(300);
  auto call = probe::ProbeStub(channel).Echo({.timeout = kExpiresBeforeTheEnd});
  call.request().setData({bytes.data(), bytes.size()});
  EXPECT_THAT(call.Send().Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk()) << "the connection was harmed";
}

}  // namespace
}  // namespace hawser
