#include "hawser/tests/sim/sim_fabric.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "hawser/tests/sim/sim_completion_queue.h"
#include "hawser/tests/sim/sim_listener.h"
#include "hawser/tests/sim/sim_queue_pair.h"
#include "hawser/transport/fabric/check_connect.h"

namespace hawser::sim {
namespace {

class SimMemoryRegion final : public fabric::MemoryRegion {
 public:
  SimMemoryRegion(fabric::RegionTable& regions, uint32_t lkey) : regions_(regions), lkey_(lkey) {}
  ~SimMemoryRegion() override { regions_.Remove(lkey_); }
  uint32_t lkey() const override { return lkey_; }

 private:
  fabric::RegionTable& regions_;
  const uint32_t lkey_;
};

constexpr uint32_t kSubnet = 0x0a000000;  // 10.0.0.0/24

}  // namespace

SimFabric::SimFabric(Network& network, int host, Kind kind) : network_(network), host_(host), kind_(kind) {}

std::string SimFabric::ListenerPrefix(int host) const {
  return kind_ == Kind::kTcp ? absl::StrCat("tcp/", host) : absl::StrCat(host);
}

SocketAddress SimFabric::AddressOf(int host, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(kSubnet + static_cast<uint32_t>(host));
  address.sin_port = htons(port);
  return SocketAddress(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

int SimFabric::HostOf(const SocketAddress& address) {
  if (address.family() != AF_INET) return 0;
  const uint32_t host = ntohl(reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr.s_addr) - kSubnet;
  return host <= 250 ? static_cast<int>(host) : 0;
}

absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> SimFabric::Register(uint8_t* address,
                                                                          size_t length_bytes) {
  {
    std::lock_guard<std::mutex> lock(network_.mutex());
    if (network_.dice().Chance(network_.faults().registration_fails)) {
      return absl::ResourceExhaustedError("simulated: no memory can be pinned");
    }
  }
  absl::StatusOr<uint32_t> lkey = regions_.Add(address, length_bytes);
  if (!lkey.ok()) return lkey.status();
  return std::make_unique<SimMemoryRegion>(regions_, *lkey);
}

absl::StatusOr<std::unique_ptr<fabric::CompletionQueue>> SimFabric::CreateCompletionQueue(uint32_t depth) {
  // A fabric makes more as queue pairs come.
  return std::make_unique<SimCompletionQueue>(network_, std::max<uint32_t>(depth, 1 << 15));
}

absl::StatusOr<std::unique_ptr<fabric::QueuePair>> SimFabric::CreateQueuePair(
    fabric::CompletionQueue& completion_queue, const fabric::QueuePairOptions& options,
    fabric::ConnectionHandler& handler) {
  if (options.tls != nullptr && !carries_tls()) return fabric::NoTls("create a queue pair");
  auto* const queue = dynamic_cast<SimCompletionQueue*>(&completion_queue);
  if (queue == nullptr) return absl::InvalidArgumentError("the completion queue was made by another fabric");
  std::lock_guard<std::mutex> lock(network_.mutex());
  if (network_.dice().Chance(network_.faults().queue_pair_fails)) {
    return absl::ResourceExhaustedError("simulated: no queue pair can be made");
  }
  return std::make_unique<SimQueuePair>(*this, *queue, options, handler);
}

absl::StatusOr<std::unique_ptr<fabric::Listener>> SimFabric::Listen(fabric::CompletionQueue& completion_queue,
                                                                    const SocketAddress& address,
                                                                    fabric::ListenHandler& handler,
                                                                    const fabric::ListenOptions& options) {
  if (options.tls != nullptr && !carries_tls()) return fabric::NoTls("listen");
  if (HostOf(address) != host_) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen on ", address.ToString(), ": not an address of host ", host_));
  }
  auto* const queue = dynamic_cast<SimCompletionQueue*>(&completion_queue);
  if (queue == nullptr) return absl::InvalidArgumentError("the completion queue was made by another fabric");
  auto listener = std::make_unique<SimListener>(*this, *queue, handler, options.tls);
  std::lock_guard<std::mutex> lock(network_.mutex());
  uint16_t port = address.port();
  if (!network_.AddListener(ListenerPrefix(host_), &port, listener.get())) {
    return absl::AlreadyExistsError(
        absl::StrCat("listen on ", address.ToString(), ": the address is in use"));
  }
  listener->set_address(AddressOf(host_, port));
  return listener;
}

}  // namespace hawser::sim
