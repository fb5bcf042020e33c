#ifndef HAWSER_TRANSPORT_PULL_LEDGER_H_
#define HAWSER_TRANSPORT_PULL_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/peer_table.h"
#include "hawser/transport/buffer_pool.h"

namespace hawser::transport {

// What each host holds of a pool for large messages, and who waits for such memory: the sums over all pollers on that
// pool. The PullAdmission of each poller is a member.
// Thread:   any.
// Lifetime: outlives its members; its pool outlives it.
class PullLedger {
 public:
  // Of one host, on all pollers. Belongs to the ledger while Join() was called more often than Part().
  struct Host {
    PeerHost key;
    size_t users = 0;
    uint64_t held_bytes = 0;
  };

  class Member {
   protected:
    virtual ~Member() = default;

   private:
    friend class PullLedger;
    // A pull of this member may be admitted, since memory of another does not count any more. Called on any thread with
    // the ledger locked: sets a flag and wakes a poller, and does nothing else.
    virtual void OnReleased() = 0;

    uint64_t wanted_bytes_ = 0;  // Guarded by the ledger's mutex_, as is the next.
    int64_t wanted_since_ns_ = 0;
  };

  explicit PullLedger(BufferPool& pool) : pool_(pool) {}
  PullLedger(const PullLedger&) = delete;
  PullLedger& operator=(const PullLedger&) = delete;

  void Add(Member& member);
  // When this returns, `member` is not called any more.
  void Remove(Member& member);

  Host& Join(const PeerHost& key);
  void Part(Host& host);

  // Why Lend() lends nothing.
  struct Refusal {
    Shortage why = Shortage::kAtLimit;
    bool by_pool = false;  // Otherwise the host has its share.
  };

  // A buffer of `bytes` (>= 1), which then count against `host`. Its host may hold `share` (0 to 1) of the memory that is
  // free or its own; that is not asked while no host holds any. Empty: `refusal` says why.
  Lease Lend(Host& host, uint64_t bytes, double share, Refusal& refusal);
  // `bytes` that count against `host` do not count any more. Notifies the members that want some, but `by`.
  void Release(Host& host, uint64_t bytes, const Member& by);
  uint64_t held_bytes() const;

  // The pulls that wait at `member` for what others hold want `bytes`; 0: none waits. True: another member wants some.
  bool SetWanted(Member& member, uint64_t bytes, int64_t now_ns);
  // What members want that have wanted some without a break since `then_ns`, less what is to come back.
  uint64_t MissingSince(int64_t then_ns) const;
  // Connections were ended to get back what they hold; negative: they have gone.
  void AddReturning(int64_t bytes);

 private:
  BufferPool& pool_;
  mutable absl::Mutex mutex_;
  std::vector<Member*> members_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<PeerHost, std::unique_ptr<Host>> hosts_ ABSL_GUARDED_BY(mutex_);
  uint64_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t returning_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_PULL_LEDGER_H_
