#ifndef HAWSER_TRANSPORT_FABRIC_TCP_CONNECT_REQUEST_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_CONNECT_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "hawser/base/fork.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/tcp/socket.h"
#include "hawser/transport/fabric/tcp/stream.h"

namespace hawser::fabric {

// A peer that has sent kConnect and waits for the answer. Belongs to no completion queue.
class TcpConnectRequest final : public ConnectRequest {
 public:
  TcpConnectRequest(Stream stream, const SocketAddress& peer_address, uint32_t read_depth, uint8_t flags,
                    absl::string_view private_data)
      : stream_(std::move(stream)),
        peer_address_(peer_address),
        read_depth_(read_depth),
        flags_(flags),
        peer_identity_(stream_.tls() == nullptr ? nullptr : stream_.tls()->peer_identity()),
        private_data_(private_data) {}
  ~TcpConnectRequest() override { Reject({}); }

  absl::string_view private_data() const override { return private_data_; }
  SocketAddress peer_address() const override { return peer_address_; }
  // Asks the kernel: few are interested.
  SocketAddress local_address() const override { return LocalAddress(stream_.fd()); }
  std::shared_ptr<const PeerIdentity> peer_identity() const override { return peer_identity_; }
  absl::StatusOr<tls::Secret> ExportSecret(absl::string_view label) override {
    return stream_.tls() == nullptr ? ConnectRequest::ExportSecret(label)
                                    : stream_.tls()->ExportSecret(label);
  }
  void Reject(absl::string_view private_data) override;

  uint32_t read_depth() const override { return read_depth_; }
  // The flags of its greeting.
  uint8_t flags() const { return flags_; }
  // For the queue pair that accepts it. It cannot be rejected after that.
  Stream TakeStream() { return std::move(stream_); }
  // The flags of the greeting that rejects it.
  void set_reject_flags(uint8_t flags) { reject_flags_ = flags; }

 private:
  const ForkMark fork_mark_;
  Stream stream_;
  const SocketAddress peer_address_;
  const uint32_t read_depth_;
  const uint8_t flags_;
  uint8_t reject_flags_ = 0;
  const std::shared_ptr<const PeerIdentity> peer_identity_;
  const std::string private_data_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_CONNECT_REQUEST_H_
