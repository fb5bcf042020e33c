#include "hawser/rpc/callback_gate.h"

#include <mutex>

namespace hawser::internal {
namespace {

std::mutex& MutexOfAll() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

}  // namespace

CallbackGate::Thread& CallbackGate::ThisThread() {
  thread_local Thread thread;
  return thread;
}

bool CallbackGate::Enter() {
  if (depth_ == 0) {
    inside_ = &ThisThread();
    uint32_t open = 0;
    if (!state_.compare_exchange_strong(open, kInside, std::memory_order_acq_rel)) return false;
  } else if ((state_.load(std::memory_order_acquire) & kClosed) != 0) {
    return false;
  }
  ++depth_;
  return true;
}

void CallbackGate::Leave() {
  if (--depth_ != 0) return;
  if ((state_.fetch_and(~kInside, std::memory_order_acq_rel) & kClosed) != 0) state_.notify_all();
}

// Follows the thread inside this gate to the gate that it waits for, and so on.
bool CallbackGate::WaitsForThisThread() const {
  const CallbackGate* gate = this;
  while (gate != nullptr && (gate->state_.load(std::memory_order_acquire) & kInside) != 0) {
    if (gate->inside_ == &ThisThread()) return true;
    gate = gate->inside_->waits_for;
  }
  return false;
}

void CallbackGate::Close() {
  uint32_t state = state_.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
  if ((state & kInside) == 0) return;
  {
    std::lock_guard<std::mutex> lock(MutexOfAll());
    if (WaitsForThisThread()) return;
    ThisThread().waits_for = this;
  }
  while (((state = state_.load(std::memory_order_acquire)) & kInside) != 0) state_.wait(state);
  std::lock_guard<std::mutex> lock(MutexOfAll());
  ThisThread().waits_for = nullptr;
}

}  // namespace hawser::internal
