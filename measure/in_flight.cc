#include "hawser/measure/in_flight.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace hawser::measure {

void InFlight::Start(const Extent& extent, int in_flight) {
  extent_ = extent;
  const int64_t lanes = std::min<int64_t>(extent.exchanges, in_flight);
  left_ = extent.exchanges - lanes;
  not_started_ = 0;
  lanes_ = static_cast<int>(lanes);
  done_ = std::make_unique<absl::Notification>();
  {
    const MutexLock lock(mutex_);
    failure_ = absl::OkStatus();
  }
  start_time_ = absl::Now();
  for (int64_t i = 0; i < lanes; ++i) start_();
  if (lanes == 0) {
    end_time_ = start_time_;
    done_->Notify();
  }
}

absl::StatusOr<Ran> InFlight::Wait() {
  if (!done_->WaitForNotificationWithTimeout(start_time_ + extent_.time - absl::Now())) {
    Stop();
    done_->WaitForNotification();
  }
  const MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  return Ran{extent_.exchanges - not_started_.load(), end_time_ - start_time_};
}

// Before the exchange() each that was taken has lowered `left_` by one; after it none is taken.
void InFlight::Stop() {
  const int64_t left = left_.exchange(0);
  if (left > 0) not_started_ += left;
}

void InFlight::Fail(const absl::Status& status) {
  Stop();
  const MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = status;
}

void InFlight::EndLane() {
  if (lanes_.fetch_sub(1) != 1) return;
  end_time_ = absl::Now();
  done_->Notify();
}

}  // namespace hawser::measure
