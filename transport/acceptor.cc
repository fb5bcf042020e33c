#include "hawser/transport/acceptor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/violation.h"
#include "hawser/transport/handshake.h"

namespace hawser::transport {

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(Poller& poller, const SocketAddress& address,
                                                           Handler& handler,
                                                           std::shared_ptr<tls::Context> tls) {
  poller.AssertHeld();
  if (tls != nullptr) {
    if (absl::Status carries = CheckCarriesTls(poller.fabric()); !carries.ok()) return carries;
  }
  std::unique_ptr<Acceptor> acceptor(new Acceptor(poller, handler));
  absl::StatusOr<std::unique_ptr<fabric::Listener>> listener =
      poller.fabric().Listen(poller.completion_queue(), address, *acceptor, {.tls = std::move(tls)});
  if (!listener.ok()) return listener.status();
  acceptor->listener_ = *std::move(listener);
  return acceptor;
}

void Acceptor::OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) {
  absl::StatusOr<Handshake> hello = DecodeConnect(request->private_data());
  if (hello.ok() && request->read_depth() == 0) {
    hello = absl::InvalidArgumentError(
        "the peer offers a READ depth of 0: without READs no large message can pass");
  }
  if (hello.ok()) return handler_.OnPeer(PeerRequest(std::move(request), *hello));
  request->Reject(EncodeRejection(hello.status()));
  const SocketAddress peer = request->peer_address();
  OnBadPeer(peer, ViolationError(Violation::kHandshake,
                                 absl::StrCat("peer ", poller_.fabric().scheme(), "://", peer.ToString(),
                                              " was rejected: ", hello.status().message())));
}

void Acceptor::OnBadPeer(const SocketAddress& peer, const absl::Status& why) {
  poller_.violations().Record(ViolationOf(why).value_or(Violation::kGreeting), peer, why.message());
}

}  // namespace hawser::transport
