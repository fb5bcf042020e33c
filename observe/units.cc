#include "hawser/observe/units.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hawser::observe {

std::string DurationText(int64_t ns) {
  if (ns < 1000) return absl::StrCat(ns, " ns");
  if (ns < 1'000'000) return absl::StrFormat("%.3g us", static_cast<double>(ns) / 1e3);
  if (ns < 1'000'000'000) return absl::StrFormat("%.3g ms", static_cast<double>(ns) / 1e6);
  const int64_t seconds = ns / 1'000'000'000;
  if (seconds < 120) return absl::StrFormat("%.2f s", static_cast<double>(ns) / 1e9);
  if (seconds < 7200) return absl::StrCat(seconds / 60, " min ", seconds % 60, " s");
  if (seconds < 172'800) return absl::StrCat(seconds / 3600, " h ", seconds / 60 % 60, " min");
  return absl::StrCat(seconds / 86'400, " d ", seconds / 3600 % 24, " h");
}

std::string BytesText(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024; ++unit) value /= 1024;
  return absl::StrFormat("%.2f %s", value, kUnits[unit]);
}

std::string CountText(uint64_t count) {
  if (count < 10'000) return absl::StrCat(count);
  constexpr const char* kUnits[] = {"k", "M", "G", "T", "P", "E"};
  auto value = static_cast<double>(count) / 1000;
  size_t unit = 0;
  for (; value >= 999.5; ++unit) value /= 1000;
  return absl::StrFormat("%.3g %s", value, kUnits[unit]);
}

}  // namespace hawser::observe
