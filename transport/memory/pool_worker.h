#ifndef HAWSER_TRANSPORT_MEMORY_POOL_WORKER_H_
#define HAWSER_TRANSPORT_MEMORY_POOL_WORKER_H_

#include <sys/types.h>

#include <atomic>
#include <compare>
#include <cstddef>
#include <map>
#include <set>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/transport/memory/buffer_cache.h"
#include "hawser/transport/memory/slab_store.h"

namespace hawser::transport {

// The thread of a pool, for what takes long: it maps large buffers for callers that cannot wait for that, and
// gives idle memory back to the system. It starts when there is first something to do.
// Thread:   any.
// Lifetime: Stop() ends the thread, waiting for what it is at; after that nothing is done any more.
class PoolWorker {
 public:
  // Idle memory goes after `idle` to one and a half times `idle`.
  PoolWorker(SlabStore& slabs, BufferCaches& caches, bool may_start_thread, absl::Duration idle);

  // False: there is no thread, and will be none; the caller grows the store itself.
  bool available() const { return available_.load(std::memory_order_relaxed); }

  // Asks for a slab of the class, unless one is on its way: kGrowing. The classes that are cut from parts
  // share slabs, so they count as one class here. Waiters for the class are notified when the slab is there
  // or was refused. kRefused to every caller for 50 ms after it was, so that several waiters for the class do
  // not cause requests to the system without end.
  Shortage RequestGrowth(size_t size_class);
  // Asks for SlabStore::GrowAhead(), behind all that is needed now. No effect for 50 ms after that was
  // refused.
  void RequestGrowthAhead(size_t size_class);

  // There may be idle memory to be given back. A load if that is known.
  void NoteIdle() {
    if (!watching_.load(std::memory_order_seq_cst)) StartWatching();
  }

  // One step of that: what was idle at the last one and ever since is unmapped. False: nothing is idle that a
  // later one could unmap.
  bool GiveBackIdle();

  absl::Duration idle() const { return 2 * interval_; }

  // False: this is a child after fork(), where the thread is not, and locks may be held for ever.
  bool Stop();

 private:
  // A slab is kept, for the next small call.
  static constexpr size_t kKeepBytes = kSlabBytes;

  // What is needed now before what is ahead of need: the order of wanted_.
  struct Wanted {
    bool is_ahead;
    size_t size_class;
    auto operator<=>(const Wanted&) const = default;
  };

  Shortage Request(const Wanted& wanted);
  void StartWatching();
  // False: no thread can be had.
  bool Start() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  SlabStore& slabs_;
  BufferCaches& caches_;
  const absl::Duration interval_;
  std::atomic<bool> available_;
  // GiveBackIdle() is due. Stored before idle memory is looked for, loaded after memory has become idle.
  std::atomic<bool> watching_{false};
  std::atomic<pid_t> process_{0};  // In which the thread is; 0: in none.

  absl::Mutex mutex_;
  absl::CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Wanted> wanted_ ABSL_GUARDED_BY(mutex_);                   // Being mapped, too.
  std::map<Wanted, absl::Duration> refused_ ABSL_GUARDED_BY(mutex_);  // Until when, by SteadyNow().
  std::thread thread_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_POOL_WORKER_H_
