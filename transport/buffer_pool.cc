#include "hawser/transport/buffer_pool.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "hawser/transport/fabric/mutex.h"

namespace hawser::transport {
namespace {

using internal::Block;

// A slab is one transparent huge page. https://docs.kernel.org/admin-guide/mm/transhuge.html
constexpr size_t kSlabBytes = size_t{2} << 20;
constexpr size_t kSmallClasses = 5;
constexpr size_t kSmallClassBytes[kSmallClasses] = {1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10};

// Above: four classes to each doubling, so a buffer is at most a quarter larger than what was asked for.
constexpr size_t kLargeBase = 256 << 10;
constexpr size_t kLargeClasses = 4 * 16;  // Up to 16 GiB.
constexpr size_t kClasses = kSmallClasses + kLargeClasses;
constexpr size_t kReserveClass = kClasses;  // Its blocks go back to the reserve.

size_t ClassBytes(size_t size_class) {
  if (size_class < kSmallClasses) return kSmallClassBytes[size_class];
  const size_t step = size_class - kSmallClasses;
  const size_t base = kLargeBase << (step / 4);
  return base + (step % 4 + 1) * (base / 4);
}

size_t ClassOf(size_t size_bytes) {
  for (size_t i = 0; i < kSmallClasses; ++i) {
    if (size_bytes <= kSmallClassBytes[i]) return i;
  }
  size_t size_class = kSmallClasses;
  while (size_class < kClasses && ClassBytes(size_class) < size_bytes) ++size_class;
  return size_class;
}

// Pages that are touched from now on come from the node as far as it has any. mbind(2); the C library has no
// function of it.
void PreferNumaNode(void* address, size_t size_bytes, int node) {
  constexpr int kPreferred = 1;  // MPOL_PREFERRED
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  unsigned long nodes[16] = {};
  if (node < 0 || static_cast<size_t>(node) >= kBits * std::size(nodes)) return;
  nodes[static_cast<size_t>(node) / kBits] = 1ul << static_cast<size_t>(node) % kBits;
  // The kernel takes one bit less than it is told. Where it refuses (a container may not let us), any node
  // does.
  syscall(SYS_mbind, address, size_bytes, kPreferred, nodes, kBits * std::size(nodes) + 1, 0);
}

uint8_t* Map(size_t size_bytes, int numa_node) {
  // Aligned to a huge page, so that one can back it.
  const size_t reserve = size_bytes + kSlabBytes;
  void* mapped =
      mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = (start + kSlabBytes - 1) & ~(kSlabBytes - 1);
  if (aligned != start) munmap(mapped, aligned - start);
  if (const size_t rest = start + reserve - (aligned + size_bytes); rest != 0) {
    munmap(reinterpret_cast<void*>(aligned + size_bytes), rest);
  }
  madvise(reinterpret_cast<void*>(aligned), size_bytes,
          MADV_HUGEPAGE);  // Advice: without it, small pages do.
  PreferNumaNode(reinterpret_cast<void*>(aligned), size_bytes, numa_node);
  return reinterpret_cast<uint8_t*>(aligned);
}

struct Region {
  uint8_t* address = nullptr;
  size_t size_bytes = 0;
  std::unique_ptr<fabric::MemoryRegion> memory_region;
  std::unique_ptr<Block[]> blocks;
};

}  // namespace

// What the pool and its leases share. Deleted by whoever goes last.
class BufferPool::Core {
 public:
  Core(std::shared_ptr<fabric::Fabric> fabric, const BufferPoolOptions& options)
      : fabric_(std::move(fabric)), limit_bytes_(options.limit_bytes) {}

  ~Core() {
    for (Region& region : regions_) Unmap(region);
    if (reserve_.address != nullptr) Unmap(reserve_);
  }

  absl::StatusOr<Block*> Acquire(size_t size_bytes) {
    const size_t size_class = ClassOf(size_bytes);
    if (Block* const block = TakeCached(size_class); block != nullptr) return block;
    if (!CanEverHold(size_class)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the whole memory pool of ", limit_bytes_, " bytes cannot hold a buffer of ", size_bytes,
          " bytes (small ones come in slabs of ", kSlabBytes, "); raise BufferPoolOptions::limit_bytes"));
    }
    references_.fetch_add(1, std::memory_order_relaxed);
    if (Block* const block = TakeFree(size_class); block != nullptr) return block;
    absl::StatusOr<Block*> block = Grow(size_class);
    if (block.ok()) {
      leased_bytes_.fetch_add((*block)->size_bytes, std::memory_order_relaxed);
      return block;
    }
    // Slabs stay with their class, so what is free may be of another; or another thread has just mapped one.
    for (size_t larger = size_class; larger < kClasses; ++larger) {
      if (Block* const free = TakeFree(larger); free != nullptr) return free;
    }
    Unref();
    return block;
  }

  bool CanEverHold(size_t size_class) const {
    if (size_class < kSmallClasses) return kSlabBytes <= limit_bytes_;
    return size_class < kClasses && ClassBytes(size_class) <= limit_bytes_;
  }

  void Return(Block* block) {
    if (!Cache(block)) ReturnShared(block);
  }

  void ReturnShared(Block* block) {
    const size_t size_class = block->size_class;
    leased_bytes_.fetch_sub(block->size_bytes, std::memory_order_relaxed);
    FreeList& free_list = free_[size_class];
    {
      std::lock_guard<Mutex> lock(free_list.mutex);
      block->next_free = free_list.head;
      free_list.head = block;
    }
    Notify();
    Unref();
  }

  absl::Status Explain(Shortage why, size_t size_bytes) const {
    switch (why) {
      case Shortage::kTooLarge:
        return absl::ResourceExhaustedError(absl::StrCat(
            "the whole memory pool of ", limit_bytes_, " bytes cannot hold a buffer of ", size_bytes,
            " bytes (small ones come in slabs of ", kSlabBytes, "); raise BufferPoolOptions::limit_bytes"));
      case Shortage::kGrowing:
        return absl::ResourceExhaustedError("the memory pool is growing");
      case Shortage::kRefused:
        return absl::ResourceExhaustedError("the system has no memory for the memory pool");
      case Shortage::kAtLimit:
        break;
    }
    absl::MutexLock lock(&mutex_);
    return absl::ResourceExhaustedError(absl::StrCat(
        "the memory pool is at its limit: ", mapped_bytes_, " of ", limit_bytes_,
        " bytes are in use and a buffer of ", size_bytes,
        " bytes was asked for; release replies and buffers, or raise BufferPoolOptions::limit_bytes"));
  }

  // ---- For pollers.

  Block* TryAcquire(size_t size_bytes, Shortage& why) {
    absl::StatusOr<Block*> block = Acquire(size_bytes);
    if (block.ok()) return *block;
    why = CanEverHold(ClassOf(size_bytes)) ? Shortage::kAtLimit : Shortage::kTooLarge;
    return nullptr;
  }

  Block* AcquireReserved(size_t size_bytes) {
    Shortage why;
    if (Block* const block = TryAcquire(size_bytes, why); block != nullptr) return block;
    if (size_bytes > kReservedBufferBytes) return nullptr;
    references_.fetch_add(1, std::memory_order_relaxed);
    Block* const block = TakeFree(kReserveClass);
    if (block == nullptr) Unref();
    return block;
  }

  void Await(MemoryWaiter& waiter) {
    absl::MutexLock lock(&waiters_mutex_);
    if (std::find(waiters_.begin(), waiters_.end(), &waiter) == waiters_.end()) waiters_.push_back(&waiter);
    awaited_.store(true, std::memory_order_relaxed);
  }

  void StopAwaiting(MemoryWaiter& waiter) {
    absl::MutexLock lock(&waiters_mutex_);
    waiters_.erase(std::remove(waiters_.begin(), waiters_.end(), &waiter), waiters_.end());
    const auto self = std::this_thread::get_id();
    while (called_ == &waiter && calling_thread_ != self) waiters_changed_.Wait(&waiters_mutex_);
  }

  void Notify() {
    if (!awaited_.load(std::memory_order_relaxed)) return;
    absl::MutexLock lock(&waiters_mutex_);
    while (called_ != nullptr && calling_thread_ != std::this_thread::get_id()) {
      waiters_changed_.Wait(&waiters_mutex_);
    }
    if (called_ != nullptr) return;  // The caller of this was told just now.
    for (size_t count = waiters_.size(); count > 0 && !waiters_.empty(); --count) {
      called_ = waiters_.front();
      calling_thread_ = std::this_thread::get_id();
      waiters_.erase(waiters_.begin());
      waiters_mutex_.Unlock();
      called_->OnMemoryMayBeFree();
      waiters_mutex_.Lock();
      called_ = nullptr;
      waiters_changed_.SignalAll();
    }
    awaited_.store(!waiters_.empty(), std::memory_order_relaxed);
  }

  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  BufferPoolStats stats() const {
    BufferPoolStats stats;
    stats.limit_bytes = limit_bytes_;
    stats.leased_bytes = leased_bytes_.load(std::memory_order_relaxed);
    stats.leases = references_.load(std::memory_order_relaxed) - 1;
    absl::MutexLock lock(&mutex_);
    stats.mapped_bytes = mapped_bytes_;
    stats.registrations = registrations_;
    for (const BufferCache* cache : caches_) {
      for (size_t i = 0; i < BufferCache::kClasses; ++i) {
        const uint32_t count = cache->kept_[i].count.load(std::memory_order_relaxed);
        stats.leases -= std::min<uint64_t>(count, stats.leases);
        stats.leased_bytes -= std::min(count * kSmallClassBytes[i], stats.leased_bytes);
      }
    }
    return stats;
  }

  uint32_t FindRegion(const uint8_t* address, size_t length_bytes) const {
    absl::MutexLock lock(&mutex_);
    if (reserve_.address != nullptr && address >= reserve_.address &&
        address < reserve_.address + reserve_.size_bytes) {
      const size_t rest = reserve_.size_bytes - static_cast<size_t>(address - reserve_.address);
      return length_bytes <= rest ? reserve_.memory_region->lkey() : 0;
    }
    for (const Region& region : regions_) {
      if (address >= region.address && address < region.address + region.size_bytes) {
        const size_t rest = region.size_bytes - static_cast<size_t>(address - region.address);
        return length_bytes <= rest ? region.memory_region->lkey() : 0;
      }
    }
    return 0;
  }

  void AddCache(BufferCache* cache) {
    absl::MutexLock lock(&mutex_);
    caches_.push_back(cache);
  }
  void RemoveCache(BufferCache* cache) {
    absl::MutexLock lock(&mutex_);
    caches_.erase(std::find(caches_.begin(), caches_.end(), cache));
  }
  bool is_short() const { return is_short_.load(std::memory_order_relaxed); }

 private:
  struct FreeList {
    Mutex mutex;
    Block* head = nullptr;
  };

  // Of this pool, and of the poller that this thread is on; or null.
  BufferCache* CacheHere(size_t size_class) {
    BufferCache* const cache = BufferCache::current_;
    return cache != nullptr && cache->core_ == this && size_class < BufferCache::kClasses ? cache : nullptr;
  }

  Block* TakeCached(size_t size_class) {
    BufferCache* const cache = CacheHere(size_class);
    if (cache == nullptr) return nullptr;
    BufferCache::Kept& kept = cache->kept_[size_class];
    Block* const block = kept.head;
    if (block == nullptr) return nullptr;
    kept.head = block->next_free;
    kept.count.store(kept.count.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    return block;
  }

  bool Cache(Block* block) {
    BufferCache* const cache = CacheHere(block->size_class);
    if (cache == nullptr || is_short()) return false;
    BufferCache::Kept& kept = cache->kept_[block->size_class];
    const uint32_t count = kept.count.load(std::memory_order_relaxed);
    if (count == BufferCache::kKeptMax) return false;
    block->next_free = kept.head;
    kept.head = block;
    kept.count.store(count + 1, std::memory_order_relaxed);
    return true;
  }

  Block* TakeFree(size_t size_class) {
    FreeList& free_list = free_[size_class];
    std::lock_guard<Mutex> lock(free_list.mutex);
    Block* const block = free_list.head;
    if (block == nullptr) return nullptr;
    free_list.head = block->next_free;
    leased_bytes_.fetch_add(block->size_bytes, std::memory_order_relaxed);
    return block;
  }

  // Maps and registers a slab, or one large buffer; returns one block of it.
  absl::StatusOr<Block*> Grow(size_t size_class) {
    const size_t block_bytes = ClassBytes(size_class);
    const size_t region_bytes = std::max(block_bytes, kSlabBytes);
    const bool large = size_class >= kSmallClasses;
    const size_t bytes = large ? block_bytes : region_bytes;

    absl::MutexLock lock(&mutex_);
    if (absl::Status reserved = MapReserve(); !reserved.ok()) return reserved;
    if (mapped_bytes_ + bytes > limit_bytes_) TrimLarge(mapped_bytes_ + bytes - limit_bytes_);
    if (mapped_bytes_ + bytes > limit_bytes_) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the memory pool is at its limit: ", mapped_bytes_, " of ", limit_bytes_,
          " bytes are in use and a buffer of ", block_bytes,
          " bytes was asked for; release replies and buffers, or raise BufferPoolOptions::limit_bytes"));
    }
    uint8_t* const address = Map(bytes, fabric_->numa_node());
    if (address == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("mmap of ", bytes, " bytes for the memory pool failed: ", strerror(errno)));
    }
    Region region;
    region.address = address;
    region.size_bytes = bytes;
    absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> registered = fabric_->Register(address, bytes);
    if (!registered.ok()) {
      munmap(address, bytes);
      return absl::ResourceExhaustedError(absl::StrCat(
          "registering ", bytes, " bytes for the memory pool failed: ", registered.status().message()));
    }
    region.memory_region = *std::move(registered);
    const size_t count = large ? 1 : bytes / block_bytes;
    region.blocks = std::make_unique<Block[]>(count);
    for (size_t i = 0; i < count; ++i) {
      region.blocks[i] = {address + i * block_bytes,         block_bytes, region.memory_region->lkey(),
                          static_cast<uint32_t>(size_class), nullptr,     this};
    }
    Block* const blocks = region.blocks.get();
    regions_.push_back(std::move(region));
    mapped_bytes_ += bytes;
    is_short_.store(mapped_bytes_ > limit_bytes_ / 2, std::memory_order_relaxed);
    ++registrations_;
    if (count > 1) {
      FreeList& free_list = free_[size_class];
      std::lock_guard<Mutex> free_lock(free_list.mutex);
      for (size_t i = count - 1; i >= 1; --i) {
        blocks[i].next_free = free_list.head;
        free_list.head = &blocks[i];
      }
    }
    return &blocks[0];
  }

  // Once, before all else, so that whatever exhausts the pool finds it there.
  absl::Status MapReserve() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (reserve_.address != nullptr) return absl::OkStatus();
    uint8_t* const address = Map(kReserveBytes, fabric_->numa_node());
    if (address == nullptr) return absl::ResourceExhaustedError("mmap of the memory pool's reserve failed");
    auto registered = fabric_->Register(address, kReserveBytes);
    if (!registered.ok()) {
      munmap(address, kReserveBytes);
      return absl::ResourceExhaustedError(
          absl::StrCat("registering the memory pool's reserve failed: ", registered.status().message()));
    }
    constexpr size_t kCount = kReserveBytes / kReservedBufferBytes;
    reserve_ = {address, kReserveBytes, *std::move(registered), std::make_unique<Block[]>(kCount)};
    FreeList& free_list = free_[kReserveClass];
    std::lock_guard<Mutex> free_lock(free_list.mutex);
    for (size_t i = 0; i < kCount; ++i) {
      reserve_.blocks[i] = {
          address + i * kReservedBufferBytes,   kReservedBufferBytes, reserve_.memory_region->lkey(),
          static_cast<uint32_t>(kReserveClass), free_list.head,       this};
      free_list.head = &reserve_.blocks[i];
    }
    return absl::OkStatus();
  }

  // Gives back large buffers that nobody has, until `bytes` are free or there are no more. Slabs stay.
  void TrimLarge(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    size_t trimmed = 0;
    for (size_t size_class = kClasses - 1; size_class >= kSmallClasses && trimmed < bytes; --size_class) {
      FreeList& free_list = free_[size_class];
      std::lock_guard<Mutex> free_lock(free_list.mutex);
      while (free_list.head != nullptr && trimmed < bytes) {
        Block* const block = free_list.head;
        free_list.head = block->next_free;
        auto region = std::find_if(regions_.begin(), regions_.end(),
                                   [&](const Region& candidate) { return candidate.blocks.get() == block; });
        trimmed += region->size_bytes;
        mapped_bytes_ -= region->size_bytes;
        Unmap(*region);
        std::swap(*region, regions_.back());
        regions_.pop_back();
      }
    }
  }

  static void Unmap(Region& region) {
    region.memory_region.reset();
    munmap(region.address, region.size_bytes);
  }

  const std::shared_ptr<fabric::Fabric> fabric_;
  const size_t limit_bytes_;
  std::atomic<uint64_t> references_{1};  // The pool's own, and one a lease.
  std::atomic<uint64_t> leased_bytes_{0};
  std::array<FreeList, kClasses + 1> free_;  // Locked after mutex_.
  mutable absl::Mutex mutex_;
  std::vector<Region> regions_ ABSL_GUARDED_BY(mutex_);
  Region reserve_ ABSL_GUARDED_BY(mutex_);
  size_t mapped_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t registrations_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<BufferCache*> caches_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> is_short_{false};

  std::atomic<bool> awaited_{false};
  absl::Mutex waiters_mutex_;
  absl::CondVar waiters_changed_;
  std::vector<MemoryWaiter*> waiters_ ABSL_GUARDED_BY(waiters_mutex_);
  MemoryWaiter* called_ ABSL_GUARDED_BY(waiters_mutex_) = nullptr;
  std::thread::id calling_thread_ ABSL_GUARDED_BY(waiters_mutex_);
};

namespace internal {
void ReturnBlock(Block* block) { static_cast<BufferPool::Core*>(block->core)->Return(block); }
}  // namespace internal

BufferPool::BufferPool(std::shared_ptr<fabric::Fabric> fabric, const BufferPoolOptions& options, Threads)
    : core_(new Core(std::move(fabric), options)) {}

BufferPool::~BufferPool() { core_->Unref(); }

BufferCache::BufferCache(BufferPool& pool) : core_(pool.core_) { core_->AddCache(this); }

BufferCache::~BufferCache() {
  core_->RemoveCache(this);
  Flush();
}

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

void BufferCache::FlushIfPoolIsShort() {
  if (core_->is_short()) Flush();
}

absl::StatusOr<Lease> BufferPool::Acquire(size_t size_bytes) {
  absl::StatusOr<Block*> block = core_->Acquire(size_bytes);
  if (!block.ok()) return std::move(block).status();
  return Lease(*block);
}

Lease BufferPool::TryAcquire(size_t size_bytes, Shortage& why) {
  return Lease(core_->TryAcquire(size_bytes, why));
}

Lease BufferPool::AcquireReserved(size_t size_bytes) { return Lease(core_->AcquireReserved(size_bytes)); }

absl::Status BufferPool::Explain(Shortage why, size_t size_bytes) const {
  return core_->Explain(why, size_bytes);
}

void BufferPool::Await(MemoryWaiter& waiter, size_t) { core_->Await(waiter); }

void BufferPool::StopAwaiting(MemoryWaiter& waiter) { core_->StopAwaiting(waiter); }

bool BufferPool::CanEverHold(size_t size_bytes) const { return core_->CanEverHold(ClassOf(size_bytes)); }

BufferPoolStats BufferPool::stats() const { return core_->stats(); }

uint32_t BufferPool::FindRegion(const uint8_t* address, size_t length_bytes) const {
  return core_->FindRegion(address, length_bytes);
}

}  // namespace hawser::transport
