#ifndef HAWSER_RPC_CLIENT_FIRST_ATTEMPT_H_
#define HAWSER_RPC_CLIENT_FIRST_ATTEMPT_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/poller/called_out.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {

// The first attempt of a channel to connect, whose result Channel::Connect() waits for. A server that has no
// room now may have some in a moment, since connections that are no more, or say nothing, make room for
// others. So while there is time the first attempt is that which ends otherwise.
// Thread:   on the poller, but for Wait().
// Lifetime: a part of ChannelCore. With several connections each knows when its own is over, and the first
//           one has the channel's.
class FirstAttempt {
 public:
  // An attempt gets a little longer than the call, because its result says more than a timeout does.
  static constexpr absl::Duration kGrace = absl::Milliseconds(100);

  using Listener = absl::AnyInvocable<void(const absl::Status& result)>;

  // `on_time_over`: the time to insist is over, and refused() is the end.
  explicit FirstAttempt(absl::AnyInvocable<void()> on_time_over);

  // Attempts that a server without room refuses before `until_ns` are not the end.
  void InsistUntil(int64_t until_ns) { insists_until_ns_ = until_ns; }
  // An attempt has failed with `why`, and the next one is at `next_ns`. True: that is not the end.
  bool GoesOn(const absl::Status& why, int64_t next_ns, transport::Poller& poller);
  const absl::Status& refused() const { return refused_; }
  // The attempt of this connection is over, however it ended. False: it was before.
  bool End(transport::Poller& poller);

  // The first attempt has ended with `why`, or is not waited for any more. The first call counts.
  void SetResult(const absl::Status& why);
  bool has_result() const { return done_.is_set(); }
  // `listener` gets the result, once; at once, if that is there.
  void Tell(Listener listener);

  // Waits for the result, on a thread that is not on `poller`.
  absl::Status Wait(transport::Poller& poller, absl::Duration connect_timeout,
                    const std::string& peer_address);
  // Why Connect() does not wait any longer: `by` holds the poller that has to connect.
  static absl::Status HeldUp(absl::Duration connect_timeout, const transport::CalledOut::Call& by);

 private:
  static constexpr int64_t kOver = std::numeric_limits<int64_t>::min();

  transport::Timer timer_;  // First, for its alignment. Set once an attempt was not the end.
  transport::WaitEvent done_;
  absl::Status result_;
  int64_t insists_until_ns_ = 0;        // kOver: the attempt of this connection is over.
  absl::Status refused_;                // The last attempt that was not the end.
  std::unique_ptr<Listener> listener_;  // Null: none. Few channels have one, and the others save its room.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_FIRST_ATTEMPT_H_
