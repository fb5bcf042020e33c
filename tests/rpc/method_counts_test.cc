// Which calls are the slowest of late.

#include "hawser/rpc/serving/method_counts.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hawser::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kSecondNs = 1'000'000'000;

// The slowest calls of a poller. Times are seconds.
class SlowCallsTest : public ::testing::Test {
 protected:
  // A call that took `took` ends now.
  bool Ends(int64_t took) {
    const bool wanted = calls_.Wants(took * kSecondNs, now_ * kSecondNs);
    if (wanted) calls_.Add({.method = "m", .all_ns = took * kSecondNs}, now_ * kSecondNs);
    return wanted;
  }
  // The slowest first.
  std::vector<int64_t> Slowest() {
    std::vector<int64_t> times;
    for (const SlowCalls::Call& call : calls_.Take(now_ * kSecondNs))
      times.push_back(call.all_ns / kSecondNs);
    std::sort(times.begin(), times.end(), std::greater<>());
    return times;
  }

  int64_t now_ = 1000;
  SlowCalls calls_;
};

TEST_F(SlowCallsTest, TheEightSlowestOfAMinuteAreKept) {
  for (int64_t i = 1; i <= 20; ++i) EXPECT_TRUE(Ends(i));
  EXPECT_FALSE(Ends(13)) << "no longer than the eighth";
  EXPECT_FALSE(Ends(5));
  EXPECT_THAT(Slowest(), ElementsAre(20, 19, 18, 17, 16, 15, 14, 13));
}

TEST_F(SlowCallsTest, ThoseOfTheMinuteBeforeAreKeptAndOlderOnesAreNot) {
  Ends(3);
  now_ += 60;
  Ends(2);
  EXPECT_THAT(Slowest(), ElementsAre(3, 2));
  now_ += 60;
  EXPECT_THAT(Slowest(), ElementsAre(2));
  now_ += 60;
  EXPECT_THAT(Slowest(), IsEmpty());
}

// Nothing takes them for hours where no page is served and no client asks.
TEST_F(SlowCallsTest, AfterAMinuteOfVerySlowCallsLessSlowOnesAreWantedWithoutATake) {
  for (int i = 0; i < 8; ++i) Ends(50);
  now_ += 59;
  EXPECT_FALSE(Ends(2)) << "eight of this minute were slower";
  now_ += 3600;
  EXPECT_TRUE(Ends(2));
  EXPECT_TRUE(Ends(1));
  EXPECT_THAT(Slowest(), ElementsAre(2, 1)) << "those of an hour ago are not of late";
}

TEST_F(SlowCallsTest, ATakeEndsAMinuteToo) {
  for (int i = 0; i < 8; ++i) Ends(50);
  now_ += 60;
  EXPECT_EQ(Slowest().size(), 8u);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Ends(1));
  EXPECT_FALSE(Ends(1));
  EXPECT_EQ(Slowest().size(), 16u);
}

}  // namespace
}  // namespace hawser::internal
