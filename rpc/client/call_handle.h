#ifndef HAWSER_RPC_CLIENT_CALL_HANDLE_H_
#define HAWSER_RPC_CLIENT_CALL_HANDLE_H_

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/status.h"
#include "hawser/rpc/trace.h"
#include "hawser/transport/wire/message.h"

namespace hawser {
class Channel;
}

namespace hawser::internal {

class Alarm;
class CallOutcome;
class CallSender;
class UntypedCall;

struct CallResult {
  absl::StatusOr<transport::IncomingMessagePtr> message;
  ReadLimits limits;
};

// What a CallHandle uses of a call without a call into the library.
struct CallFront {
  std::atomic<uint32_t> refs{0};
  transport::OutgoingMessagePtr request;  // Until the call is sent, and when it comes back.

  // True: that was the last reference. If there is only one, nothing can make others, so that one is released
  // without a locked instruction.
  bool Unref() {
    return refs.load(std::memory_order_acquire) == 1 || refs.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
};

// A counted reference to the call behind a Call or PendingCall (untyped_call.h). Move-only; empty once moved
// from, and then only the destructor, assignment and operator bool may be used.
// Thread:   that of the caller, one at a time; Cancel() from any.
class CallHandle {
 public:
  // Move-only function; stored inline if it fits two pointers.
  using Callback = absl::AnyInvocable<void(absl::StatusOr<transport::IncomingMessagePtr>&& result,
                                           const ReadLimits& limits)>;

  // Thread: any. In a child after fork(): returns a call that has already failed.
  static CallHandle New(const std::shared_ptr<CallSender>& channel, const Method& method,
                        const CallOptions& options);
  // For a channel that is null: a call that ends with FailedPrecondition. See wire/no_channel.h.
  [[gnu::cold]] static CallHandle NewWithoutChannel(const std::shared_ptr<Channel>& null,
                                                    const Method& method, const CallOptions& options);

  CallHandle(CallHandle&& other) noexcept : call_(std::exchange(other.call_, nullptr)) {}
  CallHandle& operator=(CallHandle&& other) noexcept {
    std::swap(call_, other.call_);
    return *this;
  }
  ~CallHandle() {
    if (call_ != nullptr) Release();
  }
  // Adds a reference to a call that has one.
  static CallHandle To(CallFront& call) {
    call.refs.fetch_add(1, std::memory_order_relaxed);
    return CallHandle(&call);
  }
  CallHandle Share() const { return To(*call_); }

  explicit operator bool() const { return call_ != nullptr; }

  const Method& method() const;
  // Until Send().
  transport::OutgoingMessage& request() { return *call_->request; }
  void SetSpanAttribute(absl::string_view key, const SpanValue& value);
  void ReceiveInto(absl::Span<uint8_t> buffer);
  void Send();

  // A result may land in memory of the caller's, which belongs to the call until the result is there.
  bool lands() const;

  // Call one of Wait() and Then(), once, after Send(). Wait(): CHECK on a poller, if lands().
  CallResult Wait();
  // `callback` runs in a turn of the thread that drives (Poller::MayCallOut()), never inside this call.
  void Then(Callback&& callback);

  // After Then(): the callback does not run after this returns, if it has not started. Call it on the poller,
  // or make sure that no thread drives meanwhile.
  void Unhook();

  void Cancel();
  // Nothing asks for the result: cancels. If lands(), waits for the result. CHECK: on a poller, if lands().
  void Drop();

  // An alarm on the poller of the channel, not started. `callback`: see Alarm. nullptr: in a child after
  // fork().
  std::shared_ptr<Alarm> NewAlarm(absl::AnyInvocable<void(bool)> callback) const;

 private:
  friend class CallAwaiter;
  // On the caller's thread, after Send(), before a cancel.
  [[gnu::cold]] Sent SentAsFarAsKnownHere() const;
  explicit CallHandle(CallFront* call) : call_(call) {}  // Takes over one reference.
  static CallHandle NewOn(const std::shared_ptr<CallSender>& channel, const Method& method,
                          const CallOptions& options);
  // For a channel that does not take calls itself: see CallSender::takes_new_calls().
  [[gnu::noinline]] static CallHandle NewElsewhere(const std::shared_ptr<CallSender>& channel,
                                                   const Method& method, const CallOptions& options);
  // After fork(): a call that has already failed, created without use of anything of the parent.
  static CallHandle NewInChild(const std::shared_ptr<CallSender>& channel, const Method& method);
  void Release() {
    if (call_->Unref()) Free();
  }
  void Free();
  UntypedCall& call() const;

  CallFront* call_;
};

// What a coroutine suspends on that waits for a call: in place of Then(), and without its callback object.
// The poller moves the result in here before it resumes the coroutine, and the call is not used from then on:
// resume() may return before await_resume() runs, perhaps on another thread, if the coroutine's promise has
// wrapped this in an awaiter that resumes on an executor.
// Lifetime: part of the coroutine. Destroyed before it has the result it withdraws the coroutine, as Unhook()
//           does a callback, and cancels the call.
class CallAwaiter {
 public:
  explicit CallAwaiter(CallHandle call) : call_(std::move(call)) {}
  CallAwaiter(const CallAwaiter&) = delete;
  CallAwaiter& operator=(const CallAwaiter&) = delete;
  ~CallAwaiter() {
    if (call_) [[unlikely]]
      Abandon();
  }

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiting);

 protected:
  // For await_resume(). The reply; null: there is none, and TakeError() says why.
  transport::IncomingMessagePtr TakeReply() { return std::move(reply_); }
  absl::Status TakeError() { return std::move(error_); }
  const ReadLimits& limits() const { return limits_; }

 private:
  friend class CallOutcome;
  // Takes a reply or, in the first case, whatever the outcome is, releases the reference to the call, and
  // resumes. The coroutine may destroy this.
  void ResumeWith(CallOutcome& outcome, const ReadLimits& limits);
  void ResumeWith(transport::IncomingMessagePtr& reply, const ReadLimits& limits);
  [[gnu::noinline, gnu::cold]] void Abandon();

  CallHandle call_;  // Empty once it has the result.
  std::coroutine_handle<> waiting_;
  transport::IncomingMessagePtr reply_;
  absl::Status error_;
  ReadLimits limits_;
};

// The program broke a rule of call.h: a CHECK that says `how` and, unless that is null, the method.
[[noreturn, gnu::cold]] void Misused(const char* how, const char* method);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CALL_HANDLE_H_
