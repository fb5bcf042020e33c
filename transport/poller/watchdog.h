#ifndef HAWSER_TRANSPORT_POLLER_WATCHDOG_H_
#define HAWSER_TRANSPORT_POLLER_WATCHDOG_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "hawser/base/fork.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/poller/called_out.h"

namespace hawser::transport {

// Logs which handler or callback holds a poller for long: after `bound`, and each time the hold has doubled.
// While pollers call code of the application it checks them every `period`. Otherwise its thread sleeps, and
// the next such call wakes it. What ends before its thread runs has no line: on an overloaded machine that
// can be late itself, or the whole process is stopped. If a check is late by `bound`, it logs that.
// Thread:   any. Its own thread exists while it watches something.
class Watchdog {
 public:
  struct Limits {
    absl::Duration period = absl::Seconds(1);
    absl::Duration bound = absl::Seconds(5);
  };

  Watchdog() : Watchdog(Limits()) {}
  // `clock`: by which its own checks are late; outlives it.
  explicit Watchdog(const Limits& limits, Environment& clock = Environment::Real())
      : limits_(limits), clock_(clock) {}
  // Nothing is watched any more.
  ~Watchdog() = default;
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // The watchdog of this process, and not of the one that it was forked from. Never destroyed.
  static Watchdog& Process();

  // From here to Unwatch(); both outlive that. Without a thread (none can be started) nothing is watched.
  void Watch(const CalledOut& called, Environment& environment);
  void Unwatch(const CalledOut& called);

  // To be loaded after a CalledOut::Enter(); true: Wake().
  const std::atomic<bool>& asleep() const { return asleep_; }
  void Wake();

 private:
  struct Watched {
    const CalledOut* called;
    Environment* environment;
    int64_t turn_ns;           // When last looked at.
    int64_t reported_turn_ns;  // The hold that next_bound is about.
    absl::Duration next_bound;
  };

  void Run();
  // Puts what to log into `lines`. False: nothing moves, and nothing is called.
  bool LookLocked(std::vector<std::string>& lines);
  void NoteLateLocked(int64_t now_ns, std::vector<std::string>& lines);

  const Limits limits_;
  Environment& clock_;
  const ForkMark fork_mark_;
  std::atomic<bool> asleep_{false};

  std::mutex setup_mutex_;  // Held while the thread is started or joined.
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Watched> watched_;
  int64_t look_ns_ = kNever;  // When the next check is due, on clock_. kNever: no poller calls anything.
  bool woken_ = false;
  bool stopping_ = false;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_WATCHDOG_H_
