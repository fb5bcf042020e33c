#include "hawser/rpc/wire/cancel_scope.h"

#include <memory>
#include <utility>
#include <vector>

#include "hawser/rpc/client/untyped_call.h"
#include "hawser/rpc/wire/alarm.h"

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

bool CancelScope::Add(Alarm& alarm) {
  absl::MutexLock lock(&mutex_);
  alarms_.insert(&alarm);
  return !cancelled_;
}

void CancelScope::Remove(Alarm& alarm) {
  absl::MutexLock lock(&mutex_);
  alarms_.erase(&alarm);
}

void CancelScope::Cancel() {
  std::vector<CallHandle> calls;
  std::vector<std::shared_ptr<Alarm>> alarms;
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    for (UntypedCall* call : calls_) calls.push_back(CallHandle::To(*call));
    for (Alarm* alarm : alarms_) {
      if (std::shared_ptr<Alarm> shared = alarm->weak_from_this().lock()) alarms.push_back(std::move(shared));
    }
  }
  // Not under the lock: a call that ends removes itself from the scope.
  for (CallHandle& call : calls) call.Cancel();
  for (const std::shared_ptr<Alarm>& alarm : alarms) alarm->Cancel();
}

}  // namespace hawser::internal
