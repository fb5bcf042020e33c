#include "hawser/transport/acceptor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/violation.h"
#include "hawser/transport/peer_log.h"

namespace hawser::transport {

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(Poller& poller,
                                                           const fabric::SocketAddress& address,
                                                           Handler& handler) {
  poller.AssertHeld();
  std::unique_ptr<Acceptor> acceptor(new Acceptor(poller, handler));
  absl::StatusOr<std::unique_ptr<fabric::Listener>> listener =
      poller.fabric().Listen(poller.completion_queue(), address, *acceptor);
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
  if (hello.ok()) return handler_.OnPeer(std::move(request), *hello);
  Reject(*request, hello.status());
  const fabric::SocketAddress peer = request->peer_address();
  OnBadPeer(peer, ViolationError(Violation::kHandshake,
                                 absl::StrCat("peer ", poller_.fabric().scheme(), "://", peer.ToString(),
                                              " was rejected: ", hello.status().message())));
}

void Acceptor::OnBadPeer(const fabric::SocketAddress& peer, const absl::Status& why) {
  poller_.violations().Record(ViolationOf(why).value_or(Violation::kGreeting), peer, why.message());
}

void Reject(fabric::ConnectRequest& request, const absl::Status& why) {
  request.Reject(EncodeRejection(why));
}

void Refuse(fabric::ConnectRequest& request, const absl::Status& why) {
  Reject(request, why);
  const fabric::SocketAddress peer = request.peer_address();
  PeerLog::Process().Line(LogSeverity::kWarning, peer,
                          absl::StrCat("the connection of ", peer.ToString(),
                                       " was refused: ", absl::string_view(why.message())));
}

}  // namespace hawser::transport
