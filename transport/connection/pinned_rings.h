#ifndef HAWSER_TRANSPORT_CONNECTION_PINNED_RINGS_H_
#define HAWSER_TRANSPORT_CONNECTION_PINNED_RINGS_H_

#include <cstdint>

#include "hawser/transport/wire/options.h"

namespace hawser::transport {

// The memory that a NIC pins for the rings of `connections` of one runtime, dealt evenly over `pollers`, in
// bytes. It counts against the memlock limit, beside the memory of the pool. See fabric/verbs/rings.h for
// what this assumes of the NIC. `windows`: grants are memory windows.
uint64_t PinnedRingBytes(uint64_t pollers, uint64_t connections, const ConnectionOptions& options,
                         bool windows);

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_PINNED_RINGS_H_
