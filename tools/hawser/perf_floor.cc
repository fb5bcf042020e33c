#include "hawser/tools/hawser/perf_floor.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/peer_text.h"
#include "hawser/measure/raw_floor.h"
#include "hawser/tools/hawser/perf_port.h"
#include "hawser/tools/hawser/perf_verbs_floor.h"
#include "hawser/transport/uri.h"

namespace hawser::tool {
namespace {

using Kind = PerfTest::Kind;
using Direction = PerfTest::Direction;
using Operation = PerfTest::Operation;
using measure::RawSocket;

// What a raw port serves at once (perf.capnp). Larger transfers are as fast as these.
constexpr uint64_t kBytesMax = 16 << 20;
// Below this a system call takes longer than the bytes, and a stream of raw sockets is no floor.
constexpr uint64_t kStreamedMin = 16 << 10;
// Well below the life of a raw port.
constexpr absl::Duration kTimeMax = absl::Seconds(20);
// For a server that is stopped, or whose raw ports a firewall blocks.
constexpr absl::Duration kPatience = absl::Seconds(5);
// A port takes its connection from this host only, but other programs here may crowd it.
constexpr int kTries = 3;

// What raw sockets do for a one-sided operation: a request and its answer, of which one has the payload. Many
// small ones go there and back as they are, since a stream in one direction takes a system call for each.
PerfTest AsExchange(const PerfTest& test) {
  PerfTest exchange = test;
  if (test.operation == Operation::kCall) return exchange;
  exchange.direction = test.operation == Operation::kFetchAdd || test.kind == Kind::kRate ? Direction::kBoth
                       : test.operation == Operation::kRead                               ? Direction::kFrom
                                                                                          : Direction::kTo;
  return exchange;
}

// Why raw sockets are none; empty: they are.
std::string WhyNoSocketFloor(const PerfTest& test) {
  if (test.kind == Kind::kLatency) {
    if (test.bytes <= kBytesMax) return "";
    return "raw sockets exchange 16 MiB at most";
  }
  if (test.direction == Direction::kBoth) {
    if (test.bytes <= measure::kBatchBytesMax) return "";
    return "there is none for payloads above 64 KiB that go there and back at once";
  }
  if (test.bytes >= kStreamedMin) return "";
  return "there is none for payloads below 16 KiB in one direction, where a raw socket takes a system call "
         "for each";
}

perf::RawService ServiceFor(const PerfTest& test) {
  switch (test.direction) {
    case Direction::kTo:
      return perf::RawService::SINK;
    case Direction::kFrom:
      return perf::RawService::SOURCE;
    case Direction::kBoth:
      break;
  }
  return test.kind == Kind::kLatency ? perf::RawService::PING_PONG : perf::RawService::ECHO;
}

absl::StatusOr<RawSocket> Open(const std::shared_ptr<Channel>& channel, const PerfTest& test) {
  std::optional<RawSocket> socket;
  const absl::Status opened = OpenPerfPort(channel, ServiceFor(test), [&](const PerfPort& port) {
    absl::StatusOr<RawSocket> connected = RawSocket::Connect(port.address, kPatience);
    if (!connected.ok()) return connected.status();
    if (!connected->Send(port.token.data(), port.token.size(), false)) {
      return absl::UnavailableError("the server closed the raw socket");
    }
    socket = *std::move(connected);
    return absl::OkStatus();
  });
  if (!opened.ok()) return opened;
  return *std::move(socket);
}

absl::Status RunLatency(RawSocket& socket, const PerfTest& test, const measure::Extent& extent, bool spin,
                        PerfFloor& floor) {
  std::vector<uint8_t> memory(test.bytes, 'p');
  const auto exchange = [&] {
    return test.direction == Direction::kBoth ? measure::PingPong(socket, absl::MakeSpan(memory), spin)
           : test.direction == Direction::kTo ? measure::PutOne(socket, memory, spin)
                                              : measure::GetOne(socket, absl::MakeSpan(memory), spin);
  };
  if (test.direction == Direction::kBoth) {
    if (absl::Status begun = measure::BeginPingPong(socket, test.bytes, spin); !begun.ok()) return begun;
  }
  return MeasureFloorLatency(extent, exchange, floor);
}

absl::StatusOr<measure::Ran> RunMany(RawSocket& socket, const PerfTest& test, const measure::Extent& extent,
                                     bool spin) {
  if (test.direction == Direction::kBoth) {
    const auto batch =
        std::clamp<uint64_t>(measure::kBatchBytesMax / test.bytes, 1, static_cast<uint64_t>(test.in_flight));
    return measure::Batches(socket, test.bytes, static_cast<int>(batch), extent, spin);
  }
  std::vector<uint8_t> memory(std::min(test.bytes, kBytesMax), 'p');
  auto ran = test.direction == Direction::kTo ? measure::StreamInto(socket, memory, extent)
                                              : measure::StreamFrom(socket, absl::MakeSpan(memory), extent);
  // The time for transfers of the size that was asked for.
  if (ran.ok()) ran->time *= static_cast<double>(test.bytes) / static_cast<double>(memory.size());
  return ran;
}

absl::StatusOr<PerfFloor> MeasureSocketFloor(const std::shared_ptr<Channel>& channel, const PerfTest& test,
                                             const PerfFloorOptions& options) {
  absl::StatusOr<RawSocket> socket = Open(channel, test);
  if (!socket.ok()) return socket.status();
  PerfFloor floor;
  const bool spin = options.polling == PollingMode::kSpin;
  const measure::Extent extent = {.time = options.duration};
  if (test.kind == Kind::kLatency) {
    if (absl::Status status = RunLatency(*socket, test, extent, spin, floor); !status.ok()) return status;
    return floor;
  }
  if (auto warm = RunMany(*socket, test, {.time = extent.time / 20}, spin); !warm.ok()) return warm.status();
  const absl::StatusOr<measure::Ran> ran = RunMany(*socket, test, extent, spin);
  if (!ran.ok()) return ran.status();
  floor.ran = *ran;
  return floor;
}

}  // namespace

std::optional<PerfFloor> MeasureFloor(const std::shared_ptr<Channel>& channel, const PerfTest& test,
                                      const PerfFloorOptions& options, std::string& why_not) {
  const bool sockets = absl::StartsWith(channel->peer_address(), absl::StrCat(transport::kTcpScheme, "://"));
  const PerfTest exchange = AsExchange(test);
  why_not = sockets ? WhyNoSocketFloor(exchange) : WhyNoVerbsFloor(test);
  if (!why_not.empty()) return std::nullopt;
  PerfFloorOptions bounded = options;
  bounded.duration = std::min(options.duration, kTimeMax);
  for (int i = 0; i < kTries; ++i) {
    absl::StatusOr<PerfFloor> floor =
        sockets ? MeasureSocketFloor(channel, exchange, bounded) : MeasureVerbsFloor(channel, test, bounded);
    if (floor.ok()) {
      why_not.clear();
      return *std::move(floor);
    }
    why_not = EscapePeerText(floor.status().message());
    if (!absl::IsUnavailable(floor.status())) break;
  }
  return std::nullopt;
}

}  // namespace hawser::tool
