#ifndef HAWSER_TRANSPORT_CLOCK_TIMER_H_
#define HAWSER_TRANSPORT_CLOCK_TIMER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "hawser/base/time_heap.h"
#include "hawser/transport/clock/environment.h"

namespace hawser::transport {

class Timers;

// Calls back once for each time it was set.
// Thread:   on the poller of its Timers.
class Timer {
 public:
  explicit Timer(absl::AnyInvocable<void()> callback) : callback_(std::move(callback)) {}
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  bool is_set() const { return timers_ != nullptr; }
  int64_t when_ns() const { return when_ns_; }  // What it is, or was, set to.

 private:
  friend class Timers;
  absl::AnyInvocable<void()> callback_;
  Timers* timers_ = nullptr;
  int64_t when_ns_ = 0;
  size_t position_ = 0;  // In the heap, or of those that are postponed.
  bool postponed_ = false;
};

// The timers of one poller: a heap. Setting one costs O(log n) and, once the heap has grown, no allocation.
// Few timers exist (a connection has one for all its deadlines), so no wheel.
class Timers {
 public:
  // Sets it, or sets it anew. kNever: as Cancel().
  void Set(Timer& timer, int64_t when_ns);
  void Cancel(Timer& timer);

  // kNever if there is none.
  int64_t next_ns() const {
    const int64_t first_ns = heap_.empty() ? kNever : heap_.first()->when_ns_;
    return postponed_.empty() ? first_ns : std::min(first_ns, postponed_.front()->when_ns_);
  }

  // Runs what is due; returns how many. Timers that are set meanwhile run in the next call, so that one which
  // always sets itself to a past time does not keep the thread.
  size_t RunDue(int64_t now_ns);

 private:
  void AddPostponed();

  TimeHeap<Timer, &Timer::when_ns_, &Timer::position_> heap_;
  int64_t running_ns_ = INT64_MIN;  // The time of the innermost RunDue(). The minimum: none runs.
  std::vector<Timer*> postponed_;   // Set inside it, and due. For the next one.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CLOCK_TIMER_H_
