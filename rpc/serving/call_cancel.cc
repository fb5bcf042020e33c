#include "hawser/rpc/serving/call_cancel.h"

#include <utility>

#include "hawser/rpc/wire/called_codes.h"
#include "hawser/rpc/wire/exceptions.h"

namespace hawser::internal {

bool CallCancel::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_.store(true, std::memory_order_release);
  if (callback_ == nullptr && scope_ == nullptr) return false;
  due_scope_ = scope_;
  is_due_ = true;
  return true;
}

bool CallCancel::SwapCallback(absl::AnyInvocable<void()>& callback) {
  absl::MutexLock lock(&mutex_);
  callback_.swap(callback);
  is_used_.store(true, std::memory_order_relaxed);
  return cancelled_.load(std::memory_order_relaxed) && !std::exchange(is_due_, true);
}

std::shared_ptr<CancelScope> CallCancel::Scope(const TraceRef& trace) {
  std::shared_ptr<CancelScope> scope;
  {
    absl::MutexLock lock(&mutex_);
    if (scope_ == nullptr) scope_ = std::make_shared<CancelScope>(trace);
    scope = scope_;
    is_used_.store(true, std::memory_order_relaxed);
    if (!cancelled_.load(std::memory_order_relaxed)) return scope;
  }
  scope->Cancel();
  return scope;
}

void CallCancel::Run(const Serving& serving, transport::Poller& poller, const char* method) {
  std::shared_ptr<CancelScope> scope;
  {
    absl::MutexLock lock(&mutex_);
    scope = std::move(due_scope_);
  }
  // First: a cancelled call's callback may finish this call, or set another OnCancel() callback.
  if (scope != nullptr) scope->Cancel();
  absl::AnyInvocable<void()> callback;
  {
    absl::MutexLock lock(&mutex_);
    is_due_ = false;
    callback = std::exchange(callback_, nullptr);
  }
  if (callback) CallOut(callback, serving, poller, method);
  const transport::Poller::NoCallOut wait(poller);
  callback = nullptr;  // It may own the DeferredCall.
}

// The callback may use the service, which may be destroyed once its server, or its channel, has ended.
void CallCancel::CallOut(absl::AnyInvocable<void()>& callback, const Serving& serving,
                         transport::Poller& poller, const char* method) {
  const HandlerGate::Entry inside(serving.handlers);
  CallbackGate* const gate = serving.gate.get();
  if (!inside || (gate != nullptr && !gate->Enter())) return;
  const transport::Poller::CallOut out(poller, kOnCancel, method);
  CallUser(kOnCancel.name, method, [&] { callback(); });
  if (gate != nullptr) gate->Leave();
}

void CallCancel::Forget() {
  if (!is_used_.load(std::memory_order_relaxed)) return;
  is_used_.store(false, std::memory_order_relaxed);
  absl::AnyInvocable<void()> callback;  // Destroyed after the lock is released.
  std::shared_ptr<CancelScope> scope;
  absl::MutexLock lock(&mutex_);
  callback = std::exchange(callback_, nullptr);
  scope = std::move(scope_);
}

}  // namespace hawser::internal
