// How a pool reuses and returns memory when the demand changes, or ends.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/gated_fabric.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/memory/retired_memory.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/message.h"

namespace hawser::transport {
namespace {

constexpr size_t kKiB = 1 << 10;
constexpr size_t kMiB = 1 << 20;
constexpr size_t kSlab = 2 * kMiB;
// Only a test that hangs waits this long.
constexpr absl::Duration kPatience = absl::Seconds(45);

std::vector<Lease> TakeAll(BufferPool& pool, size_t size_bytes) {
  std::vector<Lease> leases;
  for (absl::StatusOr<Lease> lease = pool.Acquire(size_bytes); lease.ok(); lease = pool.Acquire(size_bytes)) {
    leases.push_back(*std::move(lease));
  }
  return leases;
}

std::vector<Lease> Take(BufferPool& pool, size_t count, size_t size_bytes) {
  std::vector<Lease> leases;
  for (size_t i = 0; i < count; ++i) {
    absl::StatusOr<Lease> lease = pool.Acquire(size_bytes);
    EXPECT_THAT(lease, IsOk());
    if (!lease.ok()) break;
    leases.push_back(*std::move(lease));
  }
  return leases;
}

bool Eventually(const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(PoolMemoryTest, ABurstOfSmallBuffersLeavesRoomForALargeOne) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = 16 * kMiB});
  EXPECT_EQ(TakeAll(pool, 4 * kKiB).size(), 16 * kMiB / (4 * kKiB));
  const absl::StatusOr<Lease> large = pool.Acquire(14 * kMiB);
  ASSERT_THAT(large, IsOk());
  EXPECT_LE(pool.stats().mapped_bytes, 16 * kMiB);
  EXPECT_EQ(pool.FindRegion(large->data(), large->size_bytes()), large->lkey());
}

TEST(PoolMemoryTest, ABurstOfLargeBuffersLeavesRoomForSmallOnes) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = 16 * kMiB});
  EXPECT_EQ(TakeAll(pool, 7 * kMiB).size(), 2u);
  EXPECT_EQ(TakeAll(pool, 4 * kKiB).size(), 16 * kMiB / (4 * kKiB));
}

TEST(PoolMemoryTest, AFreeSlabServesAnyClassWithoutRegistration) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = 2 * kSlab});
  for (size_t size : {kKiB, 256 * kKiB, 4 * kKiB, 64 * kKiB, 16 * kKiB}) {
    const std::vector<Lease> all = TakeAll(pool, size);
    EXPECT_EQ(all.size(), 2 * kSlab / size) << "of " << size;
    for (const Lease& lease : all) EXPECT_EQ(lease.size_bytes(), size);
  }
  EXPECT_EQ(pool.stats().registrations, 2u);
}

TEST(PoolMemoryTest, ALargerBufferServesOnlyAtTheLimit) {
  BufferPool pool(NewTestFabric(), {.limit_bytes = 28 * kMiB});
  Take(pool, 1, 16 * kMiB);
  EXPECT_EQ(Take(pool, 1, 10 * kMiB)[0].size_bytes(), 10 * kMiB);
  const std::vector<Lease> held = Take(pool, 1, 10 * kMiB);
  EXPECT_EQ(Take(pool, 1, 12 * kMiB)[0].size_bytes(), 16 * kMiB) << "it was unmapped for this";
  EXPECT_EQ(pool.stats().registrations, 2u);
  // It may not be much larger than that.
  EXPECT_EQ(Take(pool, 1, 4 * kMiB)[0].size_bytes(), 4 * kMiB);
}

// Whether the cache of this thread holds the buffer: no other thread can acquire it.
bool IsCached(BufferPool& pool, const uint8_t* buffer) {
  bool found = false;
  std::thread([&] {
    std::vector<Lease> taken;
    for (int i = 0; i < 3 && !found; ++i) {
      taken.push_back(*pool.Acquire(4 * kKiB));
      found = taken.back().data() == buffer;
    }
  }).join();
  return !found;
}

TEST(PoolMemoryTest, APoolThatWasShortIsNotShortForGood) {
  auto pool = std::make_shared<BufferPool>(NewTestFabric(), BufferPoolOptions{.limit_bytes = 16 * kMiB});
  std::shared_ptr<MessagePool> messages = MessagePool::Create(pool);
  MessageCache cache(*messages);
  std::vector<Lease> burst = Take(*pool, 5 * kSlab / (4 * kKiB), 4 * kKiB);
  cache.Enter();
  Lease lease = *pool->Acquire(4 * kKiB);
  const uint8_t* buffer = lease.data();
  lease = Lease();
  EXPECT_FALSE(IsCached(*pool, buffer)) << "others may wait for it";
  burst.clear();
  lease = *pool->Acquire(4 * kKiB);
  buffer = lease.data();
  lease = Lease();
  EXPECT_TRUE(IsCached(*pool, buffer));
  cache.Leave();
}

TEST(PoolMemoryTest, FullerSlabsServeFirst) {
  BufferPool pool(NewTestFabric());
  constexpr size_t kPerSlab = kSlab / (4 * kKiB);
  std::vector<Lease> leases = Take(pool, 4 * kPerSlab, 4 * kKiB);
  const auto slab_of = [](const Lease& lease) { return reinterpret_cast<uintptr_t>(lease.data()) / kSlab; };
  std::set<uintptr_t> slabs;
  for (const Lease& lease : leases) slabs.insert(slab_of(lease));
  ASSERT_EQ(slabs.size(), 4u);
  // One slab keeps a single buffer, the others three quarters and more.
  const uintptr_t sparse = slab_of(leases[kPerSlab]);
  size_t of_sparse = 0, of_others = 0;
  leases.erase(std::remove_if(leases.begin(), leases.end(),
                              [&](const Lease& lease) {
                                return slab_of(lease) == sparse ? of_sparse++ > 0 : of_others++ % 8 == 0;
                              }),
               leases.end());
  for (size_t i = 0; i < 3 * kPerSlab / 8; ++i) {
    leases.push_back(*pool.Acquire(4 * kKiB));
    EXPECT_NE(slab_of(leases.back()), sparse) << "at " << i;
  }
}

TEST(PoolMemoryTest, RegistrationOfALargeBufferDoesNotStopSmallOnes) {
  auto fabric = std::make_shared<GatedFabric>(NewTestFabric(), 2 * kSlab);
  BufferPool pool(fabric);
  std::vector<Lease> small = Take(pool, 1, 4 * kKiB);
  fabric->Close();
  absl::Notification large_is_there;
  std::thread large([&] {
    EXPECT_THAT(pool.Acquire(64 * kMiB), IsOk());
    large_is_there.Notify();
  });
  fabric->AwaitCaller();
  absl::Notification done;
  std::thread others([&] {
    // A buffer of an existing slab, one of a new slab, and the lookup of the send path.
    small.push_back(*pool.Acquire(4 * kKiB));
    small.push_back(*pool.Acquire(64 * kKiB));
    EXPECT_EQ(pool.FindRegion(small[0].data(), 1), small[0].lkey());
    small.clear();
    EXPECT_GE(pool.stats().mapped_bytes, 2 * kSlab);
    done.Notify();
  });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience / 6));
  EXPECT_FALSE(large_is_there.HasBeenNotified());
  fabric->Open();
  large.join();
  others.join();
}

// ---- Where registering is dear

// As over RDMA. Its registrations of `large_bytes` and more can be refused, or held up.
std::shared_ptr<GatedFabric> NewPinningFabric(size_t large_bytes = SIZE_MAX) {
  return std::make_shared<GatedFabric>(NewTestFabric(), large_bytes, /*pins_memory=*/true);
}

TEST(PoolMemoryTest, WhereMemoryIsPinnedALargePoolTakesFewRegistrations) {
  constexpr bool kLess = kOverwritesRetiredMemory;
  for (const auto& [pins, registrations] :
       {std::pair(false, kLess ? 128u : 512u), std::pair(true, kLess ? 28u : 76u)}) {
    auto fabric = std::make_shared<GatedFabric>(NewTestFabric(), SIZE_MAX, pins);
    BufferPool pool(fabric, {}, BufferPool::Threads::kNone);
    std::vector<Lease> leases;
    // A debug build writes to what is returned, and so needs the memory.
    constexpr size_t kBuffer = 64 * kKiB, kAll = kOverwritesRetiredMemory ? 256 * kMiB : 1024 * kMiB;
    while (leases.size() < kAll / kBuffer) {
      leases.push_back(*pool.Acquire(kBuffer));
      const BufferPoolStats stats = pool.stats();
      ASSERT_LE(stats.mapped_bytes, stats.leased_bytes + std::max(stats.leased_bytes / 4, kSlab));
      if (stats.leased_bytes <= 16 * kMiB) {
        ASSERT_LT(stats.mapped_bytes, stats.leased_bytes + kSlab) << "a small one";
      }
    }
    EXPECT_EQ(pool.stats().registrations, registrations);
    while (!leases.empty()) leases.pop_back();  // The larger slabs first.
    for (int i = 0; i < 2; ++i) pool.GiveBackIdle();
    EXPECT_EQ(pool.stats().mapped_bytes, kSlab) << "one of the smallest is kept";
    EXPECT_EQ(fabric->registered_bytes(), kSlab + kReserveBytes);
  }
}

TEST(PoolMemoryTest, LargerSlabsLeaveNothingOfTheLimitUnused) {
  BufferPool pool(NewPinningFabric(), {.limit_bytes = 256 * kMiB}, BufferPool::Threads::kNone);
  const std::vector<Lease> small = Take(pool, 128 * kMiB / (4 * kKiB), 4 * kKiB);
  EXPECT_LT(pool.stats().registrations, 64u);
  const size_t rest = 256 * kMiB - pool.stats().mapped_bytes;
  EXPECT_GE(TakeAll(pool, 64 * kKiB).size(), rest / (64 * kKiB));
  EXPECT_LE(pool.stats().mapped_bytes, 256 * kMiB);
}

// What each slab had that was mapped for buffers of `size_bytes`, up to the limit of the pool. Then all of
// them are idle.
std::vector<size_t> SlabsOfAll(BufferPool& pool, size_t size_bytes) {
  std::vector<size_t> slabs;
  std::vector<Lease> leases;
  for (size_t mapped = 0;;) {
    absl::StatusOr<Lease> lease = pool.Acquire(size_bytes);
    if (!lease.ok()) return slabs;
    leases.push_back(*std::move(lease));
    const size_t now = pool.stats().mapped_bytes;
    if (now != mapped) slabs.push_back(now - mapped);
    mapped = now;
  }
}

TEST(PoolMemoryTest, ALargerSlabTakesAnEighthOfWhatIsLeft) {
  constexpr size_t kLimit = 128 * kMiB;
  BufferPool pool(NewPinningFabric(), {.limit_bytes = kLimit}, BufferPool::Threads::kNone);
  const std::vector<size_t> slabs = SlabsOfAll(pool, 64 * kKiB);
  size_t left = kLimit;
  for (const size_t bytes : slabs) {
    EXPECT_LE(bytes, std::max(kSlab, left / 8)) << "of " << left;
    left -= bytes;
  }
  EXPECT_EQ(left, 0u);
  EXPECT_EQ(*std::max_element(slabs.begin(), slabs.end()), 8 * kMiB);
}

TEST(PoolMemoryTest, SlabsThatAreCutIntoPartsHaveFourMiBAtMost) {
  BufferPool pool(NewPinningFabric(), {.limit_bytes = 256 * kMiB}, BufferPool::Threads::kNone);
  const std::vector<size_t> slabs = SlabsOfAll(pool, 4 * kKiB);
  EXPECT_EQ(*std::max_element(slabs.begin(), slabs.end()), 4 * kMiB);
}

uint64_t BuffersOf(BufferPool& pool, size_t size_bytes) {
  uint64_t buffers = 0;
  for (const BufferClassStats& each : pool.classes()) {
    if (each.size_bytes == size_bytes) buffers = each.buffers;
  }
  return buffers;
}

TEST(PoolMemoryTest, TheSmallestIdleSlabIsTaken) {
  constexpr size_t kLimit = 128 * kMiB;
  BufferPool pool(NewPinningFabric(), {.limit_bytes = kLimit}, BufferPool::Threads::kNone);
  const std::vector<size_t> slabs = SlabsOfAll(pool, 64 * kKiB);
  const uint64_t registrations = pool.stats().registrations;
  std::vector<Lease> leases;
  for (uint64_t smallest = std::count(slabs.begin(), slabs.end(), kSlab); smallest > 0; --smallest) {
    std::vector<Lease> of_one = Take(pool, kSlab / (128 * kKiB), 128 * kKiB);
    leases.insert(leases.end(), std::make_move_iterator(of_one.begin()),
                  std::make_move_iterator(of_one.end()));
    EXPECT_EQ(BuffersOf(pool, 128 * kKiB), leases.size()) << "of a slab of 2 MiB";
  }
  EXPECT_EQ(leases.size() + TakeAll(pool, 128 * kKiB).size(), kLimit / (128 * kKiB));
  EXPECT_EQ(pool.stats().registrations, registrations);
}

TEST(PoolMemoryTest, ALargerIdleSlabIsLeftToThoseThatNeedMuch) {
  BufferPool pool(NewPinningFabric(), {}, BufferPool::Threads::kNone);
  std::vector<Lease> leases = Take(pool, 8 * kSlab / (64 * kKiB), 64 * kKiB);
  Take(pool, 1, 64 * kKiB);  // Of a slab of 4 MiB.
  EXPECT_EQ(pool.stats().mapped_bytes, 20 * kMiB);
  const std::vector<Lease> other = Take(pool, 1, 128 * kKiB);
  EXPECT_EQ(pool.stats().mapped_bytes, 22 * kMiB);
  EXPECT_EQ(BuffersOf(pool, 128 * kKiB), kSlab / (128 * kKiB));
}

TEST(PoolMemoryTest, OneLargerSlabOfAClassIsUnderWay) {
  const std::shared_ptr<GatedFabric> fabric = NewPinningFabric(kSlab + 1);
  BufferPool pool(fabric, {}, BufferPool::Threads::kNone);
  const std::vector<Lease> leases = Take(pool, 8 * kSlab / (64 * kKiB), 64 * kKiB);
  fabric->Close();
  std::thread first([&] { Take(pool, 1, 64 * kKiB); });
  fabric->AwaitCaller();
  absl::Notification done;
  std::thread second([&] {
    Take(pool, 1, 64 * kKiB);
    done.Notify();
  });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience / 6)) << "it takes one of 2 MiB";
  EXPECT_EQ(fabric->large_registrations(), 1);
  fabric->Open();
  first.join();
  second.join();
}

TEST(PoolMemoryTest, WhereALargerSlabIsRefusedASmallOneServes) {
  const std::shared_ptr<GatedFabric> fabric = NewPinningFabric(kSlab + 1);
  fabric->Refuse(true);
  BufferPool pool(fabric, {}, BufferPool::Threads::kNone);
  EXPECT_EQ(Take(pool, 20 * kSlab / (64 * kKiB), 64 * kKiB).size(), 20 * kSlab / (64 * kKiB));
  EXPECT_EQ(pool.stats().registrations, 20u);
  EXPECT_GT(fabric->large_registrations(), 0);
  EXPECT_EQ(pool.stats().mapped_bytes, 20 * kSlab);
}

TEST(PoolMemoryTest, NoPollerWaitsForALargerSlab) {
  const std::shared_ptr<GatedFabric> fabric = NewPinningFabric(kSlab + 1);
  BufferPool pool(fabric);
  fabric->Close();
  std::vector<Lease> leases;
  Shortage why;
  while (leases.size() < 12 * kSlab / (64 * kKiB)) {
    leases.push_back(pool.TryAcquire(64 * kKiB, why));
    ASSERT_TRUE(leases.back());
  }
  fabric->AwaitCaller();  // The pool's thread.
  fabric->Open();
  EXPECT_TRUE(Eventually([&] { return pool.classes()[0].buffers > leases.size(); }));
  const uint64_t registrations = pool.stats().registrations;
  for (size_t i = 0; i < 4 * kMiB / (64 * kKiB); ++i) leases.push_back(*pool.Acquire(64 * kKiB));
  EXPECT_EQ(pool.stats().registrations, registrations) << "of 4 MiB at least";
}

// Nor where code on it calls Acquire(), as messages do.
TEST(PoolMemoryTest, AcquireOnAPollerMapsNoLargerSlab) {
  const std::shared_ptr<GatedFabric> fabric = NewPinningFabric(kSlab + 1);
  auto pool = std::make_shared<BufferPool>(fabric);
  std::shared_ptr<MessagePool> messages = MessagePool::Create(pool);
  absl::Notification done;
  std::vector<Lease> leases;  // Kept until the pool's thread has come: it maps nothing while as much is idle.
  fabric->Close();
  std::thread poller([&] {
    MessageCache cache(*messages);
    cache.Enter();
    leases = Take(*pool, 12 * kSlab / (64 * kKiB), 64 * kKiB);
    cache.Leave();
    done.Notify();
  });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience / 6));
  fabric->AwaitCaller();  // The pool's thread.
  fabric->Open();
  poller.join();
}

TEST(PoolMemoryTest, AcquireOnAPollerMakesRoomAtTheLimit) {
  auto pool = std::make_shared<BufferPool>(NewPinningFabric(), BufferPoolOptions{.limit_bytes = 16 * kMiB});
  std::shared_ptr<MessagePool> messages = MessagePool::Create(pool);
  Take(*pool, 1, 16 * kMiB);
  MessageCache cache(*messages);
  cache.Enter();
  EXPECT_EQ(Take(*pool, 1, 4 * kKiB).size(), 1u);
  cache.Leave();
  EXPECT_EQ(pool->stats().mapped_bytes, kSlab);
}

TEST(PoolMemoryTest, GrowthAheadOfNeedUnmapsNothing) {
  const std::shared_ptr<GatedFabric> fabric = NewPinningFabric(kSlab + 1);
  BufferPool pool(fabric);
  Take(pool, 1, 32 * kMiB);
  fabric->Close();
  std::vector<Lease> leases;
  Shortage why;
  while (leases.size() < 10 * kSlab / (64 * kKiB)) {
    leases.push_back(pool.TryAcquire(64 * kKiB, why));
    ASSERT_TRUE(leases.back());
  }
  fabric->AwaitCaller();  // The pool's thread, with 4 MiB.
  fabric->SetLimit(fabric->registered_bytes());
  fabric->Open();
  EXPECT_TRUE(Eventually([&] { return fabric->refused_at_limit() > 0; }));
  // It does one after the other.
  fabric->SetLimit(SIZE_MAX);
  Lease large;
  EXPECT_TRUE(Eventually([&] { return static_cast<bool>(large = pool.TryAcquire(40 * kMiB, why)); }));
  EXPECT_EQ(pool.stats().mapped_bytes, (32 + 20 + 40) * kMiB);
}

TEST(PoolMemoryTest, NoMoreIdleMemoryIsUnmappedThanIsNeeded) {
  const std::shared_ptr<GatedFabric> fabric = NewPinningFabric();
  BufferPool pool(fabric, {}, BufferPool::Threads::kNone);
  Take(pool, 10, 8 * kMiB);
  fabric->SetLimit(fabric->registered_bytes());
  const std::vector<Lease> needed = Take(pool, 1, 7 * kMiB);
  EXPECT_EQ(pool.stats().mapped_bytes, (9 * 8 + 7) * kMiB);
  EXPECT_THAT(pool.Acquire(80 * kMiB), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(pool.stats().mapped_bytes, (9 * 8 + 7) * kMiB) << "all of it would not be enough";
}

// It is kept for a minute, and what it takes of memlock is needed.
TEST(PoolMemoryTest, WhereTheSystemRefusesIdleMemoryMakesRoom) {
  for (const auto threads : {BufferPool::Threads::kNone, BufferPool::Threads::kMayStart}) {
    const std::shared_ptr<GatedFabric> fabric = NewPinningFabric();
    fabric->SetLimit(64 * kMiB);
    BufferPool pool(fabric, {}, threads);
    Take(pool, 1, 48 * kMiB);
    Take(pool, 1, 32 * kMiB);
    EXPECT_EQ(pool.stats().mapped_bytes, 32 * kMiB);
    // Small ones for a poller, which unmaps nothing that is large.
    fabric->SetLimit(33 * kMiB);
    Lease small;
    Shortage why;
    EXPECT_TRUE(Eventually([&] { return static_cast<bool>(small = pool.TryAcquire(4 * kKiB, why)); }));
    EXPECT_TRUE(Eventually([&] { return pool.stats().mapped_bytes <= 2 * kSlab; })) << "one by each thread";
  }
}

TEST(PoolMemoryTest, WherePinningIsDearIdleMemoryIsKeptLonger) {
  const auto idle = [](bool pins, const BufferPoolOptions& options = {}) {
    return BufferPool(std::make_shared<GatedFabric>(NewTestFabric(), SIZE_MAX, pins), options).idle();
  };
  EXPECT_EQ(idle(false), absl::Seconds(4));
  EXPECT_EQ(idle(true), absl::Seconds(60));
  EXPECT_EQ(idle(true, {.idle = absl::Seconds(1)}), absl::Seconds(1));
  EXPECT_EQ(idle(false, {.idle = absl::InfiniteDuration()}), absl::InfiniteDuration());
}

// ---- Idle memory

TEST(PoolMemoryTest, IdleMemoryGoesBackToTheSystem) {
  BufferPool pool(NewTestFabric(), {.idle = absl::Milliseconds(2)});
  const std::vector<Lease> start = Take(pool, 40 * kSlab / (4 * kKiB), 4 * kKiB);
  const size_t mapped = pool.stats().mapped_bytes;
  for (size_t size : {kKiB, 64 * kKiB, 20 * kMiB}) Take(pool, 400 * kMiB / size, size);
  EXPECT_TRUE(Eventually([&] { return pool.stats().mapped_bytes <= mapped + mapped / 20; }))
      << pool.stats().mapped_bytes << " of " << mapped;
  // A second burst: the pool unmaps memory after each one.
  Take(pool, 20, 20 * kMiB);
  EXPECT_TRUE(Eventually([&] { return pool.stats().mapped_bytes <= mapped + mapped / 20; }));
}

// Nor is there a thread that looks for it all the time.
TEST(PoolMemoryTest, WithAnInfiniteIdleTimeItStays) {
  // By name: a thread that was joined may be listed for a moment longer.
  const auto has_thread = [] {
    std::error_code gone;  // A thread that ends while the folder is read.
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
      std::ifstream file(task.path() / "comm");
      std::string name;
      if (std::getline(file, name) && name == "hawser-pool") return true;
    }
    return false;
  };
  ASSERT_TRUE(Eventually([&] { return !has_thread(); })) << "that of a pool of another test";
  BufferPool pool(NewTestFabric(), {.limit_bytes = 16 * kMiB, .idle = absl::InfiniteDuration()});
  EXPECT_EQ(Take(pool, 2, 7 * kMiB).size(), 2u);
  EXPECT_FALSE(has_thread());
  EXPECT_GE(pool.stats().mapped_bytes, 14 * kMiB);
}

TEST(PoolMemoryTest, WhatIsUsedNowAndThenStays) {
  BufferPool pool(NewTestFabric(), {}, BufferPool::Threads::kNone);
  const uint8_t* const buffer = Take(pool, 1, 8 * kMiB)[0].data();
  for (int i = 0; i < 5; ++i) {
    pool.GiveBackIdle();
    EXPECT_EQ(Take(pool, 1, 8 * kMiB)[0].data(), buffer);
  }
  EXPECT_EQ(pool.stats().registrations, 1u);
  pool.GiveBackIdle();
  pool.GiveBackIdle();
  EXPECT_EQ(pool.stats().mapped_bytes, 0u);
}

TEST(PoolMemoryTest, ASlabIsKeptForTheNextSmallCall) {
  BufferPool pool(NewTestFabric(), {}, BufferPool::Threads::kNone);
  Take(pool, 5 * kSlab / kKiB, kKiB);
  for (int i = 0; i < 3; ++i) pool.GiveBackIdle();
  EXPECT_EQ(pool.stats().mapped_bytes, kSlab);
}

TEST(PoolMemoryTest, LargeBuffersGoBeforeTheSlabForTheNextSmallCall) {
  BufferPool pool(NewTestFabric(), {}, BufferPool::Threads::kNone);
  Take(pool, 1, kKiB);
  Take(pool, 1, 8 * kMiB);
  for (int i = 0; i < 3; ++i) pool.GiveBackIdle();
  EXPECT_EQ(pool.stats().mapped_bytes, kSlab);
}

TEST(PoolMemoryTest, ALargerSlabGoesBeforeASmallOneOfAnotherClass) {
  BufferPool pool(NewPinningFabric(), {}, BufferPool::Threads::kNone);
  const std::vector<Lease> held = Take(pool, 8 * kSlab / (4 * kKiB), 4 * kKiB);
  std::vector<Lease> of_four_mib = Take(pool, 1, 4 * kKiB);
  Take(pool, 1, 128 * kKiB);
  of_four_mib.clear();
  EXPECT_EQ(pool.stats().mapped_bytes, (8 * 2 + 4 + 2) * kMiB);
  for (int i = 0; i < 3; ++i) pool.GiveBackIdle();
  EXPECT_EQ(pool.stats().mapped_bytes, (8 * 2 + 2) * kMiB);
}

TEST(PoolMemoryTest, APoolThatGoesKeepsOnlyWhatIsLeased) {
  auto fabric = std::make_shared<GatedFabric>(NewTestFabric(), SIZE_MAX);
  std::vector<Lease> left;
  {
    BufferPool pool(fabric);
    left = Take(pool, 1, 8 * kMiB);
    Take(pool, 3, 64 * kMiB);
    EXPECT_EQ(fabric->registered_bytes(), 200 * kMiB + kReserveBytes);
  }
  EXPECT_EQ(fabric->registered_bytes(), 8 * kMiB + kReserveBytes);
  left.clear();
  EXPECT_EQ(fabric->registered_bytes(), 0u);
}

// Returns the buffers in such an order that the caches, which keep the last ones, have one of each slab.
void ReturnOneOfEachSlabLast(std::vector<Lease> leases) {
  std::vector<Lease> last;
  for (size_t i = 0; i < leases.size(); i += kSlab / (4 * kKiB)) last.push_back(std::move(leases[i]));
  leases.clear();
  last.clear();
}

TEST(PoolMemoryTest, WhatACacheKeepsHoldsNoSlabs) {
  auto pool = std::make_shared<BufferPool>(NewTestFabric(), BufferPoolOptions(), BufferPool::Threads::kNone);
  std::shared_ptr<MessagePool> messages = MessagePool::Create(pool);
  MessageCache cache(*messages);
  cache.Enter();
  std::vector<OutgoingMessagePtr> out;
  for (int i = 0; i < 200; ++i) out.push_back(messages->NewOutgoing());
  ReturnOneOfEachSlabLast(Take(*pool, 60 * kSlab / (4 * kKiB), 4 * kKiB));
  out.clear();
  cache.Leave();
  for (int i = 0; i < 3; ++i) {
    pool->GiveBackIdle();
    cache.Enter();
    cache.Leave();
  }
  EXPECT_EQ(pool->stats().mapped_bytes, kSlab);
}

TEST(PoolMemoryTest, APollerThatSleepsGivesBackWhatItKeeps) {
  RuntimeOptions options;
  options.pool.idle = absl::Milliseconds(2);
  std::shared_ptr<Runtime> runtime = *Runtime::CreateOn(NewTestFabric(), options, /*start_threads=*/true);
  runtime->poller(0).AddAsyncInterest(1);
  runtime->poller(0).Run(
      [&] { ReturnOneOfEachSlabLast(Take(runtime->buffers(), 60 * kSlab / (4 * kKiB), 4 * kKiB)); });
  EXPECT_TRUE(Eventually([&] { return runtime->buffers().stats().mapped_bytes <= kSlab; }));
}

}  // namespace
}  // namespace hawser::transport
