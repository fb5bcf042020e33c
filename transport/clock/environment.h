#ifndef HAWSER_TRANSPORT_CLOCK_ENVIRONMENT_H_
#define HAWSER_TRANSPORT_CLOCK_ENVIRONMENT_H_

#include <cstdint>
#include <limits>

#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace hawser::transport {

// A point in time that never; later than every other.
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// What the library takes from the world besides the network: time, randomness, and waiting for other threads.
// Replace it and the fabric, and every run is reproducible.
// Thread:   any.
class Environment {
 public:
  virtual ~Environment() = default;

  // Monotonic time in nanoseconds since some start. Deadlines of calls are kept in it, so a wall clock that
  // is set does not end them. Here: CLOCK_MONOTONIC.
  virtual int64_t NowNs();

  // The wall clock, in which people give deadlines.
  virtual absl::Time Now();

  // Fills `bytes` with unpredictable bits, for session tokens.
  virtual void FillRandom(absl::Span<uint8_t> bytes);

  // Blocks until `condition` is true, or until `deadline`, and returns the condition. `mutex` guards it, and
  // `changed` is signaled when it changes. This thread holds `mutex`, which is free meanwhile, and is on no
  // poller.
  virtual bool Await(absl::Mutex& mutex, absl::CondVar& changed, absl::FunctionRef<bool()> condition,
                     absl::Time deadline);

  static Environment& Real();
};

// `now_ns` + `wait`, kNever if that is beyond it.
inline int64_t After(int64_t now_ns, absl::Duration wait) {
  if (wait >= absl::Nanoseconds(kNever - now_ns)) return kNever;
  return now_ns + absl::ToInt64Nanoseconds(wait);
}

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CLOCK_ENVIRONMENT_H_
