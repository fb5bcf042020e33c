#include "hawser/rpc/client/call_pool.h"

#include <utility>

#include "hawser/rpc/client/channel_core.h"
#include "hawser/rpc/client/untyped_call.h"

namespace hawser::internal {
namespace {

// Calls that the poller keeps for itself: as many as its MessageCache keeps messages.
constexpr size_t kKeptOnPollerMax = 64;

}  // namespace

CallPool::FreeList::~FreeList() {
  while (UntypedCall* const call = Pop()) delete call;
}

void CallPool::FreeList::Push(UntypedCall* call) {
  call->next_ = first_;
  first_ = call;
  ++size_;
}

UntypedCall* CallPool::FreeList::Pop() {
  UntypedCall* const call = first_;
  if (call == nullptr) return nullptr;
  first_ = call->next_;
  --size_;
  return call;
}

bool CallPool::CountOneMore() {
  size_t out = out_.load(std::memory_order_relaxed);
  while (out > 0) {
    if (out_.compare_exchange_weak(out, out + 1, std::memory_order_relaxed)) return true;
  }
  return false;
}

bool CallPool::CountOneLess() {
  size_t out = out_.load(std::memory_order_relaxed);
  while (out > 1) {
    if (out_.compare_exchange_weak(out, out - 1, std::memory_order_release, std::memory_order_relaxed))
      return true;
  }
  return false;
}

UntypedCall* CallPool::Get(const std::shared_ptr<ChannelCore>& owner) {
  if (owner->poller().Held() && free_on_poller_.size() > 0 && CountOneMore()) return free_on_poller_.Pop();
  {
    MutexLock lock(mutex_);
    if (out_.fetch_add(1, std::memory_order_relaxed) == 0) owner_ = owner;
    if (UntypedCall* const call = free_.Pop(); call != nullptr) return call;
  }
  return new UntypedCall();
}

void CallPool::Put(UntypedCall* call) {
  if (call->core_->poller().Held() && free_on_poller_.size() < kKeptOnPollerMax) {
    // Counted last: afterwards another thread may return the last call, which destroys this.
    free_on_poller_.Push(call);
    if (CountOneLess()) return;
    free_on_poller_.Pop();
  }
  std::shared_ptr<ChannelCore> last;
  bool close = false;
  {
    MutexLock lock(mutex_);
    free_.Push(call);
    if (out_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      last = std::move(owner_);
      close = close_when_idle_;
    }
  }
  if (close) last->CloseIfIdle();
}

bool CallPool::CloseWhenIdle() {
  MutexLock lock(mutex_);
  close_when_idle_ = true;
  return out_.load(std::memory_order_relaxed) == 0;
}

}  // namespace hawser::internal
