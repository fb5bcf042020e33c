#include "hawser/transport/memory/buffer_pool.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "hawser/transport/log/log.h"
#include "hawser/transport/memory/buffer_pool_core.h"
#include "hawser/transport/memory/retired_memory.h"
#include "hawser/transport/memory/size_class.h"

namespace hawser::transport {

using internal::Block;

namespace {

// A shortage is logged once, however many requests are refused. A pool that has refused nothing for this long
// has recovered; its next shortage is logged again.
constexpr int64_t kRecoveryNs = 10'000'000'000;

absl::Duration IdleTime(const BufferPoolOptions& options, const fabric::Fabric* fabric) {
  const bool is_dear = fabric != nullptr && fabric->pins_memory();
  return options.idle.value_or(is_dear ? absl::Seconds(60) : absl::Seconds(4));
}

}  // namespace

BufferPool::Core::Core(std::shared_ptr<fabric::Fabric> fabric, const BufferPoolOptions& options,
                       Threads threads)
    : slabs_(fabric, options.limit_bytes, this, waiters_),
      worker_(slabs_, caches_, threads == Threads::kMayStart, IdleTime(options, fabric.get())) {}

// ---- Taking

Block* BufferPool::Core::Acquire(size_t size_bytes, Shortage& why) {
  const size_t size_class = ClassOf(size_bytes);
  if (Block* const block = TakeCached(size_class); block != nullptr) return block;
  // The connections of a poller wait for this thread. So it registers no more for a small buffer than
  // TryAcquire() does.
  const bool on_poller = BufferCache::current_ != nullptr;
  const bool by_slab = on_poller && worker_.available() && IsSmall(size_class);
  Block* const block = AcquireShared(size_class, by_slab ? Growth::kSlab : Growth::kAny, why);
  if (block == nullptr) NotifyShortage(size_class, why);
  return block;
}

Block* BufferPool::Core::TryAcquire(size_t size_bytes, Shortage& why) {
  const size_t size_class = ClassOf(size_bytes);
  if (Block* const block = TakeCached(size_class); block != nullptr) return block;
  return AcquireShared(size_class, worker_.available() ? Growth::kCheap : Growth::kAny, why);
}

Block* BufferPool::Core::AcquireShared(size_t size_class, Growth growth, Shortage& why) {
  why = Shortage::kTooLarge;
  if (!slabs_.CanEverHold(size_class)) return nullptr;
  if (Block* const block = slabs_.Take(size_class); block != nullptr) return Leased(block);
  // At the limit, a free block of up to twice the size is used: better than unmapping its slab for one that
  // fits.
  const bool reuse = !IsSmall(size_class) && !slabs_.GrowsWithoutUnmapping(size_class);
  Block* block = reuse ? slabs_.TakeLarger(size_class) : nullptr;
  if (block == nullptr) block = Grow(size_class, growth, why);
  // Another thread may have just mapped one.
  if (block == nullptr) block = slabs_.Take(size_class);
  if (block == nullptr) block = slabs_.TakeLarger(size_class);
  return block != nullptr ? Leased(block) : nullptr;
}

void BufferPool::Core::NotifyShortage(size_t size_class, Shortage why) {
  // kTooLarge: no amount of free memory would help.
  if (why == Shortage::kGrowing || why == Shortage::kTooLarge) return;
  refusals_.fetch_add(1, std::memory_order_relaxed);
  const int64_t now_ns = fabric::MonotonicNs();
  if (short_until_ns_.exchange(now_ns + kRecoveryNs, std::memory_order_relaxed) > now_ns) return;
  Log(LogSeverity::kError, absl::StrCat("registered memory has run out: ",
                                        absl::string_view(Explain(why, ClassBytes(size_class)).message())));
}

Block* BufferPool::Core::Grow(size_t size_class, Growth growth, Shortage& why) {
  if (growth == Growth::kAny) return slabs_.Grow(size_class, why);
  if (growth == Growth::kSlab || slabs_.GrowsCheaply(size_class)) return GrowBySlab(size_class, why);
  return GrowElsewhere(size_class, why);
}

Block* BufferPool::Core::GrowBySlab(size_t size_class, Shortage& why) {
  bool more = false;
  Block* const block = slabs_.GrowBySlab(size_class, why, more);
  if (block != nullptr && more) worker_.RequestGrowthAhead(size_class);  // For the next calls.
  if (block == nullptr && why == Shortage::kRefused && slabs_.CanUnmapSlab()) {
    why = worker_.RequestGrowth(size_class);  // It unmaps what is idle.
  }
  return block;
}

Block* BufferPool::Core::GrowElsewhere(size_t size_class, Shortage& why) {
  why = slabs_.HasRoomFor(size_class) ? worker_.RequestGrowth(size_class) : Shortage::kAtLimit;
  return nullptr;
}

Block* BufferPool::Core::AcquireReserved(size_t size_bytes) {
  if (size_bytes > kReservedBufferBytes) return nullptr;
  Shortage why;
  const bool plenty = slabs_.HasRoomFor(ClassOf(size_bytes));
  Block* block = plenty ? TryAcquire(size_bytes, why) : nullptr;
  if (block != nullptr) return block;
  // At the limit, free memory is left to receive rings: without receives nothing is sent.
  block = slabs_.TakeReserved();
  if (block != nullptr) return Leased(block);
  block = TryAcquire(size_bytes, why);
  if (block == nullptr) NotifyShortage(ClassOf(size_bytes), why);
  return block;
}

Block* BufferPool::Core::Leased(Block* block) {
  references_.fetch_add(1, std::memory_order_relaxed);
  leased_bytes_.fetch_add(block->size_bytes, std::memory_order_relaxed);
  return block;
}

// ---- Returning

void BufferPool::Core::ReturnShared(Block* block) {
  leased_bytes_.fetch_sub(block->size_bytes, std::memory_order_relaxed);
  if (slabs_.Return(block)) worker_.NoteIdle();
  Unref();
}

void BufferPool::Core::Unref() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void BufferPool::Core::Retire() {
  // In a child after fork() a thread of the parent may hold a lock for ever. Everything is leaked then.
  if (!worker_.Stop()) return;
  slabs_.Unmap(/*keep_bytes=*/0, /*marked_only=*/false);
  Unref();
}

// ---- The caches, used by every call

BufferCache* BufferPool::Core::CacheHere(size_t size_class) const {
  BufferCache* const cache = BufferCache::current_;
  return cache != nullptr && cache->core_ == this && size_class < BufferCache::kClasses ? cache : nullptr;
}

Block* BufferPool::Core::TakeCached(size_t size_class) {
  BufferCache* const cache = CacheHere(size_class);
  if (cache == nullptr) return nullptr;
  BufferCache::Kept& kept = cache->kept_[size_class];
  Block* const block = kept.head;
  if (block == nullptr) return nullptr;
  kept.head = block->next_free;
  kept.count.store(kept.count.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  return block;
}

bool BufferPool::Core::Cache(Block* block) {
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

// ---- Statistics and the log

absl::Status BufferPool::Core::Explain(Shortage why, size_t size_bytes) const {
  switch (why) {
    case Shortage::kTooLarge:
      return absl::ResourceExhaustedError(absl::StrCat(
          "the whole memory pool of ", slabs_.limit_bytes(), " bytes cannot hold a buffer of ", size_bytes,
          " bytes (small ones come in slabs of ", kSlabBytes, "); raise BufferPoolOptions::limit_bytes"));
    case Shortage::kRefused:
      return absl::ResourceExhaustedError(slabs_.refusal());
    case Shortage::kGrowing:
      return absl::ResourceExhaustedError(
          absl::StrCat("the memory pool is being extended for a buffer of ", size_bytes, " bytes"));
    case Shortage::kAtLimit:
      break;
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "the memory pool is at its limit: ", slabs_.busy_bytes(), " of ", slabs_.limit_bytes(),
      " bytes are in use and a buffer of ", size_bytes,
      " bytes was asked for; release replies and buffers, or raise BufferPoolOptions::limit_bytes"));
}

BufferPoolStats BufferPool::Core::stats() const {
  BufferPoolStats stats;
  const BufferCaches::Total kept = caches_.kept();
  const uint64_t leases = references_.load(std::memory_order_relaxed) - 1;
  const uint64_t leased_bytes = leased_bytes_.load(std::memory_order_relaxed);
  stats.limit_bytes = slabs_.limit_bytes();
  stats.mapped_bytes = slabs_.mapped_bytes();
  stats.leased_bytes = leased_bytes - std::min(kept.bytes, leased_bytes);
  stats.leases = leases - std::min(kept.buffers, leases);
  stats.registrations = slabs_.registrations();
  return stats;
}

std::vector<BufferClassStats> BufferPool::Core::classes() {
  const BufferCaches::Total kept = caches_.kept();
  std::vector<BufferClassStats> classes;
  for (size_t i = 0; i < kSizeClasses; ++i) {
    const SlabList::Use use = slabs_.UseOf(i);
    if (use.buffers == 0) continue;
    // What a poller keeps is taken, and not leased.
    const uint64_t cached = i < kept.buffers_of_class.size() ? kept.buffers_of_class[i] : 0;
    classes.push_back({ClassBytes(i), use.buffers, use.taken - std::min(cached, use.taken)});
  }
  return classes;
}

namespace internal {
void ReturnBlock(Block* block) {
  RetireMemory(block->data, block->size_bytes);
  static_cast<BufferPool::Core*>(block->core)->Return(block);
}
}  // namespace internal

namespace {

// `block` leaves the pool; it may be null.
Block* Revived(Block* block) {
  if (block != nullptr) ReviveMemory(block->data, block->size_bytes);
  return block;
}

}  // namespace

// ---- BufferPool

BufferPool::BufferPool(std::shared_ptr<fabric::Fabric> fabric, const BufferPoolOptions& options,
                       Threads threads)
    : core_(new Core(std::move(fabric), options, threads)) {}

BufferPool::~BufferPool() { core_->Retire(); }

absl::StatusOr<Lease> BufferPool::Acquire(size_t size_bytes) {
  Shortage why;
  Block* const block = core_->Acquire(size_bytes, why);
  if (block == nullptr) return core_->Explain(why, size_bytes);
  return Lease(Revived(block));
}

Lease BufferPool::TryAcquire(size_t size_bytes, Shortage& why) {
  return Lease(Revived(core_->TryAcquire(size_bytes, why)));
}

Lease BufferPool::AcquireReserved(size_t size_bytes) {
  return Lease(Revived(core_->AcquireReserved(size_bytes)));
}

void BufferPool::NotifyShortage(size_t size_bytes, Shortage why) {
  core_->NotifyShortage(ClassOf(size_bytes), why);
}

uint64_t BufferPool::refusals() const { return core_->refusals(); }

bool BufferPool::AnyWaitsAtLimit() const { return core_->waiters().any() && !HasRoomForSlab(); }

bool BufferPool::HasRoomForSlab() const { return core_->slabs().HasRoomFor(0); }

absl::Status BufferPool::Explain(Shortage why, size_t size_bytes) const {
  return core_->Explain(why, size_bytes);
}

void BufferPool::Await(MemoryWaiter& waiter, size_t size_bytes) {
  core_->waiters().Add(waiter, ClassOf(size_bytes));
}

void BufferPool::StopAwaiting(MemoryWaiter& waiter) { core_->waiters().Remove(waiter); }

bool BufferPool::CanEverHold(size_t size_bytes) const {
  return core_->slabs().CanEverHold(ClassOf(size_bytes));
}

void BufferPool::GiveBackIdle() { core_->worker().GiveBackIdle(); }

absl::Duration BufferPool::idle() const { return core_->worker().idle(); }

size_t BufferPool::CapacityOf(size_t size_bytes) { return ClassBytes(ClassOf(size_bytes)); }

BufferPoolStats BufferPool::stats() const { return core_->stats(); }
std::vector<BufferClassStats> BufferPool::classes() const { return core_->classes(); }

uint32_t BufferPool::FindRegion(const uint8_t* address, size_t length_bytes) const {
  return core_->slabs().Find(address, length_bytes);
}

}  // namespace hawser::transport
