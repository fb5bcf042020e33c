#ifndef HAWSER_OBSERVE_HISTORY_H_
#define HAWSER_OBSERVE_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "hawser/observe/snapshot.capnp.h"

namespace hawser::observe {

// The last minutes of a server, from snapshots at intervals. Memory is bounded.
// Thread: one at a time.
class History {
 public:
  // One value a point, the oldest first.
  using Curve = std::vector<double>;

  explicit History(size_t points_max) : points_max_(points_max) {}

  // Points are differences to the snapshot before, so the first one makes none.
  void Add(wire::Snapshot::Reader snapshot);

  // When each point was taken. Each curve is as long.
  const std::vector<int64_t>& times_unix_ns() const { return times_unix_ns_; }
  // From the first point to the last.
  int64_t span_ns() const {
    return times_unix_ns_.empty() ? 0 : times_unix_ns_.back() - times_unix_ns_.front();
  }
  const Curve& calls_per_second() const { return calls_per_second_; }
  const Curve& calls_running() const { return calls_running_; }
  // Summed over all pollers: 1.5 is one poller and a half.
  const Curve& busy() const { return busy_; }
  // Summed over all pools.
  const Curve& leased_bytes() const { return leased_bytes_; }

  // The curves of one poller, from 0 to 1, and of one pool. A curve is 0 before its poller was started. Null:
  // there is none, because there are more than kNamedMax, or it has been there for less than two snapshots.
  const Curve* BusyOf(absl::string_view poller) const { return Find(pollers_, poller); }
  const Curve* LeasedBytesOf(absl::string_view pool) const { return Find(pools_, pool); }

  static constexpr size_t kNamedMax = 256;

 private:
  struct Named {
    std::string name;
    uint64_t last_count = 0;  // For a curve of differences.
    bool is_present = false;  // In the snapshot that is being added.
    Curve curve;
  };

  static const Curve* Find(const std::vector<Named>& all, absl::string_view name);
  void Append(Curve& curve, double value) const;
  // The one with this name, made if there is room. Null: there is none.
  Named* FindOrAdd(std::vector<Named>& all, absl::string_view name) const;
  void AddPollers(wire::Snapshot::Reader snapshot, double seconds);
  void AddPools(wire::Snapshot::Reader snapshot);

  const size_t points_max_;
  std::vector<int64_t> times_unix_ns_;
  Curve calls_per_second_, calls_running_, busy_, leased_bytes_;
  std::vector<Named> pollers_, pools_;
  int64_t last_unix_ns_ = 0;
  uint64_t last_calls_ = 0;
  uint64_t last_busy_ns_ = 0;
};

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_HISTORY_H_
