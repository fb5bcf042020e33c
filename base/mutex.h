#ifndef HAWSER_BASE_MUTEX_H_
#define HAWSER_BASE_MUTEX_H_

#include <atomic>

#include "absl/base/thread_annotations.h"

namespace hawser {

// A lock that is held for a few instructions and rarely contended: what a call passes through.
// Locking and unlocking a free one are an atomic instruction each, in place. A pthread mutex takes five times
// the instructions for that, and an absl::Mutex, where abseil was built with its deadlock detection as
// Debian's is, more than all else that a call does. A thread that finds it held sleeps in the kernel.
//
// Thread: any. Not recursive, not fair. Use MutexLock; there is no condition variable.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    int state = kFree;
    if (!state_.compare_exchange_strong(state, kHeld, std::memory_order_acquire, std::memory_order_relaxed)) {
      LockAwaited();
    }
  }

  // False: another thread holds it, and this one does not wait.
  bool try_lock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    int state = kFree;
    return state_.compare_exchange_strong(state, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }

  void unlock() ABSL_UNLOCK_FUNCTION() {
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) state_.notify_one();
  }

 private:
  static constexpr int kFree = 0;
  static constexpr int kHeld = 1;
  static constexpr int kAwaited = 2;  // Held, and other threads may be waiting.

  // A thread that has waited does not know of others that still wait, so it leaves the state at kAwaited.
  [[gnu::noinline, gnu::cold]] void LockAwaited() {
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
      state_.wait(kAwaited, std::memory_order_relaxed);
    }
  }

  std::atomic<int> state_ = kFree;
};

// Holds `mutex` as long as it lives. std::lock_guard does the same, but clang's thread-safety analysis does
// not see it: libstdc++ has no annotations.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace hawser

#endif  // HAWSER_BASE_MUTEX_H_
