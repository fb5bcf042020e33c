#ifndef HAWSER_TESTS_SOFTROCE_NIC_TIMED_FD_H_
#define HAWSER_TESTS_SOFTROCE_NIC_TIMED_FD_H_

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

namespace hawser::fabric {

constexpr int64_t kNsPerUs = 1000;
constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kNsPerS = 1'000'000'000;
constexpr int64_t kNever = INT64_MAX;

// A file descriptor that is readable when another one is, and when a time has come.
class TimedFd {
 public:
  explicit TimedFd(int other)
      : fd_(epoll_create1(EPOLL_CLOEXEC)),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    fcntl(other, F_SETFL, fcntl(other, F_GETFL) | O_NONBLOCK);
    for (int one : {other, timer_}) {
      epoll_event event = {};
      event.events = EPOLLIN;
      if (epoll_ctl(fd_, EPOLL_CTL_ADD, one, &event) != 0) abort();
    }
  }
  ~TimedFd() {
    close(timer_);
    close(fd_);
  }
  TimedFd(const TimedFd&) = delete;
  TimedFd& operator=(const TimedFd&) = delete;

  int fd() const { return fd_; }

  // Readable from `when_ns` on, until the next call; kNever.
  void Set(int64_t when_ns) {
    if (when_ns == when_ns_) return;
    when_ns_ = when_ns;
    itimerspec spec = {};
    if (when_ns != kNever) {
      when_ns = std::max<int64_t>(when_ns, 1);
      spec.it_value.tv_sec = when_ns / kNsPerS;
      spec.it_value.tv_nsec = when_ns % kNsPerS;
    }
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &spec, nullptr);
  }

 private:
  const int fd_;
  const int timer_;
  int64_t when_ns_ = kNever;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TESTS_SOFTROCE_NIC_TIMED_FD_H_
