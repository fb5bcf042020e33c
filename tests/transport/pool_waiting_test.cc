// How callers that must not block get memory, and how errors get memory when nothing else does.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/gated_fabric.h"
#include "hawser/transport/memory/buffer_pool.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kKiB = 1 << 10;
constexpr size_t kMiB = 1 << 20;
constexpr size_t kSlab = 2 * kMiB;
constexpr absl::Duration kPatience = absl::Seconds(45);

class CountingWaiter final : public MemoryWaiter {
 public:
  void OnMemoryMayBeFree() override {
    absl::MutexLock lock(&mutex_);
    ++calls_;
    called_.SignalAll();
  }
  int calls() const {
    absl::MutexLock lock(&mutex_);
    return calls_;
  }
  // False: it was called less often.
  bool AwaitCalls(int calls) {
    absl::MutexLock lock(&mutex_);
    const absl::Time deadline = absl::Now() + kPatience;
    bool late = false;
    while (calls_ < calls && !late) late = called_.WaitWithDeadline(&mutex_, deadline);
    return calls_ >= calls;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::CondVar called_;
  int calls_ = 0;
};

std::vector<Lease> TakeAll(BufferPool& pool, size_t size_bytes) {
  std::vector<Lease> leases;
  for (absl::StatusOr<Lease> lease = pool.Acquire(size_bytes); lease.ok(); lease = pool.Acquire(size_bytes)) {
    leases.push_back(*std::move(lease));
  }
  return leases;
}

// ---- TryAcquire()

TEST(PoolWaitingTest, TryAcquireDoesNotWaitForALargeRegistration) {
  auto fabric = std::make_shared<GatedFabric>(NewTestFabric(), 2 * kSlab);
  BufferPool pool(fabric);
  fabric->Close();
  CountingWaiter waiter;
  Shortage why;
  EXPECT_FALSE(pool.TryAcquire(8 * kMiB, why));
  EXPECT_EQ(why, Shortage::kGrowing);
  fabric->AwaitCaller();
  pool.Await(waiter, 8 * kMiB);
  EXPECT_FALSE(pool.TryAcquire(8 * kMiB, why));
  EXPECT_EQ(why, Shortage::kGrowing);
  const Lease small = pool.TryAcquire(4 * kKiB, why);
  EXPECT_TRUE(small) << "it need not wait";
  EXPECT_EQ(waiter.calls(), 0);
  fabric->Open();
  ASSERT_TRUE(waiter.AwaitCalls(1));
  EXPECT_TRUE(pool.TryAcquire(8 * kMiB, why));
  EXPECT_EQ(fabric->large_registrations(), 1) << "asked for twice, wanted once";
}

TEST(PoolWaitingTest, WithoutThreadsTryAcquireGrowsInPlace) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = 16 * kMiB}, BufferPool::Threads::kNone);
  Shortage why;
  EXPECT_TRUE(pool.TryAcquire(8 * kMiB, why));
  std::vector<Lease> small = TakeAll(pool, kKiB);
  small.resize(1);
  EXPECT_TRUE(pool.TryAcquire(14 * kMiB, why));
}

TEST(PoolWaitingTest, AtTheLimitTryAcquireSaysSo) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = 16 * kMiB});
  const Lease held = *pool.Acquire(10 * kMiB);
  Shortage why;
  EXPECT_FALSE(pool.TryAcquire(10 * kMiB, why));
  EXPECT_EQ(why, Shortage::kAtLimit);
  EXPECT_FALSE(pool.TryAcquire(17 * kMiB, why));
  EXPECT_EQ(why, Shortage::kTooLarge);
}

TEST(PoolWaitingTest, WhatMustBeUnmappedFirstIsUnmappedElsewhere) {
  auto fabric = std::make_shared<GatedFabric>(NewTestFabric(), kSlab);
  BufferPool pool(fabric, {.limit_bytes = 16 * kMiB});
  EXPECT_THAT(pool.Acquire(16 * kMiB), IsOk());
  fabric->Close();  // So that the slab does not exist before the check.
  CountingWaiter waiter;
  Shortage why;
  EXPECT_FALSE(pool.TryAcquire(kKiB, why)) << "a slab would take the unmapping of 16 MiB";
  EXPECT_EQ(why, Shortage::kGrowing);
  pool.Await(waiter, kKiB);
  fabric->Open();
  ASSERT_TRUE(waiter.AwaitCalls(1));
  EXPECT_TRUE(pool.TryAcquire(kKiB, why));
  EXPECT_LE(fabric->registered_bytes(), 16 * kMiB + kReserveBytes);
}

TEST(PoolWaitingTest, WhatTheSystemRefusesIsReportedForAWhileAndThenTriedAnew) {
  auto fabric = std::make_shared<GatedFabric>(NewTestFabric(), 2 * kSlab);
  BufferPool pool(fabric);
  fabric->Refuse(true);
  CountingWaiter waiter;
  Shortage why;
  pool.Await(waiter, 8 * kMiB);
  EXPECT_FALSE(pool.TryAcquire(8 * kMiB, why));
  EXPECT_EQ(why, Shortage::kGrowing);
  ASSERT_TRUE(waiter.AwaitCalls(1));
  EXPECT_FALSE(pool.TryAcquire(8 * kMiB, why));
  EXPECT_EQ(why, Shortage::kRefused);
  EXPECT_THAT(std::string(pool.Explain(why, 8 * kMiB).message()), HasSubstr("the test refuses"));
  EXPECT_EQ(pool.stats().mapped_bytes, 0u);
  fabric->Refuse(false);
  fabric->Close();
  pool.Await(waiter, 8 * kMiB);
  while (why == Shortage::kRefused) EXPECT_FALSE(pool.TryAcquire(8 * kMiB, why));
  EXPECT_EQ(why, Shortage::kGrowing);
  fabric->Open();
  ASSERT_TRUE(waiter.AwaitCalls(2));
  EXPECT_TRUE(pool.TryAcquire(8 * kMiB, why));
}

// ---- Await()

TEST(PoolWaitingTest, AWaiterIsToldOnce) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = kSlab});
  std::vector<Lease> leases = TakeAll(pool, 4 * kKiB);
  CountingWaiter waiter;
  pool.Await(waiter, 4 * kKiB);
  EXPECT_EQ(waiter.calls(), 0);
  leases.pop_back();
  EXPECT_EQ(waiter.calls(), 1);
  leases.pop_back();
  EXPECT_EQ(waiter.calls(), 1);
  pool.Await(waiter, 4 * kKiB);
  pool.StopAwaiting(waiter);
  leases.clear();
  EXPECT_EQ(waiter.calls(), 1);
}

TEST(PoolWaitingTest, AWaiterForMuchIsNotToldOfLittle) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = 8 * kMiB});
  std::vector<Lease> leases = TakeAll(pool, 4 * kKiB);
  CountingWaiter large, small;
  pool.Await(large, 3 * kSlab);
  pool.Await(small, 16 * kKiB);
  for (int i = 0; i < 60; ++i) leases.pop_back();
  EXPECT_EQ(large.calls(), 0);
  EXPECT_EQ(small.calls(), 0) << "a buffer of 4 KiB is not one of 16";
  for (int i = 0; i < 60; ++i) leases.pop_back();
  EXPECT_EQ(small.calls(), 1) << "a part of a slab is free";
  leases.resize(2 * kSlab / (4 * kKiB));
  EXPECT_EQ(large.calls(), 0) << "2 slabs are not 3";
  EXPECT_EQ(small.calls(), 1);
  leases.clear();
  EXPECT_EQ(large.calls(), 1);
  EXPECT_THAT(pool.Acquire(3 * kSlab), IsOk());
}

TEST(PoolWaitingTest, AWaiterThatAsksAgainIsToldOfWhatItAskedForLast) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = 8 * kMiB});
  std::vector<Lease> leases = TakeAll(pool, 4 * kKiB);
  CountingWaiter waiter;
  pool.Await(waiter, 3 * kSlab);
  pool.Await(waiter, 4 * kKiB);
  leases.pop_back();
  EXPECT_EQ(waiter.calls(), 1);
  pool.Await(waiter, 4 * kKiB);
  pool.Await(waiter, 3 * kSlab);
  leases.pop_back();
  EXPECT_EQ(waiter.calls(), 1);
  leases.clear();
  EXPECT_EQ(waiter.calls(), 2);
}

TEST(PoolWaitingTest, OneThatStopsWaitingLeavesTheOthers) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = kSlab});
  std::vector<Lease> leases = TakeAll(pool, 4 * kKiB);
  CountingWaiter first, second, third;
  for (CountingWaiter* waiter : {&first, &second, &third}) pool.Await(*waiter, 4 * kKiB);
  pool.StopAwaiting(second);
  leases.pop_back();
  EXPECT_EQ(first.calls(), 1);
  EXPECT_EQ(second.calls(), 0);
  EXPECT_EQ(third.calls(), 1);
}

TEST(PoolWaitingTest, WaitersAreToldInTheirOrder) {
  struct Ordered final : MemoryWaiter {
    void OnMemoryMayBeFree() override { order->push_back(this); }
    std::vector<MemoryWaiter*>* order;
  };
  BufferPool pool(NewTestFabric(), {.limit_bytes = kSlab});
  Lease lease = *pool.Acquire(kSlab);
  std::vector<MemoryWaiter*> order;
  Ordered first, second, third;
  for (Ordered* waiter : {&first, &second, &third}) {
    waiter->order = &order;
    pool.Await(*waiter, kKiB);
  }
  lease = Lease();
  EXPECT_THAT(order, ::testing::ElementsAre(&first, &second, &third));
}

TEST(PoolWaitingTest, AWaiterMayWaitAgainWhileItIsTold) {
  struct Again final : MemoryWaiter {
    void OnMemoryMayBeFree() override {
      ++calls;
      pool->Await(*this, kKiB);
    }
    BufferPool* pool;
    int calls = 0;
  };
  BufferPool pool(NewTestFabric(), {.limit_bytes = kSlab});
  Again waiter;
  waiter.pool = &pool;
  pool.Await(waiter, kKiB);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_THAT(pool.Acquire(kSlab), IsOk());
    EXPECT_EQ(waiter.calls, i);
  }
  pool.StopAwaiting(waiter);
}

TEST(PoolWaitingTest, StopAwaitingWaitsForACallUnderWay) {
  struct Slow final : MemoryWaiter {
    void OnMemoryMayBeFree() override {
      called.Notify();
      stopping.WaitForNotification();
      done = true;
    }
    absl::Notification called, stopping;
    bool done = false;
  };
  BufferPool pool(NewTestFabric(), {.limit_bytes = kSlab});
  Slow waiter;
  Lease lease = *pool.Acquire(kSlab);
  pool.Await(waiter, kKiB);
  std::thread returner([&] { lease = Lease(); });
  waiter.called.WaitForNotification();
  waiter.stopping.Notify();
  pool.StopAwaiting(waiter);
  EXPECT_TRUE(waiter.done);
  returner.join();
}

// Like a poller, each thread asks, is refused, is notified, and asks again. After a lost call a thread waits
// forever.
TEST(PoolWaitingTest, NoCallIsLostHoweverThreadsRun) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = 8 * kMiB, .idle = absl::Milliseconds(1)});
  std::atomic<int> lost{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      CountingWaiter waiter;
      int calls = 0;
      std::vector<Lease> held;
      for (int i = 0; i < 1000 && lost == 0; ++i) {
        const size_t size = (i + t) % 3 == 0 ? 5 * kMiB : (i + t) % 3 == 1 ? 256 * kKiB : 2 * kKiB;
        Shortage why;
        Lease lease = pool.TryAcquire(size, why);
        while (!lease && lost == 0) {
          held.clear();  // A thread holds nothing while it waits, so that each gets its memory.
          pool.Await(waiter, size);
          lease = pool.TryAcquire(size, why);
          if (lease) break;
          if (!waiter.AwaitCalls(++calls)) ++lost;
        }
        pool.StopAwaiting(waiter);
        calls = waiter.calls();
        held.push_back(std::move(lease));
        if (held.size() > 3) held.clear();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(pool.stats().leases, 0u);
  EXPECT_LE(pool.stats().mapped_bytes, 8 * kMiB);
}

// ---- The reserve

TEST(PoolWaitingTest, ErrorsFindMemoryWhileAllIsInUse) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = kSlab});
  const std::vector<Lease> leases = TakeAll(pool, 4 * kKiB);
  Lease reserved = pool.AcquireReserved(kReservedBufferBytes);
  ASSERT_TRUE(reserved);
  EXPECT_EQ(reserved.size_bytes(), kReservedBufferBytes);
  EXPECT_EQ(pool.FindRegion(reserved.data(), reserved.size_bytes()), reserved.lkey());
  std::vector<Lease> all;
  for (; reserved; reserved = pool.AcquireReserved(1)) all.push_back(std::move(reserved));
  EXPECT_EQ(all.size(), kReserveBytes / kReservedBufferBytes);
  all.clear();
  EXPECT_TRUE(pool.AcquireReserved(1));
  EXPECT_THAT(pool.Acquire(1), Not(IsOk())) << "it takes of the reserve";
  EXPECT_FALSE(pool.AcquireReserved(kReservedBufferBytes + 1));
  EXPECT_LE(pool.stats().mapped_bytes, kSlab);
}

TEST(PoolWaitingTest, TheReserveIsLeftAloneWhileThereIsOtherMemory) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = 2 * kSlab});
  std::vector<Lease> reserved;
  for (int i = 0; i < 10; ++i) reserved.push_back(pool.AcquireReserved(4 * kKiB));
  const std::vector<Lease> leases = TakeAll(pool, 4 * kKiB);
  EXPECT_EQ(leases.size(), 2 * kSlab / (4 * kKiB) - 10);
  for (size_t i = 0; i < kReserveBytes / kReservedBufferBytes; ++i) {
    reserved.push_back(pool.AcquireReserved(4 * kKiB));
    EXPECT_TRUE(reserved.back());
  }
}

TEST(PoolWaitingTest, AtTheLimitErrorsLeaveFreeBuffersToOthers) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = kSlab});
  std::vector<Lease> leases = TakeAll(pool, 4 * kKiB);
  leases.pop_back();
  const Lease reserved = pool.AcquireReserved(4 * kKiB);
  EXPECT_TRUE(reserved);
  EXPECT_THAT(pool.Acquire(4 * kKiB), IsOk());
}

}  // namespace
}  // namespace hawser::transport
