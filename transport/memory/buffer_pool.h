#ifndef HAWSER_TRANSPORT_MEMORY_BUFFER_POOL_H_
#define HAWSER_TRANSPORT_MEMORY_BUFFER_POOL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/memory/memory_waiters.h"
#include "hawser/transport/memory/pool_options.h"

namespace hawser::transport {

class BufferCache;
class BufferPool;
struct Slab;

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

  // Aligned to 64 bytes at least. It holds anything: what an earlier owner wrote, or in a debug build what
  // overwrote that (retired_memory.h).
  uint8_t* data() const;
  // At least what was asked for.
  size_t size_bytes() const;
  uint32_t lkey() const;

 private:
  friend class BufferPool;
  explicit Lease(internal::Block* block) : block_(block) {}

  internal::Block* block_ = nullptr;
};

// A buffer of the reserve, and all of it.
inline constexpr size_t kReservedBufferBytes = 4096;
inline constexpr size_t kReserveBytes = 128 * kReservedBufferBytes;

// Why TryAcquire() has no memory.
enum class Shortage : uint8_t {
  kGrowing,   // More is being registered on another thread. A waiter is notified when that is done.
  kAtLimit,   // BufferPoolOptions::limit_bytes are in use. A waiter is notified when enough may be free.
  kRefused,   // The system has none, or memlock is too small. Nothing notifies when that changes: try again
              // after a while (100 ms, say).
  kTooLarge,  // CanEverHold() is false.
};

struct BufferPoolStats {
  size_t limit_bytes = 0;
  size_t mapped_bytes = 0;     // Registered, leased or not.
  size_t leased_bytes = 0;     // By capacity.
  uint64_t leases = 0;         // Out now.
  uint64_t registrations = 0;  // Ever. The reserve counts nowhere here but when it is leased.
};

// The buffers of one size.
struct BufferClassStats {
  size_t size_bytes = 0;
  uint64_t buffers = 0;  // Registered, leased or not.
  uint64_t leased = 0;
};

// Registered memory in size classes, so that no call registers any. A buffer takes at most 1.25 times the
// bytes that were asked for, and 512 more (but 1 KiB at least). Only where others would have to be unmapped,
// or waited for, it is a free one that is larger: of up to twice the size or, below 293 KiB, of any class up
// to there. Buffers up to 293 KiB are cut from slabs of 2 MiB, on transparent huge pages where there are any,
// and those up to 51 KiB from parts of 256 KiB of these; a larger buffer is a region of its own. Over RDMA a
// class that has 16 MiB or more grows by larger slabs, a quarter of what it has and 16 MiB at most (4 MiB if
// they are cut into parts), since the NIC is asked once for each; but by slabs of 2 MiB where an eighth of
// what is left of the limit is less. A returned buffer is kept for the next of its class. A slab, or a large
// buffer, that is free as a whole makes room for any other, and goes back to the system when nothing wants it
// for BufferPoolOptions::idle.
// Thread:   any. No lock is held while memory is mapped, registered or unmapped.
// Lifetime: the destructor waits for the pool's thread, and returns all memory that is not leased.
class BufferPool {
 public:
  // kMayStart: the pool starts one thread when there is first something for it to do. kNone: whatever would
  // be done there is done on the caller's thread (simulations).
  enum class Threads : uint8_t { kMayStart, kNone };

  // `fabric` registers the memory. Nothing is mapped before the first Acquire().
  BufferPool(std::shared_ptr<fabric::Fabric> fabric, const BufferPoolOptions& options = {},
             Threads threads = Threads::kMayStart);
  // Leases that are still out stay valid.
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // `size_bytes` >= 1. ResourceExhausted: the limit is reached, the system has no memory, or memlock is too
  // small; the message says which.
  // On a poller no more than a slab of 2 MiB is registered here for a small buffer, as by TryAcquire(). If
  // the system refuses that, and idle memory can make room, this fails, and the pool's thread unmaps it.
  absl::StatusOr<Lease> Acquire(size_t size_bytes);

  // For a poller: as Acquire(), but never registers or unmaps a large buffer on this thread; it starts that
  // on another one and says kGrowing. A slab of 2 MiB for small buffers is still mapped and registered here;
  // a larger one is made on the other thread, ahead of need.
  // Empty: `why` says why; no string is made. Without threads (see Threads) everything is done here.
  // Mapping a slab took 6 us on the machine of this writing; its registration with verbs takes 0.14 ms by the
  // model in fabric.h, beside the clearing of its pages.
  Lease TryAcquire(size_t size_bytes, Shortage& why);

  // For errors: `size_bytes` is at most kReservedBufferBytes. As TryAcquire() while there is room for a slab
  // more; then from a reserve that nothing else takes, so that what is free is left to receive rings. Empty:
  // the reserve is in use, too, or the pool has never had memory.
  Lease AcquireReserved(size_t size_bytes);
  // There is room for a slab more. Without, what is free is best left to receive rings.
  bool HasRoomForSlab() const;

  // The same as what Acquire() would have returned.
  absl::Status Explain(Shortage why, size_t size_bytes) const;
  // For the caller of TryAcquire() that gives up, or waits: the log says that there is no memory, if there
  // was some for the last ten seconds. Acquire() and AcquireReserved() say so by themselves.
  void NotifyShortage(size_t size_bytes, Shortage why);
  // How often memory was refused, or NotifyShortage() called, because the limit was reached or the system had
  // none.
  uint64_t refusals() const;
  // Something waits for memory, and there is no room for a slab more.
  bool AnyWaitsAtLimit() const;

  // Notifies `waiter` once, soon after TryAcquire(size_bytes) may succeed; perhaps in vain, as another may be
  // faster. It does not report memory freed before this call, so a caller that was refused calls Await(),
  // tries once more, and waits only then. Replaces the size of a waiter that waits already.
  // Thread: any.
  void Await(MemoryWaiter& waiter, size_t size_bytes);
  // When this returns, `waiter` is not notified any more, and no call to it is running (except one that this
  // is called from). Without effect if it does not wait.
  void StopAwaiting(MemoryWaiter& waiter);

  // False: Acquire(size_bytes) fails however much is returned.
  bool CanEverHold(size_t size_bytes) const;

  // One step of giving idle memory back to the system: what has been idle since the step before is unmapped,
  // but for one slab. The pool's thread does it every BufferPoolOptions::idle / 2; without it
  // (Threads::kNone) the caller.
  void GiveBackIdle();

  BufferPoolStats stats() const;
  // The sizes of which there are any buffers, the smallest first. Reads the counts one after the other.
  std::vector<BufferClassStats> classes() const;

  // BufferPoolOptions::idle, or what that is by default with this pool's fabric.
  absl::Duration idle() const;

  // What a buffer of `size_bytes` takes of the limit.
  static size_t CapacityOf(size_t size_bytes);

  // The lkey of the region of this pool that holds all of [address, address + length), 0 if none does. Takes
  // a lock, for no longer than to search a tree of regions, unless the region was found lately.
  uint32_t FindRegion(const uint8_t* address, size_t length_bytes) const;

 private:
  friend void internal::ReturnBlock(internal::Block* block);
  friend class BufferCache;
  class Core;
  Core* core_;  // Owned together with the leases: see Core::Unref().
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
  Slab* slab;
};
}  // namespace internal

inline uint8_t* Lease::data() const { return block_->data; }
inline size_t Lease::size_bytes() const { return block_->size_bytes; }
inline uint32_t Lease::lkey() const { return block_->lkey; }

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_BUFFER_POOL_H_
