// The next waiter that gets a small buffer, while the pool has too few.
#include "hawser/transport/sharing/memory_queue.h"

#include <functional>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hoard.h"
#include "hawser/tests/transport/testing/memory_world.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

constexpr size_t kSmall = 4096;
constexpr size_t kLarger = 16384;

// Wants `count` buffers of `size_bytes`.
class TestWaiter final : public MemoryQueue::Waiter {
 public:
  TestWaiter(World& world, size_t count, size_t size_bytes = kSmall)
      : world_(world), count_(count), size_bytes_(size_bytes) {}

  void Wait() {
    world_.OnClient([this] { world_.client.poller().memory_queue().Wait(*this, size_bytes_); });
  }
  bool is_served() const { return leases_.size() == count_ && !waits_for_memory(); }
  size_t buffers() const { return leases_.size(); }
  int tries() const { return tries_; }
  void Want(size_t count) { count_ = count; }

  std::function<void()> on_memory = [] {};

 private:
  bool OnMemory(Shortage& why) override {
    ++tries_;
    on_memory();
    while (leases_.size() < count_) {
      Lease lease = world_.client.buffers().TryAcquire(size_bytes_, why);
      if (!lease) return false;
      leases_.push_back(std::move(lease));
    }
    return true;
  }

  World& world_;
  size_t count_;
  const size_t size_bytes_;
  int tries_ = 0;
  std::vector<Lease> leases_;
};

class MemoryQueueTest : public ::testing::Test {
 protected:
  // `count` buffers of kSmall are free again.
  void Free(size_t count) {
    hoard_.Drop(count);
    world_.Settle();
  }

  World world_{PoolOf(8 * kMiB)};
  Hoard hoard_{world_.client.buffers(), kSmall};
};

TEST_F(MemoryQueueTest, AWaiterThatGotSomeKeepsItsPlace) {
  TestWaiter first(world_, 3), second(world_, 1);
  first.Wait();
  second.Wait();
  for (size_t free = 1; free <= 2; ++free) {
    Free(1);
    EXPECT_EQ(first.buffers(), free);
    EXPECT_FALSE(first.is_served());
    EXPECT_EQ(second.tries(), 0);
  }
  Free(1);
  EXPECT_TRUE(first.is_served());
  EXPECT_FALSE(second.is_served());
  Free(1);
  EXPECT_TRUE(second.is_served());
}

TEST_F(MemoryQueueTest, MemoryForSeveralServesAll) {
  TestWaiter first(world_, 1), second(world_, 2), third(world_, 2);
  for (TestWaiter* waiter : {&first, &second, &third}) waiter->Wait();
  Free(4);
  EXPECT_TRUE(first.is_served() && second.is_served());
  EXPECT_EQ(third.buffers(), 1u);
  Free(1);
  EXPECT_TRUE(third.is_served());
}

TEST_F(MemoryQueueTest, AWaiterThatWasServedMayWaitAgainBehindTheOthers) {
  TestWaiter first(world_, 1), second(world_, 1);
  first.Wait();
  second.Wait();
  Free(1);
  ASSERT_TRUE(first.is_served());
  first.Want(2);
  first.Wait();
  Free(1);
  EXPECT_TRUE(second.is_served());
  EXPECT_FALSE(first.is_served());
  Free(1);
  EXPECT_TRUE(first.is_served());
  first.Want(3);
  first.Wait();
  Free(1);
  EXPECT_TRUE(first.is_served()) << "the third time";
}

TEST_F(MemoryQueueTest, OneThatBeginsToWaitWhileAnotherIsServedIsServedToo) {
  TestWaiter first(world_, 1), second(world_, 1);
  first.on_memory = [&] { second.Wait(); };
  first.Wait();
  EXPECT_TRUE(second.waits_for_memory());
  Free(2);
  EXPECT_TRUE(first.is_served() && second.is_served());
}

// The pool has been asked for notice of a larger buffer, and there may never be one.
TEST_F(MemoryQueueTest, AWaiterThatIsDestroyedLetsTheNextOneTry) {
  auto first = std::make_unique<TestWaiter>(world_, 1, kLarger);
  TestWaiter second(world_, 1);
  first->Wait();
  second.Wait();
  Free(1);
  ASSERT_FALSE(first->is_served() || second.is_served());
  world_.OnClient([&] { first.reset(); });
  world_.Settle();
  EXPECT_TRUE(second.is_served());
}

TEST_F(MemoryQueueTest, AWaiterThatStopsWaitingLetsTheNextOneTry) {
  TestWaiter first(world_, 1, kLarger), second(world_, 1), third(world_, 1);
  for (TestWaiter* waiter : {&first, &second, &third}) waiter->Wait();
  Free(1);
  world_.OnClient([&] { second.StopWaiting(); });
  world_.Settle();
  EXPECT_FALSE(third.is_served()) << "the first one is still the first";
  world_.OnClient([&] { first.StopWaiting(); });
  world_.Settle();
  EXPECT_TRUE(third.is_served());
  EXPECT_EQ(first.buffers() + second.buffers(), 0u);
  EXPECT_EQ(world_.client.poller().memory_queue().waiting(), 0u);
}

// What the system refuses until `granted`.
class RefusedWaiter final : public MemoryQueue::Waiter {
 public:
  int tries = 0;
  bool granted = false;

 private:
  bool OnMemory(Shortage& why) override {
    ++tries;
    why = Shortage::kRefused;
    return granted;
  }
};

// Nothing tells when the system has memory again.
TEST_F(MemoryQueueTest, WhatTheSystemRefusesIsTriedAgainAfterEachPause) {
  RefusedWaiter waiter;
  world_.OnClient([&] { world_.client.poller().memory_queue().Wait(waiter, kSmall); });
  for (int pauses = 0; pauses < 3; ++pauses) {
    world_.Settle();
    EXPECT_EQ(waiter.tries, pauses + 1);
    world_.Pass(absl::Milliseconds(100));
  }
  waiter.granted = true;
  world_.Pass(absl::Milliseconds(100));
  EXPECT_FALSE(waiter.waits_for_memory());
}

}  // namespace
}  // namespace hawser::transport
