#include "hawser/tests/sim/one_sided_access.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/tests/sim/channel_record.h"
#include "hawser/tests/sim/one_sided_region.h"

namespace hawser::sim {

bool OneSidedTicket::has_session() const { return channel->ready && channel->losses == losses; }

size_t OneSidedAccess::bytes() const {
  size_t sum = 0;
  for (const Range& range : ranges) sum += range.length;
  return sum;
}

std::string OneSidedAccess::Name() const {
  constexpr const char* kNames[] = {"READ ", "WRITE ", "compare-and-swap ", "fetch-and-add "};
  return absl::StrCat(kNames[static_cast<int>(kind)], id, " of host ", host);
}

std::optional<bool> OneSidedAccess::Happened(const absl::Status& status) const {
  if (status.ok()) return true;
  if (abandoned || absl::StrContains(status.message(), "may have been written")) return std::nullopt;
  return false;
}

std::optional<bool> OneSidedAccess::WasCounted(const absl::Status& status) const {
  if (!is_counted()) return false;
  if (status.ok()) return true;
  if (abandoned || absl::StrContains(status.message(), "may have been counted")) return std::nullopt;
  return false;
}

std::string OneSidedAccess::CheckStatus(const absl::Status& status, uint64_t server_life,
                                        int64_t now_ns) const {
  const auto broken = [&] {
    return absl::StrCat(demanded ? "on a good day " : "", Name(), " ended with ", status.ToString());
  };
  if (status.ok()) return wrong == Wrong::kNothing && ticket->honest ? "" : broken();
  if (demanded) return broken();
  const bool late = deadline_ns <= now_ns;
  const bool has_memory = !ticket->region->refused && ticket->region->server_life() == server_life;
  bool allowed = false;
  switch (status.code()) {
    case absl::StatusCode::kOutOfRange:
      return wrong == Wrong::kRange ? "" : broken();
    case absl::StatusCode::kInvalidArgument:
      allowed = wrong == Wrong::kAlignment;
      break;
    case absl::StatusCode::kPermissionDenied:
      allowed = wrong == Wrong::kRight;
      break;
    case absl::StatusCode::kFailedPrecondition:
      allowed = !has_memory || !ticket->honest || !ticket->has_session();
      break;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      allowed = true;
      break;
    case absl::StatusCode::kDeadlineExceeded:
      allowed = late;
      break;
    case absl::StatusCode::kCancelled:
      allowed = cancelled || ticket->channel->channel == nullptr;
      break;
    default:
      break;
  }
  return allowed && wrong != Wrong::kRange ? "" : broken();
}

std::string OneSidedAccess::ReleaseOwnAndMark() {
  std::fill(local.begin(), local.end(), kAfterwards);
  if (own_region == nullptr) return "";
  const bool released = own_regions->Release(std::exchange(own_region, nullptr), /*may_wait=*/false);
  return released ? "" : absl::StrCat(Name(), " has ended, and uses memory that its client has registered");
}

std::string OneSidedAccess::CheckMemory() const {
  const auto touched =
      std::find_if(local.begin(), local.end(), [](uint8_t byte) { return byte != kAfterwards; });
  if (touched == local.end()) return "";
  return absl::StrCat("somebody wrote to byte ", touched - local.begin(), " of the memory of ", Name(),
                      ", which had ended");
}

void OneSidedAccess::ReleaseMemory() {
  local = {};
  plain = {};
  registered = Buffer();
}

}  // namespace hawser::sim
