#ifndef HAWSER_TRANSPORT_MEMORY_BUFFER_POOL_CORE_H_
#define HAWSER_TRANSPORT_MEMORY_BUFFER_POOL_CORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hawser/transport/memory/buffer_cache.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/memory/memory_waiters.h"
#include "hawser/transport/memory/pool_worker.h"
#include "hawser/transport/memory/slab_store.h"

namespace hawser::transport {

// What a pool, its leases and its caches share.
// Thread:   any.
// Lifetime: deletes itself when the pool and the last lease are gone.
class BufferPool::Core {
 public:
  Core(std::shared_ptr<fabric::Fabric> fabric, const BufferPoolOptions& options, Threads threads);

  // See BufferPool. Null: `why` says why.
  internal::Block* Acquire(size_t size_bytes, Shortage& why);
  internal::Block* TryAcquire(size_t size_bytes, Shortage& why);
  internal::Block* AcquireReserved(size_t size_bytes);
  absl::Status Explain(Shortage why, size_t size_bytes) const;
  // See BufferPool.
  void NotifyShortage(size_t size_class, Shortage why);
  uint64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }
  BufferPoolStats stats() const;
  std::vector<BufferClassStats> classes();

  void Return(internal::Block* block) {
    if (!Cache(block)) ReturnShared(block);
  }
  // Past the caches.
  void ReturnShared(internal::Block* block);

  // The pool object goes.
  void Retire();

  // More than half of what the pool may have is in use.
  bool is_short() const { return slabs_.busy_bytes() > slabs_.limit_bytes() / 2; }

  SlabStore& slabs() { return slabs_; }
  MemoryWaiters& waiters() { return waiters_; }
  BufferCaches& caches() { return caches_; }
  PoolWorker& worker() { return worker_; }

 private:
  // What may be registered on this thread.
  enum class Growth : uint8_t {
    kAny,    // Large memory as well; and it is unmapped where it must be.
    kSlab,   // A slab of 2 MiB, for a small class. Memory is unmapped only at the limit.
    kCheap,  // The same, where GrowsCheaply(). Otherwise the pool's thread does it.
  };
  internal::Block* AcquireShared(size_t size_class, Growth growth, Shortage& why);
  internal::Block* Grow(size_t size_class, Growth growth, Shortage& why);
  internal::Block* GrowBySlab(size_t size_class, Shortage& why);
  internal::Block* GrowElsewhere(size_t size_class, Shortage& why);

  // The cache for buffers of this pool on the poller that this thread is on; or null.
  BufferCache* CacheHere(size_t size_class) const;
  internal::Block* TakeCached(size_t size_class);
  bool Cache(internal::Block* block);

  internal::Block* Leased(internal::Block* block);
  void Unref();

  std::atomic<uint64_t> references_{1};  // The pool's own, and one for each lease.
  std::atomic<uint64_t> leased_bytes_{0};
  std::atomic<int64_t> short_until_ns_{0};  // When the pool counts as recovered.
  std::atomic<uint64_t> refusals_{0};
  MemoryWaiters waiters_;
  BufferCaches caches_;
  SlabStore slabs_;
  PoolWorker worker_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_BUFFER_POOL_CORE_H_
