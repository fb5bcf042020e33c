#ifndef HAWSER_TRANSPORT_FABRIC_REGION_TABLE_H_
#define HAWSER_TRANSPORT_FABRIC_REGION_TABLE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {

// The registered memory of one fabric: maps each lkey to its range of addresses.
// Thread: any. Contains() takes no lock, because queue pairs call it for every sge.
class RegionTable {
 public:
  RegionTable() = default;
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;
  ~RegionTable();

  // Returns the lkey, never 0. ResourceExhausted: kRegionsMax are registered.
  absl::StatusOr<uint32_t> Add(const uint8_t* address, size_t length_bytes);
  void Remove(uint32_t lkey);

  // Whether `sge` has at least one byte and is inside the region of its lkey.
  bool Contains(const Sge& sge) const {
    const Region* region = Find(sge.lkey);
    if (region == nullptr) return false;
    const uint64_t address = reinterpret_cast<uint64_t>(sge.address);
    const uint64_t offset = address - region->address.load(std::memory_order_relaxed);
    const uint64_t size = region->length_bytes.load(std::memory_order_relaxed);
    return sge.length != 0 && offset < size &&
           sge.length <= size - offset;  // Wraps if below the region: too large.
  }

  // The error for an `sge` that Contains() refused: says where it is in its region. It has no address, since
  // the text of an error may reach a peer.
  absl::Status Refusal(const Sge& sge) const;

  static constexpr size_t kRegionsMax = 16384;

  // The index of `lkey`, below kRegionsMax. A fabric may use it to keep more data for each region.
  static uint32_t IndexOf(uint32_t lkey) { return lkey & (kRegionsMax - 1); }

 private:
  struct Region {
    std::atomic<uint32_t> lkey = 0;  // 0: free.
    std::atomic<uint64_t> address = 0;
    std::atomic<uint64_t> length_bytes = 0;
  };
  static constexpr size_t kChunk = 128;
  using Chunk = std::array<Region, kChunk>;

  // An lkey is an index in the low bits and a generation, from 1 on, in the high bits, so that a stale lkey
  // finds nothing.
  static constexpr uint32_t kIndexBits = 14;
  static_assert(kRegionsMax == 1u << kIndexBits);

  const Region* Find(uint32_t lkey) const {
    const uint32_t index = lkey & (kRegionsMax - 1);
    const Chunk* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    const Region& region = (*chunk)[index % kChunk];
    return lkey != 0 && region.lkey.load(std::memory_order_acquire) == lkey ? &region : nullptr;
  }

  std::array<std::atomic<Chunk*>, kRegionsMax / kChunk> chunks_ = {};  // Owned; filled from the front.
  absl::Mutex mutex_;
  std::vector<uint32_t> free_ ABSL_GUARDED_BY(mutex_);  // The next lkeys of free entries.
  uint32_t used_ ABSL_GUARDED_BY(mutex_) = 0;           // Indexes used so far.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_REGION_TABLE_H_
