#ifndef HAWSER_RPC_CLIENT_CALL_QUEUE_H_
#define HAWSER_RPC_CLIENT_CALL_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "hawser/base/count.h"
#include "hawser/base/time_heap.h"
#include "hawser/rpc/client/untyped_call.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {

// Calls that wait: a first-in-first-out list, and one timer for the earliest deadline. Most calls have the
// same timeout, so their deadlines ascend along the list, and the first such call has the earliest one. The
// calls that break this order are also in a heap. Operations on those cost O(log n), on all others O(1),
// amortised. Intrusive: a call is in at most one queue.
// Thread:   on the poller, but for size().
class CallQueue {
 public:
  // Calls `on_deadline` for each call that it removed because its deadline has passed, for a bounded number
  // in one turn. `poller` outlives this.
  CallQueue(transport::Poller& poller, absl::AnyInvocable<void(UntypedCall&)> on_deadline);

  bool empty() const { return first_ == nullptr; }
  // From any thread.
  const Count& size() const { return size_; }
  UntypedCall* front() const { return first_; }
  void PushBack(UntypedCall& call);
  // The same, but its deadline is not looked at here.
  void PushBackWithoutDeadline(UntypedCall& call);
  void Remove(UntypedCall& call);
  // Removes and returns the first one, which there is.
  UntypedCall& PopFront();

  // Removes and returns the calls for which `which(call)` is true, in order.
  std::vector<UntypedCall*> TakeIf(absl::FunctionRef<bool(const UntypedCall&)> which);

 private:
  // In place of a position in the heap.
  static constexpr size_t kInOrder = SIZE_MAX, kNoDeadline = SIZE_MAX - 1;

  static constexpr uint64_t kMinusOne = ~uint64_t{0};

  void Append(UntypedCall& call) {
    call.next_ = nullptr;
    call.previous_ = last_;
    (last_ != nullptr ? last_->next_ : first_) = &call;
    last_ = &call;
    size_.Add();
  }
  // Notes the deadline of a call that is last in the list, and breaks their order or is the first to have
  // one.
  [[gnu::noinline]] void AddDeadline(UntypedCall& call);
  [[gnu::noinline]] void SetTimer(const UntypedCall& call);
  // The call with the earliest deadline, or null.
  UntypedCall* Earliest() const;
  void OnTimer();

  transport::Poller& poller_;
  absl::AnyInvocable<void(UntypedCall&)> on_deadline_;
  transport::Timer timer_;
  UntypedCall* first_ = nullptr;
  UntypedCall* last_ = nullptr;
  Count size_;
  // Calls whose deadlines ascend along the list.
  size_t in_order_ = 0;
  UntypedCall* first_in_order_ = nullptr;  // Null: there is none.
  int64_t last_in_order_ns_ = 0;           // At least the deadline of the last one.
  TimeHeap<UntypedCall, &UntypedCall::deadline_ns_, &UntypedCall::heap_position_> by_deadline_;
};

inline void CallQueue::PushBack(UntypedCall& call) {
  Append(call);
  const int64_t deadline_ns = call.deadline_ns_;
  if (in_order_ == 0 || deadline_ns < last_in_order_ns_ || deadline_ns == transport::kNever) [[unlikely]]
    return AddDeadline(call);
  call.heap_position_ = kInOrder;
  last_in_order_ns_ = deadline_ns;
  ++in_order_;
  if (!timer_.is_set() || deadline_ns < timer_.when_ns()) [[unlikely]]
    SetTimer(call);
}

inline UntypedCall& CallQueue::PopFront() {
  UntypedCall& call = *first_;
  UntypedCall* const next = call.next_;
  if (next == nullptr || call.heap_position_ != kInOrder || next->heap_position_ != kInOrder) [[unlikely]] {
    Remove(call);
    return call;
  }
  size_.Add(kMinusOne);
  --in_order_;
  first_ = first_in_order_ = next;
  next->previous_ = nullptr;
  return call;
}

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CALL_QUEUE_H_
