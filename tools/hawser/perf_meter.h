#ifndef HAWSER_TOOLS_HAWSER_PERF_METER_H_
#define HAWSER_TOOLS_HAWSER_PERF_METER_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/measure/extent.h"
#include "hawser/measure/times.h"
#include "hawser/perf.rpc.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/stats.h"

namespace hawser::tool {

// One measurement of a server that has the service of perf.capnp.
struct PerfTest {
  // What is measured: calls, or one-sided operations on memory that the server shares.
  enum class Operation { kCall, kRead, kWrite, kFetchAdd };
  enum class Kind { kLatency, kRate, kBandwidth };
  // Where the payload of a call goes: to the server, from it, or there and back.
  enum class Direction { kTo, kFrom, kBoth };

  Operation operation = Operation::kCall;
  Kind kind = Kind::kLatency;
  Direction direction = Direction::kBoth;
  uint64_t bytes = 32;
  int in_flight = 1;
};

absl::string_view NameOf(PerfTest::Kind kind);            // "latency"
absl::string_view NameOf(PerfTest::Direction direction);  // "to"
absl::string_view NameOf(PerfTest::Operation operation);  // "fetch-add"

struct PerfFigure {
  measure::Times times;  // How long each call or operation took, if the test is of latency. Otherwise empty.
  measure::Ran ran;
  // How requests and answers crossed. Of calls.
  PollerStats::Messages sent, received;
  bool by_nic = false;  // Of one-sided operations: the server's NIC carried them out.
};

// Times one exchange after the other, of which `exchange` is one, as a test of latency says.
absl::Status TimeOneAtATime(const measure::Extent& extent, absl::FunctionRef<absl::Status()> exchange,
                            PerfFigure& figure);

// Calls the server of one channel as a test says.
// Thread:   one; no other calls of the channel's poller meanwhile, whose messages would count.
class PerfMeter {
 public:
  // ResourceExhausted: there is no memory for the payload.
  static absl::StatusOr<std::unique_ptr<PerfMeter>> Create(std::shared_ptr<Channel> channel,
                                                           const PerfTest& test);

  // DataLoss: the server answered something else than was asked for. Or the error of a call.
  absl::StatusOr<PerfFigure> Run(const measure::Extent& extent);

 private:
  PerfMeter(std::shared_ptr<Channel> channel, const PerfTest& test, std::shared_ptr<Buffer> payload);

  absl::Status RunOneAtATime(const measure::Extent& extent, PerfFigure& figure);
  absl::Status RunInFlight(const measure::Extent& extent, PerfFigure& figure);
  // Calls `function` with a new call, whose type is that of the method.
  template <typename Function>
  void WithCall(Function function);
  absl::Status Check(const absl::StatusOr<Reply<perf::Perf::EchoResults>>& reply) const;
  absl::Status Check(const absl::StatusOr<Reply<perf::Perf::PutResults>>& reply) const;
  absl::Status Check(const absl::StatusOr<Reply<perf::Perf::GetResults>>& reply) const;
  absl::Status CheckPayload(capnp::Data::Reader payload, uint8_t byte) const;

  const std::shared_ptr<Channel> channel_;
  const perf::PerfStub stub_;
  const PerfTest test_;
  const std::shared_ptr<Buffer> payload_;
};

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_PERF_METER_H_
