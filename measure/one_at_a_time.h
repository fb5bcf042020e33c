#ifndef HAWSER_MEASURE_ONE_AT_A_TIME_H_
#define HAWSER_MEASURE_ONE_AT_A_TIME_H_

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "hawser/measure/extent.h"

namespace hawser::measure {

// Makes one exchange after the other: `exchange()` returns an absl::Status when its exchange has ended.
// `add(ns)` gets the nanoseconds of each; reading the clock is part of them, 20 to 30 ns. Stops at the first
// that fails, and returns its status.
template <typename Exchange, typename Add>
absl::Status OneAtATime(const Extent& extent, Exchange exchange, Add add) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const int64_t time_ns = absl::ToInt64Nanoseconds(extent.time);  // Infinite: the greatest number.
  auto before = start;
  for (int64_t i = 0; i < extent.exchanges; ++i) {
    if (absl::Status status = exchange(); !status.ok()) [[unlikely]]
      return status;
    const auto after = Clock::now();
    add(std::chrono::duration_cast<std::chrono::nanoseconds>(after - before).count());
    before = after;
    if (std::chrono::duration_cast<std::chrono::nanoseconds>(after - start).count() >= time_ns) break;
  }
  return absl::OkStatus();
}

}  // namespace hawser::measure

#endif  // HAWSER_MEASURE_ONE_AT_A_TIME_H_
