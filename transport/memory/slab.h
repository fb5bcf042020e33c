#ifndef HAWSER_TRANSPORT_MEMORY_SLAB_H_
#define HAWSER_TRANSPORT_MEMORY_SLAB_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "hawser/base/mutex.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/memory/registered_memory.h"

// Divides registered memory into buffers.
//
// A slab is one region, divided into buffers of one small class, or used as one large buffer. It belongs to a
// class while any buffer of it is leased. Then it is idle: any class may take it, or it goes back to the
// system.
//   system -> (mapped) -> SlabList of a class <-> leases
//      ^                        |
//      +------- idle -----------+---> SlabList of another class
// For the smallest classes a slab is divided twice: into parts, each of which is a slab of its own, which has
// no region and returns to the slab's list as soon as none of its buffers is leased.
//   SlabList of parts <-> (a part is a block, and a slab) -> SlabList of a class <-> leases
namespace hawser::transport {

struct Slab {
  Slab() = default;  // A part, before BecomePart().
  explicit Slab(std::unique_ptr<RegisteredMemory> registered)
      : memory(std::move(registered)),
        address(memory->address()),
        size_bytes(memory->size_bytes()),
        lkey(memory->lkey()) {}

  // Divides it again, into buffers of `block_bytes`, for the list of `size_class`. None of it is leased. The
  // blocks are created when they are taken, so the cost does not depend on their number.
  void Cut(size_t size_class, size_t block_bytes, void* core);
  // The same, into parts. Allocates what they need, once.
  void CutIntoParts(size_t size_class, void* core);
  // The part that `block`, of the slab that was cut into parts, is.
  static Slab& PartOf(internal::Block& block);

  const std::unique_ptr<RegisteredMemory> memory;  // Null: a part.
  uint8_t* address = nullptr;
  size_t size_bytes = 0;
  uint32_t lkey = 0;
  internal::Block* part_of = nullptr;  // Null: not a part.
  std::unique_ptr<Slab[]> parts;
  void* core = nullptr;
  size_t size_class = 0;
  size_t block_bytes = 0;
  uint32_t block_count = 0;
  uint32_t blocks_allocated = 0;
  uint32_t quarter_shift = 0;  // A quarter of its blocks are 1 << quarter_shift.
  std::unique_ptr<internal::Block[]> blocks;

  // The SlabList that it is in uses these.
  uint32_t made = 0;  // Blocks that were ever taken.
  uint32_t used = 0;  // Blocks that are leased.
  internal::Block* free = nullptr;
  uint32_t group = 0;
  bool marked = false;  // See SlabList::MarkIdle().
  Slab* previous = nullptr;
  Slab* next = nullptr;
};

// The slabs of one size class. The fullest serve first, so that sparse ones become idle: a single leased
// buffer keeps a slab from all other classes. For that slabs are grouped by quarters; taking and returning
// are O(1).
// Thread: any.
class alignas(64) SlabList {
 public:
  // First of all. `busy_bytes` counts the slabs that are not idle, over all lists that are given it. It
  // changes under the lock, so a slab that it does not count is found in its list.
  void CountIn(std::atomic<uint64_t>* busy_bytes) { busy_bytes_ = busy_bytes; }

  // Null: every block is leased.
  internal::Block* Take();

  // True: its slab is idle now. `part`: if that is a part, it has left the list; else null.
  bool Return(internal::Block* block, Slab*& part);

  // A slab that was cut for this class, counted in `busy_bytes` unless it is a part: it is idle then, or a
  // block is taken at once. A part is only added with a block taken.
  void Add(Slab* slab);
  internal::Block* AddAndTake(Slab* slab);

  // An idle slab of so many bytes, which leaves the list but stays counted in `busy_bytes`. `marked_only`: it
  // has been idle since the last MarkIdle(). Null: there is none.
  Slab* TakeIdle(size_t bytes_min = 0, size_t bytes_max = SIZE_MAX, bool marked_only = false);

  struct Use {
    uint64_t buffers = 0;  // That its slabs are divided into.
    uint64_t taken = 0;
  };
  Use use() {
    std::lock_guard<Mutex> lock(mutex_);
    return use_;
  }

  // One that TakeIdle(0, bytes_max) would return.
  bool HasIdle(size_t bytes_max = SIZE_MAX) {
    std::lock_guard<Mutex> lock(mutex_);
    return FindIdle(0, bytes_max, /*marked_only=*/false) != nullptr;
  }

  void MarkIdle();

 private:
  // By leased blocks: none; less than a quarter, ... less than all. The last: all of them, and the slab is in
  // no list.
  static constexpr uint32_t kIdle = 0;
  static constexpr uint32_t kFull = 5;

  static uint32_t GroupOf(const Slab& slab);
  internal::Block* TakeBlock(Slab* slab);
  void Regroup(Slab* slab);
  void Link(Slab* slab, uint32_t group);
  void Unlink(Slab* slab);
  Slab* FindIdle(size_t bytes_min, size_t bytes_max, bool marked_only) const;

  std::atomic<uint64_t>* busy_bytes_ = nullptr;
  Mutex mutex_;
  std::array<Slab*, kFull> groups_ = {};
  size_t larger_idle_ = 0;  // Idle slabs of more than kSlabBytes.
  Use use_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_SLAB_H_
