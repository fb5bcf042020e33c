#ifndef HAWSER_TRANSPORT_CLOCK_H_
#define HAWSER_TRANSPORT_CLOCK_H_

#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace hawser::transport {

// A point in time that never; later than every other.
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Monotonic time in nanoseconds since some start. Deadlines of calls are kept in it, so a wall clock that is
// set does not end them. Thread: any.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() = 0;

  // CLOCK_MONOTONIC.
  static Clock& Real();
};

// `now_ns` + `wait`, kNever if that is beyond it.
inline int64_t After(int64_t now_ns, absl::Duration wait) {
  if (wait >= absl::Nanoseconds(kNever - now_ns)) return kNever;
  return now_ns + absl::ToInt64Nanoseconds(wait);
}

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CLOCK_H_
