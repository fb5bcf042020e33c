#ifndef HAWSER_RPC_INTERNAL_SERVER_REPORT_H_
#define HAWSER_RPC_INTERNAL_SERVER_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace hawser::internal {

// What one poller reports of its connections and calls, for a snapshot. Values.
struct ConnectionReport {
  std::string peer;
  std::string identity;  // PeerIdentity::ToString(); empty: not authenticated.
  const char* state = "";
  uint32_t slots = 0;
  uint32_t slots_in_use = 0;
  uint32_t slots_given = 0, slots_wanted = 0;  // See transport::Connection.
  uint32_t receives_posted = 0;
  uint64_t receive_bytes = 0;
  int64_t since_unix_ns = 0;
  uint64_t requests = 0;
  uint64_t number = 0;
};

struct CallReport {
  const char* method = "";
  std::string peer;
  std::string identity;
  const char* stage = "";
  int64_t age_ns = 0;
  int64_t deadline_in_ns = -1;  // -1: none.
  uint64_t request_bytes = 0;
  std::string id;
};

struct PollerReport {
  // So many have an entry each; the totals count all of them.
  static constexpr size_t kConnectionsMax = 200;
  static constexpr size_t kCallsMax = 200;

  std::vector<ConnectionReport> connections;
  std::vector<CallReport> calls;
  struct Total {
    uint64_t count = 0;
    uint64_t slots = 0;
    uint64_t slots_in_use = 0;
    uint64_t slots_given = 0, slots_wanted = 0;
  };
  // By the addresses of the names: each state, and each method, has one text.
  absl::flat_hash_map<const char*, Total> by_state;
  absl::flat_hash_map<const char*, uint64_t> running;  // By method.
  uint64_t calls_queued = 0;                           // They wait for the executor.
  uint64_t read_bytes_in_flight = 0;
  uint64_t reads_waiting = 0;
  uint64_t memory_waiters = 0;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_INTERNAL_SERVER_REPORT_H_
