#include "hawser/rpc/server/host_counts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"

namespace hawser::internal {

uint64_t HostCounts::Share() const {
  if (total_ >= total_max_) return 0;
  const uint64_t half = total_max_ / 2;
  const uint64_t left = total_ < half ? half - total_ : 0;
  return std::max(kEachMin, left * left / std::max<uint64_t>(half, 1));
}

absl::Status HostCounts::Add(const PeerHost& host) {
  const auto found = counts_.find(host);
  const uint64_t count = found == counts_.end() ? 0 : found->second;
  if (count >= per_host_max_) {
    return absl::ResourceExhaustedError(absl::StrCat("the clients of this host have ", count, " ", what_,
                                                     ", as many as those of one host may have"));
  }
  if (const uint64_t share = Share(); count >= share) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the clients of all hosts have ", total_, " of ", total_max_, " ", what_, ", and those of this host ",
        count, " of these; while so many are taken, a host gets ", share, " at most"));
  }
  ++counts_[host];
  ++total_;
  return absl::OkStatus();
}

void HostCounts::Remove(const PeerHost& host, uint64_t count) {
  if (count == 0) return;
  const auto found = counts_.find(host);
  HAWSER_CHECK(found != counts_.end(), what_, " are given back that were not given");
  HAWSER_SUBTRACT(found->second, count);
  if (found->second == 0) counts_.erase(found);
  HAWSER_SUBTRACT(total_, count);
}

}  // namespace hawser::internal
