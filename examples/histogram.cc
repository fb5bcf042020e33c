#include "examples/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_format.h"

namespace examples {
namespace {

// Below 2^kSubBits ns each ns has a bucket. Above, the bits behind the leading one choose one of the
// 2^kSubBits buckets of a power of two.
constexpr int kSubBits = 6;
constexpr uint64_t kLimit = uint64_t{1} << 40;

size_t BucketOf(uint64_t ns) {
  if (ns < (1 << kSubBits)) return ns;
  int shift = std::bit_width(ns) - 1 - kSubBits;
  return (static_cast<size_t>(shift) << kSubBits) + (ns >> shift);
}

// The largest value of the bucket.
uint64_t UpperEnd(size_t bucket) {
  if (bucket < (1 << kSubBits)) return bucket;
  int shift = static_cast<int>(bucket >> kSubBits) - 1;
  uint64_t leading = bucket - (static_cast<uint64_t>(shift) << kSubBits);
  return ((leading + 1) << shift) - 1;
}

std::string Readable(absl::Duration latency) {
  double us = absl::ToDoubleMicroseconds(latency);
  return us < 10000 ? absl::StrFormat("%.1f us", us) : absl::StrFormat("%.1f ms", us / 1000);
}

}  // namespace

Histogram::Histogram() : buckets_(BucketOf(kLimit) + 1) {}

void Histogram::AddNs(int64_t latency_ns) {
  const uint64_t ns = std::max<int64_t>(latency_ns, 0);
  ++buckets_[BucketOf(std::min(ns, kLimit))];
  ++count_;
}

void Histogram::Merge(const Histogram& other) {
  for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
}

absl::Duration Histogram::Percentile(double percent) const {
  if (count_ == 0) return absl::ZeroDuration();
  uint64_t rank = std::clamp<uint64_t>(std::ceil(percent / 100 * count_), 1, count_);
  size_t bucket = 0;
  for (uint64_t seen = buckets_[0]; seen < rank; seen += buckets_[bucket]) ++bucket;
  return absl::Nanoseconds(UpperEnd(bucket));
}

std::vector<std::pair<absl::Duration, uint64_t>> Histogram::Counts() const {
  std::vector<std::pair<absl::Duration, uint64_t>> counts;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i] > 0) counts.emplace_back(absl::Nanoseconds(UpperEnd(i)), buckets_[i]);
  }
  return counts;
}

std::string Histogram::ToString() const {
  return absl::StrFormat("p50 %s, p99 %s, p99.9 %s", Readable(Percentile(50)), Readable(Percentile(99)),
                         Readable(Percentile(99.9)));
}

}  // namespace examples
