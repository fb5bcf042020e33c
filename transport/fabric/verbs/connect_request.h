#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_CONNECT_REQUEST_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_CONNECT_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/event_channel.h"

namespace hawser::fabric {

// An rdma_cm_id that RDMA_CM_EVENT_CONNECT_REQUEST brought. Its events still arrive at the listener's
// channel, where nothing takes them: should the peer go away, accepting fails.
class VerbsConnectRequest final : public ConnectRequest {
 public:
  VerbsConnectRequest(std::shared_ptr<VerbsEventChannel> channel, VerbsCmEvent&& event)
      : channel_(std::move(channel)), event_(std::move(event)), peer_address_(PeerAddress(*event_.id)) {}
  ~VerbsConnectRequest() override { Reject({}); }

  absl::string_view private_data() const override { return event_.private_data; }
  SocketAddress peer_address() const override { return peer_address_; }
  SocketAddress local_address() const override {
    return event_.id == nullptr ? SocketAddress() : LocalAddress(*event_.id);
  }
  void Reject(absl::string_view private_data) override;

  uint32_t read_depth() const override { return AgreedReadDepth(channel_->device().read_depth_max()); }
  // What a queue pair that asks for `own` gets.
  uint32_t AgreedReadDepth(uint32_t own) const {
    return fabric::AgreedReadDepth(own, event_, channel_->device().iwarp());
  }
  // Its events arrive there, so it lives as long as the id is not moved to another one.
  const std::shared_ptr<VerbsEventChannel>& channel() const { return channel_; }

  // Null: rejected, or taken.
  const rdma_cm_id* id() const { return event_.id; }
  // For the queue pair that accepts it. It cannot be rejected here after that.
  rdma_cm_id* TakeId() { return std::exchange(event_.id, nullptr); }

 private:
  const std::shared_ptr<VerbsEventChannel> channel_;
  VerbsCmEvent event_;
  const SocketAddress peer_address_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_CONNECT_REQUEST_H_
