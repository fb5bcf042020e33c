#ifndef HAWSER_TRANSPORT_FABRIC_TCP_TIMER_FILE_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_TIMER_FILE_H_

#include <cstdint>

#include "hawser/base/unique_fd.h"

namespace hawser::fabric {

// The first of some timers, as a file that becomes readable: so that epoll_wait(2) needs no timeout, which
// the kernel would start and stop each time.
// Thread:   one at a time.
// Lifetime: part of its completion queue.
class TimerFile {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  // False: errno says why.
  bool Open();
  int fd() const { return fd_.get(); }
  // Makes sure that it expires at `when_ns` (CLOCK_MONOTONIC), or earlier.
  void SetAtLatest(int64_t when_ns) {
    if (when_ns < set_for_ns_) Set(when_ns);
  }
  // It has expired, and is not set any more.
  void Clear();

 private:
  void Set(int64_t when_ns);

  UniqueFd fd_;  // timerfd_create(2)
  int64_t set_for_ns_ = kNever;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_TIMER_FILE_H_
