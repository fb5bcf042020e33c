#ifndef HAWSER_RPC_CLIENT_CALL_TIMEOUT_H_
#define HAWSER_RPC_CLIENT_CALL_TIMEOUT_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"
#include "hawser/rpc/options.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {

// How long a call may take: from what its options say to the deadline on the clock of its poller.
// Thread:   that of the caller until Send() posts the call, then the poller. WaitersDeadlineNs(): the caller.
// Lifetime: a part of the UntypedCall.
class CallTimeout {
 public:
  // In place of a deadline that the poller has not computed yet.
  static constexpr int64_t kNotYet = std::numeric_limits<int64_t>::min();

  // The call is made. True: its deadline is the poller's time of Send() and DeadlineNs(), on the poller.
  // False: Begin() is to be called, too.
  [[gnu::always_inline]] bool Set(const CallOptions& options, int64_t default_ns) {
    deadline_ = options.deadline;
    const bool is_relative = deadline_ == absl::InfiniteFuture();
    const bool has_default = is_relative && options.timeout == absl::InfiniteDuration();
    timeout_ns_ = has_default ? default_ns : absl::ToInt64Nanoseconds(options.timeout);
    return is_relative && timeout_ns_ >= kExactNs;
  }

  // The same for CallOptions::kNone.
  [[gnu::always_inline]] bool SetDefault(int64_t default_ns) {
    deadline_ = absl::InfiniteFuture();
    timeout_ns_ = default_ns;
    return timeout_ns_ >= kExactNs;
  }

  // The call is sent to `poller`, which this thread holds or not. Returns its deadline, or kNotYet: the
  // poller computes it, with DeadlineNs().
  int64_t Begin(transport::Poller& poller, bool held) {
    if (deadline_ != absl::InfiniteFuture())
      timeout_ns_ = std::min(timeout_ns_, absl::ToInt64Nanoseconds(deadline_ - poller.environment().Now()));
    // If a callback on another thread holds the poller, a longer timeout would count from the callback's
    // return.
    const bool known = timeout_ns_ < kExactNs || (!held && poller.called_out().inside());
    return Note(known ? From(poller.environment().NowNs()) : kNotYet);
  }

  // The deadline of a call whose time begins at `now_ns`.
  int64_t DeadlineNs(int64_t now_ns) { return Note(From(now_ns)); }

  // It had passed before the call was sent.
  bool is_over() const { return timeout_ns_ <= 0; }

  // When a caller that waits looks whether the poller is held: a little later than the deadline.
  int64_t WaitersDeadlineNs(int64_t now_ns) const {
    const int64_t known_ns = waiters_deadline_ns_.load(std::memory_order_relaxed);
    return LittleAfter(std::max(known_ns != kNotYet ? known_ns : From(now_ns), now_ns));
  }
  static int64_t LittleAfter(int64_t ns) { return transport::After(ns, kGrace); }

 private:
  // A timeout below this counts from the time of Send(). A longer one counts from the poller's clock, which
  // lags behind by what the sending callback has taken so far: reading the clock for each call would add a
  // tenth to a small one.
  static constexpr int64_t kExactNs = 1'000'000'000;

  // How much later than the poller a waiting thread checks the deadline. The poller's result says more, so it
  // comes first, unless the application holds the poller.
  static constexpr absl::Duration kGrace = absl::Milliseconds(20);

  int64_t From(int64_t now_ns) const {
    return timeout_ns_ >= transport::kNever - now_ns ? transport::kNever : now_ns + timeout_ns_;
  }
  int64_t Note(int64_t deadline_ns) {
    waiters_deadline_ns_.store(deadline_ns, std::memory_order_relaxed);
    return deadline_ns;
  }

  absl::Time deadline_;
  int64_t timeout_ns_ = 0;
  // For the caller: the deadline, or kNotYet until the poller has computed it.
  std::atomic<int64_t> waiters_deadline_ns_{0};
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CALL_TIMEOUT_H_
