#include "hawser/rpc/client/call_sender.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "hawser/rpc/client/untyped_call.h"
#include "hawser/rpc/status.h"

namespace hawser::internal {
namespace {

// The most results that are handed over in one turn. The poller's other work waits meanwhile.
constexpr int kHandedOverMax = 256;

}  // namespace

CallSender::CallSender(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
                       std::string peer_address, ChannelOptions options,
                       absl::AnyInvocable<void(UntypedCall&)> on_unsent, absl::AnyInvocable<void()> notify)
    : runtime_(std::move(runtime)),
      poller_(poller),
      peer_address_(std::move(peer_address)),
      options_(std::move(options)),
      default_timeout_ns_(absl::ToInt64Nanoseconds(options_.default_timeout)),
      intercepts_(!options_.interceptors.empty()),
      takes_none_(poller.usable_in_this_process() ? ForkMark() : ForkMark::OfNoProcess()),
      queue_(poller, std::move(on_unsent)),
      awaiting_(
          poller,
          [this](UntypedCall& call) {
            call.EndSoon(call.errors().Error(absl::StatusCode::kDeadlineExceeded,
                                             absl::StrCat("the deadline passed before it could be sent again",
                                                          poller_.WhyLate(call.deadline_ns_))));
          }),
      notify_timer_(std::move(notify)) {}

CallSender::~CallSender() = default;

std::shared_ptr<const PeerIdentity> CallSender::peer_identity() const {
  MutexLock lock(shown_mutex_);
  return peer_identity_;
}

void CallSender::SetPeerIdentity(std::shared_ptr<const PeerIdentity> identity) {
  MutexLock lock(shown_mutex_);
  peer_identity_.swap(identity);  // The old one is destroyed after the lock is released.
}

absl::Status CallSender::why_not_ready() const {
  MutexLock lock(shown_mutex_);
  return why_not_ready_;
}

void CallSender::SetWhyNotReady(const absl::Status& why) {
  MutexLock lock(shown_mutex_);
  why_not_ready_ = why;
}

bool CallSender::EndUnsent(UntypedCall& call, const absl::Status& why) {
  // The connection has just turned out to be lost. Nothing was sent; the next connection will send it, unless
  // this one keeps the request until what it granted of it is revoked.
  const bool lost = absl::IsUnavailable(why) && (link_ == nullptr || !link_->CanSend());
  if (lost && call.request != nullptr) return false;
  call.EndSoon(call.errors().Error(why.code(), why.message()));
  return true;
}

absl::Status CallSender::WhyClosed(const UntypedCall& call) const {
  if (is_null_) {
    return PublicCallError(why_closed_.code(), call.method_.name, why_closed_.message(), Sent::kNo);
  }
  return call.errors().Error(why_closed_.code(), why_closed_.message());
}

bool CallSender::StartQueued(int most) {
  // One at a time: what Start() runs on the poller of another connection may cancel the others.
  uint64_t left = queue_.size().value();
  for (int i = 0; left > 0 && !queue_.empty(); --left, ++i) {
    if (i == most) return false;
    UntypedCall& call = *queue_.front();
    queue_.Remove(call);
    Start(call);
  }
  return true;
}

void CallSender::EndQueued(const absl::Status& why) {
  for (CallQueue* queue : {&queue_, &awaiting_}) {
    for (UntypedCall* call : queue->TakeIf([](const UntypedCall&) { return true; })) {
      call->EndSoon(call->errors().Error(why.code(), why.message()));
    }
  }
}

void CallSender::AwaitRequest(UntypedCall& call) {
  poller_.AssertHeld();
  call.Move(CallStage::Event::kAwaitRequest);
  awaiting_.PushBack(call);
}

void CallSender::Forget(UntypedCall& call) {
  poller_.AssertHeld();
  switch (call.stage_) {
    case UntypedCall::Stage::kReturning:
      return awaiting_.Remove(call);
    case UntypedCall::Stage::kCarried:
      return ForgetCarried(call);
    default:
      return queue_.Remove(call);
  }
}

void CallSender::HandOverSoon(UntypedCall& call) {
  poller_.AssertHeld();
  call.next_ = nullptr;
  (ended_last_ != nullptr ? ended_last_->next_ : ended_first_) = &call;
  ended_last_ = &call;
  ScheduleNotify();
}

bool CallSender::HandOverSome() {
  for (int i = 0; ended_first_ != nullptr; ++i) {
    if (i == kHandedOverMax) return false;
    UntypedCall* const call = ended_first_;
    ended_first_ = call->next_;
    if (ended_first_ == nullptr) ended_last_ = nullptr;
    call->HandOver();
  }
  return true;
}

void CallSender::ScheduleNotify() {
  poller_.AssertHeld();
  if (notify_timer_.is_set()) return;
  if (self_ == nullptr) self_ = shared_from_this();  // `notify` may have released it.
  poller_.timers().Set(notify_timer_, poller_.now_ns());
}

}  // namespace hawser::internal
