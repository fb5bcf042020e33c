#include "hawser/transport/clock.h"

#include <cstdlib>

#include "gtest/gtest.h"

namespace hawser::transport {
namespace {

struct LooksAtTheClockWhenDestroyed {
  ~LooksAtTheClockWhenDestroyed() { Clock::Real().NowNs(); }
};

// As a poller does, whose thread goes on while the process exits.
TEST(ClockTest, TheRealClockOutlivesStatics) {
  EXPECT_EXIT(
      {
        static LooksAtTheClockWhenDestroyed made_before_the_clock;
        Clock::Real().NowNs();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hawser::transport
