#ifndef EXAMPLES_WINDOW_H_
#define EXAMPLES_WINDOW_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace examples {

// Bounds what is in flight, in calls and in bytes: the side that starts calls blocks in Enter() while it is
// full, and the callback that ends one calls Leave(). One call fits at any time, however large.
// Thread: any.
// Never Enter() on a poller's thread: nothing would make room.
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
