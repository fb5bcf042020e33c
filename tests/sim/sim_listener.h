#ifndef HAWSER_TESTS_SIM_SIM_LISTENER_H_
#define HAWSER_TESTS_SIM_SIM_LISTENER_H_

#include <memory>
#include <string>

#include "hawser/tests/sim/sim_completion_queue.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::sim {

class SimConnectRequest final : public fabric::ConnectRequest {
 public:
  SimConnectRequest(SimFabric& fabric, uint32_t requester, SocketAddress peer, SocketAddress local,
                    uint32_t read_depth, std::string private_data)
      : fabric_(fabric),
        requester_(requester),
        peer_(peer),
        local_(local),
        read_depth_(read_depth),
        private_data_(std::move(private_data)) {}
  ~SimConnectRequest() override {
    if (!answered_) Reject("");
  }

  absl::string_view private_data() const override { return private_data_; }
  SocketAddress peer_address() const override { return peer_; }
  void Reject(absl::string_view private_data) override;

  // ---- For the queue pair that accepts.
  uint32_t requester() const { return requester_; }
  const SocketAddress& local_address() const { return local_; }
  uint32_t read_depth() const override { return read_depth_; }
  void set_answered() { answered_ = true; }

 private:
  SimFabric& fabric_;
  const uint32_t requester_;
  const SocketAddress peer_;
  const SocketAddress local_;
  const uint32_t read_depth_;
  const std::string private_data_;
  bool answered_ = false;
};

class SimListener final : public fabric::Listener {
 public:
  SimListener(SimFabric& fabric, SimCompletionQueue& completion_queue, fabric::ListenHandler& handler)
      : fabric_(fabric), completion_queue_(completion_queue), handler_(handler) {}
  ~SimListener() override;

  SocketAddress address() const override { return address_; }
  void set_address(const SocketAddress& address) { address_ = address; }

  // Locked.
  void OnRequest(uint32_t requester, const SocketAddress& peer, uint32_t read_depth,
                 const std::string& private_data);

 private:
  SimFabric& fabric_;
  SimCompletionQueue& completion_queue_;
  fabric::ListenHandler& handler_;
  SocketAddress address_;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_SIM_LISTENER_H_
