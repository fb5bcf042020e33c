#ifndef HAWSER_TRANSPORT_LANE_LANE_REQUESTS_H_
#define HAWSER_TRANSPORT_LANE_LANE_REQUESTS_H_

#include <cstdint>
#include <deque>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::transport {

// What a requester asks the owner: kLaneRequestsMax at a time, and not for ever.
// Thread:   on the poller.
// Lifetime: part of its Lane.
class LaneRequests final {
 public:
  // How long the owner may answer nothing. A handler that holds its poller is the usual cause.
  static constexpr absl::Duration kAnswerTimeout = absl::Seconds(10);
  // How long the first request of a lane may stay unanswered before a ping follows it, once. A device may
  // hold back what arrives during the handshake until more arrives, as for a connection
  // (connection/keepalive.cc).
  static constexpr absl::Duration kFirstAnswer = absl::Milliseconds(100);

  // `send` sends one; `on_silence` runs when the owner has answered nothing for so long.
  LaneRequests(Poller& poller, absl::AnyInvocable<void(const LaneMessage&)> send,
               absl::AnyInvocable<void()> on_silence);
  ~LaneRequests() { Stop(); }

  // The lane is up. What was added before is sent. `pings`: the owner knows what a ping is.
  void Start(bool pings);
  // Sends it, now or later.
  void Add(LaneMessage message);
  // True: the one of `handle` was not sent, and will not be.
  bool Drop(uint32_t handle);
  // False: nothing was asked.
  bool TakeAnswer();
  // After an answer.
  void SendNext();
  // Nothing is sent any more, and `on_silence` does not run.
  void Stop();

 private:
  void SetTimer();
  void OnTimer();

  Poller& poller_;
  absl::AnyInvocable<void(const LaneMessage&)> send_;
  absl::AnyInvocable<void()> on_silence_;
  bool sends_ = false;
  bool may_ping_ = false;  // No answer has come yet, and no ping was sent.
  uint32_t unanswered_ = 0;
  std::deque<LaneMessage> waiting_;
  int64_t silent_at_ns_ = 0;  // kAnswerTimeout after the newest answer, or the first request.
  Timer timer_;               // While there are unanswered ones.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LANE_LANE_REQUESTS_H_
