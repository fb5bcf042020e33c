#ifndef HAWSER_BENCH_AT_RATE_H_
#define HAWSER_BENCH_AT_RATE_H_

#include <sys/prctl.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

namespace hawser::bench {

// Makes the calling thread, and those that it starts from now on, sleep exactly. Otherwise the system rounds
// the ends of sleeps up to 50 us.
inline void SleepExactly() { prctl(PR_SET_TIMERSLACK, 1); }

// Makes `count` exchanges, `rate` a second, at even intervals. `exchange` returns when it ended (a time of
// steady_clock). Returns the microseconds of each. One that is late does not delay those after it, which
// follow at once.
template <typename Exchange>
std::vector<double> AtRate(double rate, int count, Exchange exchange) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> each_us;
  each_us.reserve(static_cast<size_t>(count));
  const auto start = Clock::now();
  for (int i = 0; i < count; ++i) {
    std::this_thread::sleep_until(
        start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(i / rate)));
    const auto before = Clock::now();
    const Clock::time_point after = exchange();
    each_us.push_back(std::chrono::duration<double, std::micro>(after - before).count());
  }
  return each_us;
}

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_AT_RATE_H_
