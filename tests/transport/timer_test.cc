#include "hawser/transport/clock/timer.h"

#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hawser::transport {
namespace {

TEST(TimerTest, RunsWhatIsDueInTheOrderOfItsTime) {
  Timers timers;
  std::string order;
  Timer a([&] { order += "a"; }), b([&] { order += "b"; }), c([&] { order += "c"; });
  timers.Set(a, 30);
  timers.Set(b, 10);
  timers.Set(c, 20);
  EXPECT_EQ(timers.next_ns(), 10);
  EXPECT_EQ(timers.RunDue(9), 0u);
  EXPECT_EQ(timers.RunDue(20), 2u);
  EXPECT_EQ(order, "bc");
  EXPECT_EQ(timers.next_ns(), 30);
}

TEST(TimerTest, RunsOnceForEachTimeItWasSet) {
  Timers timers;
  int runs = 0;
  Timer timer([&] { ++runs; });
  timers.Set(timer, 1);
  timers.RunDue(5);
  timers.RunDue(6);
  EXPECT_EQ(runs, 1);
  timers.Set(timer, 1);
  timers.RunDue(6);
  EXPECT_EQ(runs, 2);
}

TEST(TimerTest, SetAgainIsMoved) {
  Timers timers;
  int runs = 0;
  Timer timer([&] { ++runs; });
  timers.Set(timer, 10);
  timers.Set(timer, 20);
  EXPECT_EQ(timers.RunDue(10), 0u);
  timers.Set(timer, 5);
  EXPECT_EQ(timers.RunDue(10), 1u);
  EXPECT_EQ(runs, 1);
}

TEST(TimerTest, SetToNeverIsCancelled) {
  Timers timers;
  Timer timer([] { FAIL(); });
  timers.Set(timer, 10);
  timers.Set(timer, kNever);
  EXPECT_FALSE(timer.is_set());
  EXPECT_EQ(timers.next_ns(), kNever);
  EXPECT_EQ(timers.RunDue(kNever - 1), 0u);
}

TEST(TimerTest, OneThatIsDestroyedRunsNoMore) {
  Timers timers;
  {
    Timer timer([] { FAIL(); });
    timers.Set(timer, 10);
  }
  EXPECT_EQ(timers.next_ns(), kNever);
  EXPECT_EQ(timers.RunDue(10), 0u);
}

TEST(TimerTest, ACallbackMaySetItsOwnTimerAgainAndDoesNotKeepTheThread) {
  Timers timers;
  int runs = 0;
  Timer* self = nullptr;
  Timer timer([&] {
    ++runs;
    timers.Set(*self, 0);
  });
  self = &timer;
  timers.Set(timer, 0);
  EXPECT_EQ(timers.RunDue(100), 1u);
  EXPECT_EQ(timers.RunDue(100), 1u);
  EXPECT_EQ(runs, 2);
}

TEST(TimerTest, ATimerThatIsSetMeanwhileWaitsForTheNextCallHoweverManyThereAre) {
  Timers timers;
  int runs = 0, others = 0;
  Timer* self = nullptr;
  Timer timer([&] {
    ++runs;
    timers.Set(*self, 0);
  });
  self = &timer;
  std::vector<std::unique_ptr<Timer>> later;
  for (int i = 0; i < 5; ++i) {
    later.push_back(std::make_unique<Timer>([&] { ++others; }));
    timers.Set(*later.back(), i == 0 ? 100 : 200);
  }
  timers.Set(timer, 0);
  EXPECT_EQ(timers.RunDue(100), 2u);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(others, 1);
  EXPECT_EQ(timers.next_ns(), 0);
  EXPECT_EQ(timers.RunDue(100), 1u);
  EXPECT_EQ(runs, 2);
}

TEST(TimerTest, ATimerThatIsSetMeanwhileMayBeMovedCancelledOrDestroyedBeforeItRuns) {
  Timers timers;
  std::string order;
  Timer moved([&] { order += "m"; }), cancelled([] { FAIL(); }), kept([&] { order += "k"; });
  auto victim = std::make_unique<Timer>([] { FAIL(); });
  Timer first([&] {
    for (Timer* each : {&cancelled, &moved, victim.get(), &kept}) timers.Set(*each, 1);
    timers.Cancel(cancelled);
    victim.reset();
    timers.Set(moved, 20);
  });
  timers.Set(first, 1);
  EXPECT_EQ(timers.RunDue(10), 1u);
  EXPECT_TRUE(kept.is_set());
  EXPECT_FALSE(cancelled.is_set());
  EXPECT_EQ(timers.RunDue(10), 1u);
  EXPECT_EQ(timers.RunDue(20), 1u);
  EXPECT_EQ(order, "km");
}

TEST(TimerTest, ACallInsideACallbackRunsWhatWasSetBeforeIt) {
  Timers timers;
  int runs = 0;
  Timer second([&] { ++runs; });
  Timer first([&] {
    timers.Set(second, 1);
    EXPECT_EQ(timers.RunDue(10), 1u);
  });
  timers.Set(first, 1);
  EXPECT_EQ(timers.RunDue(10), 1u);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(timers.next_ns(), kNever);
}

TEST(TimerTest, ACallbackMayCancelOrDestroyOthersThatAreDue) {
  Timers timers;
  auto victim = std::make_unique<Timer>([] { FAIL(); });
  Timer cancelled([] { FAIL(); });
  Timer first([&] {
    victim.reset();
    timers.Cancel(cancelled);
  });
  timers.Set(first, 1);
  timers.Set(*victim, 2);
  timers.Set(cancelled, 3);
  EXPECT_EQ(timers.RunDue(10), 1u);
}

TEST(TimerTest, AThousandRandomStepsMatchAModel) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Timers timers;
    std::multimap<int64_t, int> model;  // The key is the time.
    std::vector<int64_t> set_for(50, kNever);
    std::vector<std::unique_ptr<Timer>> all;
    std::vector<int> ran;
    for (int i = 0; i < 50; ++i) all.push_back(std::make_unique<Timer>([&, i] { ran.push_back(i); }));
    const auto forget = [&](int i) {
      for (auto it = model.begin(); it != model.end(); ++it) {
        if (it->second == i) {
          model.erase(it);
          return;
        }
      }
    };
    int64_t now_ns = 0;
    for (int step = 0; step < 1000; ++step) {
      const int i = static_cast<int>(random() % 50);
      switch (random() % 4) {
        case 0:
        case 1: {
          const int64_t when_ns = now_ns + static_cast<int64_t>(random() % 1000);
          forget(i);
          model.emplace(when_ns, i);
          timers.Set(*all[i], when_ns);
          break;
        }
        case 2:
          forget(i);
          timers.Cancel(*all[i]);
          break;
        case 3: {
          now_ns += static_cast<int64_t>(random() % 200);
          ran.clear();
          std::multiset<int> due;
          int64_t last_ns = 0;
          while (!model.empty() && model.begin()->first <= now_ns) {
            EXPECT_GE(model.begin()->first, last_ns);
            last_ns = model.begin()->first;
            due.insert(model.begin()->second);
            model.erase(model.begin());
          }
          EXPECT_EQ(timers.RunDue(now_ns), due.size());
          EXPECT_EQ(std::multiset<int>(ran.begin(), ran.end()), due) << "seed " << seed << " step " << step;
          break;
        }
      }
      ASSERT_EQ(timers.next_ns(), model.empty() ? kNever : model.begin()->first)
          << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace hawser::transport
