#ifndef EXAMPLES_WINDOW_H_
#define EXAMPLES_WINDOW_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace examples {

// Bounds the calls in flight, and their bytes. The thread that starts calls blocks in Enter() while the
// window is full, and the callback of each call calls Leave(). A single call always fits, however large.
// Thread: any, but never call Enter() on a poller's thread: then no callback could make room.
class Window {
 public:
  Window(uint64_t calls_max, uint64_t bytes_max) : calls_max_(calls_max), bytes_max_(bytes_max) {}

  void Enter(uint64_t size_bytes);
  void Leave(uint64_t size_bytes);

  // Waits until nothing is in flight. Concurrent calls of Enter() may keep it waiting.
  void WaitUntilEmpty();

 private:
  const uint64_t calls_max_;
  const uint64_t bytes_max_;
  absl::Mutex mutex_;
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace examples

#endif  // EXAMPLES_WINDOW_H_
