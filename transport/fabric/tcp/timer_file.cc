#include "hawser/transport/fabric/tcp/timer_file.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

#include "absl/time/time.h"

namespace hawser::fabric {

bool TimerFile::Open() {
  fd_.Reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  return fd_.is_open();
}

void TimerFile::Set(int64_t when_ns) {
  set_for_ns_ = when_ns;
  // Zero would disarm the timer.
  const itimerspec spec = {.it_interval = {},
                           .it_value = absl::ToTimespec(absl::Nanoseconds(std::max<int64_t>(when_ns, 1)))};
  timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

void TimerFile::Clear() {
  uint64_t expirations;
  [[maybe_unused]] const ssize_t n = read(fd_.get(), &expirations, sizeof(expirations));
  set_for_ns_ = kNever;
}

}  // namespace hawser::fabric
