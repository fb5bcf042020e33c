#ifndef HAWSER_TRANSPORT_SHARING_READ_LEDGER_H_
#define HAWSER_TRANSPORT_SHARING_READ_LEDGER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "hawser/base/mutex.h"
#include "hawser/base/peer_table.h"
#include "hawser/transport/memory/buffer_pool.h"

namespace hawser::transport {

// The memory of one pool that each host holds for large messages, and what announced messages wait for,
// summed over all pollers on that pool. The ReadAdmission of each poller is a member. Its ResponseWatch
// counts here what peers hold of responses.
// Thread:   any.
// Lifetime: outlives its members; its pool outlives it.
class ReadLedger {
 public:
  // A host, on all pollers. The ledger destroys it at the Part() that matches its first Join().
  struct Host {
    PeerHost key;
    size_t users = 0;
    uint64_t held_bytes = 0;  // For announced messages.
    // The bytes of responses that were granted to it and that it has not released, with what counts as those
    // (ResponseAccount). Changes without the ledger's lock.
    std::atomic<uint64_t> response_bytes{0};
  };

  class Member {
   protected:
    virtual ~Member() = default;

   private:
    friend class ReadLedger;
    // Another member has released memory, so a message of this member may be admitted. Called on any thread,
    // with the ledger locked; it may only set a flag and wake a poller.
    virtual void OnReleased() = 0;

    // Guarded by the ledger's mutex_.
    uint64_t missing_bytes_ = 0;
    int64_t missing_since_ns_ = 0;
    bool notified_ = false;  // And has not tried again yet.
  };

  // A host whose responses take at most this fraction of the pool is below its share, whatever others hold.
  static constexpr uint64_t kFreelyHeldFraction = 16;

  explicit ReadLedger(BufferPool& pool) : pool_(pool) {}
  ReadLedger(const ReadLedger&) = delete;
  ReadLedger& operator=(const ReadLedger&) = delete;

  void Add(Member& member);
  // When this returns, `member` is not called any more.
  void Remove(Member& member);

  Host& Join(const PeerHost& key);
  void Part(Host& host);

  // Why Lend() lends nothing.
  struct Refusal {
    Shortage why = Shortage::kAtLimit;
    bool by_pool = false;  // False: the host has its share.
  };

  // Acquires `bytes` (>= 1) from the pool and counts them against `host`. Refuses if `host` would then hold
  // more than `share` (0 to 1) of the memory that is free or its own; while no message holds any, only the
  // pool can refuse. Empty: see `refusal`.
  Lease Lend(Host& host, uint64_t bytes, double share, Refusal& refusal);
  // `bytes` that Lend() counted do not count any more. True: another member than `by` misses some.
  // NotifyReleased() is to follow when the memory is back in the pool.
  bool Release(Host& host, uint64_t bytes, const Member& by);
  // Notifies the members that miss some, but `by`.
  void NotifyReleased(const Member& by);

  // Whether `host` may hold `bytes`, which it takes from the pool already, as another response: a host has as
  // large a share for responses and announced messages together as for the latter alone. Its only response is
  // always allowed, and so is one with which its responses take no more than one in kFreelyHeldFraction of
  // the pool.
  bool MayHoldResponse(Host& host, uint64_t bytes, double share);
  void AddResponse(Host& host, uint64_t bytes) {
    host.response_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  void ReleaseResponse(Host& host, uint64_t bytes) {
    host.response_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  }
  // Its bytes of announced messages and of responses.
  uint64_t HeldBy(const Host& host) {
    MutexLock lock(mutex_);
    return host.held_bytes + host.response_bytes.load(std::memory_order_relaxed);
  }
  // How often MayHoldResponse() was false.
  uint64_t refused_responses() const { return refused_responses_.load(std::memory_order_relaxed); }
  // Some member misses memory. A hint: it may change at any time.
  bool any_misses() const { return any_misses_.load(std::memory_order_relaxed); }

  // Announced messages of `member` have tried and miss `bytes` that others hold; 0: none. Returns whether
  // another member misses some.
  bool SetMissing(Member& member, uint64_t bytes, int64_t now_ns);
  // They have tried again and still miss some.
  void StillMissing(Member& member);

  // The sum of what members have missed since `then_ns` or longer, less what is claimed. It is claimed from
  // now on: the caller ends connections that hold so much. Leaves out a member that was notified and has not
  // tried since, because its poller may be held. If the sum is not 0, or `is_short` (memory is missed
  // elsewhere), it is `at_least` that much.
  uint64_t ClaimMissing(int64_t then_ns, bool is_short = false, uint64_t at_least = 0);
  // `bytes` of those that were claimed were not found, or have returned.
  void Unclaim(uint64_t bytes);

 private:
  bool OthersMiss(const Member& member) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  BufferPool& pool_;
  // Held for longer only while the pool maps a slab. Locked before the mutexes of the pool.
  Mutex mutex_;
  std::vector<Member*> members_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<PeerHost, std::unique_ptr<Host>> hosts_ ABSL_GUARDED_BY(mutex_);
  uint64_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t claimed_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> any_misses_{false};
  std::atomic<uint64_t> refused_responses_{0};
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_SHARING_READ_LEDGER_H_
