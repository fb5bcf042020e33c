#ifndef HAWSER_TRANSPORT_CONNECTION_PROOF_DESK_H_
#define HAWSER_TRANSPORT_CONNECTION_PROOF_DESK_H_

#include <memory>
#include <set>

#include "hawser/transport/peer_request.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/wire/proof.h"

namespace hawser::transport {

// Accepts the TLS connections of clients that are about to connect over RDMA. Each has a proof in the table
// while it is up, 5 s at most. No messages cross it.
// Thread:   on the poller.
// Lifetime: outlives its connections: destroy it after Close() has returned and the poller has ended its
//           turn.
class ProofDesk {
 public:
  // `poller` outlives it.
  explicit ProofDesk(Poller& poller) : poller_(poller) {}
  ProofDesk(const ProofDesk&) = delete;
  ProofDesk& operator=(const ProofDesk&) = delete;

  Poller& poller() { return poller_; }

  // `request` is of a role that IsProof(), and over TLS. Its proof is in `proofs` from here on.
  void Accept(PeerRequest request, std::shared_ptr<ProofTable> proofs);
  // Ends all of them, and refuses further ones: a listener may be open a little longer.
  void Close();

 private:
  class Held;

  Poller& poller_;
  std::set<Held*> held_;
  bool closed_ = false;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_PROOF_DESK_H_
