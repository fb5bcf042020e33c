#ifndef HAWSER_RPC_INTERNAL_CALL_POOL_H_
#define HAWSER_RPC_INTERNAL_CALL_POOL_H_

#include <atomic>
#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "hawser/base/mutex.h"

namespace hawser::internal {

class ChannelCore;
class UntypedCall;

// The call objects of one channel, kept for the next call, so that a call in steady state allocates nothing.
// There are as many as were ever in use at once.
// Thread:   any.
// Lifetime: a part of its ChannelCore, which it keeps alive while a call is out.
class CallPool {
 public:
  CallPool() = default;
  CallPool(const CallPool&) = delete;
  CallPool& operator=(const CallPool&) = delete;

  UntypedCall* Get(const std::shared_ptr<ChannelCore>& owner);

  // May close and destroy the owner, and this.
  void Put(UntypedCall* call);

  // No further calls are made: the owner is closed when the last one is back. True: none is out.
  bool CloseWhenIdle();

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

  // Another one is out, or back, while others still are. False: it would be the first that is taken, or the
  // last that comes back, and that needs the mutex.
  bool CountOneMore();
  bool CountOneLess();

  // Kept by the poller: a call that starts and ends there takes no lock.
  FreeList free_on_poller_;

  Mutex mutex_;
  FreeList free_ ABSL_GUARDED_BY(mutex_);
  std::atomic<size_t> out_{0};  // To zero, and from it, under mutex_.
  bool close_when_idle_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<ChannelCore> owner_ ABSL_GUARDED_BY(mutex_);  // While out_ > 0.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_INTERNAL_CALL_POOL_H_
