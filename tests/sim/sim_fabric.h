#ifndef HAWSER_TESTS_SIM_SIM_FABRIC_H_
#define HAWSER_TESTS_SIM_SIM_FABRIC_H_

#include <memory>
#include <string>

#include "hawser/tests/sim/network.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/region_table.h"

namespace hawser::sim {

// The NIC of one simulated host. It implements the contract of fabric.h in memory, uses all the freedom that
// a NIC has, and fails as often as the network's Faults say.
//
// One of Kind::kTcp carries TLS, or what looks like it from above: both sides are who Network::SetIdentity()
// says, and believe each other. It has ports of its own.
//
// Its hosts are 10.0.0.1 to 10.0.0.250. `network` outlives it.
class SimFabric final : public fabric::Fabric {
 public:
  enum class Kind { kRdma, kTcp };
  SimFabric(Network& network, int host, Kind kind = Kind::kRdma);

  static SocketAddress AddressOf(int host, uint16_t port = 0);
  // 0: no simulated host has that address.
  static int HostOf(const SocketAddress& address);

  absl::string_view scheme() const override { return carries_tls() ? "tcp" : "rdma"; }
  bool carries_tls() const override { return kind_ == Kind::kTcp; }
  bool sends_can_wait() const override { return network_.options().sends_can_wait; }
  bool sends_end_grants() const override { return network_.options().sends_end_grants; }
  fabric::Atomics atomics() const override {
    return kind_ == Kind::kTcp ? fabric::Atomics::kWithProcessor : network_.options().atomics;
  }
  absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> Register(uint8_t* address,
                                                                 size_t length_bytes) override;
  absl::StatusOr<std::unique_ptr<fabric::CompletionQueue>> CreateCompletionQueue(uint32_t depth) override;
  absl::StatusOr<std::unique_ptr<fabric::QueuePair>> CreateQueuePair(
      fabric::CompletionQueue& completion_queue, const fabric::QueuePairOptions& options,
      fabric::ConnectionHandler& handler) override;
  absl::StatusOr<std::unique_ptr<fabric::Listener>> Listen(fabric::CompletionQueue& completion_queue,
                                                           const SocketAddress& address,
                                                           fabric::ListenHandler& handler,
                                                           const fabric::ListenOptions& options) override;

  Network& network() { return network_; }
  int host() const { return host_; }
  // The name of a port of `host` for Network::AddListener(), without the port.
  std::string ListenerPrefix(int host) const;
  fabric::RegionTable& regions() { return regions_; }

 private:
  Network& network_;
  const int host_;
  const Kind kind_;
  fabric::RegionTable regions_;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_SIM_FABRIC_H_
