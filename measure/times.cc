#include "hawser/measure/times.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace hawser::measure {
namespace {

// Times below kParts ns have a bucket each. Above, the leading kPartBits + 1 bits choose one.
constexpr int kPartBits = 8;
constexpr uint64_t kParts = 1 << kPartBits;

size_t BucketOf(uint64_t ns) {
  if (ns < kParts) return ns;
  const int shift = std::bit_width(ns) - kPartBits - 1;
  return static_cast<size_t>(shift) * kParts + (ns >> shift);
}

constexpr size_t kBuckets = (64 - kPartBits) * kParts;

// The middle of it.
double NsOf(size_t bucket) {
  if (bucket < 2 * kParts) return static_cast<double>(bucket);
  const size_t shift = bucket / kParts - 1;
  return std::ldexp(static_cast<double>(bucket - shift * kParts) + 0.5, static_cast<int>(shift));
}

}  // namespace

Times::Times() : counts_(kBuckets) {}

void Times::Add(int64_t ns) {
  ns = std::max<int64_t>(ns, 0);
  ++counts_[BucketOf(static_cast<uint64_t>(ns))];
  min_ns_ = count_ == 0 ? ns : std::min(min_ns_, ns);
  max_ns_ = std::max(max_ns_, ns);
  sum_ns_ += static_cast<double>(ns);
  ++count_;
}

double Times::mean_us() const { return count_ == 0 ? 0 : sum_ns_ / static_cast<double>(count_) / 1e3; }
double Times::min_us() const { return static_cast<double>(min_ns_) / 1e3; }
double Times::max_us() const { return static_cast<double>(max_ns_) / 1e3; }

double Times::quantile_us(double share) const {
  const auto rank = static_cast<uint64_t>(std::max(std::ceil(share * static_cast<double>(count_)), 1.0));
  if (rank >= count_) return max_us();
  uint64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen < rank) continue;
    return std::clamp(NsOf(i), static_cast<double>(min_ns_), static_cast<double>(max_ns_)) / 1e3;
  }
  return 0;
}

}  // namespace hawser::measure
