#ifndef HAWSER_TRANSPORT_WAIT_EVENT_H_
#define HAWSER_TRANSPORT_WAIT_EVENT_H_

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"
#include "hawser/base/intrusive_list.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

// What one thread waits for in Poller::WaitFor(). Set once, by code on the poller, which keeps it
// alive: WaitFor() can return while Set() still runs, so a WaitEvent is not on the waiting thread's stack.
class WaitEvent : public ListLink<struct ForDriver> {
 public:
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  void Set();
  // To be used again. No thread waits for it or sets it any more.
  void Reset();

 private:
  friend class Poller;
  void Nudge();
  // `patience`: how long at most.
  void AwaitSetOrNudged(absl::Duration patience);
  // Around the sleep of a thread that drives until this is set. False: it is set.
  bool StartSleep(fabric::CompletionQueue& completion_queue);
  void EndSleep();

  std::atomic<bool> set_{false};
  std::atomic<bool> awaited_{false};
  // Not null: the driver that waits for this sleeps in its WaitUntil().
  std::atomic<fabric::CompletionQueue*> sleeper_{nullptr};
  std::mutex mutex_;  // Not an absl::Mutex: see base/mutex.h.
  std::condition_variable wake_;
  bool nudged_ = false;  // To look whether the poller needs a thread to drive it.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_WAIT_EVENT_H_
