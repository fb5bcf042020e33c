#ifndef HAWSER_RPC_WIRE_ALARM_H_
#define HAWSER_RPC_WIRE_ALARM_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/rpc/wire/cancel_scope.h"
#include "hawser/rpc/wire/tracing.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/runtime.h"

namespace hawser::internal {

// Rings once: after a time or, if it has a scope, as soon as that is cancelled.
// Thread:   any.
// Lifetime: shared by what waits for it and, from Start() until it has rung or was stopped, by its poller.
//           What it shares in turn keeps the poller. Not made in a child after fork().
class Alarm final : public std::enable_shared_from_this<Alarm> {
 public:
  // Runs in a turn of the thread that drives `poller`, as callbacks of the application do. `is_cancelled`:
  // the scope was, first.
  using Callback = absl::AnyInvocable<void(bool is_cancelled)>;

  // `poller` is of `runtime`. `scope` may be null. `whose`: the method that a line of the watchdog names;
  // static.
  Alarm(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
        std::shared_ptr<CancelScope> scope, const char* whose, Callback callback);
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  // Once. The callback may have run on another thread before this returns. Has no effect after Stop().
  void Start(absl::Duration after);
  // For its scope (CancelScope::Add()).
  absl::AnyInvocable<void()> Canceller();
  // The callback does not start any more. It may be running on another thread.
  void Stop();

 private:
  void Cancel();
  void Ring();
  // On the poller.
  void Forget();

  const std::shared_ptr<transport::Runtime> runtime_;
  transport::Poller& poller_;
  const std::shared_ptr<CancelScope> scope_;
  const TraceRef trace_;
  const char* const whose_;

  absl::Mutex mutex_;
  Callback callback_ ABSL_GUARDED_BY(mutex_);  // Null: it has rung, or was stopped.

  // ---- On the poller.
  std::shared_ptr<Alarm> self_;  // Until it has rung, or was stopped.
  bool is_cancelled_ = false;
  transport::Timer timer_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_ALARM_H_
