#include "hawser/rpc/call_queue.h"

#include <algorithm>
#include <utility>

#include "hawser/rpc/untyped_call.h"

namespace hawser::internal {

CallQueue::CallQueue(transport::Timers& timers, absl::AnyInvocable<void(UntypedCall&)> on_deadline)
    : timers_(timers), on_deadline_(std::move(on_deadline)), timer_([this] { OnTimer(); }) {}

void CallQueue::PushBack(UntypedCall& call) {
  call.next_ = nullptr;
  call.previous_ = last_;
  (last_ != nullptr ? last_->next_ : first_) = &call;
  last_ = &call;
  if (call.deadline_ns_ != transport::kNever && (!timer_.is_set() || call.deadline_ns_ < timer_.when_ns())) {
    timers_.Set(timer_, call.deadline_ns_);
  }
}

void CallQueue::Remove(UntypedCall& call) {
  (call.previous_ != nullptr ? call.previous_->next_ : first_) = call.next_;
  (call.next_ != nullptr ? call.next_->previous_ : last_) = call.previous_;
  call.next_ = call.previous_ = nullptr;
  if (empty()) timers_.Cancel(timer_);
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
  const int64_t now_ns = timer_.when_ns();
  for (UntypedCall* call : TakeIf([&](const UntypedCall& each) { return each.deadline_ns_ <= now_ns; })) {
    on_deadline_(*call);
  }
  int64_t next_ns = transport::kNever;
  for (UntypedCall* call = first_; call != nullptr; call = call->next_) {
    next_ns = std::min(next_ns, call->deadline_ns_);
  }
  timers_.Set(timer_, next_ns);
}

}  // namespace hawser::internal
