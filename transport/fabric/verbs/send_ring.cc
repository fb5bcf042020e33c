#include "hawser/transport/fabric/verbs/send_ring.h"

#include <bit>

namespace hawser::fabric {

VerbsSendRing::VerbsSendRing(uint32_t depth, uint32_t capacity)
    : depth_(depth), entries_(std::bit_ceil(capacity)), mask_(static_cast<uint32_t>(entries_.size()) - 1) {}

uint32_t VerbsSendRing::Push(const Entry& entry) {
  Count(entry.kind, 1);
  entries_[posted_ & mask_] = entry;
  return posted_++;
}

void VerbsSendRing::Unpush(uint32_t count) {
  for (; count > 0; --count) Count(entries_[--posted_ & mask_].kind, -1);
}

void VerbsSendRing::Silence(uint32_t number) {
  entries_[number & mask_].kind = Kind::kSilent;
  --callers_;
}

bool VerbsSendRing::EndsSilently() const {
  if (empty()) return false;
  if (!at(posted_ - 1).signaled) return true;
  for (uint32_t number = posted_; number != retired_;) {
    const Entry& entry = at(--number);
    if (entry.kind == Kind::kCaller) return !entry.signaled;
  }
  return false;
}

VerbsSendRing::Entry VerbsSendRing::Retire() {
  const Entry& entry = entries_[retired_++ & mask_];
  Count(entry.kind, -1);
  return entry;
}

}  // namespace hawser::fabric
