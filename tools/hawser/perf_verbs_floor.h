#ifndef HAWSER_TOOLS_HAWSER_PERF_VERBS_FLOOR_H_
#define HAWSER_TOOLS_HAWSER_PERF_VERBS_FLOOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "hawser/rpc/channel.h"
#include "hawser/tools/hawser/perf_floor.h"
#include "hawser/tools/hawser/perf_meter.h"

namespace hawser::tool {

// Why a raw queue pair is no floor of this test; empty: it is one.
std::string WhyNoVerbsFloor(const PerfTest& test);

// MeasureFloor() over RDMA: latency and rate by SENDs there and back, with as many in flight; bandwidth by
// READs of the side that gets the payload or, if Hawser's payloads cross in SENDs, by these. One-sided
// operations by the same ones.
absl::StatusOr<PerfFloor> MeasureVerbsFloor(const std::shared_ptr<Channel>& channel, const PerfTest& test,
                                            const PerfFloorOptions& options);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_PERF_VERBS_FLOOR_H_
