#ifndef EXAMPLES_KV_WATCH_HUB_H_
#define EXAMPLES_KV_WATCH_HUB_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "examples/kv/change_log.h"

namespace kv {

// Brings the changes of a ChangeLog to those who watch them. A watch is a place in the log and at most one
// push in flight: the next is sent when that one has been answered, with all that has happened meanwhile. So
// a watcher that is slow gets larger batches, one that has stopped costs nothing at all, and neither slows a
// writer. One that the log has left behind is told that it has lost changes.
//
// A watcher with no push in flight is idle, and found by its prefix when a key changes: watchers of other
// keys cost a writer nothing. A watcher that resumes far back reads the log in steps, one a push, so it holds
// no thread for long; a step that finds nothing is a push without changes.
// Thread:   any. Nothing blocks, and pushes are started with no lock held.
// Lifetime: outlives the callbacks of its pushes.
class WatchHub {
 public:
  // Sends one batch to one watcher, and calls `done` once with what came of it: OK, the watcher has it. Must
  // not call `done` before it returns.
  using PushDone = std::function<void(const absl::Status& status)>;
  using Push = std::function<void(const ChangeLog::Batch& batch, PushDone done)>;

  explicit WatchHub(const ChangeLog* changes) : changes_(changes), notified_(changes->last_revision()) {}

  // Makes a client known: true if it was not. The caller then sees to it that RemovePeer() is called when it
  // is gone.
  bool AddPeer(std::shared_ptr<const void> peer);
  void RemovePeer(const void* peer);

  struct Started {
    uint64_t revision;  // Changes after this one are pushed.
    bool lost;          // `after` is no longer, or not yet, in the log.
  };
  // Watches on behalf of a peer, instead of an earlier watch of the same number. `after`: resume after that
  // revision; nothing: from now on. Unavailable: the peer is gone. ResourceExhausted: it has kWatchesMax
  // watches, or has left as many pushes unanswered (of watches that were replaced, too), or all peers have
  // kAllWatchesMax.
  absl::StatusOr<Started> Watch(const void* peer, uint64_t number, absl::string_view prefix,
                                std::optional<uint64_t> after, Push push);
  void Unwatch(const void* peer, uint64_t number);

  // There is something new in the log. Call it after each change, on the thread that made it.
  void Notify();

  size_t watches() const;
  // Watchers with no push in flight: at most watches(). For tests.
  size_t idle_watchers() const;

  static constexpr size_t kWatchesMax = 256;  // Of one peer.
  // One change may start a push to each of them.
  static constexpr size_t kAllWatchesMax = 16384;

 private:
  struct Watcher {
    const void* peer;
    uint64_t number;
    std::string prefix;
    Push push;
    std::shared_ptr<size_t> in_flight;  // Its peer's.
    uint64_t after = 0;                 // What it has been told, or need not be.
    bool removed = false;               // No longer among its peer's.
  };
  using WatcherPtr = std::shared_ptr<Watcher>;
  struct Peer {
    std::shared_ptr<const void> keep;  // While we use its address as its name, nobody else gets that address.
    absl::flat_hash_map<uint64_t, WatcherPtr> watchers;
    // Pushes that it has not answered. Shared: those outlive the peer.
    std::shared_ptr<size_t> in_flight = std::make_shared<size_t>(0);
  };
  using Pushes = std::vector<std::pair<WatcherPtr, ChangeLog::Batch>>;

  // Adds a push to `pushes` if there is something to tell, otherwise makes the watcher idle.
  void Next(const WatcherPtr& watcher, Pushes* pushes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeIdle(const WatcherPtr& watcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveIdle(const WatcherPtr& watcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The idle watchers whose prefix `key` begins with, and which have not been told of `revision`. They are
  // idle no more.
  void TakeIdle(absl::string_view key, uint64_t revision, std::vector<WatcherPtr>* taken)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Start(Pushes pushes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns what was removed, for the caller to destroy without the lock; or null.
  WatcherPtr Remove(const void* peer, uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pushed(const WatcherPtr& watcher, uint64_t through, const absl::Status& status);

  const ChangeLog* const changes_;
  mutable absl::Mutex mutex_;  // Before that of changes_.
  absl::flat_hash_map<const void*, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  // Those with no push in flight, by prefix; no prefix is without one. std::less<>: looked up by string_view.
  std::map<std::string, absl::flat_hash_set<WatcherPtr>, std::less<>> idle_ ABSL_GUARDED_BY(mutex_);
  // Those whose last push found no memory, which is still to be sent.
  absl::flat_hash_set<WatcherPtr> starved_ ABSL_GUARDED_BY(mutex_);
  size_t watch_count_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t notified_ ABSL_GUARDED_BY(mutex_);  // Idle watchers have been found for the changes up to this.
};

}  // namespace kv

#endif  // EXAMPLES_KV_WATCH_HUB_H_
