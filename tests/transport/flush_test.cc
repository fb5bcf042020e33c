// If a queue pair never flushes, because its device or driver is stuck, this costs only memory, and only for
// a while.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

// As in ending.cc.
constexpr absl::Duration kFlushTimeout = absl::Seconds(5);

class StuckFlushTest : public ::testing::Test {
 protected:
  StuckFlushTest() {
    world_.client.fabric->KeepBackFlushes(true);
    link_.EchoAll();
  }

  // Sends a large request. A READ of the server is in flight, and the client keeps the request for it.
  void SendLarge(PendingCall& call) {
    call.wants_request_back = true;
    ASSERT_THAT(link_.Send(call, kMiB), IsOk());
    world_.client.poller().PollOnce();
  }
  void CloseClient(const absl::Status& why = absl::UnavailableError("gone")) {
    world_.OnClient([&] { link_.client_end->Close(why); });
  }
  RecordingObserver& observer() { return link_.client_observer; }
  size_t connections() { return world_.client.poller().connection_count(); }

  World world_;
  Link link_{world_};
};

TEST_F(StuckFlushTest, TheObserverHearsOfTheLossAtOnce) {
  PendingCall call;
  SendLarge(call);
  CloseClient();
  world_.Settle();
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(observer().losses, 1);
  EXPECT_THAT(observer().lost.value_or(absl::OkStatus()), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(observer().closings, 0);
  world_.client.fabric->KeepBackFlushes(false);
  ASSERT_TRUE(world_.RunUntil([&] { return link_.closed(); }));
  EXPECT_EQ(observer().losses, 1);
}

TEST_F(StuckFlushTest, MemoryIsKeptUntilTheQueuePairIsDestroyed) {
  PendingCall call;
  SendLarge(call);
  CloseClient();
  world_.Pass(kFlushTimeout - absl::Milliseconds(200), absl::Milliseconds(100));
  EXPECT_EQ(observer().closings, 0);
  EXPECT_EQ(connections(), 1u);
  EXPECT_EQ(world_.client.fabric->live_queue_pairs(), 1u);
  EXPECT_GE(world_.LeasedBytes(world_.client), kMiB);
  EXPECT_EQ(call.request_back, nullptr);

  world_.Pass(absl::Milliseconds(400), absl::Milliseconds(100));
  EXPECT_EQ(observer().closings, 1);
  EXPECT_EQ(connections(), 0u);
  EXPECT_EQ(world_.client.fabric->live_queue_pairs(), 0u);
  ASSERT_NE(call.request_back, nullptr);
  call.request_back.reset();
  EXPECT_EQ(world_.LeasedBytes(world_.client), 0u);
}

TEST_F(StuckFlushTest, ReadsThatNeverComeBackReturnTheirBudget) {
  PendingCall calls[2];
  link_.server.answer = nullptr;
  for (PendingCall& call : calls) {
    ASSERT_THAT(link_.Send(call, 8), IsOk());
    ASSERT_TRUE(world_.RunUntil([&] { return !link_.server.requests.empty(); }));
    ASSERT_THAT(link_.Respond(link_.server.requests[0].id, 2 * kMiB), IsOk());
    link_.server.requests.clear();
    world_.Settle();
    // A connection gets a share of the budget when its first READs have completed.
    world_.client.fabric->KeepBackReadCompletions(true);
  }
  ASSERT_TRUE(calls[0].done());
  calls[0].response->reset();
  ASSERT_GT(world_.client.poller().read_budget().taken_bytes(), 0u);
  CloseClient();
  world_.Pass(kFlushTimeout + absl::Milliseconds(200), absl::Milliseconds(100));
  EXPECT_EQ(world_.client.poller().read_budget().taken_bytes(), 0u);
  EXPECT_EQ(observer().closings, 1);
  EXPECT_EQ(world_.LeasedBytes(world_.client), 0u);
}

TEST_F(StuckFlushTest, APollerIsDestroyedBesideAConnectionThatLingers) {
  PendingCall call;
  SendLarge(call);
  CloseClient();
  world_.Settle();
  EXPECT_EQ(connections(), 1u);
  // ~Link() waits for OnClosed(), which is called only after kFlushTimeout.
  world_.Pass(kFlushTimeout, absl::Milliseconds(100));
}

TEST(FlushTest, ALossIsToldOnceBeforeTheEnd) {
  for (bool client_closes : {true, false}) {
    World world;
    Link link(world);
    link.client_observer.on_closed = [&] { EXPECT_EQ(link.client_observer.losses, 1); };
    link.server_observer.on_closed = [&] { EXPECT_EQ(link.server_observer.losses, 1); };
    world.On(client_closes ? world.client : world.server,
             [&] { (client_closes ? link.client_end : link.server_end)->Close(); });
    ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
    EXPECT_EQ(link.client_observer.losses, 1);
    EXPECT_EQ(link.server_observer.losses, 1);
  }
}

}  // namespace
}  // namespace hawser::transport
