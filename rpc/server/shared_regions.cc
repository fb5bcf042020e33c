#include "hawser/rpc/server/shared_regions.h"

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "hawser/base/check.h"

namespace hawser::internal {

transport::LentMemory::Name SharedRegions::NewName() {
  absl::MutexLock lock(&mutex_);
  while (owner_ == 0) {
    environment_.FillRandom({reinterpret_cast<uint8_t*>(&owner_), sizeof(owner_)});
  }
  return {owner_, ++regions_};
}

uint64_t SharedRegions::owner() const {
  absl::MutexLock lock(&mutex_);
  return owner_;
}

absl::Status SharedRegions::AddTicket(const PeerHost& host) {
  absl::MutexLock lock(&mutex_);
  uint32_t& count = tickets_[host];
  if (count >= kTicketsPerHostMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the clients of this host have ", count, " tickets for shared memory"));
  }
  ++count;
  return absl::OkStatus();
}

void SharedRegions::RemoveTickets(const PeerHost& host, uint32_t count) {
  absl::MutexLock lock(&mutex_);
  if (count == 0) return;
  const auto found = tickets_.find(host);
  HAWSER_CHECK(found != tickets_.end(), "tickets are given back that were not given");
  HAWSER_SUBTRACT(found->second, count);
  if (found->second == 0) tickets_.erase(found);
}

}  // namespace hawser::internal
