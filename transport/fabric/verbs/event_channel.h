#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_EVENT_CHANNEL_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_EVENT_CHANNEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/base/socket_address.h"
#include "hawser/transport/fabric/verbs/device.h"

namespace hawser::fabric {

// A copy of an event of the connection manager. The event itself must be acknowledged before its rdma_cm_id
// can be destroyed, which a handler may want to do.
struct VerbsCmEvent {
  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_RESOLVED;
  int status = 0;
  void* context = nullptr;        // Of the id; of RDMA_CM_EVENT_CONNECT_REQUEST: of the one that listens.
  ibv_context* device = nullptr;  // That its id was bound to.
  rdma_cm_id* id = nullptr;  // Of RDMA_CM_EVENT_CONNECT_REQUEST: the new one. Otherwise only to compare with.
  uint8_t initiator_depth = 0;      // READs that this side may have outstanding,
  uint8_t responder_resources = 0;  // and those that the peer may have.
  std::string private_data;
};

// An rdma_event_channel, for the events of a completion queue's connections. Shared with the connect requests
// that it has brought, which may outlive the completion queue.
class VerbsEventChannel {
 public:
  static absl::StatusOr<std::shared_ptr<VerbsEventChannel>> Create(std::shared_ptr<VerbsDevice> device);
  ~VerbsEventChannel();

  VerbsDevice& device() const { return *device_; }
  rdma_event_channel* get() const { return channel_; }
  int fd() const { return channel_->fd; }

  // The next event, acknowledged; empty: there is none. Never blocks.
  std::optional<VerbsCmEvent> Next();

 private:
  VerbsEventChannel(std::shared_ptr<VerbsDevice> device, rdma_event_channel* channel)
      : device_(std::move(device)), channel_(channel) {}

  const std::shared_ptr<VerbsDevice> device_;
  rdma_event_channel* const channel_;
};

// What its events say of whom they are for. From any thread, while another takes an event of the id.
void SetContext(rdma_cm_id& id, void* context);

// Of a resolved or bound id.
SocketAddress LocalAddress(const rdma_cm_id& id);
SocketAddress PeerAddress(const rdma_cm_id& id);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_EVENT_CHANNEL_H_
