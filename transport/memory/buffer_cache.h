#ifndef HAWSER_TRANSPORT_MEMORY_BUFFER_CACHE_H_
#define HAWSER_TRANSPORT_MEMORY_BUFFER_CACHE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/memory/size_class.h"

namespace hawser::transport {

// Free small buffers of one pool, kept for one thread at a time, so that acquiring and releasing one needs no
// lock. While more than half of the pool is in use it keeps nothing: others may wait for memory.
// Thread:   used by the thread that has entered it (see MessageCache); a thread uses the last it entered.
// Lifetime: the pool's leases outlive it; it does not outlive the pool.
class BufferCache {
 public:
  explicit BufferCache(BufferPool& pool);
  ~BufferCache();
  BufferCache(const BufferCache&) = delete;
  BufferCache& operator=(const BufferCache&) = delete;

  // `wake` is called, on any thread, when the pool wants back what is kept here: it makes a thread that
  // sleeps enter and leave. It takes no lock that is held while a cache is made or destroyed.
  void SetWake(std::function<void()> wake);

  // Returns all to the pool.
  void Flush();
  // If the pool is short, or wants back what is kept. True: it does, and other kept memory should go as well.
  bool FlushIfWanted();

 private:
  friend class BufferPool;
  friend class BufferCaches;
  friend class MessageCache;
  static constexpr size_t kClasses = kTinyClasses;  // Up to 4 KiB.
  static constexpr uint32_t kKeptMax = 64;

  struct Kept {
    internal::Block* head = nullptr;
    std::atomic<uint32_t> count{0};  // Written by the one thread; the pool's statistics read it.
  };

  [[gnu::tls_model("initial-exec")]] inline static constinit thread_local BufferCache* current_ = nullptr;
  BufferPool::Core* const core_;
  std::array<Kept, kClasses> kept_;
  uint64_t flushes_seen_ = 0;
  std::function<void()> wake_;  // Guarded by BufferCaches::mutex_.
};

// The caches of one pool.
// Thread:   any.
class BufferCaches {
 public:
  void Add(BufferCache* cache);
  void Remove(BufferCache* cache);
  void SetWake(BufferCache* cache, std::function<void()> wake);

  // Each cache returns its buffers when its thread next leaves it; wakes the threads for that.
  void RequestFlush();
  uint64_t flushes_requested() const { return flushes_requested_.load(std::memory_order_relaxed); }

  struct Total {
    uint64_t buffers = 0;
    uint64_t bytes = 0;
    std::array<uint64_t, BufferCache::kClasses> buffers_of_class = {};
  };
  Total kept() const;

 private:
  std::atomic<uint64_t> flushes_requested_{0};
  mutable absl::Mutex mutex_;
  std::vector<BufferCache*> caches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_BUFFER_CACHE_H_
