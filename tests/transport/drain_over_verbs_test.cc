// A drain over verbs, on a device in memory with memory windows: a server does not see what its peers READ.

#include <functional>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/executing_verbs.h"
#include "hawser/tests/transport/testing/endpoint.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"
#include "hawser/transport/connection/drain_watch.h"
#include "hawser/transport/fabric/verbs/fabric.h"

namespace hawser::transport {
namespace {

constexpr absl::Duration kStep = absl::Milliseconds(50);

std::shared_ptr<fabric::Fabric> NewFabric() {
  static fabric::ExecutingVerbs* const verbs = new fabric::ExecutingVerbs({});
  return fabric::NewVerbsFabric({.device = "fake0", .library = &verbs->library()}).value();
}

class DrainOverVerbsTest : public ::testing::Test {
 protected:
  void Drain() {
    world_.OnServer([&] { link_.server_end->Drain(); });
  }
  void ExpectEndedWithin(absl::Duration time) {
    for (; link_.server_observer.closings == 0 && time > absl::ZeroDuration(); time -= kStep) {
      world_.Pass(kStep, kStep);
    }
    ASSERT_TRUE(world_.RunUntil([&] { return link_.closed(); }));
    EXPECT_GE(time, absl::ZeroDuration()) << "too late";
    EXPECT_THAT(*link_.server_observer.closed, HasCode(absl::StatusCode::kUnavailable));
    EXPECT_EQ(world_.server.poller().violations().stalled(), 1u);
  }

  World world_{{}, {}, NewFabric};
  Link link_{world_};
};

TEST_F(DrainOverVerbsTest, AnAnswerThatIsNotReleasedHasTimeInProportionToItsSize) {
  link_.client_counts().hold_reads = true;
  PendingCall call;
  ASSERT_THAT(link_.Send(call, 8), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return !link_.server.requests.empty(); }));
  ASSERT_THAT(link_.Respond(link_.server.requests[0].id, 16 * kMiB), IsOk());
  world_.Settle();
  Drain();
  world_.Pass(DrainWatch::kStill + absl::Milliseconds(900), kStep);
  EXPECT_EQ(link_.server_observer.closings, 0);
  ExpectEndedWithin(absl::Milliseconds(500));
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(DrainOverVerbsTest, ReadsThatDoNotCompleteAreNotWaitedFor) {
  link_.server_counts().hold_reads = true;
  PendingCall call;
  ASSERT_THAT(link_.Send(call, 16 * kMiB), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link_.server_counts().reads_held > 0; }));
  Drain();
  world_.Pass(DrainWatch::kStill - absl::Milliseconds(100), kStep);
  EXPECT_EQ(link_.server_observer.closings, 0);
  ExpectEndedWithin(absl::Milliseconds(500));
  EXPECT_EQ(link_.server.request_count, 0u);
  EXPECT_EQ(call.ends, 1);
}

// The client revokes what it has granted: the refusal ends no grant, because nothing was READ.
TEST_F(DrainOverVerbsTest, ALargeRequestThatCrossesItIsRefusedUnread) {
  PendingCall running, crosses;
  ASSERT_THAT(link_.Send(running, 8), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return !link_.server.requests.empty(); }));
  Drain();
  ASSERT_THAT(link_.Send(crosses, kMiB), IsOk());  // The client has not been notified yet.
  ASSERT_TRUE(world_.RunUntil([&] { return link_.server.bad_requests.size() == 1; }));
  EXPECT_EQ(link_.server_counts().reads, 0u);
  link_.RespondEmpty(link_.server.bad_requests[0].first);
  ASSERT_TRUE(world_.RunUntil([&] { return crosses.done() && link_.client_counts().grants == 0; }));
  EXPECT_EQ(link_.server_counts().sends_that_end_grants, 0u);
  EXPECT_EQ(link_.server.request_count, 1u);
  link_.RespondEmpty(link_.server.requests[0].id);
  ASSERT_TRUE(world_.RunUntil([&] { return running.done() && link_.closed(); }));
  EXPECT_THAT(running.response, IsOk());
}

}  // namespace
}  // namespace hawser::transport
