#include "hawser/transport/fabric/verbs/memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"
#include "hawser/transport/fabric/range_region.h"
#include "hawser/transport/fabric/verbs/errors.h"

namespace hawser::fabric {
namespace {

// Never REMOTE_WRITE: where the sink of a READ needs it, the sink has a registration of its own (VerbsSinks).
// Nor
// REMOTE_READ: grants let a peer READ single ranges, unless all peers share the region.
int AccessOf(GrantKind grants) {
  switch (grants) {
    case GrantKind::kWindows:
      return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
    case GrantKind::kShared:
      return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    case GrantKind::kRegistered:
      break;
  }
  return IBV_ACCESS_LOCAL_WRITE;
}

}  // namespace

class VerbsMemory::Region final : public RangeRegion {
 public:
  // `range` has a dma-buf's file descriptor of its own, if any.
  Region(VerbsMemory& memory, uint32_t lkey, const MemoryRange& range, bool for_peers)
      : memory_(memory), lkey_(lkey), range_(range), for_peers_(for_peers) {}
  ~Region() override {
    if (range_.kind == MemoryRange::Kind::kDmabuf) close(range_.dmabuf_fd);
    if (memory_.device_.in_forked_child())
      return;  // A thread that does not exist in the child may hold a lock.
    absl::ReaderMutexLock lock(&memory_.device_.opening());
    {
      absl::MutexLock alive_lock(&memory_.mutex_);
      memory_.alive_.erase(this);
    }
    ibv_mr* const mr = memory_.mrs_[index()].exchange(nullptr, std::memory_order_relaxed);
    memory_.regions_.Remove(lkey_);
    if (mr != nullptr) memory_.device_.verbs().ibv_dereg_mr(mr);
  }
  uint32_t lkey() const override { return lkey_; }
  absl::Status Usable() const override {
    if (!lost_.load(std::memory_order_acquire)) return absl::OkStatus();
    absl::MutexLock lock(&mutex_);
    return why_lost_;
  }
  // What Usable() says from now on.
  void SetUsable(const absl::Status& why) {
    absl::MutexLock lock(&mutex_);
    why_lost_ = why;
    lost_.store(!why.ok(), std::memory_order_release);
  }
  uint32_t index() const { return RegionTable::IndexOf(lkey_); }
  const MemoryRange& range() const { return range_; }
  bool for_peers() const { return for_peers_; }

 private:
  VerbsMemory& memory_;
  const uint32_t lkey_;
  const MemoryRange range_;
  const bool for_peers_;
  std::atomic<bool> lost_{false};
  mutable absl::Mutex mutex_;
  absl::Status why_lost_ ABSL_GUARDED_BY(mutex_);
};

VerbsMemory::VerbsMemory(VerbsDevice& device, GrantKind grants, const VerbsFabricOptions& options)
    : device_(device),
      grants_(grants),
      access_(AccessOf(grants) | OptionalAccess(options)),
      mrs_(new std::atomic<ibv_mr*>[RegionTable::kRegionsMax]()) {
  device_.AddMemory(this);
}

VerbsMemory::~VerbsMemory() { device_.RemoveMemory(this); }

absl::Status VerbsMemory::CheckKind(const MemoryRange& range) const {
  if (range.kind == MemoryRange::Kind::kHost) return absl::OkStatus();
  const bool dmabuf = range.kind == MemoryRange::Kind::kDmabuf;
  const std::string what = absl::StrCat(dmabuf ? "register a dma-buf" : "register memory on demand",
                                        " on RDMA device ", device_.name(), ": ");
  if (device_.iwarp()) {
    return absl::UnimplementedError(
        absl::StrCat(what, "over iWARP each READ registers the host memory that it fills"));
  }
  if (dmabuf) {
    if (device_.verbs().ibv_reg_dmabuf_mr == nullptr) {
      return absl::UnimplementedError(absl::StrCat(
          what, "libibverbs has no ibv_reg_dmabuf_mr(): it is older than rdma-core 34; upgrade rdma-core"));
    }
    const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    if ((reinterpret_cast<uint64_t>(range.address) - range.dmabuf_offset) % page_bytes != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, "its address and its offset in the dma-buf are at different places of a page"));
    }
    return absl::OkStatus();
  }
  ibv_odp_caps caps = {};
  const auto query = device_.verbs().query_on_demand;
  const int error = query != nullptr ? query(device_.context(), &caps) : EOPNOTSUPP;
  if (error != 0 && error != EOPNOTSUPP && error != ENOSYS) {
    return VerbsError(what, "ibv_query_device_ex()", error);
  }
  constexpr uint32_t kNeeded = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
  if (error != 0 || (caps.general_caps & IBV_ODP_SUPPORT) == 0 ||
      (caps.per_transport_caps.rc_odp_caps & kNeeded) != kNeeded) {
    return absl::UnimplementedError(
        absl::StrCat(what, "the device takes no page faults of READs and WRITEs (ibv_query_device_ex(): ",
                     error != 0 ? DescribeErrno(error)
                                : absl::StrCat("general_caps ", caps.general_caps, ", rc_odp_caps ",
                                               caps.per_transport_caps.rc_odp_caps),
                     "); register it as host memory, which is pinned"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> VerbsMemory::Register(const MemoryRange& range,
                                                                    bool for_peers) {
  const std::string what =
      absl::StrCat("register ", range.length_bytes, " bytes on RDMA device ", device_.name());
  if (absl::Status status = CheckRange(range); !status.ok()) return status;
  if (absl::Status status = device_.CheckProcess(what); !status.ok()) return status;
  absl::StatusOr<uint32_t> lkey = regions_.Add(range.address, range.length_bytes);
  if (!lkey.ok()) return lkey.status();
  MemoryRange own = range;
  if (range.kind == MemoryRange::Kind::kDmabuf) {
    // For as long as the region lives: it is registered again when the device was gone.
    own.dmabuf_fd = fcntl(range.dmabuf_fd, F_DUPFD_CLOEXEC, 0);
    if (own.dmabuf_fd < 0) {
      const int error = errno;
      regions_.Remove(*lkey);
      return VerbsError(what, "fcntl(F_DUPFD_CLOEXEC) of its dma-buf", error);
    }
  }
  auto region = std::make_unique<Region>(*this, *lkey, own, for_peers);
  absl::Status registered;
  {
    // Shared: a poller that registers little does not wait for another thread that registers much.
    absl::ReaderMutexLock lock(&device_.opening());
    if (!device_.gone()) {
      registered = RegisterNow(*region);
    } else if (range.kind != MemoryRange::Kind::kHost) {
      registered = absl::UnavailableError(
          absl::StrCat(what, ": it has failed or was removed, so it cannot be asked what it can do"));
    }
    if (registered.ok()) {
      absl::MutexLock alive_lock(&mutex_);
      alive_.insert(region.get());
    }
  }
  if (!registered.ok()) return registered;
  return region;
}

ibv_mr* VerbsMemory::Make(const Region& region) const {
  const VerbsLibrary& verbs = device_.verbs();
  const MemoryRange& range = region.range();
  const int local = int{IBV_ACCESS_LOCAL_WRITE} | int{IBV_ACCESS_OPTIONAL_RANGE};
  const int access = region.for_peers() ? access_ : access_ & local;
  errno = 0;  // Some providers set none.
  switch (range.kind) {
    case MemoryRange::Kind::kHost:
      break;
    case MemoryRange::Kind::kDmabuf:
      return verbs.ibv_reg_dmabuf_mr(device_.pd(), range.dmabuf_offset, range.length_bytes,
                                     reinterpret_cast<uint64_t>(range.address), range.dmabuf_fd, access);
    case MemoryRange::Kind::kOnDemand:
      return verbs.ibv_reg_mr(device_.pd(), range.address, range.length_bytes, access | IBV_ACCESS_ON_DEMAND);
  }
  return verbs.ibv_reg_mr(device_.pd(), range.address, range.length_bytes, access);
}

absl::Status VerbsMemory::RegisterNow(const Region& region) {
  const MemoryRange& range = region.range();
  if (absl::Status status = CheckKind(range); !status.ok()) return status;
  ibv_mr* mr = Make(region);
  if (mr != nullptr && mr->rkey == 0 && grants_ == GrantKind::kShared) {  // No grant has rkey 0.
    ibv_mr* const unusable = mr;
    mr = Make(region);
    const int error = errno;
    device_.verbs().ibv_dereg_mr(unusable);
    errno = error;
  }
  if (mr == nullptr) {
    const int error = errno;
    const std::string what =
        absl::StrCat("register ", range.length_bytes, " bytes on RDMA device ", device_.name());
    return range.kind == MemoryRange::Kind::kDmabuf ? DmabufError(what, error)
                                                    : RegistrationError(what, range.length_bytes, error);
  }
  mrs_[region.index()].store(mr, std::memory_order_relaxed);
  return absl::OkStatus();
}

void VerbsMemory::Deregister() {
  absl::MutexLock lock(&mutex_);
  for (const Region* region : alive_) {
    ibv_mr* const mr = mrs_[region->index()].exchange(nullptr, std::memory_order_relaxed);
    if (mr != nullptr) device_.verbs().ibv_dereg_mr(mr);
  }
}

absl::Status VerbsMemory::RegisterAgain() {
  absl::MutexLock lock(&mutex_);
  // What the library needs comes first: it may be that the memlock limit is not enough for everything.
  for (const Region* region : alive_) {
    if (!region->for_peers()) continue;
    if (absl::Status status = RegisterNow(*region); !status.ok()) return status;
  }
  bool has_lost = false;
  for (Region* region : alive_) {
    if (region->for_peers()) continue;
    absl::Status status = RegisterNow(*region);
    if (!status.ok()) {
      has_lost = true;
      status =
          absl::FailedPreconditionError(absl::StrCat("RDMA device ", device_.name(),
                                                     " was away, and cannot use this memory now that it is "
                                                     "back: ",
                                                     status.message(), "; release it, and register it anew"));
    }
    region->SetUsable(status);
  }
  has_lost_.store(has_lost, std::memory_order_relaxed);
  return absl::OkStatus();
}

}  // namespace hawser::fabric
