#include "hawser/rpc/internal/method_counts.h"

#include <utility>

namespace hawser::internal {

void SlowCalls::Add(Call call) {
  MutexLock lock(mutex_);
  Roll(call.ended_unix_ns);
  now_.push_back(std::move(call));
  std::sort(now_.begin(), now_.end(), [](const Call& a, const Call& b) { return a.all_ns > b.all_ns; });
  if (now_.size() > kKept) now_.pop_back();
  threshold_ns_.store(now_.size() == kKept ? now_.back().all_ns : 0, std::memory_order_relaxed);
}

std::vector<SlowCalls::Call> SlowCalls::Take(int64_t now_unix_ns) {
  MutexLock lock(mutex_);
  Roll(now_unix_ns);
  std::vector<Call> all = now_;
  all.insert(all.end(), before_.begin(), before_.end());
  return all;
}

void SlowCalls::Roll(int64_t now_unix_ns) {
  const int64_t age_ns = now_unix_ns - began_unix_ns_;
  if (age_ns >= 0 && age_ns < kWindowNs) return;
  before_ = age_ns < 2 * kWindowNs ? std::move(now_) : std::vector<Call>();
  now_.clear();
  began_unix_ns_ = now_unix_ns;
  threshold_ns_.store(0, std::memory_order_relaxed);
}

}  // namespace hawser::internal
