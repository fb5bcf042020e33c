#include "hawser/transport/fabric/tcp/grants.h"

#include <limits>

namespace hawser::fabric {

Granted GrantTable::Add(const Sge& range, QueuePair::Access access) {
  if (first_free_ == kNone) {
    if (grants_.size() == kGrantsMax) return {};
    first_free_ = static_cast<uint16_t>(grants_.size());
    grants_.push_back({.generation = salt_});
  }
  const uint32_t index = first_free_;
  Grant& grant = grants_[index];
  first_free_ = grant.next_free;
  if (++grant.generation == 0) grant.generation = 1;
  grant.memory = range.address;
  grant.length_bytes = range.length;
  grant.readable_bytes = Allows(access, QueuePair::Access::kReadRepeatedly)
                             ? std::numeric_limits<uint64_t>::max()
                             : uint64_t{range.length} * kReadsOfEachByteMax;
  grant.access = access;
  grant.active = true;
  const uint32_t rkey = static_cast<uint32_t>(grant.generation) << 16 | index;
  return {AddressOf(rkey), rkey};
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

bool GrantTable::CountRead(uint32_t rkey, uint32_t length_bytes) {
  Grant& grant = grants_[rkey & 0xffff];
  if (length_bytes > grant.readable_bytes) return false;
  grant.readable_bytes -= length_bytes;
  return true;
}

const GrantTable::Grant* GrantTable::Find(uint32_t rkey) const {
  const uint32_t index = rkey & 0xffff;
  if (index >= grants_.size()) return nullptr;
  const Grant& grant = grants_[index];
  return grant.active && grant.generation == rkey >> 16 ? &grant : nullptr;
}

uint8_t* GrantTable::Resolve(uint32_t rkey, uint64_t address, uint64_t length_bytes,
                             QueuePair::Access access) const {
  const Grant* grant = Find(rkey);
  if (grant == nullptr || !Allows(grant->access, access)) return nullptr;
  const uint64_t offset = address - AddressOf(rkey);  // Wraps if below the range: too large.
  const bool inside =
      length_bytes != 0 && offset < grant->length_bytes && length_bytes <= grant->length_bytes - offset;
  return inside ? grant->memory + offset : nullptr;
}

}  // namespace hawser::fabric
