#ifndef HAWSER_RPC_CLIENT_UNTYPED_CALL_H_
#define HAWSER_RPC_CLIENT_UNTYPED_CALL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/base/state_machine.h"
#include "hawser/rpc/client/call_handle.h"
#include "hawser/rpc/client/call_state.h"
#include "hawser/rpc/metadata.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/wire/interception.h"
#include "hawser/rpc/wire/tracing.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/wire/exchange.h"
#include "hawser/transport/wire/message.h"

namespace hawser::internal {

class CallSender;
class CancelScope;
class ChannelCore;

// The call behind Call and PendingCall, without its types.
//
// It gets one result, on the poller, from whatever comes first: the response, the deadline, a cancellation,
// or the end of the connection or channel. Either the result or the caller that asks for it comes second, and
// that one hands the result over.
// Thread:   that of the caller, one at a time; Cancel() from any.
// Lifetime: counted references: the caller's CallHandles, the channel's from Send() until the result, and
//           those of what is posted to the poller.
class UntypedCall final : transport::ResponseHandler {
 public:
  using Callback = CallHandle::Callback;

  // As the functions of CallHandle with these names.
  std::shared_ptr<Alarm> NewAlarm(absl::AnyInvocable<void(bool)> callback) const;
  const Method& method() const { return method_; }
  transport::OutgoingMessage& request() { return *request_; }
  void SetSpanAttribute(absl::string_view key, const SpanValue& value);
  void Send();

  CallResult Wait();
  void Then(Callback&& callback);
  void Unhook();
  void Cancel();
  // For its scope (CancelScope::Add()).
  absl::AnyInvocable<void()> Canceller();

  // As Then(), for the coroutine of `waiting`.
  void Await(CallAwaiter& waiting);

 private:
  friend class CallAwaiter;
  friend class CallHandle;
  friend class CallPool;
  friend class CallQueue;
  friend class CallSender;
  friend class ChannelCore;

  using Stage = CallStage::State;

  // Each posts one item to the poller.
  template <void (UntypedCall::*run)()>
  struct Item final : transport::MailboxItem {
    explicit Item(UntypedCall* owner) : call(owner) {}
    void Run() override { (call->*run)(); }
    UntypedCall* const call;
  };

  // Not inlined: the pool reuses calls, so these are rare.
  [[gnu::noinline, gnu::cold]] UntypedCall();
  [[gnu::noinline, gnu::cold]] ~UntypedCall();

  // After fork(): a call that has already failed, created without use of anything of the parent.
  static CallHandle NewInChild(const std::shared_ptr<CallSender>& channel, const Method& method);
  // For a channel that does not take calls itself: see CallSender::takes_new_calls().
  [[gnu::noinline]] static CallHandle NewElsewhere(const std::shared_ptr<CallSender>& channel,
                                                   const Method& method, const CallOptions& options);
  static CallHandle NewOn(const std::shared_ptr<CallSender>& channel, const Method& method,
                          const CallOptions& options);
  void Prepare(const std::shared_ptr<CallSender>& channel, const Method& method, const CallOptions& options);

  // For what few calls have, at each step of a call's life.
  [[gnu::noinline, gnu::cold]] void PrepareExtras(const CallOptions& options);
  // False: the scope was cancelled.
  [[gnu::noinline, gnu::cold]] bool BeginExtras();
  [[gnu::noinline, gnu::cold]] void EndExtras();
  [[gnu::noinline, gnu::cold]] void DropExtras();

  void AddRef() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (refs_.load(std::memory_order_acquire) == 1 || refs_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      Free();
  }
  void Free();

  // From any thread. Returns the state before.
  Handover::State Move(Handover::Event event);
  // The same from `before`, where no other thread moves the state: without a locked instruction.
  void MoveAlone(Handover::State before, Handover::Event event) {
    handover_.store(Moved<Handover>(before, event, [this] { return WhoseHandover(); }),
                    std::memory_order_release);
  }
  std::string WhoseHandover() const;

  // ---- On the poller.
  void Move(CallStage::Event event) {
    stage_ = Moved<CallStage>(stage_, event, [this] { return WhoseStage(); });
  }
  std::string WhoseStage() const;
  void RunPosted();
  void Begin();
  // Why Begin() does not send it, if there is a reason.
  bool MayBeSent() const;
  [[gnu::noinline, gnu::cold]] absl::Status WhyNotSent() const;
  void RunCancel();
  // Runs the callback of kResultCallback, in a turn.
  void CallBackLate();

  // transport::ResponseHandler
  void OnResponse(absl::StatusOr<transport::IncomingMessagePtr>&& response) override;
  // One that is not OK, or has metadata.
  [[gnu::noinline]] void OnOtherResponse(transport::Connection& connection,
                                         transport::IncomingMessagePtr response);
  absl::string_view name() const override { return method_.name; }
  void OnRequestReturned(transport::OutgoingMessagePtr request) override;
  bool WantsRequestBack() override;
  bool WantsRequestBackAfter(const transport::IncomingMessage& error) override;

  // A carrier: sends the request of `call` over another connection of the channel (ConnectionGroup). It takes
  // over the request, and what is needed to send it again, and passes on the result. `call` is in kCarried
  // meanwhile. On the poller of `call`.
  void PrepareToCarry(UntypedCall& call, CallSender& sender);
  // On its own poller. It ends at once if the call has ended.
  void StartToCarry();
  // Its connection is not ready: the call has its request back, and starts again.
  void GiveBack();
  [[gnu::noinline, gnu::cold]] void EndCarrying();
  // Of a call that is carried, on its poller: the result, or its request.
  void OnCarried(absl::StatusOr<transport::IncomingMessagePtr>&& result);
  void TakeBack(transport::OutgoingMessagePtr request, bool was_sent, uint8_t resends);
  // False: the call has ended meanwhile.
  bool DropCarrier();
  // It was in the channel's queue of calls that are carried. What comes of its carrier is dropped.
  void EndWithoutCarrier(absl::StatusCode code, absl::string_view why);

  // The fabric has returned its request.
  void SendAgain();
  void OnCallNotRun(transport::Connection& connection, absl::Status why);
  void OnFailure(const absl::Status& why);
  // It has its result: hands it over now or, where no callback may run, in the next turn.
  void End(transport::IncomingMessagePtr&& reply);
  void End(absl::Status error);
  void EndSoon(absl::Status error);
  void HandOverNowOrSoon();
  void HandOverSoon();
  void HandOver();
  absl::StatusOr<transport::IncomingMessagePtr> TakeResult();
  // For those who count calls, and those who trace them.
  void NoteEnd();
  // Waits for done_. Not OK: its poller is held beyond the deadline, and the caller has stopped waiting.
  absl::Status AwaitResult();
  // OK: the result is there. Not OK: what AwaitResult() returns. Empty: its poller is not held.
  std::optional<absl::Status> GiveUpIfHeld();
  absl::Status Error(absl::StatusCode code, absl::string_view why) const;
  // For a call whose deadline passed before it was sent. `why_late`: see Poller::WhyLate().
  [[gnu::noinline, gnu::cold]] absl::Status TooLate(absl::string_view why_late) const;
  // This process is a fork()ed child of the one that created the channel: it must not touch the call, and
  // leaks it.
  bool in_child() const;
  absl::Status ErrorInChild() const;
  // Registers the callback, or the coroutine, that was set.
  void Hook();
  // In a child after fork(): there is no poller to wait for.
  [[gnu::noinline, gnu::cold]] void InvokeCallbackInChild();
  void InvokeCallback();
  // Calls the callback, or resumes the coroutine.
  void RunCallers();
  // With the trace of the call, or without any.
  [[gnu::noinline, gnu::cold]] void InvokeTraced();

  // ---- Used by the caller.
  CallSender* sender_ = nullptr;                // Outlives the calls in use.
  std::shared_ptr<CallSender> parents_sender_;  // Only in a call that was created in a child after fork().
  Method method_ = {};
  transport::OutgoingMessagePtr request_;
  absl::Time deadline_;
  int64_t timeout_ns_ = 0;
  bool wait_for_ready_ = false;
  bool has_extras_ = false;             // One of these two, or `carried_for_`, behind one test.
  std::shared_ptr<CancelScope> scope_;  // Of CallOptions::For(), or null.
  struct Intercepted {
    Metadata metadata;  // Of the request; copied into it when the call begins.
    Interception interception;
    absl::Status refused;  // Not OK: the status of the interceptor that refused the call.
    bool is_traced = false;
    TraceRef trace;                              // That the call, and its callback, carry on.
    std::shared_ptr<SpanAttributes> attributes;  // Null: none was set.
  };
  std::unique_ptr<Intercepted> intercepted_;  // Null: the channel has no interceptors, and the call no trace.

  // ---- Used by the poller, from Send() on.
  Stage stage_ = Stage::kNew;
  bool cancelled_ = false;
  bool was_sent_ = false;
  uint8_t resends_ = 0;
  bool request_comes_back_ = false;
  uint16_t metadata_segment_ = 0;  // Of the request; 0: none. Used by the caller.
  int64_t begun_ns_ = 0;           // When Begin() ran.
  int64_t deadline_ns_ = 0;
  transport::Connection* connection_ = nullptr;  // kSent
  UntypedCall* carrier_ = nullptr;               // kCarried: a reference to the call that carries it.
  UntypedCall* carried_for_ = nullptr;           // Of a carrier: the call.
  transport::ExchangeId exchange_;
  UntypedCall* next_ = nullptr;  // In a CallQueue, the CallPool or the channel's list of ended calls.
  UntypedCall* previous_ = nullptr;
  size_t heap_position_ = 0;  // In a CallQueue, if it has a deadline.

  // ---- Used by both.
  std::atomic<uint32_t> refs_{0};
  std::atomic<Handover::State> handover_{Handover::State::kNeither};
  std::atomic<bool> cancel_posted_{false};
  // For AwaitResult(): deadline_ns_, or kNotYet until Begin() has run.
  std::atomic<int64_t> waiters_deadline_ns_{0};
  // The result: an error, or if that is OK the reply. Both are moved out when the caller gets it.
  absl::Status error_;
  transport::IncomingMessagePtr reply_;
  CallAwaiter* waiting_ = nullptr;  // Instead of:
  Callback callback_;
  transport::WaitEvent done_;
  // The begin; later, the callback of a result that was there first.
  Item<&UntypedCall::RunPosted> item_{this};
  Item<&UntypedCall::RunCancel> cancel_item_{this};
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_UNTYPED_CALL_H_
