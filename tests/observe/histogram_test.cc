#include "hawser/observe/histogram.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace hawser::observe {
namespace {

TEST(HistogramTest, EachLengthIsInTheBucketWhoseBoundIsTheNextOne) {
  for (size_t bucket = 0; bucket + 1 < Histogram::kBuckets; ++bucket) {
    const int64_t bound_ns = Histogram::BoundNs(bucket);
    EXPECT_EQ(Histogram::BucketOf(bound_ns - 1), bucket);
    EXPECT_EQ(Histogram::BucketOf(bound_ns), bucket + 1);
    EXPECT_LT(bound_ns, Histogram::BoundNs(bucket + 1));
  }
  EXPECT_EQ(Histogram::BucketOf(0), 0u);
  EXPECT_EQ(Histogram::BucketOf(INT64_MAX), Histogram::kBuckets - 1);
}

TEST(HistogramTest, TheLastBucketHasAllThatIsBeyondTheLastBound) {
  Histogram histogram;
  for (const int64_t ns : {Histogram::BoundNs(Histogram::kBuckets - 2), int64_t{1} << 50, INT64_MAX})
    histogram.Add(ns);
  EXPECT_EQ(histogram.count(Histogram::kBuckets - 1), 3u);
  HistogramTotals totals;
  totals.Add(histogram);
  EXPECT_EQ(totals.count(), 3u);
}

TEST(HistogramTest, ABucketIsAQuarterWideAtMost) {
  for (size_t bucket = 1; bucket + 2 < Histogram::kBuckets; ++bucket) {
    const auto low = static_cast<double>(Histogram::BoundNs(bucket - 1));
    EXPECT_LE(static_cast<double>(Histogram::BoundNs(bucket)) / low, 1.25 + 1e-9) << bucket;
  }
}

TEST(HistogramTest, APercentileIsAnEighthOffAtMost) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> lengths(std::log(50'000.0), 1.5);
  Histogram histogram;
  std::vector<int64_t> exact;
  for (int i = 0; i < 100'000; ++i) {
    exact.push_back(static_cast<int64_t>(lengths(random)) + 5000);
    histogram.Add(exact.back());
  }
  std::sort(exact.begin(), exact.end());
  HistogramTotals totals;
  totals.Add(histogram);
  EXPECT_EQ(totals.count(), exact.size());
  std::vector<int64_t> bounds;
  for (size_t i = 0; i < Histogram::kBuckets; ++i) bounds.push_back(Histogram::BoundNs(i));
  for (double percent : {1.0, 50.0, 90.0, 99.0, 99.9}) {
    const auto wanted = static_cast<double>(exact[static_cast<size_t>(percent / 100 * (exact.size() - 1))]);
    EXPECT_NEAR(static_cast<double>(PercentileNs(bounds, totals.counts, percent)), wanted, wanted * 0.13)
        << percent;
  }
}

TEST(HistogramTest, HistogramsAddUp) {
  Histogram a, b;
  a.Add(5000);
  b.Add(5000);
  b.Add(7'000'000);
  HistogramTotals totals;
  totals.Add(a);
  totals.Add(b);
  EXPECT_EQ(totals.count(), 3u);
  EXPECT_EQ(totals.counts[Histogram::BucketOf(5000)], 2u);
  EXPECT_EQ(totals.sum_ns, 7'010'000u);
}

TEST(HistogramTest, WithoutLengthsThereIsNoPercentile) {
  const std::vector<int64_t> bounds = {10, 20};
  EXPECT_EQ(PercentileNs(bounds, std::vector<uint64_t>{0, 0}, 50), 0);
}

}  // namespace
}  // namespace hawser::observe
