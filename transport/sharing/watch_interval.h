#ifndef HAWSER_TRANSPORT_SHARING_WATCH_INTERVAL_H_
#define HAWSER_TRANSPORT_SHARING_WATCH_INTERVAL_H_

#include "absl/time/time.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/sharing/poller_services.h"

namespace hawser::transport {

// An interval in which the poller was there for its peers. While a handler holds it, it sends and receives
// nothing, and no peer can move. So the interval has two parts, and one at whose end the poller was held does
// not count. Nor does the last one if the poller is behind at its end: what the peers have sent is not known
// then.
//
// A peer whose connections call a slow handler again and again, or that never stops sending, can keep the
// poller so. Hence at most kNotCountedMax parts of one interval do not count. In each of these the poller has
// had a turn at least, and mostly half of `time`, for all its connections. A process that was stopped loses
// one part, however long that was.
// Thread: on the poller.
class WatchInterval {
 public:
  // An interval of a second is over after nine, if no handler holds the poller. Each peer that owes something
  // gets more time as often, at most, because this side was late: see DrainWatch and Keepalive.
  static constexpr int kNotCountedMax = 16;

  // `timer` runs at the end of each part. The interval takes `time`, or longer.
  WatchInterval(PollerServices& poller, Timer& timer, absl::Duration time)
      : poller_(poller), timer_(timer), part_(time / kParts) {}

  void Begin() {
    left_ = kParts;
    not_counted_left_ = kNotCountedMax;
    poller_.timers().Set(timer_, After(poller_.now_ns(), part_));
  }
  // `timer` has run. False: the interval goes on.
  bool IsOver() {
    const int64_t due_ns = timer_.when_ns();
    const bool was_held = poller_.now_ns() >= After(due_ns, part_ / 2);
    const bool counts = !(was_held || (left_ == 1 && poller_.behind())) || not_counted_left_ == 0;
    if (counts && --left_ == 0) return true;
    if (!counts) --not_counted_left_;
    poller_.timers().Set(timer_, After(was_held ? poller_.now_ns() : due_ns, part_));
    return false;
  }

 private:
  static constexpr int kParts = 2;

  PollerServices& poller_;
  Timer& timer_;
  const absl::Duration part_;
  int left_ = 0;
  int not_counted_left_ = 0;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_SHARING_WATCH_INTERVAL_H_
