#include "hawser/transport/fabric/verbs/check_send.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/verbs/device.h"

namespace hawser::fabric {
namespace {

// The limit of one work request (InfiniBand Architecture Specification 1.2.1, 9.2: 2^31 bytes).
constexpr uint64_t kMessageBytesMax = uint64_t{1} << 31;

}  // namespace

absl::Status CheckSend(const SendWorkRequest& request, const VerbsEndpoint& endpoint,
                       const VerbsMemory& memory, bool registers_sinks) {
  const VerbsDevice& device = endpoint.device();
  const ibv_device_attr& attr = device.attr();
  const bool read = request.opcode == Opcode::kRead;
  // A sink that is registered for the READ is one range. (On iWARP it has one entry anyway. siw accepts more,
  // but fills only the first.)
  const size_t read_sges_max = registers_sinks ? 1 : static_cast<size_t>(std::max(attr.max_sge_rd, 0));
  const size_t sges_max =
      read && read_sges_max > 0 ? std::min(read_sges_max, device.sge_max()) : device.sge_max();
  if (request.sges.empty() || request.sges.size() > sges_max || request.opcode == Opcode::kPush ||
      request.opcode > Opcode::kFetchAdd) {
    return absl::InvalidArgumentError(absl::StrCat("PostSend to ", endpoint.peer(), ": ", request.sges.size(),
                                                   " sges, opcode ", static_cast<int>(request.opcode),
                                                   ": 1 to ", sges_max,
                                                   " sges of a SEND, READ, WRITE or atomic needed",
                                                   read ? " (max_sge_rd of the device; over iWARP 1)" : ""));
  }
  uint64_t total_bytes = 0;
  for (const Sge& sge : request.sges) {
    if (!memory.Contains(sge)) return memory.Refusal(sge);
    if (memory.IsLost(sge)) [[unlikely]] {
      return absl::FailedPreconditionError(absl::StrCat("PostSend to ", endpoint.peer(), ": RDMA device ",
                                                        device.name(),
                                                        " was away, and did not register this memory again"));
    }
    total_bytes += sge.length;
  }
  if (total_bytes > kMessageBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("PostSend to ", endpoint.peer(), ": ", total_bytes,
                                                   " bytes in one work request, at most ", kMessageBytesMax,
                                                   " are possible"));
  }
  if (IsAnswered(request.opcode) && endpoint.agreed_read_depth() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("PostSend to ", endpoint.peer(),
                                                   ": a READ or atomic, but a READ depth of 0 was agreed"));
  }
  if (!IsAtomic(request.opcode)) return absl::OkStatus();
  if (device.atomics() == Atomics::kNone) {
    return absl::InvalidArgumentError(absl::StrCat(
        "PostSend to ", endpoint.peer(), ": an atomic, which RDMA device ", device.name(), " does not have"));
  }
  // Some providers refuse to post one that is not aligned (rxe: validate_send_wr()).
  return CheckAtomic(request);
}

}  // namespace hawser::fabric
