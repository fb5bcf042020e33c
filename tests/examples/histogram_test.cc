#include "examples/histogram.h"

#include "gtest/gtest.h"

namespace examples {
namespace {

TEST(HistogramTest, PercentilesAreAtMostTwoPercentTooHigh) {
  Histogram histogram;
  for (int i = 1; i <= 100000; ++i) histogram.Add(absl::Nanoseconds(100 * i));
  for (double percent : {0.1, 1.0, 50.0, 99.0, 99.9, 100.0}) {
    double exact_ns = percent / 100 * 100 * 100000;
    double ns = absl::ToDoubleNanoseconds(histogram.Percentile(percent));
    EXPECT_GE(ns, exact_ns * 0.9999) << percent;
    EXPECT_LE(ns, exact_ns * 1.02) << percent;
  }
}

TEST(HistogramTest, EverySmallValueIsExact) {
  for (int ns = 0; ns < 64; ++ns) {
    Histogram histogram;
    histogram.Add(absl::Nanoseconds(ns));
    EXPECT_EQ(histogram.Percentile(50), absl::Nanoseconds(ns));
  }
}

TEST(HistogramTest, NothingBreaksAtTheEnds) {
  Histogram histogram;
  EXPECT_EQ(histogram.Percentile(50), absl::ZeroDuration());
  histogram.Add(absl::Seconds(-1));
  histogram.Add(absl::InfiniteDuration());
  EXPECT_EQ(histogram.Percentile(0), absl::ZeroDuration());
  EXPECT_GE(histogram.Percentile(100), absl::Minutes(18));
}

TEST(HistogramTest, CountsAreInOrderAndLeaveEmptyBucketsOut) {
  Histogram histogram;
  histogram.Add(absl::Nanoseconds(7));
  histogram.Add(absl::Nanoseconds(5));
  histogram.Add(absl::Nanoseconds(7));
  using Counts = std::vector<std::pair<absl::Duration, uint64_t>>;
  EXPECT_EQ(histogram.Counts(), (Counts{{absl::Nanoseconds(5), 1}, {absl::Nanoseconds(7), 2}}));
}

TEST(HistogramTest, MergedIsAsIfAllHadBeenAddedToOne) {
  Histogram one, other;
  for (int i = 0; i < 90; ++i) one.Add(absl::Microseconds(1));
  for (int i = 0; i < 10; ++i) other.Add(absl::Milliseconds(20));
  one.Merge(other);
  EXPECT_EQ(one.count(), 100u);
  EXPECT_EQ(one.ToString(), "p50 1.0 us, p99 20.2 ms, p99.9 20.2 ms");
}

}  // namespace
}  // namespace examples
