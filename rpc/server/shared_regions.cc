#include "hawser/rpc/server/shared_regions.h"

#include <utility>
#include <vector>

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
  shared_[memory->name().region].memory = memory;
}

void SharedRegions::OnRevoked(uint64_t region) {
  absl::flat_hash_map<const Holder*, std::weak_ptr<Holder>> holders;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = shared_.find(region);
    if (found == shared_.end()) return;
    holders = std::move(found->second.holders);
    shared_.erase(found);
  }
  for (const auto& [address, each] : holders) {
    if (const std::shared_ptr<Holder> holder = each.lock(); holder != nullptr) holder->OnRevoked(region);
  }
}

bool SharedRegions::IsRevoked(uint64_t region) const {
  absl::MutexLock lock(&mutex_);
  return region != 0 && region <= regions_ && !shared_.contains(region);
}

bool SharedRegions::AddHolder(uint64_t region, std::weak_ptr<Holder> holder) {
  absl::MutexLock lock(&mutex_);
  const auto found = shared_.find(region);
  if (found == shared_.end()) return false;
  const Holder* const address = holder.lock().get();
  found->second.holders.try_emplace(address, std::move(holder));
  return true;
}

void SharedRegions::RemoveHolder(uint64_t region, const Holder& holder) {
  absl::MutexLock lock(&mutex_);
  if (const auto found = shared_.find(region); found != shared_.end()) found->second.holders.erase(&holder);
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
  for (const auto& [region, each] : shared_) {
    shared.push_back(each.memory.lock());
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
