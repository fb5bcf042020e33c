// How long does a small call take, alone on its connection? The floor is a ping-pong of as many bytes over a
// raw socket, whose sides wait in the same way and on the same cores. `call_us` is the mean, as the floor is;
// `median_call_us` is what the typical latency of perftest compares with.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "bench/bench.rpc.h"
#include "hawser/bench/raw_socket.h"
#include "hawser/bench/report.h"
#include "hawser/bench/target.h"
#include "hawser/measure/one_at_a_time.h"

ABSL_FLAG(int, bytes, 32, "payload of request and response");
ABSL_FLAG(bool, attach, false,
          "the payload is sent from where it lies, and back from where it came: no copies");
ABSL_FLAG(int, calls, 20000, "calls of one round");
ABSL_FLAG(std::vector<std::string>, modes,
          std::vector<std::string>({"sleep:1", "sleep:2", "spin:2", "adaptive:1", "adaptive:2"}),
          "how both sides wait, each with the cores that they have together");
ABSL_FLAG(int, rounds, 5, "rounds, floor and figure in turn; the medians are printed");

namespace hawser::bench {
namespace {

[[noreturn]] void Die(const std::string& what) {
  fprintf(stderr, "bench: echo: %s\n", what.c_str());
  exit(1);
}

template <typename Call>
absl::Status MakeCall(Call call, size_t bytes) {
  auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  return (*reply)->getPayload().size() == bytes ? absl::OkStatus() : absl::DataLossError("wrong size");
}

// One round: microseconds of each call.
std::vector<double> CallsUs(Channel& channel, TargetStub& target, size_t bytes, int calls) {
  absl::StatusOr<Buffer> made = channel.AllocateBuffer(bytes);
  if (!made.ok()) Die(made.status().ToString());
  memset(made->data(), 'x', bytes);
  const auto payload = std::make_shared<Buffer>(*std::move(made));
  const bool attach = absl::GetFlag(FLAGS_attach);
  std::vector<double> calls_us;
  calls_us.reserve(static_cast<size_t>(calls));
  const auto exchange = [&] {
    if (attach) {
      auto call = target.Forward();
      call.request().adoptPayload(call.Attach(payload->reader(), payload));
      return MakeCall(std::move(call), bytes);
    }
    auto call = target.Echo();
    call.request().setPayload(payload->reader());
    return MakeCall(std::move(call), bytes);
  };
  const absl::Status status = measure::OneAtATime(
      {.exchanges = calls}, exchange, [&](int64_t ns) { calls_us.push_back(static_cast<double>(ns) / 1e3); });
  if (!status.ok()) Die(status.ToString());
  return calls_us;
}

void Measure(const std::string& mode, Pin pin) {
  TargetOptions options;
  options.mode = mode;
  options.pin = pin;
  PinTo(pin, /*server=*/false);
  const auto bytes = static_cast<size_t>(absl::GetFlag(FLAGS_bytes));
  const int calls = absl::GetFlag(FLAGS_calls);
  const int rounds = absl::GetFlag(FLAGS_rounds);
  CpuUse cpu;
  std::vector<double> figures, medians, floors;
  // One after the other, never both: a side that spins would take the core from what is measured.
  for (int round = 0; round < rounds; ++round) {
    {
      ServerProcess raw = StartRaw("ping_pong", options);
      RawSocket socket = ConnectRaw(raw.address());
      floors.push_back(PingPongUs(socket, bytes, calls / 10 + 1, calls, mode == "spin"));
    }
    ServerProcess server = StartTarget(options);
    const std::shared_ptr<Channel> channel = ConnectTo(server, options, MakeRuntime(options));
    TargetStub target(channel);
    CallsUs(*channel, target, bytes, calls / 10 + 1);
    CpuMeter meter(server.pid(), cpu);
    const std::vector<double> calls_us = CallsUs(*channel, target, bytes, calls);
    figures.push_back(std::accumulate(calls_us.begin(), calls_us.end(), 0.0) / calls);
    medians.push_back(Median(calls_us));
  }
  const double million_calls = static_cast<double>(calls) * rounds / 1e6;
  Report("latency")
      .Add("address", options.address)
      .Add("mode", mode)
      .Add("pin", Name(pin))
      .Add("bytes", static_cast<double>(bytes))
      .Add("attach", absl::GetFlag(FLAGS_attach) ? 1 : 0)
      .Add("call_us", Median(figures))
      .Add("median_call_us", Median(medians))
      .Add("floor_us", Median(floors))
      .Add("ratio", Median(figures) / Median(floors))
      .Add("client_cpu_s_per_million_calls", cpu.client_seconds / million_calls)
      .Add("server_cpu_s_per_million_calls", cpu.server_seconds / million_calls);
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  hawser::bench::ServeIfAsked(argc, argv);
  absl::ParseCommandLine(argc, argv);
  // The adaptive mode, which a program gets that sets nothing, is set against the floor of sleeping sockets.
  for (const std::string& mode : absl::GetFlag(FLAGS_modes)) {
    const auto [kind, pin] = hawser::bench::ParsePlacement("modes", mode);
    hawser::bench::Measure(kind, pin);
  }
}
