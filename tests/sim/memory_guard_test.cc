#include "hawser/tests/sim/memory_guard.h"

#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hawser::sim {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr uint32_t kOwner = 1;

TEST(MemoryGuardTest, AWriteIntoWhatIsBeingSentIsFound) {
  MemoryGuard guard;
  std::vector<uint8_t> memory(100, 7);
  const MemoryGuard::Id clean = guard.WatchSource(memory.data(), 50, kOwner);
  const MemoryGuard::Id written = guard.WatchSource(memory.data() + 50, 50, kOwner);
  memory[99] = 8;
  EXPECT_EQ(guard.Release(clean), "");
  EXPECT_THAT(guard.Release(written), HasSubstr("sending from"));
}

TEST(MemoryGuardTest, AWriteIntoAPostedReceiveIsFoundAtItsByte) {
  MemoryGuard guard;
  std::vector<uint8_t> memory(100, 7);
  const MemoryGuard::Id id = guard.Poison(memory.data(), 100, kOwner);
  memory[42] = 7;
  EXPECT_THAT(guard.Release(id), HasSubstr("byte 42 of 100"));
}

TEST(MemoryGuardTest, WhatTheFabricDoesNotWriteIsAsBefore) {
  MemoryGuard guard;
  std::vector<uint8_t> memory(100, 7);
  const MemoryGuard::Id id = guard.Poison(memory.data(), 100, kOwner);
  EXPECT_THAT(memory, Each(::testing::Ne(7))) << "nobody can mistake it for a message";
  guard.FabricWrites(memory.data() + 10, reinterpret_cast<const uint8_t*>("abc"), 3, id);
  EXPECT_EQ(guard.Release(id), "");
  EXPECT_EQ(memory[9], 7);
  EXPECT_EQ(std::memcmp(memory.data() + 10, "abc", 3), 0);
  EXPECT_EQ(memory[13], 7);
}

TEST(MemoryGuardTest, WhatOverlapsIsNotWatchedTwice) {
  MemoryGuard guard;
  std::vector<uint8_t> memory(100);
  EXPECT_NE(guard.WatchSource(memory.data() + 20, 20, kOwner), 0u);
  EXPECT_EQ(guard.Poison(memory.data() + 39, 10, kOwner), 0u);
  EXPECT_EQ(guard.Poison(memory.data(), 21, kOwner), 0u);
  EXPECT_NE(guard.Poison(memory.data() + 40, 10, kOwner), 0u);
}

TEST(MemoryGuardTest, TheGuardsOfOneOwnerEndTogether) {
  MemoryGuard guard;
  std::vector<uint8_t> memory(100);
  guard.WatchSource(memory.data(), 10, kOwner);
  guard.Poison(memory.data() + 10, 10, kOwner);
  guard.WatchSource(memory.data() + 20, 10, kOwner + 1);
  guard.ReleaseAllOf(kOwner);
  EXPECT_EQ(guard.count(), 1u);
}

}  // namespace
}  // namespace hawser::sim
