#include "hawser/observe/history.h"

#include <algorithm>

namespace hawser::observe {

void History::Add(wire::Snapshot::Reader snapshot) {
  uint64_t busy_ns = 0, leased_bytes = 0;
  for (const auto poller : snapshot.getPollers()) busy_ns += poller.getBusyNs();
  for (const auto pool : snapshot.getPools()) leased_bytes += pool.getLeasedBytes();
  const uint64_t calls = snapshot.getServer().getCallsTotal();
  const int64_t now_ns = snapshot.getTakenUnixNs();
  if (last_unix_ns_ != 0 && now_ns > last_unix_ns_) {
    const double seconds = static_cast<double>(now_ns - last_unix_ns_) / 1e9;
    if (points_.size() == points_max_) points_.erase(points_.begin());
    points_.push_back({static_cast<double>(calls - std::min(calls, last_calls_)) / seconds,
                       static_cast<double>(busy_ns - std::min(busy_ns, last_busy_ns_)) / 1e9 / seconds,
                       leased_bytes, snapshot.getServer().getCallsRunning()});
  }
  last_unix_ns_ = now_ns;
  last_calls_ = calls;
  last_busy_ns_ = busy_ns;
}

}  // namespace hawser::observe
