#ifndef HAWSER_TRANSPORT_SHARING_WATCH_INTERVAL_H_
#define HAWSER_TRANSPORT_SHARING_WATCH_INTERVAL_H_

#include "absl/time/time.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/sharing/poller_services.h"

namespace hawser::transport {

// An interval in which the poller was there for its peers. While a handler holds it, it sends and receives
// nothing, and no peer can move. So the interval has two parts, and one at whose end the poller was held does
// not count.
// Thread: on the poller.
class WatchInterval {
 public:
  // `timer` runs at the end of each part. The interval takes `time`, or longer.
  WatchInterval(PollerServices& poller, Timer& timer, absl::Duration time)
      : poller_(poller), timer_(timer), part_(time / kParts) {}

  void Begin() {
    left_ = kParts;
    poller_.timers().Set(timer_, After(poller_.now_ns(), part_));
  }
  // `timer` has run. False: the interval goes on.
  bool IsOver() {
    const int64_t due_ns = timer_.when_ns();
    const bool was_held = poller_.now_ns() >= After(due_ns, part_ / 2);
    if (!was_held && --left_ == 0) return true;
    poller_.timers().Set(timer_, After(was_held ? poller_.now_ns() : due_ns, part_));
    return false;
  }

 private:
  static constexpr int kParts = 2;

  PollerServices& poller_;
  Timer& timer_;
  const absl::Duration part_;
  int left_ = 0;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_SHARING_WATCH_INTERVAL_H_
