#include "examples/window.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace examples {
namespace {

// Runs Enter() in a thread, and says whether it has come through.
class Entering {
 public:
  Entering(Window* window, uint64_t size_bytes)
      : thread_([=, this] {
          window->Enter(size_bytes);
          in_ = true;
        }) {}
  bool in() const { return in_; }
  void Join() { thread_.join(); }

 private:
  std::atomic<bool> in_ = false;
  std::thread thread_;
};

TEST(WindowTest, AFurtherCallWaitsUntilOneLeaves) {
  Window window(2, 1000);
  window.Enter(1);
  window.Enter(1);
  Entering third(&window, 1);
  EXPECT_FALSE(third.in());
  window.Leave(1);
  third.Join();
  EXPECT_TRUE(third.in());
}

TEST(WindowTest, BytesBeyondTheBoundWait) {
  Window window(10, 1000);
  window.Enter(600);
  Entering second(&window, 600);
  EXPECT_FALSE(second.in());
  window.Leave(600);
  second.Join();
  EXPECT_TRUE(second.in());
}

TEST(WindowTest, OneCallFitsHoweverLargeItIs) {
  Window window(10, 1000);
  window.Enter(5000);
  window.Leave(5000);
  window.WaitUntilEmpty();
}

}  // namespace
}  // namespace examples
