#ifndef HAWSER_MEASURE_TIMES_H_
#define HAWSER_MEASURE_TIMES_H_

#include <cstdint>
#include <vector>

namespace hawser::measure {

// The times of any number of exchanges, in memory of fixed size: a count for each of 256 parts of each power
// of two, so that a quantile is right to 0.2 %. Mean, least and greatest are exact.
// Thread: one.
class Times {
 public:
  Times();

  void Add(int64_t ns);

  uint64_t count() const { return count_; }
  double mean_us() const;
  double min_us() const;
  double max_us() const;
  // The smallest time that is not less than `share` (0 to 1) of all; of none 0.
  double quantile_us(double share) const;

 private:
  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  int64_t min_ns_ = 0, max_ns_ = 0;
  double sum_ns_ = 0;
};

}  // namespace hawser::measure

#endif  // HAWSER_MEASURE_TIMES_H_
