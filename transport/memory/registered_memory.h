#ifndef HAWSER_TRANSPORT_MEMORY_REGISTERED_MEMORY_H_
#define HAWSER_TRANSPORT_MEMORY_REGISTERED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

// Memory mapped for, and registered with, one fabric: on transparent huge pages where available, on the
// device's NUMA node where that has memory.
// Thread:   one at a time; Map() and the destructor on any.
// Lifetime: the fabric outlives it, and no work request names it when it goes.
class RegisteredMemory {
 public:
  // Slow: pins each page with verbs (16 us + 0.06 ns/B on mlx5, see fabric.h). ResourceExhausted: the system
  // has no memory, or memlock is too small.
  static absl::StatusOr<std::unique_ptr<RegisteredMemory>> Map(fabric::Fabric& fabric, size_t size_bytes);
  // As slow.
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  uint8_t* address() const { return address_; }  // Aligned to a huge page.
  size_t size_bytes() const { return size_bytes_; }
  uint32_t lkey() const { return memory_region_->lkey(); }

 private:
  RegisteredMemory(uint8_t* address, size_t size_bytes) : address_(address), size_bytes_(size_bytes) {}

  uint8_t* const address_;
  const size_t size_bytes_;
  std::unique_ptr<fabric::MemoryRegion> memory_region_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_REGISTERED_MEMORY_H_
