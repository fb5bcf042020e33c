#ifndef HAWSER_TRANSPORT_CONNECTION_OPENING_H_
#define HAWSER_TRANSPORT_CONNECTION_OPENING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/connection/connection_parts.h"
#include "hawser/transport/connection/port.h"
#include "hawser/transport/connection/prover.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/security.h"
#include "hawser/transport/wire/exchange.h"
#include "hawser/transport/wire/handshake.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {

// What happens to a connection until it is open: its queue pair is created; it dials, with a proof if that is
// asked for, or accepts; both handshakes are compared; what comes early is kept.
// Thread:   on the poller.
// Lifetime: owned by its Connection, from its creation until it is ready, or is destroyed.
// Failure:  calls Port::Fail(), unless it says otherwise.
class Opening final : Prover::Client {
 public:
  // `handler`: null at the side that sends the requests. `features`: that this side offers, or agrees to.
  Opening(Port& port, ConnectionParts& parts, RequestHandler* handler, uint32_t features);
  ~Opening() { Stop(); }

  // See Connection.
  static absl::Status CheckOptions(const ConnectionOptions& options);
  // What the fabric offers; of that, for a connection that answers requests or was accepted, only what
  // `hello` has. `handler`: null if this side only sends requests.
  static uint32_t FeaturesToDial(Poller& poller, const RequestHandler* handler, const Handshake& hello);
  static uint32_t FeaturesToAccept(Poller& poller, const Handshake& hello);
  // Limits `options` to what the peer uses, so that the rest costs no memory.
  static ConnectionOptions Limited(ConnectionOptions options, const Handshake& hello);
  // The status for a peer if a connection for it could not be created because of `why`.
  static absl::Status WhyNotAccepted(Poller& poller, const absl::Status& why);

  // First. `events`: what the queue pair notifies. Not OK: nothing was created.
  absl::Status CreateQueuePair(const Security& security, fabric::ConnectionHandler& events);
  // Then one of these. If Accept() fails, it says why to the peer, too.
  void Dial(const SocketAddress& address, const Handshake& hello, absl::Duration connect_timeout,
            const Security& security);
  void Accept(PeerRequest& request, const SessionToken& session);

  // At the side that dialed: `private_data` is the peer's answer. OK: the parts are agreed.
  absl::Status TakeAnswer(absl::string_view private_data);
  // Before that, a message has come.
  void KeepEarly(Lease&& buffer, uint32_t length_bytes) {
    early_.emplace_back(std::move(buffer), length_bytes);
  }
  std::vector<std::pair<Lease, uint32_t>> TakeEarly() { return std::exchange(early_, {}); }
  // The other side's handshake, once it is agreed.
  const Handshake& peer_hello() const { return peer_hello_; }

  // The connection is ready.
  void Finish();
  // Nothing follows: it is ready, has failed, or its poller ends. More calls have no effect.
  void Stop();

 private:
  // While this side dials what TLS over TCP proves.
  struct Proving {
    Handshake offer;
    std::shared_ptr<Prover> prover;
    // Once there is a proof:
    Prover::Result result;
    std::string connect;  // What was sent.
  };

  absl::Status Connect(absl::string_view hello);
  absl::Status StartToProve(const Handshake& offer, absl::Duration connect_timeout, const Security& security);
  absl::StatusOr<Handshake> DecodeAnswer(absl::string_view private_data) const;
  void StopProving();
  void NamePeer(const SocketAddress& address);
  void Agree(const Handshake& peer);
  void OnTimeout();

  // Prover::Client
  void OnProof(absl::StatusOr<Prover::Result> result) override;

  Port& port_;
  ConnectionParts& parts_;
  RequestHandler* const handler_;
  const uint32_t features_;
  Handshake peer_hello_;  // At the side that dials, until it is answered: the role that it offered.
  std::unique_ptr<Proving> proving_;
  bool proves_ = false;                            // An answer without a code is not accepted.
  std::vector<std::pair<Lease, uint32_t>> early_;  // Received before the handshake's end was known here.
  Timer timer_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_OPENING_H_
