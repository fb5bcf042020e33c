// The shipping transport under 1,000 seeds.
//
//   exchange_seeds_test --seed=N --trace    one world again, and what happened in it
//   exchange_seeds_test --first=N --seeds=M
#include <stdio.h>

#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/time/clock.h"
#include "hawser/tests/sim/exchange_world.h"

ABSL_FLAG(uint64_t, seed, 0, "only this one; 0: all");
ABSL_FLAG(uint64_t, first, 1, "the first seed");
ABSL_FLAG(uint64_t, seeds, 1000, "how many");
ABSL_FLAG(int, steps, 200, "of the workload of one world");
ABSL_FLAG(bool, trace, false, "print the history");

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const uint64_t only = absl::GetFlag(FLAGS_seed);
  const uint64_t first = only != 0 ? only : absl::GetFlag(FLAGS_first);
  const uint64_t seeds = only != 0 ? 1 : absl::GetFlag(FLAGS_seeds);
  const absl::Time start = absl::Now();
  uint64_t requests = 0, answered = 0, failed = 0;
  double simulated_s = 0;
  for (uint64_t seed = first; seed < first + seeds && failed < 10; ++seed) {
    hawser::sim::ExchangeWorldOptions options = {
        .seed = seed, .steps = absl::GetFlag(FLAGS_steps), .trace = nullptr};
    if (absl::GetFlag(FLAGS_trace)) {
      options.trace = [](int64_t now_ns, absl::string_view line) {
        printf("%15.6f ms  %.*s\n", static_cast<double>(now_ns) / 1e6, static_cast<int>(line.size()),
               line.data());
      };
    }
    const hawser::sim::ExchangeWorldResult result = hawser::sim::RunExchangeWorld(options);
    requests += result.requests;
    answered += result.answered;
    simulated_s += static_cast<double>(result.simulated_ns) / 1e9;
    if (result.broken_rules.empty()) continue;
    ++failed;
    for (const std::string& rule : result.broken_rules) printf("seed %lu: %s\n", seed, rule.c_str());
    fflush(stdout);
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  printf("%lu seeds, %lu failed; %lu requests, %lu answered; %.0f s simulated in %.1f s, %.0f seeds/s\n",
         seeds, failed, requests, answered, simulated_s, seconds, static_cast<double>(seeds) / seconds);
  return failed == 0 ? 0 : 1;
}
