#ifndef HAWSER_TRANSPORT_POLLER_QUEUE_DEPTHS_H_
#define HAWSER_TRANSPORT_POLLER_QUEUE_DEPTHS_H_

#include <cstddef>
#include <cstdint>

// What connections and pollers ask of a fabric, and how many pollers there are, unless options say otherwise.
namespace hawser::transport {

// READs that each side of a connection may have outstanding. Enough for 4 MiB of chunks in flight.
inline constexpr uint32_t kReadDepth = 16;

// Completions that wait to be polled, over all connections of one poller. A fabric whose queue pairs need
// more makes more as they come, since a NIC pins the memory of all of it. A driver rounds up to 4,096.
inline constexpr uint32_t kCompletionQueueDepth = (1 << 12) - 1;

// The most pollers of a runtime that is to decide by itself how many (RuntimeOptions::pollers).
inline constexpr size_t kPollersDefaultMost = 32;

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_QUEUE_DEPTHS_H_
