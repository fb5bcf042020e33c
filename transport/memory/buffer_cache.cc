#include "hawser/transport/memory/buffer_cache.h"

#include <algorithm>
#include <utility>

#include "hawser/transport/memory/buffer_pool_core.h"

namespace hawser::transport {

using internal::Block;

BufferCache::BufferCache(BufferPool& pool) : core_(pool.core_) { core_->caches().Add(this); }

BufferCache::~BufferCache() {
  core_->caches().Remove(this);
  Flush();
}

void BufferCache::SetWake(std::function<void()> wake) { core_->caches().SetWake(this, std::move(wake)); }

void BufferCache::Flush() {
  for (Kept& kept : kept_) {
    kept.count.store(0, std::memory_order_relaxed);
    while (kept.head != nullptr) {
      Block* const block = kept.head;
      kept.head = block->next_free;
      core_->ReturnShared(block);
    }
  }
}

bool BufferCache::FlushIfWanted() {
  const uint64_t requested = core_->caches().flushes_requested();
  const bool wanted = requested != flushes_seen_;
  if (!wanted && !core_->is_short()) [[likely]]
    return false;
  flushes_seen_ = requested;
  Flush();
  return wanted;
}

void BufferCaches::Add(BufferCache* cache) {
  absl::MutexLock lock(&mutex_);
  caches_.push_back(cache);
}

void BufferCaches::Remove(BufferCache* cache) {
  absl::MutexLock lock(&mutex_);
  caches_.erase(std::find(caches_.begin(), caches_.end(), cache));
}

void BufferCaches::SetWake(BufferCache* cache, std::function<void()> wake) {
  absl::MutexLock lock(&mutex_);
  cache->wake_ = std::move(wake);
}

void BufferCaches::RequestFlush() {
  flushes_requested_.fetch_add(1, std::memory_order_relaxed);
  absl::MutexLock lock(&mutex_);
  for (BufferCache* cache : caches_) {
    if (cache->wake_ != nullptr) cache->wake_();
  }
}

BufferCaches::Total BufferCaches::kept() const {
  Total total;
  absl::MutexLock lock(&mutex_);
  for (const BufferCache* cache : caches_) {
    for (size_t i = 0; i < BufferCache::kClasses; ++i) {
      const uint32_t count = cache->kept_[i].count.load(std::memory_order_relaxed);
      total.buffers += count;
      total.buffers_of_class[i] += count;
      total.bytes += count * kSmallClassBytes[i];
    }
  }
  return total;
}

}  // namespace hawser::transport
