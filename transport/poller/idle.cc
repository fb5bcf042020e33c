#include "hawser/transport/poller/idle.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "absl/time/time.h"

namespace hawser::transport {

Idle::Switches Idle::OfThisThread() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return {static_cast<uint64_t>(pthread_self()), usage.ru_nivcsw};
}

Idle::Idle(const PollerOptions& options, Switches (*switches)())
    : mode_(options.mode),
      spin_max_ns_(std::clamp<int64_t>(absl::ToInt64Nanoseconds(options.spin), 0, LongestOf(kClasses - 2))),
      switches_(switches),
      spin_ns_(options.mode == PollingMode::kAdaptive ? spin_max_ns_ : 0) {
  // Short waits are expected of a poller until they turn out to be longer.
  of_class_[ClassOf(0)].count = kRemembered;
}

bool Idle::MaySpin(int64_t now_ns) const {
  if (mode_ != PollingMode::kAdaptive) return mode_ == PollingMode::kSpin;
  return spin_ns() != 0 && now_ns >= crowded_until_ns_;
}

bool Idle::Start() {
  waiting_ = slept_ = yielded_ = false;
  return spinning_ = MaySpin(looked_ns_);
}

void Idle::BeginWait(int64_t now_ns) {
  waiting_ = true;
  slept_ = false;
  since_ns_ = now_ns;
  spun_ns_ = 0;
}

Idle::Next Idle::AfterAdaptive(bool work, int64_t began_ns, int64_t ended_ns) {
  if (std::exchange(yielded_, false)) OnYielded(work, began_ns);
  if (work && waiting_) {
    if (spinning_) spins_paid_.Add();
    const int64_t wait_ns = began_ns - since_ns_;
    // A wait that ended asleep seems longer than it was, but it was longer than the spin.
    Remember(slept_ ? std::max(wait_ns - kWakeNs, spun_ns_) : wait_ns);
  }
  looked_ns_ = ended_ns;
  if (work) spinning_ = MaySpin(ended_ns);
  if (work || !waiting_) BeginWait(ended_ns);
  if (!spinning_) return Next::kSleep;
  if (ended_ns - since_ns_ < spin_ns() && ended_ns >= crowded_until_ns_) {
    // The peer may share this core. It runs now, and its message has arrived when this thread continues.
    yielded_ = true;
    return Next::kYield;
  }
  spinning_ = false;
  spun_ns_ = ended_ns - since_ns_;
  spins_in_vain_.Add();
  return Next::kSleep;
}

void Idle::OnYielded(bool work, int64_t now_ns) {
  if (now_ns - looked_ns_ < (work ? kLongYieldNs : kVainYieldNs)) return;
  const Switches switches = switches_();
  const Switches before = std::exchange(last_switches_, switches);
  if (switches.thread != before.thread || switches.count == before.count) return;
  const int64_t allowed_ns = (now_ns - std::exchange(lost_at_ns_, now_ns)) / kLostShare;
  lost_ns_ = std::max<int64_t>(0, lost_ns_ - allowed_ns) + now_ns - looked_ns_;
  if (lost_ns_ < kLostNs) return;
  lost_ns_ = 0;
  const bool again = now_ns - crowded_until_ns_ < crowded_ns_;
  crowded_ns_ = again ? std::min(2 * crowded_ns_, kCrowdedMaxNs) : kCrowdedNs;
  crowded_until_ns_ = now_ns + crowded_ns_;
  crowded_.Add();
}

size_t Idle::ClassOf(int64_t wait_ns) const {
  if (wait_ns >= spin_max_ns_) return kClasses - 1;
  size_t wait_class = 0;
  while (wait_ns >= LongestOf(wait_class)) ++wait_class;
  return wait_class;
}

void Idle::Remember(int64_t wait_ns) {
  wait_ns = std::clamp<int64_t>(wait_ns, 0, spin_max_ns_);
  int64_t& oldest_ns = waits_ns_[next_wait_++ % kRemembered];
  Waits& before = of_class_[ClassOf(oldest_ns)];
  --before.count;
  before.sum_ns -= oldest_ns;
  Waits& now = of_class_[ClassOf(wait_ns)];
  ++now.count;
  now.sum_ns += wait_ns;
  oldest_ns = wait_ns;
  // Sums of lengths change slowly.
  if (&now == &before && next_wait_ % kSumsAsked != 0) return;
  spin_ns_.store(BestSpinNs(), std::memory_order_relaxed);
}

int64_t Idle::BestSpinNs() const {
  constexpr int64_t kAsleep = static_cast<int64_t>(kRemembered) * kWakeNs;
  // What spinning through the waits of each class and of shorter ones costs.
  std::array<int64_t, kClasses - 1> costs;
  int64_t spun_ns = 0;           // In those waits.
  int64_t longer = kRemembered;  // The others.
  for (size_t wait_class = 0; wait_class < costs.size(); ++wait_class) {
    spun_ns += of_class_[wait_class].sum_ns;
    longer -= of_class_[wait_class].count;
    costs[wait_class] = (spun_ns + longer * SpinThrough(wait_class)) / kSpinDiscount + longer * kWakeNs;
  }
  const int64_t least = *std::min_element(costs.begin(), costs.end());
  if (least >= kAsleep) return 0;
  // The longest of those that cost hardly more: the next wait may be longer than those that are remembered.
  size_t wait_class = costs.size() - 1;
  while (costs[wait_class] > least + least / kHardlyMore) --wait_class;
  return SpinThrough(wait_class);
}

void Idle::FillIn(PollerStats& stats) const {
  stats.mode = mode_;
  stats.spin_now = absl::Nanoseconds(spin_ns());
  stats.spins_paid = spins_paid_.value();
  stats.spins_in_vain = spins_in_vain_.value();
  stats.sleeps = sleeps_.value();
  stats.crowded = crowded_.value();
}

}  // namespace hawser::transport
