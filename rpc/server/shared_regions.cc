#include "hawser/rpc/server/shared_regions.h"

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

void SharedRegions::Add(const std::shared_ptr<transport::LentMemory>& memory) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(shared_, [](const auto& each) { return each.expired(); });
  shared_.push_back(memory);
}

void SharedRegions::AddLane() {
  absl::MutexLock lock(&mutex_);
  ++lanes_;
  ++lanes_opened_;
}

void SharedRegions::RemoveLanes(size_t count) {
  absl::MutexLock lock(&mutex_);
  HAWSER_SUBTRACT(lanes_, count);
}

SharedRegions::Totals SharedRegions::totals() const {
  Totals totals;
  std::vector<std::shared_ptr<transport::LentMemory>> shared;  // What is the last owner here goes unlocked.
  absl::MutexLock lock(&mutex_);
  for (const auto& each : shared_) {
    shared.push_back(each.lock());
    if (shared.back() == nullptr || shared.back()->revoked()) continue;
    ++totals.regions;
    totals.bytes += shared.back()->size_bytes();
  }
  totals.tickets = tickets_.total();
  totals.grants = grants_.total();
  totals.lanes = lanes_;
  totals.lanes_opened = lanes_opened_;
  return totals;
}

absl::Status SharedRegions::AddTicket(const PeerHost& host) {
  absl::MutexLock lock(&mutex_);
  return tickets_.Add(host);
}

void SharedRegions::RemoveTickets(const PeerHost& host, uint64_t count) {
  absl::MutexLock lock(&mutex_);
  tickets_.Remove(host, count);
}

absl::Status SharedRegions::AddGrant(const PeerHost& host) {
  absl::MutexLock lock(&mutex_);
  return grants_.Add(host);
}

void SharedRegions::RemoveGrants(const PeerHost& host, uint64_t count) {
  absl::MutexLock lock(&mutex_);
  grants_.Remove(host, count);
}

}  // namespace hawser::internal
