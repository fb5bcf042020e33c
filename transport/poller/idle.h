#ifndef HAWSER_TRANSPORT_POLLER_IDLE_H_
#define HAWSER_TRANSPORT_POLLER_IDLE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "hawser/transport/poller/counts.h"
#include "hawser/transport/poller/poller_stats.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {

// Decides what the thread that drives a poller does when a turn finds nothing to do.
//
// PollingMode::kAdaptive: the thread first spins for spin_ns(), then sleeps. How long that is follows from
// two observations.
// - The latest kRemembered waits. Spinning that finds work saves the time to sleep and to be woken (kWakeNs).
//   Spinning costs its own time, whether it finds work or not. That is the time of a core which may have
//   nothing else to do, so it counts a kSpinDiscount-th. The thread spins for the length that would have cost
//   least in those waits, or not at all. Where longer spins would have cost hardly more (kHardlyMore), it
//   spins for the longest of them.
// - Whether other programs need the core. A thread that spins yields after each look. If a yield takes longer
//   than a peer on this core takes to answer, then another program has work for this core. The kernel lets a
//   thread that it wakes run at once, but a thread that has yielded waits for its turn. So this thread then
//   sleeps for a while.
//
// Thread: the one that drives; FillIn() from any.
class Idle {
 public:
  // How often the system has given this thread's core to another thread while this one could run
  // (getrusage(2), ru_nivcsw; a yield counts if another thread ran).
  struct Switches {
    uint64_t thread = 0;  // Whose count it is.
    int64_t count = 0;
  };
  static Switches OfThisThread();

  // `switches`: OfThisThread() but for tests.
  explicit Idle(const PollerOptions& options, Switches (*switches)() = &OfThisThread);

  // A thread begins to drive. True: it looks for work before it sleeps. False: it sleeps at once, because
  // going to sleep finds what has come by then.
  bool Start();

  enum class Next {
    kLook,   // Again, at once.
    kYield,  // Again, after the other threads that want this core.
    kSleep,
  };
  // After a turn. `work`: the turn found some. `ended_ns`: the time of this call if wants_time(), else any.
  Next After(bool work, int64_t began_ns, int64_t ended_ns) {
    if (mode_ == PollingMode::kAdaptive) return AfterAdaptive(work, began_ns, ended_ns);
    return mode_ == PollingMode::kSpin ? Next::kLook : Next::kSleep;
  }
  bool wants_time() const { return mode_ == PollingMode::kAdaptive; }
  // After() is kSleep, always.
  bool sleeps_at_once() const { return mode_ == PollingMode::kSleep; }
  // The thread waited for another one that held the poller.
  void OnHeld() { yielded_ = false; }
  // The thread sleeps now. `now_ns`: the time that After() had, or of this call where that was not called, if
  // wants_time(); else any.
  void OnSleep(int64_t now_ns) {
    sleeps_.Add();
    if (mode_ != PollingMode::kAdaptive) return;
    if (!waiting_) BeginWait(now_ns);
    slept_ = true;
  }

  // kAdaptive: how long the next wait spins; 0: it sleeps at once.
  int64_t spin_ns() const { return spin_ns_.load(std::memory_order_relaxed); }

  // Its part of `stats`.
  void FillIn(PollerStats& stats) const;

  // What sleeping and being woken costs: some 50 us in virtual machines, whose idle core has to be started by
  // the hypervisor.
  static constexpr int64_t kWakeNs = 50'000;
  static constexpr int64_t kSpinDiscount = 8;
  static constexpr size_t kRemembered = 64;

  // A yield is long if it brings no work and takes kVainYieldNs, or if it takes kLongYieldNs in any case. A
  // peer on this core needs some 5 us to answer, and its answer is work. The hypervisor and interrupts, too,
  // make yields long (300 a second on an idle virtual machine), so a yield counts only if another thread has
  // run. The kernel's own threads run now and then, so other programs need the core only if long yields take
  // kLostNs more than a kLostShare-th of the time.
  static constexpr int64_t kVainYieldNs = 20'000;
  static constexpr int64_t kLongYieldNs = 200'000;
  static constexpr int64_t kLostNs = 1'000'000;
  static constexpr int64_t kLostShare = 20;
  // How long this thread then does not spin. The time doubles, up to kCrowdedMaxNs, if the other programs
  // still need the core soon after it spins again.
  static constexpr int64_t kCrowdedNs = 50'000'000;
  static constexpr int64_t kCrowdedMaxNs = 1'600'000'000;

 private:
  // A wait is of the class c if it is shorter than kShortestNs << c, and not of one before.
  static constexpr int64_t kShortestNs = 4'000;
  static constexpr size_t kClasses = 9;  // The last: longer than any spin.
  static constexpr size_t kSumsAsked = 16;
  static constexpr int64_t kHardlyMore = 64;  // A 64th.
  static constexpr int64_t LongestOf(size_t wait_class) { return kShortestNs << wait_class; }
  size_t ClassOf(int64_t wait_ns) const;
  int64_t SpinThrough(size_t wait_class) const { return std::min(LongestOf(wait_class), spin_max_ns_); }

  Next AfterAdaptive(bool work, int64_t began_ns, int64_t ended_ns);
  void Remember(int64_t wait_ns);
  int64_t BestSpinNs() const;
  void BeginWait(int64_t now_ns);
  void OnYielded(bool work, int64_t now_ns);
  bool MaySpin(int64_t now_ns) const;

  const PollingMode mode_;
  const int64_t spin_max_ns_;

  // This wait.
  bool spinning_ = false;
  bool waiting_ = false;  // since_ns_ is set.
  bool slept_ = false;    // Since the wait began.
  bool yielded_ = false;  // Before this turn.
  int64_t since_ns_ = 0;
  int64_t spun_ns_ = 0;    // In vain, before it slept.
  int64_t looked_ns_ = 0;  // The end of the last turn.

  // The latest kRemembered waits before it, and how many there are of each class, with the sum of their
  // lengths. A wait of the last class may have been longer than it says.
  struct Waits {
    int64_t count = 0;
    int64_t sum_ns = 0;
  };
  std::array<int64_t, kRemembered> waits_ns_ = {};
  std::array<Waits, kClasses> of_class_ = {};
  size_t next_wait_ = 0;

  Switches (*const switches_)();
  Switches last_switches_;  // At the last long yield.
  int64_t lost_ns_ = 0;     // In long yields, less the share that they may take.
  int64_t lost_at_ns_ = 0;  // When that was so.
  int64_t crowded_ns_ = kCrowdedNs;
  int64_t crowded_until_ns_ = -kCrowdedNs;

  std::atomic<int64_t> spin_ns_;
  Count spins_paid_, spins_in_vain_, sleeps_, crowded_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_IDLE_H_
