#ifndef HAWSER_RPC_SERVING_SERVER_CALL_H_
#define HAWSER_RPC_SERVING_SERVER_CALL_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/base/probe.h"
#include "hawser/rpc/metadata.h"
#include "hawser/rpc/method_table.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/serving/call_cancel.h"
#include "hawser/rpc/serving/serving_connection.h"
#include "hawser/rpc/wire/called_codes.h"
#include "hawser/rpc/wire/cancel_scope.h"
#include "hawser/rpc/wire/interception.h"
#include "hawser/rpc/wire/tracing.h"
#include "hawser/transport/poller/called_out.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/wire/exchange.h"
#include "hawser/transport/wire/message.h"

namespace hawser::internal {

// The stage of a call's handler.
enum class HandlerStage : uint8_t {
  kQueued,    // At the executor.
  kRunning,   // Or it has returned, and its answer is on the way to the poller.
  kDeferred,  // It has returned; its DeferredCall will answer.
};

// "running".
const char* NameOf(HandlerStage stage);

// The implementation of ServerContext: one request, its handler, its answer.
// Thread:   starts and ends on the poller; in between the handler's thread owns it.
// Lifetime: owned by its connection, which reuses it after the handler has returned and answered.
class ServerCall {
 public:
  explicit ServerCall(ServingConnection& connection)
      : connection_(connection),
        context_(this, connection.serving().read),
        answer_item_(this),
        recycle_item_(this),
        cancel_item_(this) {}
  ServerCall(const ServerCall&) = delete;
  ServerCall& operator=(const ServerCall&) = delete;

  // ---- For the connection, on the poller.

  // Takes the request.
  [[gnu::always_inline]] void Take(transport::ExchangeId id, const MethodTable::Entry& entry,
                                   MethodCounts& counts, transport::IncomingMessagePtr& request,
                                   int64_t deadline_ns) {
    id_ = id;
    entry_ = &entry;
    counts_ = &counts;
    context_.request_ = request.get();
    own_request_.swap(request);
    started_ns_ = connection_.poller().now_ns();
    deadline_ns_ = deadline_ns;
  }
  // Then runs the handler, here or on the executor.
  void Start();
  // The usual one: it runs here, with nothing around it (Serving::plain, and no trace). Then, if is_usual()
  // has become false or the status is not OK, HandlerReturnedHere() follows.
  [[gnu::always_inline]] absl::Status RunUsual();
  void HandlerReturnedHere(absl::Status status);
  // A handler that has returned has a request and a reply, and that is all.
  bool is_usual() const { return !has_more_; }
  // Before Start(): the request comes with a trace.
  void NoteTrace() {
    NoteMore();
    is_traced_ = true;
  }
  // The caller has stopped waiting: notifies the handler.
  void Cancel();
  // The connection has answered instead of the handler, whose own answer will be dropped.
  // `request_memory`: see Connection::DetachRequestMemory().
  void Abandon(transport::HeldByHost request_memory);
  bool abandoned() const { return abandoned_; }
  // Cancels the calls that the handler made on its behalf, and calls the OnCancel() callback, unless the call
  // has finished meanwhile. Called in a turn of the thread that drives, after Cancel() or RunOnCancelSoon().
  void RunOnCancel();
  transport::ExchangeId id() const { return id_; }
  const Method& method() const { return *entry_->method; }
  transport::CallId CallIdOf() const { return {connection_.number(), id_.slot, id_.generation}; }
  // "12:3.17", see ServerContext::call_id().
  std::string Id() const;
  // "call 12:3.17 of tcp://10.0.0.7:51234", for the log.
  std::string Name() const;
  // From any thread.
  HandlerStage stage() const { return stage_.load(std::memory_order_relaxed); }
  // By the poller's clock.
  int64_t started_ns() const { return started_ns_; }
  int64_t deadline_ns() const { return deadline_ns_; }  // kNever: none.
  MethodCounts* counts() const { return counts_; }
  uint64_t request_bytes() const { return context_.request_->body_bytes(); }
  // Where the time of a call that has taken `all_ns` went. Without an executor it has waited for the handlers
  // that the poller ran before it in the same turn, until `poller_free_ns`: ServingCounters::handler_end_ns
  // before its own end.
  struct Times {
    int64_t queued_ns, handler_ns, deferred_ns;
  };
  Times TimesOf(int64_t all_ns, int64_t poller_free_ns) const;
  // Not if there is no memory: then it is made when it is wanted.
  void MakeReply() {
    context_.reply_ = connection_.poller().NewOutgoing();
    if (!context_.reply_->status().ok()) [[unlikely]]
      context_.reply_.reset();
  }
  // Not null: made, if the handler has not looked at it. Sending it empties this.
  transport::OutgoingMessagePtr& MadeReply() {
    context_.reply_message();
    return context_.reply_;
  }
  // Its memory is free for the error that takes its place.
  void DropReply() { context_.reply_.reset(); }
  // By a handler that has deferred. From any thread.
  bool answered() const { return answered_.load(std::memory_order_acquire); }
  // Its handler was not called, and will not be: the answer, an error, says why.
  bool was_refused() const { return was_refused_; }
  // nullptr: the answer has none.
  const Metadata* metadata_to_send() const { return errs_after_defer_ ? nullptr : reply_metadata_.get(); }
  // From Reset() to Take().
  bool is_free() const { return context_.request_ == nullptr; }
  // Returns it to its initial state.
  [[gnu::always_inline]] void Reset() {
    context_.request_ = nullptr;
    own_request_.reset();
    context_.reply_.reset();
    if (has_more_) [[unlikely]]
      ResetMore();
  }

  // ---- For ServerContext and DeferredCall, which document these.

  Metadata& reply_metadata();
  void SetSpanAttribute(absl::string_view key, const SpanValue& value) {
    if (trace_ != nullptr && trace_->attributes != nullptr) trace_->attributes->Set(key, value);
  }
  absl::Duration TimeRemaining() const;
  bool cancelled() const;
  void OnCancel(absl::AnyInvocable<void()> callback);
  bool deferred() const { return deferred_; }
  void Defer();
  // How many steps Keep() has taken through the request.
  uint64_t& steps_of_keeping() {
    NoteMore();
    return steps_of_keeping_;
  }
  void FinishDeferred(absl::Status status);
  // Its DeferredCall is destroyed without Finish(). If the handler has not returned, its error is the answer.
  void DropDeferred();
  // The scope of the calls that the handler makes to answer this one.
  std::shared_ptr<CancelScope> Scope();
  ServingConnection& connection() { return connection_; }

  ServerCall* next_free = nullptr;  // The connection's.

 private:
  friend class QueuedHandler;

  bool RunsOnExecutor() const {
    const Serving& serving = connection_.serving();
    return serving.executor && !(entry_->on_poller && serving.plain);
  }
  // Most calls have a request, a reply, and a handler that runs on the poller and answers. One that has more
  // notes that, so that the others do without resetting the rest. (Not written again: a DeferredCall's thread
  // may be reading it.)
  void NoteMore() {
    if (!has_more_) has_more_ = true;
  }
  [[gnu::noinline, gnu::cold]] void ResetMore();
  [[gnu::noinline]] void StartOnExecutor();
  // Runs `handler`, with notes for those who ask what holds the poller.
  template <typename Handler>
  [[gnu::always_inline]] absl::Status Enclosed(const transport::CalledCode& kind, Handler&& handler);
  absl::Status CallHandler();
  // `why`, which is the answer of a handler that is not called.
  absl::Status Refused(absl::Status why) {
    was_refused_ = true;
    return why;
  }
  [[gnu::noinline, gnu::cold]] absl::Status CallEnclosedHandler();
  // Asks Serving::authorize, which there is.
  absl::Status Authorize() const;
  absl::Status RunHandler();
  [[gnu::noinline, gnu::cold]] void EndInterception(const absl::Status& status);
  void HandlerReturned(absl::Status status);
  void HandlerHasDeferred(absl::Status status);
  void Finish(absl::Status status);
  // On the poller.
  void FinishHere(const absl::Status& status);
  void FinishOnce(absl::Status status, bool by_handler);
  // The handler has returned, and its DeferredCall is destroyed. Answers, if neither has.
  void FinishDropped();
  void RunAnswer();
  void RunRecycle();
  void RunCancelSoon();
  void Unref();
  void Post(transport::MailboxItem* item);

  ServingConnection& connection_;
  ServerContext context_;
  transport::ExchangeId id_;
  const MethodTable::Entry* entry_ = nullptr;
  MethodCounts* counts_ = nullptr;  // Those of its method.
  int64_t started_ns_ = 0;
  int64_t deadline_ns_ = 0;
  // When the handler began, if it deferred or is on an executor, and when it returned, if it deferred. Else
  // 0.
  std::atomic<int64_t> began_ns_{0}, returned_ns_{0};
  bool abandoned_ = false;  // Used on the poller.
  uint64_t steps_of_keeping_ = 0;
  transport::HeldByHost abandoned_memory_;
  transport::IncomingMessagePtr own_request_;
  std::unique_ptr<Metadata> reply_metadata_;
  Interception interception_;
  TraceRef trace_;          // That of the handler's calls.
  bool is_traced_ = false;  // The request came with a trace.
  // Here, as small as they are, so that there is no hole before cancel_, which is aligned to 16 bytes.
  std::atomic<bool> answered_{false};
  // The handler has returned after Defer(), or its DeferredCall was destroyed without Finish().
  std::atomic<bool> half_over_{false};
  std::atomic<HandlerStage> stage_{HandlerStage::kRunning};
  absl::Status status_;    // The answer's, on the way to the poller.
  bool deferred_ = false;  // Used on the handler's thread.
  bool has_more_ = false;  // See NoteMore().
  // The answer is an error that the handler returned after Defer(): the metadata belongs to the
  // DeferredCall's thread.
  bool errs_after_defer_ = false;
  bool was_refused_ = false;
  // References: the handler while it runs (or, of a call that is free, the next one), its DeferredCall, the
  // answer on the way to the poller, and an OnCancel() callback that is due. Another than the first is
  // NoteMore().
  std::atomic<int> refs_{1};
  CallCancel cancel_;
  transport::MemberItem<ServerCall, &ServerCall::RunAnswer> answer_item_;
  transport::MemberItem<ServerCall, &ServerCall::RunRecycle> recycle_item_;
  transport::MemberItem<ServerCall, &ServerCall::RunCancelSoon> cancel_item_;
};

template <typename Handler>
inline absl::Status ServerCall::Enclosed(const transport::CalledCode& kind, Handler&& handler) {
  const char* const method = entry_->method->name;
  const transport::Poller::CallOut out(connection_.poller(), kind, method, CallIdOf());
  HAWSER_PROBE(handler_start, connection_.number(), id_.slot, id_.generation, method);
  absl::Status status = handler();
  HAWSER_PROBE(handler_return, connection_.number(), id_.slot, id_.generation, method);
  return status;
}

inline absl::Status ServerCall::RunHandler() {
  try {
    return entry_->handler(entry_->self, context_);
  } catch (...) {  // Generated code catches; a MethodTable of the application may throw.
    return StatusOfHandlersException(context_);
  }
}

inline absl::Status ServerCall::RunUsual() {
  return Enclosed(kHandler, [this] { return RunHandler(); });
}

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVING_SERVER_CALL_H_
