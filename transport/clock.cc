#include "hawser/transport/clock.h"

#include <time.h>

namespace hawser::transport {
namespace {

class RealClock final : public Clock {
 public:
  int64_t NowNs() override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }
};

}  // namespace

Clock& Clock::Real() {
  // Never destroyed: pollers go on until the process has ended, which is after the destructors of statics.
  static RealClock* const clock = new RealClock;
  return *clock;
}

}  // namespace hawser::transport
