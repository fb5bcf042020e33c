#ifndef HAWSER_TRANSPORT_POLLER_WAIT_EVENT_H_
#define HAWSER_TRANSPORT_POLLER_WAIT_EVENT_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "hawser/base/intrusive_list.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

// What one thread waits for in Poller::WaitFor(). Set once, by code on the poller, which keeps it
// alive: WaitFor() can return while Set() still runs, so a WaitEvent is not on the waiting thread's stack.
class WaitEvent : public ListLink<struct ForDriver> {
 public:
  bool is_set() const { return (state_.load(std::memory_order_acquire) & kSet) != 0; }
  void Set();
  // To be used again. No thread waits for it or sets it any more.
  void Reset();

 private:
  friend class DriverRole;
  friend class Poller;
  // Has the thread that waits look whether the poller needs one to drive it.
  void Nudge();
  // Returns when it is set or nudged, after `patience`, or for no reason.
  void AwaitSetOrNudged(absl::Duration patience);
  // Around the sleep of a thread that drives until this is set. False: it is set.
  bool StartSleep(fabric::CompletionQueue& completion_queue);
  void EndSleep();

  // A futex: a call of a thread that waits for it takes one system call on each side.
  static constexpr uint32_t kSet = 1, kAwaited = 2, kNudged = 4;
  std::atomic<uint32_t> state_{0};
  // Not null: the driver that waits for this sleeps in its WaitUntil().
  std::atomic<fabric::CompletionQueue*> sleeper_{nullptr};
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_WAIT_EVENT_H_
