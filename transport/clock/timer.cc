#include "hawser/transport/clock/timer.h"

namespace hawser::transport {

Timer::~Timer() {
  if (timers_ != nullptr) timers_->Cancel(*this);
}

void Timers::Set(Timer& timer, int64_t when_ns) {
  if (when_ns == kNever) return Cancel(timer);
  if (when_ns <= running_ns_) [[unlikely]] {
    Cancel(timer);
    timer.timers_ = this;
    timer.when_ns_ = when_ns;
    timer.postponed_ = true;
    timer.position_ = postponed_.size();
    return postponed_.push_back(&timer);
  }
  if (timer.postponed_) [[unlikely]]
    Cancel(timer);
  timer.when_ns_ = when_ns;
  if (timer.timers_ != nullptr) return heap_.Moved(timer);
  timer.timers_ = this;
  heap_.Add(timer);
}

void Timers::Cancel(Timer& timer) {
  if (timer.timers_ == nullptr) return;
  timer.timers_ = nullptr;
  if (!std::exchange(timer.postponed_, false)) return heap_.Remove(timer);
  Timer* const last = postponed_.back();
  postponed_.pop_back();
  if (last == &timer) return;
  postponed_[timer.position_] = last;
  last->position_ = timer.position_;
}

void Timers::AddPostponed() {
  for (Timer* const timer : postponed_) {
    timer->postponed_ = false;
    heap_.Add(*timer);
  }
  postponed_.clear();
}

// A callback may run a turn of its own, and this inside it.
size_t Timers::RunDue(int64_t now_ns) {
  AddPostponed();
  const int64_t outer_ns = std::exchange(running_ns_, now_ns);
  size_t ran = 0;
  for (; !heap_.empty() && heap_.first()->when_ns_ <= now_ns; ++ran) {
    Timer* const timer = heap_.first();
    Cancel(*timer);
    timer->callback_();
  }
  running_ns_ = outer_ns;
  if (outer_ns == INT64_MIN) AddPostponed();
  return ran;
}

}  // namespace hawser::transport
