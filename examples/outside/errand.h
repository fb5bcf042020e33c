#ifndef ERRAND_H_
#define ERRAND_H_

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

// Work that one thread does and another waits for. A part of its own, so that a test's default, a shared
// library of each dependency, is what the sanitizers see.
// Thread:   any.
// Lifetime: outlives every call of its methods.
class Errand {
 public:
  // Once. Wakes Wait().
  void Finish(const absl::Status& outcome);

  // Once. Blocks until Finish(), and returns its outcome.
  absl::Status Wait();

 private:
  absl::Mutex mu_;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status outcome_ ABSL_GUARDED_BY(mu_);
};

#endif  // ERRAND_H_
