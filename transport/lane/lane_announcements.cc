#include "hawser/transport/lane/lane_announcements.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "hawser/transport/lane/lane_message.h"

namespace hawser::transport {

void LaneAnnouncements::Add(LaneOperation& operation) {
  operation.handle_->counted_next.push_back(&operation);
  added_to_.push_back(operation.handle_);
}

// Each handle is there still: an operation on it is in flight. If the lane ends meanwhile, none has anything.
void LaneAnnouncements::AnnounceAdded() {
  for (LaneHandle* handle : std::exchange(added_to_, {})) Announce(*handle);
}

void LaneAnnouncements::Announce(LaneHandle& handle) {
  if (handle.counting || handle.counted_next.empty()) return;
  const size_t count = std::min<size_t>(handle.counted_next.size(), kLaneArrivedMax);
  const auto end = handle.counted_next.begin() + static_cast<std::ptrdiff_t>(count);
  handle.counted_now.assign(handle.counted_next.begin(), end);
  handle.counted_next.erase(handle.counted_next.begin(), end);
  for (LaneOperation* operation : handle.counted_now) {
    operation->counting_ = LaneOperation::Counting::kAnnounced;
  }
  handle.counting = true;
  LaneMessage arrived;
  arrived.kind = LaneMessage::Kind::kArrived;
  arrived.handle = handle.number;
  arrived.count = static_cast<uint32_t>(count);
  requests_.Add(std::move(arrived));
}

std::vector<LaneOperation*> LaneAnnouncements::TakeCounted(LaneHandle& handle) {
  std::vector<LaneOperation*> ended;
  handle.counting = false;
  for (LaneOperation* operation : std::exchange(handle.counted_now, {})) {
    operation->counting_ = LaneOperation::Counting::kCounted;
    if (!operation->complete()) continue;
    operation->lane_ = nullptr;  // OnEnd() of one may cancel another, which has ended then.
    --handle.in_flight;
    ended.push_back(operation);
  }
  Announce(handle);
  return ended;
}

void LaneAnnouncements::Forget(const LaneOperation& operation) {
  LaneHandle& handle = *operation.handle_;
  for (std::deque<LaneOperation*>* each : {&handle.counted_next, &handle.counted_now}) {
    const auto at = std::find(each->begin(), each->end(), &operation);
    if (at != each->end()) each->erase(at);
  }
}

std::vector<LaneOperation*> LaneAnnouncements::TakeAll(const LaneHandles& handles) {
  added_to_.clear();
  std::vector<LaneOperation*> ended;
  for (const auto& [number, handle] : handles.all()) {
    for (std::deque<LaneOperation*>* each : {&handle->counted_next, &handle->counted_now}) {
      for (LaneOperation* operation : std::exchange(*each, {})) {
        if (operation->posted_ != operation->done_) continue;
        operation->lane_ = nullptr;
        ended.push_back(operation);
      }
    }
  }
  return ended;
}

}  // namespace hawser::transport
