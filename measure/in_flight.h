#ifndef HAWSER_MEASURE_IN_FLIGHT_H_
#define HAWSER_MEASURE_IN_FLIGHT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "hawser/base/mutex.h"
#include "hawser/measure/extent.h"

namespace hawser::measure {

// Keeps a number of exchanges in flight: each that ends starts the next, on the thread on which it ended.
// Thread:   Start() and Wait() in turn, on one; OnEnd() on any, several at once.
// Lifetime: until Wait() has returned.
class InFlight {
 public:
  // `start` starts an exchange and returns. When that has ended, OnEnd() is called, once, and never inside
  // `start`.
  explicit InFlight(std::function<void()> start) : start_(std::move(start)) {}
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  void Start(const Extent& extent, int in_flight);
  // Until all that were started have ended. The status of the first exchange that failed; no further one was
  // started.
  absl::StatusOr<Ran> Wait();
  absl::StatusOr<Ran> Run(const Extent& extent, int in_flight) {
    Start(extent, in_flight);
    return Wait();
  }

  // The last thing that is done with an exchange: when the last one has ended, this object may be destroyed.
  void OnEnd(const absl::Status& status) {
    if (!status.ok()) [[unlikely]]
      Fail(status);
    if (left_.fetch_sub(1, std::memory_order_relaxed) > 0) [[likely]]
      return start_();
    EndLane();
  }

 private:
  void Stop();
  void Fail(const absl::Status& status);
  void EndLane();

  const std::function<void()> start_;
  Extent extent_;
  absl::Time start_time_, end_time_;
  std::atomic<int64_t> left_{0};         // Exchanges that may still be started; may go below 0.
  std::atomic<int64_t> not_started_{0};  // Those of the extent that Stop() has taken from `left_`.
  std::atomic<int> lanes_{0};            // As many as there are exchanges in flight.
  std::unique_ptr<absl::Notification> done_;
  Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // OK: none.
};

}  // namespace hawser::measure

#endif  // HAWSER_MEASURE_IN_FLIGHT_H_
