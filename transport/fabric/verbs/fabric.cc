#include "hawser/transport/fabric/verbs/fabric.h"

#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/check_connect.h"
#include "hawser/transport/fabric/verbs/completion_queue.h"
#include "hawser/transport/fabric/verbs/device.h"
#include "hawser/transport/fabric/verbs/library.h"
#include "hawser/transport/fabric/verbs/listener.h"
#include "hawser/transport/fabric/verbs/memory.h"
#include "hawser/transport/fabric/verbs/options.h"
#include "hawser/transport/fabric/verbs/queue_pair.h"
#include "hawser/transport/fabric/verbs/rings.h"
#include "hawser/transport/fabric/verbs/windows.h"

namespace hawser::fabric {
namespace {

class VerbsFabric final : public Fabric {
 public:
  VerbsFabric(std::shared_ptr<VerbsDevice> device, const VerbsFabricOptions& options)
      : device_(std::move(device)),
        options_(options),
        grants_(
            options.grants.value_or(device_->uses_windows() ? GrantKind::kWindows : GrantKind::kRegistered)),
        memory_(*device_, grants_, options_) {}

  absl::string_view scheme() const override { return "rdma"; }
  int numa_node() const override { return device_->numa_node(); }
  bool pins_memory() const override { return true; }
  bool takes_ports_of_tcp() const override { return device_->iwarp(); }
  size_t sge_max() const override { return device_->sge_max(); }
  Atomics atomics() const override { return device_->atomics(); }
  bool sends_end_grants() const override {
    return grants_ == GrantKind::kWindows && InvalidatesForPeers(device_->attr(), device_->iwarp());
  }

  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(uint8_t* address, size_t length_bytes) override {
    return memory_.Register({.address = address, .length_bytes = length_bytes}, /*for_peers=*/true);
  }
  absl::StatusOr<std::unique_ptr<MemoryRegion>> RegisterRange(const MemoryRange& range) override {
    return memory_.Register(range, /*for_peers=*/false);
  }

  absl::StatusOr<std::unique_ptr<CompletionQueue>> CreateCompletionQueue(uint32_t depth) override {
    return VerbsCompletionQueue::Create(device_, depth);
  }

  absl::StatusOr<std::unique_ptr<QueuePair>> CreateQueuePair(CompletionQueue& completion_queue,
                                                             const QueuePairOptions& options,
                                                             ConnectionHandler& handler) override {
    if (absl::Status status = device_->CheckProcess("create a queue pair"); !status.ok()) return status;
    if (options.tls != nullptr) return NoTls("create a queue pair");
    const uint64_t sends = rings::SendEntries(options.send_depth, grants_ == GrantKind::kWindows);
    const auto max = static_cast<uint64_t>(device_->attr().max_qp_wr);
    if (options.send_depth == 0 || options.receive_depth == 0 || sends > max || options.receive_depth > max) {
      return absl::InvalidArgumentError(absl::StrCat("create a queue pair: ", options.send_depth, " sends (",
                                                     sends, " with what grants need), ",
                                                     options.receive_depth, " receives: 1 to ", max,
                                                     " are possible (max_qp_wr of ", device_->name(), ")"));
    }
    absl::StatusOr<VerbsCompletionQueue*> queue = OwnQueue(completion_queue, "create a queue pair");
    if (!queue.ok()) return queue.status();
    return std::make_unique<VerbsQueuePair>(**queue, memory_, options_, options, grants_,
                                            next_number_.fetch_add(1, std::memory_order_relaxed), handler);
  }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(CompletionQueue& completion_queue,
                                                   const SocketAddress& address, ListenHandler& handler,
                                                   const ListenOptions& options) override {
    if (options.tls != nullptr) return NoTls("listen");
    absl::StatusOr<VerbsCompletionQueue*> queue = OwnQueue(completion_queue, "listen");
    if (!queue.ok()) return queue.status();
    return VerbsListener::Create(**queue, address, options_.listen_backlog, handler);
  }

 private:
  // Fabrics on one device share it, and may use each other's queues.
  absl::StatusOr<VerbsCompletionQueue*> OwnQueue(CompletionQueue& queue, absl::string_view what) const {
    auto* const own = dynamic_cast<VerbsCompletionQueue*>(&queue);
    if (own != nullptr && &own->device() == device_.get()) return own;
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": the completion queue was made by another fabric"));
  }

  const std::shared_ptr<VerbsDevice> device_;
  const VerbsFabricOptions options_;
  const GrantKind grants_;
  VerbsMemory memory_;
  std::atomic<uint32_t> next_number_ = 0;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Fabric>> NewVerbsFabric(const VerbsFabricOptions& options) {
  if (options.retry_count > 6 || options.rnr_retry_count > 6 || options.ack_timeout > 31) {
    return absl::InvalidArgumentError("VerbsFabricOptions: retry counts are 0 to 6, ack_timeout is 0 to 31");
  }
  const VerbsLibrary* library = options.library;
  if (library == nullptr) {
    absl::StatusOr<const VerbsLibrary*> loaded = VerbsLibrary::Load();
    if (!loaded.ok()) return loaded.status();
    library = *loaded;
  }
  std::string name = options.device;
  if (const char* chosen = std::getenv("HAWSER_RDMA_DEVICE"); name.empty() && chosen != nullptr)
    name = chosen;
  absl::StatusOr<std::shared_ptr<VerbsDevice>> device = VerbsDevice::Open(*library, std::move(name));
  if (!device.ok()) return device.status();
  if (options.grants == GrantKind::kWindows && !(*device)->has_windows()) {
    return absl::FailedPreconditionError(absl::StrCat("use RDMA device ", (*device)->name(),
                                                      ": grants are to be memory windows, but it has none of "
                                                      "type 2B: choose another device or kind of grants "
                                                      "(RuntimeOptions::rdma_grants)"));
  }
  const bool windows =
      options.grants.has_value() ? *options.grants == GrantKind::kWindows : (*device)->uses_windows();
  if (windows && options.warn != nullptr) {
    if (const std::string line = (*device)->TakeWarning(); !line.empty()) options.warn(line);
  }
  return std::shared_ptr<Fabric>(std::make_shared<VerbsFabric>(*std::move(device), options));
}

}  // namespace hawser::fabric
