#include "hawser/transport/clock/fine_clock.h"

#include <sched.h>

#include "gtest/gtest.h"
#include "hawser/transport/clock/environment.h"

namespace hawser::transport {
namespace {

// Reads the clock, as a poller does, until `ns` have passed.
int64_t ReadFor(FineClock& clock, int64_t ns) {
  Environment& environment = Environment::Real();
  const int64_t start_ns = environment.NowNs();
  int64_t now_ns = start_ns;
  while (now_ns - start_ns < ns) {
    sched_yield();
    now_ns = environment.NowNs();
    clock.OnRead(now_ns);
  }
  return now_ns;
}

TEST(FineClockTest, OnceItKnowsTheRateItFollowsTheClock) {
  FineClock clock(/*measures=*/true);
  int64_t read_ns = ReadFor(clock, 30'000'000);
  int tries = 0;
  for (bool follows = false; !follows && tries < 100; ++tries) {
    read_ns = ReadFor(clock, 1'000'000);
    while (Environment::Real().NowNs() - read_ns < 2'000'000) {
    }
    // Unless this thread was stopped between the two looks.
    const int64_t before_ns = Environment::Real().NowNs() - read_ns;
    const int64_t fine_ns = clock.SinceReadNs();
    const int64_t after_ns = Environment::Real().NowNs() - read_ns;
    follows = fine_ns >= before_ns - before_ns / 20 && fine_ns <= after_ns + after_ns / 20;
  }
  EXPECT_LT(tries, 100) << "this machine has a counter of another rate at each look, or none";
}

TEST(FineClockTest, NoTimePassesBeforeItKnowsTheRateOrIfItDoesNotMeasure) {
  FineClock fresh(/*measures=*/true), simulated(/*measures=*/false);
  fresh.OnRead(Environment::Real().NowNs());
  EXPECT_EQ(fresh.SinceReadNs(), 0);
  ReadFor(simulated, 30'000'000);
  EXPECT_EQ(simulated.SinceReadNs(), 0);
}

}  // namespace
}  // namespace hawser::transport
