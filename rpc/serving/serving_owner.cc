#include "hawser/rpc/serving/serving_owner.h"

namespace hawser::internal {

absl::StatusOr<transport::LaneTicket> ServingOwner::GrantMemory(
    const std::shared_ptr<transport::LentMemory>& /*memory*/, uint64_t /*offset*/, uint64_t /*length*/,
    uint8_t /*access*/, const std::shared_ptr<transport::Arrivals>& /*arrivals*/) {
  return absl::FailedPreconditionError(
      "the handler is of a service that a client offers; only a server grants memory");
}

}  // namespace hawser::internal
