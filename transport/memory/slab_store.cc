#include "hawser/transport/memory/slab_store.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "hawser/transport/memory/registered_memory.h"

namespace hawser::transport {

using internal::Block;

SlabStore::SlabStore(std::shared_ptr<fabric::Fabric> fabric, size_t limit_bytes, void* core,
                     MemoryWaiters& waiters)
    : fabric_(std::move(fabric)),
      pins_memory_(fabric_ != nullptr && fabric_->pins_memory()),
      limit_bytes_(limit_bytes),
      core_(core),
      waiters_(waiters) {
  for (SlabList& list : lists_) list.CountIn(&busy_bytes_);
  lists_[kReserve].CountIn(&reserve_busy_bytes_);
}

Block* SlabStore::TakeLarger(size_t size_class) {
  const size_t end =
      IsSmall(size_class) ? kSmallClasses : std::min(size_class + kLargePerDoubling + 1, kSizeClasses);
  for (size_t larger = size_class + 1; larger < end; ++larger) {
    if (Block* const block = Take(larger); block != nullptr) return block;
  }
  return nullptr;
}

Block* SlabStore::TakeOfNewPart(size_t size_class) {
  Block* const part = lists_[kParts].Take();
  return part != nullptr ? TakeOf(part, size_class) : nullptr;
}

Block* SlabStore::TakeOf(Block* part, size_t size_class) {
  Slab& slab = Slab::PartOf(*part);
  slab.Cut(size_class, ClassBytes(size_class), core_);
  return lists_[size_class].AddAndTake(&slab);
}

bool SlabStore::Return(Block* block) {
  const size_t size_class = block->size_class;
  Slab* part = nullptr;
  bool idle = lists_[size_class].Return(block, part);
  if (size_class == kReserve) {
    // Errors that need the reserve wait in the lines of small buffers.
    if (waiters_.any_small()) waiters_.Notify(IsSmall);
    return false;
  }
  const bool frees_part = part != nullptr;
  if (frees_part) idle = lists_[kParts].Return(part->part_of, part);
  if (idle) {
    if (waiters_.any()) NotifyWaiters(size_class);
  } else if (waiters_.any_small()) {
    waiters_.Notify([&](size_t wanted) { return wanted <= size_class || (frees_part && IsInParts(wanted)); });
  }
  return idle;
}

void SlabStore::NotifyWaiters(size_t size_class) {
  waiters_.Notify(
      [&](size_t wanted) { return IsSmall(wanted) || wanted == size_class || HasRoomFor(wanted); });
}

// ---- Growth

bool SlabStore::GrowsCheaply(size_t size_class) {
  if (!IsSmall(size_class)) return false;
  return GrowsWithoutUnmapping(size_class) || HasIdleSmall(kSlabBytesMax);
}

bool SlabStore::HasIdleSmall(size_t bytes_max) {
  return lists_[kParts].HasIdle(bytes_max) ||
         std::any_of(lists_.begin() + kPartClasses, lists_.begin() + kSmallClasses,
                     [&](SlabList& list) { return list.HasIdle(bytes_max); });
}

size_t SlabStore::NextSlabBytes(size_t size_class) {
  const size_t least = RegionBytes(size_class);
  if (!pins_memory_ || !IsSmall(size_class)) return least;
  const bool in_parts = IsInParts(size_class);
  const size_t buffer_bytes = in_parts ? kPartBytes : ClassBytes(size_class);
  const size_t quarter = lists_[ListOf(size_class)].use().buffers * buffer_bytes / 4;
  // An eighth of what is left, so that other classes can grow.
  const size_t left = limit_bytes_ - std::min(mapped_bytes(), limit_bytes_);
  const size_t most = std::min({quarter, left / 8, in_parts ? kPartsBytesMax : kSlabBytesMax});
  return most <= least ? least : std::bit_floor(most);
}

Block* SlabStore::GrowBySlab(size_t size_class, Shortage& why, bool& more) {
  Block* const block = Grow(size_class, RegionBytes(size_class), /*may_unmap=*/false, why);
  more = NextSlabBytes(size_class) > RegionBytes(size_class);
  return block;
}

Block* SlabStore::Grow(size_t size_class, size_t slab_bytes, bool may_unmap, Shortage& why) {
  Slab* const slab = MakeSlab(size_class, slab_bytes, may_unmap, why);
  if (slab != nullptr) {
    Block* const block = lists_[slab->size_class].AddAndTake(slab);
    return IsInParts(size_class) ? TakeOf(block, size_class) : block;
  }
  // A waiter for a large buffer may have missed memory that was claimed meanwhile. Waiters for small buffers
  // are not notified: theirs may be the request that has just failed, and it would fail again and again.
  if (why == Shortage::kRefused && waiters_.any()) {
    waiters_.Notify([&](size_t wanted) { return !IsSmall(wanted) && HasRoomFor(wanted); });
  }
  return nullptr;
}

bool SlabStore::GrowIdle(size_t size_class, Shortage& why) {
  Slab* const slab = MakeSlab(size_class, NextSlabBytes(size_class), /*may_unmap=*/true, why);
  if (slab != nullptr) lists_[slab->size_class].Add(slab);
  return slab != nullptr;
}

bool SlabStore::GrowAhead(size_t size_class, Shortage& why) {
  const size_t bytes = NextSlabBytes(size_class);
  if (bytes <= RegionBytes(size_class) || HasIdleSmall(bytes)) return true;
  std::unique_ptr<Slab> made = MapLargerSlab(size_class, bytes, why);
  if (made == nullptr) return why == Shortage::kGrowing;
  Slab* const slab = AddMapped(std::move(made), size_class);
  lists_[slab->size_class].Add(slab);
  return true;
}

// For blocks of the class: into parts, if it is one of those.
void SlabStore::Cut(Slab* slab, size_t size_class) {
  if (IsInParts(size_class)) return slab->CutIntoParts(kParts, core_);
  slab->Cut(size_class, ClassBytes(size_class), core_);
}

Slab* SlabStore::TakeIdleSmall(size_t bytes_max) {
  for (size_t bytes = kSlabBytes; bytes <= bytes_max; bytes *= 2) {
    if (Slab* const slab = lists_[kParts].TakeIdle(0, bytes); slab != nullptr) return slab;
    for (size_t i = kPartClasses; i < kSmallClasses; ++i) {
      if (Slab* const slab = lists_[i].TakeIdle(0, bytes); slab != nullptr) return slab;
    }
  }
  return nullptr;
}

// A slab that is divided for the class, is in no list, and counts as busy.
Slab* SlabStore::MakeSlab(size_t size_class, size_t slab_bytes, bool may_unmap, Shortage& why) {
  const size_t least = RegionBytes(size_class);
  const auto take_idle = [&](size_t bytes_max) {
    Slab* const slab = IsSmall(size_class) ? TakeIdleSmall(bytes_max) : nullptr;
    if (slab != nullptr) Cut(slab, size_class);
    return slab;
  };
  // A single buffer keeps a slab from all other classes. So a class that would not map such a large one takes
  // it only if nothing can be mapped.
  const size_t idle_max = pins_memory_ ? kSlabBytesMax : kSlabBytes;
  Slab* idle = take_idle(GrowsWithoutUnmapping(size_class) ? NextSlabBytes(size_class) : idle_max);
  if (idle != nullptr) return idle;
  why = Shortage::kRefused;
  if (!MapReserve()) return nullptr;
  std::unique_ptr<Slab> made;
  if (slab_bytes > least) made = MapLargerSlab(size_class, slab_bytes, why);
  if (made == nullptr) made = MapSlab(least, why);
  if (made == nullptr && why == Shortage::kRefused) {
    if ((idle = take_idle(idle_max)) != nullptr) return idle;
    if (may_unmap && UnmapAtLeast(least)) made = MapSlab(least, why);
  }
  return made != nullptr ? AddMapped(std::move(made), size_class) : nullptr;
}

Slab* SlabStore::AddMapped(std::unique_ptr<Slab> slab, size_t size_class) {
  Slab* const added = slab.get();
  Cut(added, size_class);
  MutexLock lock(mutex_);
  slabs_.emplace(added->address, std::move(slab));
  ++registrations_;
  return added;
}

std::unique_ptr<Slab> SlabStore::MapLargerSlab(size_t size_class, size_t slab_bytes, Shortage& why) {
  std::atomic<bool>& maps = maps_larger_[ListOf(size_class)];
  why = Shortage::kGrowing;
  if (maps.exchange(true, std::memory_order_acquire)) return nullptr;
  std::unique_ptr<Slab> made = MapSlab(slab_bytes, why);
  maps.store(false, std::memory_order_release);
  return made;
}

// It counts as mapped and busy.
std::unique_ptr<Slab> SlabStore::MapSlab(size_t bytes, Shortage& why) {
  std::vector<std::unique_ptr<Slab>> victims;
  size_t excess = 0;
  why = Shortage::kAtLimit;
  if (!Claim(bytes, victims, excess)) return nullptr;
  victims.clear();
  if (excess != 0) {
    Unclaim(excess);
    if (waiters_.any()) NotifyWaiters(kSizeClasses);
  }
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> memory = RegisteredMemory::Map(*fabric_, bytes);
  if (!memory.ok()) {
    Refused(memory.status().message());
    Unclaim(bytes);
    why = Shortage::kRefused;
    return nullptr;
  }
  return std::make_unique<Slab>(*std::move(memory));
}

// Maps the reserve first, so that it exists when the pool, or the system, is exhausted.
bool SlabStore::MapReserve() {
  if (has_reserve_.load(std::memory_order_acquire)) return true;
  absl::MutexLock reserve_lock(&reserve_mutex_);
  if (has_reserve_.load(std::memory_order_relaxed)) return true;
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> memory = RegisteredMemory::Map(*fabric_, kReserveBytes);
  if (!memory.ok()) {
    Refused(memory.status().message());
    return false;
  }
  auto made = std::make_unique<Slab>(*std::move(memory));
  Slab* const slab = made.get();
  slab->Cut(kReserve, kReservedBufferBytes, core_);
  {
    MutexLock lock(mutex_);
    slabs_.emplace(slab->address, std::move(made));
  }
  reserve_busy_bytes_.fetch_add(slab->size_bytes, std::memory_order_relaxed);
  lists_[kReserve].Add(slab);
  has_reserve_.store(true, std::memory_order_release);
  return true;
}

bool SlabStore::Claim(size_t bytes, std::vector<std::unique_ptr<Slab>>& victims, size_t& excess) {
  std::vector<Slab*> taken;
  size_t freed = 0;
  {
    MutexLock lock(mutex_);
    const size_t wanted = mapped_bytes() + bytes;
    bool enough = busy_bytes_.load(std::memory_order_seq_cst) + bytes <= limit_bytes_;
    while (enough && wanted - freed > limit_bytes_) {
      Slab* const victim = TakeVictim(wanted - freed - limit_bytes_);
      enough = victim != nullptr;
      if (!enough) break;
      taken.push_back(victim);
      freed += victim->size_bytes;
    }
    if (enough) {
      for (Slab* slab : taken) victims.push_back(Unregister(slab));
      const size_t more = bytes - std::min(bytes, freed);
      excess = freed - std::min(bytes, freed);
      mapped_bytes_.fetch_add(more, std::memory_order_relaxed);
      busy_bytes_.fetch_add(more, std::memory_order_seq_cst);
      return true;
    }
  }
  // Other threads were faster. They may have missed the slab that was taken here.
  for (Slab* slab : taken) {
    lists_[slab->size_class].Add(slab);
    NotifyWaiters(slab->size_class);
  }
  return false;
}

// Takes the smallest idle slab that frees `bytes` alone; else the largest.
Slab* SlabStore::TakeVictim(size_t bytes) {
  for (size_t i = std::max(kSmallClasses, ClassOf(bytes)); i < kSizeClasses; ++i) {
    if (Slab* const slab = lists_[i].TakeIdle(); slab != nullptr) return slab;
  }
  for (size_t i : kLargestFirst) {
    if (Slab* const slab = lists_[i].TakeIdle(); slab != nullptr) return slab;
  }
  return nullptr;
}

void SlabStore::Unclaim(size_t bytes) {
  MutexLock lock(mutex_);
  mapped_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  busy_bytes_.fetch_sub(bytes, std::memory_order_seq_cst);
}

std::unique_ptr<Slab> SlabStore::Unregister(Slab* slab) {
  hints_.Forget(slab->address);
  return std::move(slabs_.extract(slab->address).mapped());
}

void SlabStore::Refused(absl::string_view text) {
  MutexLock lock(mutex_);
  refusal_ = std::string(text);
}

std::string SlabStore::refusal() const {
  MutexLock lock(mutex_);
  return refusal_;
}

// ---- Idle memory

// What is kept is the smallest there is, of whatever class: a larger slab, of any class, goes before those of
// kSlabBytes.
void SlabStore::Unmap(size_t keep_bytes, bool marked_only) {
  for (const size_t bytes_min : {kSlabBytes + 1, size_t{0}}) {
    for (size_t i : kLargestFirst) {
      while (idle_bytes() > keep_bytes) {
        Slab* const slab = lists_[i].TakeIdle(bytes_min, SIZE_MAX, marked_only);
        if (slab == nullptr) break;
        UnmapTaken(slab);
      }
    }
  }
}

bool SlabStore::UnmapAtLeast(size_t bytes) {
  if (idle_bytes() < bytes) return false;
  for (size_t freed = 0; freed < bytes;) {
    Slab* const victim = TakeVictim(bytes - freed);
    if (victim == nullptr) break;  // Other threads were faster.
    freed += victim->size_bytes;
    UnmapTaken(victim);
  }
  return true;
}

// `slab` is in no list, and counts as busy until it is unmapped.
void SlabStore::UnmapTaken(Slab* slab) {
  const size_t bytes = slab->size_bytes;
  std::unique_ptr<Slab> unmapped;
  {
    MutexLock lock(mutex_);
    unmapped = Unregister(slab);
  }
  unmapped.reset();
  Unclaim(bytes);
  if (waiters_.any()) NotifyWaiters(kSizeClasses);
}

void SlabStore::MarkIdle() {
  for (size_t i : kLargestFirst) lists_[i].MarkIdle();
}

// ---- Statistics

uint32_t SlabStore::Find(const uint8_t* address, size_t length_bytes) const {
  if (const uint32_t lkey = hints_.Find(address, length_bytes); lkey != 0) return lkey;
  MutexLock lock(mutex_);
  auto found = slabs_.upper_bound(address);
  if (found == slabs_.begin()) return 0;
  const RegisteredMemory& memory = *(--found)->second->memory;
  const auto offset = static_cast<size_t>(address - memory.address());
  if (offset >= memory.size_bytes() || length_bytes > memory.size_bytes() - offset) return 0;
  hints_.Note(address, memory.address(), memory.size_bytes(), memory.lkey());
  return memory.lkey();
}

uint64_t SlabStore::registrations() const {
  MutexLock lock(mutex_);
  return registrations_;
}

}  // namespace hawser::transport
