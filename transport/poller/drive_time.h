#ifndef HAWSER_TRANSPORT_POLLER_DRIVE_TIME_H_
#define HAWSER_TRANSPORT_POLLER_DRIVE_TIME_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "hawser/base/count.h"

namespace hawser::transport {

// Where the time of the thread that drives a poller goes.
// Thread: the one that drives; Total() from any.
class DriveTime {
 public:
  enum class Part : uint8_t { kBusy, kSpun, kSlept };

  explicit DriveTime(int64_t now_ns) : since_ns_(now_ns) {}

  // From `now_ns` on the thread does `part`. It may be an estimate: one before the last counts as that.
  void Begin(Part part, int64_t now_ns) {
    now_ns = std::max(now_ns, since_ns_);
    totals_ns_[static_cast<size_t>(part_)].Add(static_cast<uint64_t>(now_ns - since_ns_));
    since_ns_ = now_ns;
    part_ = part;
  }
  // The thread drives no more. The time is not known; what has passed since the last Begin() counts as sleep.
  void End() { part_ = Part::kSlept; }

  absl::Duration Total(Part part) const {
    return absl::Nanoseconds(static_cast<int64_t>(totals_ns_[static_cast<size_t>(part)].value()));
  }

 private:
  std::array<Count, 3> totals_ns_;
  int64_t since_ns_;
  Part part_ = Part::kSlept;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_DRIVE_TIME_H_
