#ifndef HAWSER_TRANSPORT_WIRE_OPTIONS_H_
#define HAWSER_TRANSPORT_WIRE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace hawser::transport {

// What one side wants of a connection. Both sides get the minimum of slots and receive buffer; each learns
// the other's largest message.
struct ConnectionOptions {
  uint32_t slots = 32;  // Exchanges in flight; 1 to kSlotsMax.
  // Largest message that crosses in one SEND; 512 to 65536, a multiple of 64.
  uint32_t receive_buffer_bytes = 4096;
  // Largest body that this side takes, and that it sends; kMessageBytesMin to kMessageBytesMost. The default
  // holds the largest Data of Cap'n Proto (512 MiB - 1) and 1 MiB beside it.
  uint64_t message_bytes_max = 513 << 20;
  // A peer from which nothing was received for `keepalive_interval` is pinged, whether or not calls are in
  // flight; one that is silent for another `keepalive_timeout` is dead. An infinite interval: no pings. Each
  // is kKeepaliveMin at least, and the timeout a year at most.
  // After half of `keepalive_timeout` a client asks the server over a second connection; if a handler or
  // callback only holds the poller there, the client waits on. A server cannot ask a client: a callback that
  // holds the client's poller for interval and timeout together costs the client its connection.
  // A peer that answers, but from which no READ completes for interval and timeout together while some are
  // outstanding, loses the connection, too.
  // A new connection whose first request has no answer yet is pinged once after a hundredth of the interval,
  // or 100 ms if that is longer. So is a new client that has sent nothing by then; it has `keepalive_timeout`
  // to answer.
  absl::Duration keepalive_interval = absl::Seconds(10);
  absl::Duration keepalive_timeout = absl::Seconds(5);
  // A server that has been busy in this way for so long is taken for dead after all; 0: it gets no more than
  // `keepalive_timeout`. Infinite: for as long as it is busy.
  absl::Duration busy_timeout = absl::Minutes(2);
  // For the side that connects: the address of this machine to come from, "10.0.0.1" or "fd00::1", which on a
  // machine with several NICs says which one. Empty: the route to the peer decides.
  std::string local_address = {};
};

inline constexpr uint32_t kSlotsMax = 1024;
inline constexpr uint64_t kMessageBytesMin = 4096;
inline constexpr uint64_t kMessageBytesMost = uint64_t{1} << 40;
inline constexpr absl::Duration kKeepaliveMin = absl::Milliseconds(1);
inline constexpr absl::Duration kKeepaliveMost = absl::Hours(24 * 365);
inline constexpr absl::Duration kSpinMost = absl::Microseconds(512);
inline constexpr uint32_t kReceiveBufferMin = 512;
inline constexpr uint32_t kReceiveBufferMax = 65536;

// What lets a peer READ a large message over rdma://. Small ones (up to
// ConnectionOptions::receive_buffer_bytes) need nothing.
enum class RdmaGrants {
  // kWindows where the device has them, else kRegistered.
  kAutomatic,
  // A memory window for each segment of a message: one peer can READ exactly that, until the call ends.
  // Creating a runtime fails where the device has none (FailedPrecondition).
  kWindows,
  // A registration for each: two calls of the system, and commands of the device, a message. Every peer of
  // the process that guesses the key can READ the same, until the call ends.
  kRegistered,
  // The key that the pool's memory has anyway: nothing per message. (Over iWARP the receiver still registers
  // what it READs into.) Every peer of the process on that device, also one of another runtime, can READ all
  // memory of the runtime's pool, at any time, once a large message has given it a key: what others send and
  // receive, what was sent before, and what the program keeps in buffers of the pool. Only where all peers
  // may know all of that.
  kShared,
};

// How a poller waits when there is nothing to do.
enum class PollingMode {
  kAdaptive,  // Spins for as long as that has paid off lately, at most `spin`, then sleeps. Does not spin
              // while other programs need its core. See Idle.
  kSpin,      // Never sleeps: a core per poller, the least latency.
  kSleep,     // Sleeps at once: for machines with fewer cores than pollers.
};

struct PollerOptions {
  PollingMode mode = PollingMode::kAdaptive;
  // kAdaptive: the longest time to spin before it sleeps; 0 to 512 us. If all waits are above 0.4 ms
  // spinning does not pay: that is eight times what sleeping and being woken costs (see Idle). Beside shorter
  // ones it can.
  absl::Duration spin = kSpinMost;
  // The cores that the threads of a runtime's pollers run on, one each, in turn. Empty: those of the device's
  // NUMA node among the cores that the thread which creates the runtime may use; if there are none, all of
  // these. They hold for the pollers' threads and for threads that handlers start there, not for a thread
  // that waits for a call and drives the poller meanwhile.
  std::vector<int> cores = {};
  // READ bytes outstanding over all connections of one poller; N pollers may have N times as many. Leaves
  // room for small calls beside bulk transfers. One READ, of up to 256 KiB, may be outstanding whatever this
  // is.
  uint64_t read_bytes_max = 8 << 20;
  // What one peer host may hold for large messages, as a part, 0 to 1, of the memory that is free or its own
  // already. It holds memory for messages that it has announced and that are not answered yet, for responses
  // that it has not released, and, at a server, for large requests of the server that it has not answered.
  // Short messages (up to 4 MiB) that it has announced may go three quarters of the way beyond. See
  // ReadAdmission and ResponseWatch.
  double host_memory_share = 0.8;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_WIRE_OPTIONS_H_
