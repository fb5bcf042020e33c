#include "hawser/observe/history.h"

#include <algorithm>

#include "hawser/observe/html.h"

namespace hawser::observe {

void History::Add(wire::Snapshot::Reader snapshot) {
  uint64_t busy_ns = 0, leased_bytes = 0;
  for (const auto poller : snapshot.getPollers()) busy_ns += poller.getBusyNs();
  for (const auto pool : snapshot.getPools()) leased_bytes += pool.getLeasedBytes();
  const uint64_t calls = snapshot.getServer().getCallsTotal();
  const int64_t now_ns = snapshot.getTakenUnixNs();
  if (last_unix_ns_ == 0 || now_ns > last_unix_ns_) {
    const double seconds = last_unix_ns_ == 0 ? 0 : static_cast<double>(now_ns - last_unix_ns_) / 1e9;
    if (seconds > 0) {
      if (times_unix_ns_.size() == points_max_) times_unix_ns_.erase(times_unix_ns_.begin());
      times_unix_ns_.push_back(now_ns);
      Append(calls_per_second_, static_cast<double>(calls - std::min(calls, last_calls_)) / seconds);
      Append(calls_running_, static_cast<double>(snapshot.getServer().getCallsRunning()));
      Append(busy_, static_cast<double>(busy_ns - std::min(busy_ns, last_busy_ns_)) / 1e9 / seconds);
      Append(leased_bytes_, static_cast<double>(leased_bytes));
    }
    AddPollers(snapshot, seconds);
    AddPools(snapshot);
  }
  last_unix_ns_ = now_ns;
  last_calls_ = calls;
  last_busy_ns_ = busy_ns;
}

const History::Curve* History::Find(const std::vector<Named>& all, absl::string_view name) {
  for (const Named& named : all) {
    if (named.name == name) return named.curve.empty() ? nullptr : &named.curve;
  }
  return nullptr;
}

void History::Append(Curve& curve, double value) const {
  // What came later than the first point, or was left out of a snapshot, was 0.
  curve.insert(curve.begin(), times_unix_ns_.size() - std::min(times_unix_ns_.size(), curve.size() + 1), 0.0);
  if (curve.size() == times_unix_ns_.size()) curve.erase(curve.begin());
  curve.push_back(value);
}

History::Named* History::FindOrAdd(std::vector<Named>& all, absl::string_view name) const {
  for (Named& named : all) {
    if (named.name == name) return &named;
  }
  if (all.size() == kNamedMax) return nullptr;
  all.emplace_back();
  all.back().name = std::string(name);
  return &all.back();
}

void History::AddPollers(wire::Snapshot::Reader snapshot, double seconds) {
  for (Named& named : pollers_) named.is_present = false;
  for (const auto poller : snapshot.getPollers()) {
    const size_t before = pollers_.size();
    Named* const named = FindOrAdd(pollers_, View(poller.getName()));
    if (named == nullptr || named->is_present) continue;
    const uint64_t busy_ns = poller.getBusyNs();
    if (seconds > 0) {
      const bool is_new = pollers_.size() > before;
      const uint64_t since = is_new ? 0 : busy_ns - std::min(busy_ns, named->last_count);
      // The counts are read shortly after the time of the snapshot was.
      Append(named->curve, std::min(1.0, static_cast<double>(since) / 1e9 / seconds));
    }
    named->last_count = busy_ns;
    named->is_present = true;
  }
  // A device that was removed, for instance.
  pollers_.erase(
      std::remove_if(pollers_.begin(), pollers_.end(), [](const Named& named) { return !named.is_present; }),
      pollers_.end());
}

void History::AddPools(wire::Snapshot::Reader snapshot) {
  for (Named& named : pools_) named.is_present = false;
  for (const auto pool : snapshot.getPools()) {
    Named* const named = FindOrAdd(pools_, View(pool.getName()));
    if (named == nullptr || named->is_present) continue;
    if (!times_unix_ns_.empty()) Append(named->curve, static_cast<double>(pool.getLeasedBytes()));
    named->is_present = true;
  }
  pools_.erase(
      std::remove_if(pools_.begin(), pools_.end(), [](const Named& named) { return !named.is_present; }),
      pools_.end());
}

}  // namespace hawser::observe
