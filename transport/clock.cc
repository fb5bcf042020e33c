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
  static RealClock clock;
  return clock;
}

}  // namespace hawser::transport
