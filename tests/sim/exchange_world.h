#ifndef HAWSER_TESTS_SIM_EXCHANGE_WORLD_H_
#define HAWSER_TESTS_SIM_EXCHANGE_WORLD_H_

#include "hawser/tests/sim/world.h"

namespace hawser::sim {

// A world of one server and a few clients, who exchange messages of every size over connections of
// transport/, while what can go wrong does, as the seed wants it: the shipping code from Connection down to
// the seam, one thread, one clock.
//
// What is checked, during the run and at its end: every request has exactly one end, at its deadline at the
// latest, with the right content or a Status; no memory is touched while the fabric owns it; and all memory,
// grants, queue pairs and timers are released.
WorldResult RunExchangeWorld(const WorldOptions& options);

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_EXCHANGE_WORLD_H_
