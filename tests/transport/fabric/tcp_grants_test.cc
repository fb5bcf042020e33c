#include <unordered_set>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/transport/fabric/tcp/grants.h"

namespace hawser::fabric {
namespace {

class GrantTableTest : public testing::Test {
 protected:
  uint32_t Grant(uint8_t* address) { return table_.Add({address, 8, 1}, QueuePair::Access::kRead); }
  bool Allows(uint32_t rkey, const uint8_t* address) const {
    return table_.Allows(rkey, reinterpret_cast<uint64_t>(address), 8, QueuePair::Access::kRead);
  }

  GrantTable table_{7};
  uint8_t memory_[1 << 17];
};

// A reply of a hundred KiB has some five segments, and each of 32 slots may hold one.
TEST_F(GrantTableTest, ManyGrantsHoldAtOnceAndEachIsItsOwn) {
  constexpr int kGrants = 5000;
  std::vector<uint32_t> rkeys;
  for (int i = 0; i < kGrants; ++i) rkeys.push_back(Grant(memory_ + 8 * i));
  EXPECT_EQ(std::unordered_set<uint32_t>(rkeys.begin(), rkeys.end()).size(), rkeys.size());
  for (int i = 0; i < kGrants; ++i) {
    EXPECT_TRUE(Allows(rkeys[i], memory_ + 8 * i));
    EXPECT_FALSE(Allows(rkeys[i], memory_ + 8 * (i + 1)));
  }
}

TEST_F(GrantTableTest, AFullTableGrantsNothingMoreUntilOneIsRemoved) {
  std::vector<uint32_t> rkeys;
  for (uint32_t i = 0; i < GrantTable::kGrantsMax; ++i) {
    rkeys.push_back(Grant(memory_));
    ASSERT_NE(rkeys.back(), 0u);
  }
  EXPECT_EQ(Grant(memory_), 0u);
  EXPECT_TRUE(table_.Remove(rkeys[1234]));
  const uint32_t rkey = Grant(memory_);
  EXPECT_TRUE(Allows(rkey, memory_));
  EXPECT_NE(rkey, rkeys[1234]);
  EXPECT_EQ(Grant(memory_), 0u);
}

TEST_F(GrantTableTest, ARemovedGrantAllowsNothingThoughItsPlaceIsUsedAgain) {
  const uint32_t removed = Grant(memory_);
  EXPECT_TRUE(table_.Remove(removed));
  EXPECT_FALSE(table_.Remove(removed));
  const uint32_t rkey = Grant(memory_);
  EXPECT_FALSE(Allows(removed, memory_));
  EXPECT_TRUE(Allows(rkey, memory_));
}

TEST_F(GrantTableTest, AnRkeyThatWasNeverGivenOutAllowsNothing) {
  EXPECT_FALSE(Allows(0, memory_));
  Grant(memory_);
  for (uint32_t rkey = 0; rkey < 16; ++rkey) EXPECT_FALSE(Allows(rkey << 16 | 1, memory_));
}

}  // namespace
}  // namespace hawser::fabric
