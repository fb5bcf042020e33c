#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_MEMORY_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/region_table.h"
#include "hawser/transport/fabric/verbs/device.h"
#include "hawser/transport/fabric/verbs/options.h"

namespace hawser::fabric {

// The registered memory of one fabric. A NIC detects a wrong sge late and reports little, so the lkey that
// callers get is an index into this table, which checks an sge's bounds before it is posted, and has the
// ibv_mr.
// Thread:   any.
class VerbsMemory final : public DeviceMemory {
 public:
  // `device` and `options` outlive this. `grants`: of all regions.
  VerbsMemory(VerbsDevice& device, GrantKind grants, const VerbsFabricOptions& options);
  ~VerbsMemory() override;

  // While the device is gone the region is only recorded; it is registered when the device is back.
  // `for_peers`: ranges of it may be granted, or all of it can be READ by peers that have its rkey (kShared).
  // Otherwise only the sges of this side reach it.
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(const MemoryRange& range, bool for_peers);

  bool Contains(const Sge& sge) const { return regions_.Contains(sge); }
  // The region of an `sge` that Contains() accepted could not be registered again: see RangeRegion.
  bool IsLost(const Sge& sge) const {
    return has_lost_.load(std::memory_order_relaxed) && mr(sge) == nullptr;
  }
  // Why Contains() refused `sge`.
  absl::Status Refusal(const Sge& sge) const { return regions_.Refusal(sge); }

  // What each registration that a device fills has beside its own access.
  static int OptionalAccess(const VerbsFabricOptions& options) {
    return options.relaxed_ordering ? int{IBV_ACCESS_RELAXED_ORDERING} : 0;
  }

  // The region of an `sge` that Contains() accepted. Null: the device has just been removed.
  ibv_mr* mr(const Sge& sge) const {
    return mrs_[RegionTable::IndexOf(sge.lkey)].load(std::memory_order_relaxed);
  }
  ibv_sge ToVerbs(const Sge& sge) const {
    const ibv_mr* const of = mr(sge);
    return {reinterpret_cast<uint64_t>(sge.address), sge.length, of != nullptr ? of->lkey : 0};
  }

 private:
  class Region;

  // DeviceMemory, under its opening(), which nothing shares then.
  void Deregister() override;
  // Not OK: a region that the library itself needs could not be registered. One of the program's that cannot
  // is lost alone.
  absl::Status RegisterAgain() override;
  // Unimplemented: the device, or its library, cannot use memory of this kind.
  absl::Status CheckKind(const MemoryRange& range) const;
  absl::Status RegisterNow(const Region& region);
  ibv_mr* Make(const Region& region) const;

  VerbsDevice& device_;
  const GrantKind grants_;
  const int access_;
  RegionTable regions_;
  // By index. Written before anybody has the lkey, and while the device has no user.
  const std::unique_ptr<std::atomic<ibv_mr*>[]> mrs_;
  // Locked after opening() of the device, and not while memory is registered for a caller.
  absl::Mutex mutex_;
  // Some region is not registered, though the device is there.
  std::atomic<bool> has_lost_{false};
  absl::flat_hash_set<Region*> alive_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_MEMORY_H_
