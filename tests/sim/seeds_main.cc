#include "hawser/tests/sim/seeds_main.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"

ABSL_FLAG(uint64_t, seed, 0, "only this one; 0: all");
ABSL_FLAG(uint64_t, first, 1, "the first seed");
ABSL_FLAG(uint64_t, seeds, 1000, "how many; 0: without end");
ABSL_FLAG(int, steps, 200, "of the workload of one world");
ABSL_FLAG(bool, trace, false, "print the history");
ABSL_FLAG(std::string, trace_svg, "", "draw the history into this file");

namespace hawser::sim {
namespace {

constexpr uint64_t kFailuresMax = 10;
constexpr absl::Duration kReportEvery = absl::Minutes(1);  // For a run without end.

struct Totals {
  uint64_t seeds = 0, failed = 0, calls = 0, answered = 0, landed = 0;
  double simulated_s = 0;
  absl::Time start = absl::Now();

  void Print() const {
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    std::printf(
        "%lu seeds, %lu failed; %lu calls, %lu answered, %lu landed; %.0f s simulated in %.1f s, %.0f "
        "seeds/s, "
        "%.0f calls/s\n",
        seeds, failed, calls, answered, landed, simulated_s, seconds, static_cast<double>(seeds) / seconds,
        static_cast<double>(calls) / seconds);
    std::fflush(stdout);
  }
};

void RunSeed(const RunWorld& run, uint64_t seed, History* history, Totals& totals) {
  const WorldResult result = run({.seed = seed, .steps = absl::GetFlag(FLAGS_steps), .history = history});
  ++totals.seeds;
  totals.calls += result.calls;
  totals.answered += result.answered;
  totals.landed += result.landed;
  totals.simulated_s += static_cast<double>(result.simulated_ns) / 1e9;
  if (result.broken_rules.empty()) return;
  ++totals.failed;
  for (const std::string& rule : result.broken_rules) std::printf("seed %lu: %s\n", seed, rule.c_str());
  std::fflush(stdout);
}

// Bazel runs a test with a shard_count so many times at once, and says in the environment which part each is.
struct Shard {
  uint64_t index = 0, total = 1;

  static Shard FromEnvironment() {
    Shard shard;
    const char* const index = std::getenv("TEST_SHARD_INDEX");
    const char* const total = std::getenv("TEST_TOTAL_SHARDS");
    if (index == nullptr || total == nullptr) return shard;
    if (!absl::SimpleAtoi(index, &shard.index) || !absl::SimpleAtoi(total, &shard.total) ||
        shard.total == 0) {
      std::fprintf(stderr, "TEST_SHARD_INDEX '%s' of TEST_TOTAL_SHARDS '%s': no numbers\n", index, total);
      std::exit(2);
    }
    // The sign that this knows of shards.
    if (const char* const file = std::getenv("TEST_SHARD_STATUS_FILE"); file != nullptr) std::ofstream{file};
    return shard;
  }
};

}  // namespace

int SeedsMain(int argc, char** argv, const RunWorld& run, const std::vector<uint64_t>& once_failed,
              bool lands) {
  if (absl::ParseCommandLine(argc, argv).size() > 1) {
    std::fprintf(stderr, "takes flags only; --help names them\n");
    return 2;
  }
  Totals totals;
  if (const uint64_t seed = absl::GetFlag(FLAGS_seed); seed != 0) {
    const std::string svg = absl::GetFlag(FLAGS_trace_svg);
    TextHistory text;
    ChartHistory chart;
    History* const history = !svg.empty()                 ? &chart
                             : absl::GetFlag(FLAGS_trace) ? static_cast<History*>(&text)
                                                          : nullptr;
    RunSeed(run, seed, history, totals);
    if (const absl::Status written = svg.empty() ? absl::OkStatus() : chart.Write(svg); !written.ok()) {
      std::fprintf(stderr, "%s\n", std::string(written.message()).c_str());
      return 2;
    }
  } else {
    const Shard shard = Shard::FromEnvironment();
    if (shard.index == 0) {
      for (const uint64_t failed_once : once_failed) RunSeed(run, failed_once, nullptr, totals);
    }
    const uint64_t count = absl::GetFlag(FLAGS_seeds);
    absl::Time report = totals.start + kReportEvery;
    for (uint64_t i = shard.index; (i < count || count == 0) && totals.failed < kFailuresMax;
         i += shard.total) {
      RunSeed(run, absl::GetFlag(FLAGS_first) + i, nullptr, totals);
      if (count != 0 || absl::Now() < report) continue;
      totals.Print();
      report = absl::Now() + kReportEvery;
    }
  }
  totals.Print();
  if (lands && totals.seeds >= 50 && totals.landed == 0) {
    std::printf("no response has landed in memory of the program: these seeds show nothing of that\n");
    return 1;
  }
  return totals.failed == 0 ? 0 : 1;
}

}  // namespace hawser::sim
