#ifndef HAWSER_BENCH_PEERS_POINT_H_
#define HAWSER_BENCH_PEERS_POINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/bench/peers/peer.h"
#include "hawser/bench/process.h"

namespace hawser::bench::peers {

// One line of the report: what is measured, and where both processes run.
struct Point {
  std::string text;      // As it was given.
  std::string workload;  // "echo", "paced" or "bulk"
  std::string place;     // "1", "2" or "any"
  Pin pin = Pin::kAnyCore;
  Load load;
  double rate = 0;  // Calls a second; 0 except for "paced".
};

// "echo:2:32:64:1:0", as --points has it. InvalidArgument names the field and what is expected there.
absl::StatusOr<Point> ParsePoint(absl::string_view text);

// "1", "2" or "any"; InvalidArgument otherwise.
absl::StatusOr<Pin> ParsePlace(absl::string_view text);

}  // namespace hawser::bench::peers

#endif  // HAWSER_BENCH_PEERS_POINT_H_
