#ifndef HAWSER_TESTS_SIM_FAULTS_H_
#define HAWSER_TESTS_SIM_FAULTS_H_

#include <cstdint>

#include "hawser/tests/sim/dice.h"

namespace hawser::sim {

// How a simulated NIC and its network use the freedom that verbs leave them, and how often they fail. With
// the defaults nothing fails.
struct Faults {
  struct Range {
    int64_t low = 0, high = 0;  // Nanoseconds, both included.
    int64_t Throw(Dice& dice) const { return low == high ? low : dice.Between(low, high); }
  };

  // ---- Slowness, legal at any time.
  Range fetch{0, 200};          // From a post until the NIC fetches the work request.
  Range latency{1'000, 2'000};  // One way.
  Range completion{0, 500};     // From the end of a work request until it can be polled.
  Range flush{0, 5'000};        // From the error until one flushed work request can be polled.
  Range event{1'000, 20'000};   // From a change of a connection until the CM reports it.
  Range revocation{0, 2'000};
  // Between the parts of one access to memory: the bytes of a WRITE, the words of a READ of memory that is
  // granted for many, and what an atomic reads and then writes.
  Range spread{0, 2'000};
  uint32_t read_chunk_bytes = 64 << 10;
  int64_t read_chunk_ns = 5'000;

  // ---- Timeouts, as the verbs fabric sets them.
  int64_t rnr_timer_ns = 1'000'000;
  int rnr_retries = 6;
  int64_t retry_ns = 400'000'000;  // Without an answer for so long: kTransportRetryExceeded.

  // ---- Faults, as probabilities.
  double request_fails = 0;         // For each work request: the queue pair is in error instead.
  double connect_request_lost = 0;  // Neither side is notified.
  double accept_lost = 0;           // The requester is never notified.
  double goodbye_lost = 0;          // A peer that disconnects or dies is not announced.
  double registration_fails = 0;
  double queue_pair_fails = 0;
  // A queue pair that has lost its peer goes into error by itself, or looks healthy until it is disconnected.
  double error_on_goodbye = 0;

  // ---- Bad peers, as probabilities for each step of a world's workload.
  double stalls = 0;    // A process stops for a while, or until there is peace. Its NIC does not.
  double trickles = 0;  // A client serves READs in small pieces, with long gaps, for as long.
  double hoards = 0;  // A client announces large messages in all its slots, and serves no READ, for as long.
};

// How a host serves the READs of its memory, instead of what Faults say.
struct ReadService {
  static constexpr int64_t kNever = INT64_MAX;

  uint32_t chunk_bytes = 0;
  int64_t gap_ns = kNever;  // Between two chunks. kNever: it serves none.
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_FAULTS_H_
