#include "hawser/transport/timer.h"

namespace hawser::transport {

Timer::~Timer() {
  if (timers_ != nullptr) timers_->Cancel(*this);
}

void Timers::Set(Timer& timer, int64_t when_ns) {
  if (when_ns == kNever) return Cancel(timer);
  if (timer.timers_ == nullptr) {
    timer.timers_ = this;
    timer.position_ = heap_.size();
    heap_.push_back(&timer);
  }
  timer.when_ns_ = when_ns;
  Up(timer.position_);
  Down(timer.position_);
}

void Timers::Cancel(Timer& timer) {
  if (timer.timers_ == nullptr) return;
  const size_t position = timer.position_;
  Timer* const last = heap_.back();
  heap_.pop_back();
  timer.timers_ = nullptr;
  if (last == &timer) return;
  Place(position, last);
  Up(position);
  Down(last->position_);
}

size_t Timers::RunDue(int64_t now_ns) {
  // A callback that sets its timer to a time that is past must not keep us here for ever: no more than there
  // were.
  size_t ran = 0;
  for (size_t most = heap_.size(); ran < most && next_ns() <= now_ns; ++ran) {
    Timer* const timer = heap_.front();
    Cancel(*timer);
    timer->callback_();
  }
  return ran;
}

void Timers::Place(size_t position, Timer* timer) {
  heap_[position] = timer;
  timer->position_ = position;
}

void Timers::Up(size_t position) {
  Timer* const timer = heap_[position];
  while (position > 0) {
    const size_t parent = (position - 1) / 2;
    if (heap_[parent]->when_ns_ <= timer->when_ns_) break;
    Place(position, heap_[parent]);
    position = parent;
  }
  Place(position, timer);
}

void Timers::Down(size_t position) {
  Timer* const timer = heap_[position];
  while (true) {
    size_t child = 2 * position + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1]->when_ns_ < heap_[child]->when_ns_) ++child;
    if (heap_[child]->when_ns_ >= timer->when_ns_) break;
    Place(position, heap_[child]);
    position = child;
  }
  Place(position, timer);
}

}  // namespace hawser::transport
