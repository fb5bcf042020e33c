#include "hawser/transport/lane/lane_operation.h"

#include "absl/strings/str_cat.h"

namespace hawser::transport {
namespace {

fabric::Opcode OpcodeOf(LaneOperation::Kind kind) {
  switch (kind) {
    case LaneOperation::Kind::kRead:
      return fabric::Opcode::kRead;
    case LaneOperation::Kind::kWrite:
      return fabric::Opcode::kWrite;
    case LaneOperation::Kind::kCompareSwap:
      return fabric::Opcode::kCompareSwap;
    case LaneOperation::Kind::kFetchAdd:
      return fabric::Opcode::kFetchAdd;
  }
  return fabric::Opcode::kRead;
}

// Behind PartlyDone().
constexpr absl::string_view kNotCounted = ", and was not counted";
constexpr absl::string_view kPerhapsCounted = ", and may have been counted";

}  // namespace

void LaneOperation::FillIn(absl::Span<fabric::SendWorkRequest> requests, size_t first, uint64_t address,
                           uint32_t rkey) const {
  for (size_t i = 0; i < requests.size(); ++i) {
    const Piece& piece = pieces[first + i];
    requests[i].opcode = OpcodeOf(kind);
    requests[i].signaled = i + 1 == requests.size();
    requests[i].sges = {&piece.local, 1};
    requests[i].remote_address = address + piece.offset;
    requests[i].rkey = rkey;
    requests[i].compare_add = compare_add;
    requests[i].swap = swap;
  }
}

absl::Status LaneOperation::FailedWith(fabric::CompletionStatus status) const {
  if (status != fabric::CompletionStatus::kRemoteAccessError) {
    return absl::UnavailableError(absl::StrCat("it failed: ", fabric::Describe(status), WhatIsLeft()));
  }
  // The owner's end of the queue pair is in error, too, and has received nothing that was posted behind.
  return absl::FailedPreconditionError(absl::StrCat(
      "the owner refuses the memory: it was revoked, or the owner has ended (", fabric::Describe(status), ")",
      PartlyDone(), counting_ == Counting::kNone ? "" : kNotCounted));
}

absl::Status LaneOperation::EndedBy(const absl::Status& why) const {
  if (posted_ == 0) return why;
  return absl::Status(why.code(), absl::StrCat(why.message(), WhatIsLeft()));
}

bool LaneOperation::complete() const {
  return done_ == pieces.size() && (counting_ == Counting::kNone || counting_ == Counting::kCounted);
}

absl::Status LaneOperation::WhyNot(const absl::Status& why) const {
  if (!result_.ok()) return result_;
  // The owner has received what was posted behind it.
  if (counting_ == Counting::kCounted) return absl::OkStatus();
  return EndedBy(why);
}

std::string LaneOperation::WhatIsLeft() const {
  absl::string_view counted;
  if (counting_ == Counting::kWanted) counted = kNotCounted;
  if (counting_ == Counting::kAnnounced || counting_ == Counting::kCounted) counted = kPerhapsCounted;
  return absl::StrCat(PartlyDone(), counted);
}

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
