#ifndef HAWSER_TRANSPORT_LANE_LANE_SERVER_H_
#define HAWSER_TRANSPORT_LANE_LANE_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/base/socket_address.h"
#include "hawser/base/violation.h"
#include "hawser/transport/lane/arrivals.h"
#include "hawser/transport/lane/lane_end.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/lane/lent_memory.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/runtime.h"

namespace hawser::transport {

// The owner's end of a lane: checks the tickets that the peer shows, grants the memory on this queue pair and
// on no other, and ends the grants again. The operations themselves it does not see. It counts the WRITEs
// that the peer says have arrived: a SEND is received once all that was posted before it on the queue pair
// is done and visible (fabric.h).
// Thread:   on the poller.
// Lifetime: see LaneEnd.
class LaneServer final : public LaneEnd, Lender {
 public:
  // Grants that a peer may have at once.
  static constexpr size_t kHandlesMax = 128;
  // Its receives and sends take so much of the pool.
  static constexpr size_t kLeasedBytes = 2 * kLaneReceives * kLaneMessageMax;

  class Owner {
   public:
    virtual ~Owner() = default;
    // The memory that `ticket` gives, registered with the fabric of this lane; or why it gives none.
    virtual absl::StatusOr<std::shared_ptr<LentMemory>> OnTicket(const LaneTicket& ticket) = 0;
    // Counts the WRITEs of that, which allows kLaneCounted, and which OnTicket() has found good. Never null.
    virtual absl::StatusOr<std::shared_ptr<Arrivals>> OnCountedTicket(const LaneTicket& /*ticket*/) {
      return absl::UnimplementedError("the owner counts no WRITEs");
    }
    // The peer is to have one grant more, until it is given back. ResourceExhausted: all lanes together have
    // too many.
    virtual absl::Status TakeGrant() { return absl::OkStatus(); }
    virtual void GiveBackGrants(size_t /*count*/) {}
    // Once, the last call: no peer reaches any memory over `lane`. It is destroyed after this.
    virtual void OnLaneGone(LaneServer& lane) = 0;
  };

  // `poller` is of `runtime`. Not OK: `request` was rejected with the reason, and the owner is not called.
  static absl::StatusOr<LaneServer*> Accept(std::shared_ptr<Runtime> runtime, Poller& poller,
                                            PeerRequest request, std::shared_ptr<Owner> owner);
  ~LaneServer() override;

 private:
  enum class Stage : uint8_t { kGranted, kRevokeSent, kEnding };
  struct Handle {
    std::shared_ptr<LentMemory> memory;
    std::shared_ptr<Arrivals> arrivals;  // Null: its WRITEs are not counted.
    uint32_t rkey = 0;
    Stage stage = Stage::kGranted;
    int64_t close_by_ns = kNever;  // By which the peer closes it. Set when it is revoked.
  };

  LaneServer(std::shared_ptr<Runtime> runtime, Poller& poller, std::shared_ptr<Owner> owner);

  void Open(const LaneMessage& message);
  absl::StatusOr<LaneMessage> Grant(const LaneMessage& message);
  void Close(uint32_t handle);
  void Count(const LaneMessage& message);
  void AskToClose();
  void SetRevokeTimer();
  void OnRevokeTimer();
  void LeaveAll();

  // Lender: asks the peer to finish what is in flight, and ends the lane if it does not answer in time.
  void Revoke(const LentMemory& memory) override;

  // LaneEnd
  void OnMessage(const LaneMessage& message) override;
  void OnRevoked(uint32_t number) override;
  void OnViolation(Violation violation, absl::string_view text) override;
  void OnEnding() override;
  void OnGone() override;

  // fabric::ConnectionHandler
  void OnEstablished(absl::string_view private_data) override;

  const std::shared_ptr<Owner> owner_;
  SocketAddress peer_address_;
  const std::shared_ptr<LendingLane> as_lender_;
  absl::flat_hash_map<uint32_t, Handle> handles_;
  size_t revoking_ = 0;             // Of them, in kEnding.
  std::deque<uint32_t> to_revoke_;  // For which no kRevoke was sent yet.
  uint32_t revokes_sent_ = 0;       // Handles in kRevokeSent.
  Timer revoke_timer_;              // The peer should have closed the one that is due first.
  Timer accept_timer_;
  bool pinged_ = false;
  bool peer_counts_ = false;  // It knows kArrived.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LANE_LANE_SERVER_H_
