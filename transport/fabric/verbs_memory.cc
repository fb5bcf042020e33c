#include "hawser/transport/fabric/verbs_memory.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/verbs_errors.h"

namespace hawser::fabric {

class VerbsMemory::Region final : public MemoryRegion {
 public:
  Region(VerbsMemory& memory, uint32_t lkey, ibv_mr* mr) : memory_(memory), lkey_(lkey), mr_(mr) {}
  ~Region() override {
    memory_.regions_.Remove(lkey_);
    if (!memory_.device_.in_forked_child()) memory_.device_.verbs().ibv_dereg_mr(mr_);
  }
  uint32_t lkey() const override { return lkey_; }

 private:
  VerbsMemory& memory_;
  const uint32_t lkey_;
  ibv_mr* const mr_;
};

// Never REMOTE_READ: what a peer may read is granted range by range. An iWARP device writes the sink of a
// READ as it writes for the peer (RFC 5040, 5.2), so there it needs REMOTE_WRITE.
VerbsMemory::VerbsMemory(VerbsDevice& device, bool windows)
    : device_(device),
      access_(IBV_ACCESS_LOCAL_WRITE | (windows ? IBV_ACCESS_MW_BIND : 0) |
              (device.iwarp() ? IBV_ACCESS_REMOTE_WRITE : 0)),
      mrs_(new std::atomic<ibv_mr*>[RegionTable::kRegionsMax]()) {}

absl::StatusOr<std::unique_ptr<MemoryRegion>> VerbsMemory::Register(uint8_t* address, size_t length_bytes) {
  const std::string what = absl::StrCat("register ", length_bytes, " bytes on RDMA device ", device_.name());
  if (address == nullptr || length_bytes == 0)
    return absl::InvalidArgumentError(absl::StrCat(what, ": no memory"));
  if (absl::Status status = device_.CheckProcess(what); !status.ok()) return status;
  absl::StatusOr<uint32_t> lkey = regions_.Add(address, length_bytes);
  if (!lkey.ok()) return lkey.status();
  ibv_mr* const mr = device_.verbs().ibv_reg_mr(device_.pd(), address, length_bytes, access_);
  if (mr == nullptr) {
    const int error = errno;
    regions_.Remove(*lkey);
    return RegistrationError(what, length_bytes, error);
  }
  mrs_[RegionTable::IndexOf(*lkey)].store(mr, std::memory_order_relaxed);
  return std::make_unique<Region>(*this, *lkey, mr);
}

}  // namespace hawser::fabric
