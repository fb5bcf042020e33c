#ifndef EXAMPLES_HISTOGRAM_H_
#define EXAMPLES_HISTOGRAM_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace examples {

// The latencies of calls. Its memory is fixed, however many it counts. A bucket is 1/64 of a power of two
// wide, so a percentile is at most 1.6 % too high (the scheme of HdrHistogram).
// Thread: one at a time. Give each thread its own, and Merge() them.
class Histogram {
 public:
  Histogram();

  // From 0 to 2^40 ns (18 minutes). A larger latency counts as 2^40 ns.
  void Add(absl::Duration latency) { AddNs(absl::ToInt64Nanoseconds(latency)); }
  void AddNs(int64_t latency_ns);
  void Merge(const Histogram& other);

  uint64_t count() const { return count_; }

  // The latency that a share of `percent` of the calls did not exceed; zero if there are none. 0 to 100.
  absl::Duration Percentile(double percent) const;

  // The buckets that hold a latency, in order: the largest that belongs there, and how many do.
  std::vector<std::pair<absl::Duration, uint64_t>> Counts() const;

  // "p50 12.3 us, p99 40.1 us, p99.9 95.0 us".
  std::string ToString() const;

 private:
  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
};

}  // namespace examples

#endif  // EXAMPLES_HISTOGRAM_H_
