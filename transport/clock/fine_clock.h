#ifndef HAWSER_TRANSPORT_CLOCK_FINE_CLOCK_H_
#define HAWSER_TRANSPORT_CLOCK_FINE_CLOCK_H_

#include <cstdint>

#include "hawser/base/ticks.h"

namespace hawser::transport {

// The time since a poller has read its clock, for measuring: the clock is read once for many calls. From the
// processor's counter, whose rate it learns from the clock's readings. Until it knows the rate, for some 10
// ms, and where there is no counter, no time passes between two readings.
// Thread: on the poller.
class FineClock {
 public:
  // `measures` false: no time passes (simulations, whose clock is not the machine's).
  explicit FineClock(bool measures) : measures_(measures) {}

  // The clock was read just now.
  void OnRead(int64_t now_ns) {
    if (!measures_) return;
    read_ticks_ = Ticks();
    if (now_ns - learned_ns_ >= kLearnNs) [[unlikely]]
      Learn(now_ns);
  }

  // Time passes between two readings.
  bool runs() const { return ns_per_tick_ != 0; }

  int64_t SinceReadNs() const {
    const auto ticks = static_cast<int64_t>(Ticks() - read_ticks_);
    // A counter that went back: the thread has moved to another processor.
    if (ticks < 0) [[unlikely]]
      return 0;
    return static_cast<int64_t>(static_cast<Product>(static_cast<uint64_t>(ticks)) * ns_per_tick_ >> kShift);
  }

 private:
  __extension__ using Product = unsigned __int128;  // For programs that are compiled with -Wpedantic.

  static constexpr int64_t kLearnNs = 10'000'000;
  static constexpr int kShift = 32;

  [[gnu::noinline, gnu::cold]] void Learn(int64_t now_ns) {
    const uint64_t ticks = read_ticks_ - learned_ticks_;
    // Not over the first interval, which begins at no reading.
    if (learned_ns_ != 0 && static_cast<int64_t>(ticks) > 0) {
      ns_per_tick_ = static_cast<uint64_t>((static_cast<Product>(now_ns - learned_ns_) << kShift) / ticks);
    }
    learned_ns_ = now_ns;
    learned_ticks_ = read_ticks_;
  }

  const bool measures_;
  uint64_t read_ticks_ = 0;
  uint64_t ns_per_tick_ = 0;  // Times 2^kShift.
  int64_t learned_ns_ = 0;
  uint64_t learned_ticks_ = 0;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CLOCK_FINE_CLOCK_H_
