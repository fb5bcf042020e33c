#ifndef HAWSER_RPC_CALL_QUEUE_H_
#define HAWSER_RPC_CALL_QUEUE_H_

#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "hawser/transport/timer.h"

namespace hawser::internal {

class UntypedCall;

// Calls that wait, first in first out, and their deadlines: one timer, set for the earliest of them, so that
// a call which passes through costs no timer of its own. Intrusive: a call is in one queue at most.
// Thread:   on the poller.
class CallQueue {
 public:
  // `on_deadline` hears of each call that was taken out because its deadline has passed; it must not change
  // this queue. `timers` outlives this.
  CallQueue(transport::Timers& timers, absl::AnyInvocable<void(UntypedCall&)> on_deadline);

  bool empty() const { return first_ == nullptr; }
  UntypedCall* front() const { return first_; }
  void PushBack(UntypedCall& call);
  void Remove(UntypedCall& call);

  // Takes out those that `which(call)` says true of, in order.
  std::vector<UntypedCall*> TakeIf(absl::FunctionRef<bool(const UntypedCall&)> which);

 private:
  void OnTimer();

  transport::Timers& timers_;
  absl::AnyInvocable<void(UntypedCall&)> on_deadline_;
  transport::Timer timer_;
  UntypedCall* first_ = nullptr;
  UntypedCall* last_ = nullptr;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CALL_QUEUE_H_
