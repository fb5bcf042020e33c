#ifndef HAWSER_TRANSPORT_POLLER_POLLER_HOLD_H_
#define HAWSER_TRANSPORT_POLLER_POLLER_HOLD_H_

#include <atomic>
#include <optional>
#include <utility>

#include "hawser/base/fork.h"
#include "hawser/transport/poller/called_out.h"

namespace hawser::transport {

// Which thread is on a poller at this moment. All threads but the one that drives only try to hold it, so no
// order of locks can deadlock. A thread may hold one poller inside another.
// Thread:   as said for each method.
// Lifetime: part of its Poller.
// The memory orders are part of how no wake-up is lost: see driver_role.cc.
class PollerHold {
 public:
  // `made_in`: the process of the poller. `called_out`: what the poller calls, for CalledOutOnThisThread().
  // Both outlive this.
  PollerHold(const ForkMark& made_in, const CalledOut& called_out)
      : made_in_(made_in), called_out_(called_out) {}
  PollerHold(const PollerHold&) = delete;
  PollerHold& operator=(const PollerHold&) = delete;

  // From any thread that does not hold it. False: another thread does.
  bool TryTake() {
    int free = kFree;
    // Not an exchange: it could overwrite the note that the driving thread sleeps until the holder leaves.
    if (held_.load(std::memory_order_seq_cst) != kFree ||
        !held_.compare_exchange_strong(free, kHeld, std::memory_order_seq_cst)) {
      return false;
    }
    outer_ = std::exchange(innermost_, this);
    return true;
  }
  // The thread that holds it, and took none since that it still holds.
  void Release() {
    innermost_ = outer_;
    if (held_.exchange(kFree, std::memory_order_seq_cst) == kHeldAndAwaited) held_.notify_one();
  }
  // The thread that drives, when TryTake() has failed: returns once the holder has left, or before.
  void AwaitRelease();

  // From any thread: it holds this.
  bool held() const { return innermost_ == this || (innermost_ != nullptr && HeldBeside()); }
  // From any thread: see Poller.
  static bool ThisThreadHoldsOne();
  static std::optional<CalledOut::Call> CalledOutOnThisThread();

 private:
  // The same on a thread that has taken another poller since.
  [[gnu::noinline, gnu::cold]] bool HeldBeside() const;

  static constexpr int kFree = 0, kHeld = 1, kHeldAndAwaited = 2;
  std::atomic<int> held_{kFree};
  // The innermost one that this thread holds. The model of this one and of the others that each call reads
  // (MessageCache, BufferCache, rpc/wire/tracing.h): a load, where a library otherwise calls a function.
  [[gnu::tls_model("initial-exec")]] inline static constinit thread_local const PollerHold* innermost_ =
      nullptr;
  const PollerHold* outer_ = nullptr;  // Another one that its thread holds, too.

  const ForkMark& made_in_;
  const CalledOut& called_out_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_POLLER_HOLD_H_
