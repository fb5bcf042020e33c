#include "hawser/transport/memory/user_regions.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/transport/log/log.h"

namespace hawser::transport {

UserRegion::UserRegion(const UserRange& range, std::unique_ptr<fabric::MemoryRegion> registered)
    : range_(range),
      registered_(std::move(registered)),
      may_be_lost_(dynamic_cast<const fabric::RangeRegion*>(registered_.get())) {}

absl::Status UserRegion::Usable() const {
  if (may_be_lost_ == nullptr) return absl::OkStatus();
  absl::Status usable = may_be_lost_->Usable();
  if (!usable.ok() && !logged_.exchange(true)) {
    Log(LogSeverity::kError, absl::StrCat("operations on ", range_.length_bytes,
                                          " bytes that the program has registered fail: ", usable.message()));
  }
  return usable;
}

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
  {
    absl::MutexLock lock(&mutex_);
    if (region->uses_ != 0 && !may_wait) return false;
    region->ending_ = true;
    environment_.Await(
        mutex_, unused_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return region->uses_ == 0; },
        absl::InfiniteFuture());
  }
  region->registered_ = nullptr;
  std::unique_ptr<UserRegion> released;  // Destroyed without the lock.
  absl::MutexLock lock(&mutex_);
  const auto at = std::find_if(table_.begin(), table_.end(),
                               [&](const std::unique_ptr<UserRegion>& each) { return each.get() == region; });
  released = std::move(*at);
  const auto number = static_cast<size_t>(at - table_.begin());
  table_.erase(at);
  Measure(number);
  // Last: while any() is false, no operation looks whether the processor sees its memory.
  count_.fetch_sub(1, std::memory_order_acq_rel);
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

template <typename Visitor>
void UserRegions::Visit(uint64_t address, uint64_t end, Visitor found) const {
  auto at = std::lower_bound(
      table_.begin(), table_.end(), end,
      [](const std::unique_ptr<UserRegion>& each, uint64_t limit) { return each->begin() < limit; });
  while (at != table_.begin()) {
    const std::unique_ptr<UserRegion>& each = *--at;
    if (each->reach_ <= address) return;  // Nor does one before it reach so far.
    if (each->end() > address && found(*each)) return;
  }
}

UserRegions::Found UserRegions::Find(const uint8_t* address, size_t length_bytes, bool in_place) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  UserRegion* has_all = nullptr;
  bool hidden = false, ending = false;
  absl::MutexLock lock(&mutex_);
  Visit(begin, begin + length_bytes, [&](UserRegion& region) {
    hidden |= !region.range().cpu_visible;
    ending |= !region.range().cpu_visible && region.ending_;
    if (!in_place || region.ending_) return false;
    if (region.begin() > begin || region.end() - begin < length_bytes) return false;
    has_all = &region;
    return true;
  });
  if (has_all != nullptr) {
    ++has_all->uses_;
    return {.use = UserRegionUse(*this, *has_all), .copyable = absl::OkStatus()};
  }
  if (!hidden) return {};
  constexpr absl::string_view kWhy =
      "the processor does not see the memory here (MemoryRange::cpu_visible), so nothing is copied, and ";
  if (ending) {
    return {
        .use = {},
        .copyable = absl::FailedPreconditionError(absl::StrCat(kWhy, "its RegisteredMemory is released"))};
  }
  return {.use = {},
          .copyable = absl::InvalidArgumentError(absl::StrCat(
              kWhy, in_place ? "no RegisteredMemory has all of it" : "what an atomic returns always is"))};
}

}  // namespace hawser::transport
