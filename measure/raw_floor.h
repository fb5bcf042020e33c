#ifndef HAWSER_MEASURE_RAW_FLOOR_H_
#define HAWSER_MEASURE_RAW_FLOOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hawser/measure/extent.h"
#include "hawser/measure/raw_socket.h"

// The floors: each measures a raw socket whose other side does what the RawService of the same name says. All
// return Unavailable when that has closed.
namespace hawser::measure {

// One exchange. For kPingPong call BeginPingPong() first, once on each socket.
absl::Status BeginPingPong(RawSocket& socket, uint64_t bytes, bool spin);
absl::Status PingPong(RawSocket& socket, absl::Span<uint8_t> memory, bool spin);
absl::Status PutOne(RawSocket& socket, absl::Span<const uint8_t> memory, bool spin);  // kSink
absl::Status GetOne(RawSocket& socket, absl::Span<uint8_t> memory, bool spin);        // kSource

// The most that kEcho is sent at once: more than sockets hold, and both sides would wait for each other.
inline constexpr uint64_t kBatchBytesMax = 64 << 10;

// Messages of `bytes`, `batch` in flight: sent with one call, received with as few as possible. One exchange
// is one message. To kEcho. `bytes` times `batch` is kBatchBytesMax at most.
absl::StatusOr<Ran> Batches(RawSocket& socket, uint64_t bytes, int batch, const Extent& extent, bool spin);

// Transfers out of or into `memory`, one after the other without a pause: none waits for an answer. To kSink
// and kSource.
absl::StatusOr<Ran> StreamInto(RawSocket& socket, absl::Span<const uint8_t> memory, const Extent& extent);
absl::StatusOr<Ran> StreamFrom(RawSocket& socket, absl::Span<uint8_t> memory, const Extent& extent);

}  // namespace hawser::measure

#endif  // HAWSER_MEASURE_RAW_FLOOR_H_
