#include "hawser/rpc/internal/cancel_scope.h"

#include <vector>

#include "hawser/rpc/internal/untyped_call.h"

namespace hawser::internal {

bool CancelScope::Add(UntypedCall& call) {
  absl::MutexLock lock(&mutex_);
  calls_.insert(&call);
  return !cancelled_;
}

void CancelScope::Remove(UntypedCall& call) {
  absl::MutexLock lock(&mutex_);
  calls_.erase(&call);
}

void CancelScope::Cancel() {
  std::vector<CallHandle> calls;
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    for (UntypedCall* call : calls_) calls.push_back(CallHandle::To(*call));
  }
  // Not under the lock: a call that ends removes itself from the scope.
  for (CallHandle& call : calls) call.Cancel();
}

}  // namespace hawser::internal
