#ifndef HAWSER_TRANSPORT_LANE_LANE_OPERATION_H_
#define HAWSER_TRANSPORT_LANE_LANE_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/lane/lane_message.h"

namespace hawser::transport {

class Lane;
struct LaneHandle;

// One READ or WRITE of a user, of one or many ranges, or one atomic. Its local memory moves round this ring:
//   user -> lane, from Lane::Start() on -> user, with OnEnd(): no NIC touches it any more.
// Thread:   on the poller, once it is started.
// Lifetime: its owner keeps it from Lane::Start() until OnEnd().
class LaneOperation {
 public:
  // Of one work request: a range of the remote memory, and where it is here.
  struct Piece {
    uint64_t offset = 0;  // In what the ticket gives.
    fabric::Sge local;
  };

  virtual ~LaneOperation() = default;

  // A READ, a WRITE, or an atomic on one piece of 8 bytes, which receives what was there before.
  enum class Kind : uint8_t { kRead, kWrite, kCompareSwap, kFetchAdd };

  // Set before it is started.
  Kind kind = Kind::kRead;
  absl::InlinedVector<Piece, 1> pieces;  // One at least. No end of a range wraps.
  uint64_t compare_add = 0;              // As of fabric::SendWorkRequest.
  uint64_t swap = 0;

  // It changes the owner's memory.
  bool changes() const { return kind != Kind::kRead; }
  bool is_atomic() const { return kind > Kind::kWrite; }
  // OutOfRange, PermissionDenied, InvalidArgument: what `ticket` gives does not allow it. A lane posts
  // nothing then, which would end it.
  absl::Status CheckAgainst(const LaneTicket& ticket) const;
  // Makes `requests` those of its pieces from number `first` on; the last one is signaled.
  void FillIn(absl::Span<fabric::SendWorkRequest> requests, size_t first, uint64_t address,
              uint32_t rkey) const;
  // What it ends with when a work request of it has failed.
  absl::Status FailedWith(fabric::CompletionStatus status) const;
  // What it ends with because of `why`, which says so if something of it was posted, and if it may be
  // counted.
  absl::Status EndedBy(const absl::Status& why) const;
  // For the text of an error, once something of it was posted.
  absl::string_view PartlyDone() const {
    return changes() ? "; it may have been written, in whole or in part" : "";
  }

 protected:
  // Once. No NIC touches the memory of `pieces` any more.
  virtual void OnEnd(const absl::Status& status) = 0;

 private:
  friend class Lane;
  friend class LaneAnnouncements;

  // Of the owner's count.
  enum class Counting : uint8_t { kNone, kWanted, kAnnounced, kCounted };

  // All of it is done, and the owner has counted it if it is to be counted.
  bool complete() const;
  // What it ends with because its lane has ended for `why`.
  absl::Status WhyNot(const absl::Status& why) const;
  // For the text of an error, once something of it was posted.
  std::string WhatIsLeft() const;

  Counting counting_ = Counting::kNone;
  LaneHandle* handle_ = nullptr;  // While `lane_` has it.
  size_t posted_ = 0;             // Pieces.
  size_t done_ = 0;
  Lane* lane_ = nullptr;  // That has it. Null: none.
  absl::Status result_;   // Not OK: it ends with this once nothing of it is posted.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LANE_LANE_OPERATION_H_
