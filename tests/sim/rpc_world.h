#ifndef HAWSER_TESTS_SIM_RPC_WORLD_H_
#define HAWSER_TESTS_SIM_RPC_WORLD_H_

#include "hawser/tests/sim/world.h"

namespace hawser::sim {

// A world of one Server and a few clients with Channels, stubs, and services that the clients offer to the
// server. It runs all of the shipping code but its threads. Calls are small or large; they have deadlines, or
// are cancelled; the server answers them at once, late, with an error, with an exception or never. The server
// pushes revisions to watchers, drains and restarts. The seed chooses the faults.
//
// The world checks these rules:
//  - Every call has exactly one end, at its deadline at the latest, with the right content or a Status that
//    fits what has happened.
//  - A call that is not idempotent ran once if it was answered, at most once if not, and not at all if its
//    Status says that it was not sent.
//  - Handlers are notified when their callers stop waiting.
//  - One-sided operations keep the rules of one_sided_work.h.
//  - Each watcher gets every revision in order, or its channel reports a loss.
//  - A server shuts down in time.
//  - Channels reconnect by themselves.
//  - At the end everything is released.
WorldResult RunRpcWorld(const WorldOptions& options);

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_RPC_WORLD_H_
