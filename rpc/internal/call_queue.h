#ifndef HAWSER_RPC_INTERNAL_CALL_QUEUE_H_
#define HAWSER_RPC_INTERNAL_CALL_QUEUE_H_

#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "hawser/base/time_heap.h"
#include "hawser/rpc/internal/untyped_call.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/timer.h"

namespace hawser::internal {

// Calls that wait: a list, first in first out, and a heap of those that have a deadline, which has one timer,
// set for the earliest. What it does with one call costs O(log n). Intrusive: a call is in one queue at most.
// Thread:   on the poller.
class CallQueue {
 public:
  // `on_deadline` hears of each call that was taken out because its deadline has passed, of a bounded number
  // in one turn. `poller` outlives this.
  CallQueue(transport::Poller& poller, absl::AnyInvocable<void(UntypedCall&)> on_deadline);

  bool empty() const { return first_ == nullptr; }
  UntypedCall* front() const { return first_; }
  void PushBack(UntypedCall& call);
  void Remove(UntypedCall& call);

  // Takes out those that `which(call)` says true of, in order.
  std::vector<UntypedCall*> TakeIf(absl::FunctionRef<bool(const UntypedCall&)> which);

 private:
  void OnTimer();

  transport::Poller& poller_;
  absl::AnyInvocable<void(UntypedCall&)> on_deadline_;
  transport::Timer timer_;
  UntypedCall* first_ = nullptr;
  UntypedCall* last_ = nullptr;
  TimeHeap<UntypedCall, &UntypedCall::deadline_ns_, &UntypedCall::heap_position_> by_deadline_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_INTERNAL_CALL_QUEUE_H_
