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

// Pushes the changes of a ChangeLog to watchers. A watch is a position in the log and at most one push in
// flight. The hub sends the next push, with all changes made meanwhile, when the last one has been answered.
// So a slow watcher gets larger batches, a stopped one costs nothing, and neither slows a writer. If the log
// has dropped changes that a watcher has not received, the hub tells it so.
//
// A watcher without a push in flight is idle. When a key changes, the hub finds idle watchers by their
// prefixes, so watchers of other keys cost a writer nothing. A watcher that resumes at an old revision reads
// the log in steps, one for each push, so it blocks no thread for long; a step that finds nothing is a push
// without changes.
// Thread:   any. Nothing blocks, and pushes are started with no lock held.
// Lifetime: outlives the callbacks of its pushes.
class WatchHub {
 public:
  // Sends one batch to one watcher, and calls `done` once with the result; OK: the watcher has it. Must not
  // call `done` itself. Another thread may call it before this returns, and then call this again.
  using PushDone = std::function<void(const absl::Status& status)>;
  using Push = std::function<void(const ChangeLog::Batch& batch, PushDone done)>;

  explicit WatchHub(const ChangeLog* changes) : changes_(changes), notified_(changes->last_revision()) {}

  // Adds a client. True: it is new, and the caller must call RemovePeer() when it disconnects.
  bool AddPeer(std::shared_ptr<const void> peer);
  void RemovePeer(const void* peer);

  struct Started {
    uint64_t revision;  // The hub pushes changes after this one.
    bool lost;          // `after` is no longer, or not yet, in the log.
  };
  // Adds a watch for a peer, and replaces an earlier one with the same number. `after`: resumes after that
  // revision; nullopt: starts now. Unavailable: the peer has disconnected. ResourceExhausted: it has
  // kWatchesMax watches, or as many unanswered pushes (also of replaced watches), or all peers together have
  // kAllWatchesMax.
  absl::StatusOr<Started> Watch(const void* peer, uint64_t number, absl::string_view prefix,
                                std::optional<uint64_t> after, Push push);
  void Unwatch(const void* peer, uint64_t number);

  // Call this after each change in the log, on the thread that made it.
  void Notify();

  size_t watches() const;
  // Watchers with no push in flight: at most watches(). For tests.
  size_t idle_watchers() const;

  static constexpr size_t kWatchesMax = 256;  // For one peer.
  // One change may start a push to each of them.
  static constexpr size_t kAllWatchesMax = 16384;

 private:
  struct Watcher {
    const void* peer;
    uint64_t number;
    std::string prefix;
    Push push;
    std::shared_ptr<size_t> in_flight;  // Shared with its peer.
    uint64_t after = 0;                 // It has received all changes up to this one that concern it.
    bool removed = false;               // It is no longer in its peer's `watchers`.
  };
  using WatcherPtr = std::shared_ptr<Watcher>;
  struct Peer {
    std::shared_ptr<const void> keep;  // Its address is the key, so no other object may get that address.
    absl::flat_hash_map<uint64_t, WatcherPtr> watchers;
    // Pushes that it has not answered. Shared with them, because they outlive the peer.
    std::shared_ptr<size_t> in_flight = std::make_shared<size_t>(0);
  };
  using Pushes = std::vector<std::pair<WatcherPtr, ChangeLog::Batch>>;

  // Adds a push to `pushes` if there are changes for the watcher, otherwise makes it idle.
  void Next(const WatcherPtr& watcher, Pushes* pushes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeIdle(const WatcherPtr& watcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveIdle(const WatcherPtr& watcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the idle watchers whose prefix `key` begins with, and which have not received `revision`. They are
  // no longer idle.
  void TakeIdle(absl::string_view key, uint64_t revision, std::vector<WatcherPtr>* taken)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Start(Pushes pushes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns what was removed, for the caller to destroy without the lock; or null.
  WatcherPtr Remove(const void* peer, uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pushed(const WatcherPtr& watcher, uint64_t through, const absl::Status& status);

  const ChangeLog* const changes_;
  mutable absl::Mutex mutex_;  // Acquired before that of changes_.
  absl::flat_hash_map<const void*, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  // Watchers without a push in flight, by prefix; no set is empty. std::less<> allows lookups by string_view.
  std::map<std::string, absl::flat_hash_set<WatcherPtr>, std::less<>> idle_ ABSL_GUARDED_BY(mutex_);
  // Watchers whose last push found no memory and is still to be sent.
  absl::flat_hash_set<WatcherPtr> starved_ ABSL_GUARDED_BY(mutex_);
  size_t watch_count_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t notified_ ABSL_GUARDED_BY(mutex_);  // Notify() has handled all changes up to this one.
};

}  // namespace kv

#endif  // EXAMPLES_KV_WATCH_HUB_H_
