#include "hawser/transport/timer.h"

namespace hawser::transport {

Timer::~Timer() {
  if (timers_ != nullptr) timers_->Cancel(*this);
}

void Timers::Set(Timer& timer, int64_t when_ns) {
  if (when_ns == kNever) return Cancel(timer);
  timer.when_ns_ = when_ns;
  if (timer.timers_ != nullptr) return heap_.Moved(timer);
  timer.timers_ = this;
  heap_.Add(timer);
}

void Timers::Cancel(Timer& timer) {
  if (timer.timers_ == nullptr) return;
  timer.timers_ = nullptr;
  heap_.Remove(timer);
}

size_t Timers::RunDue(int64_t now_ns) {
  // At most as many as were set at the start: a callback that sets its timer to a past time must not run for
  // ever.
  size_t ran = 0;
  for (size_t most = heap_.size(); ran < most && next_ns() <= now_ns; ++ran) {
    Timer* const timer = heap_.first();
    Cancel(*timer);
    timer->callback_();
  }
  return ran;
}

}  // namespace hawser::transport
