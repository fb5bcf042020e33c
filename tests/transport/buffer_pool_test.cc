#include "hawser/transport/memory/buffer_pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/spy_fabric.h"
#include "hawser/transport/memory/retired_memory.h"

namespace hawser::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kKiB = 1 << 10;
constexpr size_t kMiB = 1 << 20;
constexpr size_t kGiB = 1 << 30;
constexpr size_t kSlab = 2 * kMiB;

std::shared_ptr<fabric::Fabric> NewFabric() { return NewTestFabric(); }

Lease Acquire(BufferPool& pool, size_t size_bytes) {
  absl::StatusOr<Lease> lease = pool.Acquire(size_bytes);
  EXPECT_THAT(lease, IsOk());
  return lease.ok() ? *std::move(lease) : Lease();
}

TEST(BufferPoolTest, NothingIsMappedBeforeItIsWanted) {
  BufferPool pool(NewFabric());
  EXPECT_EQ(pool.stats().mapped_bytes, 0u);
  EXPECT_EQ(pool.stats().registrations, 0u);
}

size_t MostFor(size_t size) { return std::max<size_t>(1024, size + size / 4 + 512); }

TEST(BufferPoolTest, ABufferTakesAtMostAQuarterMoreAnd512) {
  for (size_t size = 1; size <= kGiB; size += 1 + size / 64) {
    const size_t capacity = BufferPool::CapacityOf(size);
    EXPECT_GE(capacity, size);
    EXPECT_LE(capacity, MostFor(size)) << "for " << size;
  }
  for (size_t size = kKiB; size <= kGiB; size = BufferPool::CapacityOf(size) + 1) {
    EXPECT_LE(BufferPool::CapacityOf(size), MostFor(size)) << "for " << size;
  }
}

TEST(BufferPoolTest, ALargePageHasFourKiBForWhatComesWithIt) {
  for (size_t page = 512 * kKiB; page < 16 * kGiB; page *= 2) {
    EXPECT_EQ(BufferPool::CapacityOf(page), page);
    for (size_t beside : {size_t{1}, 4 * kKiB}) {
      EXPECT_EQ(BufferPool::CapacityOf(page + beside), page + 4 * kKiB);
    }
    EXPECT_EQ(BufferPool::CapacityOf(page + 4 * kKiB + 1), page + page / 4);
  }
}

// With what is left over where a slab is divided. Of each class, the buffers for the size that suits it
// least.
TEST(BufferPoolTest, ManyBuffersTakeAtMostAQuarterMoreAnd512Each) {
  for (size_t size = 1; size < kMiB; size = BufferPool::CapacityOf(size) + 1) {
    const std::shared_ptr<fabric::Fabric> fabric = NewFabric();
    BufferPool pool(fabric);
    std::vector<Lease> leases;
    for (int i = 0; i < 500; ++i) leases.push_back(Acquire(pool, size));
    // Where the device pins memory the next slab of a class may have a quarter of what the class has.
    const size_t next_slab = fabric->pins_memory() ? std::max(kSlab, 500 * MostFor(size) / 4) : kSlab;
    EXPECT_LE(pool.stats().mapped_bytes, 500 * MostFor(size) + next_slab) << "for " << size;
    for (const Lease& lease : leases) EXPECT_EQ(reinterpret_cast<uintptr_t>(lease.data()) % 64, 0u);
  }
}

TEST(BufferPoolTest, ABufferOfASmallClassTakesAPartOfASlabFromTheOthers) {
  BufferPool pool(NewFabric(), {.limit_bytes = kSlab});
  std::vector<Lease> leases;
  for (size_t size = 1; leases.size() < 8; size = BufferPool::CapacityOf(size) + 1) {
    leases.push_back(Acquire(pool, size));
    EXPECT_EQ(leases.back().size_bytes(), BufferPool::CapacityOf(size));
    memset(leases.back().data(), static_cast<int>(leases.size()), leases.back().size_bytes());
  }
  EXPECT_EQ(pool.stats().mapped_bytes, kSlab);
  for (size_t i = 0; i < leases.size(); ++i) {
    EXPECT_EQ(leases[i].data()[0], i + 1);
    EXPECT_EQ(leases[i].data()[leases[i].size_bytes() - 1], i + 1);
  }
  EXPECT_THAT(pool.Acquire(50 * kKiB), Not(IsOk())) << "each part has another class";
  leases.erase(leases.begin());
  const Lease other = Acquire(pool, 50 * kKiB);  // In the part that is free now.
  EXPECT_EQ(other.size_bytes(), BufferPool::CapacityOf(50 * kKiB));
  leases.clear();
  EXPECT_THAT(pool.Acquire(kSlab), Not(IsOk()));
}

TEST(BufferPoolTest, AReturnedBufferIsOverwrittenAtBothEnds) {
  if (!kOverwritesRetiredMemory || kPoisonsRetiredMemory)
    GTEST_SKIP() << "of debug builds, where it can be read";
  BufferPool pool(NewFabric());
  for (size_t size : {kKiB, 4 * kKiB, kMiB}) {
    Lease lease = Acquire(pool, size);
    const uint8_t* const data = lease.data();
    const size_t size_bytes = lease.size_bytes();
    memset(lease.data(), 7, size_bytes);
    lease = Lease();
    for (size_t i = 0; i < size_bytes; ++i) {
      const bool inside = i >= kOverwrittenMax && i < size_bytes - kOverwrittenMax;
      ASSERT_EQ(data[i], inside ? 7 : kRetiredByte) << "byte " << i << " of " << size_bytes;
    }
  }
}

// The VmFlags (proc(5)) of the mapping that contains `address`: "rd wr ... hg"; "" if there is none.
std::string VmFlags(const uint8_t* address) {
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    if (sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(address);
      inside = begin <= at && at < end;
    }
    if (inside && line.rfind("VmFlags:", 0) == 0) return line + " ";
  }
  return "";
}

TEST(BufferPoolTest, SlabsAskForHugePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) GTEST_SKIP() << "the kernel has none";
  BufferPool pool(NewFabric());
  const Lease small = Acquire(pool, 1), large = Acquire(pool, 8 * kMiB);
  for (const uint8_t* address : {small.data(), large.data(), large.data() + 8 * kMiB - 1}) {
    EXPECT_THAT(VmFlags(address), HasSubstr(" hg "));  // MADV_HUGEPAGE
  }
}

// The preferred NUMA node of the memory at `address`; -1: any node; nullopt: the kernel does not report it.
std::optional<int> PreferredNode(uint8_t* address) {
  constexpr int kDefault = 0, kPreferred = 1;  // MPOL_DEFAULT, MPOL_PREFERRED
  constexpr unsigned long kOfAddress = 2;      // MPOL_F_ADDR
  int policy = -1;
  unsigned long nodes[16] = {};
  if (syscall(SYS_get_mempolicy, &policy, nodes, 8 * sizeof(nodes), address, kOfAddress) != 0) return {};
  if (policy == kDefault) return -1;
  EXPECT_EQ(policy, kPreferred);
  return std::countr_zero(nodes[0]);
}

TEST(BufferPoolTest, MemoryIsNearTheDevice) {
  auto fabric = std::make_shared<SpyFabric>(NewFabric());
  fabric->SetNumaNode(0);  // Every machine has node 0.
  BufferPool near(fabric);
  if (!PreferredNode(Acquire(near, 1).data()).has_value()) GTEST_SKIP() << "no NUMA in this kernel";
  EXPECT_EQ(PreferredNode(Acquire(near, 1).data()), 0);
  EXPECT_EQ(PreferredNode(Acquire(near, 8 * kMiB).data() + 8 * kMiB - 1), 0);

  fabric->SetNumaNode(-1);
  BufferPool anywhere(fabric);
  EXPECT_EQ(PreferredNode(Acquire(anywhere, 1).data()), -1);
}

TEST(BufferPoolTest, MemoryOfANodeThatIsNotThereIsOfAnyOther) {
  auto fabric = std::make_shared<SpyFabric>(NewFabric());
  for (int node : {900, 100000}) {
    fabric->SetNumaNode(node);
    BufferPool pool(fabric);
    EXPECT_GE(Acquire(pool, 1).size_bytes(), 1u);
  }
}

TEST(BufferPoolTest, BuffersAreAlignedWritableAndApart) {
  BufferPool pool(NewFabric());
  std::vector<Lease> leases;
  for (int i = 0; i < 700; ++i) {
    leases.push_back(Acquire(pool, i % 7 == 0 ? 300 * kKiB : 1000 * (1 + i % 20)));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(leases.back().data()) % 64, 0u);
    memset(leases.back().data(), i, leases.back().size_bytes());
  }
  for (int i = 0; i < 700; ++i) {
    EXPECT_EQ(leases[i].data()[0], static_cast<uint8_t>(i));
    EXPECT_EQ(leases[i].data()[leases[i].size_bytes() - 1], static_cast<uint8_t>(i));
  }
}

TEST(BufferPoolTest, ABufferLiesInTheRegionOfItsLkey) {
  BufferPool pool(NewFabric());
  for (size_t size : {size_t{1000}, kMiB}) {
    const Lease lease = Acquire(pool, size);
    EXPECT_EQ(pool.FindRegion(lease.data(), lease.size_bytes()), lease.lkey());
    EXPECT_NE(lease.lkey(), 0u);
  }
}

TEST(BufferPoolTest, WhatLiesInNoRegionOrReachesOutOfOneIsNotFound) {
  BufferPool pool(NewFabric());
  uint8_t mine[64];
  EXPECT_EQ(pool.FindRegion(mine, sizeof(mine)), 0u);
  const Lease lease = Acquire(pool, kMiB);
  EXPECT_EQ(pool.FindRegion(lease.data(), lease.size_bytes() + 1), 0u);
  EXPECT_EQ(pool.FindRegion(lease.data() - 1, 1), 0u);
}

TEST(BufferPoolTest, MemoryThatWasUnmappedIsNotFoundAgain) {
  BufferPool pool(NewFabric(), {.limit_bytes = 8 * kMiB});
  Lease lease = Acquire(pool, 5 * kMiB);
  const uint8_t* const address = lease.data();
  EXPECT_EQ(pool.FindRegion(address, 1), lease.lkey());
  EXPECT_EQ(pool.FindRegion(address + 4 * kMiB, kMiB), lease.lkey());
  lease = Lease();
  const Lease other = Acquire(pool, 6 * kMiB);  // For which there is room once that is unmapped.
  EXPECT_EQ(pool.FindRegion(other.data(), 6 * kMiB), other.lkey());
  for (size_t at = 0; at < 5 * kMiB; at += kMiB) {
    const uint8_t* const was = address + at;
    const bool is_mapped_anew = was >= other.data() && was < other.data() + other.size_bytes();
    EXPECT_EQ(pool.FindRegion(was, 1), is_mapped_anew ? other.lkey() : 0u);
  }
}

TEST(BufferPoolTest, AReturnedBufferIsUsedAgainWithoutRegistration) {
  BufferPool pool(NewFabric());
  for (size_t size : {size_t{1}, size_t{4000}, 200 * kKiB, 5 * kMiB}) {
    Acquire(pool, size);
    const uint64_t registrations = pool.stats().registrations;
    const uint8_t* const where = Acquire(pool, size).data();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(Acquire(pool, size).data(), where);
    EXPECT_EQ(pool.stats().registrations, registrations);
  }
}

TEST(BufferPoolTest, SmallBuffersOfOneClassShareARegistration) {
  BufferPool pool(NewFabric());
  std::vector<Lease> leases;
  for (size_t i = 0; i < kSlab / 4096; ++i) leases.push_back(Acquire(pool, 4096));
  EXPECT_EQ(pool.stats().registrations, 1u);
  leases.push_back(Acquire(pool, 4096));
  EXPECT_EQ(pool.stats().registrations, 2u);
  EXPECT_EQ(pool.stats().leases, leases.size());
  EXPECT_EQ(pool.stats().leased_bytes, leases.size() * 4096);
  leases.clear();
  EXPECT_EQ(pool.stats().leases, 0u);
  EXPECT_EQ(pool.stats().leased_bytes, 0u);
  EXPECT_EQ(pool.stats().mapped_bytes, 2 * kSlab) << "slabs stay for a while";
}

TEST(BufferPoolTest, AtItsLimitItSaysHowMuchIsInUseAndWhatToDo) {
  BufferPool pool(NewFabric(), {.limit_bytes = kSlab});
  std::vector<Lease> leases;
  for (size_t i = 0; i < kSlab / 4096; ++i) leases.push_back(Acquire(pool, 4096));
  const absl::Status full = pool.Acquire(4096).status();
  EXPECT_THAT(full, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(full.message()),
              AllOf(HasSubstr("2097152 of 2097152"), HasSubstr("BufferPoolOptions::limit_bytes")));
  EXPECT_EQ(pool.stats().leases, leases.size()) << "the failed one counts";
  leases.pop_back();
  EXPECT_THAT(pool.Acquire(4096), IsOk());
}

TEST(BufferPoolTest, WhatCanNeverBeHeldIsRefusedAsSuch) {
  BufferPool pool(NewFabric(), {.limit_bytes = 4 * kMiB});
  EXPECT_TRUE(pool.CanEverHold(1));
  EXPECT_TRUE(pool.CanEverHold(4 * kMiB));
  for (size_t size : {4 * kMiB + 1, size_t{1} << 40, SIZE_MAX}) {
    EXPECT_FALSE(pool.CanEverHold(size));
    const absl::Status refused = pool.Acquire(size).status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("cannot hold"));
  }
  EXPECT_FALSE(BufferPool(NewFabric(), {.limit_bytes = kMiB}).CanEverHold(1)) << "a slab is larger";
}

TEST(BufferPoolTest, LargeBuffersThatNobodyHasMakeRoomForOthers) {
  BufferPool pool(NewFabric(), {.limit_bytes = 16 * kMiB});
  for (size_t mib : {3, 5, 7}) Acquire(pool, mib * kMiB);
  EXPECT_EQ(pool.stats().mapped_bytes, 15 * kMiB);
  const Lease large = Acquire(pool, 14 * kMiB);
  EXPECT_TRUE(large);
  EXPECT_LE(pool.stats().mapped_bytes, 16 * kMiB);
  EXPECT_EQ(pool.FindRegion(large.data(), large.size_bytes()), large.lkey());
}

TEST(BufferPoolTest, LargeBuffersThatSomebodyHasStay) {
  BufferPool pool(NewFabric(), {.limit_bytes = 16 * kMiB});
  const Lease held = Acquire(pool, 8 * kMiB);
  memset(held.data(), 7, held.size_bytes());
  EXPECT_THAT(pool.Acquire(10 * kMiB), Not(IsOk()));
  EXPECT_EQ(held.data()[held.size_bytes() - 1], 7);
}

TEST(BufferPoolTest, AFreeBufferOfALargerClassServesWhenThereIsNoOther) {
  BufferPool pool(NewFabric(), {.limit_bytes = kSlab});
  const Lease held = Acquire(pool, 64 * kKiB);  // The whole pool is one slab of these.
  const Lease small = Acquire(pool, 100);
  EXPECT_EQ(small.size_bytes(), 64 * kKiB);
  EXPECT_EQ(pool.stats().leased_bytes, 2 * 64 * kKiB);
}

TEST(BufferPoolTest, AFreeLargeBufferServesForHalfItsSizeAndNoLess) {
  for (size_t size : {kMiB, 896 * kKiB}) {
    BufferPool pool(NewFabric(), {.limit_bytes = 2 * kMiB + kMiB / 2});
    Acquire(pool, 2 * kMiB);
    EXPECT_EQ(Acquire(pool, size).size_bytes(), size == kMiB ? 2 * kMiB : size);
  }
}

TEST(BufferPoolTest, ALeaseOutlivesThePoolAndTheFabricsOwner) {
  Lease small, large;
  {
    BufferPool pool(NewFabric());
    small = Acquire(pool, 100);
    large = Acquire(pool, kMiB);
  }
  memset(small.data(), 1, small.size_bytes());
  memset(large.data(), 1, large.size_bytes());
}

TEST(BufferPoolTest, ALeaseThatWasMovedFromOwnsNothing) {
  BufferPool pool(NewFabric());
  Lease first = Acquire(pool, 100);
  Lease second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT: the test checks a moved-from lease.
  EXPECT_EQ(pool.stats().leases, 1u);
  second = Lease();
  EXPECT_EQ(pool.stats().leases, 0u);
}

TEST(BufferPoolTest, ThreadsMayTakeAndReturnAtOnce) {
  BufferPool pool(NewFabric(), {.limit_bytes = 64 * kMiB});
  std::vector<std::thread> threads;
  std::atomic<int> refused{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Lease> held;
      for (int i = 0; i < 2000; ++i) {
        const size_t size = (i + t) % 50 == 0 ? 3 * kMiB : 100u << ((i + t) % 8);
        absl::StatusOr<Lease> lease = pool.Acquire(size);
        if (!lease.ok()) {
          ++refused;
          held.clear();
          continue;
        }
        memset(lease->data(), t + 1, 64);
        held.push_back(*std::move(lease));
        if (held.size() > 10) {
          EXPECT_EQ(held.front().data()[63], t + 1) << "two threads have the same buffer";
          held.erase(held.begin());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.stats().leases, 0u);
  EXPECT_EQ(pool.stats().leased_bytes, 0u);
  EXPECT_LE(pool.stats().mapped_bytes, 64 * kMiB);
}

}  // namespace
}  // namespace hawser::transport
