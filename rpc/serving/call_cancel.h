#ifndef HAWSER_RPC_SERVING_CALL_CANCEL_H_
#define HAWSER_RPC_SERVING_CALL_CANCEL_H_

#include <atomic>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "hawser/rpc/serving/serving.h"
#include "hawser/rpc/trace.h"
#include "hawser/rpc/wire/cancel_scope.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {

// Whether the caller of a call has stopped waiting, and what its handler wants done then: the OnCancel()
// callback, and the end of the calls that the handler made.
//
// What is due is run once, in a turn of the thread that drives the poller, by Run(): functions that return
// true ask for that, and their caller keeps the call until then.
// Thread:   Cancel(), Run() and Reset() on the poller, the rest on any.
// Lifetime: owned by its ServerCall, which calls Reset() before it serves another request.
// Locks:    its mutex is the last one: it calls nothing while it holds it.
class CallCancel {
 public:
  CallCancel() = default;
  CallCancel(const CallCancel&) = delete;
  CallCancel& operator=(const CallCancel&) = delete;

  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  // The caller stops waiting. True: something is due.
  bool Cancel();
  // Swaps `callback` for the one before. True: the call was cancelled, and the new one is due.
  bool SwapCallback(absl::AnyInvocable<void()>& callback);
  // The scope of the calls that the handler makes, made at the first of them with `trace`.
  std::shared_ptr<CancelScope> Scope(const TraceRef& trace);
  // Runs what is due, of the method of this name: cancels the scope, and runs the callback unless Forget()
  // was called or `serving` lets no handlers run.
  void Run(const Serving& serving, transport::Poller& poller, const char* method);
  // The call has finished: the callback must not start any more.
  void Forget();
  void Reset() {
    cancelled_.store(false, std::memory_order_relaxed);
    Forget();
  }

 private:
  static void CallOut(absl::AnyInvocable<void()>& callback, const Serving& serving, transport::Poller& poller,
                      const char* method);

  std::atomic<bool> cancelled_{false};
  std::atomic<bool> is_used_{false};  // There is a callback, or a scope: calls without one need no lock.
  bool is_due_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Mutex mutex_;
  absl::AnyInvocable<void()> callback_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<CancelScope> scope_ ABSL_GUARDED_BY(mutex_);  // Null: no call was made for it.
  // Kept for Run(), which may come after Forget().
  std::shared_ptr<CancelScope> due_scope_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVING_CALL_CANCEL_H_
