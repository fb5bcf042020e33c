#include "hawser/bench/report.h"

#include <stdio.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"

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

Report::Report(absl::string_view bench) {
  json_.BeginObject();
  json_.Name("bench").String(bench);
}

Report::~Report() {
  json_.EndObject();
  printf("%s\n", std::move(json_).Take().c_str());
  fflush(stdout);
}

Report& Report::Add(absl::string_view name, absl::string_view value) {
  json_.Name(name).String(value);
  return *this;
}

Report& Report::Add(absl::string_view name, double value) {
  json_.Name(name).Raw(absl::StrFormat("%.4g", value));
  return *this;
}

Report& Report::AddInteger(absl::string_view name, int64_t value) {
  json_.Name(name).Number(value);
  return *this;
}

Report& Report::Add(absl::string_view name, const std::vector<std::pair<double, uint64_t>>& buckets) {
  json_.Name(name).BeginList();
  for (const auto& [upper_end, count] : buckets) {
    json_.BeginList();
    json_.Raw(absl::StrFormat("%.4g", upper_end));
    json_.Number(count);
    json_.EndList();
  }
  json_.EndList();
  return *this;
}

}  // namespace hawser::bench
