#ifndef HAWSER_RPC_CLIENT_CALL_POOL_H_
#define HAWSER_RPC_CLIENT_CALL_POOL_H_

#include <atomic>
#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "hawser/base/count.h"
#include "hawser/base/mutex.h"
#include "hawser/rpc/client/untyped_call.h"

namespace hawser::internal {

class CallSender;

// The call objects of one channel, kept for reuse, so that a call in steady state allocates nothing. It holds
// as many as were ever in use at once. The poller keeps some for itself: a call that starts and ends there
// takes no lock, and changes no count that threads share.
// Thread:   any.
// Lifetime: a part of its CallSender, which it keeps alive while a call is in use, or kept by the poller:
//           until the channel is destroyed.
class CallPool {
 public:
  CallPool() = default;
  CallPool(const CallPool&) = delete;
  CallPool& operator=(const CallPool&) = delete;

  // `on_poller`: this thread is on the poller of the owner.
  UntypedCall* Get(const std::shared_ptr<CallSender>& owner, bool on_poller) {
    UntypedCall* const call = on_poller ? free_on_poller_.Pop() : nullptr;
    return call != nullptr ? call : GetShared(owner);
  }

  // From the poller, for a call that holds nothing any more. False: the poller keeps no more calls.
  [[gnu::always_inline]] bool KeepOnPoller(UntypedCall* call) {
    if (free_on_poller_.size() >= kKeptOnPollerMax || !keeps_on_poller_.load(std::memory_order_relaxed))
      return false;
    free_on_poller_.Push(call);
    return true;
  }
  // May close and destroy the owner, and this. Not in a child after fork().
  void Put(UntypedCall* call, bool on_poller) {
    if (!on_poller || !KeepOnPoller(call)) PutShared(call);
  }

  // The poller keeps calls from here on. They keep the owner alive, so CloseWhenIdle() has to follow.
  void KeepOnPoller() { keeps_on_poller_.store(true, std::memory_order_relaxed); }
  // The channel is destroyed, and the poller keeps no more calls: the return of the last one closes the
  // owner. GiveUpKept() follows.
  void CloseWhenIdle();
  // Returns what the poller has kept. On the poller, after CloseWhenIdle().
  void GiveUpKept();

  // A hint: it changes meanwhile.
  size_t in_use() const {
    const size_t kept = free_on_poller_.size(), out = out_.load(std::memory_order_relaxed);
    return out > kept ? out - kept : 0;
  }

 private:
  // Calls that the poller keeps for itself: as many as its MessageCache keeps messages.
  static constexpr size_t kKeptOnPollerMax = 64;
  static constexpr uint64_t kMinusOne = ~uint64_t{0};

  class FreeList {
   public:
    ~FreeList();
    void Push(UntypedCall* call) {
      call->next_ = first_;
      first_ = call;
      size_.Add();
    }
    // Null: there is none.
    UntypedCall* Pop() {
      UntypedCall* const call = first_;
      if (call == nullptr) return nullptr;
      first_ = call->next_;
      size_.Add(kMinusOne);
      return call;
    }
    // From any thread.
    size_t size() const { return size_.value(); }

   private:
    UntypedCall* first_ = nullptr;
    Count size_;
  };

  [[gnu::noinline]] UntypedCall* GetShared(const std::shared_ptr<CallSender>& owner);
  [[gnu::noinline]] void PutShared(UntypedCall* call);

  // The poller's own.
  FreeList free_on_poller_;

  Mutex mutex_;
  FreeList free_ ABSL_GUARDED_BY(mutex_);
  std::atomic<size_t> out_{0};  // In use, or kept by the poller. Changed under mutex_.
  std::atomic<bool> keeps_on_poller_{false};
  bool close_when_idle_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<CallSender> owner_ ABSL_GUARDED_BY(mutex_);  // While out_ > 0.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CALL_POOL_H_
