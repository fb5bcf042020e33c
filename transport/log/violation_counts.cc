#include "hawser/transport/log/violation_counts.h"

#include "absl/strings/str_cat.h"
#include "hawser/transport/log/peer_log.h"

namespace hawser::transport {

void ViolationCounts::Record(Violation violation, const SocketAddress& peer, absl::string_view text) {
  counts_[static_cast<size_t>(violation)].fetch_add(1, std::memory_order_relaxed);
  PeerLog::Process().Line(LogSeverity::kWarning, peer,
                          absl::StrCat("protocol violation (", NameOf(violation), "): ", text));
}

}  // namespace hawser::transport
