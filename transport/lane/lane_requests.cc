#include "hawser/transport/lane/lane_requests.h"

#include <algorithm>
#include <utility>

namespace hawser::transport {

LaneRequests::LaneRequests(Poller& poller, absl::AnyInvocable<void(const LaneMessage&)> send,
                           absl::AnyInvocable<void()> on_silence)
    : poller_(poller), send_(std::move(send)), timer_(std::move(on_silence)) {}

void LaneRequests::Start() {
  sends_ = true;
  SendNext();
}

void LaneRequests::Add(LaneMessage message) {
  waiting_.push_back(std::move(message));
  SendNext();
}

bool LaneRequests::Drop(uint32_t handle) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const LaneMessage& each) { return each.handle == handle; });
  if (found == waiting_.end()) return false;
  waiting_.erase(found);
  return true;
}

bool LaneRequests::TakeAnswer() {
  if (unanswered_ == 0) return false;
  --unanswered_;
  SetTimer();
  return true;
}

void LaneRequests::SendNext() {
  while (sends_ && !waiting_.empty() && unanswered_ < kLaneRequestsMax) {
    if (unanswered_++ == 0) SetTimer();
    const LaneMessage message = std::move(waiting_.front());
    waiting_.pop_front();
    send_(message);
  }
}

void LaneRequests::Stop() {
  sends_ = false;
  waiting_.clear();
  poller_.timers().Cancel(timer_);
}

void LaneRequests::SetTimer() {
  poller_.timers().Set(timer_,
                       unanswered_ == 0 ? kNever : After(poller_.environment().NowNs(), kAnswerTimeout));
}

}  // namespace hawser::transport
