#ifndef HAWSER_RPC_WIRE_CANCEL_SCOPE_H_
#define HAWSER_RPC_WIRE_CANCEL_SCOPE_H_

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "hawser/rpc/wire/tracing.h"

namespace hawser::internal {

// What a handler has under way on behalf of its own caller (CallOptions::For()): the calls that it makes, and
// the alarms that its coroutine waits for. They are cancelled when that caller stops waiting.
// Thread:   any.
// Lifetime: shared by the handler's call and those that it makes.
class CancelScope {
 public:
  // `trace`: of the handler's call.
  explicit CancelScope(TraceRef trace) : trace_(std::move(trace)) {}
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  const TraceRef& trace() const { return trace_; }

  // `member`, a call or an alarm, is under way; Remove() follows before it is destroyed, or used for anything
  // else. Cancel() calls member.Canceller() under the lock, and then, without the lock, the function that
  // this returned, which keeps `member` until it is destroyed. False: cancelled already.
  template <typename Member>
  bool Add(Member& member) {
    return Add(&member, [](void* self) { return static_cast<Member*>(self)->Canceller(); });
  }
  template <typename Member>
  void Remove(Member& member) {
    Forget(&member);
  }

  // Cancels all members, in no order, and those that come later.
  void Cancel();

 private:
  using Canceller = absl::AnyInvocable<void()>;

  bool Add(void* member, Canceller (*canceller)(void* member));
  void Forget(void* member);

  const TraceRef trace_;
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<void*, Canceller (*)(void* member)> members_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_CANCEL_SCOPE_H_
