#ifndef HAWSER_TOOLS_HAWSER_FIGURES_H_
#define HAWSER_TOOLS_HAWSER_FIGURES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hawser/observe/snapshot.capnp.h"

namespace hawser::tool {

// What `hawser status` and `hawser top` compute from a snapshot: since the start of its server, or of the
// time between two snapshots. A value. Calls for snapshots are left out, so an idle server has none. The rest
// they show as it is in the snapshot (figures_text.h).
// Texts are as the server sent them, cut at kTextMax bytes: escape them.
// Whatever a server sends, the figures are finite and bounded: lists are cut, and a histogram that makes no
// sense is empty.
struct Figures {
  static constexpr size_t kTextMax = 400;

  // How long the calls that ended took. All 0: none did.
  struct Latency {
    int64_t p50_ns = 0, p90_ns = 0, p99_ns = 0;
  };
  struct Method {
    std::string name;
    uint64_t calls = 0;  // That ended.
    uint64_t errors = 0;
    uint64_t request_bytes = 0, response_bytes = 0;
    uint64_t running = 0;  // Now.
    Latency latency;
  };
  struct Poller {
    std::string name, held_by;
    bool answered;
    double busy = 0, spin = 0, sleep = 0;  // Parts of the time, 0 to 1.
  };
  struct Refusal {
    std::string reason;
    uint64_t count;
  };
  struct Call {
    std::string method, peer, identity, stage;
    int64_t age_ns, queued_ns, handler_ns, deferred_ns;
  };

  // The server and its process.
  std::string process, host, state;
  uint32_t pid = 0;
  int64_t taken_unix_ns = 0, up_ns = 0;
  uint64_t connections_open = 0;
  uint64_t running = 0;     // In flight.
  std::vector<Call> calls;  // In flight, the oldest first.
  std::vector<Call> slowest;

  // In the interval, or since the start.
  double seconds = 0;  // 0: since the start.
  uint64_t ended = 0, errors = 0, request_bytes = 0, response_bytes = 0;
  Latency latency;
  std::vector<Method> methods;    // With calls since the start: the one with the most of the interval first.
  std::vector<Poller> pollers;    // In the order of the snapshot.
  std::vector<Refusal> refusals;  // Those that are not 0.
};

// `now` is of the server that `before` is of, and later.
bool IsSameServer(observe::wire::Snapshot::Reader before, observe::wire::Snapshot::Reader now);

// Since the start of the server or, with `before`, which IsSameServer() has accepted, between the two.
Figures FiguresOf(observe::wire::Snapshot::Reader now,
                  std::optional<observe::wire::Snapshot::Reader> before = std::nullopt);

// One line: rates, and of each method and poller. Durations in microseconds.
std::string FiguresAsJson(const Figures& figures);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_FIGURES_H_
