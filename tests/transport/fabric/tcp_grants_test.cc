#include <cstdint>
#include <unordered_set>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/transport/fabric/tcp/grants.h"

namespace hawser::fabric {
namespace {

constexpr QueuePair::Access kRead = QueuePair::Access::kRead;
constexpr QueuePair::Access kWrite = QueuePair::Access::kWrite;

class GrantTableTest : public testing::Test {
 protected:
  Granted Grant(uint8_t* address) { return table_.Add({address, 8, 1}, kRead); }
  const uint8_t* Resolve(const Granted& granted) const {
    return table_.Resolve(granted.rkey, granted.address, 8, kRead);
  }

  GrantTable table_{7};
  uint8_t memory_[1 << 17];
};

// A reply of a hundred KiB has some five segments, and each of 32 slots may hold one.
TEST_F(GrantTableTest, ManyGrantsHoldAtOnceAndEachIsItsOwn) {
  constexpr int kGrants = 5000;
  std::vector<Granted> grants;
  std::unordered_set<uint32_t> rkeys;
  for (int i = 0; i < kGrants; ++i) {
    grants.push_back(Grant(memory_ + 8 * i));
    rkeys.insert(grants.back().rkey);
  }
  EXPECT_EQ(rkeys.size(), grants.size());
  for (int i = 0; i < kGrants; ++i) {
    EXPECT_EQ(Resolve(grants[i]), memory_ + 8 * i);
    EXPECT_EQ(Resolve({grants[(i + 1) % kGrants].address, grants[i].rkey}), nullptr);
  }
}

TEST_F(GrantTableTest, AFullTableGrantsNothingMoreUntilOneIsRemoved) {
  std::vector<uint32_t> rkeys;
  for (uint32_t i = 0; i < GrantTable::kGrantsMax; ++i) {
    rkeys.push_back(Grant(memory_).rkey);
    ASSERT_NE(rkeys.back(), 0u);
  }
  EXPECT_EQ(Grant(memory_).rkey, 0u);
  EXPECT_TRUE(table_.Remove(rkeys[1234]));
  const Granted granted = Grant(memory_);
  EXPECT_EQ(Resolve(granted), memory_);
  EXPECT_NE(granted.rkey, rkeys[1234]);
  EXPECT_EQ(Grant(memory_).rkey, 0u);
}

TEST_F(GrantTableTest, ARemovedGrantAllowsNothingThoughItsPlaceIsUsedAgain) {
  const Granted removed = Grant(memory_);
  EXPECT_TRUE(table_.Remove(removed.rkey));
  EXPECT_FALSE(table_.Remove(removed.rkey));
  const Granted granted = Grant(memory_);
  EXPECT_EQ(Resolve(removed), nullptr);
  EXPECT_EQ(Resolve({granted.address, removed.rkey}), nullptr);
  EXPECT_EQ(Resolve(granted), memory_);
}

TEST_F(GrantTableTest, AnRkeyThatWasNeverGivenOutAllowsNothing) {
  EXPECT_EQ(Resolve({0, 0}), nullptr);
  const uint64_t address = Grant(memory_).address;
  for (uint32_t generation = 0; generation < 16; ++generation) {
    const uint32_t rkey = generation << 16 | 1;
    EXPECT_EQ(Resolve({address, rkey}), nullptr);
    EXPECT_EQ(Resolve({uint64_t{rkey} << 32, rkey}), nullptr);
  }
}

// Whatever the peer says: the sum of address and length may wrap.
TEST_F(GrantTableTest, OnlyAWholeRangeWithinTheGrantIsResolved) {
  constexpr uint32_t kBytes = 1000;
  const Granted granted = table_.Add({memory_, kBytes, 1}, kRead);
  const auto resolve = [&](uint64_t offset, uint64_t length) {
    return table_.Resolve(granted.rkey, granted.address + offset, length, kRead);
  };
  EXPECT_EQ(resolve(0, kBytes), memory_);
  EXPECT_EQ(resolve(kBytes - 1, 1), memory_ + kBytes - 1);
  constexpr uint64_t kMax = ~uint64_t{0};
  const struct {
    uint64_t offset, length;
  } bad[] = {
      {0, 0},
      {0, kBytes + 1},
      {1, kBytes},
      {kBytes, 1},
      {kBytes, kMax},
      {kBytes - 1, 2},
      {0, kMax},
      {1, kMax},
      {kMax, 1},
      {kMax, 2},
      {kMax - 999, 2000},
      {uint64_t{1} << 32, 1},
      {uint64_t{1} << 63, 1},
      {kMax - granted.address, 2},
  };
  for (const auto& [offset, length] : bad)
    EXPECT_EQ(resolve(offset, length), nullptr) << offset << "+" << length;
  EXPECT_EQ(table_.Resolve(granted.rkey, reinterpret_cast<uint64_t>(memory_), 1, kRead), nullptr);
  EXPECT_EQ(table_.Resolve(granted.rkey, granted.address, 1, kWrite), nullptr);
}

// A peer must not learn where the memory of this process is.
TEST_F(GrantTableTest, AddressesComeFromRkeysAlone) {
  static uint8_t elsewhere[64];
  GrantTable table(7), same(7);
  for (int i = 0; i < 100; ++i) {
    const Granted one = table.Add({memory_ + 64 * i, 64, 1}, kRead);
    const Granted other = same.Add({elsewhere, 8, 1}, kWrite);
    EXPECT_EQ(one.rkey, other.rkey);
    EXPECT_EQ(one.address, other.address);
    EXPECT_EQ(one.address, uint64_t{one.rkey} << 32);  // As rpc/PROTOCOL.md says.
  }
}

}  // namespace
}  // namespace hawser::fabric
