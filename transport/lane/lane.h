#ifndef HAWSER_TRANSPORT_LANE_LANE_H_
#define HAWSER_TRANSPORT_LANE_LANE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/transport/lane/lane_announcements.h"
#include "hawser/transport/lane/lane_end.h"
#include "hawser/transport/lane/lane_handles.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/lane/lane_opening.h"
#include "hawser/transport/lane/lane_operation.h"
#include "hawser/transport/lane/lane_posts.h"
#include "hawser/transport/lane/lane_requests.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::transport {

// The requester's end of a lane: shows tickets, and carries out operations on the memory that they give.
//
// The result of an operation comes when no NIC can touch its local memory any more. What is posted cannot
// be taken back, so an operation that ends before its completion (deadline, cancellation) breaks the lane:
// the queue pair disconnects, everything is flushed, and only then all results come. Operations of which
// nothing was posted go to the owner, which may start them on another lane. If a device fails in the middle
// of a chain, each operation of that chain counts as posted.
//
// A counted WRITE (kLaneCounted) ends with success once the owner has counted it (LaneAnnouncements). One
// that is given up before it was announced is not counted; after that it may be.
// Thread:   on the poller.
// Lifetime: see LaneEnd. If the poller ends first, all operations end with Unavailable, and the owner is not
//           called any more.
class Lane final : public LaneEnd, LaneOpening::Owner {
  using Stage = LaneHandle::Stage;
  using Counting = LaneOperation::Counting;

 public:
  // Places in the send queue for operations.
  static constexpr uint32_t kPostedMax = 128;

  class Owner {
   public:
    // The lane is up.
    virtual void OnLaneReady() = 0;
    // Nothing of this operation was posted, and the lane ends. `was_ready`: it was up.
    virtual void OnUnsent(LaneOperation& operation, bool was_ready, const absl::Status& why) = 0;
    // Once, the last call: no NIC touches any memory of an operation of `lane`.
    virtual void OnLaneGone(Lane& lane, bool was_ready, const absl::Status& why) = 0;

   protected:
    ~Owner() = default;
  };

  using Target = LaneTarget;

  // `owner` outlives it. Not OK: the owner is not called.
  static absl::StatusOr<Lane*> Dial(Poller& poller, const Target& target, absl::Duration connect_timeout,
                                    Owner& owner);
  ~Lane() override;

  // Shows `ticket`, now or when the lane is up. Returns the handle for Start().
  uint32_t Open(const LaneTicket& ticket);
  // No operation on `handle` follows; none is in flight.
  void Close(uint32_t handle);
  // The owner had no room for it, and may have some by now. It is opened again under another handle.
  bool LacksRoom(uint32_t handle) const {
    const LaneHandle* const found = handles_.Find(handle);
    return found != nullptr && found->stage == Stage::kUseless && absl::IsResourceExhausted(found->why);
  }

  // Begins it, or queues it. It ends with OnEnd() or goes back with Owner::OnUnsent(), later.
  void Start(LaneOperation& operation, uint32_t handle);
  // It ends with `why`, as soon as no NIC touches its memory: at once if nothing of it is posted, else with
  // the lane. Without effect if it has ended.
  void Abort(LaneOperation& operation, const absl::Status& why);

  const SessionToken& session() const { return opening_.target().session; }
  // Once it is up.
  uint32_t read_depth() { return queue_pair().read_depth(); }
  // What atomics are atomic with. kNone: a device, here or there, has none.
  fabric::Atomics atomics() {
    return queue_pair().takes_atomics() ? opening_.owner_atomics() : fabric::Atomics::kNone;
  }

 private:
  Lane(Poller& poller, const Target& target, Owner& owner);

  void OnOpened(const LaneMessage& message, LaneHandle& handle);
  void Refuse(LaneHandle& handle, const absl::Status& why);
  void CloseIfUnused(LaneHandle& handle);
  void OnCounted(LaneHandle& handle);
  // An operation on it, of which something was posted, is about to end.
  void EndUse(LaneHandle& handle);
  void Enqueue(LaneOperation& operation);
  // Posts what there is room for, of one operation after the other, as one chain: over TCP they leave with
  // one system call. False: nothing.
  bool PostSome();
  void OnPiecesDone(LaneOperation& operation, uint32_t pieces);
  // Nothing of it is posted. Ends it.
  void Finish(LaneOperation& operation, const absl::Status& status);
  void Forget(LaneOperation& operation);

  // LaneEnd
  void OnMessage(const LaneMessage& message) override;
  void OnSent(uint64_t done) override;
  void OnSendFailed(uint64_t number, fabric::CompletionStatus status) override;
  void OnFlush() override;
  void OnEnding() override;
  void OnGone() override;

  // fabric::ConnectionHandler
  void OnEstablished(absl::string_view private_data) override;

  // LaneOpening::Owner
  absl::Status ConnectWith(absl::string_view private_data) override;
  void OnNotOpened(const absl::Status& why) override;

  Owner& owner_;
  LaneOpening opening_;
  bool was_ready_ = false;
  LaneHandles handles_;
  std::deque<LaneOperation*> ready_;  // Pieces of them may be posted, in turn.
  LanePosts posts_;
  Timer connect_timer_;
  LaneRequests requests_;
  LaneAnnouncements announcements_{requests_};
  // Of PostSome(), kept for their memory.
  std::vector<fabric::SendWorkRequest> requests_to_post_;
  std::vector<LanePosts::Post> chain_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LANE_LANE_H_
