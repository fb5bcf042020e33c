#ifndef HAWSER_RPC_CLIENT_UNTYPED_CALL_H_
#define HAWSER_RPC_CLIENT_UNTYPED_CALL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/base/state_machine.h"
#include "hawser/rpc/client/call_errors.h"
#include "hawser/rpc/client/call_extras.h"
#include "hawser/rpc/client/call_handle.h"
#include "hawser/rpc/client/call_outcome.h"
#include "hawser/rpc/client/call_state.h"
#include "hawser/rpc/client/call_timeout.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/options.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/poller/mailbox.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/wire/exchange.h"
#include "hawser/transport/wire/message.h"

namespace hawser::internal {

class CallSender;
class ChannelCore;

// The call behind Call and PendingCall, without its types.
//
// It gets one result, on the poller, from whatever comes first: the response, the deadline, a cancellation,
// or the end of the connection or channel. CallOutcome has it until the caller asks for it. This is the side
// of the poller: what is sent, sent again and ended; the caller's side is CallHandle.
// Thread:   that of the caller, one at a time; Cancel() from any.
// Lifetime: counted references: the caller's CallHandles, the channel's from Send() until the result, and
//           those of what is posted to the poller.
class UntypedCall final : transport::ResponseHandler, public CallFront {
 public:
  // As the functions of CallHandle with these names.
  const Method& method() const { return method_; }
  void Send();
  void Cancel();
  // As CallHandle::lands().
  bool lands() const { return has_extras_ && extras_.lands(); }

  // For its scope (CancelScope::Add()).
  absl::AnyInvocable<void()> Canceller();

  // As CallHandle::Then(), for the coroutine of `waiting`.
  void Await(CallAwaiter& waiting);

 private:
  friend class CallAwaiter;
  friend class CallHandle;
  friend class CallPool;
  friend class CallQueue;
  friend class CallSender;
  friend class CarriedCalls;
  friend class ChannelCore;

  using Stage = CallStage::State;

  // Not inlined: the pool reuses calls, so these are rare.
  [[gnu::noinline, gnu::cold]] UntypedCall();
  [[gnu::noinline, gnu::cold]] ~UntypedCall();

  void Prepare(CallSender& sender, const Method& method, const CallOptions& options, bool held);

  // Of what few calls have. False: the scope was cancelled.
  [[gnu::noinline, gnu::cold]] bool BeginExtras();

  void AddRef() { refs.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (CallFront::Unref()) Free();
  }
  void Free();

  // What is not usual (usual_call.cc).
  [[gnu::noinline]] void SendElsewhere();
  [[gnu::noinline]] void OnOtherResult(absl::StatusOr<transport::IncomingMessagePtr>&& response);

  // For the text of a failed CHECK.
  auto Whose() const {
    return [this] { return errors().Describe(); };
  }
  CallErrors errors() const;
  // This process is a child of the one that made it.
  [[gnu::cold]] absl::Status WhyInChild() const;

  // ---- On the poller.
  void Move(CallStage::Event event) { MoveFrom(stage_, event); }
  // The same where the stage is known, so that the table is looked up when this is compiled.
  [[gnu::always_inline]] void MoveFrom(Stage stage, CallStage::Event event) {
    stage_ = Moved<CallStage>(stage, event, Whose());
  }
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
  const transport::Landing* landing() const override { return has_extras_ ? extras_.landing() : nullptr; }

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
  // For those who count calls, and those who trace them.
  void NoteEnd();
  // This process is a fork()ed child of the one that created the channel: it must not touch the call, and
  // leaks it.
  bool in_child() const;
  // Registers the callback, or the coroutine, that was set.
  [[gnu::noinline]] void Hook();
  // In a child after fork(): there is no poller to wait for.
  [[gnu::noinline, gnu::cold]] void InvokeCallbackInChild();
  void InvokeCallback();
  // With the trace of the call, or without any.
  [[gnu::noinline, gnu::cold]] void InvokeTraced();

  // ---- Used by the caller.
  CallSender* sender_ = nullptr;                // Outlives the calls in use.
  std::shared_ptr<CallSender> parents_sender_;  // Only in a call that was created in a child after fork().
  Method method_ = {};
  CallTimeout timeout_;
  bool wait_for_ready_ = false;
  bool has_extras_ = false;  // It has `extras_` or `carried_for_`, behind one test.
  CallExtras extras_;

  // ---- Used by the poller, from Send() on.
  Stage stage_ = Stage::kNew;
  bool cancelled_ = false;
  Sent sent_ = Sent::kNo;  // kPerhaps: another connection was to carry it.
  uint8_t resends_ = 0;
  bool request_comes_back_ = false;
  bool is_usual_ = false;          // As far as it is known before Send(): see there. Used by the caller.
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
  std::atomic<bool> cancel_posted_{false};
  CallOutcome outcome_;
  // The begin; later, the callback of a result that was there first.
  transport::MemberItem<UntypedCall, &UntypedCall::RunPosted> item_{this};
  transport::MemberItem<UntypedCall, &UntypedCall::RunCancel> cancel_item_{this};
};

inline UntypedCall& CallHandle::call() const { return static_cast<UntypedCall&>(*call_); }

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_UNTYPED_CALL_H_
