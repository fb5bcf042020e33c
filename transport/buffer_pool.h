#ifndef HAWSER_TRANSPORT_BUFFER_POOL_H_
#define HAWSER_TRANSPORT_BUFFER_POOL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

class BufferCache;
class BufferPool;

namespace internal {
struct Block;  // What the pool knows of one buffer; lives as long as the buffer's slab.
void ReturnBlock(Block* block);
}  // namespace internal

// One buffer of registered memory. Its one owner moves round this ring:
//   pool -> caller -> fabric (from post until completion) -> caller -> pool.
// Thread:   one at a time; may be destroyed on any.
// Lifetime: may outlive the BufferPool object; the memory goes when both are gone.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Lease& operator=(Lease&& other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Lease() {
    if (block_ != nullptr) internal::ReturnBlock(block_);
  }

  explicit operator bool() const { return block_ != nullptr; }

  // Aligned to 64 bytes at least. What an earlier owner wrote is still there.
  uint8_t* data() const;
  // At least what was asked for.
  size_t size_bytes() const;
  uint32_t lkey() const;

 private:
  friend class BufferPool;
  explicit Lease(internal::Block* block) : block_(block) {}

  internal::Block* block_ = nullptr;
};

struct BufferPoolOptions {
  // Registered memory at most: what is leased and what is kept for later.
  size_t limit_bytes = size_t{4} << 30;
};

struct BufferPoolStats {
  size_t limit_bytes = 0;
  size_t mapped_bytes = 0;  // Registered, leased or not.
  size_t leased_bytes = 0;  // By capacity.
  uint64_t leases = 0;      // Out now.
  uint64_t registrations = 0;
};

// Registered memory in size classes, so that no call registers any. Classes up to 256 KiB are cut from slabs
// of 2 MiB, on transparent huge pages where there are any; a larger buffer is a region of its own (at most a
// quarter larger than what was asked for) and is kept for the next of its class. Thread: any.
class BufferPool {
 public:
  // `fabric` registers the slabs. Nothing is mapped before the first Acquire().
  BufferPool(std::shared_ptr<fabric::Fabric> fabric, const BufferPoolOptions& options = {});
  // Leases that are still out stay valid.
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // `size_bytes` >= 1. ResourceExhausted: the limit is reached, the system has no memory, or memlock is too
  // small; the message says which.
  absl::StatusOr<Lease> Acquire(size_t size_bytes);

  // False: Acquire(size_bytes) fails however much is returned.
  bool CanEverHold(size_t size_bytes) const;

  BufferPoolStats stats() const;

  // What a buffer of `size_bytes` takes of the limit.
  static size_t CapacityOf(size_t size_bytes);

  // The lkey of the region of this pool that holds all of [address, address + length), 0 if none does. Takes
  // a lock.
  uint32_t FindRegion(const uint8_t* address, size_t length_bytes) const;

 private:
  friend void internal::ReturnBlock(internal::Block* block);
  friend class BufferCache;
  class Core;
  Core* core_;  // Owned together with the leases: see Core::Unref().
};

// Free small buffers of one pool that one thread at a time keeps for itself, so that taking one and giving it
// back needs no lock. Of a pool that is more than half full nothing is kept: what others wait for is not to
// lie here. Thread:   used by the thread that has entered it (see MessageCache); a thread uses the last it
// entered. Lifetime: the pool's leases outlive it; it does not outlive the pool.
class BufferCache {
 public:
  explicit BufferCache(BufferPool& pool);
  ~BufferCache();
  BufferCache(const BufferCache&) = delete;
  BufferCache& operator=(const BufferCache&) = delete;

  // Gives all back to the pool.
  void Flush();
  void FlushIfPoolIsShort();

 private:
  friend class BufferPool;
  friend class MessageCache;
  static constexpr size_t kClasses = 2;  // The smallest: up to 4 KiB.
  static constexpr uint32_t kKeptMax = 64;

  struct Kept {
    internal::Block* head = nullptr;
    std::atomic<uint32_t> count{0};  // Written by the one thread; the pool's statistics read it.
  };

  inline static constinit thread_local BufferCache* current_ = nullptr;
  BufferPool::Core* const core_;
  std::array<Kept, kClasses> kept_;
};

// ---- Implementation of the accessors, which are on the path of every call.

namespace internal {
struct Block {
  uint8_t* data;
  size_t size_bytes;
  uint32_t lkey;
  uint32_t size_class;
  Block* next_free;
  void* core;  // BufferPool::Core
};
}  // namespace internal

inline uint8_t* Lease::data() const { return block_->data; }
inline size_t Lease::size_bytes() const { return block_->size_bytes; }
inline uint32_t Lease::lkey() const { return block_->lkey; }

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_BUFFER_POOL_H_
