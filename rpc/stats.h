#ifndef HAWSER_RPC_STATS_H_
#define HAWSER_RPC_STATS_H_

// What a program can ask about its own calls: Server::stats(), Channel::poller_stats().
//
//   const hawser::ServerStats stats = server.stats();
//   report = absl::StrCat(stats.calls_running, " of ", stats.calls_total, " calls are running; ");
//   absl::StrAppend(&report, stats.violations[hawser::Violation::kSlot], " peers used a wrong slot");
//   for (const hawser::PollerStats& poller : stats.pollers) {
//     absl::StrAppend(&report, "; ", ToString(poller));  // "spins for 16us: ..."
//   }

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hawser/base/violation.h"
#include "hawser/transport/poller/poller_stats.h"

namespace hawser {

// What a poller has decided, and why: how it waits, who drives it, which messages are pushed or READ.
// ToString() makes it one line of text.
using transport::PollerStats;

struct ServerStats {
  uint64_t connections = 0;    // Open now, reverse ones included.
  uint64_t calls_running = 0;  // Handlers that have not answered yet.
  uint64_t calls_total = 0;    // Requests that have come, refused ones included.
  uint64_t leased_bytes = 0;   // Registered memory in use, by connections, messages and the application.
  // Peers that were disconnected for breaking the protocol, by reason: violations[Violation::kSlot]. Some of
  // them are in the log, too (rpc/log.h; limited, see transport/log/peer_log.h).
  struct Violations {
    std::array<uint64_t, kViolationCount> by_reason = {};
    uint64_t& operator[](Violation violation) { return by_reason[static_cast<size_t>(violation)]; }
    uint64_t operator[](Violation violation) const { return by_reason[static_cast<size_t>(violation)]; }
  };
  Violations violations;
  // Clients that Shutdown() has disconnected because they stood still: with a large answer that they had not
  // taken, a large request that they did not let it READ, or an error that they did not take while there was
  // no memory for the next. The log says what was left.
  // Like `violations`, of all servers on the runtime.
  uint64_t stalled_in_shutdown = 0;
  // All that run of its runtimes; of ServerOptions::runtime some may serve only others.
  std::vector<PollerStats> pollers;
};

}  // namespace hawser

#endif  // HAWSER_RPC_STATS_H_
