#include "hawser/rpc/client/first_result.h"

#include <utility>

#include "absl/status/status.h"
#include "hawser/base/check.h"
#include "hawser/rpc/wire/alarm.h"

namespace hawser::internal {
namespace {

absl::Status Nothing() {
  return absl::FailedPreconditionError(
      "FirstOf::Result(): no call was added, or the result was taken before");
}

}  // namespace

FirstResult::FirstResult() { result_.message = Nothing(); }

void FirstResult::Add(CallHandle& call) {
  // The results after the first are dropped, so nothing would tell the caller when their memory is free.
  if (call.lands()) Misused("FirstOf::Add() with a call that has ReceiveInto()", call.method().name);
  {
    absl::MutexLock lock(&mutex_);
    ++under_way_;
    if (!new_alarm_) {
      new_alarm_ = [call = call.Share()](absl::AnyInvocable<void(bool)> callback) {
        return call.NewAlarm(std::move(callback));
      };
    }
  }
  call.Then(
      [keep = shared_from_this()](absl::StatusOr<transport::IncomingMessagePtr>&& message,
                                  const ReadLimits& limits) { keep->OnEnd(std::move(message), limits); });
}

bool FirstResult::IsDecided() const {
  absl::MutexLock lock(&mutex_);
  return IsDecidedLocked();
}

bool FirstResult::has_reply() const {
  absl::MutexLock lock(&mutex_);
  return has_reply_;
}

bool FirstResult::Suspend(std::coroutine_handle<> waiting, absl::Duration time) {
  const std::shared_ptr<FirstResult> keep = shared_from_this();  // The coroutine may end before this returns.
  std::shared_ptr<Alarm> alarm;
  {
    absl::MutexLock lock(&mutex_);
    if (IsDecidedLocked()) return false;
    waiting_ = waiting;
    const uint64_t wait = ++wait_;
    if (time != absl::InfiniteDuration()) alarm = new_alarm_([keep, wait](bool) { keep->OnTimeout(wait); });
    alarm_ = alarm;
  }
  if (alarm != nullptr) alarm->Start(time);
  return true;
}

void FirstResult::Abandon() {
  std::shared_ptr<Alarm> alarm;
  {
    absl::MutexLock lock(&mutex_);
    waiting_ = nullptr;
    alarm = std::exchange(alarm_, nullptr);
  }
  if (alarm != nullptr) alarm->Stop();
}

CallResult FirstResult::Take() {
  absl::MutexLock lock(&mutex_);
  return {std::exchange(result_.message, Nothing()), result_.limits};
}

void FirstResult::OnEnd(absl::StatusOr<transport::IncomingMessagePtr>&& message, const ReadLimits& limits) {
  std::coroutine_handle<> waiting;
  std::shared_ptr<Alarm> alarm;
  {
    absl::MutexLock lock(&mutex_);
    HAWSER_SUBTRACT(under_way_, 1);
    if (!has_reply_) {
      has_reply_ = message.ok();
      result_ = {std::move(message), limits};
    }
    if (IsDecidedLocked()) {
      waiting = std::exchange(waiting_, nullptr);
      alarm = std::exchange(alarm_, nullptr);
    }
  }
  if (alarm != nullptr) alarm->Stop();
  if (waiting) waiting.resume();
}

void FirstResult::OnTimeout(uint64_t wait) {
  std::coroutine_handle<> waiting;
  {
    absl::MutexLock lock(&mutex_);
    if (wait != wait_) return;
    waiting = std::exchange(waiting_, nullptr);
    alarm_ = nullptr;
  }
  if (waiting) waiting.resume();
}

}  // namespace hawser::internal
