#include "hawser/transport/memory/region_hints.h"

#include <atomic>
#include <cstdint>
#include <thread>

#include "gtest/gtest.h"

namespace hawser::transport {
namespace {

constexpr size_t kMiB = 1 << 20;

const uint8_t* At(uint64_t address) { return reinterpret_cast<const uint8_t*>(address); }

TEST(RegionHintsTest, ARangeIsFoundInTheRegionThatHoldsAllOfIt) {
  RegionHints hints;
  EXPECT_EQ(hints.Find(At(4 * kMiB), 1), 0u);
  hints.Note(At(4 * kMiB), At(4 * kMiB), 2 * kMiB, 7);
  EXPECT_EQ(hints.Find(At(4 * kMiB), 2 * kMiB), 7u);
  EXPECT_EQ(hints.Find(At(6 * kMiB - 1), 1), 7u);
  EXPECT_EQ(hints.Find(At(6 * kMiB - 1), 2), 0u);
  EXPECT_EQ(hints.Find(At(4 * kMiB - 1), 2), 0u);
  EXPECT_EQ(hints.Find(At(4 * kMiB), UINT64_MAX), 0u);
}

TEST(RegionHintsTest, ARegionThatIsForgottenIsNotFoundInAnyOfItsParts) {
  RegionHints hints;
  for (uint64_t part = 4 * kMiB; part < 12 * kMiB; part += 2 * kMiB) {
    hints.Note(At(part), At(4 * kMiB), 8 * kMiB, 7);
  }
  hints.Note(At(12 * kMiB), At(12 * kMiB), 2 * kMiB, 8);
  hints.Forget(At(4 * kMiB));
  for (uint64_t part = 4 * kMiB; part < 12 * kMiB; part += kMiB) EXPECT_EQ(hints.Find(At(part), 1), 0u);
  EXPECT_EQ(hints.Find(At(12 * kMiB), 1), 8u);
}

// Two regions that share a hint replace each other, while another thread looks for memory of both.
TEST(RegionHintsTest, NoRegionIsFoundWithTheLkeyOfAnother) {
  RegionHints hints;
  const uint8_t* const one = At(16 * kMiB);
  const uint8_t* const other = At(64 * kMiB);
  std::atomic<bool> ends{false};
  std::thread finder([&] {
    while (!ends.load(std::memory_order_relaxed)) {
      const uint32_t of_one = hints.Find(one, kMiB), of_other = hints.Find(other, 2 * kMiB);
      EXPECT_TRUE(of_one == 0 || of_one == 1) << of_one;
      EXPECT_TRUE(of_other == 0 || of_other == 2) << of_other;
    }
  });
  for (int i = 0; i < 20000; ++i) {
    hints.Note(one, one, kMiB, 1);
    hints.Note(other, other, 2 * kMiB, 2);
    hints.Forget(other);
  }
  ends = true;
  finder.join();
}

}  // namespace
}  // namespace hawser::transport
