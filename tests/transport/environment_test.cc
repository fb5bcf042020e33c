#include "hawser/transport/clock/environment.h"

#include <cstdlib>

#include "gtest/gtest.h"

namespace hawser::transport {
namespace {

struct LooksAtTheClockWhenDestroyed {
  ~LooksAtTheClockWhenDestroyed() { Environment::Real().NowNs(); }
};

// The thread of a poller uses it while the process exits.
TEST(EnvironmentTest, TheRealOneOutlivesStatics) {
  EXPECT_EXIT(
      {
        static LooksAtTheClockWhenDestroyed made_before_the_environment;
        Environment::Real().NowNs();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hawser::transport
