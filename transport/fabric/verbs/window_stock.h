#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_WINDOW_STOCK_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_WINDOW_STOCK_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "hawser/base/mutex.h"

namespace hawser::fabric {

// Memory windows of type 2 of one protection domain that are bound to nothing. Allocating and deallocating
// one are commands to the device, so the control thread does both, and pollers take what is there. A window
// goes round:
//
//   device -> stock -> a queue pair, which binds and invalidates it again and again -> stock
//
// Once it is invalidated, any queue pair of its protection domain may bind it. One that may still be bound
// when its queue pair ends is deallocated instead.
// Thread: any.
class VerbsWindowStock {
 public:
  // What Fill() fills up to, and below which it should run again: a message of the usual size needs one
  // window, and a connection keeps those that it has used.
  static constexpr size_t kFull = 64;
  static constexpr size_t kLow = 32;
  // More is deallocated. Many come back at once when a host dies.
  static constexpr size_t kMax = 1024;

  // `enabled`: false: it is always empty.
  explicit VerbsWindowStock(bool enabled) : enabled_(enabled) {}

  // Null: there is none.
  ibv_mw* Take();

  // A caller has allocated one itself.
  void OnDeviceHasMore();

  // True: few are left, and the caller has the control thread call Fill(). False until Fill() has returned.
  bool RunsLow() { return enabled_ && count_.load(std::memory_order_relaxed) < kLow && BeginFill(); }

  // --- Commands of the control thread.

  // Allocates windows in `pd`, up to kFull. If the device has no more, RunsLow() stays false until one comes
  // back, or OnDeviceHasMore().
  void Fill(ibv_pd* pd);

  // `windows` are bound to nothing.
  void Return(absl::Span<ibv_mw* const> windows);

  // Deallocates all, before the protection domain is.
  void Clear();

 private:
  bool BeginFill();

  const bool enabled_;
  Mutex mutex_;                                          // Held for a few instructions.
  std::deque<ibv_mw*> windows_ ABSL_GUARDED_BY(mutex_);  // The one that has rested longest first.
  std::atomic<size_t> count_ = 0;  // How many they are, as another thread has just seen it.
  bool filling_ ABSL_GUARDED_BY(mutex_) = false;
  bool exhausted_ ABSL_GUARDED_BY(mutex_) = false;  // The device had no more.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_WINDOW_STOCK_H_
