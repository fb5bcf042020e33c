#ifndef HAWSER_TRANSPORT_FABRIC_MUTEX_H_
#define HAWSER_TRANSPORT_FABRIC_MUTEX_H_

#include <atomic>

namespace hawser {

// For what a call passes through: a lock held for a few instructions, which nobody else wants as a rule.
// Locking and unlocking one that is free are an atomic instruction each, in place; a pthread mutex takes five
// times the instructions for that, and an absl::Mutex, where abseil was built with its deadlock detection as
// Debian's is, more than all else that a call does. Who finds it held spins a little, then sleeps in the
// kernel.
//
// Thread: any. Not recursive, not fair. For std::lock_guard; no condition variable.
class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() {
    int state = kFree;
    if (!state_.compare_exchange_strong(state, kHeld, std::memory_order_acquire, std::memory_order_relaxed)) {
      LockAwaited();
    }
  }

  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) state_.notify_one();
  }

 private:
  static constexpr int kFree = 0;
  static constexpr int kHeld = 1;
  static constexpr int kAwaited = 2;  // Held, and perhaps somebody waits.

  // Who has waited does not know of others that do, so what it takes stays kAwaited.
  [[gnu::noinline, gnu::cold]] void LockAwaited() {
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
      state_.wait(kAwaited, std::memory_order_relaxed);
    }
  }

  std::atomic<int> state_ = kFree;
};

}  // namespace hawser

#endif  // HAWSER_TRANSPORT_FABRIC_MUTEX_H_
