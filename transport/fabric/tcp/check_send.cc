#include "hawser/transport/fabric/tcp/check_send.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/tcp/frame.h"

namespace hawser::fabric {

absl::Status CheckSend(const SendWorkRequest& request, const RegionTable& regions, const SendLimits& limits,
                       const SocketAddress& peer, uint32_t* length_bytes) {
  if (request.sges.empty() || request.sges.size() > kSgeMax || request.opcode > Opcode::kFetchAdd) {
    return absl::InvalidArgumentError(absl::StrCat("PostSend to ", peer.ToString(), ": ", request.sges.size(),
                                                   " sges, opcode ", static_cast<int>(request.opcode),
                                                   ": 1 to ", kSgeMax,
                                                   " sges of a SEND, READ, WRITE, push or atomic needed"));
  }
  uint64_t total_bytes = 0;
  for (const Sge& sge : request.sges) {
    if (!regions.Contains(sge)) return regions.Refusal(sge);
    total_bytes += sge.length;
  }
  if (total_bytes > kMessageBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("PostSend to ", peer.ToString(), ": ", total_bytes,
                                                   " bytes in one work request, at most ", kMessageBytesMax,
                                                   " are possible"));
  }
  if (request.opcode == Opcode::kPush && total_bytes > limits.push_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat("PostSend to ", peer.ToString(), ": a push of ",
                                                   total_bytes, " bytes, at most ", limits.push_bytes_max,
                                                   " are possible"));
  }
  if (IsAnswered(request.opcode) && limits.read_depth == 0) {
    return absl::InvalidArgumentError(absl::StrCat("PostSend to ", peer.ToString(),
                                                   ": a READ or atomic, but a READ depth of 0 was agreed"));
  }
  if (IsAtomic(request.opcode) && !limits.takes_atomics) {
    return absl::InvalidArgumentError(
        absl::StrCat("PostSend to ", peer.ToString(), ": an atomic, which the peer does not take"));
  }
  if (IsAtomic(request.opcode)) {
    if (absl::Status status = CheckAtomic(request); !status.ok()) return status;
  }
  *length_bytes = static_cast<uint32_t>(total_bytes);
  return absl::OkStatus();
}

}  // namespace hawser::fabric
