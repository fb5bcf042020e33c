// How many small calls a second pass, with many in flight? The floor is a raw socket on which as many
// messages of as many bytes are sent with one system call and come back with as few as may be.
#include <stdio.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "hawser/bench/load.h"
#include "hawser/bench/raw_socket.h"
#include "hawser/bench/report.h"
#include "hawser/bench/target.h"

ABSL_FLAG(int, bytes, 32, "payload of request and response");
ABSL_FLAG(int, calls, 500000, "calls of one round, over all connections");
ABSL_FLAG(int, in_flight, 64, "calls in flight on each connection");
ABSL_FLAG(std::vector<std::string>, loads,
          std::vector<std::string>({"sleep:1:1", "sleep:2:1", "spin:2:1", "adaptive:2:1", "sleep:1:8",
                                    "adaptive:2:8"}),
          "how both sides wait, the cores that they have together, and how many connections");
ABSL_FLAG(int, rounds, 5, "rounds, floor and figure in turn; the medians are printed");

namespace hawser::bench {
namespace {

void Measure(const std::string& mode, Pin pin, int connections) {
  TargetOptions options;
  options.mode = mode;
  options.pin = pin;
  PinTo(pin, /*server=*/false);
  const auto bytes = static_cast<size_t>(absl::GetFlag(FLAGS_bytes));
  const int calls = absl::GetFlag(FLAGS_calls) / connections;
  const int in_flight = absl::GetFlag(FLAGS_in_flight);
  const int rounds = absl::GetFlag(FLAGS_rounds);
  CpuUse cpu;
  std::vector<double> figures, floors;
  // One after the other, never both: a side that spins would take the core from what is measured.
  for (int round = 0; round < rounds; ++round) {
    {
      ServerProcess raw = StartRaw("echo", options);
      RawSocket socket = ConnectRaw(raw.address());
      const int batches = calls * connections / in_flight + 1;
      BatchedRate(socket, bytes, in_flight, batches / 10 + 1, mode == "spin");
      floors.push_back(BatchedRate(socket, bytes, in_flight, batches, mode == "spin"));
    }
    ServerProcess server = StartTarget(options);
    const std::shared_ptr<transport::Runtime> runtime = MakeRuntime(options);
    std::vector<std::unique_ptr<Load>> loads;
    for (int i = 0; i < connections; ++i) {
      loads.push_back(std::make_unique<Load>(ConnectTo(server, options, runtime), bytes));
    }
    const auto run = [&](int count) {
      const absl::Time start = absl::Now();
      for (auto& load : loads) load->Start(count, in_flight);
      for (auto& load : loads) load->Wait();
      return count * connections / absl::ToDoubleSeconds(absl::Now() - start);
    };
    run(calls / 10 + 1);
    CpuMeter meter(server.pid(), cpu);
    figures.push_back(run(calls));
  }
  const double million_calls = static_cast<double>(calls) * connections * rounds / 1e6;
  Report("rate")
      .Add("address", options.address)
      .Add("mode", mode)
      .Add("pin", Name(pin))
      .Add("bytes", static_cast<double>(bytes))
      .Add("connections", connections)
      .Add("in_flight", in_flight)
      .Add("calls_per_s", Median(figures))
      .Add("floor_per_s", Median(floors))
      .Add("ratio", Median(figures) / Median(floors))
      .Add("client_cpu_s_per_million_calls", cpu.client_seconds / million_calls)
      .Add("server_cpu_s_per_million_calls", cpu.server_seconds / million_calls);
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  hawser::bench::ServeIfAsked(argc, argv);
  absl::ParseCommandLine(argc, argv);
  for (const std::string& load : absl::GetFlag(FLAGS_loads)) {
    const size_t colon = load.rfind(':');
    int connections = 0;
    if (colon == std::string::npos || !absl::SimpleAtoi(load.substr(colon + 1), &connections) ||
        connections < 1) {
      fprintf(stderr, "bench: --loads=%s: not MODE:CORES:CONNECTIONS\n", load.c_str());
      return 1;
    }
    const auto [mode, pin] = hawser::bench::ParsePlacement("loads", load.substr(0, colon));
    hawser::bench::Measure(mode, pin, connections);
  }
}
