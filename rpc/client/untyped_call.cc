#include "hawser/rpc/client/untyped_call.h"

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/probe.h"
#include "hawser/rpc/client/call_sender.h"
#include "hawser/rpc/status.h"
#include "hawser/rpc/wire/alarm.h"
#include "hawser/rpc/wire/called_codes.h"
#include "hawser/rpc/wire/envelope.h"
#include "hawser/rpc/wire/misplaced_wait.h"
#include "hawser/transport/poller/called_out.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {
namespace {

// How often an idempotent call is resent after a lost connection. Without a limit, a request that crashes
// servers would crash one after the other.
constexpr int kResendsMax = 2;

// A message in unregistered memory, for a call that will never be sent. Its pool has neither a limit nor a
// fabric.
transport::OutgoingMessagePtr UnsendableMessage() {
  auto buffers =
      std::make_shared<transport::BufferPool>(nullptr, transport::BufferPoolOptions{.limit_bytes = 0});
  return transport::MessagePool::Create(std::move(buffers))->NewOutgoing();
}

// Of a thread that is on a poller.
absl::Status WaitMisplaced(const char* method, const std::string& peer_address, Sent sent) {
  // An executor takes the handlers of a server off its pollers, and nothing else.
  const std::optional<transport::CalledOut::Call> in = transport::Poller::CalledOutOnThisThread();
  const bool in_handler = !in.has_value() || in->what == &kHandler;
  const absl::Status why = MisplacedWait(
      "Wait()",
      absl::StrCat(
          ", on a poller's thread, where everything else on that poller, perhaps this answer, "
          "would wait, too; use Then() or co_await there, or ",
          in_handler ? "give the server an executor (ServerOptions::executor)" : "wait on another thread"),
      absl::StrCat("calling ", method, " at ", peer_address));
  return PublicCallError(why.code(), method, why.message(), sent);
}

}  // namespace

void Misused(const char* how, const char* method) {
  HAWSER_CHECK(false, how, method != nullptr ? absl::StrCat(" (method ", method, ")") : "");
  std::abort();
}

// ---- CallHandle

CallHandle CallHandle::NewInChild(const std::shared_ptr<CallSender>& channel, const Method& method) {
  auto* const call = new UntypedCall();
  call->sender_ = channel.get();
  call->parents_sender_ = channel;
  call->method_ = method;
  call->request = UnsendableMessage();
  call->outcome_.SetAlone(call->errors().InChild());
  call->stage_ = CallStage::State::kEnded;
  call->refs.store(1, std::memory_order_relaxed);
  return CallHandle(call);
}

void CallHandle::Free() { call().Free(); }
const Method& CallHandle::method() const { return call().method(); }
void CallHandle::SetSpanAttribute(absl::string_view key, const SpanValue& value) {
  call().extras_.SetSpanAttribute(key, value);
}
void CallHandle::ReceiveInto(absl::Span<uint8_t> buffer) {
  UntypedCall& lands = call();
  if (lands.parents_sender_ != nullptr || lands.in_child()) return;  // It never reaches a network.
  lands.is_usual_ = false;
  lands.has_extras_ = true;
  lands.request->Refuse(lands.extras_.ReceiveInto(buffer, *lands.sender_->runtime()));
}

bool CallHandle::lands() const { return call().lands(); }
void CallHandle::Cancel() { call().Cancel(); }

void CallHandle::Drop() {
  Cancel();
  UntypedCall& dropped = call();
  if (!dropped.lands() || dropped.in_child()) return;
  dropped.outcome_.WaitToTheEnd(dropped.sender_->poller(), dropped.Whose());
}

// On the poller of its channel, Send() has done all that it does now, and a cancel is done at once. Otherwise
// that poller may be at work on both.
Sent CallHandle::SentAsFarAsKnownHere() const {
  const UntypedCall& sent = call();
  if (!sent.sender_->poller().Held()) return sent.sender_->is_null() ? Sent::kNo : Sent::kPerhaps;
  return sent.stage_ == CallStage::State::kCarried && sent.sent_ == Sent::kNo ? Sent::kPerhaps : sent.sent_;
}

void CallHandle::Then(Callback&& callback) {
  call().outcome_.set_callback(std::move(callback));
  call().Hook();
}

void CallHandle::Unhook() {
  if (call().outcome_.Unhook(call().Whose())) call().sender_->poller().AddAsyncInterest(-1);
}

CallResult CallHandle::Wait() {
  CallSender& sender = *call().sender_;
  const ReadLimits& limits = sender.read_limits();
  CallOutcome& outcome = call().outcome_;
  if (call().parents_sender_ != nullptr) return {outcome.Take(), limits};
  if (call().in_child()) return {call().WhyInChild(), limits};
  const char* const method = call().method_.name;
  if (call().lands()) {
    outcome.WaitToTheEnd(sender.poller(), call().Whose());
    return {outcome.Take(), limits};
  }
  absl::Status given_up = transport::Poller::ThisThreadHoldsOne()
                              ? WaitMisplaced(method, sender.peer_address(), SentAsFarAsKnownHere())
                              : outcome.Wait(sender.poller(), call().timeout_, method, sender.peer_address());
  if (given_up.ok()) return {outcome.Take(), limits};
  call().Cancel();
  return {std::move(given_up), limits};
}

std::shared_ptr<Alarm> CallHandle::NewAlarm(absl::AnyInvocable<void(bool)> callback) const {
  if (call().in_child()) return nullptr;
  CallSender& sender = *call().sender_;
  return std::make_shared<Alarm>(sender.runtime(), sender.poller(), nullptr, call().method_.name,
                                 std::move(callback));
}

// ---- CallAwaiter

void CallAwaiter::ResumeWith(CallOutcome& outcome, const ReadLimits& limits) {
  if (outcome.error().ok()) {
    reply_ = std::move(outcome.reply());
  } else {
    error_ = std::move(outcome.error());
  }
  limits_ = limits;
  { const CallHandle released = std::move(call_); }
  waiting_.resume();
}

void CallAwaiter::Abandon() {
  if (waiting_) call_.Unhook();
  call_.Drop();
}

// ---- UntypedCall, on the caller's thread

UntypedCall::UntypedCall() = default;
UntypedCall::~UntypedCall() = default;

CallErrors UntypedCall::errors() const { return {method_.name, sender_->peer_address(), sent_}; }

// One that the parent has sent, and whose result it had not, is still in the hands of the parent's poller.
absl::Status UntypedCall::WhyInChild() const {
  CallErrors errors = this->errors();
  if (errors.sent == Sent::kNo && refs.load(std::memory_order_relaxed) > 1) errors.sent = Sent::kPerhaps;
  return errors.InChild();
}

bool UntypedCall::in_child() const { return !sender_->poller().usable_in_this_process(); }

void UntypedCall::Free() {
  if (parents_sender_ != nullptr) {
    delete this;
    return;
  }
  if (in_child()) return;  // Leaked: a thread of the parent may have held the pool's locks during fork().
  request.reset();
  if (has_extras_) [[unlikely]] {
    has_extras_ = false;
    carried_for_ = nullptr;
    extras_.Drop();
  }
  outcome_.Drop();
  sender_->calls().Put(this, sender_->poller().Held());
}

void UntypedCall::SendElsewhere() {
  if (parents_sender_ != nullptr || in_child()) return;
  transport::Poller& poller = sender_->poller();
  const bool held = poller.Held();
  deadline_ns_ = timeout_.Begin(poller, held);
  refs.store(2, std::memory_order_relaxed);  // No other thread has seen the call yet.
  const bool cancelled = has_extras_ && !BeginExtras();
  request->SetEnvelope(Encode(RequestEnvelope{method_.interface_id, method_.ordinal, metadata_segment_}));
  HAWSER_PROBE(call_start, static_cast<transport::ResponseHandler*>(this), method_.name);
  if (held) {
    Begin();
  } else {
    poller.Post(&item_);
  }
  if (cancelled) Cancel();
}

bool UntypedCall::BeginExtras() {
  if (extras_.intercepted() && !in_child()) {
    // The time that Begin() takes counts.
    if (deadline_ns_ == CallTimeout::kNotYet)
      deadline_ns_ = timeout_.DeadlineNs(sender_->poller().environment().NowNs());
    metadata_segment_ = extras_.Intercept(sender_->interceptors(), method_, sender_->peer_address(),
                                          *sender_->peer_identity(), *request);
  }
  return extras_.JoinScope(*this);
}

void UntypedCall::Hook() {
  if (parents_sender_ != nullptr || in_child()) return InvokeCallbackInChild();
  // What was hooked may release the caller's reference, which may destroy this call before this function
  // returns.
  CallSender& sender = *sender_;
  sender.poller().AddAsyncInterest(1);
  if (outcome_.Hook(Whose())) return;
  AddRef();
  const std::shared_ptr<CallSender> keep = sender.shared_from_this();
  sender.poller().Post(&item_);
}

void UntypedCall::InvokeCallbackInChild() {
  if (parents_sender_ == nullptr) outcome_.Set(WhyInChild());
  AddRef();
  InvokeCallback();
  Unref();
}

void UntypedCall::Cancel() {
  if (parents_sender_ != nullptr || in_child() || outcome_.is_there()) return;
  if (cancel_posted_.exchange(true, std::memory_order_relaxed)) return;
  AddRef();
  sender_->poller().Post(&cancel_item_);
}

absl::AnyInvocable<void()> UntypedCall::Canceller() {
  return [handle = CallHandle::To(*this)]() mutable { handle.Cancel(); };
}

// ---- On the poller.

// The callback is posted once the result is there, and that comes after the begin. Also called where no
// callback may run: on a thread that only posts, or inside Then() in another callback.
void UntypedCall::RunPosted() {
  if (stage_ == Stage::kNew) return Begin();
  sender_->HandOverSoon(*this);
}

void UntypedCall::Begin() {
  begun_ns_ = sender_->poller().NowForDeadlineNs();
  if (deadline_ns_ == CallTimeout::kNotYet) deadline_ns_ = timeout_.DeadlineNs(begun_ns_);
  if (!MayBeSent()) [[unlikely]]
    return EndSoon(WhyNotSent());
  sender_->Start(*this);
}

inline bool UntypedCall::MayBeSent() const {
  return !cancelled_ && !timeout_.is_over() && deadline_ns_ > sender_->poller().now_ns() &&
         request->status().ok();
}

absl::Status UntypedCall::WhyNotSent() const {
  const transport::Poller& poller = sender_->poller();
  if (cancelled_) return errors().Cancelled();
  if (timeout_.is_over()) return errors().TooLate("");
  if (deadline_ns_ <= poller.now_ns()) return errors().TooLate(poller.WhyLate(deadline_ns_));
  if (absl::Status refused = extras_.refused(); !refused.ok()) return CallErrors::NotSent(refused);
  return errors().BadRequest(request->status());
}

void UntypedCall::RunCancel() {
  cancelled_ = true;
  switch (stage_) {
    case Stage::kSent:
      connection_->Cancel(exchange_);
      break;
    case Stage::kCarried:
      sender_->EndCarried(*this, absl::StatusCode::kCancelled, "cancelled by the caller");
      break;
    case Stage::kQueued:
    case Stage::kReturning:
      sender_->Forget(*this);
      EndSoon(errors().Cancelled());
      break;
    case Stage::kNew:  // Begin() sees it.
    case Stage::kEnding:
    case Stage::kEnded:
    case Stage::kImpossible:  // Never entered.
      break;
  }
  Unref();
}

void UntypedCall::CallBackLate() {
  if (outcome_.ArriveLate(Whose())) InvokeCallback();
  sender_->poller().AddAsyncInterest(-1);
  Unref();
}

void UntypedCall::OnOtherResult(absl::StatusOr<transport::IncomingMessagePtr>&& response) {
  transport::Connection* const connection = std::exchange(connection_, nullptr);
  if (!response.ok()) return OnFailure(response.status());
  if (!IsOkEnvelope((*response)->envelope())) return OnOtherResponse(*connection, *std::move(response));
  End(*std::move(response));
}

void UntypedCall::OnOtherResponse(transport::Connection& connection, transport::IncomingMessagePtr response) {
  bool not_run = false;
  absl::Status error = errors().InResponse(*response, /*sent_before=*/resends_ > 0, not_run);
  if (error.ok()) return End(std::move(response));
  if (not_run) return OnCallNotRun(connection, std::move(error));
  End(std::move(error));
}

// The client may resend the call, whatever its method, because this server did not run it. It has not been
// cancelled: a cancel ends a call that was sent at once, and takes no answer any more.
void UntypedCall::OnCallNotRun(transport::Connection& connection, absl::Status why) {
  // If it was sent before, that server may have run it.
  if (resends_ == 0) sent_ = Sent::kNo;
  const std::shared_ptr<CallSender> sender = sender_->shared_from_this();
  const bool comes_back = std::exchange(request_comes_back_, false);
  if (!comes_back) {
    SetWasSent(why, sent_);
    End(std::move(why));
    return sender->OnCallNotRun(connection);
  }
  sender->AwaitRequest(*this);
  sender->OnCallNotRun(connection);
  if (request != nullptr) SendAgain();
}

void UntypedCall::OnFailure(const absl::Status& why) {
  // The fabric may still read the request. OnRequestReturned() is called when it no longer does, whatever the
  // call's result.
  const bool comes_back = std::exchange(request_comes_back_, false);
  if (comes_back) AddRef();
  if (sender_->closed())
    return EndSoon(errors().Error(sender_->why_closed().code(), sender_->why_closed().message()));
  const bool late = deadline_ns_ <= sender_->poller().now_ns();
  if (comes_back && !cancelled_ && !late && resends_ < kResendsMax && absl::IsUnavailable(why)) {
    ++resends_;
    return sender_->AwaitRequest(*this);
  }
  End(errors().Error(why.code(), why.message()));
}

bool UntypedCall::WantsRequestBack() {
  request_comes_back_ = method_.idempotent;
  return request_comes_back_;
}

bool UntypedCall::WantsRequestBackAfter(const transport::IncomingMessage& error) {
  const absl::StatusOr<ResponseEnvelope> envelope = DecodeResponseEnvelope(error.envelope());
  request_comes_back_ = envelope.ok() && envelope->not_run && sender_->reconnects();
  if (request_comes_back_) AddRef();
  return request_comes_back_;
}

void UntypedCall::OnRequestReturned(transport::OutgoingMessagePtr returned) {
  // kSent: before OnResponse().
  if (stage_ == Stage::kReturning || stage_ == Stage::kSent) request = std::move(returned);
  if (stage_ == Stage::kReturning) SendAgain();
  Unref();
}

void UntypedCall::SendAgain() {
  if (stage_ != Stage::kReturning) return;
  sender_->Forget(*this);
  sender_->Start(*this);
}

[[gnu::always_inline]] inline void UntypedCall::End(transport::IncomingMessagePtr&& reply) {
  outcome_.Set(std::move(reply));
  HandOverNowOrSoon();
}

void UntypedCall::End(absl::Status error) {
  outcome_.Set(std::move(error));
  HandOverNowOrSoon();
}

void UntypedCall::EndSoon(absl::Status error) {
  outcome_.Set(std::move(error));
  HandOverSoon();
}

[[gnu::always_inline]] inline void UntypedCall::HandOverNowOrSoon() {
  if (!sender_->poller().MayCallOut()) [[unlikely]]
    return HandOverSoon();
  HandOver();
}

void UntypedCall::HandOverSoon() {
  Move(CallStage::Event::kEndSoon);
  sender_->HandOverSoon(*this);
}

[[gnu::always_inline]] inline void UntypedCall::NoteEnd() {
  HAWSER_PROBE(call_end, static_cast<transport::ResponseHandler*>(this), method_.name, outcome_.error().ok());
  if (outcome_.error().ok()) [[likely]] {
    sender_->CountEnd(method_, absl::StatusCode::kOk, begun_ns_);
  } else {
    sender_->CountEnd(method_, outcome_.error().code(), begun_ns_);
  }
}

void UntypedCall::HandOver() {
  if (stage_ == Stage::kEnded) return CallBackLate();
  Move(CallStage::Event::kHandOver);
  // Most calls are neither carried nor have extras, and this is their one test.
  if (has_extras_) [[unlikely]] {
    if (carried_for_ != nullptr) return sender_->OnCarrierEnd(*this);
    NoteEnd();
    extras_.End(*this, sender_->poller(), method_.name, outcome_.error());
    extras_.EndLanding(outcome_.reply().get());
  } else {
    NoteEnd();
  }
  if (outcome_.Arrive(Whose())) {
    InvokeCallback();
    sender_->poller().AddAsyncInterest(-1);
  }
  Unref();
}

[[gnu::always_inline]] inline void UntypedCall::InvokeCallback() {
  const transport::Poller::CallOut out(sender_->poller(), kCallback, method_.name);
  if (has_extras_ || current_trace != nullptr) [[unlikely]] {
    InvokeTraced();
  } else {
    outcome_.Run(method_, sender_->read_limits());
  }
  outcome_.DropRunCallback();
}

void UntypedCall::InvokeTraced() {
  // Also if it has none: this thread may be in a handler that waits, and drives the poller meanwhile.
  const TraceRef none;
  const TraceScope trace(extras_.TraceOr(none));
  outcome_.Run(method_, sender_->read_limits());
}

}  // namespace hawser::internal
