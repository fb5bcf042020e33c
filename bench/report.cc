#include "hawser/bench/report.h"

#include <stdio.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace hawser::bench {

double Median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

double Quantile(std::vector<double> samples, double share) {
  if (samples.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(samples.size()));
  const size_t index = std::min(samples.size(), static_cast<size_t>(std::max(rank, 1.0))) - 1;
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(index), samples.end());
  return samples[index];
}

void Quantiles::AddRound(const std::vector<double>& samples) {
  p50.push_back(Median(samples));
  p99.push_back(Quantile(samples, 0.99));
  p999.push_back(Quantile(samples, 0.999));
}

Report::Report(absl::string_view bench) : line_(absl::StrCat("{\"bench\": \"", bench, "\"")) {}

Report::~Report() {
  printf("%s}\n", line_.c_str());
  fflush(stdout);
}

Report& Report::Add(absl::string_view name, absl::string_view value) {
  absl::StrAppend(&line_, ", \"", name, "\": \"", value, "\"");
  return *this;
}

Report& Report::Add(absl::string_view name, double value) {
  absl::StrAppend(&line_, ", \"", name, "\": ", absl::StrFormat("%.4g", value));
  return *this;
}

Report& Report::AddInteger(absl::string_view name, int64_t value) {
  absl::StrAppend(&line_, ", \"", name, "\": ", value);
  return *this;
}

Report& Report::Add(absl::string_view name, const std::vector<std::pair<double, uint64_t>>& buckets) {
  const auto one = [](std::string* out, const std::pair<double, uint64_t>& bucket) {
    absl::StrAppend(out, "[", absl::StrFormat("%.4g", bucket.first), ", ", bucket.second, "]");
  };
  absl::StrAppend(&line_, ", \"", name, "\": [", absl::StrJoin(buckets, ", ", one), "]");
  return *this;
}

}  // namespace hawser::bench
