// A device that carries out no command: connections end by their own timeouts, and the poller goes on. Over
// FakeVerbs, which holds the commands.

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"
#include "hawser/tests/transport/testing/endpoint.h"
#include "hawser/tests/transport/testing/world.h"
#include "hawser/transport/fabric/verbs/fabric.h"

namespace hawser::transport {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(3);
constexpr absl::Duration kFlushTimeout = absl::Seconds(5);  // As in ending.cc.
constexpr absl::Duration kForcedFlushTimeout = absl::Seconds(30);

class StuckDeviceTest : public ::testing::Test {
 protected:
  ~StuckDeviceTest() override {
    verbs_.hold_commands = false;
    verbs_.RunCommands();
  }

  void Dial() {
    world_.OnClient([&] {
      ASSERT_THAT(Connection::Dial(world_.client.poller(), fabric::FakePeer(), {}, Handshake(),
                                   kConnectTimeout, observer_, nullptr),
                  IsOk());
    });
  }
  // Turns in which the device does the first `count` commands, and then none.
  void RunUntilStuckAfter(size_t count) {
    verbs_.hold_commands = true;
    for (size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(world_.RunUntil([&] { return verbs_.commands() > 0; }));
      verbs_.RunCommands(1);
    }
    ASSERT_TRUE(world_.RunUntil([&] { return verbs_.commands() > 0; }));
  }

  fabric::FakeVerbs verbs_;
  World world_{{}, {}, [this] {
                 return fabric::NewVerbsFabric({.device = "fake0", .library = &verbs_.library()}).value();
               }};
  RecordingObserver observer_;
};

TEST_F(StuckDeviceTest, ConnectionFailsByItsTimeoutBeforeItsQueuePairIsThere) {
  ASSERT_NO_FATAL_FAILURE(Dial());
  ASSERT_NO_FATAL_FAILURE(RunUntilStuckAfter(0));
  world_.Pass(kConnectTimeout + absl::Milliseconds(10), absl::Milliseconds(100));
  // Nothing is posted, so it does not wait for a flush.
  EXPECT_EQ(observer_.closings, 1);
  EXPECT_THAT(*observer_.closed, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(world_.client.poller().connection_count(), 0u);
  EXPECT_EQ(verbs_.queue_pairs.size(), 0u);
}

TEST_F(StuckDeviceTest, ConnectionFailsByItsTimeoutWhileReceivesArePosted) {
  ASSERT_NO_FATAL_FAILURE(Dial());
  ASSERT_NO_FATAL_FAILURE(RunUntilStuckAfter(1));
  EXPECT_EQ(verbs_.queue_pairs.size(), 1u);
  EXPECT_FALSE(verbs_.receives.empty());
  world_.Pass(kConnectTimeout + absl::Milliseconds(10), absl::Milliseconds(100));
  EXPECT_EQ(observer_.losses, 1);
  EXPECT_EQ(verbs_.queue_pairs.size(), 1u);
  world_.Pass(kFlushTimeout, absl::Milliseconds(100));
  // The device may still write to memory of the pool, so the connection keeps it, and waits for nothing.
  EXPECT_EQ(observer_.closings, 0);
  EXPECT_EQ(verbs_.queue_pairs.size(), 1u);
  EXPECT_GT(world_.LeasedBytes(world_.client), 0u);
  verbs_.hold_commands = false;
  verbs_.RunCommands();
  ASSERT_TRUE(world_.RunUntil([&] { return observer_.closings == 1; }));
  EXPECT_EQ(world_.client.poller().connection_count(), 0u);
  EXPECT_EQ(verbs_.queue_pairs.size(), 0u);
  EXPECT_EQ(world_.LeasedBytes(world_.client), 0u);
}

// Otherwise a server that waits for the end of all its connections would wait for ever.
TEST_F(StuckDeviceTest, ConnectionIsDestroyedAtLast) {
  ASSERT_NO_FATAL_FAILURE(Dial());
  ASSERT_NO_FATAL_FAILURE(RunUntilStuckAfter(1));
  world_.Pass(kConnectTimeout + kFlushTimeout + kForcedFlushTimeout + absl::Seconds(1), absl::Seconds(1));
  EXPECT_EQ(observer_.closings, 1);
  EXPECT_EQ(world_.client.poller().connection_count(), 0u);
  EXPECT_EQ(verbs_.queue_pairs.size(), 0u) << "the device may still write to memory of the pool";
  EXPECT_EQ(world_.LeasedBytes(world_.client), 0u);
  EXPECT_GT(verbs_.commands(), 0u);
}

}  // namespace
}  // namespace hawser::transport
