#ifndef HAWSER_BASE_WRITE_SIGNALS_H_
#define HAWSER_BASE_WRITE_SIGNALS_H_

#include <signal.h>
#include <time.h>

#include <initializer_list>

namespace hawser {

// While one lives, a write() of its thread that fails says so by errno and does not end the process: of a
// pipe whose reader is gone (SIGPIPE), or of a file that would be larger than the process may make (SIGXFSZ;
// setrlimit(2), RLIMIT_FSIZE). Both signals go to the thread that writes. Costs three system calls,
// and some more if a signal came.
// Thread:   begins and ends on one.
class WriteSignalsBlocked {
 public:
  WriteSignalsBlocked() {
    sigemptyset(&both_);
    sigaddset(&both_, SIGPIPE);
    sigaddset(&both_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &both_, &before_);
  }
  ~WriteSignalsBlocked() {
    // Signals that the thread had blocked itself stay pending, for its own sigwait().
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      if (sigismember(&before_, signal) != 0) sigdelset(&both_, signal);
    }
    sigset_t pending;
    sigpending(&pending);
    if (sigismember(&pending, SIGPIPE) != 0 || sigismember(&pending, SIGXFSZ) != 0) {
      constexpr timespec kAtOnce = {};
      while (sigtimedwait(&both_, nullptr, &kAtOnce) > 0) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WriteSignalsBlocked(const WriteSignalsBlocked&) = delete;
  WriteSignalsBlocked& operator=(const WriteSignalsBlocked&) = delete;

 private:
  sigset_t both_, before_;
};

}  // namespace hawser

#endif  // HAWSER_BASE_WRITE_SIGNALS_H_
