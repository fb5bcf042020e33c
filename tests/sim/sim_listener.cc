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

SimListener::~SimListener() {
  std::lock_guard<std::mutex> lock(fabric_.network().mutex());
  fabric_.network().RemoveListener(this);
}

void SimListener::OnRequest(uint32_t requester, const SocketAddress& peer, uint32_t read_depth,
                            const std::string& private_data) {
  Network& network = fabric_.network();
  const std::string address = absl::StrCat(fabric_.host(), ":", address_.port());
  completion_queue_.PushNews([&network, address, this] { return network.FindListener(address) == this; },
                             [this, requester, peer, read_depth, private_data] {
                               handler_.OnConnectRequest(std::make_unique<SimConnectRequest>(
                                   fabric_, requester, peer, address_, read_depth, private_data));
                             });
}

}  // namespace hawser::sim
