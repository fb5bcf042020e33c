#include "hawser/transport/fabric/verbs/window_stock.h"

#include <utility>

namespace hawser::fabric {

ibv_mw* VerbsWindowStock::Take() {
  MutexLock lock(mutex_);
  if (windows_.empty()) return nullptr;
  ibv_mw* const window = windows_.front();
  windows_.pop_front();
  count_.store(windows_.size(), std::memory_order_relaxed);
  return window;
}

void VerbsWindowStock::OnDeviceHasMore() {
  MutexLock lock(mutex_);
  exhausted_ = false;
}

bool VerbsWindowStock::BeginFill() {
  MutexLock lock(mutex_);
  if (filling_ || exhausted_ || windows_.size() >= kLow) return false;
  return filling_ = true;
}

void VerbsWindowStock::Fill(ibv_pd* pd) {
  while (true) {
    ibv_mw* const window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    MutexLock lock(mutex_);
    exhausted_ = window == nullptr;  // Grant() says why, if it needs one.
    if (window != nullptr) windows_.push_back(window);
    count_.store(windows_.size(), std::memory_order_relaxed);
    filling_ = !exhausted_ && windows_.size() < kFull;
    if (!filling_) return;
  }
}

void VerbsWindowStock::Return(absl::Span<ibv_mw* const> windows) {
  size_t kept = 0;
  if (enabled_ && !windows.empty()) {
    MutexLock lock(mutex_);
    while (kept < windows.size() && windows_.size() < kMax) windows_.push_back(windows[kept++]);
    count_.store(windows_.size(), std::memory_order_relaxed);
    exhausted_ = false;
  }
  for (ibv_mw* window : windows.subspan(kept)) ibv_dealloc_mw(window);
}

void VerbsWindowStock::Clear() {
  std::deque<ibv_mw*> all;
  {
    MutexLock lock(mutex_);
    all = std::exchange(windows_, {});
    count_.store(0, std::memory_order_relaxed);
    exhausted_ = false;
  }
  for (ibv_mw* window : all) ibv_dealloc_mw(window);
}

}  // namespace hawser::fabric
