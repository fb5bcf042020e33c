#ifndef HAWSER_TRANSPORT_POLLER_DRIVER_SLEEP_H_
#define HAWSER_TRANSPORT_POLLER_DRIVER_SLEEP_H_

#include <atomic>
#include <cstdint>

#include "hawser/transport/clock/environment.h"

namespace hawser::transport {

// What the thread that drives a poller and the threads that post to it share about its sleep: until when it
// sleeps, and when the next timer is due. The driver announces its sleep before it looks for work the
// last time; a thread that has work for it looks for the announcement afterwards, and wakes it.
// Thread:   as said for each method.
// Lifetime: part of its Poller.
// The memory orders are part of how no wake-up is lost: see driver_role.cc.
class DriverSleep {
 public:
  // ---- The driver.

  // From here on the driver counts as asleep. Returns the time at which it has to wake up by itself.
  int64_t Announce() {
    const int64_t next_ns = next_timer_ns_.load(std::memory_order_seq_cst);
    until_ns_.store(next_ns, std::memory_order_seq_cst);
    return next_ns;
  }
  // After Announce(), which returned `next_ns`: the time of the next timer is unchanged since.
  bool StillEndsAt(int64_t next_ns) const {
    return next_timer_ns_.load(std::memory_order_seq_cst) == next_ns;
  }
  void End() { until_ns_.store(0, std::memory_order_seq_cst); }

  // ---- On the poller: the next timer is due at `when_ns`.

  // In a turn of the driver, which is not asleep.
  void SetNextTimer(int64_t when_ns) { next_timer_ns_.store(when_ns, std::memory_order_relaxed); }
  // On a thread that posted. After it has left the poller it calls EndsAfter().
  void SetNextTimerOfPoster(int64_t when_ns) { next_timer_ns_.store(when_ns, std::memory_order_seq_cst); }

  // ---- From any thread.

  bool asleep() const { return until_ns_.load(std::memory_order_seq_cst) != 0; }
  // The driver is asleep, and wakes up by itself only after `when_ns`.
  bool EndsAfter(int64_t when_ns) const { return until_ns_.load(std::memory_order_seq_cst) > when_ns; }

 private:
  std::atomic<int64_t> until_ns_{0};  // 0: the driver is awake.
  std::atomic<int64_t> next_timer_ns_{kNever};
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_DRIVER_SLEEP_H_
