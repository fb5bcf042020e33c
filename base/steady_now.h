#ifndef HAWSER_BASE_STEADY_NOW_H_
#define HAWSER_BASE_STEADY_NOW_H_

#include <time.h>

#include "absl/time/time.h"

namespace hawser {

// The time of this machine since some start, for what happens "a second later". Unlike absl::Now() it is
// never set, so it does not go back. Code that runs on a poller has transport::Environment::NowNs() in its
// place.
// Thread:   any.
inline absl::Duration SteadyNow() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace hawser

#endif  // HAWSER_BASE_STEADY_NOW_H_
