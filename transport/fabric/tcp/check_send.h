#ifndef HAWSER_TRANSPORT_FABRIC_TCP_CHECK_SEND_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_CHECK_SEND_H_

#include <cstdint>

#include "absl/status/status.h"
#include "hawser/base/socket_address.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/region_table.h"

namespace hawser::fabric {

// What a queue pair may send.
struct SendLimits {
  uint32_t push_bytes_max = 0;  // 0: the peer takes no pushes.
  uint32_t read_depth = 0;
  bool takes_atomics = false;
};

// Checks a work request for QueuePair::PostSend() of a queue pair to `peer`, and sets `length_bytes` if it is
// OK. InvalidArgument: it breaks the contract of fabric.h, names memory that is not in `regions`, or exceeds
// `limits`.
absl::Status CheckSend(const SendWorkRequest& request, const RegionTable& regions, const SendLimits& limits,
                       const SocketAddress& peer, uint32_t* length_bytes);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_CHECK_SEND_H_
