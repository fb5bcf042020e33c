#include "hawser/rpc/client/carried_calls.h"

#include <atomic>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/rpc/client/call_sender.h"

namespace hawser::internal {

CarriedCalls::CarriedCalls(transport::Poller& poller)
    : calls_(poller,
             [&poller](UntypedCall& call) {
               EndWithoutCarrier(
                   call, absl::StatusCode::kDeadlineExceeded,
                   absl::StrCat("the deadline passed while another connection of the channel carried it",
                                poller.WhyLate(call.deadline_ns_)));
             }),
      landing_(poller, nullptr) {}

void CarriedCalls::Carry(UntypedCall& call, const std::shared_ptr<CallSender>& other) {
  call.Move(CallStage::Event::kCarry);
  if (call.lands()) {
    landing_.PushBackWithoutDeadline(call);
  } else {
    calls_.PushBack(call);
  }
  UntypedCall* const carrier = other->calls().Get(other, other->poller().Held());
  Prepare(*carrier, call, *other);
  call.carrier_ = carrier;
  other->poller().Run([carrier] { Start(*carrier); });
}

void CarriedCalls::Prepare(UntypedCall& carrier, UntypedCall& call, CallSender& sender) {
  carrier.sender_ = &sender;
  carrier.method_ = call.method_;
  carrier.request = std::move(call.request);
  carrier.wait_for_ready_ = call.wait_for_ready_;
  carrier.has_extras_ = true;
  carrier.extras_.LandAs(call.extras_);
  carrier.carried_for_ = &call;
  carrier.stage_ = CallStage::State::kNew;
  carrier.cancelled_ = carrier.request_comes_back_ = false;
  carrier.sent_ = call.sent_;
  carrier.resends_ = call.resends_;
  carrier.begun_ns_ = call.begun_ns_;
  carrier.deadline_ns_ = call.deadline_ns_;
  carrier.outcome_.Reset();
  carrier.cancel_posted_.store(false, std::memory_order_relaxed);
  carrier.refs.store(2, std::memory_order_relaxed);  // The call's, and its own.
}

// The call may have ended since this was posted. Its cancel of this may have run before: a thread that holds
// both pollers, as a callback of one may that cancels the call, runs it at once.
void CarriedCalls::Start(UntypedCall& carrier) {
  CallSender& sender = *carrier.sender_;
  sender.poller().AddAsyncInterest(1);
  if (carrier.cancel_posted_.load(std::memory_order_relaxed)) {
    return carrier.EndSoon(carrier.errors().Cancelled());
  }
  if (carrier.deadline_ns_ <= sender.poller().now_ns())
    return carrier.EndSoon(carrier.errors().TooLate(sender.poller().WhyLate(carrier.deadline_ns_)));
  sender.Start(carrier);
}

void CarriedCalls::PassOn(UntypedCall& carrier) {
  UntypedCall& call = *carrier.carried_for_;
  carrier.sender_->poller().AddAsyncInterest(-1);
  call.sender_->poller().Run(
      [&call, result = carrier.outcome_.Take()]() mutable { OnResult(call, std::move(result)); });
  carrier.Unref();
}

void CarriedCalls::GiveBack(UntypedCall& carrier) {
  UntypedCall& call = *carrier.carried_for_;
  carrier.sender_->poller().AddAsyncInterest(-1);
  carrier.Move(CallStage::Event::kEndSoon);
  call.sender_->poller().Run(
      [&call, request = std::move(carrier.request), sent = carrier.sent_,
       resends = carrier.resends_]() mutable { TakeBack(call, std::move(request), sent, resends); });
  carrier.Unref();
}

void CarriedCalls::OnResult(UntypedCall& call, absl::StatusOr<transport::IncomingMessagePtr>&& result) {
  if (!DropCarrier(call)) return;
  if (!result.ok() && call.lands() && call.sender_->closed()) {
    const absl::Status& why = call.sender_->why_closed();  // It has cancelled the carrier.
    if (call.sent_ == Sent::kNo) call.sent_ = Sent::kPerhaps;
    return call.End(call.errors().Error(why.code(), why.message()));
  }
  if (!result.ok()) return call.End(std::move(result).status());
  call.outcome_.Set(*std::move(result));
  call.End(absl::OkStatus());
}

void CarriedCalls::TakeBack(UntypedCall& call, transport::OutgoingMessagePtr request, Sent sent,
                            uint8_t resends) {
  if (!DropCarrier(call)) return;
  call.request = std::move(request);
  call.sent_ = sent;
  call.resends_ = resends;
  if (call.cancelled_) return call.EndSoon(call.errors().Cancelled());  // With ReceiveInto(): see End().
  call.sender_->Start(call);
}

bool CarriedCalls::DropCarrier(UntypedCall& call) {
  std::exchange(call.carrier_, nullptr)->Unref();
  if (call.stage_ == CallStage::State::kCarried) {
    call.sender_->Forget(call);
    return true;
  }
  call.Unref();  // EndWithoutCarrier() has added it.
  return false;
}

void CarriedCalls::End(UntypedCall& call, absl::StatusCode code, absl::string_view why) {
  if (call.lands()) return call.carrier_->Cancel();  // Its end comes to OnResult(), or to TakeBack().
  Forget(call);
  EndWithoutCarrier(call, code, why);
}

void CarriedCalls::EndWithoutCarrier(UntypedCall& call, absl::StatusCode code, absl::string_view why) {
  call.AddRef();
  if (call.sent_ == Sent::kNo) call.sent_ = Sent::kPerhaps;
  call.EndSoon(call.errors().Error(code, why));
  call.carrier_->Cancel();  // Its end may come in here.
}

// One at a time: what a cancel runs on the poller of another connection may end the others.
void CarriedCalls::EndAll(const absl::Status& why) {
  while (!calls_.empty()) End(*calls_.front(), why.code(), why.message());
  std::vector<UntypedCall*> landing;
  for (UntypedCall* call = landing_.front(); call != nullptr; call = call->next_) {
    call->AddRef();
    landing.push_back(call);
  }
  for (UntypedCall* const call : landing) {
    if (call->stage_ == CallStage::State::kCarried) End(*call, why.code(), why.message());
    call->Unref();
  }
}

}  // namespace hawser::internal
