// Calls that end before their answer: at their deadline, or cancelled.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;

// ---- Deadlines.

TEST(DeadlineTest, ACallThatIsNotAnsweredEndsAtItsDeadlineAndItsServerHears) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8, absl::Milliseconds(5)), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.Pass(absl::Milliseconds(4));
  EXPECT_FALSE(call.done());
  EXPECT_TRUE(link.server.cancelled.empty());
  world.Pass(absl::Milliseconds(2));
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  ASSERT_EQ(link.server.cancelled.size(), 1u);
  EXPECT_THAT(link.server.cancelled[0].second, HasCode(absl::StatusCode::kDeadlineExceeded));
}

TEST(DeadlineTest, TheServerIsToldTheTimeThatIsLeft) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8, absl::Milliseconds(7)), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  const int64_t left_ns = link.server.requests[0].deadline_ns - world.clock.NowNs();
  EXPECT_GE(left_ns, 7'000'000);
  EXPECT_LE(left_ns, 7'002'000);
}

TEST(DeadlineTest, ACallWithoutADeadlineHasNoneAtTheServer) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  EXPECT_EQ(link.server.requests[0].deadline_ns, kNever);
}

TEST(DeadlineTest, ADeadlineBeyondWhatTheWireCarriesIsKeptAllTheSame) {
  World world;
  ConnectionOptions no_keepalive;
  no_keepalive.keepalive_interval = absl::InfiniteDuration();
  Link link(world, no_keepalive);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8, absl::Hours(2)), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.Pass(absl::Minutes(119), absl::Minutes(1));
  EXPECT_FALSE(call.done());
  EXPECT_TRUE(link.server.cancelled.empty()) << "ended by the server, too early";
  world.Pass(absl::Minutes(2), absl::Minutes(1));
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(link.server.cancelled.size(), 1u);
}

TEST(DeadlineTest, EachCallEndsAtItsOwnDeadline) {
  World world;
  Link link(world);
  PendingCall calls[5];
  const int deadlines_ms[] = {30, 10, 50, 20, 40};
  for (int i = 0; i < 5; ++i) {
    ASSERT_THAT(link.Send(calls[i], 8, absl::Milliseconds(deadlines_ms[i])), IsOk());
  }
  for (int now_ms = 1; now_ms <= 60; ++now_ms) {
    world.Pass(absl::Milliseconds(1));
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(calls[i].done(), now_ms >= deadlines_ms[i]) << i << " at " << now_ms;
  }
}

TEST(DeadlineTest, ADeadlineThatIsPastEndsTheCallAtOnce) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8, absl::ZeroDuration()), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
}

TEST(DeadlineTest, AResponseAfterTheDeadlineIsDroppedAndFreesTheSlot) {
  for (size_t response_bytes : {size_t{8}, kMiB}) {
    World world;
    Link link(world, {.slots = 1});
    PendingCall late;
    ASSERT_THAT(link.Send(late, 8, absl::Milliseconds(5)), IsOk());
    ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
    world.Pass(absl::Milliseconds(6));
    ASSERT_TRUE(late.done());
    EXPECT_FALSE(link.client_end->CanSend()) << "the peer still has the request's memory";
    ASSERT_THAT(link.Respond(link.server.requests[0].id, response_bytes), IsOk());
    ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
    EXPECT_EQ(late.ends, 1);
    EXPECT_EQ(link.client_counts().reads, 0u);
    PendingCall next;
    ASSERT_THAT(link.Send(next, 8), IsOk());
    ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 2; }));
    link.RespondEmpty(link.server.requests[1].id);
    ASSERT_TRUE(world.RunUntil([&] { return next.done(); }));
    EXPECT_THAT(next.response, IsOk());
  }
}

TEST(DeadlineTest, ItReachesTheReadOfALargeResponse) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8, absl::Milliseconds(5)), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  ASSERT_THAT(link.Respond(link.server.requests[0].id, 64 * kMiB), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.client_counts().reads > 0; }));
  world.clock.Advance(absl::Milliseconds(6));
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(Text(call.status()), HasSubstr("READ"));
  ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
  EXPECT_LT(link.client_counts().read_bytes, 64 * kMiB) << "it went on reading";
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link.server_counts().grants, 0) << "the server was not told to let the response go";
}

TEST(DeadlineTest, ItReachesTheReadOfALargeRequest) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_THAT(link.Send(call, 64 * kMiB, absl::Milliseconds(5)), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().reads > 0; }));
  link.server.on_bad_request = [&](ExchangeId id) { link.RespondEmpty(id); };
  world.clock.Advance(absl::Milliseconds(6));
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
  EXPECT_LT(link.server_counts().read_bytes, 64 * kMiB) << "it went on reading";
  EXPECT_EQ(link.server.request_count, 0u);
  ASSERT_EQ(link.server.bad_requests.size(), 1u);
  EXPECT_THAT(link.server.bad_requests[0].second, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(link.client_counts().grants, 0);
}

// ---- Cancelling.

TEST(CancelTest, TheCallerHearsAtOnceAndTheServerSoon) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.OnClient([&] { link.client_end->Cancel(call.id); });
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kCancelled));
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.cancelled.empty(); }));
  EXPECT_TRUE((link.server.cancelled[0].first == call.id));
  EXPECT_THAT(link.server.cancelled[0].second, HasCode(absl::StatusCode::kCancelled));
}

TEST(CancelTest, TwiceIsOnce) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  for (int i = 0; i < 2; ++i) world.OnClient([&] { link.client_end->Cancel(call.id); });
  world.Settle();
  EXPECT_EQ(call.ends, 1);
  EXPECT_EQ(link.server.cancelled.size(), 1u);
}

TEST(CancelTest, LateIsFineAndHitsNoOtherCallOfTheSlot) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall first, second;
  ASSERT_THAT(link.Send(first, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return first.done(); }));
  ASSERT_THAT(link.Send(second, 8), IsOk());
  world.OnClient([&] {
    link.client_end->Cancel(first.id);
    link.client_end->Cancel({500, 1});
  });
  world.Settle();
  EXPECT_THAT(first.response, IsOk());
  EXPECT_FALSE(second.done());
  EXPECT_TRUE(link.server.cancelled.empty());
}

TEST(CancelTest, ACancellationThatMeetsTheResponseOnItsWayHitsNothing) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  link.RespondEmpty(link.server.requests[0].id);              // The answer is in flight,
  world.OnClient([&] { link.client_end->Cancel(call.id); });  // and it crosses the cancellation.
  world.Settle();
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kCancelled));
  EXPECT_EQ(call.ends, 1);
  EXPECT_TRUE(link.server.cancelled.empty());
  EXPECT_TRUE(link.client_end->CanSend());
}

TEST(CancelTest, ManyAtOnceAllReachTheServer) {
  World world;
  Link link(world, {.slots = 100});
  std::vector<PendingCall> calls(100);
  for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 100; }));
  world.OnClient([&] {
    for (PendingCall& call : calls) link.client_end->Cancel(call.id);
  });
  EXPECT_TRUE(world.RunUntil([&] { return link.server.cancelled.size() == 100; }));
}

TEST(CancelTest, ItStopsTheReadOfALargeResponse) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  ASSERT_THAT(link.Respond(link.server.requests[0].id, 64 * kMiB), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.client_counts().reads > 0; }));
  world.OnClient([&] { link.client_end->Cancel(call.id); });
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kCancelled));
  ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
  EXPECT_LT(link.client_counts().read_bytes, 64 * kMiB);
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link.server_counts().grants, 0);
  EXPECT_EQ(call.ends, 1);
}

TEST(CancelTest, ItStopsTheReadOfALargeRequest) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_THAT(link.Send(call, 64 * kMiB), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().reads > 0; }));
  link.server.on_bad_request = [&](ExchangeId id) { link.RespondEmpty(id); };
  world.OnClient([&] { link.client_end->Cancel(call.id); });
  ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
  EXPECT_LT(link.server_counts().read_bytes, 64 * kMiB);
  ASSERT_EQ(link.server.bad_requests.size(), 1u);
  EXPECT_THAT(link.server.bad_requests[0].second, HasCode(absl::StatusCode::kCancelled));
}

TEST(CancelTest, TheHandlerMayAnswerFromInsideOnCancel) {
  World world;
  Link link(world, {.slots = 1});
  link.server.on_cancel = [&](ExchangeId id) { link.RespondEmpty(id); };
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.OnClient([&] { link.client_end->Cancel(call.id); });
  EXPECT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
}

}  // namespace
}  // namespace hawser::transport
