#include "hawser/transport/poller/poller.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/test_clock.h"
#include "hawser/transport/runtime.h"

namespace hawser::transport {
namespace {

// Waits for another thread. A test fails by its time limit, not because a sleep was too short.
template <typename Condition>
bool Await(Condition condition, absl::Duration patience = absl::Seconds(30)) {
  const absl::Time end = absl::Now() + patience;
  while (!condition()) {
    if (absl::Now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

int64_t ProcessCpuNs() {
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

// Counts its runs. Another thread posts it.
class CountingItem final : public MailboxItem {
 public:
  void Run() override { ++runs; }
  std::atomic<int> runs{0};
};

std::shared_ptr<Runtime> NewRuntime(bool start_threads, PollingMode mode = PollingMode::kAdaptive) {
  RuntimeOptions options;
  options.poller.mode = mode;
  absl::StatusOr<std::shared_ptr<Runtime>> runtime =
      Runtime::CreateOn(NewTestFabric(), options, start_threads);
  EXPECT_THAT(runtime, IsOk());
  return *std::move(runtime);
}

// The thread that sets an event and the thread that waits for it share it, because the latter may continue
// before Set() has returned.
using SharedEvent = std::shared_ptr<WaitEvent>;
SharedEvent NewEvent() { return std::make_shared<WaitEvent>(); }

// Runs `code` on the poller and waits for its end.
void RunAndWait(Poller& poller, const std::function<void()>& code) {
  SharedEvent done = NewEvent();
  poller.Run([&code, done] {
    code();
    done->Set();
  });
  poller.WaitFor(*done);
}

int64_t MonotonicNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Waits for a timer that is due after `wait`, and checks that it does not run earlier. Returns the thread
// that ran it. The timer is destroyed on the poller.
std::thread::id WaitForTimer(Poller& poller, absl::Duration wait) {
  SharedEvent done = NewEvent();
  auto ran_on = std::make_shared<std::thread::id>();
  auto timer = std::make_unique<Timer>([done, ran_on] {
    *ran_on = std::this_thread::get_id();
    done->Set();
  });
  auto due_ns = std::make_shared<int64_t>();
  poller.Run([&poller, timer = timer.get(), wait, due_ns] {
    // Uses the poller's clock, which does not advance while the thread of a turn is preempted.
    *due_ns = After(poller.now_ns(), wait);
    poller.timers().Set(*timer, *due_ns);
  });
  poller.WaitFor(*done);
  EXPECT_GE(MonotonicNs(), *due_ns);
  const std::thread::id result = *ran_on;
  poller.Run([timer = std::move(timer)] {});
  return result;
}

// The poller keeps its promises with every driver.
struct Driving {
  std::string name;
  PollingMode mode;
  bool background;
};

class PollerTest : public ::testing::TestWithParam<Driving> {
 protected:
  PollerTest() : runtime_(NewRuntime(GetParam().background, GetParam().mode)), poller_(runtime_->poller(0)) {}

  std::shared_ptr<Runtime> runtime_;
  Poller& poller_;
};

INSTANTIATE_TEST_SUITE_P(Driven, PollerTest,
                         ::testing::Values(Driving{"AdaptiveInBackground", PollingMode::kAdaptive, true},
                                           Driving{"SleepingInBackground", PollingMode::kSleep, true},
                                           Driving{"SpinningInBackground", PollingMode::kSpin, true},
                                           Driving{"ByWaitingThreads", PollingMode::kAdaptive, false},
                                           Driving{"ByWaitingThreadsThatSleep", PollingMode::kSleep, false}),
                         [](const auto& driving) { return driving.param.name; });

TEST_P(PollerTest, WhatIsRunIsOnThePollerAndTheCallerIsNot) {
  bool held = false;
  RunAndWait(poller_, [&] { held = poller_.Held(); });
  EXPECT_TRUE(held);
  EXPECT_FALSE(poller_.Held());
}

TEST_P(PollerTest, WhatIsRunFromThePollerRunsAtOnce) {
  std::string order;
  RunAndWait(poller_, [&] {
    order += "a";
    poller_.Run([&] { order += "b"; });
    order += "c";
  });
  EXPECT_EQ(order, "abc");
}

TEST_P(PollerTest, TasksOfManyThreadsRunOneAtATimeAndNoneIsLost) {
  constexpr int kThreads = 4, kTasks = 2000;
  int64_t in_task = 0, overlaps = 0,
          ran = 0;  // Not guarded: ThreadSanitizer reports it if two threads are on the poller at once.
  SharedEvent done = NewEvent();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, done] {
      for (int i = 0; i < kTasks; ++i) {
        poller_.Run([&, done] {
          if (++in_task != 1) ++overlaps;
          --in_task;
          if (++ran == kThreads * kTasks) done->Set();
        });
      }
    });
  }
  poller_.WaitFor(*done);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(overlaps, 0);
}

TEST_P(PollerTest, TasksOfOneThreadKeepTheirOrder) {
  std::vector<int> order;
  SharedEvent done = NewEvent();
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) poller_.Run([&, i] { order.push_back(i); });
    poller_.Run([done] { done->Set(); });
  });
  poller_.WaitFor(*done);
  other.join();
  ASSERT_EQ(order.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_P(PollerTest, APostedItemRunsOnce) {
  CountingItem items[100];
  std::thread other([&] {
    for (CountingItem& item : items) poller_.Post(&item);
  });
  other.join();
  RunAndWait(poller_, [] {});
  for (CountingItem& item : items) EXPECT_EQ(item.runs, 1);
}

TEST_P(PollerTest, EightThreadsThatWaitAtOnceAllEnd) {
  for (int round = 0; round < 20; ++round) {
    std::vector<SharedEvent> events;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      events.push_back(NewEvent());
      threads.emplace_back([&, event = events.back()] { poller_.WaitFor(*event); });
    }
    // A thread that does not wait itself sets them out of order, some at once.
    for (size_t i : {3, 1, 7, 0, 2, 6, 5, 4}) {
      poller_.Run([event = events[i]] { event->Set(); });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_P(PollerTest, AThreadThatWaitsIsWokenByAnotherThreadsTask) {
  for (int round = 0; round < 200; ++round) {
    SharedEvent done = NewEvent();
    std::thread other([&] { poller_.Run([done] { done->Set(); }); });
    poller_.WaitFor(*done);
    other.join();
  }
}

TEST_P(PollerTest, AnEventSetBeforeTheWaitEndsItAtOnce) {
  SharedEvent done = NewEvent();
  poller_.Run([done] { done->Set(); });
  poller_.WaitFor(*done);
  poller_.WaitFor(*done);
  EXPECT_TRUE(done->is_set());
}

TEST_P(PollerTest, AnEventCanBeUsedAgainAfterReset) {
  SharedEvent done = NewEvent();
  for (int i = 0; i < 100; ++i) {
    RunAndWait(poller_, [] {});
    std::thread other([&] { poller_.Run([done] { done->Set(); }); });
    poller_.WaitFor(*done);
    other.join();
    RunAndWait(poller_, [] {});  // After this the other thread has left Set().
    done->Reset();
    EXPECT_FALSE(done->is_set());
  }
}

TEST_P(PollerTest, ATimerEndsTheSleepOfAWaitingThread) { WaitForTimer(poller_, absl::Milliseconds(20)); }

TEST_P(PollerTest, ATimerThatAnotherThreadSetsDuringTheSleepIsHonoured) {
  Timer late([] {});
  RunAndWait(poller_, [&] { poller_.timers().Set(late, After(poller_.now_ns(), absl::Hours(1))); });
  for (int round = 0; round < 50; ++round) {
    SharedEvent done = NewEvent();
    auto early = std::make_unique<Timer>([done] { done->Set(); });
    std::thread other([&] {
      poller_.Run([&, timer = early.get()] {
        poller_.timers().Set(*timer, After(poller_.now_ns(), absl::Microseconds(100)));
      });
    });
    poller_.WaitFor(*done);
    other.join();
    poller_.Run([early = std::move(early)] {});
  }
  RunAndWait(poller_, [&] { poller_.timers().Cancel(late); });
}

// ---- The driver.

TEST(PollerDrivingTest, AThreadThatWaitsDrivesWhereThereIsNoOther) {
  std::shared_ptr<Runtime> runtime = NewRuntime(/*start_threads=*/false);
  EXPECT_EQ(WaitForTimer(runtime->poller(0), absl::Milliseconds(1)), std::this_thread::get_id());
}

TEST(PollerDrivingTest, AWaitingThreadTakesOverFromTheBackground) {
  std::shared_ptr<Runtime> runtime = NewRuntime(/*start_threads=*/true);
  // The background may drive first, but then it leaves the poller to this thread.
  EXPECT_TRUE(Await(
      [&] { return WaitForTimer(runtime->poller(0), absl::Milliseconds(1)) == std::this_thread::get_id(); }));
}

// Lets four threads wait until a timer runs. True: none of them ran it.
bool AnotherThreadDrivesForFour(Poller& poller) {
  std::vector<SharedEvent> events;
  std::vector<std::thread> threads;
  std::set<std::thread::id> waiting;
  std::atomic<int> ready{0};
  for (int i = 0; i < 4; ++i) {
    events.push_back(NewEvent());
    threads.emplace_back([&poller, &ready, event = events.back()] {
      ++ready;
      poller.WaitFor(*event);
    });
    waiting.insert(threads.back().get_id());
  }
  EXPECT_TRUE(Await([&] { return ready == 4; }));
  std::thread::id ran_on;
  // With a share in the events: the last Set() may not have returned when the last thread has ended.
  auto timer = std::make_unique<Timer>([&ran_on, events] {
    ran_on = std::this_thread::get_id();
    for (const SharedEvent& event : events) event->Set();
  });
  poller.Run([&poller, timer = timer.get()] {
    poller.timers().Set(*timer, After(poller.now_ns(), absl::Milliseconds(1)));
  });
  for (std::thread& thread : threads) thread.join();
  poller.Run([timer = std::move(timer)] {});
  return waiting.count(ran_on) == 0;
}

TEST(PollerDrivingTest, ManyThreadsThatWaitLeaveTheDrivingToThePollersOwn) {
  const auto runtime = NewRuntime(true);
  // Ten times in a row. Again if another program had the cores, so that the four did not wait at once.
  EXPECT_TRUE(Await([&] {
    for (int i = 0; i < 40; ++i) AnotherThreadDrivesForFour(runtime->poller(0));
    for (int i = 0; i < 10; ++i) {
      if (!AnotherThreadDrivesForFour(runtime->poller(0))) return false;
    }
    return true;
  }));
  EXPECT_TRUE(Await([&] {
    return WaitForTimer(runtime->poller(0), absl::Milliseconds(1)) == std::this_thread::get_id();
  })) << "until one waits alone again";
}

class BackgroundTest : public ::testing::TestWithParam<int> {};

// With and without a user that expects events without waiting: the poller must answer a peer's ping in both
// cases.
INSTANTIATE_TEST_SUITE_P(AsyncInterest, BackgroundTest, ::testing::Values(0, 1));

TEST_P(BackgroundTest, ResumesDrivingAfterTheLastWaiterHasLeft) {
  std::shared_ptr<Runtime> runtime = NewRuntime(/*start_threads=*/true);
  Poller& poller = runtime->poller(0);
  poller.AddAsyncInterest(GetParam());
  for (int round = 0; round < 10; ++round) {
    // One wait is long enough for the background to sleep meanwhile; the others are short.
    for (absl::Duration wait : {absl::Milliseconds(20), absl::ZeroDuration(), absl::ZeroDuration()}) {
      WaitForTimer(poller, wait);
    }
    auto ran = std::make_shared<std::atomic<bool>>(false);
    auto timer = std::make_unique<Timer>([ran] { *ran = true; });
    poller.Run([&, timer = timer.get()] {
      poller.timers().Set(*timer, After(poller.now_ns(), absl::Microseconds(10)));
    });
    EXPECT_TRUE(Await([&] { return ran->load(); })) << "round " << round;
    poller.Run([timer = std::move(timer)] {});
  }
}

TEST(PollerDrivingTest, WaitersThatComeAndGoAllEndBesideABackground) {
  std::shared_ptr<Runtime> runtime = NewRuntime(/*start_threads=*/true);
  Poller& poller = runtime->poller(0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) WaitForTimer(poller, absl::Microseconds((i * 7 + t) % 50));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Whether the poller's own thread or those that wait drive it changes each time; none may be left asleep.
TEST(PollerDrivingTest, NoWaiterIsLeftAsleepWhileManyWaitNowAndOneThen) {
  const auto runtime = NewRuntime(true);
  const auto wait = [&poller = runtime->poller(0)](int seed, int times) {
    for (int i = 0; i < times; ++i) WaitForTimer(poller, absl::Microseconds((i * 7 + seed) % 50));
  };
  for (int phase = 0; phase < 20; ++phase) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) threads.emplace_back(wait, t, 40 + 10 * t);
    wait(phase, 60);
    for (std::thread& thread : threads) thread.join();
    wait(phase, 60);
  }
}

// ---- Many threads, one poller.

// Threads wait until it is opened. It is opened once.
class Gate {
 public:
  void Open() { open_.store(true); }
  void AwaitOpen() const {
    ASSERT_TRUE(Await([&] { return open_.load(); }));
  }
  bool is_open() const { return open_.load(); }

 private:
  std::atomic<bool> open_{false};
};

// The state of the thread as `ps` shows it: 'R', 'S'.
char StateOfThread(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t end_of_name = line.rfind(')');
  return end_of_name == std::string::npos ? '?' : line[end_of_name + 2];
}

// Under SCHED_FIFO a spinning driver would keep the holder from its core forever.
TEST(PollerSharingTest, ADriverSleepsWhileAnotherThreadHoldsThePoller) {
  std::shared_ptr<Runtime> runtime = NewRuntime(/*start_threads=*/false, PollingMode::kSpin);
  Poller& poller = runtime->poller(0);
  Gate held, release;
  std::thread holder([&] {
    poller.Run([&] {
      held.Open();
      release.AwaitOpen();
    });
  });
  held.AwaitOpen();
  SharedEvent done = NewEvent();
  std::atomic<pid_t> driver_thread{0};
  std::thread driver([&] {
    driver_thread = gettid();
    poller.WaitFor(*done);
  });
  EXPECT_TRUE(
      Await([&] { return driver_thread != 0 && StateOfThread(driver_thread) == 'S'; }, absl::Seconds(10)));
  release.Open();
  holder.join();
  poller.Run([done] { done->Set(); });
  driver.join();
}

// Records that it ran, and in which order.
class OrderedItem final : public MailboxItem {
 public:
  void Run() override {
    order->push_back(number);
    ran->fetch_add(1);
  }
  std::vector<int>* order;
  std::atomic<size_t>* ran;
  int number;
};

// One thread is on the poller while another one posts many items.
class CrowdedPoller {
 public:
  static constexpr size_t kItems = 10'000;

  explicit CrowdedPoller(Poller& poller) : items_(kItems) {
    for (size_t i = 0; i < kItems; ++i) {
      items_[i].order = &order;
      items_[i].ran = &ran;
      items_[i].number = static_cast<int>(i);
    }
    std::thread holder([&] {
      poller.Run([&] {
        held_.Open();
        release_.AwaitOpen();
      });
    });
    held_.AwaitOpen();
    for (OrderedItem& item : items_) poller.Post(&item);
    release_.Open();
    holder.join();
  }

  std::vector<int> order;  // Used only on the poller.
  std::atomic<size_t> ran{0};

 private:
  std::vector<OrderedItem> items_;
  Gate held_, release_;
};

TEST(PollerSharingTest, APosterRunsFewItemsOfOthers) {
  std::shared_ptr<Runtime> runtime = NewRuntime(/*start_threads=*/false);
  Poller& poller = runtime->poller(0);
  CrowdedPoller crowd(poller);
  EXPECT_LE(crowd.ran, 1000u);
  while (poller.PollOnce() != 0) {
  }
  EXPECT_EQ(crowd.ran, CrowdedPoller::kItems);
  EXPECT_TRUE(std::is_sorted(crowd.order.begin(), crowd.order.end()));
}

TEST(PollerSharingTest, WhatAPosterLeavesIsRunWithoutFurtherPosts) {
  for (int round = 0; round < 20; ++round) {
    std::shared_ptr<Runtime> runtime = NewRuntime(/*start_threads=*/true);
    Poller& poller = runtime->poller(0);
    // After a wait the background expects more calls of this thread, and does not drive for a while.
    if (round % 2 == 0) WaitForTimer(poller, absl::ZeroDuration());
    CrowdedPoller crowd(poller);
    EXPECT_TRUE(Await([&] { return crowd.ran == CrowdedPoller::kItems; }));
  }
}

// ---- Idle.

// The part of the time that this process uses the processor while `poller` has nothing to do.
double IdleLoad(Poller& poller, absl::Duration time) {
  const int64_t before_ns = ProcessCpuNs();
  WaitForTimer(poller, time);
  return static_cast<double>(ProcessCpuNs() - before_ns) / absl::ToDoubleNanoseconds(time);
}

// The best of a few tries, because being woken costs more where other programs have the cores. One that spins
// would use a third of a core even beside two of them.
TEST(PollerIdleTest, AnIdlePollerUsesNoProcessor) {
  for (bool background : {false, true}) {
    std::shared_ptr<Runtime> runtime = NewRuntime(background);
    double least = 1;
    for (int i = 0; i < 5 && least >= 0.2; ++i) {
      least = std::min(least, IdleLoad(runtime->poller(0), absl::Milliseconds(300)));
    }
    EXPECT_LT(least, 0.2) << "background: " << background;
  }
}

// Also for a thread whose answer ends its turn as the driver.
TEST(PollerIdleTest, AThreadWhoseAnswersTakeLongStopsSpinningForThem) {
  const auto runtime = NewRuntime(/*start_threads=*/false);
  Poller& poller = runtime->poller(0);
  const auto wait_often = [&] {
    for (size_t i = 0; i < Idle::kRemembered; ++i) WaitForTimer(poller, absl::Milliseconds(3));
  };
  // Again if another program had the core meanwhile.
  EXPECT_TRUE(Await([&] {
    wait_often();
    const PollerStats before = poller.stats();
    wait_often();
    const PollerStats after = poller.stats();
    return after.spin_now == absl::ZeroDuration() && after.spins_in_vain == before.spins_in_vain;
  })) << ToString(poller.stats());
}

TEST(PollerIdleTest, AnIdlePollerCanBeDestroyedWhileItSleeps) {
  for (int i = 0; i < 50; ++i) {
    std::shared_ptr<Runtime> runtime = NewRuntime(/*start_threads=*/true, PollingMode::kSleep);
    if (i % 2 == 0) WaitForTimer(runtime->poller(0), absl::Microseconds(10));
  }
}

// ---- By hand.

TEST(PollOnceTest, SaysWhetherThereWasAnythingToDo) {
  std::shared_ptr<Runtime> runtime = NewRuntime(/*start_threads=*/false);
  Poller& poller = runtime->poller(0);
  EXPECT_EQ(poller.PollOnce(), 0u);
  Timer timer([] {});
  poller.Run([&] { poller.timers().Set(timer, poller.now_ns()); });
  EXPECT_EQ(poller.PollOnce(), 1u);
  EXPECT_EQ(poller.PollOnce(), 0u);
}

TEST(PollOnceTest, NowIsTheClocksTimeAtTheStartOfTheTurn) {
  TestClock clock;
  absl::StatusOr<std::shared_ptr<Runtime>> runtime =
      Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/false, clock);
  ASSERT_THAT(runtime, IsOk());
  Poller& poller = (*runtime)->poller(0);
  int64_t seen_ns = 0;
  Timer timer([&] {
    clock.Advance(absl::Seconds(1));
    seen_ns = poller.now_ns();
  });
  const int64_t due_ns = After(clock.NowNs(), absl::Seconds(1));
  poller.Run([&] { poller.timers().Set(timer, due_ns); });
  poller.PollOnce();
  EXPECT_EQ(seen_ns, 0) << "ran early";
  clock.Advance(absl::Seconds(1));
  poller.PollOnce();
  EXPECT_EQ(seen_ns, due_ns);
}

}  // namespace
}  // namespace hawser::transport
