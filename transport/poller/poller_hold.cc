#include "hawser/transport/poller/poller_hold.h"

#include "hawser/transport/poller/cpu_pause.h"

namespace hawser::transport {
namespace {

// How often the driving thread checks whether another thread has left the poller, before it sleeps: longer
// than a poster needs, shorter than falling asleep and waking up.
constexpr int kLooksAtHolder = 64;

}  // namespace

// For the driving thread only. A poster leaves within a microsecond, unless it was preempted. Spinning would
// then use up a time slice, and under SCHED_FIFO it would keep the poster off this core for ever.
void PollerHold::AwaitRelease() {
  for (int i = 0; i < kLooksAtHolder; ++i) {
    if (held_.load(std::memory_order_relaxed) == kFree) return;
    CpuPause();
  }
  int held = kHeld;
  if (held_.compare_exchange_strong(held, kHeldAndAwaited, std::memory_order_seq_cst) ||
      held == kHeldAndAwaited) {
    held_.wait(kHeldAndAwaited, std::memory_order_seq_cst);
  }
}

bool PollerHold::HeldBeside() const {
  for (const PollerHold* hold = innermost_; hold != nullptr; hold = hold->outer_) {
    if (hold == this) return true;
  }
  return false;
}

// In a child that a handler created with fork(), the parent's pollers do not count.
bool PollerHold::ThisThreadHoldsOne() {
  for (const PollerHold* hold = innermost_; hold != nullptr; hold = hold->outer_) {
    if (!hold->made_in_.in_child()) return true;
  }
  return false;
}

std::optional<CalledOut::Call> PollerHold::CalledOutOnThisThread() {
  for (const PollerHold* hold = innermost_; hold != nullptr; hold = hold->outer_) {
    if (hold->made_in_.in_child()) continue;
    if (std::optional<CalledOut::Call> call = hold->called_out_.Now(); call.has_value()) return call;
  }
  return std::nullopt;
}

}  // namespace hawser::transport
