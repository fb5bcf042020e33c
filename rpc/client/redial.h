#ifndef HAWSER_RPC_CLIENT_REDIAL_H_
#define HAWSER_RPC_CLIENT_REDIAL_H_

#include <cstdint>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "hawser/rpc/options.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {

// When a channel connects again, and why it is not connected until then: after each attempt that failed it
// waits twice as long, from ChannelOptions::backoff_min to backoff_max.
// Thread:   on the poller.
// Lifetime: a part of ChannelCore.
class Redial {
 public:
  // `on_due`: the next attempt is to begin.
  Redial(absl::Duration backoff_min, absl::AnyInvocable<void()> on_due);

  void OnReady(int64_t now_ns);
  // An attempt has failed with `why`.
  void OnFailed(const absl::Status& why, int64_t now_ns);

  // Sets the timer of the next attempt.
  void BackOff(transport::Poller& poller, const ChannelOptions& options);
  void Cancel(transport::Poller& poller) { poller.timers().Cancel(timer_); }
  // When the next attempt begins at the latest, if BackOff() is called at `now_ns`.
  int64_t NextNs(int64_t now_ns) const { return transport::After(now_ns, backoff_); }
  // The connection that is lost now was ready for so long that the next attempt need not wait. From then on
  // the channel waits as it did at first.
  bool MayConnectNow(int64_t now_ns, absl::Duration backoff_min);

  // Why the last attempt failed. OK: it succeeded, or there was none.
  const absl::Status& why() const { return why_; }
  // The code for a call that fails because the channel is not connected.
  absl::StatusCode code() const;
  // Why the last attempt failed, how long ago, and when the next one is; or that none has.
  std::string Describe(int64_t now_ns) const;

 private:
  transport::Timer timer_;  // First, for its alignment.
  int64_t ready_since_ns_ = 0;
  absl::Duration backoff_;
  int64_t failed_ns_ = 0;  // When the last attempt failed.
  absl::Status why_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_REDIAL_H_
