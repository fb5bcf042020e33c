#ifndef HAWSER_RPC_CLIENT_CALL_OUTCOME_H_
#define HAWSER_RPC_CLIENT_CALL_OUTCOME_H_

#include <atomic>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/state_machine.h"
#include "hawser/rpc/client/call_handle.h"
#include "hawser/rpc/client/call_state.h"
#include "hawser/rpc/client/call_timeout.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/wire/message.h"

namespace hawser::internal {

// The one result of a call, and the caller that asks for it: a thread that waits, a callback or a coroutine.
// The result comes on the poller, and the caller on its own thread. The second one hands the result over:
// Handover in call_state.h says which that is.
// `whose`: returns "a call of METHOD to PEER", for the text of a failed CHECK.
// Thread:   as said below.
// Lifetime: a part of the UntypedCall, and used again with it.
class CallOutcome {
 public:
  using Callback = CallHandle::Callback;

  // ---- The result. The thread that has the call: the poller until the result is there.

  // For the next call.
  void Reset() { state_.store(Handover::State::kNeither, std::memory_order_relaxed); }
  void Drop() {
    reply_.reset();
    if (!error_.ok()) [[unlikely]]
      error_ = absl::OkStatus();
  }

  void Set(transport::IncomingMessagePtr&& reply) { reply_ = std::move(reply); }
  void Set(absl::Status error) { error_ = std::move(error); }
  // Of a call that is never sent.
  void SetAlone(absl::Status error) {
    error_ = std::move(error);
    state_.store(Handover::State::kResult, std::memory_order_relaxed);
  }
  // OK: it is a reply.
  const absl::Status& error() const { return error_; }
  absl::StatusOr<transport::IncomingMessagePtr> Take() {
    if (!error_.ok()) return std::move(error_);
    return std::move(reply_);
  }
  // In place of Take(), for a caller that moves it out: if error().ok(), and otherwise.
  transport::IncomingMessagePtr& reply() { return reply_; }
  absl::Status& error() { return error_; }

  // The result was set. True: the callback is to be run now. Otherwise a thread was woken, or the caller has
  // not asked yet.
  template <typename Whose>
  bool Arrive(Whose whose) {
    Handover::State before = state_.load(std::memory_order_acquire);
    if (before == Handover::State::kCallback) [[likely]] {
      MoveAlone(before, Handover::Event::kResult, whose);  // Unhook() comes here, or while no thread drives.
    } else {
      before = Move(Handover::Event::kResult, whose);
    }
    if (before == Handover::State::kWaiter) done_.Set();
    return before == Handover::State::kCallback;
  }

  // Whether a callback or a coroutine awaits the result, which is not there. On the poller.
  bool is_hooked() const { return state_.load(std::memory_order_acquire) == Handover::State::kCallback; }
  // The same as Set(), Arrive() and Run() for a reply, if is_hooked().
  template <typename Whose>
  [[gnu::always_inline]] void ArriveHooked(Whose whose) {
    MoveAlone(Handover::State::kCallback, Handover::Event::kResult, whose);
  }
  [[gnu::always_inline]] void RunHooked(transport::IncomingMessagePtr& reply, const Method& method,
                                        const ReadLimits& limits) {
    try {
      if (CallAwaiter* const waiting = std::exchange(waiting_, nullptr); waiting != nullptr) [[likely]] {
        return waiting->ResumeWith(reply, limits);
      }
      if (callback_) callback_(std::move(reply), limits);
    } catch (...) {
      ReportException("the callback of", method.name);
    }
    DropRunCallback();
  }

  // The callback of a result that was there first may run now. False: it was withdrawn.
  template <typename Whose>
  bool ArriveLate(Whose whose) {
    if (Move(Handover::Event::kCallBack, whose) == Handover::State::kResultCallback) return true;
    DropCallback();
    return false;
  }

  // Calls the callback, or resumes the coroutine, with the result.
  [[gnu::always_inline]] void Run(const Method& method, const ReadLimits& limits) {
    try {
      if (CallAwaiter* const waiting = std::exchange(waiting_, nullptr); waiting != nullptr) {
        waiting->ResumeWith(*this, limits);
      } else if (callback_) {
        callback_(Take(), limits);
      }
    } catch (...) {
      ReportException("the callback of", method.name);
    }
  }
  // After Run(), since the callback may own the PendingCall, and thereby this.
  void DropRunCallback() {
    if (callback_ != nullptr) [[unlikely]]
      callback_ = nullptr;
  }

  // ---- The caller.

  // Any thread: the result is there, or was handed over.
  bool is_there() const { return state_.load(std::memory_order_acquire) == Handover::State::kResult; }
  bool is_awaited_or_there() const {
    return state_.load(std::memory_order_acquire) != Handover::State::kNeither;
  }

  void set_callback(Callback&& callback) { callback_ = std::move(callback); }
  void set_waiting(CallAwaiter& waiting) { waiting_ = &waiting; }
  // The callback, or coroutine, that was set awaits the result. False: that is there, and ArriveLate() has to
  // be called in the next turn.
  template <typename Whose>
  bool Hook(Whose whose) {
    return Move(Handover::Event::kHook, whose) == Handover::State::kNeither;
  }
  // The same on the poller, where no other thread moves the state, if !is_awaited_or_there().
  template <typename Whose>
  void HookAlone(Whose whose) {
    MoveAlone(Handover::State::kNeither, Handover::Event::kHook, whose);
  }
  // Withdraws the callback. False: the result is there. If the callback was to follow, ArriveLate() drops it.
  template <typename Whose>
  bool Unhook(Whose whose) {
    if (Move(Handover::Event::kUnhook, whose) != Handover::State::kCallback) return false;
    DropCallback();
    return true;
  }

  // Waits for the result of a call of `method` to `peer_address`. Not OK: `poller` is held beyond the
  // deadline, and the caller has stopped waiting.
  absl::Status Wait(transport::Poller& poller, const CallTimeout& timeout, const char* method,
                    const std::string& peer_address);
  // Likewise, until the result is there, however long `poller` is held: until then the response may be READ
  // into the caller's memory. CHECK: this thread is on a poller, also if the result is there: whether it is
  // depends on how soon the peer answers, and a peer must not decide whether the process goes on.
  template <typename Whose>
  void WaitToTheEnd(transport::Poller& poller, Whose whose) {
    HAWSER_CHECK(
        !transport::Poller::ThisThreadHoldsOne(), whose(),
        ", which has ReceiveInto(), was waited for, or destroyed, in a handler or a callback, where it "
        "would wait for itself: take its result with Then() or co_await, and keep its memory until then");
    if (is_there()) return;
    done_.Reset();
    if (Move(Handover::Event::kWait, whose) == Handover::State::kNeither) poller.WaitFor(done_);
  }

 private:
  // From any thread. Returns the state before. Not inlined: most results are handed over by MoveAlone().
  template <typename Whose>
  [[gnu::noinline]] Handover::State Move(Handover::Event event, Whose whose) {
    Handover::State before = state_.load(std::memory_order_acquire);
    while (true) {
      const Handover::State next = Next(before, event, whose);
      if (next == before ||
          state_.compare_exchange_weak(before, next, std::memory_order_acq_rel, std::memory_order_acquire)) {
        return before;
      }
    }
  }
  // The same from `before`, where no other thread moves the state: without a locked instruction.
  template <typename Whose>
  void MoveAlone(Handover::State before, Handover::Event event, Whose whose) {
    state_.store(Next(before, event, whose), std::memory_order_release);
  }
  template <typename Whose>
  static Handover::State Next(Handover::State before, Handover::Event event, Whose whose) {
    return Moved<Handover>(before, event, [whose] { return absl::StrCat("the handover of ", whose()); });
  }
  void DropCallback() {
    waiting_ = nullptr;
    callback_ = nullptr;
  }

  std::atomic<Handover::State> state_{Handover::State::kNeither};
  // An error, or if that is OK the reply. Both are moved out when the caller gets it.
  absl::Status error_;
  transport::IncomingMessagePtr reply_;
  CallAwaiter* waiting_ = nullptr;  // Instead of:
  Callback callback_;
  transport::WaitEvent done_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CALL_OUTCOME_H_
