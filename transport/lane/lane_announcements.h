#ifndef HAWSER_TRANSPORT_LANE_LANE_ANNOUNCEMENTS_H_
#define HAWSER_TRANSPORT_LANE_LANE_ANNOUNCEMENTS_H_

#include <vector>

#include "hawser/transport/lane/lane_handles.h"
#include "hawser/transport/lane/lane_operation.h"
#include "hawser/transport/lane/lane_requests.h"

namespace hawser::transport {

// The counted WRITEs of a requester: what it says of them to the owner, and which ones wait to be counted.
// They are posted as a whole. LaneHandle has those of each handle.
//
// When the last piece of such a WRITE is posted, a kArrived follows it on the same queue pair, so the owner
// receives that only when the WRITE is done and visible, as fabric.h promises; if the WRITE fails, the queue
// pair fails with it, and the kArrived is never delivered. There is one at a time for each handle: WRITEs
// that are posted before its answer wait for the next one, which counts all of them.
// Thread:   that of the lane.
// Lifetime: part of its Lane.
class LaneAnnouncements final {
 public:
  explicit LaneAnnouncements(LaneRequests& requests) : requests_(requests) {}

  // The last piece of `operation` was posted. AnnounceAll() follows in the same turn.
  void Add(LaneOperation& operation);
  // Announces what was added, one time for all WRITEs of a handle, unless a kArrived of it has no answer.
  void AnnounceAll() {
    if (!added_to_.empty()) [[unlikely]]
      AnnounceAdded();
  }
  // The owner has counted what was announced of `handle`. What was added to it since is announced. Returns
  // those that end with this, which the lane has no more: the completion of a WRITE may come later than the
  // owner's answer, and then the WRITE ends with that.
  std::vector<LaneOperation*> TakeCounted(LaneHandle& handle);
  // `operation` ends, and was not counted yet.
  static void Forget(const LaneOperation& operation);
  // The lane ends. Returns those of which nothing is posted any more, which the lane has no more. What is
  // announced after this says nothing.
  std::vector<LaneOperation*> TakeAll(const LaneHandles& handles);

 private:
  void AnnounceAdded();
  void Announce(LaneHandle& handle);

  LaneRequests& requests_;
  std::vector<LaneHandle*> added_to_;  // Since AnnounceAll().
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LANE_LANE_ANNOUNCEMENTS_H_
