#include "hawser/transport/fabric/tcp_regions.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hawser::fabric {

RegionTable::~RegionTable() {
  for (std::atomic<Chunk*>& chunk : chunks_) delete chunk.load(std::memory_order_relaxed);
}

absl::StatusOr<uint32_t> RegionTable::Add(const uint8_t* address, size_t length_bytes) {
  absl::MutexLock lock(&mutex_);
  uint32_t lkey;
  if (!free_.empty()) {
    lkey = free_.back();
    free_.pop_back();
  } else if (used_ < kRegionsMax) {
    lkey = uint32_t{1} << kIndexBits | used_++;
  } else {
    return absl::ResourceExhaustedError(
        absl::StrCat("register ", length_bytes, " bytes: ", kRegionsMax,
                     " regions are registered already: register few large slabs, not messages"));
  }
  const uint32_t index = lkey & (kRegionsMax - 1);
  std::atomic<Chunk*>& chunk = chunks_[index / kChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    chunk.store(new Chunk, std::memory_order_release);
  }
  Region& region = (*chunk.load(std::memory_order_relaxed))[index % kChunk];
  region.address.store(reinterpret_cast<uint64_t>(address), std::memory_order_relaxed);
  region.length_bytes.store(length_bytes, std::memory_order_relaxed);
  region.lkey.store(lkey, std::memory_order_release);  // Last: whoever finds it finds its bounds.
  return lkey;
}

void RegionTable::Remove(uint32_t lkey) {
  absl::MutexLock lock(&mutex_);
  const uint32_t index = lkey & (kRegionsMax - 1);
  (*chunks_[index / kChunk].load(std::memory_order_relaxed))[index % kChunk].lkey.store(
      0, std::memory_order_release);
  const uint32_t next = lkey + (uint32_t{1} << kIndexBits);
  free_.push_back(next >> kIndexBits == 0 ? uint32_t{1} << kIndexBits | index : next);
}

absl::Status RegionTable::Refusal(const Sge& sge) const {
  const std::string range = absl::StrFormat("[%p, +%u)", sge.address, sge.length);
  const Region* region = Find(sge.lkey);
  if (region == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("sge ", range, ": no region has lkey ", sge.lkey,
                                                   ": never registered, or deregistered too early"));
  }
  if (sge.length == 0) return absl::InvalidArgumentError(absl::StrCat("sge ", range, " is empty"));
  return absl::InvalidArgumentError(
      absl::StrFormat("sge %s does not lie in the region of its lkey %u, which is [%p, +%u)", range, sge.lkey,
                      reinterpret_cast<void*>(region->address.load(std::memory_order_relaxed)),
                      region->length_bytes.load(std::memory_order_relaxed)));
}

uint32_t GrantTable::Add(const Sge& range, QueuePair::Access access) {
  if (first_free_ == kNone) {
    if (grants_.size() == kGrantsMax) return 0;
    first_free_ = static_cast<uint16_t>(grants_.size());
    grants_.push_back({.generation = salt_});
  }
  const uint32_t index = first_free_;
  Grant& grant = grants_[index];
  first_free_ = grant.next_free;
  if (++grant.generation == 0) grant.generation = 1;
  grant.address = reinterpret_cast<uint64_t>(range.address);
  grant.length_bytes = range.length;
  grant.access = access;
  grant.active = true;
  return static_cast<uint32_t>(grant.generation) << 16 | index;
}

bool GrantTable::Remove(uint32_t rkey) {
  const Grant* found = Find(rkey);
  if (found == nullptr) return false;
  Grant& grant = grants_[found - grants_.data()];
  grant.active = false;
  grant.next_free = first_free_;
  first_free_ = static_cast<uint16_t>(rkey & 0xffff);
  return true;
}

const GrantTable::Grant* GrantTable::Find(uint32_t rkey) const {
  const uint32_t index = rkey & 0xffff;
  if (index >= grants_.size()) return nullptr;
  const Grant& grant = grants_[index];
  return grant.active && grant.generation == rkey >> 16 ? &grant : nullptr;
}

bool GrantTable::Allows(uint32_t rkey, uint64_t address, uint64_t length_bytes,
                        QueuePair::Access access) const {
  const Grant* grant = Find(rkey);
  if (grant == nullptr || grant->access != access) return false;
  const uint64_t offset = address - grant->address;  // Wraps if below the range: too large.
  return length_bytes != 0 && offset < grant->length_bytes && length_bytes <= grant->length_bytes - offset;
}

}  // namespace hawser::fabric
