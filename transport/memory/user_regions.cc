#include "hawser/transport/memory/user_regions.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace hawser::transport {

UserRegionUse::~UserRegionUse() {
  if (region_ != nullptr && !regions_->fork_mark_.in_child()) regions_->EndUse(*region_);
}

absl::StatusOr<UserRegion*> UserRegions::Register(const UserRange& range) {
  // Taken before the region is made: the places of the fabric are the pool's, too.
  if (count_.fetch_add(1, std::memory_order_acq_rel) >= kRegionsMax) {
    count_.fetch_sub(1, std::memory_order_acq_rel);
    return absl::ResourceExhaustedError(
        absl::StrCat("register ", range.length_bytes, " bytes: the program has registered ", kRegionsMax,
                     " ranges of its memory already: register few large ones, or release some"));
  }
  absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> registered = fabric_.RegisterRange(range);
  if (!registered.ok()) {
    count_.fetch_sub(1, std::memory_order_acq_rel);
    return registered.status();
  }
  auto region = std::make_unique<UserRegion>(range, *std::move(registered));
  UserRegion* const result = region.get();
  absl::MutexLock lock(&mutex_);
  const auto at = std::upper_bound(
      table_.begin(), table_.end(), result->begin(),
      [](uint64_t begin, const std::unique_ptr<UserRegion>& each) { return begin < each->begin(); });
  const auto number = static_cast<size_t>(at - table_.begin());
  table_.insert(at, std::move(region));
  Measure(number);
  return result;
}

bool UserRegions::Release(UserRegion* region, bool may_wait) {
  std::unique_ptr<UserRegion> released;  // Destroyed without the lock.
  absl::MutexLock lock(&mutex_);
  if (region->uses_ != 0 && !may_wait) return false;
  const auto at = std::find_if(table_.begin(), table_.end(),
                               [&](const std::unique_ptr<UserRegion>& each) { return each.get() == region; });
  released = std::move(*at);
  const auto number = static_cast<size_t>(at - table_.begin());
  table_.erase(at);
  Measure(number);
  count_.fetch_sub(1, std::memory_order_acq_rel);
  environment_.Await(
      mutex_, unused_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return region->uses_ == 0; },
      absl::InfiniteFuture());
  return true;
}

void UserRegions::EndUse(UserRegion& region) {
  absl::MutexLock lock(&mutex_);
  if (--region.uses_ == 0) unused_.SignalAll();
}

void UserRegions::Measure(size_t from) {
  uint64_t reach = from == 0 ? 0 : table_[from - 1]->reach_;
  for (; from < table_.size(); ++from) {
    reach = std::max(reach, table_[from]->end());
    table_[from]->reach_ = reach;
  }
}

template <typename Found>
void UserRegions::Visit(uint64_t address, uint64_t end, Found found) const {
  auto at = std::lower_bound(
      table_.begin(), table_.end(), end,
      [](const std::unique_ptr<UserRegion>& each, uint64_t limit) { return each->begin() < limit; });
  while (at != table_.begin()) {
    const std::unique_ptr<UserRegion>& each = *--at;
    if (each->reach_ <= address) return;  // Nor does one before it reach so far.
    if (each->end() > address && found(*each)) return;
  }
}

UserRegionUse UserRegions::Find(const uint8_t* address, size_t length_bytes) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  UserRegion* has_all = nullptr;
  absl::MutexLock lock(&mutex_);
  Visit(begin, begin + length_bytes, [&](UserRegion& region) {
    if (region.begin() > begin || region.end() - begin < length_bytes) return false;
    has_all = &region;
    return true;
  });
  if (has_all == nullptr) return {};
  ++has_all->uses_;
  return UserRegionUse(*this, *has_all);
}

bool UserRegions::IsHidden(const uint8_t* address, size_t length_bytes) const {
  const auto begin = reinterpret_cast<uint64_t>(address);
  bool hidden = false;
  absl::MutexLock lock(&mutex_);
  Visit(begin, begin + length_bytes, [&](const UserRegion& region) {
    hidden = !region.range().cpu_visible;
    return hidden;
  });
  return hidden;
}

}  // namespace hawser::transport
