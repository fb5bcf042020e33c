#include "hawser/transport/fabric/tcp/fabric.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/region_table.h"
#include "hawser/transport/fabric/tcp/completion_queue.h"
#include "hawser/transport/fabric/tcp/listener.h"
#include "hawser/transport/fabric/tcp/queue_pair.h"

namespace hawser::fabric {
namespace {

constexpr uint32_t kDepthMax = 32768;  // For any queue; an rkey has 16 bits for an index.

class TcpMemoryRegion final : public MemoryRegion {
 public:
  TcpMemoryRegion(RegionTable& regions, uint32_t lkey) : regions_(regions), lkey_(lkey) {}
  ~TcpMemoryRegion() override { regions_.Remove(lkey_); }
  uint32_t lkey() const override { return lkey_; }

 private:
  RegionTable& regions_;
  const uint32_t lkey_;
};

class TcpFabric final : public Fabric {
 public:
  explicit TcpFabric(const TcpFabricOptions& options) : options_(options) {}

  absl::string_view scheme() const override { return "tcp"; }
  // A SEND waits in the socket: the kernel's flow control stops the peer.
  bool sends_can_wait() const override { return true; }
  // The owner's poller executes them, with the processor's own.
  Atomics atomics() const override { return Atomics::kWithProcessor; }
  bool carries_tls() const override { return true; }

  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(uint8_t* address, size_t length_bytes) override {
    if (address == nullptr || length_bytes == 0) {
      return absl::InvalidArgumentError(absl::StrCat("register ", length_bytes, " bytes: no memory"));
    }
    absl::StatusOr<uint32_t> lkey = regions_.Add(address, length_bytes);
    if (!lkey.ok()) return lkey.status();
    return std::make_unique<TcpMemoryRegion>(regions_, *lkey);
  }

  // Ignores the depth. No completion can be lost, because they wait in the rings of their queue pairs.
  absl::StatusOr<std::unique_ptr<CompletionQueue>> CreateCompletionQueue(uint32_t) override {
    return TcpCompletionQueue::Create(options_);
  }

  absl::StatusOr<std::unique_ptr<QueuePair>> CreateQueuePair(CompletionQueue& completion_queue,
                                                             const QueuePairOptions& options,
                                                             ConnectionHandler& handler) override {
    if (options.send_depth == 0 || options.send_depth > kDepthMax || options.receive_depth == 0 ||
        options.receive_depth > kDepthMax || options.read_depth > kDepthMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "create a queue pair: ", options.send_depth, " sends, ", options.receive_depth, " receives, ",
          options.read_depth, " READs: 1 to ", kDepthMax, " are possible, of READs also 0"));
    }
    absl::StatusOr<TcpCompletionQueue*> queue = OwnQueue(completion_queue, "create a queue pair");
    if (!queue.ok()) return queue.status();
    return std::make_unique<TcpQueuePair>(
        **queue, regions_, next_qp_num_.fetch_add(1, std::memory_order_relaxed), options, handler);
  }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(CompletionQueue& completion_queue,
                                                   const SocketAddress& address, ListenHandler& handler,
                                                   const ListenOptions& options) override {
    absl::StatusOr<TcpCompletionQueue*> queue = OwnQueue(completion_queue, "listen");
    if (!queue.ok()) return queue.status();
    return TcpListener::Create(**queue, address, handler, options);
  }

 private:
  // This fabric made `queue` if the queue refers to this fabric's options.
  absl::StatusOr<TcpCompletionQueue*> OwnQueue(CompletionQueue& queue, absl::string_view what) const {
    auto* const own = dynamic_cast<TcpCompletionQueue*>(&queue);
    if (own != nullptr && &own->options() == &options_) return own;
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": the completion queue was made by another fabric"));
  }

  const TcpFabricOptions options_;
  RegionTable regions_;
  std::atomic<uint32_t> next_qp_num_ = 1;
};

}  // namespace

std::unique_ptr<Fabric> CreateTcpFabric(const TcpFabricOptions& options) {
  return std::make_unique<TcpFabric>(options);
}

}  // namespace hawser::fabric
