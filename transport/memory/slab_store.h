#ifndef HAWSER_TRANSPORT_MEMORY_SLAB_STORE_H_
#define HAWSER_TRANSPORT_MEMORY_SLAB_STORE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/mutex.h"
#include "hawser/transport/memory/memory_waiters.h"
#include "hawser/transport/memory/region_hints.h"
#include "hawser/transport/memory/size_class.h"
#include "hawser/transport/memory/slab.h"

namespace hawser::transport {

// All slabs of one pool, within its limit: finds free buffers, maps more, and returns idle memory to the
// system or to another class.
//
// Each byte that counts against the limit is busy (of a slab of which a buffer is out, or which is being
// mapped or unmapped) or idle. Idle memory is unmapped to make room, so a request succeeds if and only if the
// busy bytes leave room. Whenever they decrease, the waiters are notified.
// Thread:   any. No lock is held while memory is mapped, registered or unmapped, so that only the caller that
//           does it waits.
// Lifetime: until the last buffer is returned.
class SlabStore {
 public:
  // Each block is marked with `core`.
  SlabStore(std::shared_ptr<fabric::Fabric> fabric, size_t limit_bytes, void* core, MemoryWaiters& waiters);

  // False: not even if nothing is leased.
  bool CanEverHold(size_t size_class) const {
    return size_class < kSizeClasses && RegionBytes(size_class) <= limit_bytes_;
  }
  // False: not unless something is returned.
  bool HasRoomFor(size_t size_class) const {
    return busy_bytes_.load(std::memory_order_seq_cst) + RegionBytes(size_class) <= limit_bytes_;
  }

  // Null: no block of the class is free.
  internal::Block* Take(size_t size_class) {
    internal::Block* const block = lists_[size_class].Take();
    return block != nullptr || !IsInParts(size_class) ? block : TakeOfNewPart(size_class);
  }
  // The same from larger classes: any for a small buffer, those of at most twice the size for a large one.
  internal::Block* TakeLarger(size_t size_class);
  // The same from the reserve. Also null if nothing was ever mapped.
  internal::Block* TakeReserved() { return lists_[kReserve].Take(); }

  // True: its slab is idle now.
  bool Return(internal::Block* block);

  // There is room for more beside all that is mapped, idle or not.
  bool GrowsWithoutUnmapping(size_t size_class) const {
    return mapped_bytes() + RegionBytes(size_class) <= limit_bytes_;
  }
  // Growing takes no more than mapping a slab: nothing large has to be registered or unmapped for it.
  bool GrowsCheaply(size_t size_class);
  // Cuts an idle slab anew, or maps memory. Null: `why` is kAtLimit or kRefused.
  // If the system refuses, idle memory is unmapped, since it counts against memlock, too: no more than what
  // is asked for, and nothing if less is idle.
  internal::Block* Grow(size_t size_class, Shortage& why) {
    return Grow(size_class, NextSlabBytes(size_class), /*may_unmap=*/true, why);
  }
  // The same, for a small class, but maps no more than kSlabBytes, and unmaps nothing where the system
  // refuses. `more`: the class is so large now that GrowAhead() would map more.
  internal::Block* GrowBySlab(size_t size_class, Shortage& why, bool& more);
  // The same as Grow(), but the memory stays idle, for the next Take(). The caller notifies the waiters,
  // whatever this returns.
  bool GrowIdle(size_t size_class, Shortage& why);
  // The same for a class that will need more. Maps one larger slab, unless something is idle, another thread
  // maps one for the class, or Grow() would map no larger one. Unmaps nothing. False: `why` is kRefused or
  // kAtLimit.
  bool GrowAhead(size_t size_class, Shortage& why);
  // Idle memory, if unmapped, would make room for a small class where the system refuses.
  bool CanUnmapSlab() const { return idle_bytes() >= kSlabBytes; }
  // Why the system refused last.
  std::string refusal() const;

  // Unmaps memory that has been idle since the last MarkIdle(), or (`marked_only` false) any idle memory,
  // until at most `keep_bytes` are idle.
  void Unmap(size_t keep_bytes, bool marked_only);
  void MarkIdle();

  // Notifies the waiters for `size_class`, and those for which there is room.
  void NotifyWaiters(size_t size_class);

  // The lkey of the region that holds the whole range; 0: none does. Takes no lock if it was found lately.
  uint32_t Find(const uint8_t* address, size_t length_bytes) const;

  size_t limit_bytes() const { return limit_bytes_; }
  size_t busy_bytes() const { return busy_bytes_.load(std::memory_order_seq_cst); }
  size_t mapped_bytes() const { return mapped_bytes_.load(std::memory_order_relaxed); }
  // Approximate: the two values are not read at once.
  size_t idle_bytes() const {
    const size_t busy = busy_bytes(), mapped = mapped_bytes();
    return mapped > busy ? mapped - busy : 0;
  }
  uint64_t registrations() const;
  SlabList::Use UseOf(size_t size_class) { return lists_[size_class].use(); }

 private:
  // The lists of the reserve, and of slabs that are divided into parts.
  static constexpr size_t kReserve = kSizeClasses;
  static constexpr size_t kParts = kSizeClasses + 1;
  static constexpr size_t kLists = kSizeClasses + 2;

  // Null: no part is free.
  internal::Block* TakeOfNewPart(size_t size_class);
  internal::Block* TakeOf(internal::Block* part, size_t size_class);
  void Cut(Slab* slab, size_t size_class);
  // The lists whose slabs can be idle, and are for any class then, by the size of a slab. Slabs that are
  // divided into parts come last: the next small call most probably needs one.
  static constexpr std::array<size_t, kSizeClasses - kPartClasses + 1> kLargestFirst = [] {
    std::array<size_t, kSizeClasses - kPartClasses + 1> lists = {};
    for (size_t i = 0; i + 1 < lists.size(); ++i) lists[i] = kSizeClasses - 1 - i;
    lists.back() = kParts;
    return lists;
  }();
  // An idle slab of at most `bytes_max`; the smallest.
  Slab* TakeIdleSmall(size_t bytes_max);
  bool HasIdleSmall(size_t bytes_max);
  internal::Block* Grow(size_t size_class, size_t slab_bytes, bool may_unmap, Shortage& why);
  // What is mapped next for a class: RegionBytes(), or more (see kSlabBytesMax).
  size_t NextSlabBytes(size_t size_class);
  // `slab_bytes`: RegionBytes(), or more, which is tried first. `may_unmap`: see Grow().
  Slab* MakeSlab(size_t size_class, size_t slab_bytes, bool may_unmap, Shortage& why);
  std::unique_ptr<Slab> MapSlab(size_t slab_bytes, Shortage& why);
  // The same for one of more than kSlabBytes. Also null, with `why` kGrowing, if another thread maps one for
  // the class.
  std::unique_ptr<Slab> MapLargerSlab(size_t size_class, size_t slab_bytes, Shortage& why);
  Slab* AddMapped(std::unique_ptr<Slab> slab, size_t size_class);
  // Idle memory of `bytes` or a little more. False: less is idle.
  bool UnmapAtLeast(size_t bytes);
  void UnmapTaken(Slab* slab);
  static size_t ListOf(size_t size_class) { return IsInParts(size_class) ? kParts : size_class; }
  bool MapReserve();
  // Reserves room for `bytes`, which count as busy from here on. `victims`: slabs that must be unmapped
  // first; `excess`: how much of them is not needed. False: there is not enough room.
  bool Claim(size_t bytes, std::vector<std::unique_ptr<Slab>>& victims, size_t& excess);
  Slab* TakeVictim(size_t bytes);
  // They no longer count as mapped or busy. The caller notifies the waiters.
  void Unclaim(size_t bytes);
  std::unique_ptr<Slab> Unregister(Slab* slab) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refused(absl::string_view text);

  const std::shared_ptr<fabric::Fabric> fabric_;
  const bool pins_memory_;  // See Fabric.
  const size_t limit_bytes_;
  void* const core_;
  MemoryWaiters& waiters_;

  std::atomic<uint64_t> busy_bytes_{0};
  std::atomic<uint64_t> mapped_bytes_{0};  // Idle ones, too. Written under mutex_.
  std::atomic<uint64_t> reserve_busy_bytes_{0};
  std::array<SlabList, kLists> lists_;  // Locked after mutex_.
  // A thread maps a larger slab for the list. Many threads at once would map more than a quarter of what the
  // class has.
  std::array<std::atomic<bool>, kLists> maps_larger_ = {};

  mutable Mutex mutex_;
  std::map<const uint8_t*, std::unique_ptr<Slab>> slabs_ ABSL_GUARDED_BY(mutex_);  // By address.
  mutable RegionHints hints_;  // Of slabs_. Changed under mutex_.
  uint64_t registrations_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string refusal_ ABSL_GUARDED_BY(mutex_);

  absl::Mutex reserve_mutex_;  // Locked before mutex_.
  std::atomic<bool> has_reserve_{false};
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_SLAB_STORE_H_
