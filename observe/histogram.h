#ifndef HAWSER_OBSERVE_HISTOGRAM_H_
#define HAWSER_OBSERVE_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "hawser/base/count.h"

namespace hawser::observe {

// How long things took: counts by length, in buckets that are a quarter of a power of two wide, so that a
// percentile read from them is at most an eighth off. The bounds are the same everywhere, so histograms of
// several threads and machines add up.
// Thread:  Add(): one at a time. The rest: any.
class Histogram {
 public:
  // Bucket i counts what is BoundNs(i - 1) or longer, and shorter than BoundNs(i). The last one has no bound.
  static constexpr size_t kBuckets = 108;
  // From 1024 ns to some 103 s; INT64_MAX for the last one.
  static constexpr int64_t BoundNs(size_t bucket) {
    if (bucket + 1 >= kBuckets) return INT64_MAX;
    if (bucket == 0) return kShortestNs;
    return static_cast<int64_t>(4 + (bucket - 1) % 4 + 1) << ((bucket - 1) / 4 + kOctaveOfShortest - 2);
  }
  // `ns` is not negative.
  static constexpr size_t BucketOf(int64_t ns) {
    const size_t place = PlaceOf(ns);
    return place < kPlacesOfShortest ? 0 : std::min(place - kPlacesOfShortest + 1, kBuckets - 1);
  }

  void Add(int64_t ns) {
    counts_[PlaceOf(ns)].Add();
    sum_ns_.Add(static_cast<uint64_t>(ns));
  }

  uint64_t count(size_t bucket) const {
    const size_t place = bucket + kPlacesOfShortest - 1;
    if (bucket == 0) return Sum(0, kPlacesOfShortest);
    return bucket + 1 < kBuckets ? counts_[place].value() : Sum(place, kPlaces);
  }
  uint64_t sum_ns() const { return sum_ns_.value(); }

 private:
  static constexpr int kOctaveOfShortest = 10;
  static constexpr int64_t kShortestNs = int64_t{1} << kOctaveOfShortest;
  // Add() compares with no bound, so there is a place for each length: four for 2^n to 2^(n + 1) ns, by the
  // two bits behind the highest one. One bit is always set, so that there are two behind it. It is so low
  // that it shows below kShortestNs only, where the places are one bucket.
  static constexpr int kLowestOctave = kOctaveOfShortest - 3;
  static constexpr size_t kPlacesOfShortest = size_t{kOctaveOfShortest - kLowestOctave} * 4;
  // The last four are for negative lengths, which there should not be: they must not be written elsewhere.
  static constexpr size_t kPlaces = size_t{64 - kLowestOctave} * 4;

  static constexpr size_t PlaceOf(int64_t ns) {
    const uint64_t length = static_cast<uint64_t>(ns) | uint64_t{1} << kLowestOctave;
    const uint64_t octave = 63U ^ static_cast<unsigned>(__builtin_clzll(length));
    return 4 * octave + (length >> (octave - 2)) - 4 * (kLowestOctave + 1);
  }

  uint64_t Sum(size_t from, size_t to) const {
    uint64_t sum = 0;
    for (size_t place = from; place < to; ++place) sum += counts_[place].value();
    return sum;
  }

  std::array<Count, kPlaces> counts_;
  Count sum_ns_;
};

// The sums of several histograms, at one moment. A value.
struct HistogramTotals {
  std::array<uint64_t, Histogram::kBuckets> counts = {};
  uint64_t sum_ns = 0;

  void Add(const Histogram& histogram) {
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += histogram.count(i);
    sum_ns += histogram.sum_ns();
  }
  uint64_t count() const {
    uint64_t all = 0;
    for (uint64_t each : counts) all += each;
    return all;
  }
};

// The length that `percent` (0 to 100) of all are not longer than, in the middle of its bucket. 0: there are
// none. `bounds_ns` and `counts`: of a Snapshot's histogram, as long as each other.
template <typename Bounds, typename Counts>
int64_t PercentileNs(const Bounds& bounds_ns, const Counts& counts, double percent) {
  uint64_t all = 0;
  for (uint64_t each : counts) all += each;
  if (all == 0) return 0;
  const double wanted = percent / 100 * static_cast<double>(all);
  uint64_t seen = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    seen += counts[i];
    if (counts[i] == 0 || static_cast<double>(seen) < wanted) continue;
    const int64_t low_ns = i == 0 ? 0 : bounds_ns[i - 1];
    return bounds_ns[i] == INT64_MAX ? low_ns : low_ns + (bounds_ns[i] - low_ns) / 2;
  }
  return bounds_ns[bounds_ns.size() - 1];
}

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_HISTOGRAM_H_
