#include "hawser/rpc/serving/callback_gate.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace hawser::internal {
namespace {

// Threads in Close(), and the gates that they wait for. One table for the process: there are rarely two
// entries.
struct Waiting {
  std::thread::id thread;
  const CallbackGate* gate;
};
struct AllWaiting {
  std::mutex mutex;
  std::vector<Waiting> list;
};

AllWaiting& TheWaiting() {
  static auto* const waiting = new AllWaiting;
  return *waiting;
}

}  // namespace

bool CallbackGate::Enter() {
  if (depth_ == 0) {
    inside_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    uint32_t open = 0;
    if (!state_.compare_exchange_strong(open, kInside, std::memory_order_acq_rel)) return false;
  } else if (closed()) {
    return false;
  }
  ++depth_;
  return true;
}

void CallbackGate::Leave() {
  if (--depth_ != 0) return;
  if ((state_.fetch_and(~kInside, std::memory_order_acq_rel) & kClosed) != 0) state_.notify_all();
}

// Follows the thread inside this gate to the gate that it waits for, then the thread inside that one, and so
// on.
bool CallbackGate::WaitsForThisThread() const {
  const std::vector<Waiting>& all = TheWaiting().list;
  const CallbackGate* gate = this;
  // Bounded by the number of waiting threads: the thread inside a gate may change meanwhile.
  for (size_t steps = 0; steps <= all.size(); ++steps) {
    if ((gate->state_.load(std::memory_order_acquire) & kInside) == 0) return false;
    const std::thread::id inside = gate->inside_.load(std::memory_order_relaxed);
    if (inside == std::this_thread::get_id()) return true;
    const auto at =
        std::find_if(all.begin(), all.end(), [&](const Waiting& each) { return each.thread == inside; });
    if (at == all.end()) return false;
    gate = at->gate;
  }
  return false;
}

void CallbackGate::Close() {
  uint32_t state = state_.fetch_or(kClosed, std::memory_order_acq_rel);
  if ((state & kInside) == 0) return;
  AllWaiting& waiting = TheWaiting();
  const std::thread::id self = std::this_thread::get_id();
  {
    std::lock_guard<std::mutex> lock(waiting.mutex);
    if (WaitsForThisThread()) return;
    waiting.list.push_back({self, this});
  }
  while (((state = state_.load(std::memory_order_acquire)) & kInside) != 0) state_.wait(state);
  std::lock_guard<std::mutex> lock(waiting.mutex);
  waiting.list.erase(std::find_if(waiting.list.begin(), waiting.list.end(),
                                  [&](const Waiting& each) { return each.thread == self; }));
}

}  // namespace hawser::internal
