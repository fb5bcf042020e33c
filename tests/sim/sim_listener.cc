#include "hawser/tests/sim/sim_listener.h"

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/tests/sim/sim_queue_pair.h"

namespace hawser::sim {

void SimConnectRequest::Reject(absl::string_view private_data) {
  Network& network = fabric_.network();
  std::lock_guard<std::mutex> lock(network.mutex());
  answered_ = true;
  const auto answer = [&network, requester = requester_, host = fabric_.host(),
                       reason = std::string(private_data)] {
    SimQueuePair* const queue_pair = network.FindQueuePair(requester);
    if (queue_pair == nullptr || !network.Reachable(host, queue_pair->host())) return;
    queue_pair->OnRejected(reason);
  };
  network.At(network.NowNs() + network.faults().event.Throw(network.dice()), answer);
}

absl::StatusOr<tls::Secret> SimConnectRequest::ExportSecret(absl::string_view label) {
  if (own_identity_ == nullptr) return ConnectRequest::ExportSecret(label);
  return SimQueuePair::SecretOf(requester_, label);
}

SimListener::~SimListener() {
  std::lock_guard<std::mutex> lock(fabric_.network().mutex());
  fabric_.network().RemoveListener(this);
}

void SimListener::OnRequest(uint32_t requester, const SocketAddress& peer, uint32_t read_depth,
                            const std::string& private_data,
                            const std::shared_ptr<const PeerIdentity>& peer_identity) {
  Network& network = fabric_.network();
  const std::string address = absl::StrCat(fabric_.ListenerPrefix(fabric_.host()), ":", address_.port());
  const std::shared_ptr<const PeerIdentity> own_identity = network.IdentityOf(tls_.get());
  if (!fabric_.carries_tls()) network.NoteConnect(private_data, /*lost=*/false);
  completion_queue_.PushNews(
      [&network, address, this] { return network.FindListener(address) == this; },
      [this, requester, peer, read_depth, private_data, peer_identity, own_identity] {
        handler_.OnConnectRequest(std::make_unique<SimConnectRequest>(
            fabric_, requester, peer, address_, read_depth, private_data, peer_identity, own_identity));
      });
}

}  // namespace hawser::sim
