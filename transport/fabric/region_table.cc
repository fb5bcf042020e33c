#include "hawser/transport/fabric/region_table.h"

#include <string>

#include "absl/strings/str_cat.h"

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
  region.lkey.store(lkey, std::memory_order_release);  // Last: a thread that finds it finds its bounds.
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
  const Region* region = Find(sge.lkey);
  if (region == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("sge of ", sge.length, " bytes: no region has lkey ",
                                                   sge.lkey,
                                                   ": never registered, or deregistered too early"));
  }
  if (sge.length == 0)
    return absl::InvalidArgumentError(absl::StrCat("sge with lkey ", sge.lkey, " is empty"));
  const uint64_t offset =
      reinterpret_cast<uint64_t>(sge.address) - region->address.load(std::memory_order_relaxed);
  const uint64_t size = region->length_bytes.load(std::memory_order_relaxed);
  // From an offset outside of the region an address could be computed.
  const std::string where = offset <= size ? absl::StrCat("at offset ", offset) : "outside";
  return absl::InvalidArgumentError(absl::StrCat("sge of ", sge.length, " bytes begins ", where,
                                                 " of the region of its lkey ", sge.lkey, ", which has ",
                                                 size, " bytes"));
}

}  // namespace hawser::fabric
