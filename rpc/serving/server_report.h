#ifndef HAWSER_RPC_SERVING_SERVER_REPORT_H_
#define HAWSER_RPC_SERVING_SERVER_REPORT_H_

#include <kj/string.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/serving/method_counts.h"

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
  static constexpr size_t kConnectionsMax = 200;
  static constexpr size_t kCallsMax = 200;

  // Adds a connection to the totals.
  void Count(const ConnectionReport& connection);
  // False: a call of this age is none of the oldest.
  bool WantsCall(int64_t age_ns) const { return calls.size() < kCallsMax || age_ns > calls.front().age_ns; }
  // WantsCall() has said that it is one. The youngest one makes room for it.
  void AddCall(CallReport call);

  std::vector<ConnectionReport> connections;  // The first ones. The rest only count.
  std::vector<CallReport> calls;              // The oldest ones, as a heap: the youngest of them is in front.
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

// By poller. Null: that one did not answer.
using PollerReports = std::vector<std::shared_ptr<const PollerReport>>;

// For the texts of a snapshot, which copies them. `text` ends with a 0 behind its size.
template <typename Bytes>
kj::StringPtr ToKj(const Bytes& text) {
  return {text.data(), text.size()};
}

// Fills in connections, of which there are 1,000 at most, and their totals. `fabrics`: those of the pollers.
void FillInConnections(const std::vector<std::string>& fabrics, const PollerReports& reports,
                       observe::wire::Snapshot::Builder snapshot);
// Fills in the oldest calls in flight, 200 at most, and how many there are besides. The snapshot has its
// server already.
void FillInCalls(const PollerReports& reports, observe::wire::Snapshot::Builder snapshot);
// Fills in the slowest of these, 16 at most.
void FillInSlowest(std::vector<SlowCalls::Call> slowest, observe::wire::Snapshot::Builder snapshot);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVING_SERVER_REPORT_H_
