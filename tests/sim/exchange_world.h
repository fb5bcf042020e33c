#ifndef HAWSER_TESTS_SIM_EXCHANGE_WORLD_H_
#define HAWSER_TESTS_SIM_EXCHANGE_WORLD_H_

#include "hawser/tests/sim/world.h"

namespace hawser::sim {

// A world of one server and a few clients that exchange messages of every size over connections of
// transport/. The seed chooses the faults. It runs the shipping code from Connection down to fabric.h, with
// one thread and one clock.
//
// The world checks these rules, during the run and at its end: every request has exactly one end, at its
// deadline at the latest, with the right content or a Status. One whose response is being READ into memory of
// the program's own ends once that is over, and nothing is written there afterwards. No code touches memory
// while the fabric owns it. All memory, grants, queue pairs and timers are released.
WorldResult RunExchangeWorld(const WorldOptions& options);

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_EXCHANGE_WORLD_H_
