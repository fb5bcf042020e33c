#include "hawser/transport/fabric/verbs/memory.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
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

class VerbsMemory::Region final : public MemoryRegion {
 public:
  Region(VerbsMemory& memory, uint32_t lkey, uint8_t* address, size_t length_bytes)
      : memory_(memory), lkey_(lkey), address_(address), length_bytes_(length_bytes) {}
  ~Region() override {
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
  uint32_t index() const { return RegionTable::IndexOf(lkey_); }
  uint8_t* address() const { return address_; }
  size_t length_bytes() const { return length_bytes_; }

 private:
  VerbsMemory& memory_;
  const uint32_t lkey_;
  uint8_t* const address_;
  const size_t length_bytes_;
};

VerbsMemory::VerbsMemory(VerbsDevice& device, GrantKind grants, const VerbsFabricOptions& options)
    : device_(device),
      grants_(grants),
      access_(AccessOf(grants) | OptionalAccess(options)),
      mrs_(new std::atomic<ibv_mr*>[RegionTable::kRegionsMax]()) {
  device_.AddMemory(this);
}

VerbsMemory::~VerbsMemory() { device_.RemoveMemory(this); }

absl::StatusOr<std::unique_ptr<MemoryRegion>> VerbsMemory::Register(uint8_t* address, size_t length_bytes) {
  const std::string what = absl::StrCat("register ", length_bytes, " bytes on RDMA device ", device_.name());
  if (address == nullptr || length_bytes == 0)
    return absl::InvalidArgumentError(absl::StrCat(what, ": no memory"));
  if (absl::Status status = device_.CheckProcess(what); !status.ok()) return status;
  absl::StatusOr<uint32_t> lkey = regions_.Add(address, length_bytes);
  if (!lkey.ok()) return lkey.status();
  auto region = std::make_unique<Region>(*this, *lkey, address, length_bytes);
  absl::Status registered;
  {
    // Shared: a poller that registers little does not wait for another thread that registers much.
    absl::ReaderMutexLock lock(&device_.opening());
    if (!device_.gone()) registered = RegisterNow(*region);
    if (registered.ok()) {
      absl::MutexLock alive_lock(&mutex_);
      alive_.insert(region.get());
    }
  }
  if (!registered.ok()) return registered;
  return region;
}

absl::Status VerbsMemory::RegisterNow(const Region& region) {
  const auto make = [&] {
    return device_.verbs().ibv_reg_mr(device_.pd(), region.address(), region.length_bytes(), access_);
  };
  ibv_mr* mr = make();
  if (mr != nullptr && mr->rkey == 0 && grants_ == GrantKind::kShared) {  // No grant has rkey 0.
    ibv_mr* const unusable = mr;
    mr = make();
    const int error = errno;
    device_.verbs().ibv_dereg_mr(unusable);
    errno = error;
  }
  if (mr == nullptr) {
    return RegistrationError(
        absl::StrCat("register ", region.length_bytes(), " bytes on RDMA device ", device_.name()),
        region.length_bytes(), errno);
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
  for (const Region* region : alive_) {
    if (absl::Status status = RegisterNow(*region); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace hawser::fabric
