#include "hawser/transport/lane/lane_operation.h"

#include "absl/strings/str_cat.h"

namespace hawser::transport {

absl::Status LaneOperation::CheckAgainst(const LaneTicket& ticket) const {
  const uint8_t needed = is_atomic() ? kLaneAtomic : changes() ? kLaneWrite : kLaneRead;
  if ((ticket.access & needed) == 0) {
    return absl::PermissionDeniedError(absl::StrCat("the ticket is for ", DescribeAccess(ticket.access),
                                                    ", not for ", DescribeAccess(needed)));
  }
  const uint64_t size = ticket.length;
  for (const Piece& piece : pieces) {
    if (piece.offset > size || piece.local.length > size - piece.offset) {
      return absl::OutOfRangeError(absl::StrCat(piece.local.length, " bytes at offset ", piece.offset,
                                                " are beyond the ", size, " bytes of the ticket"));
    }
    if (is_atomic() && (piece.offset % 8 != 0 || piece.local.length != 8)) {
      return absl::InvalidArgumentError(
          absl::StrCat("an atomic is on 8 bytes at a multiple of 8, not at offset ", piece.offset));
    }
  }
  return absl::OkStatus();
}

}  // namespace hawser::transport
