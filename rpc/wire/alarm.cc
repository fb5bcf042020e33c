#include "hawser/rpc/wire/alarm.h"

#include <algorithm>
#include <utility>

#include "hawser/rpc/wire/called_codes.h"
#include "hawser/rpc/wire/exceptions.h"

namespace hawser::internal {

Alarm::Alarm(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
             std::shared_ptr<CancelScope> scope, const char* whose, Callback callback)
    : runtime_(std::move(runtime)),
      poller_(poller),
      scope_(std::move(scope)),
      trace_(scope_ != nullptr && scope_->trace() != nullptr ? scope_->trace() : CurrentTrace()),
      whose_(whose),
      callback_(std::move(callback)),
      timer_([this] { Ring(); }) {}

void Alarm::Start(absl::Duration after) {
  const std::shared_ptr<Alarm> keep = shared_from_this();
  const int64_t when_ns =
      transport::After(poller_.environment().NowNs(), std::max(after, absl::ZeroDuration()));
  poller_.Run([keep, when_ns] {
    {
      absl::MutexLock lock(&keep->mutex_);
      if (!keep->callback_) return;
    }
    keep->self_ = keep;
    // On the poller, as Forget(), which takes it out of the scope: so it is not there any more when it is
    // destroyed.
    const bool is_late = keep->scope_ != nullptr && !keep->scope_->Add(*keep);
    keep->is_cancelled_ = is_late;
    keep->poller_.timers().Set(keep->timer_, is_late ? keep->poller_.now_ns() : when_ns);
  });
}

absl::AnyInvocable<void()> Alarm::Canceller() {
  return [keep = shared_from_this()] { keep->Cancel(); };
}

void Alarm::Cancel() {
  poller_.Run([keep = shared_from_this()] {
    if (keep->self_ == nullptr) return;  // It has rung, or was stopped.
    keep->is_cancelled_ = true;
    keep->poller_.timers().Set(keep->timer_, keep->poller_.now_ns());
  });
}

void Alarm::Stop() {
  Callback callback;  // Destroyed after the lock is released.
  {
    absl::MutexLock lock(&mutex_);
    callback = std::exchange(callback_, nullptr);
  }
  if (callback) {
    poller_.Run([keep = shared_from_this()] { keep->Forget(); });
  }
}

void Alarm::Ring() {
  const std::shared_ptr<Alarm> keep = self_;
  Callback callback;
  {
    absl::MutexLock lock(&mutex_);
    callback = std::exchange(callback_, nullptr);
  }
  Forget();
  if (!callback) return;
  const transport::Poller::CallOut out(poller_, kCoroutine, whose_);
  const TraceScope trace(trace_);
  CallUser(kCoroutine.name, whose_, [&] { callback(is_cancelled_); });
}

void Alarm::Forget() {
  poller_.timers().Cancel(timer_);
  if (scope_ != nullptr) scope_->Remove(*this);
  self_ = nullptr;
}

}  // namespace hawser::internal
