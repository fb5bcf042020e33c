#ifndef HAWSER_TESTS_SIM_SIM_LISTENER_H_
#define HAWSER_TESTS_SIM_SIM_LISTENER_H_

#include <memory>
#include <string>
#include <utility>

#include "hawser/tests/sim/sim_completion_queue.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::sim {

class SimConnectRequest final : public fabric::ConnectRequest {
 public:
  SimConnectRequest(SimFabric& fabric, uint32_t requester, SocketAddress peer, SocketAddress local,
                    uint32_t read_depth, std::string private_data,
                    std::shared_ptr<const PeerIdentity> peer_identity,
                    std::shared_ptr<const PeerIdentity> own_identity)
      : fabric_(fabric),
        requester_(requester),
        peer_(peer),
        local_(local),
        read_depth_(read_depth),
        private_data_(std::move(private_data)),
        peer_identity_(std::move(peer_identity)),
        own_identity_(std::move(own_identity)) {}
  ~SimConnectRequest() override {
    if (!answered_) Reject("");
  }

  absl::string_view private_data() const override { return private_data_; }
  SocketAddress peer_address() const override { return peer_; }
  SocketAddress local_address() const override { return local_; }
  std::shared_ptr<const PeerIdentity> peer_identity() const override { return peer_identity_; }
  absl::StatusOr<tls::Secret> ExportSecret(absl::string_view label) override;
  void Reject(absl::string_view private_data) override;

  // ---- For the queue pair that accepts.
  uint32_t requester() const { return requester_; }
  uint32_t read_depth() const override { return read_depth_; }
  void set_answered() { answered_ = true; }
  // Null: there is no TLS.
  const std::shared_ptr<const PeerIdentity>& own_identity() const { return own_identity_; }

 private:
  SimFabric& fabric_;
  const uint32_t requester_;
  const SocketAddress peer_;
  const SocketAddress local_;
  const uint32_t read_depth_;
  const std::string private_data_;
  const std::shared_ptr<const PeerIdentity> peer_identity_;
  const std::shared_ptr<const PeerIdentity> own_identity_;
  bool answered_ = false;
};

class SimListener final : public fabric::Listener {
 public:
  SimListener(SimFabric& fabric, SimCompletionQueue& completion_queue, fabric::ListenHandler& handler,
              std::shared_ptr<tls::Context> tls)
      : fabric_(fabric), completion_queue_(completion_queue), handler_(handler), tls_(std::move(tls)) {}
  ~SimListener() override;

  SocketAddress address() const override { return address_; }
  void set_address(const SocketAddress& address) { address_ = address; }

  // Locked.
  void OnRequest(uint32_t requester, const SocketAddress& peer, uint32_t read_depth,
                 const std::string& private_data, const std::shared_ptr<const PeerIdentity>& peer_identity);
  bool has_tls() const { return tls_ != nullptr; }

 private:
  SimFabric& fabric_;
  SimCompletionQueue& completion_queue_;
  fabric::ListenHandler& handler_;
  const std::shared_ptr<tls::Context> tls_;
  SocketAddress address_;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_SIM_LISTENER_H_
