#ifndef HAWSER_TRANSPORT_LANE_LANE_HANDLES_H_
#define HAWSER_TRANSPORT_LANE_LANE_HANDLES_H_

#include <cstdint>
#include <deque>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/lane/lane_operation.h"

namespace hawser::transport {

// What one ticket gives, at the requester's end.
struct LaneHandle {
  enum class Stage : uint8_t { kOpening, kOpen, kRevoked, kClosing, kUseless };

  uint32_t number = 0;
  Stage stage = Stage::kOpening;
  LaneTicket ticket;
  uint64_t address = 0;
  uint32_t rkey = 0;
  absl::Status why;        // kUseless, kRevoked, kClosing: what operations get.
  uint32_t in_flight = 0;  // Operations of which something is posted.
  bool close_asked = false;
  std::deque<LaneOperation*> waiting;  // While it opens.

  // ---- Of counted WRITEs, which end once they are counted. All of their pieces are posted.
  bool counting = false;                    // A kArrived has no answer yet.
  std::deque<LaneOperation*> counted_next;  // For which none was sent. In the order of their last pieces.
  std::deque<LaneOperation*> counted_now;   // Of the one that has no answer, those that have not ended.
};

// The handles of a lane, at the requester's end. They stay where they are.
// Thread:   that of the lane.
class LaneHandles {
 public:
  // A new one, with the next number.
  LaneHandle& Add(const LaneTicket& ticket) {
    auto handle = std::make_unique<LaneHandle>();
    handle->number = next_number_++;
    handle->ticket = ticket;
    LaneHandle& added = *handle;
    all_[added.number] = std::move(handle);
    return added;
  }
  void Erase(LaneHandle& handle) {
    if (found_ == &handle) found_ = nullptr;
    all_.erase(handle.number);
  }
  // Null: there is none of this number. Operations use one handle again and again, as a rule.
  LaneHandle* Find(uint32_t number) const {
    if (found_ != nullptr && found_->number == number) return found_;
    const auto found = all_.find(number);
    if (found == all_.end()) return nullptr;
    return found_ = found->second.get();
  }
  const absl::flat_hash_map<uint32_t, std::unique_ptr<LaneHandle>>& all() const { return all_; }

 private:
  uint32_t next_number_ = 1;
  absl::flat_hash_map<uint32_t, std::unique_ptr<LaneHandle>> all_;
  mutable LaneHandle* found_ = nullptr;  // That Find() has found last.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LANE_LANE_HANDLES_H_
