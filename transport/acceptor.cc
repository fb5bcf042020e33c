#include "hawser/transport/acceptor.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/violation.h"
#include "hawser/transport/log/log.h"
#include "hawser/transport/log/peer_log.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::transport {

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(Poller& poller, const SocketAddress& address,
                                                           Handler& handler,
                                                           std::shared_ptr<tls::Context> tls,
                                                           std::shared_ptr<ProofTable> proofs,
                                                           uint16_t proof_port) {
  poller.AssertHeld();
  if (tls != nullptr) {
    if (absl::Status carries = CheckCarriesTls(poller.fabric()); !carries.ok()) return carries;
  }
  std::unique_ptr<Acceptor> acceptor(new Acceptor(poller, handler, std::move(proofs), proof_port));
  absl::StatusOr<std::unique_ptr<fabric::Listener>> listener =
      poller.fabric().Listen(poller.completion_queue(), address, *acceptor, {.tls = std::move(tls)});
  if (!listener.ok()) return listener.status();
  acceptor->listener_ = *std::move(listener);
  if (const absl::Status less = acceptor->listener_->shortfall(); !less.ok()) {
    Log(LogSeverity::kWarning, less.message());
  }
  return acceptor;
}

// The request is asked only for what the listener does not know. The port mapper of iWARP (iwpmd) may give it
// a port that was not dialed, and over InfiniBand and RoCE its address is what the peer has written.
SocketAddress Acceptor::DialedBy(const fabric::ConnectRequest& request) const {
  SocketAddress dialed = address();
  if (dialed.is_unspecified()) dialed = request.local_address();
  dialed.set_port(address().port());
  return dialed;
}

absl::StatusOr<PeerRequest> Acceptor::Check(const absl::StatusOr<Handshake>& hello,
                                            std::unique_ptr<fabric::ConnectRequest>& request) {
  const auto refusal = [](const absl::Status& why) {
    absl::Status refused = why;
    SetViolation(refused, Violation::kHandshake);
    return refused;
  };
  if (!hello.ok()) return refusal(hello.status());
  if (request->read_depth() == 0) {
    return refusal(absl::InvalidArgumentError(
        "the peer offers a READ depth of 0: without READs no large message can pass"));
  }
  if (IsProof(hello->role) && request->peer_identity() == nullptr) {
    return refusal(absl::UnauthenticatedError("a connection is proved over TLS, and this one has none"));
  }
  if (proofs_ != nullptr) {
    absl::StatusOr<Proven> proven =
        proofs_->Use(*hello, request->private_data(), request->peer_address(), DialedBy(*request));
    if (!proven.ok()) return proven.status();
    return PeerRequest(std::move(request), *std::move(proven));
  }
  if ((hello->features & kFeatureProof) != 0) {
    return refusal(
        absl::UnauthenticatedError("this server takes no proof of who connects: it has no credentials here"));
  }
  return PeerRequest(std::move(request), *hello);
}

// As a proof's role says over TLS, so it asks here, where there is no TLS. Nothing is kept for it, and no
// violation counted.
bool Acceptor::ReturnProofPort(const Handshake& hello, fabric::ConnectRequest& request) {
  if (proofs_ == nullptr || !IsProof(hello.role) || (hello.features & kFeatureProof) != 0) return false;
  const uint16_t port = proof_port_ != 0 ? proof_port_ : address().port();
  request.Reject(EncodeRejection(
      absl::FailedPreconditionError(absl::StrCat("credentials are shown at TCP port ", port)), port));
  return true;
}

void Acceptor::OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) {
  const absl::StatusOr<Handshake> hello = DecodeConnect(request->private_data());
  if (hello.ok() && ReturnProofPort(*hello, *request)) return;
  absl::StatusOr<PeerRequest> checked = Check(hello, request);
  if (checked.ok()) return handler_.OnPeer(*std::move(checked));
  const absl::Status& why = checked.status();
  request->Reject(EncodeRejection(why));
  const SocketAddress peer = request->peer_address();
  const std::string line = absl::StrCat("peer ", poller_.fabric().scheme(), "://", peer.ToString(),
                                        " was rejected: ", absl::string_view(why.message()));
  const std::optional<Violation> violation = ViolationOf(why);
  // Otherwise it may be an honest peer that is late.
  if (!violation.has_value()) return PeerLog::Process().Line(LogSeverity::kWarning, peer, line);
  OnBadPeer(peer, ViolationError(*violation, line));
}

void Acceptor::OnBadPeer(const SocketAddress& peer, const absl::Status& why) {
  poller_.violations().Record(ViolationOf(why).value_or(Violation::kGreeting), peer, why.message());
}

}  // namespace hawser::transport
