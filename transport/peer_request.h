#ifndef HAWSER_TRANSPORT_PEER_REQUEST_H_
#define HAWSER_TRANSPORT_PEER_REQUEST_H_

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "hawser/base/socket_address.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/security.h"
#include "hawser/transport/wire/handshake.h"
#include "hawser/transport/wire/proof.h"

namespace hawser::transport {

// A peer whose handshake is good, and which waits for an answer: Connection::Accept(), LaneServer::Accept(),
// Reject() or Refuse(), one of them, once.
// Thread:   any, one at a time; Accept() needs the poller of the new connection.
// Lifetime: destroyed without an answer, the peer is turned away without a reason.
class PeerRequest {
 public:
  PeerRequest(std::unique_ptr<fabric::ConnectRequest> request, const Handshake& hello)
      : request_(std::move(request)), hello_(hello) {}
  // A peer that has proved who it is.
  PeerRequest(std::unique_ptr<fabric::ConnectRequest> request, Proven proven)
      : request_(std::move(request)), hello_(proven.hello), proven_(std::move(proven)) {}
  PeerRequest(PeerRequest&&) = default;
  PeerRequest& operator=(PeerRequest&&) = default;

  // What the peer said of itself.
  const Handshake& hello() const { return hello_; }
  SocketAddress peer_address() const { return request_->peer_address(); }
  // Who the peer is, as TLS has found, or as it has proved; not authenticated if the Acceptor asks for
  // neither. Never null.
  std::shared_ptr<const PeerIdentity> peer_identity() const {
    return OrNotAuthenticated(proven_.has_value() ? proven_->identity : request_->peer_identity());
  }

  // The peer's Dial() fails with `why`.
  void Reject(const absl::Status& why);
  // Likewise, and the log says so.
  void Refuse(const absl::Status& why);

 private:
  friend class LaneServer;
  friend class Opening;
  friend class ProofDesk;

  std::unique_ptr<fabric::ConnectRequest> request_;
  Handshake hello_;
  std::optional<Proven> proven_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_PEER_REQUEST_H_
