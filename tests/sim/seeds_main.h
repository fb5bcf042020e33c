#ifndef HAWSER_TESTS_SIM_SEEDS_MAIN_H_
#define HAWSER_TESTS_SIM_SEEDS_MAIN_H_

#include <functional>
#include <vector>

#include "hawser/tests/sim/world.h"

namespace hawser::sim {

using RunWorld = std::function<WorldResult(const WorldOptions& options)>;

// main() of a program that runs many seeds of a world and reports those that broke a rule:
//   --first=N --seeds=M            M seeds from N on; with --seeds=0 without end
//   --seed=N --trace               one world, with its events as text
//   --seed=N --trace_svg=FILE      one world, with its events as a picture
// It runs `once_failed` first: seeds that have found a bug before. In a test with N shards, each runs every
// N-th seed, and the first of them `once_failed`. Returns the exit status: 1 if a rule was broken, 2 for a
// wrong flag or a file that cannot be written. `lands`: the worlds have calls whose responses land in memory
// of the program; 1 also if of 50 seeds none has landed any, since then they show nothing of that.
int SeedsMain(int argc, char** argv, const RunWorld& run, const std::vector<uint64_t>& once_failed,
              bool lands = false);

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_SEEDS_MAIN_H_
