#include "hawser/rpc/call_pool.h"

#include <utility>

#include "hawser/rpc/channel_core.h"
#include "hawser/rpc/untyped_call.h"

namespace hawser::internal {

CallPool::~CallPool() {
  while (UntypedCall* call = free_) {
    free_ = call->next_;
    delete call;
  }
}

UntypedCall* CallPool::Get(const std::shared_ptr<ChannelCore>& owner) {
  {
    std::lock_guard lock(mutex_);
    if (out_++ == 0) owner_ = owner;
    if (UntypedCall* call = free_; call != nullptr) {
      free_ = call->next_;
      return call;
    }
  }
  return new UntypedCall();
}

void CallPool::Put(UntypedCall* call) {
  std::shared_ptr<ChannelCore> last;
  bool close = false;
  {
    std::lock_guard lock(mutex_);
    call->next_ = free_;
    free_ = call;
    if (--out_ == 0) {
      last = std::move(owner_);
      close = close_when_idle_;
    }
  }
  if (close) last->Close(absl::CancelledError("the channel was let go"));
}

bool CallPool::CloseWhenIdle() {
  std::lock_guard lock(mutex_);
  close_when_idle_ = true;
  return out_ == 0;
}

}  // namespace hawser::internal
