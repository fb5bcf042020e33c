#ifndef HAWSER_RPC_CLIENT_REMOTE_LANE_H_
#define HAWSER_RPC_CLIENT_REMOTE_LANE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hawser/base/intrusive_list.h"
#include "hawser/rpc/client/remote_call.h"
#include "hawser/rpc/client/remote_ticket.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/lane/lane.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::internal {

class ChannelCore;

// The lanes of one channel, one at a time: opened at the first operation, and again after one was broken, or
// the channel has another session. A channel that reaches no memory has no RemoteLane.
// Thread:   on the poller of the channel, unless a method says otherwise.
// Lifetime: shared by the channel, until that is closed, its operations, and a lane that is up or ends.
class RemoteLane final : public RemoteCarrier,
                         public std::enable_shared_from_this<RemoteLane>,
                         transport::Lane::Owner {
 public:
  // That of `core`, which has one connection. Thread: any; not in a child after fork().
  static std::shared_ptr<RemoteLane> Of(const std::shared_ptr<ChannelCore>& core);
  // A session of `core` has ended because of `why`: with it its lane ends, whose peer may be silent for ever.
  // On the poller of `core`.
  static void OnSessionEnded(const ChannelCore& core, const transport::SessionToken& session,
                             const absl::Status& why);
  ~RemoteLane() override;

  // ---- From any thread.
  bool by_nic() const;
  // READs that may be outstanding; 0: no lane was up yet.
  uint32_t read_depth() const { return read_depth_.load(std::memory_order_relaxed); }
  // Atomics are possible, and atomic with the server's processor, too; false: they are not, or no lane was up
  // yet.
  bool atomics() const { return atomics_.load(std::memory_order_relaxed); }
  bool atomics_with_processor() const { return atomics_with_processor_.load(std::memory_order_relaxed); }
  // What a RemoteMemory and its operations share. With the last of them its handle is closed.
  std::shared_ptr<RemoteTicket> NewTicket(const transport::LaneTicket& ticket);

 private:
  explicit RemoteLane(const std::shared_ptr<ChannelCore>& core);

  // RemoteCarrier
  void Start(RemoteCall& call) override;
  void Abort(RemoteCall& call, const absl::Status& why) override;
  std::string DescribeSilence() override;
  void SetDeadline(RemoteCall& call) override;
  void EndDeadline(RemoteCall& call) override;
  void CallBackSoon(RemoteCallHandle call) override;
  RemoteCall* TakeKept() override;

  void Forget(const RemoteTicket& ticket);
  // That of the current session. Null: there is none yet.
  transport::Lane* CurrentLane() const;
  // The same, which it dials if there is none.
  absl::StatusOr<transport::Lane*> LaneNow();
  void OnDialFailed(const absl::Status& why);
  // The channel is closed.
  void Close();
  void CallBack();
  void OnDeadlineTimer();

  // transport::Lane::Owner
  void OnLaneReady() override;
  void OnUnsent(transport::LaneOperation& operation, bool was_ready, const absl::Status& why) override;
  void OnLaneGone(transport::Lane& lane, bool was_ready, const absl::Status& why) override;

  const std::weak_ptr<ChannelCore> core_;
  const ChannelCore* const key_;  // In the table of all.
  std::atomic<uint32_t> read_depth_{0};
  std::atomic<bool> atomics_{false};
  std::atomic<bool> atomics_with_processor_{false};

  bool closed_ = false;
  transport::Lane* lane_ = nullptr;  // Null: there is none that takes operations.
  uint64_t lane_number_ = 0;         // Counts them.
  size_t lanes_ = 0;                 // With those that end.
  int64_t dial_again_ns_ = 0;
  absl::Duration backoff_;
  absl::Status why_no_lane_;          // Of the last attempt.
  std::shared_ptr<RemoteLane> self_;  // While there are lanes.
  std::vector<RemoteCallHandle> to_call_back_, calling_back_;
  transport::Timer call_back_timer_;
  // Operations in the order of their deadlines, which is that of their begins, as a rule. One that ends
  // earlier than the last of these has a timer of its own.
  IntrusiveList<RemoteCall, ByDeadline> deadlines_;
  transport::Timer deadline_timer_;  // While there are some; set to that of the first, or earlier.
  int64_t last_deadline_ns_ = 0;     // Of deadlines_, if there are some.
  std::vector<RemoteCall*> kept_;    // Calls for TakeKept().
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_REMOTE_LANE_H_
