#include "hawser/transport/fabric/region_table.h"

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

}  // namespace hawser::fabric
