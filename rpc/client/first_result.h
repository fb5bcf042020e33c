#ifndef HAWSER_RPC_CLIENT_FIRST_RESULT_H_
#define HAWSER_RPC_CLIENT_FIRST_RESULT_H_

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/rpc/client/call_handle.h"
#include "hawser/rpc/options.h"
#include "hawser/transport/wire/message.h"

namespace hawser::internal {

// What a FirstOf shares with its calls, whose results come on any thread: the first reply, and the coroutine
// that waits for it.
// Thread:   any.
// Lifetime: shared by the FirstOf, its calls and an alarm.
class FirstResult final : public std::enable_shared_from_this<FirstResult> {
 public:
  FirstResult();
  FirstResult(const FirstResult&) = delete;
  FirstResult& operator=(const FirstResult&) = delete;

  // Takes the result of `call`, which was sent.
  void Add(CallHandle& call);

  // There is a reply, or no call is under way.
  bool IsDecided() const;
  bool has_reply() const;
  // Resumes `waiting` once that is so, or after `time` at the latest. Infinite: no alarm. False: it is so
  // already.
  bool Suspend(std::coroutine_handle<> waiting, absl::Duration time);
  // The coroutine that waits is being destroyed.
  void Abandon();
  // The reply; the error that came last if there is none; FailedPrecondition if nothing was added, or it was
  // taken.
  CallResult Take();

 private:
  bool IsDecidedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return has_reply_ || under_way_ == 0; }
  void OnEnd(absl::StatusOr<transport::IncomingMessagePtr>&& message, const ReadLimits& limits);
  void OnTimeout(uint64_t wait);

  mutable absl::Mutex mutex_;
  size_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  bool has_reply_ ABSL_GUARDED_BY(mutex_) = false;
  CallResult result_ ABSL_GUARDED_BY(mutex_);
  std::coroutine_handle<> waiting_ ABSL_GUARDED_BY(mutex_);
  uint64_t wait_ ABSL_GUARDED_BY(mutex_) =
      0;  // Counts waits, so that a late alarm does not end the next one.
  std::shared_ptr<Alarm> alarm_ ABSL_GUARDED_BY(mutex_);  // For the wait; null: it has none.
  // Makes an alarm on the poller of the first call.
  absl::AnyInvocable<std::shared_ptr<Alarm>(absl::AnyInvocable<void(bool)>)> new_alarm_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_FIRST_RESULT_H_
