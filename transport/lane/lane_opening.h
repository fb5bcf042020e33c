#ifndef HAWSER_TRANSPORT_LANE_LANE_OPENING_H_
#define HAWSER_TRANSPORT_LANE_LANE_OPENING_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/base/socket_address.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/transport/connection/prover.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/security.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::transport {

// Where a lane leads.
struct LaneTarget {
  SocketAddress address;
  SocketAddress local_address;  // See fabric::QueuePairOptions.
  SessionToken session = {};
  Security security;
  // Whom the session has reached. Another identity is refused.
  std::shared_ptr<const PeerIdentity> peer;
};

// How a lane comes up at the side that dials: the handshake and, over RDMA with credentials, the proof.
// Thread:   on the poller.
// Lifetime: part of its Lane.
class LaneOpening final : Prover::Client {
 public:
  class Owner {
   public:
    // Has the queue pair connect with this private data.
    virtual absl::Status ConnectWith(absl::string_view private_data) = 0;
    // There is no proof.
    virtual void OnNotOpened(const absl::Status& why) = 0;

   protected:
    ~Owner() = default;
  };

  LaneOpening(Poller& poller, const LaneTarget& target, Owner& owner);
  ~LaneOpening() { Stop(); }

  const LaneTarget& target() const { return target_; }
  // What the queue pair needs for this.
  void SetOptions(fabric::QueuePairOptions& options) const;
  // Not OK: it did not start, and the owner is not called.
  absl::Status Start(absl::Duration timeout);
  // It is established: `private_data` is the answer, and `identity` whom TLS has found. Not OK: this is not
  // the peer.
  absl::Status TakeAnswer(absl::string_view private_data, std::shared_ptr<const PeerIdentity> identity);
  // What the owner says of its atomics. None until there is an answer.
  fabric::Atomics owner_atomics() const { return owner_atomics_; }
  // Whether the owner knows LaneMessage::Kind::kPing.
  bool owner_knows_ping() const { return owner_knows_ping_; }
  // Whether it counts WRITEs.
  bool owner_counts() const { return owner_counts_; }
  // Nothing follows. More calls have no effect.
  void Stop();

 private:
  bool proves() const { return target_.security.prove_over != nullptr; }
  // Prover::Client
  void OnProof(absl::StatusOr<Prover::Result> result) override;

  Poller& poller_;
  const LaneTarget target_;
  Owner& owner_;
  Handshake offer_;
  fabric::Atomics owner_atomics_ = fabric::Atomics::kNone;
  bool owner_knows_ping_ = false;
  bool owner_counts_ = false;
  std::shared_ptr<Prover> prover_;  // Until the lane is up, where there is no TLS.
  Prover::Result proof_;
  std::string connect_;  // What was sent with the proof.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LANE_LANE_OPENING_H_
