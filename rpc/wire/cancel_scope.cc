#include "hawser/rpc/wire/cancel_scope.h"

#include <vector>

namespace hawser::internal {

bool CancelScope::Add(void* member, Canceller (*canceller)(void* member)) {
  absl::MutexLock lock(&mutex_);
  members_.emplace(member, canceller);
  return !cancelled_;
}

void CancelScope::Forget(void* member) {
  absl::MutexLock lock(&mutex_);
  members_.erase(member);
}

void CancelScope::Cancel() {
  std::vector<Canceller> cancellers;
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    cancellers.reserve(members_.size());
    for (const auto& [member, canceller] : members_) cancellers.push_back(canceller(member));
  }
  // Not under the lock: a call that ends removes itself from the scope.
  for (Canceller& cancel : cancellers) cancel();
}

}  // namespace hawser::internal
