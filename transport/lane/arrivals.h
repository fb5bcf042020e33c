#ifndef HAWSER_TRANSPORT_LANE_ARRIVALS_H_
#define HAWSER_TRANSPORT_LANE_ARRIVALS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/fork.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::transport {

// Counts WRITEs of peers that have arrived: what a counter of the program, its tickets and the lanes share.
// Thread:   any, unless a method says otherwise.
// Lifetime: shared. After End() lanes may go on adding, and nothing runs any more.
class Arrivals final {
 public:
  using Callback = absl::AnyInvocable<void()>;

  Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  // Names it in this process: never 0, and never the same as of another one, living or not.
  uint64_t id() const { return id_; }
  // A thread that has read n sees the bytes of the n WRITEs.
  uint64_t count() const { return count_.load(std::memory_order_acquire); }
  // `callback` runs once, when the count is `n` or more: in a RunCallbacks(), on its poller. False: it is so
  // already; `callback` is destroyed, and does not run, and neither does it after End().
  bool CallWhen(uint64_t n, Callback callback);

  // `n` WRITEs more have arrived, all of them visible to this thread. Returns how many there are then, for
  // RunCallbacks(), which follows.
  uint64_t Add(uint64_t n);
  // Runs those that wait for `reached` or fewer. On the poller, in a turn of the thread that drives.
  void RunCallbacks(uint64_t reached, Poller& poller);

  // No callback runs after this: waits for those that do, but not for one that calls this.
  void End();
  bool ended() const;
  // This is a child made by fork() after it: nothing else may be called, and it is not destroyed.
  bool in_child() const { return fork_mark_.in_child(); }

 private:
  // False: none is due.
  bool RunNext(uint64_t reached, Poller& poller);

  const uint64_t id_;
  const ForkMark fork_mark_;
  std::atomic<uint64_t> count_{0};  // Written with the lock.
  mutable absl::Mutex mutex_;
  absl::CondVar left_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::multimap<uint64_t, Callback> callbacks_ ABSL_GUARDED_BY(mutex_);  // By what they wait for.
  std::vector<std::thread::id> running_ ABSL_GUARDED_BY(mutex_);         // Threads that run one.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LANE_ARRIVALS_H_
