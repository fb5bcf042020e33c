#ifndef HAWSER_TOOLS_HAWSER_HEALTH_WATCHER_H_
#define HAWSER_TOOLS_HAWSER_HEALTH_WATCHER_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/health.rpc.h"
#include "hawser/rpc/options.h"

namespace hawser::tool {

// What `hawser health --watch` offers to the server: the server notifies it of each change, and the thread
// that prints takes them.
// Thread: any. Lifetime: outlives the channel.
class HealthWatcher : public health::HealthWatcherService {
  using Wire = health::HealthWatcher;

 public:
  // Beyond that the oldest are dropped: of a server that floods the latest changes are printed, and it takes
  // no more memory.
  static constexpr size_t kChangesMax = 1000;

  absl::Status Changed(ServerContext& context, Wire::ChangedParams::Reader request,
                       Wire::ChangedResults::Builder reply) override;
  void OnChange(health::ServingStatus status);
  // For ChannelOptions::on_state_change. Says on stderr that a connection was lost.
  void OnStateChange(ChannelState state, const absl::Status& why);

  struct News {
    uint64_t connections = 0;  // Made so far. After each new one the client watches again.
    std::deque<health::ServingStatus> changes;
  };
  // Blocks until there is a change, or a connection after the first `connections`; or until `again`, if there
  // is a connection then.
  News Wait(uint64_t connections, absl::Time again = absl::InfiniteFuture());

 private:
  absl::Mutex mutex_;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t connections_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<health::ServingStatus> changes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_HEALTH_WATCHER_H_
