#ifndef HAWSER_RPC_CLIENT_CALL_POOL_H_
#define HAWSER_RPC_CLIENT_CALL_POOL_H_

#include <atomic>
#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "hawser/base/mutex.h"

namespace hawser::internal {

class ChannelCore;
class UntypedCall;

// The call objects of one channel, kept for reuse, so that a call in steady state allocates nothing. It holds
// as many as were ever in use at once.
// Thread:   any.
// Lifetime: a part of its ChannelCore, which it keeps alive while a call is in use.
class CallPool {
 public:
  CallPool() = default;
  CallPool(const CallPool&) = delete;
  CallPool& operator=(const CallPool&) = delete;

  UntypedCall* Get(const std::shared_ptr<ChannelCore>& owner);

  // May close and destroy the owner, and this.
  void Put(UntypedCall* call);

  // No more calls are created: the return of the last one closes the owner. True: none is in use.
  bool CloseWhenIdle();

  // A hint: it changes meanwhile.
  size_t in_use() const { return out_.load(std::memory_order_relaxed); }

 private:
  class FreeList {
   public:
    ~FreeList();
    void Push(UntypedCall* call);
    UntypedCall* Pop();  // Null: there is none.
    size_t size() const { return size_; }

   private:
    UntypedCall* first_ = nullptr;
    size_t size_ = 0;
  };

  // Counts a call that is taken, or returned, while others are in use. False: it would be the first one taken
  // or the last one returned, which needs the mutex.
  bool CountOneMore();
  bool CountOneLess();

  // The poller's own: a call that starts and ends there takes no lock.
  FreeList free_on_poller_;

  Mutex mutex_;
  FreeList free_ ABSL_GUARDED_BY(mutex_);
  std::atomic<size_t> out_{0};  // To zero, and from it, under mutex_.
  bool close_when_idle_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<ChannelCore> owner_ ABSL_GUARDED_BY(mutex_);  // While out_ > 0.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CALL_POOL_H_
