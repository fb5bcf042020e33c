#ifndef HAWSER_TOOLS_HAWSER_PERF_TEXT_H_
#define HAWSER_TOOLS_HAWSER_PERF_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "hawser/base/json_writer.h"
#include "hawser/tools/hawser/perf_floor.h"
#include "hawser/tools/hawser/perf_meter.h"

// What `hawser perf` prints of a measurement.
namespace hawser::tool {

// How a message crosses (rpc/PROTOCOL.md): whole in a SEND, pushed behind it, or fetched by an RDMA READ.
enum class PerfWay { kSend, kWrite, kRead };

// "whole", or "pushed 97 %, read 3 %": the messages that have the payload.
std::string Crossed(const PerfTest& test, const PerfFigure& figure);
// At least half of them crossed in this way.
bool CrossedBy(PerfWay way, const PerfTest& test, const PerfFigure& figure);

std::string BytesText(uint64_t bytes);  // "64 KiB"
// "rate, 32 B there and back, 32 in flight", "latency, READs of 32 B"
std::string TitleOf(const PerfTest& test);

// For people. `slots`: what the server takes at once on a connection.
std::string PerfText(const PerfTest& test, const PerfFigure& figure, const std::optional<PerfFloor>& floor,
                     const std::string& why_no_floor, uint32_t slots);
// An object, as `hawser perf --help` says.
void WritePerf(const PerfTest& test, const PerfFigure& warm_up, const PerfFigure& figure,
               const std::optional<PerfFloor>& floor, const std::string& why_no_floor, JsonWriter& json);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_PERF_TEXT_H_
