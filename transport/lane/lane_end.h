#ifndef HAWSER_TRANSPORT_LANE_LANE_END_H_
#define HAWSER_TRANSPORT_LANE_LANE_END_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/base/socket_address.h"
#include "hawser/base/violation.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/poller/poller_client.h"
#include "hawser/transport/poller/work_id.h"

namespace hawser::transport {

// READs of the requester that may be outstanding, where the device allows so many.
inline constexpr uint32_t kLaneReadDepth = 64;

// One end of a lane: its queue pair, the few messages that cross it beside the one-sided operations, and its
// end. A lane is a connection of its own, so that an operation that has to be broken off costs no call.
//
//   OnEstablished() -> ready -> End() -> the queue pair disconnects -> all work requests are flushed, or the
//   queue pair is destroyed -> OnGone(): the fabric uses no memory of this end any more
//
// Thread:   on the poller.
// Lifetime: owned by the poller from Poller::Adopt() on, until OnGone() or the end of the poller.
// Failure:  the first error ends it, with OnEnding() at once and OnGone() when nothing is in flight.
class LaneEnd : public PollerClient, public fabric::ConnectionHandler {
 public:
  ~LaneEnd() override;

  // Ends it because of `why`. Later calls have no effect.
  void End(const absl::Status& why);
  bool ending() const { return state_ >= State::kEnding; }
  // When the peer, or its NIC, last answered. 0: never.
  int64_t last_heard_ns() const { return last_heard_ns_; }

 protected:
  enum class State : uint8_t { kConnecting, kReady, kEnding, kGone };

  explicit LaneEnd(Poller& poller);

  // Makes the queue pair and posts the receives. Not OK: nothing is posted.
  absl::Status Create(fabric::QueuePairOptions options);
  // It is established, or a message has come.
  void BecomeReady();

  Poller& poller() { return poller_; }
  State state() const { return state_; }
  // Not null once Create() has succeeded, and before OnGone().
  fabric::QueuePair& queue_pair() { return *queue_pair_; }
  const std::string& peer() const { return peer_; }
  void set_peer(const SocketAddress& address);
  // Why it ends, from OnEnding() on.
  const absl::Status& why() const { return why_; }

  // Sends it, at the end of the turn or when there is room. Ends the lane with ResourceExhausted if too many
  // wait: the peer takes none.
  void SendMessage(const LaneMessage& message);
  // Posts work requests; their wr_ids are written here. `last` becomes the number of the last, as OnSent()
  // counts them. Not OK: none is counted, nor completes; EndUnposted() has to follow.
  absl::Status PostWork(absl::Span<fabric::SendWorkRequest> requests, uint64_t& last);
  // Ends it, because PostWork() has returned `why`.
  void EndUnposted(const absl::Status& why);
  // Places in the send queue that PostWork() may take. Messages have their own.
  uint32_t room() const {
    const uint64_t places = send_depth_ - kLaneReceives;
    const uint64_t taken = posted_ - done_ - in_flight_.size();
    return taken < places ? static_cast<uint32_t>(places - taken) : 0;
  }
  // Ends it, because the peer did what the protocol does not allow: `what`.
  void EndBecauseBroken(absl::string_view what);
  // For a destructor, at the end of the poller. No grant of it is of use to the peer any more.
  void DestroyQueuePair() { queue_pair_.reset(); }
  // Revokes what queue_pair().Grant() has given; OnRevoked(number) follows, unless OnGone() does.
  void RevokeGrant(uint32_t rkey, uint32_t number);

  // ---- For the derived class.

  virtual void OnMessage(const LaneMessage& message) = 0;
  // All work requests up to number `done`, exclusive, have completed with success.
  virtual void OnSent(uint64_t /*done*/) {}
  // The first one that failed has this number; End() follows.
  virtual void OnSendFailed(uint64_t /*number*/, fabric::CompletionStatus /*status*/) {}
  virtual void OnRevoked(uint32_t /*number*/) {}
  // The peer has broken a rule; the lane ends.
  virtual void OnViolation(Violation /*violation*/, absl::string_view /*text*/) {}
  // At the end of a turn, while it is ready. Messages that it sends go behind what it posts.
  virtual void OnFlush() {}
  // At its end: End() was called.
  virtual void OnEnding() = 0;
  // The fabric uses no memory of this end any more; it is destroyed after this.
  virtual void OnGone() = 0;

  // fabric::ConnectionHandler
  void OnConnectFailed(const absl::Status& why, absl::string_view private_data) override;
  void OnDisconnected(const absl::Status& why) override;

 private:
  // PollerClient
  void OnCompletion(const WorkId& id, const fabric::Completion& completion) final;
  void Flush() final;
  void FlushIfLong() final {}
  void Disconnect() final;

  void OnReceive(uint32_t buffer, const fabric::Completion& completion);
  void OnSend(uint32_t number, const fabric::Completion& completion);
  absl::Status PostReceive(uint32_t buffer);
  void PostMessages();
  uint8_t* BufferAt(uint32_t index) { return memory_.data() + size_t{index} * kLaneMessageMax; }
  bool flushed() const { return posted_ == done_ && receives_ == 0 && revocations_ == 0; }
  void OnFlushTimer();
  void BecomeGone();

  Poller& poller_;
  State state_ = State::kConnecting;
  bool forced_ = false;  // QueuePair::ForceFlush() was called.
  std::string peer_ = "a peer";
  absl::Status why_;
  Lease memory_;  // kLaneReceives to receive into, then as many to send from. Of the fabric while posted.
  uint32_t send_depth_ = 0;
  uint32_t receives_ = 0;     // Posted.
  uint32_t revocations_ = 0;  // Under way.
  uint64_t posted_ = 0;       // Send work requests, ever.
  int64_t last_heard_ns_ = 0;
  uint64_t done_ = 0;           // Of these, the ones that have completed, one way or the other.
  std::vector<uint32_t> free_;  // Buffers to send from.
  std::deque<std::pair<uint64_t, uint32_t>> in_flight_;  // Work requests that send one, and its buffer.
  std::deque<std::string> to_send_;
  Timer flush_timer_;
  std::unique_ptr<fabric::QueuePair> queue_pair_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LANE_LANE_END_H_
