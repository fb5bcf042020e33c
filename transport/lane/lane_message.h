#ifndef HAWSER_TRANSPORT_LANE_LANE_MESSAGE_H_
#define HAWSER_TRANSPORT_LANE_LANE_MESSAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

// What the two ends of a lane say to each other, beside the one-sided operations. Field table:
// rpc/PROTOCOL.md.
namespace hawser::transport {

// What a peer may do with memory that it reaches: bits.
inline constexpr uint8_t kLaneRead = 1;
inline constexpr uint8_t kLaneWrite = 2;
inline constexpr uint8_t kLaneAtomic = 4;
inline constexpr uint8_t kLaneAccessAll = kLaneRead | kLaneWrite | kLaneAtomic;
// Beside kLaneWrite: the owner counts the WRITEs, and the requester says when they have arrived (kArrived).
inline constexpr uint8_t kLaneCounted = 8;
inline constexpr bool IsLaneAccess(uint8_t bits) {
  return (bits & kLaneAccessAll) != 0 && (bits & ~(kLaneAccessAll | kLaneCounted)) == 0 &&
         ((bits & kLaneCounted) == 0 || (bits & kLaneWrite) != 0);
}
// "READ, WRITE, atomics", or some of it.
std::string DescribeAccess(uint8_t access);

// WRITEs that one kArrived counts at most: eight times what the send queue of a requester holds. An owner
// cannot see how many there were, so this bounds what one message of a liar adds.
inline constexpr uint32_t kLaneArrivedMax = 1024;

// Bytes that one ticket gives at most: what every device takes in one grant.
inline constexpr uint64_t kLaneBytesMax = uint64_t{1} << 31;

// The right of one session to reach one range of one region of its owner's memory. It may be used by any code
// that can send over that session, so `key` cannot be guessed.
struct LaneTicket {
  uint64_t owner = 0;   // The run of the owner's process: random bits.
  uint64_t region = 0;  // Counted by the owner from 1 on.
  uint64_t offset = 0;  // In the region.
  uint64_t length = 0;  // Bytes: up to kLaneBytesMax.
  uint8_t access = 0;   // kLane...
  std::array<uint8_t, 16> key = {};

  friend bool operator==(const LaneTicket&, const LaneTicket&) = default;
};

struct LaneMessage {
  enum class Kind : uint8_t {
    kOpen = 1,     // To the owner: `handle` is to name the memory of `ticket`. Answered by the next two.
    kOpened = 2,   // `address`, `rkey`, `length` and `access` reach it, until kClosed.
    kRefused = 3,  // `why`: the ticket gives no access.
    kClose = 4,    // To the owner: no operation on `handle` is in flight, and none follows.
    kClosed = 5,   // The answer to that.
    kRevoke = 6,   // From the owner: `handle` ends; a kClose is awaited.
    kPing = 7,     // To the owner, and not answered: see LaneRequests.
    // To the owner: `count` WRITEs on `handle`, which allows kLaneCounted, were posted before this on the
    // same queue pair, and after the kArrived before. Answered by kCounted; one at a time for each handle.
    kArrived = 8,
    kCounted = 9,  // The answer to that: they are counted.
  };

  Kind kind = Kind::kClose;
  uint32_t handle = 0;     // The requester chooses it; each is used once on a lane.
  LaneTicket ticket = {};  // kOpen
  uint32_t count = 0;      // kArrived: 1 to kLaneArrivedMax.
  uint64_t address = 0;    // kOpened, as the next three.
  uint64_t length = 0;
  uint32_t rkey = 0;
  uint8_t access = 0;
  absl::Status why;  // kRefused
};

// No message is longer, and none is empty.
inline constexpr size_t kLaneMessageMax = 256;
// Requests of one end (kOpen, kClose, kArrived, kRevoke) that the other one has not answered.
inline constexpr uint32_t kLaneRequestsMax = 8;
// Receives that each end has posted: the peer's requests, and its answers.
inline constexpr uint32_t kLaneReceives = 2 * kLaneRequestsMax;

// At most kLaneMessageMax bytes: the text of `why` is cut.
std::string Encode(const LaneMessage& message);
// InvalidArgument: it is none.
absl::StatusOr<LaneMessage> DecodeLaneMessage(absl::Span<const uint8_t> data);

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LANE_LANE_MESSAGE_H_
