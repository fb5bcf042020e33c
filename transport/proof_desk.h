#ifndef HAWSER_TRANSPORT_PROOF_DESK_H_
#define HAWSER_TRANSPORT_PROOF_DESK_H_

#include <memory>
#include <set>

#include "hawser/transport/peer_request.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/proof.h"

namespace hawser::transport {

// Accepts the TLS connections that prove who connects over RDMA. Each has a proof in the table as long as it is up, for 5 s
// at most. Nothing else crosses it.
// Thread:   on the poller.
// Lifetime: until Close() has returned and the poller has ended its turn.
class ProofDesk {
 public:
  // Both outlive it.
  ProofDesk(Poller& poller, std::shared_ptr<ProofTable> proofs)
      : poller_(poller), proofs_(std::move(proofs)) {}
  ProofDesk(const ProofDesk&) = delete;
  ProofDesk& operator=(const ProofDesk&) = delete;

  Poller& poller() { return poller_; }

  // `request` is of a role that IsProof(), and over TLS.
  void Accept(PeerRequest request);
  // Ends all of them.
  void Close();

 private:
  class Held;

  Poller& poller_;
  const std::shared_ptr<ProofTable> proofs_;
  std::set<Held*> held_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_PROOF_DESK_H_
