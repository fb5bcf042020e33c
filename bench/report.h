#ifndef HAWSER_BENCH_REPORT_H_
#define HAWSER_BENCH_REPORT_H_

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "hawser/base/json_writer.h"

namespace hawser::bench {

// The middle one of an odd number of samples; 0 if there are none.
double Median(std::vector<double> samples);
// The smallest sample that is not less than `share` (0 to 1) of all; 0 if there are none.
double Quantile(std::vector<double> samples, double share);

// The quantiles of each round; the medians over the rounds are reported.
struct Quantiles {
  std::vector<double> p50, p99, p999;

  void AddRound(const std::vector<double>& samples);
};

// One line of JSON on standard output: {"bench": ..., then what was added, in that order}.
class Report {
 public:
  explicit Report(absl::string_view bench);
  ~Report();  // Prints it.

  Report& Add(absl::string_view name, absl::string_view value);
  Report& Add(absl::string_view name, double value);
  template <std::integral Integer>
  Report& Add(absl::string_view name, Integer value) {
    return AddInteger(name, static_cast<int64_t>(value));
  }
  Report& Add(absl::string_view name, const char* value) { return Add(name, absl::string_view(value)); }
  // A histogram: [[upper end, count], ...].
  Report& Add(absl::string_view name, const std::vector<std::pair<double, uint64_t>>& buckets);

 private:
  Report& AddInteger(absl::string_view name, int64_t value);

  JsonWriter json_;
};

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_REPORT_H_
