#include "hawser/rpc/client/retired_links.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hawser::internal {
namespace {

// The most draining connections ("going away") that still have calls to answer. An honest server leaves one
// of them. If a server drains each connection in turn, the channel closes the oldest ones, and their calls
// fail.
constexpr size_t kCalledOffMax = 4;

}  // namespace

void RetiredLinks::Remove(const Link& link) {
  const auto at =
      std::find_if(links_.begin(), links_.end(), [&](const auto& each) { return each.get() == &link; });
  if (at != links_.end()) links_.erase(at);
}

void RetiredLinks::CloseOldest() {
  const auto open = [](const std::unique_ptr<Link>& link) { return !link->closing(); };
  auto too_many =
      std::count_if(links_.begin(), links_.end(), open) - static_cast<std::ptrdiff_t>(kCalledOffMax);
  // By index: ending a link may add another.
  for (size_t i = 0; i < links_.size() && too_many > 0; ++i) {
    if (!open(links_[i])) continue;
    --too_many;
    links_[i]->Close(absl::UnavailableError(absl::StrCat("the server called off ", kCalledOffMax,
                                                         " connections more before this one had ended")));
  }
}

void RetiredLinks::CloseAll(const absl::Status& why) {
  for (size_t i = 0; i < links_.size(); ++i) links_[i]->Close(why);
}

}  // namespace hawser::internal
