#include "hawser/rpc/client/call_queue.h"

#include <algorithm>
#include <utility>

namespace hawser::internal {
namespace {

// Calls that expire in one turn. Each takes a microsecond or two, mostly for its error, and meanwhile the
// poller's other connections wait.
constexpr int kExpireMax = 256;

// After one has expired, the next may expire late by this much. Waking up for each of 100,000 calls that
// expired within two seconds used a whole core.
constexpr int64_t kExpireEveryNs = 500'000;

}  // namespace

CallQueue::CallQueue(transport::Poller& poller, absl::AnyInvocable<void(UntypedCall&)> on_deadline)
    : poller_(poller), on_deadline_(std::move(on_deadline)), timer_([this] { OnTimer(); }) {}

void CallQueue::PushBackWithoutDeadline(UntypedCall& call) {
  Append(call);
  call.heap_position_ = kNoDeadline;
}

void CallQueue::AddDeadline(UntypedCall& call) {
  if (call.deadline_ns_ == transport::kNever) {
    call.heap_position_ = kNoDeadline;
    return;
  }
  if (in_order_ == 0) {
    call.heap_position_ = kInOrder;
    last_in_order_ns_ = call.deadline_ns_;
    first_in_order_ = &call;
    in_order_ = 1;
  } else {
    by_deadline_.Add(call);
  }
  if (!timer_.is_set() || call.deadline_ns_ < timer_.when_ns()) SetTimer(call);
}

void CallQueue::SetTimer(const UntypedCall& call) { poller_.timers().Set(timer_, call.deadline_ns_); }

void CallQueue::Remove(UntypedCall& call) {
  size_.Add(kMinusOne);
  (call.previous_ != nullptr ? call.previous_->next_ : first_) = call.next_;
  (call.next_ != nullptr ? call.next_->previous_ : last_) = call.previous_;
  if (call.heap_position_ == kInOrder) {
    --in_order_;
    if (first_in_order_ == &call && in_order_ != 0) {
      // Passes each call of the list at most once.
      do first_in_order_ = first_in_order_->next_;
      while (first_in_order_->heap_position_ != kInOrder);
    }
  } else if (call.heap_position_ != kNoDeadline) {
    by_deadline_.Remove(call);
  }
  call.next_ = call.previous_ = nullptr;
  // Otherwise the timer may fire too early for the remaining calls; it is then set again.
  if (in_order_ == 0 && by_deadline_.empty() && timer_.is_set()) poller_.timers().Cancel(timer_);
}

UntypedCall* CallQueue::Earliest() const {
  UntypedCall* const other = by_deadline_.empty() ? nullptr : by_deadline_.first();
  if (in_order_ == 0 || (other != nullptr && other->deadline_ns_ < first_in_order_->deadline_ns_))
    return other;
  return first_in_order_;
}

std::vector<UntypedCall*> CallQueue::TakeIf(absl::FunctionRef<bool(const UntypedCall&)> which) {
  std::vector<UntypedCall*> taken;
  for (UntypedCall* call = first_; call != nullptr;) {
    UntypedCall* const next = call->next_;
    if (which(*call)) {
      Remove(*call);
      taken.push_back(call);
    }
    call = next;
  }
  return taken;
}

void CallQueue::OnTimer() {
  const int64_t now_ns = poller_.now_ns();
  bool expired = false;
  UntypedCall* next = Earliest();
  for (int i = 0; i < kExpireMax && next != nullptr && next->deadline_ns_ <= now_ns; ++i) {
    Remove(*next);
    on_deadline_(*next);
    expired = true;
    next = Earliest();
  }
  if (next == nullptr) return;
  const int64_t next_ns = next->deadline_ns_;
  // Calls that are due already expire in the next turn.
  const int64_t earliest_ns = now_ns + (next_ns <= now_ns || !expired ? 1 : kExpireEveryNs);
  poller_.timers().Set(timer_, std::max(next_ns, earliest_ns));
}

}  // namespace hawser::internal
