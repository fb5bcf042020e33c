#include "hawser/transport/poller/wait_event.h"

#include "hawser/base/futex.h"

namespace hawser::transport {

// Set() stores state_, then loads `sleeper_`. A driver that falls asleep stores that, then loads state_. With
// seq_cst one of the two sees the other's store. The order of the steps is that of the table in
// driver_role.cc.
void WaitEvent::Set() {
  // A thread that may be nudged passes the driving on by itself when it leaves, so a nudge that this
  // overwrites is not missed.
  if ((state_.exchange(kSet, std::memory_order_seq_cst) & kAwaited) != 0) FutexWake(state_);
  // The driver may be asleep, if another thread that is on the poller for a moment calls this.
  if (fabric::CompletionQueue* const sleeper = sleeper_.load(std::memory_order_seq_cst)) sleeper->Wake();
}

void WaitEvent::Reset() { state_.store(0, std::memory_order_relaxed); }

void WaitEvent::Nudge() {
  if ((state_.fetch_or(kNudged, std::memory_order_acq_rel) & kAwaited) != 0) FutexWake(state_);
}

void WaitEvent::AwaitSetOrNudged(absl::Duration patience) {
  const uint32_t state = state_.fetch_or(kAwaited, std::memory_order_acq_rel);
  if ((state & (kSet | kNudged)) == 0) FutexWait(state_, kAwaited, patience);
  state_.fetch_and(~(kAwaited | kNudged), std::memory_order_acq_rel);
}

bool WaitEvent::StartSleep(fabric::CompletionQueue& completion_queue) {
  sleeper_.store(&completion_queue, std::memory_order_seq_cst);
  if ((state_.load(std::memory_order_seq_cst) & kSet) == 0) return true;
  EndSleep();
  return false;
}

void WaitEvent::EndSleep() { sleeper_.store(nullptr, std::memory_order_relaxed); }

}  // namespace hawser::transport
