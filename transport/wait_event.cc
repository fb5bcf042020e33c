#include "hawser/transport/wait_event.h"

namespace hawser::transport {

// Set() stores `set_`, then loads `awaited_` and `sleeper_`. A thread that falls asleep stores one of these,
// then loads `set_`. With seq_cst one of the two sees the other's store.
void WaitEvent::Set() {
  set_.store(true, std::memory_order_seq_cst);
  if (awaited_.load(std::memory_order_seq_cst)) {
    // After this the other thread has seen `set_`, or waits for `wake_`. It is notified without the lock: it would wake only
    // to wait for that.
    mutex_.lock();
    mutex_.unlock();
    wake_.notify_one();
  }
  // The driver may be asleep, if another thread that is on the poller for a moment calls this.
  if (fabric::CompletionQueue* const sleeper = sleeper_.load(std::memory_order_seq_cst)) sleeper->Wake();
}

void WaitEvent::Reset() { set_.store(false, std::memory_order_relaxed); }

void WaitEvent::Nudge() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    nudged_ = true;
  }
  wake_.notify_one();
}

void WaitEvent::AwaitSetOrNudged(absl::Duration patience) {
  std::unique_lock<std::mutex> lock(mutex_);
  awaited_.store(true, std::memory_order_seq_cst);
  const auto over = [this] { return nudged_ || set_.load(std::memory_order_seq_cst); };
  if (patience == absl::InfiniteDuration()) {
    wake_.wait(lock, over);
  } else {
    wake_.wait_for(lock, absl::ToChronoNanoseconds(patience), over);
  }
  awaited_.store(false, std::memory_order_relaxed);
  nudged_ = false;
}

bool WaitEvent::StartSleep(fabric::CompletionQueue& completion_queue) {
  sleeper_.store(&completion_queue, std::memory_order_seq_cst);
  if (!set_.load(std::memory_order_seq_cst)) return true;
  EndSleep();
  return false;
}

void WaitEvent::EndSleep() { sleeper_.store(nullptr, std::memory_order_relaxed); }

}  // namespace hawser::transport
