#ifndef HAWSER_TRANSPORT_FABRIC_TCP_CONNECT_REQUEST_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_CONNECT_REQUEST_H_

#include <cstdint>
#include <string>
#include <utility>

#include "hawser/base/fork.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/tcp/socket.h"

namespace hawser::fabric {

// A peer that has sent kConnect and waits for the answer. Belongs to no completion queue.
class TcpConnectRequest final : public ConnectRequest {
 public:
  TcpConnectRequest(UniqueFd socket, const SocketAddress& peer_address, uint32_t read_depth, uint8_t flags,
                    absl::string_view private_data)
      : socket_(std::move(socket)),
        peer_address_(peer_address),
        read_depth_(read_depth),
        flags_(flags),
        private_data_(private_data) {}
  ~TcpConnectRequest() override { Reject({}); }

  absl::string_view private_data() const override { return private_data_; }
  SocketAddress peer_address() const override { return peer_address_; }
  void Reject(absl::string_view private_data) override;

  uint32_t read_depth() const override { return read_depth_; }
  // Of its greeting.
  uint8_t flags() const { return flags_; }
  // For the queue pair that accepts it. It cannot be rejected after that.
  UniqueFd TakeSocket() { return std::move(socket_); }

 private:
  const ForkMark fork_mark_;
  UniqueFd socket_;
  const SocketAddress peer_address_;
  const uint32_t read_depth_;
  const uint8_t flags_;
  const std::string private_data_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_CONNECT_REQUEST_H_
