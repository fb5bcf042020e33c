#ifndef HAWSER_TRANSPORT_MEMORY_USER_REGIONS_H_
#define HAWSER_TRANSPORT_MEMORY_USER_REGIONS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/fork.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/range_region.h"

namespace hawser::transport {

class UserRegions;

using UserRange = fabric::MemoryRange;

// Memory of a program, registered with one fabric. It moves round this ring:
//   program -> registered <-> in use, by operations -> ending, nothing new uses it -> program, once
//   UserRegions::Release() has returned.
class UserRegion {
 public:
  UserRegion(const UserRange& range, std::unique_ptr<fabric::MemoryRegion> registered);

  const UserRange& range() const { return range_; }
  uint32_t lkey() const { return registered_->lkey(); }
  // What fabric::RangeRegion says, where the fabric has such. Logs the first reason that it is not OK.
  absl::Status Usable() const;

 private:
  friend class UserRegions;

  uint64_t begin() const { return reinterpret_cast<uint64_t>(range_.address); }
  uint64_t end() const { return begin() + range_.length_bytes; }

  const UserRange range_;
  std::unique_ptr<fabric::MemoryRegion> registered_;  // Null: it is ending, and nothing uses it any more.
  const fabric::RangeRegion* const may_be_lost_;      // The same. Null: a region of this fabric is not.
  mutable std::atomic<bool> logged_{false};
  uint64_t uses_ = 0;    // Guarded by UserRegions::mutex_.
  bool ending_ = false;  // Likewise: it is being released.
  uint64_t reach_ = 0;   // Likewise: the last end of all regions that are not behind it in the table.
};

// One use of a region by an operation: while it lives, the region stays registered.
// Thread:   one at a time; may be destroyed on any.
// Lifetime: the UserRegions outlive it. In a child after fork() it does nothing.
class UserRegionUse {
 public:
  UserRegionUse() = default;
  UserRegionUse(UserRegionUse&& other) noexcept
      : regions_(std::exchange(other.regions_, nullptr)), region_(std::exchange(other.region_, nullptr)) {}
  UserRegionUse& operator=(UserRegionUse&& other) noexcept {
    std::swap(regions_, other.regions_);
    std::swap(region_, other.region_);
    return *this;
  }
  ~UserRegionUse();

  explicit operator bool() const { return region_ != nullptr; }
  const UserRegion& region() const { return *region_; }

 private:
  friend class UserRegions;
  UserRegionUse(UserRegions& regions, UserRegion& region) : regions_(&regions), region_(&region) {}

  UserRegions* regions_ = nullptr;
  UserRegion* region_ = nullptr;  // Null: none.
};

// The memory that a program has registered with one fabric, found by its addresses. Regions may overlap.
// Thread:   any. No lock is held while memory is registered or deregistered.
// Lifetime: outlives its regions. The fabric outlives it.
class UserRegions {
 public:
  // Of the places that a fabric has for all regions, the pool needs some.
  static constexpr size_t kRegionsMax = 8192;

  UserRegions(fabric::Fabric& fabric, Environment& environment)
      : fabric_(fabric), environment_(environment) {}

  // Slow: see fabric.h. What Fabric::RegisterRange() says; ResourceExhausted: kRegionsMax are registered.
  absl::StatusOr<UserRegion*> Register(const UserRange& range);
  // Nothing new uses it from now on; returns once nothing uses it and it is deregistered. Until then it is
  // still known whether the processor sees it. False: something uses it, and the caller must not wait
  // (`may_wait`: it is on no poller). Then nothing has changed.
  bool Release(UserRegion* region, bool may_wait);

  // There are some, so that it pays to look.
  bool any() const { return count_.load(std::memory_order_acquire) != 0; }
  // What is known of a range of memory.
  struct Found {
    // Of a region that has all of it. Empty: none has, or there is to be no use.
    UserRegionUse use;
    // Without a use. Not OK: the processor does not see some of it, so that it must not be copied either.
    // FailedPrecondition: that is being released. InvalidArgument: otherwise.
    absl::Status copyable;
  };
  // `in_place` false: there is to be no use.
  Found Find(const uint8_t* address, size_t length_bytes, bool in_place = true);

 private:
  friend class UserRegionUse;

  void EndUse(UserRegion& region);
  // Sets reach_ of what is at `from` or behind it, after a change of the table there.
  void Measure(size_t from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls `found` with the regions that reach beyond `address` and begin before `end`, until it returns true.
  template <typename Visitor>
  void Visit(uint64_t address, uint64_t end, Visitor found) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  fabric::Fabric& fabric_;
  Environment& environment_;
  const ForkMark fork_mark_;
  std::atomic<size_t> count_{0};
  mutable absl::Mutex mutex_;
  absl::CondVar unused_;  // A region is used by nothing any more.
  // By their begin.
  std::vector<std::unique_ptr<UserRegion>> table_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_USER_REGIONS_H_
