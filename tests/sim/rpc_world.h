#ifndef HAWSER_TESTS_SIM_RPC_WORLD_H_
#define HAWSER_TESTS_SIM_RPC_WORLD_H_

#include "hawser/tests/sim/world.h"

namespace hawser::sim {

// A world of one Server and a few clients with Channels, stubs, and services that they offer in turn: all of
// the shipping code but its threads. Calls small and large, with deadlines, cancelled, answered at once,
// late, with an error, with an exception or never; watchers to whom revisions are pushed; servers that drain
// and start again; and what can go wrong besides, as the seed wants it.
//
// What is checked: every call has exactly one end, at its deadline at the latest, with the right content or a
// Status that what happened allows; what is not idempotent ran once if it was answered, at most once if not,
// and not at all if its Status says that it was not sent; handlers are notified when their callers stop
// waiting; each watcher gets every revision in order, or its channel says that it was lost; a server that is
// shut down is down in time; channels come back by themselves; and nothing is left of anything.
WorldResult RunRpcWorld(const WorldOptions& options);

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_RPC_WORLD_H_
