#include "hawser/rpc/serving/method_counts.h"

#include <utility>

namespace hawser::internal {

void SlowCalls::Add(Call call, int64_t now_ns) {
  MutexLock lock(mutex_);
  Roll(now_ns);
  now_.push_back(std::move(call));
  std::sort(now_.begin(), now_.end(), [](const Call& a, const Call& b) { return a.all_ns > b.all_ns; });
  if (now_.size() > kKept) now_.pop_back();
  threshold_ns_.store(now_.size() == kKept ? now_.back().all_ns : 0, std::memory_order_relaxed);
}

std::vector<SlowCalls::Call> SlowCalls::Take(int64_t now_ns) {
  MutexLock lock(mutex_);
  Roll(now_ns);
  std::vector<Call> all = now_;
  all.insert(all.end(), before_.begin(), before_.end());
  return all;
}

void SlowCalls::Roll(int64_t now_ns) {
  const int64_t end_ns = minute_ends_ns_.load(std::memory_order_relaxed);
  if (now_ns < end_ns) return;
  before_ = now_ns - end_ns < kWindowNs ? std::move(now_) : std::vector<Call>();
  now_.clear();
  threshold_ns_.store(0, std::memory_order_relaxed);
  minute_ends_ns_.store(now_ns + kWindowNs, std::memory_order_relaxed);
}

}  // namespace hawser::internal
