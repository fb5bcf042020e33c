#ifndef HAWSER_TRANSPORT_POLLER_POLLER_STATS_H_
#define HAWSER_TRANSPORT_POLLER_POLLER_STATS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {

// What one poller has decided since it was created: how it waited, which thread drove it, how messages
// crossed. Each count is exact, but they are read one after the other, while the poller goes on.
struct PollerStats {
  // Requests and responses of all connections of the poller, without control messages.
  struct Messages {
    uint64_t whole = 0;  // In one SEND.
    // The SEND announced a body, which followed it at once (TCP, one segment of 4 to 132 KiB).
    uint64_t pushed = 0;
    uint64_t read = 0;  // The SEND announced a body, which the receiver fetched with RDMA READ.
  };
  Messages sent;
  uint64_t sent_bytes = 0;  // Bodies only, without headers and envelopes.
  Messages received;        // An announced one counts once the receiver has memory for its body.

  // How the thread that drives waits when there is nothing to do.
  PollingMode mode = PollingMode::kAdaptive;
  uint64_t sleeps = 0;
  // kAdaptive only.
  absl::Duration spin_now;     // How long it spins before it sleeps; 0: waits of late were long.
  uint64_t spins_paid = 0;     // It spun, and work came.
  uint64_t spins_in_vain = 0;  // It spun, and then slept.
  uint64_t crowded = 0;        // Other programs needed its core, so for a while it did not spin.

  // Where the time of the thread that drives has gone: to turns that found work, to looking for some, and to
  // sleep. A thread that waits for its own call is counted up to the turn that ends the wait.
  absl::Duration busy, spun, slept;

  // Turns that found work.
  uint64_t turns_of_waiting_threads = 0;  // A thread of the application drove, because it waits for a call.
  uint64_t turns_of_own_thread = 0;
};

// "spins for 16 us, ...": one line, without a newline.
std::string ToString(const PollerStats& stats);

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_POLLER_STATS_H_
