#include "hawser/rpc/client/lane_access.h"

#include "hawser/rpc/client/channel_core.h"

namespace hawser::internal {

absl::StatusOr<transport::SessionToken> LaneAccess::Session() const {
  if (core_.closed()) return core_.why_closed_;
  if (!core_.dials_) {
    return absl::FailedPreconditionError(
        "the channel leads back to a client; only the memory of a server can be reached");
  }
  if (core_.link_ == nullptr || !core_.link_->CanSend()) {
    return absl::UnavailableError("the channel is not connected, and its tickets are void");
  }
  return core_.link_->session();
}

absl::StatusOr<transport::Lane::Target> LaneAccess::Target() const {
  transport::Lane::Target target;
  target.address = core_.link_->address();
  target.session = core_.link_->session();
  target.security = core_.security_;
  target.peer = core_.link_->peer_identity();
  const std::string& from = core_.options_.connection.local_address;
  if (from.empty()) return target;
  absl::StatusOr<SocketAddress> local = transport::ParseNumericHost(from);
  if (!local.ok()) return local.status();
  target.local_address = *local;
  return target;
}

std::string LaneAccess::DescribeSilence(int64_t heard_ns) const {
  if (core_.link_ == nullptr) return "; the channel is not connected";
  return core_.link_->DescribeSilence(heard_ns);
}

absl::Duration LaneAccess::connect_timeout() const { return core_.options_.connect_timeout; }

}  // namespace hawser::internal
