#ifndef HAWSER_TOOLS_HAWSER_PERF_FLOOR_H_
#define HAWSER_TOOLS_HAWSER_PERF_FLOOR_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "hawser/measure/extent.h"
#include "hawser/measure/times.h"
#include "hawser/rpc/channel.h"
#include "hawser/tools/hawser/perf_meter.h"

namespace hawser::tool {

// What the network alone takes for a test: raw sockets between the same two machines, on a port that the server opens for it.
struct PerfFloor {
  measure::Times times;  // As in PerfFigure.
  measure::Ran ran;
};

// Measures it for `duration`, 20 s at most. Empty: there is none for this test, or it failed; `why_not` says so in a line.
// `spin`: this side never sleeps in the kernel.
std::optional<PerfFloor> MeasureFloor(const std::shared_ptr<Channel>& channel, const PerfTest& test,
                                      absl::Duration duration, bool spin, std::string& why_not);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_PERF_FLOOR_H_
