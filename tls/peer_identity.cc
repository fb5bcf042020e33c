#include "hawser/tls/peer_identity.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/peer_text.h"

namespace hawser {
namespace {

constexpr size_t kTextBytesMax = 512;
constexpr absl::string_view kMore = ", ...";

}  // namespace

bool PeerIdentity::HasDnsName(absl::string_view name) const {
  return std::any_of(dns_names.begin(), dns_names.end(),
                     [&](const std::string& each) { return absl::EqualsIgnoreCase(each, name); });
}

bool PeerIdentity::HasUri(absl::string_view uri) const {
  return std::find(uris.begin(), uris.end(), uri) != uris.end();
}

std::string PeerIdentity::ToString() const {
  if (!is_authenticated) return "not authenticated";
  std::string text;
  bool complete = true;
  const auto append = [&](absl::string_view kind, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (!complete) return;
      const std::string next = absl::StrCat(text.empty() ? "" : ", ", kind, ":", EscapePeerText(name));
      complete = text.size() + next.size() + kMore.size() <= kTextBytesMax;
      text += complete ? next : std::string(text.empty() ? "a very long name" : kMore);
    }
  };
  append("DNS", dns_names);
  append("URI", uris);
  append("IP", ip_addresses);
  return text.empty() ? "authenticated without a name" : text;
}

}  // namespace hawser
