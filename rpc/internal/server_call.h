#ifndef HAWSER_RPC_INTERNAL_SERVER_CALL_H_
#define HAWSER_RPC_INTERNAL_SERVER_CALL_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/rpc/internal/cancel_scope.h"
#include "hawser/rpc/internal/serving_connection.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/service.h"
#include "hawser/transport/exchange.h"
#include "hawser/transport/message.h"
#include "hawser/transport/poller.h"

namespace hawser::internal {

// Where the handler of a call is.
enum class HandlerStage : uint8_t {
  kQueued,    // At the executor.
  kRunning,   // Or it has returned, and its answer is on its way to the poller.
  kDeferred,  // It has returned, and something else has the DeferredCall.
};

// The call behind a ServerContext: one request, its handler, its answer.
// Thread:   starts and ends on the poller; between, it is the handler's.
// Lifetime: owned by its connection, which uses it again when the handler has returned and the answer was
//           given.
class ServerCall {
 public:
  explicit ServerCall(ServingConnection& connection)
      : connection_(connection),
        context_(this),
        answer_item_(this),
        recycle_item_(this),
        cancel_item_(this) {}
  ServerCall(const ServerCall&) = delete;
  ServerCall& operator=(const ServerCall&) = delete;

  // ---- For the connection, on the poller.

  // Runs the handler, here or on the executor.
  void Start(transport::ExchangeId id, const MethodTable::Entry& entry, transport::IncomingMessagePtr request,
             int64_t deadline_ns);
  // The caller does not wait any more: tells the handler.
  void Cancel();
  // The connection has answered in the handler's place. What the handler answers later is dropped.
  // `request_memory`: see Connection::DetachRequestMemory().
  void Abandon(transport::HeldByHost request_memory);
  bool abandoned() const { return abandoned_; }
  // Cancels the calls that were made for it, and calls the OnCancel() callback, if the call has not finished
  // meanwhile. In a turn of the thread that drives; after Cancel(), or RunOnCancelSoon().
  void RunOnCancel();
  transport::ExchangeId id() const { return id_; }
  const Method& method() const { return *entry_->method; }
  // From any thread.
  HandlerStage stage() const { return stage_.load(std::memory_order_relaxed); }
  // Of the poller's clock.
  int64_t started_ns() const { return started_ns_; }
  // Never null.
  transport::OutgoingMessagePtr TakeReply();
  // Back to a call without anything.
  void Reset();

  // ---- For the ServerContext and the DeferredCall: see there.

  transport::IncomingMessage& request() { return *request_; }
  transport::OutgoingMessage& reply();
  absl::Duration TimeRemaining() const;
  bool cancelled() const;
  void OnCancel(absl::AnyInvocable<void()> callback);
  bool deferred() const { return deferred_; }
  void Defer();
  std::shared_ptr<const void> KeepRequest();
  void FinishDeferred(absl::Status status);
  // Of the calls that the handler makes to answer this one.
  std::shared_ptr<CancelScope> Scope();
  ServingConnection& connection() { return connection_; }

 private:
  class Ticket;

  template <void (ServerCall::*run)()>
  struct Item final : transport::MailboxItem {
    explicit Item(ServerCall* owner) : call(owner) {}
    void Run() override { (call->*run)(); }
    ServerCall* const call;
  };

  absl::Status CallHandler();
  void HandlerReturned(absl::Status status);
  void Finish(absl::Status status);
  void FinishOnce(absl::Status status);
  void CallOnCancel(absl::AnyInvocable<void()>& callback);
  void ForgetOnCancel();
  void RunAnswer();
  void RunRecycle();
  void RunCancelSoon();
  void Unref();
  void Post(transport::MailboxItem* item);

  ServingConnection& connection_;
  ServerContext context_;
  transport::ExchangeId id_;
  const MethodTable::Entry* entry_ = nullptr;
  int64_t started_ns_ = 0;
  int64_t deadline_ns_ = 0;
  bool abandoned_ = false;  // Of the poller.
  transport::HeldByHost abandoned_memory_;
  transport::IncomingMessage* request_ = nullptr;
  transport::IncomingMessagePtr own_request_;  // Or:
  std::shared_ptr<transport::IncomingMessage> kept_request_;
  transport::OutgoingMessagePtr reply_;
  absl::Status status_;    // Of the answer that is on its way to the poller.
  bool deferred_ = false;  // Of the handler's thread.
  // The handler while it runs, its DeferredCall, the answer on its way to the poller, an OnCancel() callback
  // that is due.
  std::atomic<int> refs_{0};
  std::atomic<bool> answered_{false};
  std::atomic<bool> cancelled_{false};
  std::atomic<HandlerStage> stage_{HandlerStage::kRunning};
  std::atomic<bool> has_on_cancel_{false};  // A callback, or a scope: calls without one need no lock.
  absl::Mutex cancel_mutex_;
  absl::AnyInvocable<void()> on_cancel_ ABSL_GUARDED_BY(cancel_mutex_);
  bool on_cancel_is_due_ ABSL_GUARDED_BY(cancel_mutex_) = false;
  std::shared_ptr<CancelScope> scope_ ABSL_GUARDED_BY(cancel_mutex_);  // Null: no call was made for it.
  // For RunOnCancel(), though the handler answers before that.
  std::shared_ptr<CancelScope> due_scope_ ABSL_GUARDED_BY(cancel_mutex_);
  Item<&ServerCall::RunAnswer> answer_item_;
  Item<&ServerCall::RunRecycle> recycle_item_;
  Item<&ServerCall::RunCancelSoon> cancel_item_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_INTERNAL_SERVER_CALL_H_
