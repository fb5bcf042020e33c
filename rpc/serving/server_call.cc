#include "hawser/rpc/serving/server_call.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/probe.h"
#include "hawser/rpc/wire/called_codes.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/rpc/wire/message_metadata.h"
#include "hawser/transport/log/peer_log.h"

namespace hawser::internal {

// What an executor gets: runs the handler when called. If the executor destroys it without a call, the call
// is answered with an error.
class QueuedHandler {
 public:
  explicit QueuedHandler(ServerCall* call) : call_(call) {}
  QueuedHandler(QueuedHandler&& other) noexcept : call_(std::exchange(other.call_, nullptr)) {}
  ~QueuedHandler() {
    if (call_ == nullptr) return;
    const absl::Status status = absl::UnavailableError(
        absl::StrCat("the server's executor did not run the handler of ", call_->method().name));
    transport::PeerLog::Process().Line(
        LogSeverity::kWarning, call_->method().name,
        absl::StrCat(absl::string_view(status.message()), " for ", call_->Name()));
    call_->Finish(call_->Refused(status));
  }
  void operator()() {
    ServerCall* const call = std::exchange(call_, nullptr);
    HAWSER_CHECK(call != nullptr, "an executor ran a handler a second time, or one that was moved from");
    absl::Status status;
    {
      // The server's shutdown waits for this scope, not for what follows.
      const HandlerGate::Entry inside(call->connection_.serving().handlers);
      if (!inside) {
        status = call->Refused(absl::UnavailableError("the server has ended"));
      } else if (call->cancel_.cancelled()) {
        status = call->Refused(
            absl::CancelledError("the caller stopped waiting before the executor ran the handler"));
      } else {
        call->began_ns_.store(call->connection_.poller().environment().NowNs(), std::memory_order_relaxed);
        call->stage_.store(HandlerStage::kRunning, std::memory_order_relaxed);
        const char* const method = call->method().name;
        HAWSER_PROBE(handler_start, call->connection_.number(), call->id_.slot, call->id_.generation, method);
        status = call->CallHandler();
        HAWSER_PROBE(handler_return, call->connection_.number(), call->id_.slot, call->id_.generation,
                     method);
      }
    }
    call->HandlerReturned(std::move(status));
  }

 private:
  ServerCall* call_;
};

void ServerCall::Start() {
  if (RunsOnExecutor()) return StartOnExecutor();
  const bool offered = connection_.serving().gate != nullptr;
  HandlerReturnedHere(Enclosed(offered ? kOfferedHandler : kHandler, [this] { return CallHandler(); }));
}

void ServerCall::HandlerReturnedHere(absl::Status status) {
  if (deferred_) return HandlerHasDeferred(std::move(status));
  FinishHere(status);
}

void ServerCall::StartOnExecutor() {
  NoteMore();
  const char* const method = entry_->method->name;
  const transport::Poller::CallOut out(connection_.poller(), kExecutor, method, CallIdOf());
  stage_.store(HandlerStage::kQueued, std::memory_order_relaxed);
  CallUser("the executor, given", method, [&] { connection_.serving().executor(QueuedHandler(this)); });
}

std::string ServerCall::Id() const { return transport::ToString(CallIdOf()); }

std::string ServerCall::Name() const {
  return absl::StrCat("call ", Id(), " of ", connection_.peer_address());
}

const char* NameOf(HandlerStage stage) {
  switch (stage) {
    case HandlerStage::kQueued:
      return "waits for the executor";
    case HandlerStage::kRunning:
      return "running";
    case HandlerStage::kDeferred:
      return "deferred";
  }
  return "";
}

ServerCall::Times ServerCall::TimesOf(int64_t all_ns, int64_t poller_free_ns) const {
  const int64_t end_ns = started_ns_ + all_ns;
  int64_t began_ns = std::max(started_ns_, poller_free_ns);
  if (deferred_ || RunsOnExecutor()) {
    began_ns = began_ns_.load(std::memory_order_relaxed);
    if (began_ns < started_ns_) began_ns = end_ns;  // It has not begun.
  }
  began_ns = std::min(began_ns, end_ns);
  int64_t returned_ns = returned_ns_.load(std::memory_order_relaxed);
  returned_ns = returned_ns < began_ns ? end_ns : std::min(returned_ns, end_ns);  // It has not deferred.
  return {began_ns - started_ns_, returned_ns - began_ns, end_ns - returned_ns};
}

void ServerCall::ResetMore() {
  if (abandoned_) abandoned_memory_ = {};
  reply_metadata_.reset();
  trace_.reset();
  steps_of_keeping_ = 0;
  if (!status_.ok()) status_ = absl::OkStatus();
  deferred_ = abandoned_ = errs_after_defer_ = was_refused_ = is_traced_ = has_more_ = false;
  began_ns_.store(0, std::memory_order_relaxed);
  returned_ns_.store(0, std::memory_order_relaxed);
  answered_.store(false, std::memory_order_relaxed);
  half_over_.store(false, std::memory_order_relaxed);
  stage_.store(HandlerStage::kRunning, std::memory_order_relaxed);
  refs_.store(1, std::memory_order_relaxed);
  cancel_.Reset();
}

// ---- The handler and its end.

absl::Status ServerCall::CallHandler() {
  if (!connection_.serving().plain || is_traced_ || AnyCallMayHaveTrace()) return CallEnclosedHandler();
  return RunHandler();
}

absl::Status ServerCall::CallEnclosedHandler() {
  NoteMore();
  const Serving& serving = connection_.serving();
  CallbackGate* const gate = serving.gate.get();
  const auto closed = [this] { return Refused(absl::UnavailableError("the client ends its channel")); };
  if (gate != nullptr && !gate->Enter()) return closed();
  if (is_traced_ || AnyCallMayHaveTrace()) {
    const int64_t age_ns = connection_.poller().environment().NowNs() - started_ns_;
    interception_.Adopt(BeginServerSpan(method(), connection_.peer_address(),
                                        MetadataOfRequest(*context_.request_), absl::Nanoseconds(age_ns),
                                        trace_));
  }
  const TraceScope trace(trace_);
  absl::Status status;
  if (!serving.interceptors.empty()) {
    status =
        interception_.Begin(serving.interceptors, {Interceptor::Side::kServer, method(),
                                                   connection_.peer_address(), connection_.peer_identity(),
                                                   MetadataOfRequest(*context_.request_), reply_metadata()});
    // An interceptor may have destroyed the channel, and with it the service.
    if (status.ok() && gate != nullptr && gate->closed()) status = closed();
  }
  if (status.ok() && serving.authorize) status = Authorize();
  // One that an interceptor, or authorize, refuses is as good as not sent: whatever its method does, it has
  // not done.
  status = status.ok() ? RunHandler() : Refused(std::move(status));
  if (!deferred_ && interception_.begun()) EndInterception(status);
  if (gate != nullptr) gate->Leave();
  return status;
}

absl::Status ServerCall::Authorize() const {
  try {
    return connection_.serving().authorize(context_);
  } catch (...) {
    // The exception's text may name internals that an unauthorized caller must not read.
    const absl::Status thrown = StatusOfException("ServerOptions::authorize");
    transport::PeerLog::Process().Line(
        LogSeverity::kError, method().name,
        absl::StrCat(absl::string_view(thrown.message()), "; asked about ", method().name, ", ", Name()));
    return absl::InternalError(absl::StrCat(method().name, " was not run: ServerOptions::authorize threw"));
  }
}

void ServerCall::EndInterception(const absl::Status& status) {
  if (!connection_.poller().usable_in_this_process()) return;
  cancel_.Forget();  // Its callback must not start after OnEnd().
  // The destructor of a server waits for this. If it has given up the call, OnEnd() runs all the same.
  const HandlerGate::Entry inside(connection_.serving().handlers);
  interception_.End(connection_.poller(), method().name, status);
}

void ServerCall::HandlerReturned(absl::Status status) {
  if (!deferred_) return Finish(std::move(status));
  HandlerHasDeferred(std::move(status));
}

void ServerCall::HandlerHasDeferred(absl::Status status) {
  const int64_t now_ns = connection_.poller().environment().NowNs();
  if (!RunsOnExecutor()) connection_.counters().handler_end_ns = now_ns;
  returned_ns_.store(now_ns, std::memory_order_relaxed);
  stage_.store(HandlerStage::kDeferred, std::memory_order_relaxed);
  if (!status.ok()) FinishOnce(std::move(status), /*by_handler=*/true);
  if (half_over_.exchange(true, std::memory_order_acq_rel)) FinishDropped();
  Unref();
}

void ServerCall::Finish(absl::Status status) {
  if (connection_.poller().Held()) return FinishHere(status);
  cancel_.Forget();
  status_ = std::move(status);
  Post(&answer_item_);
}

void ServerCall::FinishHere(const absl::Status& status) {
  connection_.Answer(*this, status);
  if (refs_.load(std::memory_order_acquire) == 1) return connection_.Recycle(*this);
  cancel_.Forget();  // The OnCancel() callback is due, and must not start any more.
  Unref();
}

// `keep`: the item may release the last other owner of the runtime before Post() has returned.
void ServerCall::Post(transport::MailboxItem* item) {
  const std::shared_ptr<transport::Runtime> keep = connection_.runtime();
  connection_.poller().Post(item);
}

void ServerCall::Defer() {
  NoteMore();
  deferred_ = true;
  if (!RunsOnExecutor()) {
    began_ns_.store(std::max(started_ns_, connection_.counters().handler_end_ns), std::memory_order_relaxed);
  }
  refs_.fetch_add(1, std::memory_order_relaxed);
}

void ServerCall::FinishDeferred(absl::Status status) {
  FinishOnce(std::move(status), /*by_handler=*/false);
  Unref();
}

void ServerCall::DropDeferred() {
  if (half_over_.exchange(true, std::memory_order_acq_rel)) FinishDropped();
  Unref();
}

void ServerCall::FinishDropped() {
  if (answered_.load(std::memory_order_acquire)) return;
  const absl::Status status = absl::InternalError(
      absl::StrCat("the handler of ", method().name, " destroyed its DeferredCall without Finish()"));
  if (!cancelled()) {
    transport::PeerLog::Process().Line(LogSeverity::kError, method().name,
                                       absl::StrCat(absl::string_view(status.message()), "; ", Name()));
  }
  FinishOnce(status, /*by_handler=*/false);
}

// A handler that defers and also returns an error answers twice; the first answer counts.
void ServerCall::FinishOnce(absl::Status status, bool by_handler) {
  if (answered_.exchange(true, std::memory_order_acq_rel)) return;
  errs_after_defer_ = by_handler;
  if (interception_.begun()) [[unlikely]]
    EndInterception(status);
  cancel_.Forget();
  status_ = std::move(status);
  refs_.fetch_add(1, std::memory_order_relaxed);
  Post(&answer_item_);
}

void ServerCall::RunAnswer() {
  connection_.Answer(*this, status_);
  Unref();
}

void ServerCall::Unref() {
  if (refs_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (connection_.poller().Held()) return connection_.Recycle(*this);
  Post(&recycle_item_);
}

void ServerCall::RunRecycle() { connection_.Recycle(*this); }

// ---- Request and reply.

Metadata& ServerCall::reply_metadata() {
  NoteMore();
  if (reply_metadata_ == nullptr) reply_metadata_ = std::make_unique<Metadata>();
  return *reply_metadata_;
}

// ---- Deadline and cancellation.

absl::Duration ServerCall::TimeRemaining() const {
  if (cancel_.cancelled()) return absl::ZeroDuration();
  if (deadline_ns_ == transport::kNever) return absl::InfiniteDuration();
  return absl::Nanoseconds(std::max<int64_t>(0, deadline_ns_ - connection_.poller().environment().NowNs()));
}

// A poller that runs this very handler receives no cancellation meanwhile, so the clock is read, too.
bool ServerCall::cancelled() const { return TimeRemaining() == absl::ZeroDuration(); }

void ServerCall::OnCancel(absl::AnyInvocable<void()> callback) {
  NoteMore();
  if (!cancel_.SwapCallback(callback)) return;
  refs_.fetch_add(1, std::memory_order_relaxed);
  Post(&cancel_item_);
}

void ServerCall::RunCancelSoon() { connection_.RunOnCancelSoon(*this); }

std::shared_ptr<CancelScope> ServerCall::Scope() {
  NoteMore();
  return cancel_.Scope(trace_);
}

// The call is not answered yet, so its refs_ do not end meanwhile.
void ServerCall::Cancel() {
  NoteMore();
  if (!cancel_.Cancel()) return;
  refs_.fetch_add(1, std::memory_order_relaxed);
  if (connection_.poller().MayCallOut()) return RunOnCancel();
  connection_.RunOnCancelSoon(*this);
}

void ServerCall::Abandon(transport::HeldByHost request_memory) {
  NoteMore();
  abandoned_ = true;
  abandoned_memory_ = std::move(request_memory);
}

void ServerCall::RunOnCancel() {
  cancel_.Run(connection_.serving(), connection_.poller(), entry_->method->name);
  Unref();
}

}  // namespace hawser::internal
