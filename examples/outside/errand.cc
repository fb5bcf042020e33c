#include "errand.h"

#include <utility>

void Errand::Finish(const absl::Status& outcome) {
  absl::MutexLock lock(&mu_);
  outcome_ = outcome;
  finished_ = true;
}

absl::Status Errand::Wait() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&finished_));
  return std::move(outcome_);
}
