#include "hawser/tools/hawser/perf_verbs_floor.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "hawser/measure/verbs/raw_client.h"
#include "hawser/rpc/runtime.h"
#include "hawser/tools/hawser/perf_port.h"
#include "hawser/transport/fabrics.h"
#include "hawser/transport/uri.h"

namespace hawser::tool {
namespace {

using Kind = PerfTest::Kind;
using Direction = PerfTest::Direction;
using Operation = PerfTest::Operation;
using transport::RawClient;
using transport::RawPlan;

// A floor of bandwidth has these in flight, whatever the test has: they fill the network. Most devices allow
// 16 READs.
constexpr uint32_t kInFlightOfBandwidth = 16;

bool ByReads(const PerfTest& test, const PerfFloorOptions& options) {
  if (test.operation != Operation::kCall) return test.operation == Operation::kRead;
  return test.kind == Kind::kBandwidth && test.direction != Direction::kBoth && !options.by_send;
}

RawPlan PlanFor(const PerfTest& test, const PerfFloorOptions& options) {
  const uint64_t bytes = std::min(test.bytes, RawPlan::kBytesMax);
  uint32_t in_flight = static_cast<uint32_t>(test.in_flight);
  if (test.kind == Kind::kBandwidth) in_flight = std::max(in_flight, kInFlightOfBandwidth);
  RawPlan plan;
  if (test.operation != Operation::kCall) {
    plan.kind = test.operation == Operation::kRead    ? RawPlan::Kind::kClientReads
                : test.operation == Operation::kWrite ? RawPlan::Kind::kClientWrites
                                                      : RawPlan::Kind::kClientFetchAdds;
    plan.bytes = bytes;
  } else if (ByReads(test, options)) {
    plan.kind = test.direction == Direction::kTo ? RawPlan::Kind::kServerReads : RawPlan::Kind::kClientReads;
    plan.bytes = bytes;
  } else {
    if (test.direction != Direction::kFrom) plan.bytes = bytes;
    if (test.direction != Direction::kTo) plan.answer_bytes = bytes;
  }
  plan.depth = RawPlan::DepthFor(bytes, in_flight);
  return plan;
}

// Null: a channel without a runtime of its own uses the process's, of the device of the route.
absl::StatusOr<std::shared_ptr<Runtime>> RuntimeOf(const Channel& channel, const PerfFloorOptions& options) {
  if (options.runtime != nullptr) return options.runtime;
  const auto uri = transport::ParseUri(channel.peer_address());
  if (!uri.ok()) return uri.status();
  const auto remote = transport::ParseNumericHost(uri->host);
  return Runtime::Default(uri->scheme, remote.ok() ? transport::DeviceFor(uri->scheme, {}, *remote) : "");
}

absl::Status RunLatency(RawClient& client, const RawPlan& plan, const measure::Extent& extent,
                        PerfFloor& floor) {
  const bool exchanges = plan.kind == RawPlan::Kind::kExchange;
  return MeasureFloorLatency(
      extent, [&] { return exchanges ? client.ExchangeOne() : client.OperateOne(); }, floor);
}

absl::Status RunMany(RawClient& client, const RawPlan& plan, absl::Duration time, PerfFloor& floor) {
  const auto run = [&](absl::Duration part) {
    return plan.kind == RawPlan::Kind::kExchange ? client.Exchange({.time = part})
                                                 : client.Operate({.time = part});
  };
  if (const auto warm = run(time / 20); !warm.ok()) return warm.status();
  const auto ran = run(time);
  if (!ran.ok()) return ran.status();
  floor.ran = {ran->count, ran->time};
  return absl::OkStatus();
}

}  // namespace

std::string WhyNoVerbsFloor(const PerfTest& test) {
  const bool scales = test.kind == Kind::kBandwidth;  // Larger transfers are as fast as these.
  return test.bytes <= RawPlan::kBytesMax || scales ? "" : "raw queue pairs exchange 8 MiB at most";
}

absl::StatusOr<PerfFloor> MeasureVerbsFloor(const std::shared_ptr<Channel>& channel, const PerfTest& test,
                                            const PerfFloorOptions& options) {
  auto runtime = RuntimeOf(*channel, options);
  if (!runtime.ok()) return runtime.status();
  const RawPlan plan = PlanFor(test, options);
  std::unique_ptr<RawClient> client;
  const absl::Status opened = OpenPerfPort(channel, perf::RawService::QUEUE_PAIR, [&](const PerfPort& port) {
    auto connected =
        RawClient::Connect(*runtime, port.address, plan, {.token = port.token, .polling = options.polling});
    if (!connected.ok()) return connected.status();
    client = *std::move(connected);
    return absl::OkStatus();
  });
  if (!opened.ok()) return opened;
  PerfFloor floor;
  floor.by = ByReads(test, options)                   ? "READs of a raw queue pair"
             : test.operation == Operation::kWrite    ? "WRITEs of a raw queue pair"
             : test.operation == Operation::kFetchAdd ? "fetch-and-adds of a raw queue pair"
                                                      : "SENDs of a raw queue pair";
  const absl::Status status = test.kind == Kind::kLatency
                                  ? RunLatency(*client, plan, {.time = options.duration}, floor)
                                  : RunMany(*client, plan, options.duration, floor);
  if (!status.ok()) return status;
  // The time for transfers of the size that was asked for.
  const uint64_t bytes = std::max(plan.bytes, plan.answer_bytes);
  if (test.kind != Kind::kLatency) {
    floor.ran.time *= static_cast<double>(test.bytes) / static_cast<double>(bytes);
  }
  return floor;
}

}  // namespace hawser::tool
