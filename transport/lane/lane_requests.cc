#include "hawser/transport/lane/lane_requests.h"

#include <algorithm>
#include <utility>

namespace hawser::transport {

LaneRequests::LaneRequests(Poller& poller, absl::AnyInvocable<void(const LaneMessage&)> send,
                           absl::AnyInvocable<void()> on_silence)
    : poller_(poller),
      send_(std::move(send)),
      on_silence_(std::move(on_silence)),
      timer_([this] { OnTimer(); }) {}

void LaneRequests::Start(bool pings) {
  sends_ = true;
  may_ping_ = pings;
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
  may_ping_ = false;
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
  const int64_t now_ns = poller_.environment().NowNs();
  silent_at_ns_ = unanswered_ == 0 ? kNever : After(now_ns, kAnswerTimeout);
  poller_.timers().Set(timer_, may_ping_ ? After(now_ns, kFirstAnswer) : silent_at_ns_);
}

void LaneRequests::OnTimer() {
  if (!std::exchange(may_ping_, false)) return on_silence_();
  poller_.timers().Set(timer_, silent_at_ns_);
  LaneMessage ping;
  ping.kind = LaneMessage::Kind::kPing;
  send_(ping);
}

}  // namespace hawser::transport
