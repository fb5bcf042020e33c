#include "hawser/tools/hawser/perf_meter.h"

#include <string.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/measure/in_flight.h"
#include "hawser/measure/one_at_a_time.h"

namespace hawser::tool {
namespace {

// What is cheaper to copy than to send from where it is. The server does the same with its answers.
constexpr uint64_t kCopiedMax = 4096;
// What the two sides fill payloads with.
constexpr uint8_t kByteOfClient = 'p', kByteOfServer = 'g';

PollerStats::Messages Since(const PollerStats::Messages& before, const PollerStats::Messages& now) {
  return {now.whole - before.whole, now.pushed - before.pushed, now.read - before.read};
}

absl::Status WrongSize(uint64_t answered, uint64_t expected) {
  return absl::DataLossError(absl::StrCat("the server answered ", answered, " bytes in place of ", expected));
}

}  // namespace

absl::string_view NameOf(PerfTest::Kind kind) {
  switch (kind) {
    case PerfTest::Kind::kLatency:
      return "latency";
    case PerfTest::Kind::kRate:
      return "rate";
    case PerfTest::Kind::kBandwidth:
      return "bandwidth";
  }
  return "";
}

absl::string_view NameOf(PerfTest::Direction direction) {
  switch (direction) {
    case PerfTest::Direction::kTo:
      return "to";
    case PerfTest::Direction::kFrom:
      return "from";
    case PerfTest::Direction::kBoth:
      return "both";
  }
  return "";
}

absl::string_view NameOf(PerfTest::Operation operation) {
  switch (operation) {
    case PerfTest::Operation::kCall:
      return "call";
    case PerfTest::Operation::kRead:
      return "read";
    case PerfTest::Operation::kWrite:
      return "write";
    case PerfTest::Operation::kFetchAdd:
      return "fetch-add";
  }
  return "";
}

PerfMeter::PerfMeter(std::shared_ptr<Channel> channel, const PerfTest& test, std::shared_ptr<Buffer> payload)
    : channel_(std::move(channel)), stub_{channel_}, test_(test), payload_(std::move(payload)) {}

absl::StatusOr<std::unique_ptr<PerfMeter>> PerfMeter::Create(std::shared_ptr<Channel> channel,
                                                             const PerfTest& test) {
  absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(test.bytes);
  if (!buffer.ok()) return buffer.status();
  memset(buffer->data(), kByteOfClient, test.bytes);
  return std::unique_ptr<PerfMeter>(
      new PerfMeter(std::move(channel), test, std::make_shared<Buffer>(*std::move(buffer))));
}

absl::StatusOr<PerfFigure> PerfMeter::Run(const measure::Extent& extent) {
  PerfFigure figure;
  const PollerStats before = channel_->poller_stats();
  const absl::Status status =
      test_.kind == PerfTest::Kind::kLatency ? RunOneAtATime(extent, figure) : RunInFlight(extent, figure);
  if (!status.ok()) return status;
  const PollerStats after = channel_->poller_stats();
  figure.sent = Since(before.sent, after.sent);
  figure.received = Since(before.received, after.received);
  return figure;
}

absl::Status TimeOneAtATime(const measure::Extent& extent, absl::FunctionRef<absl::Status()> exchange,
                            PerfFigure& figure) {
  const absl::Status status =
      measure::OneAtATime(extent, exchange, [&](int64_t ns) { figure.times.Add(ns); });
  figure.ran = {static_cast<int64_t>(figure.times.count()),
                absl::Microseconds(figure.times.mean_us() * static_cast<double>(figure.times.count()))};
  return status;
}

absl::Status PerfMeter::RunOneAtATime(const measure::Extent& extent, PerfFigure& figure) {
  const auto exchange = [this] {
    absl::Status status;
    WithCall([&](auto call) { status = Check(call.Send().Wait()); });
    return status;
  };
  return TimeOneAtATime(extent, exchange, figure);
}

absl::Status PerfMeter::RunInFlight(const measure::Extent& extent, PerfFigure& figure) {
  measure::InFlight* loop;
  measure::InFlight in_flight([&] {
    WithCall([&](auto call) {
      // The callback fits two pointers, so it is not allocated.
      call.Send().Then([this, loop](auto reply) { loop->OnEnd(Check(reply)); });
    });
  });
  loop = &in_flight;
  const absl::StatusOr<measure::Ran> ran = in_flight.Run(extent, test_.in_flight);
  if (ran.ok()) figure.ran = *ran;
  return ran.status();
}

template <typename Function>
void PerfMeter::WithCall(Function function) {
  const auto fill = [this](auto& call) {
    if (test_.bytes <= kCopiedMax) {
      call.request().setPayload(payload_->reader());
    } else {
      call.request().adoptPayload(call.Attach(payload_->reader(), payload_));
    }
  };
  switch (test_.direction) {
    case PerfTest::Direction::kTo: {
      auto call = stub_.Put();
      fill(call);
      return function(std::move(call));
    }
    case PerfTest::Direction::kFrom: {
      auto call = stub_.Get();
      call.request().setBytes(test_.bytes);
      return function(std::move(call));
    }
    case PerfTest::Direction::kBoth: {
      auto call = stub_.Echo();
      fill(call);
      return function(std::move(call));
    }
  }
}

absl::Status PerfMeter::Check(const absl::StatusOr<Reply<perf::Perf::EchoResults>>& reply) const {
  if (!reply.ok()) return reply.status();
  absl::Status checked;
  const absl::Status read =
      reply->Read([&](auto results) { checked = CheckPayload(results.getPayload(), kByteOfClient); });
  return read.ok() ? checked : read;
}

absl::Status PerfMeter::Check(const absl::StatusOr<Reply<perf::Perf::PutResults>>& reply) const {
  if (!reply.ok()) return reply.status();
  uint64_t bytes = 0;
  const absl::Status read = reply->Read([&](auto results) { bytes = results.getBytes(); });
  if (!read.ok()) return read;
  return bytes == test_.bytes ? absl::OkStatus() : WrongSize(bytes, test_.bytes);
}

absl::Status PerfMeter::Check(const absl::StatusOr<Reply<perf::Perf::GetResults>>& reply) const {
  if (!reply.ok()) return reply.status();
  absl::Status checked;
  const absl::Status read =
      reply->Read([&](auto results) { checked = CheckPayload(results.getPayload(), kByteOfServer); });
  return read.ok() ? checked : read;
}

// Looks at the first and at the last byte, which detects a transfer that never happened. To read all of them
// would take time that is measured.
absl::Status PerfMeter::CheckPayload(capnp::Data::Reader payload, uint8_t byte) const {
  if (payload.size() != test_.bytes) return WrongSize(payload.size(), test_.bytes);
  if (payload[0] == byte && payload[payload.size() - 1] == byte) return absl::OkStatus();
  return absl::DataLossError("the server answered other bytes than those that were asked for");
}

}  // namespace hawser::tool
