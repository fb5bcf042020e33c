#include "hawser/transport/fabric/verbs/sentinel.h"

#include <utility>

namespace hawser::fabric {

void VerbsSentinel::Bind(VerbsEventChannel& channel, const SocketAddress& local) {
  if (id_ != nullptr) return;
  // No source has the context null, so its events reach none.
  if (verbs_.rdma_create_id(channel.get(), &id_, nullptr, RDMA_PS_TCP) != 0) {
    id_ = nullptr;
    return;
  }
  SocketAddress any_port = local;
  any_port.set_port(0);
  if (verbs_.rdma_bind_addr(id_, const_cast<sockaddr*>(any_port.get())) != 0) Destroy();
}

void VerbsSentinel::Destroy() {
  if (id_ != nullptr) verbs_.rdma_destroy_id(std::exchange(id_, nullptr));
}

}  // namespace hawser::fabric
