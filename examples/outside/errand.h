#ifndef ERRAND_H_
#define ERRAND_H_

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

// Work that one thread does and another waits for. It is a library of its own: a test links each dependency
// as a shared library by default, and the sanitizers must handle that.
// Thread:   any.
// Lifetime: outlives every call of its methods.
class Errand {
 public:
  // Wakes Wait(). Call it once.
  void Finish(const absl::Status& outcome);

  // Blocks until Finish(), and returns its outcome. Call it once.
  absl::Status Wait();

 private:
  absl::Mutex mu_;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status outcome_ ABSL_GUARDED_BY(mu_);
};

#endif  // ERRAND_H_
