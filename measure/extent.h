#ifndef HAWSER_MEASURE_EXTENT_H_
#define HAWSER_MEASURE_EXTENT_H_

#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace hawser::measure {

// How long a measurement goes on: until there were so many exchanges, or so much time has passed, whichever
// is first.
struct Extent {
  int64_t exchanges = std::numeric_limits<int64_t>::max() / 2;
  absl::Duration time = absl::InfiniteDuration();
};

// What it came to: exchanges that have ended, and the time from the start of the first to the end of the
// last.
struct Ran {
  int64_t exchanges = 0;
  absl::Duration time;

  double per_second() const { return static_cast<double>(exchanges) / absl::ToDoubleSeconds(time); }
};

}  // namespace hawser::measure

#endif  // HAWSER_MEASURE_EXTENT_H_
