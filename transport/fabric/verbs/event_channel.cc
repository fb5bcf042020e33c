#include "hawser/transport/fabric/verbs/event_channel.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "hawser/transport/fabric/verbs/errors.h"

namespace hawser::fabric {

absl::StatusOr<std::shared_ptr<VerbsEventChannel>> VerbsEventChannel::Create(
    std::shared_ptr<VerbsDevice> device) {
  rdma_event_channel* const channel = device->verbs().rdma_create_event_channel();
  if (channel == nullptr) {
    return VerbsError("create a completion queue", "rdma_create_event_channel()", errno,
                      "is /dev/infiniband/rdma_cm there (module rdma_ucm), and may this user open it?");
  }
  fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  return std::shared_ptr<VerbsEventChannel>(new VerbsEventChannel(std::move(device), channel));
}

VerbsEventChannel::~VerbsEventChannel() {
  if (!device_->in_forked_child()) device_->verbs().rdma_destroy_event_channel(channel_);
}

std::optional<VerbsCmEvent> VerbsEventChannel::Next() {
  rdma_cm_event* event = nullptr;
  if (device_->verbs().rdma_get_cm_event(channel_, &event) != 0) return std::nullopt;
  VerbsCmEvent copy;
  copy.type = event->event;
  copy.status = event->status;
  copy.id = event->id;
  copy.device = event->id->verbs;
  copy.context = std::atomic_ref(event->id->context).load(std::memory_order_relaxed);
  switch (event->event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      copy.context = event->listen_id->context;
      event->id->context = nullptr;  // It was inherited from the listener. Accept() sets it.
      [[fallthrough]];
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_REJECTED:
      copy.initiator_depth = event->param.conn.initiator_depth;
      copy.responder_resources = event->param.conn.responder_resources;
      if (event->param.conn.private_data != nullptr) {
        copy.private_data.assign(static_cast<const char*>(event->param.conn.private_data),
                                 event->param.conn.private_data_len);
      }
      break;
    default:
      break;
  }
  device_->verbs().rdma_ack_cm_event(event);
  return copy;
}

void SetContext(rdma_cm_id& id, void* context) {
  std::atomic_ref(id.context).store(context, std::memory_order_relaxed);
}

uint32_t AgreedReadDepth(uint32_t own, const VerbsCmEvent& event, bool iwarp) {
  uint32_t agreed = own;
  for (const uint32_t depth : {event.initiator_depth, event.responder_resources}) {
    if (depth != 0 || !iwarp) agreed = std::min(agreed, depth);
  }
  return agreed;
}

SocketAddress LocalAddress(const rdma_cm_id& id) {
  return SocketAddress(&id.route.addr.src_addr, sizeof(id.route.addr.src_storage));
}

SocketAddress PeerAddress(const rdma_cm_id& id) {
  return SocketAddress(&id.route.addr.dst_addr, sizeof(id.route.addr.dst_storage));
}

}  // namespace hawser::fabric
