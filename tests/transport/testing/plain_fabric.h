#ifndef HAWSER_TESTS_TRANSPORT_TESTING_PLAIN_FABRIC_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_PLAIN_FABRIC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

// `real` as a fabric that carries no TLS.
class PlainFabric final : public fabric::Fabric {
 public:
  explicit PlainFabric(std::shared_ptr<fabric::Fabric> real) : real_(std::move(real)) {}

  absl::string_view scheme() const override { return real_->scheme(); }
  bool pins_memory() const override { return real_->pins_memory(); }
  bool sends_can_wait() const override { return real_->sends_can_wait(); }
  size_t sge_max() const override { return real_->sge_max(); }
  fabric::Atomics atomics() const override { return real_->atomics(); }
  bool sends_end_grants() const override { return real_->sends_end_grants(); }
  absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> Register(uint8_t* address,
                                                                 size_t length_bytes) override {
    return real_->Register(address, length_bytes);
  }
  absl::StatusOr<std::unique_ptr<fabric::CompletionQueue>> CreateCompletionQueue(uint32_t depth) override {
    return real_->CreateCompletionQueue(depth);
  }
  absl::StatusOr<std::unique_ptr<fabric::QueuePair>> CreateQueuePair(
      fabric::CompletionQueue& completion_queue, const fabric::QueuePairOptions& options,
      fabric::ConnectionHandler& handler) override {
    return real_->CreateQueuePair(completion_queue, options, handler);
  }
  absl::StatusOr<std::unique_ptr<fabric::Listener>> Listen(fabric::CompletionQueue& completion_queue,
                                                           const SocketAddress& address,
                                                           fabric::ListenHandler& handler,
                                                           const fabric::ListenOptions& options) override {
    return real_->Listen(completion_queue, address, handler, options);
  }

 private:
  const std::shared_ptr<fabric::Fabric> real_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_PLAIN_FABRIC_H_
