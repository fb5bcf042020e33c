#ifndef HAWSER_TRANSPORT_ACCEPTOR_H_
#define HAWSER_TRANSPORT_ACCEPTOR_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/security.h"
#include "hawser/transport/wire/proof.h"

namespace hawser::transport {

// Listens on one address and checks each peer's handshake before allocating anything for it. It rejects a
// peer of another version or protocol, with the reason.
// Thread:   on the poller that it was made with; destroy it there.
class Acceptor final : fabric::ListenHandler {
 public:
  class Handler {
   public:
    virtual void OnPeer(PeerRequest request) = 0;

   protected:
    ~Handler() = default;
  };

  // `tls`: each peer must complete a TLS handshake before `handler` gets it. `proofs`: for a fabric without
  // TLS, each peer must prove its identity with one of these; the rejection of a peer that asks names TCP
  // port `proof_port` of the same address (0: at the port of this listener). Both null: plain text, and no
  // peer is authenticated.
  // Unimplemented: `tls` is given, and the fabric carries none. Other errors: as of fabric::Fabric::Listen().
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(Poller& poller, const SocketAddress& address,
                                                          Handler& handler,
                                                          std::shared_ptr<tls::Context> tls = nullptr,
                                                          std::shared_ptr<ProofTable> proofs = nullptr,
                                                          uint16_t proof_port = 0);

  SocketAddress address() const { return listener_->address(); }

 private:
  Acceptor(Poller& poller, Handler& handler, std::shared_ptr<ProofTable> proofs, uint16_t proof_port)
      : poller_(poller), handler_(handler), proofs_(std::move(proofs)), proof_port_(proof_port) {}
  // True: it only wants to know where it proves who it is, and has the answer.
  bool ReturnProofPort(const Handshake& hello, fabric::ConnectRequest& request);
  // Where the peer of `request` has dialed.
  SocketAddress DialedBy(const fabric::ConnectRequest& request) const;
  // The peer that may be brought to the handler. `request` is moved from only on OK.
  absl::StatusOr<PeerRequest> Check(const absl::StatusOr<Handshake>& hello,
                                    std::unique_ptr<fabric::ConnectRequest>& request);
  void OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) override;
  void OnBadPeer(const SocketAddress& peer, const absl::Status& why) override;

  Poller& poller_;
  Handler& handler_;
  const std::shared_ptr<ProofTable> proofs_;
  const uint16_t proof_port_;
  std::unique_ptr<fabric::Listener> listener_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_ACCEPTOR_H_
