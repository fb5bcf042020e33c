#ifndef HAWSER_TESTS_SIM_EXCHANGE_WORLD_H_
#define HAWSER_TESTS_SIM_EXCHANGE_WORLD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace hawser::sim {

// A world of one server and a few clients, who exchange messages of every size over connections of
// transport/, while what can go wrong does, as the seed wants it: the shipping code from Connection down to
// the seam, one thread, one clock.
//
// What is checked, during the run and at its end: every request has exactly one end, at its deadline at the
// latest, with the right content or a Status; no memory is touched while the fabric owns it; and all memory,
// grants, queue pairs and timers come home.
struct ExchangeWorldOptions {
  uint64_t seed = 1;
  int steps = 200;  // Of the workload: a request, a cancel, a drain, a fault, or time that passes.
  std::function<void(int64_t now_ns, absl::string_view line)> trace;
};

struct ExchangeWorldResult {
  std::vector<std::string> broken_rules;  // Empty: all is well.
  uint64_t requests = 0;
  uint64_t answered = 0;
  uint64_t connections = 0;
  int64_t simulated_ns = 0;
};

ExchangeWorldResult RunExchangeWorld(const ExchangeWorldOptions& options);

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_EXCHANGE_WORLD_H_
