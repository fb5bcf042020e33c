#ifndef HAWSER_RPC_WIRE_CANCEL_SCOPE_H_
#define HAWSER_RPC_WIRE_CANCEL_SCOPE_H_

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "hawser/rpc/wire/tracing.h"

namespace hawser::internal {

class Alarm;
class UntypedCall;

// The calls that a handler makes on behalf of its own caller (CallOptions::For()): they are cancelled when
// that caller stops waiting. So are the alarms that its coroutine waits for.
// Thread:   any.
// Lifetime: shared by the handler's call and those that it makes.
class CancelScope {
 public:
  // `trace`: of the handler's call.
  explicit CancelScope(TraceRef trace) : trace_(std::move(trace)) {}
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  const TraceRef& trace() const { return trace_; }

  // `call` was sent; Remove() follows before it is used for anything else. False: cancelled already.
  bool Add(UntypedCall& call);
  void Remove(UntypedCall& call);

  // As for a call; until Remove().
  bool Add(Alarm& alarm);
  void Remove(Alarm& alarm);

  // Cancels all calls and alarms, and those that come later.
  void Cancel();

 private:
  const TraceRef trace_;
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_set<UntypedCall*> calls_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<Alarm*> alarms_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_CANCEL_SCOPE_H_
