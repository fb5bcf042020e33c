// The road of the usual call, down and up: it is made and sent on the poller of its channel, nothing is asked
// for but its deadline, and a reply comes for the callback or the coroutine that awaits it. Each function
// here is one stretch of that road. What is not usual leaves it at one test, for a function that is on the
// road of all other calls: those with metadata, a scope, a trace or interceptors, with an absolute deadline
// or a timeout below a second, made or sent on other threads, waited for by a thread, those that fail, are
// sent again, or get an error. What is checked, counted and promised is the same on both: they are made of
// the same parts.

#include <utility>

#include "hawser/base/probe.h"
#include "hawser/rpc/client/call_sender.h"
#include "hawser/rpc/client/untyped_call.h"
#include "hawser/rpc/wire/called_codes.h"
#include "hawser/rpc/wire/envelope.h"
#include "hawser/rpc/wire/tracing.h"

namespace hawser::internal {

// ---- A call is made.

[[gnu::always_inline]] inline void UntypedCall::Prepare(CallSender& sender, const Method& method,
                                                        const CallOptions& options, bool held) {
  sender_ = &sender;
  method_ = method;
  request = held ? sender.poller().NewOutgoing() : sender.poller().messages().NewOutgoing();
  stage_ = Stage::kNew;
  cancelled_ = request_comes_back_ = false;
  sent_ = Sent::kNo;
  resends_ = 0;
  metadata_segment_ = 0;
  bool may_have_extras = sender.intercepts() || MayTraceHere();
  if (&options == &CallOptions::kNone) [[likely]] {
    wait_for_ready_ = false;
    is_usual_ = timeout_.SetDefault(sender.default_timeout_ns());
  } else {
    wait_for_ready_ = options.wait_for_ready;
    is_usual_ = timeout_.Set(options, sender.default_timeout_ns());
    if (options.metadata != nullptr || options.scope.get() != nullptr) may_have_extras = true;
  }
  if (may_have_extras) [[unlikely]] {
    has_extras_ = extras_.Prepare(options, sender.intercepts(), *request, metadata_segment_);
    is_usual_ = false;
  }
  outcome_.Reset();
  cancel_posted_.store(false, std::memory_order_relaxed);
  refs.store(1, std::memory_order_relaxed);
}

[[gnu::always_inline]] inline CallHandle CallHandle::NewOn(const std::shared_ptr<CallSender>& channel,
                                                           const Method& method, const CallOptions& options) {
  CallSender& sender = *channel;
  const bool held = sender.poller().Held();
  UntypedCall* const call = sender.calls().Get(channel, held);
  call->Prepare(sender, method, options, held);
  return CallHandle(call);
}

CallHandle CallHandle::New(const std::shared_ptr<CallSender>& channel, const Method& method,
                           const CallOptions& options) {
  if (!channel->takes_new_calls()) [[unlikely]]
    return CallHandle::NewElsewhere(channel, method, options);
  return CallHandle::NewOn(channel, method, options);
}

CallHandle CallHandle::NewElsewhere(const std::shared_ptr<CallSender>& channel, const Method& method,
                                    const CallOptions& options) {
  if (!channel->poller().usable_in_this_process()) return NewInChild(channel, method);
  return NewOn(channel->ForNewCall(), method, options);
}

// ---- Down: it is sent, or queued.

void CallHandle::Send() { call().Send(); }

[[gnu::always_inline]] inline void UntypedCall::Send() {
  CallSender& sender = *sender_;
  transport::Poller& poller = sender.poller();
  if (!is_usual_ || !poller.Held() || !request->status().ok()) [[unlikely]]
    return SendElsewhere();
  refs.store(2, std::memory_order_relaxed);  // No other thread has seen the call yet.
  begun_ns_ = poller.NowForDeadlineNs();
  deadline_ns_ = timeout_.DeadlineNs(begun_ns_);
  request->SetEnvelope(Encode(RequestEnvelope{method_.interface_id, method_.ordinal, 0}));
  HAWSER_PROBE(call_start, static_cast<transport::ResponseHandler*>(this), method_.name);
  sender.StartNew(*this);
}

[[gnu::always_inline]] inline void CallSender::StartNew(UntypedCall& call) {
  Link* const link = link_.get();
  if (queue_.empty() && link != nullptr && link->CanSend() && TrySend(call, CallStage::State::kNew)) return;
  if (state() != ChannelState::kReady && StartWhileNotReady(call)) return;
  call.MoveFrom(CallStage::State::kNew, CallStage::Event::kQueue);
  queue_.PushBack(call);
}

[[gnu::always_inline]] inline bool CallSender::TrySend(UntypedCall& call, CallStage::State stage) {
  transport::Connection& connection = link_->forward();
  const absl::StatusOr<transport::ExchangeId> id =
      connection.SendRequest(call.request, call.deadline_ns_, call);
  if (!id.ok()) [[unlikely]]
    return EndUnsent(call, id.status());
  call.MoveFrom(stage, CallStage::Event::kSend);
  call.sent_ = Sent::kYes;
  call.connection_ = &connection;
  call.exchange_ = *id;
  return true;
}

// One that is not new, or waits for something else than a slot.
void CallSender::Start(UntypedCall& call) {
  poller_.AssertHeld();
  if (queue_.empty() && link_ != nullptr && link_->CanSend() && TrySend(call, call.stage_)) return;
  if (state() != ChannelState::kReady && StartWhileNotReady(call)) return;
  call.Move(CallStage::Event::kQueue);
  queue_.PushBack(call);
}

void CallSender::Pump() {
  poller_.AssertHeld();
  while (!queue_.empty() && link_ != nullptr && link_->CanSend()) {
    UntypedCall& call = queue_.PopFront();
    if (!TrySend(call, CallStage::State::kQueued)) [[unlikely]]
      Start(call);
  }
}

// A response has freed a slot, which is for the first call that waits.
void CallSender::OnLinkSlotFree(Link& link) {
  poller_.AssertHeld();
  if (!queue_.empty() && &link == link_.get()) Pump();
}

// ---- A coroutine awaits it.

void CallAwaiter::await_suspend(std::coroutine_handle<> waiting) {
  waiting_ = waiting;
  call_.call().Await(*this);
}

[[gnu::always_inline]] inline void UntypedCall::Await(CallAwaiter& waiting) {
  outcome_.set_waiting(waiting);
  transport::Poller& poller = sender_->poller();
  if (!poller.Held() || outcome_.is_awaited_or_there() || !poller.usable_in_this_process()) [[unlikely]]
    return Hook();
  // The result comes on this poller, so only this thread moves the state now.
  poller.AddAsyncInterest(1);
  outcome_.HookAlone(Whose());
}

// ---- Up: the reply goes to what awaits it.

void UntypedCall::OnResponse(absl::StatusOr<transport::IncomingMessagePtr>&& response) {
  CallSender& sender = *sender_;
  transport::Poller& poller = sender.poller();
  if (!response.ok() || !IsOkEnvelope((*response)->envelope()) || stage_ != Stage::kSent ||
      !outcome_.is_hooked() || has_extras_ || current_trace != nullptr || !poller.MayCallOut()) [[unlikely]]
    return OnOtherResult(std::move(response));
  transport::IncomingMessagePtr reply = *std::move(response);
  connection_ = nullptr;
  MoveFrom(Stage::kSent, CallStage::Event::kHandOver);
  HAWSER_PROBE(call_end, static_cast<transport::ResponseHandler*>(this), method_.name, true);
  sender.CountEnd(method_, absl::StatusCode::kOk, begun_ns_);
  outcome_.ArriveHooked(Whose());
  {
    const transport::Poller::CallOut out(poller, kCallback, method_.name);
    outcome_.RunHooked(reply, method_, sender.read_limits());
  }
  poller.AddAsyncInterest(-1);
  // Sending it has taken its request, and its reply was never in `outcome_`.
  // What the poller does not keep goes the long way, which is none in a child after fork().
  if (refs.load(std::memory_order_acquire) != 1 || !sender.calls().KeepOnPoller(this)) [[unlikely]]
    Unref();
}

[[gnu::always_inline]] inline void CallAwaiter::ResumeWith(transport::IncomingMessagePtr& reply,
                                                           const ReadLimits& limits) {
  reply_.swap(reply);
  limits_ = limits;
  CallFront& call = *std::exchange(call_.call_, nullptr);
  if (call.Unref()) [[unlikely]]
    static_cast<UntypedCall&>(call).Free();
  waiting_.resume();
}

}  // namespace hawser::internal
