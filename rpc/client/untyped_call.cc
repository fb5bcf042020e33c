#include "hawser/rpc/client/untyped_call.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/probe.h"
#include "hawser/base/state_machine.h"
#include "hawser/rpc/client/call_sender.h"
#include "hawser/rpc/status.h"
#include "hawser/rpc/wire/alarm.h"
#include "hawser/rpc/wire/cancel_scope.h"
#include "hawser/rpc/wire/envelope.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/rpc/wire/message_metadata.h"
#include "hawser/rpc/wire/misplaced_wait.h"

namespace hawser::internal {
namespace {

// How often an idempotent call is resent after a lost connection. Without a limit, a request that crashes
// servers would crash one after the other.
constexpr int kResendsMax = 2;

// A timeout below this counts from the time of Send(). A longer one counts from the poller's clock, which
// lags behind by what the sending callback has taken so far: reading the clock for each call would add a
// tenth to a small one.
constexpr int64_t kExactTimeoutNs = 1'000'000'000;

// How much later than the poller a waiting thread checks the deadline. The poller's result says more, so it
// comes first, unless the application holds the poller.
constexpr absl::Duration kGrace = absl::Milliseconds(20);

int64_t DeadlineNs(int64_t now_ns, int64_t timeout_ns) {
  return timeout_ns >= transport::kNever - now_ns ? transport::kNever : now_ns + timeout_ns;
}

// The poller has not computed the deadline yet.
constexpr int64_t kNotYet = std::numeric_limits<int64_t>::min();

// A message in unregistered memory, for a call that will never be sent. Its pool has neither a limit nor a
// fabric.
transport::OutgoingMessagePtr UnsendableMessage() {
  auto buffers =
      std::make_shared<transport::BufferPool>(nullptr, transport::BufferPoolOptions{.limit_bytes = 0});
  return transport::MessagePool::Create(std::move(buffers))->NewOutgoing();
}

}  // namespace

void Misused(const char* how, const char* method) {
  HAWSER_CHECK(false, how, method != nullptr ? absl::StrCat(" (method ", method, ")") : "");
  std::abort();
}

// ---- CallHandle

CallHandle CallHandle::To(UntypedCall& call) {
  call.AddRef();
  return CallHandle(&call);
}

void CallHandle::Release() { call_->Unref(); }
const Method& CallHandle::method() const { return call_->method(); }
transport::OutgoingMessage& CallHandle::request() { return call_->request(); }
void CallHandle::SetSpanAttribute(absl::string_view key, const SpanValue& value) {
  call_->SetSpanAttribute(key, value);
}
void CallHandle::Send() { call_->Send(); }
CallResult CallHandle::Wait() { return call_->Wait(); }
void CallHandle::Then(Callback&& callback) { call_->Then(std::move(callback)); }
void CallHandle::Unhook() { call_->Unhook(); }
void CallHandle::Cancel() { call_->Cancel(); }
std::shared_ptr<Alarm> CallHandle::NewAlarm(absl::AnyInvocable<void(bool)> callback) const {
  return call_->NewAlarm(std::move(callback));
}

// ---- CallAwaiter

void CallAwaiter::await_suspend(std::coroutine_handle<> waiting) {
  waiting_ = waiting;
  call_.call_->Await(*this);
}

[[gnu::always_inline]] inline void CallAwaiter::ResumeWith(UntypedCall& call) {
  if (call.error_.ok()) [[likely]] {
    reply_ = std::move(call.reply_);
  } else {
    error_ = std::move(call.error_);
  }
  limits_ = call.sender_->read_limits();
  has_result_ = true;
  std::exchange(call_.call_, nullptr)->Unref();
  waiting_.resume();
}

void CallAwaiter::Abandon() {
  if (waiting_) call_.Unhook();
  call_.Cancel();
}

// ---- UntypedCall, on the caller's thread

[[gnu::always_inline]] inline CallHandle UntypedCall::NewOn(const std::shared_ptr<CallSender>& channel,
                                                            const Method& method,
                                                            const CallOptions& options) {
  UntypedCall* const call = channel->calls().Get(channel, channel->poller().Held());
  call->Prepare(channel, method, options);
  return CallHandle(call);
}

CallHandle CallHandle::New(const std::shared_ptr<CallSender>& channel, const Method& method,
                           const CallOptions& options) {
  if (!channel->takes_new_calls()) [[unlikely]]
    return UntypedCall::NewElsewhere(channel, method, options);
  return UntypedCall::NewOn(channel, method, options);
}

CallHandle UntypedCall::NewElsewhere(const std::shared_ptr<CallSender>& channel, const Method& method,
                                     const CallOptions& options) {
  if (!channel->poller().usable_in_this_process()) return NewInChild(channel, method);
  return NewOn(channel->ForNewCall(), method, options);
}

CallHandle UntypedCall::NewInChild(const std::shared_ptr<CallSender>& channel, const Method& method) {
  auto* const call = new UntypedCall();
  call->sender_ = channel.get();
  call->parents_sender_ = channel;
  call->method_ = method;
  call->request_ = UnsendableMessage();
  call->error_ = call->ErrorInChild();
  call->stage_ = Stage::kEnded;
  call->handover_.store(Handover::State::kResult, std::memory_order_relaxed);
  call->refs_.store(1, std::memory_order_relaxed);
  return CallHandle(call);
}

UntypedCall::UntypedCall() = default;
UntypedCall::~UntypedCall() = default;

bool UntypedCall::in_child() const { return !sender_->poller().usable_in_this_process(); }

absl::Status UntypedCall::ErrorInChild() const {
  return Error(absl::StatusCode::kFailedPrecondition,
               "this process is a child made by fork() after the channel was; its connections and threads "
               "are the parent's. Make channels after fork(), or call exec()");
}

[[gnu::always_inline]] inline void UntypedCall::Prepare(const std::shared_ptr<CallSender>& channel,
                                                        const Method& method, const CallOptions& options) {
  sender_ = channel.get();
  method_ = method;
  request_ = sender_->poller().messages().NewOutgoing();
  deadline_ = options.deadline;
  wait_for_ready_ = options.wait_for_ready;
  const bool has_default = deadline_ == absl::InfiniteFuture() && options.timeout == absl::InfiniteDuration();
  timeout_ns_ = has_default ? sender_->default_timeout_ns() : absl::ToInt64Nanoseconds(options.timeout);
  stage_ = Stage::kNew;
  cancelled_ = was_sent_ = request_comes_back_ = false;
  resends_ = 0;
  metadata_segment_ = 0;
  if (options.metadata != nullptr || options.scope.get() != nullptr || sender_->intercepts() ||
      MayTraceHere()) [[unlikely]]
    PrepareExtras(options);
  handover_.store(Handover::State::kNeither, std::memory_order_relaxed);
  cancel_posted_.store(false, std::memory_order_relaxed);
  refs_.store(1, std::memory_order_relaxed);
}

void UntypedCall::Free() {
  if (parents_sender_ != nullptr) {
    delete this;
    return;
  }
  if (in_child()) return;  // Leaked: a thread of the parent may have held the pool's locks during fork().
  request_.reset();
  if (has_extras_) [[unlikely]]
    DropExtras();
  reply_.reset();
  if (!error_.ok()) [[unlikely]]
    error_ = absl::OkStatus();
  sender_->calls().Put(this, sender_->poller().Held());
}

void UntypedCall::Send() {
  if (parents_sender_ != nullptr) return;
  transport::Poller& poller = sender_->poller();
  const bool held = poller.Held();
  if (deadline_ != absl::InfiniteFuture()) {
    timeout_ns_ = std::min(timeout_ns_, absl::ToInt64Nanoseconds(deadline_ - poller.environment().Now()));
  }
  // If a callback on another thread holds the poller, a longer timeout would count from the callback's
  // return.
  const bool known = timeout_ns_ < kExactTimeoutNs || (!held && poller.called_out().inside());
  deadline_ns_ = known ? DeadlineNs(poller.environment().NowNs(), timeout_ns_) : kNotYet;
  waiters_deadline_ns_.store(deadline_ns_, std::memory_order_relaxed);
  refs_.store(2, std::memory_order_relaxed);  // No other thread has seen the call yet.
  const bool cancelled = has_extras_ && !BeginExtras();
  request_->SetEnvelope(Encode(RequestEnvelope{method_.interface_id, method_.ordinal, metadata_segment_}));
  HAWSER_PROBE(call_start, static_cast<transport::ResponseHandler*>(this), method_.name);
  if (held) [[likely]] {
    Begin();
  } else {
    poller.Post(&item_);
  }
  if (cancelled) Cancel();
}

void UntypedCall::SetSpanAttribute(absl::string_view key, const SpanValue& value) {
  // In a process that never had a sink a trace is only passed on.
  if (intercepted_ == nullptr || !intercepted_->is_traced || !AnyCallMayHaveTrace()) return;
  if (intercepted_->attributes == nullptr) intercepted_->attributes = std::make_shared<SpanAttributes>();
  intercepted_->attributes->Set(key, value);
}

void UntypedCall::PrepareExtras(const CallOptions& options) {
  scope_ = options.scope.get();
  const TraceRef& trace = scope_ != nullptr && scope_->trace() != nullptr ? scope_->trace() : CurrentTrace();
  const bool is_traced = HasTrace(trace);
  has_extras_ = scope_ != nullptr || sender_->intercepts() || is_traced;
  if (sender_->intercepts() || is_traced) {
    intercepted_ = std::make_unique<Intercepted>();
    intercepted_->is_traced = is_traced;
    intercepted_->trace = trace;
    if (options.metadata != nullptr) intercepted_->metadata = *options.metadata;
  } else if (options.metadata != nullptr) {
    metadata_segment_ = AddMetadata(*options.metadata, *request_);
  }
}

bool UntypedCall::BeginExtras() {
  if (intercepted_ != nullptr && !in_child()) {
    // The time that Begin() takes counts.
    if (deadline_ns_ == kNotYet) {
      deadline_ns_ = DeadlineNs(sender_->poller().environment().NowNs(), timeout_ns_);
      waiters_deadline_ns_.store(deadline_ns_, std::memory_order_relaxed);
    }
    Metadata& metadata = intercepted_->metadata;
    if (intercepted_->is_traced) {
      intercepted_->interception.Adopt(BeginClientSpan(method_, sender_->peer_address(), intercepted_->trace,
                                                       metadata, std::move(intercepted_->attributes)));
    }
    const std::shared_ptr<const PeerIdentity> identity = sender_->peer_identity();
    intercepted_->refused = intercepted_->interception.Begin(
        sender_->interceptors(),
        {Interceptor::Side::kClient, method_, sender_->peer_address(), *identity, metadata.view(), metadata});
    if (intercepted_->refused.ok()) {
      metadata_segment_ = AddMetadata(metadata, *request_);
    } else {
      request_->Refuse(intercepted_->refused);  // Begin() sees it.
    }
  }
  return scope_ == nullptr || scope_->Add(*this);
}

void UntypedCall::EndExtras() {
  if (scope_ != nullptr) scope_->Remove(*this);
  if (intercepted_ != nullptr) intercepted_->interception.End(sender_->poller(), method_.name, error_);
}

void UntypedCall::DropExtras() {
  has_extras_ = false;
  carried_for_ = nullptr;
  scope_.reset();
  intercepted_.reset();
}

CallResult UntypedCall::Wait() {
  const ReadLimits& limits = sender_->read_limits();
  if (parents_sender_ != nullptr) return {TakeResult(), limits};
  if (in_child()) return {ErrorInChild(), limits};
  if (transport::Poller::ThisThreadHoldsOne()) {
    Cancel();
    const absl::Status why =
        MisplacedWait("Wait()",
                      ", on a poller's thread, where everything else on that poller, perhaps this answer, "
                      "would wait, too; use "
                      "Then() or co_await there, or give the server an executor (ServerOptions::executor)",
                      absl::StrCat("calling ", method_.name, " at ", sender_->peer_address()));
    return {PublicCallError(why.code(), method_.name, why.message(), /*sent=*/true), limits};
  }
  done_.Reset();
  if (Move(Handover::Event::kWait) == Handover::State::kNeither) {
    if (absl::Status given_up = AwaitResult(); !given_up.ok()) return {std::move(given_up), limits};
  }
  return {TakeResult(), limits};
}

absl::StatusOr<transport::IncomingMessagePtr> UntypedCall::TakeResult() {
  if (!error_.ok()) return std::move(error_);
  return std::move(reply_);
}

absl::Status UntypedCall::AwaitResult() {
  transport::Poller& poller = sender_->poller();
  const auto deadline_ns = [&] {
    const int64_t known_ns = waiters_deadline_ns_.load(std::memory_order_relaxed);
    const int64_t now_ns = poller.environment().NowNs();
    const int64_t end_ns = known_ns != kNotYet ? known_ns : DeadlineNs(now_ns, timeout_ns_);
    return transport::After(std::max(end_ns, now_ns), kGrace);
  };
  const auto soon_ns = [&] { return transport::After(poller.environment().NowNs(), kGrace); };
  if (poller.WaitFor(done_, deadline_ns)) return absl::OkStatus();
  do {
    if (std::optional<absl::Status> result = GiveUpIfHeld()) return *std::move(result);
  } while (!poller.WaitFor(done_, soon_ns));
  return absl::OkStatus();
}

std::optional<absl::Status> UntypedCall::GiveUpIfHeld() {
  transport::Poller& poller = sender_->poller();
  const std::optional<transport::CalledOut::Call> call = poller.called_out().Now();
  if (!call.has_value()) return std::nullopt;  // The poller was held, and runs again.
  if (Move(Handover::Event::kGiveUp) == Handover::State::kResult) {
    poller.WaitFor(done_);  // The result is there, and the poller is about to notify this thread.
    return absl::OkStatus();
  }
  Cancel();
  const absl::Duration held = absl::Nanoseconds(poller.environment().NowNs() - call->since_ns);
  return CallError(absl::StatusCode::kDeadlineExceeded, method_.name, sender_->peer_address(),
                   absl::StrCat("the deadline passed, and this process could not look for the answer: the "
                                "poller of its channel has been held for ",
                                transport::RoughDuration(held), " by ", transport::Describe(*call)),
                   /*sent=*/true);
}

void UntypedCall::Then(Callback&& callback) {
  callback_ = std::move(callback);
  if (parents_sender_ != nullptr || in_child()) return InvokeCallbackInChild();
  Hook();
}

void UntypedCall::Await(CallAwaiter& waiting) {
  waiting_ = &waiting;
  if (parents_sender_ != nullptr || in_child()) return InvokeCallbackInChild();
  transport::Poller& poller = sender_->poller();
  if (!poller.Held() || handover_.load(std::memory_order_acquire) != Handover::State::kNeither) return Hook();
  // The result comes on this poller, so only this thread moves the state now.
  poller.AddAsyncInterest(1);
  MoveAlone(Handover::State::kNeither, Handover::Event::kHook);
}

void UntypedCall::Hook() {
  // What was hooked may release the caller's reference, which may destroy this call before this function
  // returns.
  CallSender& sender = *sender_;
  sender.poller().AddAsyncInterest(1);
  if (Move(Handover::Event::kHook) == Handover::State::kNeither) return;
  AddRef();
  const std::shared_ptr<CallSender> keep = sender.shared_from_this();
  sender.poller().Post(&item_);
}

void UntypedCall::InvokeCallbackInChild() {
  if (parents_sender_ == nullptr) error_ = ErrorInChild();
  AddRef();
  InvokeCallback();
  Unref();
}

std::shared_ptr<Alarm> UntypedCall::NewAlarm(absl::AnyInvocable<void(bool)> callback) const {
  if (in_child()) return nullptr;
  return std::make_shared<Alarm>(sender_->runtime(), sender_->poller(), nullptr, method_.name,
                                 std::move(callback));
}

void UntypedCall::Unhook() {
  // From kResultCallback: CallBackLate() finds kResult and does the rest.
  if (Move(Handover::Event::kUnhook) != Handover::State::kCallback) return;
  waiting_ = nullptr;
  callback_ = nullptr;
  sender_->poller().AddAsyncInterest(-1);
}

void UntypedCall::Cancel() {
  if (parents_sender_ != nullptr || in_child() ||
      handover_.load(std::memory_order_acquire) == Handover::State::kResult)
    return;
  if (cancel_posted_.exchange(true, std::memory_order_relaxed)) return;
  AddRef();
  sender_->poller().Post(&cancel_item_);
}

absl::AnyInvocable<void()> UntypedCall::Canceller() {
  return [handle = CallHandle::To(*this)]() mutable { handle.Cancel(); };
}

Handover::State UntypedCall::Move(Handover::Event event) {
  Handover::State before = handover_.load(std::memory_order_acquire);
  while (true) {
    const Handover::State next = Moved<Handover>(before, event, [this] { return WhoseHandover(); });
    if (next == before ||
        handover_.compare_exchange_weak(before, next, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return before;
    }
  }
}

std::string UntypedCall::WhoseHandover() const {
  return absl::StrCat("the handover of a call of ", method_.name, " to ", sender_->peer_address());
}

// ---- On the poller.

std::string UntypedCall::WhoseStage() const {
  return absl::StrCat("a call of ", method_.name, " to ", sender_->peer_address());
}

// The callback is posted once the result is there, and that comes after the begin. Also called where no
// callback may run: on a thread that only posts, or inside Then() in another callback.
void UntypedCall::RunPosted() {
  if (stage_ == Stage::kNew) return Begin();
  sender_->HandOverSoon(*this);
}

[[gnu::always_inline]] inline void UntypedCall::Begin() {
  begun_ns_ = sender_->poller().NowForDeadlineNs();
  if (deadline_ns_ == kNotYet) {
    deadline_ns_ = DeadlineNs(begun_ns_, timeout_ns_);
    waiters_deadline_ns_.store(deadline_ns_, std::memory_order_relaxed);
  }
  if (!MayBeSent()) [[unlikely]]
    return EndSoon(WhyNotSent());
  sender_->Start(*this);
}

inline bool UntypedCall::MayBeSent() const {
  return !cancelled_ && timeout_ns_ > 0 && deadline_ns_ > sender_->poller().now_ns() &&
         request_->status().ok();
}

absl::Status UntypedCall::WhyNotSent() const {
  if (cancelled_) return Error(absl::StatusCode::kCancelled, "cancelled by the caller");
  if (timeout_ns_ <= 0) return TooLate("");
  if (deadline_ns_ <= sender_->poller().now_ns()) return TooLate(sender_->poller().WhyLate(deadline_ns_));
  if (intercepted_ != nullptr && !intercepted_->refused.ok()) {
    absl::Status refused = intercepted_->refused;
    SetWasSent(refused, false);
    return refused;
  }
  const absl::Status why = request_->status();
  const char* const what = absl::IsResourceExhausted(why) ? "no registered memory for the request: "
                                                          : "the request cannot be sent: ";
  return Error(why.code(), absl::StrCat(what, absl::string_view(why.message())));
}

void UntypedCall::RunCancel() {
  cancelled_ = true;
  switch (stage_) {
    case Stage::kSent:
      connection_->Cancel(exchange_);
      break;
    case Stage::kCarried:
      sender_->Forget(*this);
      EndWithoutCarrier(absl::StatusCode::kCancelled, "cancelled by the caller");
      break;
    case Stage::kQueued:
    case Stage::kReturning:
      sender_->Forget(*this);
      EndSoon(Error(absl::StatusCode::kCancelled, "cancelled by the caller"));
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
  if (Move(Handover::Event::kCallBack) == Handover::State::kResultCallback) {
    InvokeCallback();
  } else {
    waiting_ = nullptr;
    callback_ = nullptr;
  }
  sender_->poller().AddAsyncInterest(-1);
  Unref();
}

void UntypedCall::OnResponse(absl::StatusOr<transport::IncomingMessagePtr>&& response) {
  transport::Connection* const connection = std::exchange(connection_, nullptr);
  if (!response.ok()) [[unlikely]]
    return OnFailure(response.status());
  transport::IncomingMessagePtr& message = *response;
  if (!IsOkEnvelope(message->envelope())) [[unlikely]]
    return OnOtherResponse(*connection, std::move(message));
  End(std::move(message));
}

void UntypedCall::OnOtherResponse(transport::Connection& connection, transport::IncomingMessagePtr response) {
  const absl::StatusOr<ResponseEnvelope> envelope = DecodeResponseEnvelope(response->envelope());
  if (!envelope.ok()) return End(Error(envelope.status().code(), envelope.status().message()));
  const absl::StatusOr<MetadataView> metadata = MetadataIn(*response, envelope->metadata_segment);
  if (!metadata.ok()) return End(Error(absl::StatusCode::kDataLoss, metadata.status().message()));
  if (envelope->code == absl::StatusCode::kOk) return End(std::move(response));
  if (envelope->not_run) return OnCallNotRun(connection, DecodeStatus(envelope->code, *response));
  absl::Status error = DecodeStatus(envelope->code, *response);
  SetMetadata(error, *metadata);
  End(NameUnserved(std::move(error), method_.name, sender_->peer_address()));
}

// The client may resend the call, whatever its method, because this server did not run it. It has not been
// cancelled: a cancel ends a call that was sent at once, and takes no answer any more.
void UntypedCall::OnCallNotRun(transport::Connection& connection, absl::Status why) {
  // If it was sent before, that server may have run it.
  if (resends_ == 0) was_sent_ = false;
  const std::shared_ptr<CallSender> sender = sender_->shared_from_this();
  const bool comes_back = std::exchange(request_comes_back_, false);
  if (!comes_back) {
    SetWasSent(why, was_sent_);
    End(std::move(why));
    return sender->OnCallNotRun(connection);
  }
  sender->AwaitRequest(*this);
  sender->OnCallNotRun(connection);
  if (request_ != nullptr) SendAgain();
}

void UntypedCall::OnFailure(const absl::Status& why) {
  // The fabric may still read the request. OnRequestReturned() is called when it no longer does, whatever the
  // call's result.
  const bool comes_back = std::exchange(request_comes_back_, false);
  if (comes_back) AddRef();
  if (sender_->closed()) return EndSoon(Error(sender_->why_closed().code(), sender_->why_closed().message()));
  const bool late = deadline_ns_ <= sender_->poller().now_ns();
  if (comes_back && !cancelled_ && !late && resends_ < kResendsMax && absl::IsUnavailable(why)) {
    ++resends_;
    return sender_->AwaitRequest(*this);
  }
  End(Error(why.code(), why.message()));
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

void UntypedCall::OnRequestReturned(transport::OutgoingMessagePtr request) {
  // kSent: before OnResponse().
  if (stage_ == Stage::kReturning || stage_ == Stage::kSent) request_ = std::move(request);
  if (stage_ == Stage::kReturning) SendAgain();
  Unref();
}

void UntypedCall::PrepareToCarry(UntypedCall& call, CallSender& sender) {
  sender_ = &sender;
  method_ = call.method_;
  request_ = std::move(call.request_);
  wait_for_ready_ = call.wait_for_ready_;
  has_extras_ = true;
  carried_for_ = &call;
  stage_ = Stage::kNew;
  cancelled_ = request_comes_back_ = false;
  was_sent_ = call.was_sent_;
  resends_ = call.resends_;
  begun_ns_ = call.begun_ns_;
  deadline_ns_ = call.deadline_ns_;
  handover_.store(Handover::State::kNeither, std::memory_order_relaxed);
  cancel_posted_.store(false, std::memory_order_relaxed);
  refs_.store(2, std::memory_order_relaxed);  // The call's, and that of what carries.
}

// The call may have ended since this was posted. Its cancel of this may have run before: a thread that holds
// both pollers, as a callback of one may that cancels the call, runs it at once.
void UntypedCall::StartToCarry() {
  sender_->poller().AddAsyncInterest(1);
  if (cancel_posted_.load(std::memory_order_relaxed)) {
    return EndSoon(Error(absl::StatusCode::kCancelled, "cancelled by the caller"));
  }
  if (deadline_ns_ <= sender_->poller().now_ns())
    return EndSoon(TooLate(sender_->poller().WhyLate(deadline_ns_)));
  sender_->Start(*this);
}

void UntypedCall::EndCarrying() {
  UntypedCall& call = *carried_for_;
  sender_->poller().AddAsyncInterest(-1);
  call.sender_->poller().Run([&call, result = TakeResult()]() mutable { call.OnCarried(std::move(result)); });
  Unref();
}

void UntypedCall::GiveBack() {
  UntypedCall& call = *carried_for_;
  sender_->poller().AddAsyncInterest(-1);
  Move(CallStage::Event::kEndSoon);
  call.sender_->poller().Run(
      [&call, request = std::move(request_), was_sent = was_sent_, resends = resends_]() mutable {
        call.TakeBack(std::move(request), was_sent, resends);
      });
  Unref();
}

void UntypedCall::OnCarried(absl::StatusOr<transport::IncomingMessagePtr>&& result) {
  if (!DropCarrier()) return;
  if (!result.ok()) return End(std::move(result).status());
  End(*std::move(result));
}

void UntypedCall::TakeBack(transport::OutgoingMessagePtr request, bool was_sent, uint8_t resends) {
  if (!DropCarrier()) return;
  request_ = std::move(request);
  was_sent_ = was_sent;
  resends_ = resends;
  sender_->Start(*this);
}

bool UntypedCall::DropCarrier() {
  std::exchange(carrier_, nullptr)->Unref();
  if (stage_ == Stage::kCarried) {
    sender_->Forget(*this);
    return true;
  }
  Unref();  // EndWithoutCarrier() has added it.
  return false;
}

void UntypedCall::EndWithoutCarrier(absl::StatusCode code, absl::string_view why) {
  AddRef();
  was_sent_ = true;  // It may have been.
  EndSoon(Error(code, why));
  carrier_->Cancel();  // Its end may come in here.
}

void UntypedCall::SendAgain() {
  if (stage_ != Stage::kReturning) return;
  sender_->Forget(*this);
  sender_->Start(*this);
}

[[gnu::always_inline]] inline void UntypedCall::End(transport::IncomingMessagePtr&& reply) {
  reply_ = std::move(reply);
  HandOverNowOrSoon();
}

void UntypedCall::End(absl::Status error) {
  error_ = std::move(error);
  HandOverNowOrSoon();
}

void UntypedCall::EndSoon(absl::Status error) {
  error_ = std::move(error);
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
  HAWSER_PROBE(call_end, static_cast<transport::ResponseHandler*>(this), method_.name, error_.ok());
  if (error_.ok()) [[likely]] {
    sender_->CountEnd(method_, absl::StatusCode::kOk, begun_ns_);
  } else {
    sender_->CountEnd(method_, error_.code(), begun_ns_);
  }
}

void UntypedCall::HandOver() {
  if (stage_ == Stage::kEnded) return CallBackLate();
  Move(CallStage::Event::kHandOver);
  // Most calls are neither carried nor have extras, and this is their one test.
  if (has_extras_) [[unlikely]] {
    if (carried_for_ != nullptr) return EndCarrying();
    NoteEnd();
    EndExtras();
  } else {
    NoteEnd();
  }
  Handover::State before = handover_.load(std::memory_order_acquire);
  if (before == Handover::State::kCallback) [[likely]] {
    MoveAlone(before, Handover::Event::kResult);  // Unhook() comes here, or while no thread drives.
  } else {
    before = Move(Handover::Event::kResult);
  }
  if (before == Handover::State::kWaiter) done_.Set();
  if (before == Handover::State::kCallback) {
    InvokeCallback();
    sender_->poller().AddAsyncInterest(-1);
  }
  Unref();
}

[[gnu::always_inline]] inline void UntypedCall::InvokeCallback() {
  const transport::Poller::CallOut out(sender_->poller(), "the callback of", method_.name);
  if (has_extras_ || current_trace != nullptr) [[unlikely]] {
    InvokeTraced();
  } else {
    RunCallers();
  }
  if (callback_ != nullptr) [[unlikely]]
    callback_ = nullptr;  // It may own the PendingCall, and thereby this.
}

[[gnu::always_inline]] inline void UntypedCall::RunCallers() {
  try {
    if (CallAwaiter* const waiting = std::exchange(waiting_, nullptr); waiting != nullptr) {
      waiting->ResumeWith(*this);
    } else if (callback_) {
      callback_(TakeResult(), sender_->read_limits());
    }
  } catch (...) {
    ReportException("the callback of", method_.name);
  }
}

void UntypedCall::InvokeTraced() {
  // Also if it has none: this thread may be in a handler that waits, and drives the poller meanwhile.
  const TraceRef none;
  const TraceScope trace(intercepted_ != nullptr ? intercepted_->trace : none);
  RunCallers();
}

absl::Status UntypedCall::TooLate(absl::string_view why_late) const {
  return Error(absl::StatusCode::kDeadlineExceeded,
               absl::StrCat("the deadline had passed when it was to be sent", why_late));
}

absl::Status UntypedCall::Error(absl::StatusCode code, absl::string_view why) const {
  return CallError(code, method_.name, sender_->peer_address(), why, was_sent_);
}

}  // namespace hawser::internal
