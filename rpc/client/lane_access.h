#ifndef HAWSER_RPC_CLIENT_LANE_ACCESS_H_
#define HAWSER_RPC_CLIENT_LANE_ACCESS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/transport/lane/lane.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::internal {

// What a lane needs to know of its channel.
// Thread:   on the poller of the channel.
// Lifetime: made where it is used.
class LaneAccess {
 public:
  explicit LaneAccess(const ChannelCore& core) : core_(core) {}

  // The current session, to which tickets belong. FailedPrecondition: the channel does not dial; Cancelled:
  // it is closed; otherwise why there is none now.
  absl::StatusOr<transport::SessionToken> Session() const;
  // Session() would return `session`.
  bool HasSession(const transport::SessionToken& session) const {
    const Link* const link = core_.link_.get();
    return link != nullptr && link->CanSend() && link->session() == session && core_.dials_ &&
           !core_.closed();
  }
  // Where a lane of that session leads. Only if there is one.
  absl::StatusOr<transport::Lane::Target> Target() const;
  absl::Duration connect_timeout() const;
  // For the text of an error: as Connection::DescribeSilence(), or that it is not connected.
  std::string DescribeSilence(int64_t heard_ns) const;

 private:
  const ChannelCore& core_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_LANE_ACCESS_H_
