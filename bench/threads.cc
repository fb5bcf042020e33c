// How many small calls a second do many threads make that share one channel, each of which waits for its
// answer before it calls again? There are two floors: one thread on the same channel that keeps as many calls
// in flight, and as many threads that only hand themselves over to another one and are woken by it.
// `of_floors` is the time of a call divided by the sum of both floors' times, which on one core a call takes
// at least. A thread that calls alone needs no hand-off.
#include <stdio.h>
#include <stdlib.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "bench/bench.rpc.h"
#include "hawser/bench/hand_off.h"
#include "hawser/bench/load.h"
#include "hawser/bench/report.h"
#include "hawser/bench/target.h"

ABSL_FLAG(int, bytes, 32, "payload of request and response");
ABSL_FLAG(int, calls, 100000, "calls of one round, over all threads");
ABSL_FLAG(std::vector<std::string>, threads, std::vector<std::string>({"1", "4", "16", "64", "1000"}),
          "how many threads call");
ABSL_FLAG(std::vector<std::string>, modes,
          std::vector<std::string>({"sleep:1", "adaptive:1", "sleep:any", "adaptive:any"}),
          "how both sides wait, each with the cores that they have together");
ABSL_FLAG(int, rounds, 3, "rounds, floor and figure in turn; the medians are printed");

namespace hawser::bench {
namespace {

// Calls a second of all threads together.
double RateOf(const std::shared_ptr<Channel>& channel, int threads, int calls, const std::string& payload) {
  std::atomic<int> left{calls};
  std::atomic<bool> go{false};
  std::vector<std::thread> callers;
  for (int i = 0; i < threads; ++i) {
    callers.emplace_back([&] {
      TargetStub target(channel);
      go.wait(false);
      while (left.fetch_sub(1, std::memory_order_relaxed) > 0) EchoOnce(target, payload);
    });
  }
  const absl::Time start = absl::Now();
  go = true;
  go.notify_all();
  for (std::thread& caller : callers) caller.join();
  return calls / absl::ToDoubleSeconds(absl::Now() - start);
}

void Measure(const std::string& mode, Pin pin, int threads) {
  TargetOptions options;
  options.mode = mode;
  options.pin = pin;
  PinTo(pin, /*server=*/false);
  const std::string payload(static_cast<size_t>(absl::GetFlag(FLAGS_bytes)), 'x');
  const int calls = absl::GetFlag(FLAGS_calls), rounds = absl::GetFlag(FLAGS_rounds);
  std::vector<double> figures, floors, hand_offs;
  CpuUse cpu;
  for (int round = 0; round < rounds; ++round) {
    if (threads > 1) hand_offs.push_back(HandOffRate(threads, calls));
    ServerProcess server = StartTarget(options);
    const std::shared_ptr<Channel> channel = ConnectTo(server, options, MakeRuntime(options));
    Load load(channel, payload.size());
    for (const int count : {calls / 10 + 1, calls}) {  // The first warms up.
      const absl::Time start = absl::Now();
      load.Start(count, threads);
      load.Wait();
      if (count == calls) floors.push_back(count / absl::ToDoubleSeconds(absl::Now() - start));
    }
    CpuMeter meter(server.pid(), cpu);
    figures.push_back(RateOf(channel, threads, calls, payload));
  }
  const double million_calls = static_cast<double>(calls) * rounds / 1e6;
  Report report("threads");
  report.Add("address", options.address)
      .Add("mode", mode)
      .Add("pin", Name(pin))
      .Add("threads", threads)
      .Add("calls_per_s", Median(figures))
      .Add("floor_per_s", Median(floors))
      .Add("ratio", Median(figures) / Median(floors))
      .Add("client_cpu_s_per_million_calls", cpu.client_seconds / million_calls)
      .Add("server_cpu_s_per_million_calls", cpu.server_seconds / million_calls);
  if (hand_offs.empty()) return;
  report.Add("hand_off_per_s", Median(hand_offs))
      .Add("of_floors", (1 / Median(figures)) / (1 / Median(floors) + 1 / Median(hand_offs)));
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  hawser::bench::ServeIfAsked(argc, argv);
  absl::ParseCommandLine(argc, argv);
  for (const std::string& placement : absl::GetFlag(FLAGS_modes)) {
    const auto [mode, pin] = hawser::bench::ParsePlacement("modes", placement);
    for (const std::string& text : absl::GetFlag(FLAGS_threads)) {
      int threads = 0;
      if (!absl::SimpleAtoi(text, &threads) || threads < 1) {
        fprintf(stderr, "bench: --threads=%s: no number of threads\n", text.c_str());
        return 1;
      }
      hawser::bench::Measure(mode, pin, threads);
    }
  }
}
