#ifndef EXAMPLES_KV_WATCH_HUB_H_
#define EXAMPLES_KV_WATCH_HUB_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
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
// prefixes, so watchers of other keys cost a writer nothing. However many watch the key, a change starts at
// most kStartedMax pushes at once. The others follow, as many at a time, in later turns of a poller, so they
// hold up nothing else on it; the prefixes take turns. A watcher that resumes at an old revision reads the
// log in steps, one for each push, so it blocks no thread for long; a step that finds nothing is a push
// without changes.
// Thread:   any. Nothing blocks, and pushes are started with no lock held.
// Lifetime: outlives the callbacks of its pushes.
class WatchHub {
 public:
  enum class PushEnd {
    kReceived,
    // No answer came in time, and the push may or may not have arrived: it is repeated at once. So this is
    // not for an answer, which may come at once, too, for ever.
    kTimedOut,
    // There was no memory for it, here or at the watcher. It is repeated after the next change of any key.
    kNoMemory,
    // The watch ends: the client is gone, does not know it, or has failed to take the push.
    kFailed,
  };
  // Sends one batch to one watcher, and calls `done` once. Must not call it itself. Another thread may call
  // it before this returns, and then call this again. `soon`, if it is not empty, is to be called once, too,
  // in a later turn of the poller of that watcher, also when the push fails: it starts further pushes.
  using PushDone = std::function<void(PushEnd end)>;
  using Soon = std::function<void()>;
  using Push = std::function<void(const ChangeLog::Batch& batch, PushDone done, Soon soon)>;

  explicit WatchHub(const ChangeLog* changes) : changes_(changes), notified_(changes->last_revision()) {}

  // Adds a client. `address`: "tcp://10.0.0.7:51234", as of hawser::Channel::peer_address(). True: it is new,
  // and the caller must call RemovePeer() when it disconnects.
  bool AddPeer(std::shared_ptr<const void> peer, absl::string_view address);
  void RemovePeer(const void* peer);

  struct Started {
    uint64_t revision;  // The hub pushes changes after this one.
    bool lost;          // `after` is no longer, or not yet, in the log.
  };
  // Adds a watch for a peer, and replaces an earlier one with the same number. `after`: resumes after that
  // revision; nullopt: starts now. Unavailable: the peer has disconnected. ResourceExhausted: it has
  // kWatchesMax watches, or as many unanswered pushes (also of replaced watches), or the peers of its host
  // together have kHostWatchesMax, or all peers together kAllWatchesMax.
  absl::StatusOr<Started> Watch(const void* peer, uint64_t number, absl::string_view prefix,
                                std::optional<uint64_t> after, Push push);
  void Unwatch(const void* peer, uint64_t number);

  // Call this after each change in the log, on the thread that made it.
  void Notify();

  size_t watches() const;
  // Watchers with no push in flight: at most watches(). For tests.
  size_t idle_watchers() const;

  static constexpr size_t kWatchesMax = 256;  // For one peer.
  static constexpr size_t kAllWatchesMax = 16384;
  // For the peers of one IPv4 address, or of one IPv6 network of 64 bits, in which one machine may have any
  // address. So one host leaves room for others.
  static constexpr size_t kHostWatchesMax = kAllWatchesMax / 4;
  // Pushes that are started at once: some 0.1 ms of a poller to start, and over TCP up to as many system
  // calls, if each goes to another client.
  static constexpr size_t kStartedMax = 64;

 private:
  struct Group;
  struct Watcher;
  using WatcherPtr = std::shared_ptr<Watcher>;
  struct Watcher {
    const void* peer;
    uint64_t number;
    std::string prefix;
    Push push;
    std::shared_ptr<size_t> in_flight;   // Shared with its peer.
    uint64_t after = 0;                  // It has received all changes up to this one that concern it.
    bool removed = false;                // It is no longer in its peer's `watchers`.
    Group* group = nullptr;              // Null: it is not idle.
    std::list<WatcherPtr>::iterator at;  // In that group.
    uint64_t idle_since = 0;             // The newest change when it became idle.
  };
  // The idle watchers of one prefix. Each change is known to all of them in one step, however many they are:
  // those that became idle before it are due.
  struct Group {
    std::list<WatcherPtr> idle;  // In the order in which they became idle.
    uint64_t changed = 0;        // The newest change that concerns them.
    // The change that made the group due, if it is; 0: one that is not known. No change before it concerns
    // those that were idle then.
    uint64_t since = 0;
    bool is_due = false;
    std::list<Group*>::iterator at;  // In due_, if it is due.
  };
  struct Peer {
    std::shared_ptr<const void> keep;  // Its address is the key, so no other object may get that address.
    std::string host;
    absl::flat_hash_map<uint64_t, WatcherPtr> watchers;
    // Pushes that it has not answered. Shared with them, because they outlive the peer.
    std::shared_ptr<size_t> in_flight = std::make_shared<size_t>(0);
  };
  // Started without the lock.
  struct Pushes {
    std::vector<std::pair<WatcherPtr, ChangeLog::Batch>> pushes;
    bool more = false;  // The last one is to call StartSoon().
  };

  // Adds a push to `pushes` if there are changes for the watcher, otherwise makes it idle.
  void Next(const WatcherPtr& watcher, Pushes* pushes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeIdle(const WatcherPtr& watcher, Group& group, uint64_t newest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // No effect if it is not idle.
  void RemoveIdle(Watcher& watcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Change `revision` concerns those of the group that became idle before it. `since`: see Group.
  void MakeDue(Group& group, uint64_t revision, uint64_t since) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // MakeDue() of each group whose prefix `key` begins with.
  void MakeDue(absl::string_view key, uint64_t revision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes at most kStartedMax of those that are due, unless StartSoon() will.
  void TakeDue(Pushes* pushes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartSoon() ABSL_LOCKS_EXCLUDED(mutex_);
  void Start(Pushes started) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns what was removed, for the caller to destroy without the lock; or null.
  WatcherPtr Remove(const void* peer, uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `count` watches of a host more.
  void AddToHost(const std::string& host, size_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SubtractFromHost(const std::string& host, size_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pushed(const WatcherPtr& watcher, uint64_t through, PushEnd end);

  const ChangeLog* const changes_;
  mutable absl::Mutex mutex_;  // Acquired before that of changes_.
  absl::flat_hash_map<const void*, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, size_t> hosts_ ABSL_GUARDED_BY(mutex_);  // Watches of each; none is 0.
  // By prefix; none is empty. std::less<> allows lookups by string_view.
  std::map<std::string, Group, std::less<>> groups_ ABSL_GUARDED_BY(mutex_);
  // Watchers of any prefix whose last push found no memory and is still to be sent.
  Group starved_ ABSL_GUARDED_BY(mutex_);
  // The groups with watchers that are due. They take turns, so that many watchers of one prefix do not keep
  // those of another waiting.
  std::list<Group*> due_ ABSL_GUARDED_BY(mutex_);
  bool starts_soon_ ABSL_GUARDED_BY(mutex_) = false;  // StartSoon() will be called. True if any are due.
  size_t watch_count_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t notified_ ABSL_GUARDED_BY(mutex_);  // Notify() has handled all changes up to this one.
};

}  // namespace kv

#endif  // EXAMPLES_KV_WATCH_HUB_H_
