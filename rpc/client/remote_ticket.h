#ifndef HAWSER_RPC_CLIENT_REMOTE_TICKET_H_
#define HAWSER_RPC_CLIENT_REMOTE_TICKET_H_

#include <cstdint>

#include "hawser/transport/lane/lane_message.h"

namespace hawser::internal {

// A ticket that a client has, and its handle on the lane that it was shown on.
// Thread:   any for what is const, otherwise the poller of the lane.
// Lifetime: shared by its RemoteMemory and the operations of that.
struct RemoteTicket {
  explicit RemoteTicket(const transport::LaneTicket& it) : ticket(it) {}

  const transport::LaneTicket ticket;
  uint64_t lane_number = 0;  // As RemoteLane counts them. 0: it was shown on none.
  uint32_t handle = 0;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_REMOTE_TICKET_H_
