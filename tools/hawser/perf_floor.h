#ifndef HAWSER_TOOLS_HAWSER_PERF_FLOOR_H_
#define HAWSER_TOOLS_HAWSER_PERF_FLOOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "hawser/measure/extent.h"
#include "hawser/measure/one_at_a_time.h"
#include "hawser/measure/times.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/runtime.h"
#include "hawser/tools/hawser/perf_meter.h"

namespace hawser::tool {

// What the network alone takes for a test, between the same two machines, on a port that the server opens for
// it: over TCP raw sockets, over RDMA a raw queue pair on the same devices.
struct PerfFloor {
  measure::Times times;  // As in PerfFigure.
  measure::Ran ran;
  const char* by = "raw sockets";  // What has carried the bytes.
};

struct PerfFloorOptions {
  absl::Duration duration = absl::Seconds(1);  // For how long it measures; 20 s at most.
  // How this side waits. Sockets spin, or are waited for in the kernel.
  PollingMode polling = PollingMode::kAdaptive;
  std::shared_ptr<Runtime> runtime;  // The channel's; null: it has none of its own. For RDMA.
  bool by_send = false;              // Hawser's payloads cross whole, in a SEND each. For RDMA.
};

// For either floor: makes one exchange after the other, as measure::OneAtATime() does, and adds the time of
// each to `floor`.
template <typename Exchange>
absl::Status MeasureFloorLatency(const measure::Extent& extent, Exchange exchange, PerfFloor& floor) {
  // A twentieth is not counted: connections, caches and clocks are cold at first.
  absl::Status status = measure::OneAtATime({.time = extent.time / 20}, exchange, [](int64_t) {});
  if (!status.ok()) return status;
  status = measure::OneAtATime(extent, exchange, [&](int64_t ns) { floor.times.Add(ns); });
  floor.ran.exchanges = static_cast<int64_t>(floor.times.count());
  floor.ran.time = absl::Microseconds(floor.times.mean_us() * static_cast<double>(floor.times.count()));
  return status;
}

// Empty: there is none for this test, or it failed; `why_not` says so in a line.
std::optional<PerfFloor> MeasureFloor(const std::shared_ptr<Channel>& channel, const PerfTest& test,
                                      const PerfFloorOptions& options, std::string& why_not);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_PERF_FLOOR_H_
