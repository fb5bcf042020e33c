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

// The READ depth of a connection, in each direction: the least of `own`, which this side's device can do, and
// of the two depths in `event`, which is the peer's request or answer.
//
// On iWARP a depth of 0 in an event means that the driver does not say it: erdma leaves both out of the
// answer (erdma_cm_upcall()), irdma and i40iw leave `ord` out of the request (irdma_send_cm_event()). What
// the peer can do is not needed for safety: the device holds back the READs beyond what it has agreed with
// the other device in the MPA handshake (irdma, cxgb4, qedr, siw: RFC 6581), or beyond its fixed depth, which
// is the same on both sides, as erdma connects to erdma only. On InfiniBand and RoCE the two depths are those
// of the peer's message, and 0 means no READs.
uint32_t AgreedReadDepth(uint32_t own, const VerbsCmEvent& event, bool iwarp);

// The addresses of a resolved or bound id.
SocketAddress LocalAddress(const rdma_cm_id& id);
SocketAddress PeerAddress(const rdma_cm_id& id);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_EVENT_CHANNEL_H_
