#ifndef HAWSER_RPC_SERVER_SERVING_POLLER_H_
#define HAWSER_RPC_SERVER_SERVING_POLLER_H_

#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/peer_table.h"
#include "hawser/rpc/server/poller_reporter.h"
#include "hawser/rpc/serving/method_counts.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {

// A poller that serves clients of a server: what it counts, what it reports, and which clients wait for it.
// Thread:   any.
// Lifetime: owned by its PollerGroup, from its first client to the end of the server.
// Locks:    its mutex is the last one: it calls nothing that takes another.
class ServingPoller {
 public:
  // Whether another client may wait for it, and if not, why.
  enum class Queue { kHasRoom, kIsFull, kIsFullOfHost };

  // `methods`: how many the server has. `poller` outlives this.
  ServingPoller(transport::Poller& poller, size_t methods)
      : poller_(poller), counters_(methods), reporter_(poller) {
    poller.AddAsyncInterest(1);
  }
  // It serves no client any more. Not on the poller.
  void End();
  ServingPoller(const ServingPoller&) = delete;
  ServingPoller& operator=(const ServingPoller&) = delete;

  // A client of `host` was assigned to it, and waits until StopWaiting() because a handler may hold the
  // poller. Without effect unless kHasRoom.
  Queue StartWaiting(const PeerHost& host);
  void StopWaiting(const PeerHost& host);
  // ResourceExhausted: what a client gets when each poller IsFull; `of_host`: one of them IsFullOfHost.
  static absl::Status FullError(bool of_host);

  transport::Poller& poller() { return poller_; }
  ServingCounters& counters() { return counters_; }
  PollerReporter& reporter() { return reporter_; }

 private:
  transport::Poller& poller_;
  ServingCounters counters_;
  PollerReporter reporter_;
  absl::Mutex mutex_;
  // The clients that wait, in all and by host.
  uint32_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<PeerHost, uint32_t> waiting_of_host_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_SERVING_POLLER_H_
