#include "hawser/base/mutex.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace hawser {
namespace {

TEST(MutexTest, OneThreadAtATimeHoldsIt) {
  constexpr int kThreads = 4, kTimes = 20000;
  Mutex mutex;
  int inside = 0, most = 0, times = 0;  // Plain: what the mutex guards, ThreadSanitizer watches.
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kTimes; ++j) {
        MutexLock lock(mutex);
        most = std::max(most, ++inside);
        // Now and then others come while it is held, and go to sleep.
        if (j % 64 == 0) std::this_thread::yield();
        --inside;
        ++times;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(times, kThreads * kTimes);
}

// Each thread that gets it must wake the next, although only the first unlock saw that a thread waits.
TEST(MutexTest, EveryoneWhoWaitsGetsItInTheEnd) {
  for (int round = 0; round < 200; ++round) {
    Mutex mutex;
    std::atomic<int> started = 0, done = 0;
    std::vector<std::thread> threads;
    mutex.lock();
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        ++started;
        MutexLock lock(mutex);
        ++done;
      });
    }
    while (started < 4) std::this_thread::yield();
    EXPECT_EQ(done, 0);
    mutex.unlock();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(done, 4);
  }
}

}  // namespace
}  // namespace hawser
