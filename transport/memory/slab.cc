#include "hawser/transport/memory/slab.h"

#include <bit>
#include <mutex>

#include "hawser/base/check.h"
#include "hawser/transport/memory/size_class.h"

namespace hawser::transport {

using internal::Block;

void Slab::Cut(size_t new_class, size_t bytes, void* new_core) {
  const auto count = static_cast<uint32_t>(size_bytes / bytes);
  if (count > blocks_allocated) {
    blocks.reset(new Block[count]);  // Not cleared: taking a block initialises it.
    blocks_allocated = count;
  }
  core = new_core;
  size_class = new_class;
  block_bytes = bytes;
  block_count = count;
  quarter_shift = count < 4 ? 0 : static_cast<uint32_t>(std::bit_width(count - 1) - 2);
  made = used = 0;
  free = nullptr;
  marked = false;
}

void Slab::CutIntoParts(size_t new_class, void* new_core) {
  Cut(new_class, kPartBytes, new_core);
  if (parts == nullptr) parts = std::make_unique<Slab[]>(block_count);
}

Slab& Slab::PartOf(Block& block) {
  const Slab& whole = *block.slab;
  Slab& part = whole.parts[static_cast<size_t>(&block - whole.blocks.get())];
  part.address = block.data;
  part.size_bytes = block.size_bytes;
  part.lkey = block.lkey;
  part.part_of = &block;
  return part;
}

Block* SlabList::Take() {
  std::lock_guard<Mutex> lock(mutex_);
  for (uint32_t group = kFull; group-- > 0;) {
    Slab* const slab = groups_[group];
    if (slab == nullptr) continue;
    if (group == kIdle) busy_bytes_->fetch_add(slab->size_bytes, std::memory_order_seq_cst);
    Block* const block = TakeBlock(slab);
    Regroup(slab);
    return block;
  }
  return nullptr;
}

bool SlabList::Return(Block* block, Slab*& part) {
  std::lock_guard<Mutex> lock(mutex_);
  Slab* const slab = block->slab;
  part = nullptr;
  block->next_free = slab->free;
  slab->free = block;
  HAWSER_SUBTRACT(slab->used, 1);
  HAWSER_SUBTRACT(use_.taken, 1);
  Regroup(slab);
  if (slab->used != 0) return false;
  if (slab->part_of != nullptr) {
    part = slab;
    HAWSER_SUBTRACT(use_.buffers, slab->block_count);
    Unlink(slab);
    return true;
  }
  busy_bytes_->fetch_sub(slab->size_bytes, std::memory_order_seq_cst);
  return true;
}

void SlabList::Add(Slab* slab) {
  std::lock_guard<Mutex> lock(mutex_);
  use_.buffers += slab->block_count;
  Link(slab, kIdle);
  busy_bytes_->fetch_sub(slab->size_bytes, std::memory_order_seq_cst);
}

Block* SlabList::AddAndTake(Slab* slab) {
  std::lock_guard<Mutex> lock(mutex_);
  use_.buffers += slab->block_count;
  Block* const block = TakeBlock(slab);
  Link(slab, GroupOf(*slab));
  return block;
}

Slab* SlabList::TakeIdle(size_t bytes_min, size_t bytes_max, bool marked_only) {
  std::lock_guard<Mutex> lock(mutex_);
  Slab* const slab = FindIdle(bytes_min, bytes_max, marked_only);
  if (slab == nullptr) return nullptr;
  HAWSER_SUBTRACT(use_.buffers, slab->block_count);
  Unlink(slab);
  busy_bytes_->fetch_add(slab->size_bytes, std::memory_order_seq_cst);
  return slab;
}

Slab* SlabList::FindIdle(size_t bytes_min, size_t bytes_max, bool marked_only) const {
  if (bytes_min > kSlabBytes && larger_idle_ == 0) return nullptr;
  Slab* slab = groups_[kIdle];
  while (slab != nullptr &&
         (slab->size_bytes < bytes_min || slab->size_bytes > bytes_max || (marked_only && !slab->marked))) {
    slab = slab->next;
  }
  return slab;
}

void SlabList::MarkIdle() {
  std::lock_guard<Mutex> lock(mutex_);
  for (Slab* slab = groups_[kIdle]; slab != nullptr; slab = slab->next) slab->marked = true;
}

uint32_t SlabList::GroupOf(const Slab& slab) {
  if (slab.used == slab.block_count) return kFull;
  return slab.used == 0 ? kIdle : 1 + (slab.used >> slab.quarter_shift);
}

Block* SlabList::TakeBlock(Slab* slab) {
  Block* block = slab->free;
  if (block != nullptr) {
    slab->free = block->next_free;
  } else {
    const uint32_t i = slab->made++;
    block = &slab->blocks[i];
    *block = {.data = slab->address + i * slab->block_bytes,
              .size_bytes = slab->block_bytes,
              .lkey = slab->lkey,
              .size_class = static_cast<uint32_t>(slab->size_class),
              .next_free = nullptr,
              .core = slab->core,
              .slab = slab};
  }
  ++slab->used;
  ++use_.taken;
  slab->marked = false;
  return block;
}

void SlabList::Regroup(Slab* slab) {
  const uint32_t group = GroupOf(*slab);
  if (group == slab->group) return;
  if (slab->group != kFull) Unlink(slab);
  Link(slab, group);
}

void SlabList::Link(Slab* slab, uint32_t group) {
  slab->group = group;
  if (group == kFull) return;
  if (group == kIdle && slab->size_bytes > kSlabBytes) ++larger_idle_;
  slab->previous = nullptr;
  slab->next = groups_[group];
  if (slab->next != nullptr) slab->next->previous = slab;
  groups_[group] = slab;
}

void SlabList::Unlink(Slab* slab) {
  if (slab->group == kIdle && slab->size_bytes > kSlabBytes) HAWSER_SUBTRACT(larger_idle_, 1);
  if (slab->next != nullptr) slab->next->previous = slab->previous;
  (slab->previous != nullptr ? slab->previous->next : groups_[slab->group]) = slab->next;
}

}  // namespace hawser::transport
