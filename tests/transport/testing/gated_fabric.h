#ifndef HAWSER_TESTS_TRANSPORT_TESTING_GATED_FABRIC_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_GATED_FABRIC_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

// A fabric whose large registrations wait or fail on a test's command.
// Thread:   any.
class GatedFabric final : public fabric::Fabric {
 public:
  // Registrations of `large_bytes` and more wait while the gate is closed, and fail while it refuses.
  GatedFabric(std::shared_ptr<fabric::Fabric> real, size_t large_bytes,
              std::optional<bool> pins_memory = std::nullopt)
      : real_(std::move(real)), large_bytes_(large_bytes), pins_memory_(pins_memory) {}

  void Open() { SetOpen(true); }
  void Close() { SetOpen(false); }
  void Refuse(bool refuse) {
    absl::MutexLock lock(&mutex_);
    refuses_ = refuse;
  }
  // As memlock: what would make more than `bytes` registered is refused.
  void SetLimit(size_t bytes) { limit_bytes_ = bytes; }
  int refused_at_limit() const { return refused_at_limit_; }
  // Blocks until a registration waits.
  void AwaitCaller() {
    absl::MutexLock lock(&mutex_);
    while (waiting_ == 0) changed_.Wait(&mutex_);
  }
  // At this moment.
  size_t registered_bytes() const { return *registered_bytes_; }
  int large_registrations() const {
    absl::MutexLock lock(&mutex_);
    return large_registrations_;
  }

  absl::string_view scheme() const override { return real_->scheme(); }
  bool pins_memory() const override { return pins_memory_.value_or(real_->pins_memory()); }
  bool carries_tls() const override { return real_->carries_tls(); }
  size_t sge_max() const override { return real_->sge_max(); }
  fabric::Atomics atomics() const override { return real_->atomics(); }
  bool sends_end_grants() const override { return real_->sends_end_grants(); }
  absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> Register(uint8_t* address,
                                                                 size_t length_bytes) override {
    if (length_bytes >= large_bytes_) {
      absl::MutexLock lock(&mutex_);
      ++large_registrations_;
      ++waiting_;
      changed_.SignalAll();
      while (!open_) changed_.Wait(&mutex_);
      --waiting_;
      if (refuses_) return absl::ResourceExhaustedError("the test refuses");
    }
    if (*registered_bytes_ + length_bytes > limit_bytes_) {
      ++refused_at_limit_;
      return absl::ResourceExhaustedError("the test's limit is reached");
    }
    auto region = real_->Register(address, length_bytes);
    if (!region.ok()) return region.status();
    return std::make_unique<Counted>(*std::move(region), registered_bytes_, length_bytes);
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
  class Counted final : public fabric::MemoryRegion {
   public:
    Counted(std::unique_ptr<fabric::MemoryRegion> real, std::shared_ptr<std::atomic<size_t>> sum,
            size_t bytes)
        : real_(std::move(real)), sum_(std::move(sum)), bytes_(bytes) {
      *sum_ += bytes_;
    }
    ~Counted() override { *sum_ -= bytes_; }
    uint32_t lkey() const override { return real_->lkey(); }

   private:
    const std::unique_ptr<fabric::MemoryRegion> real_;
    const std::shared_ptr<std::atomic<size_t>> sum_;
    const size_t bytes_;
  };

  void SetOpen(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
    changed_.SignalAll();
  }

  const std::shared_ptr<fabric::Fabric> real_;
  const size_t large_bytes_;
  const std::optional<bool> pins_memory_;  // Instead of that of the real one.
  const std::shared_ptr<std::atomic<size_t>> registered_bytes_ = std::make_shared<std::atomic<size_t>>(0);
  std::atomic<size_t> limit_bytes_{SIZE_MAX};
  std::atomic<int> refused_at_limit_{0};
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  bool open_ = true;
  bool refuses_ = false;
  int waiting_ = 0;
  int large_registrations_ = 0;
};

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_GATED_FABRIC_H_
