#include "hawser/rpc/client/call_pool.h"

#include <utility>

#include "hawser/rpc/client/call_sender.h"
#include "hawser/rpc/client/untyped_call.h"

namespace hawser::internal {

CallPool::FreeList::~FreeList() {
  while (UntypedCall* const call = Pop()) delete call;
}

UntypedCall* CallPool::GetShared(const std::shared_ptr<CallSender>& owner) {
  {
    MutexLock lock(mutex_);
    if (out_.fetch_add(1, std::memory_order_relaxed) == 0) owner_ = owner;
    if (UntypedCall* const call = free_.Pop(); call != nullptr) return call;
  }
  return new UntypedCall();
}

void CallPool::PutShared(UntypedCall* call) {
  std::shared_ptr<CallSender> last;
  bool close = false;
  {
    MutexLock lock(mutex_);
    free_.Push(call);
    if (out_.fetch_sub(1, std::memory_order_relaxed) == 1) {
      last = std::move(owner_);
      close = close_when_idle_;
    }
  }
  if (close) last->CloseIfIdle();
}

void CallPool::CloseWhenIdle() {
  MutexLock lock(mutex_);
  keeps_on_poller_.store(false, std::memory_order_relaxed);
  close_when_idle_ = true;
}

void CallPool::GiveUpKept() {
  while (UntypedCall* const call = free_on_poller_.Pop()) PutShared(call);
}

}  // namespace hawser::internal
