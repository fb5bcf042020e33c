#ifndef HAWSER_RPC_INTERNAL_CALL_QUEUE_H_
#define HAWSER_RPC_INTERNAL_CALL_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "hawser/base/time_heap.h"
#include "hawser/rpc/internal/untyped_call.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/timer.h"

namespace hawser::internal {

// Calls that wait: a list, first in first out, and one timer, for the earliest of their deadlines. Most calls
// have the same timeout, so each has a deadline no earlier than those before it, and the first of these in
// the list has the earliest; the others are in a heap. What it does with one of those costs O(log n), with
// any other O(1), amortised. Intrusive: a call is in one queue at most.
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
  // In place of a position in the heap.
  static constexpr size_t kInOrder = SIZE_MAX, kNoDeadline = SIZE_MAX - 1;

  // The call with the earliest deadline, or null.
  UntypedCall* Earliest() const;
  void OnTimer();

  transport::Poller& poller_;
  absl::AnyInvocable<void(UntypedCall&)> on_deadline_;
  transport::Timer timer_;
  UntypedCall* first_ = nullptr;
  UntypedCall* last_ = nullptr;
  // Calls with a deadline no earlier than that of any other of them in front.
  size_t in_order_ = 0;
  UntypedCall* first_in_order_ = nullptr;  // Unless there is none.
  int64_t last_in_order_ns_ = 0;           // Likewise. Or later, if the last one has left.
  TimeHeap<UntypedCall, &UntypedCall::deadline_ns_, &UntypedCall::heap_position_> by_deadline_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_INTERNAL_CALL_QUEUE_H_
