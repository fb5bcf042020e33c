#include "hawser/rpc/client/remote_counts.h"

namespace hawser::internal {

RemoteCounts& RemoteCounts::Process() {
  static constinit RemoteCounts counts;
  return counts;
}

absl::string_view RemoteCounts::NameOf(Kind kind) {
  switch (kind) {
    case Kind::kRead:
      return "read";
    case Kind::kWrite:
      return "write";
    case Kind::kCompareSwap:
      return "compare-and-swap";
    case Kind::kFetchAdd:
      return "fetch-and-add";
  }
  return "unknown";
}

}  // namespace hawser::internal
