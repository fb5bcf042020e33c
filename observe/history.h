#ifndef HAWSER_OBSERVE_HISTORY_H_
#define HAWSER_OBSERVE_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hawser/observe/snapshot.capnp.h"

namespace hawser::observe {

// The last minutes of a server, from snapshots at intervals. Memory is fixed.
// Thread: one at a time.
class History {
 public:
  struct Point {
    double calls_per_second = 0;
    double busy = 0;  // Of all pollers together: 1.5 is one poller and a half.
    uint64_t leased_bytes = 0;
    uint64_t calls_running = 0;
  };

  explicit History(size_t points_max) : points_max_(points_max) {}

  // Points are differences to the snapshot before, so the first one makes none.
  void Add(wire::Snapshot::Reader snapshot);
  const std::vector<Point>& points() const { return points_; }  // Oldest first.

 private:
  const size_t points_max_;
  std::vector<Point> points_;
  int64_t last_unix_ns_ = 0;
  uint64_t last_calls_ = 0;
  uint64_t last_busy_ns_ = 0;
};

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_HISTORY_H_
