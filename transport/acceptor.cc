#include "hawser/transport/acceptor.h"

#include <utility>

namespace hawser::transport {

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(Poller& poller,
                                                           const fabric::SocketAddress& address,
                                                           Handler& handler) {
  poller.AssertHeld();
  std::unique_ptr<Acceptor> acceptor(new Acceptor(handler));
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
  if (!hello.ok()) return Reject(*request, hello.status());
  handler_.OnPeer(std::move(request), *hello);
}

void Reject(fabric::ConnectRequest& request, const absl::Status& why) {
  request.Reject(EncodeRejection(why));
}

}  // namespace hawser::transport
