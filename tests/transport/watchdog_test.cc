// The log names code that holds a poller for long.

#include "hawser/transport/poller/watchdog.h"

#include <sched.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/test_clock.h"
#include "hawser/transport/log/log.h"
#include "hawser/transport/runtime.h"

namespace hawser::transport {
namespace {

constexpr CalledCode kHandler{"the handler of", "give the server an executor"};
constexpr CalledCode kCallback{"the callback of"};

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  while (!condition()) {
    if (absl::Now() > give_up) return false;
    sched_yield();
  }
  return true;
}

// Counts how often it is read, which the watchdog does when it finds a call.
class CountingClock final : public Environment {
 public:
  int64_t NowNs() override {
    ++reads_;
    return clock_.NowNs();
  }
  void Advance(absl::Duration by) { clock_.Advance(by); }
  int reads() const { return reads_; }

 private:
  TestClock clock_;
  std::atomic<int> reads_{0};
};

class WatchdogTest : public ::testing::Test {
 protected:
  WatchdogTest() {
    SetLogSink([this](LogSeverity, absl::string_view line) {
      absl::MutexLock lock(&mutex_);
      lines_.emplace_back(line);
    });
    called_.StartTurn(clock_.NowNs());
    watchdog_.Watch(called_, clock_);
  }
  ~WatchdogTest() override {
    watchdog_.Unwatch(called_);
    SetLogSink(nullptr);
  }

  void Enter() {
    called_.Enter(kHandler, "kv.capnp:KeyValue.get");
    if (watchdog_.asleep().load()) watchdog_.Wake();
  }
  bool AwaitLines(size_t count) {
    return Eventually([&] {
      absl::MutexLock lock(&mutex_);
      return lines_.size() >= count;
    });
  }
  std::vector<std::string> lines() {
    absl::MutexLock lock(&mutex_);
    return lines_;
  }

  CountingClock clock_;
  CalledOut called_;
  TestClock own_clock_;  // Whatever the machine does, it looks in time.
  Watchdog watchdog_{{.period = absl::Milliseconds(1), .bound = absl::Seconds(5)}, own_clock_};

 private:
  absl::Mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(WatchdogTest, AHandlerThatHoldsIsToldAfterFiveSecondsAndTen) {
  Enter();
  clock_.Advance(absl::Seconds(4));
  EXPECT_TRUE(lines().empty());
  clock_.Advance(absl::Seconds(2));
  ASSERT_TRUE(AwaitLines(1));
  EXPECT_THAT(lines(),
              ElementsAre(AllOf(HasSubstr("the handler of kv.capnp:KeyValue.get has held a poller for 6 s"),
                                HasSubstr("give the server an executor"))));
  clock_.Advance(absl::Seconds(3));
  clock_.Advance(absl::Seconds(2));
  ASSERT_TRUE(AwaitLines(2));
  EXPECT_THAT(lines()[1], HasSubstr("for 11 s"));
}

TEST_F(WatchdogTest, ACallThatHoldsIsNamedByItsId) {
  called_.Enter(kHandler, "kv.capnp:KeyValue.get", {.connection = 12, .slot = 3, .generation = 17});
  if (watchdog_.asleep().load()) watchdog_.Wake();
  clock_.Advance(absl::Seconds(6));
  ASSERT_TRUE(AwaitLines(1));
  EXPECT_THAT(lines(), ElementsAre(HasSubstr(
                           "the handler of kv.capnp:KeyValue.get, call 12:3.17, has held a poller for 6 s")));
  EXPECT_EQ(Describe(*called_.Now()), "the handler of kv.capnp:KeyValue.get") << "what a peer may read";
}

TEST_F(WatchdogTest, TheIdOfAHandlerIsNotThatOfACallbackAfterIt) {
  const bool outer = called_.Enter(kHandler, "kv.capnp:KeyValue.get", {.connection = 12});
  called_.Leave(outer);
  called_.Enter(kCallback, "kv.capnp:KeyValue.get");
  EXPECT_EQ(DescribeWithId(*called_.Now()), "the callback of kv.capnp:KeyValue.get");
}

TEST_F(WatchdogTest, APollerThatMovesIsNotTold) {
  for (int turn = 0; turn < 20; ++turn) {
    called_.StartTurn(clock_.NowNs());
    const bool outer = called_.Enter(kCallback, "x");
    if (watchdog_.asleep().load()) watchdog_.Wake();
    clock_.Advance(absl::Seconds(1));
    const int before = clock_.reads();
    ASSERT_TRUE(Eventually([&] { return clock_.reads() > before; })) << "the watchdog looks at each";
    called_.Leave(outer);
  }
  EXPECT_TRUE(Eventually([&] { return watchdog_.asleep().load(); }));
  EXPECT_TRUE(lines().empty());
}

TEST_F(WatchdogTest, ItsAdviceFitsWhatHolds) {
  const std::pair<CalledCode, const char*> advices[] = {{kHandler, "; give the server an executor"},
                                                        {kCallback, "; do on another thread"}};
  size_t count = 0;
  for (const auto& [what, advice] : advices) {
    called_.StartTurn(clock_.NowNs());
    const bool outer = called_.Enter(what, "x");
    if (watchdog_.asleep().load()) watchdog_.Wake();
    clock_.Advance(absl::Seconds(6));
    ASSERT_TRUE(AwaitLines(++count));
    EXPECT_THAT(lines().back(), HasSubstr(advice));
    called_.Leave(outer);
  }
}

TEST_F(WatchdogTest, ThatItIsLateItselfIsTold) {
  Enter();
  const int before = clock_.reads();
  ASSERT_TRUE(Eventually([&] { return clock_.reads() > before + 1; }));
  own_clock_.Advance(absl::Seconds(19));
  ASSERT_TRUE(AwaitLines(1));
  EXPECT_THAT(lines(), ElementsAre(AllOf(HasSubstr("the watchdog of this process looked 18"),
                                         HasSubstr(" s late: the machine is overloaded"))));
}

TEST_F(WatchdogTest, WhileItSleepsItIsLateForNothing) {
  ASSERT_TRUE(Eventually([&] { return watchdog_.asleep().load(); }));
  own_clock_.Advance(absl::Seconds(100));  // Asleep, it is late for nothing.
  Enter();
  const int before = clock_.reads();
  ASSERT_TRUE(Eventually([&] { return clock_.reads() > before + 1; }));
  EXPECT_TRUE(lines().empty());
}

TEST_F(WatchdogTest, ItSleepsWhileNothingMovesAndACallWakesIt) {
  ASSERT_TRUE(Eventually([&] { return watchdog_.asleep().load(); }));
  Enter();
  clock_.Advance(absl::Seconds(6));
  EXPECT_TRUE(AwaitLines(1));
}

TEST_F(WatchdogTest, ItStopsWithItsLastPollerAndStartsWithTheNext) {
  watchdog_.Unwatch(called_);
  Enter();
  clock_.Advance(absl::Seconds(6));
  watchdog_.Watch(called_, clock_);
  EXPECT_TRUE(AwaitLines(1));
}

TEST_F(WatchdogTest, WithoutPollersItIsLateForNothing) {
  Enter();
  int before = clock_.reads();
  ASSERT_TRUE(Eventually([&] { return clock_.reads() > before + 1; }));  // The next check is due.
  watchdog_.Unwatch(called_);
  own_clock_.Advance(absl::Seconds(100));
  watchdog_.Watch(called_, clock_);
  before = clock_.reads();
  ASSERT_TRUE(Eventually([&] { return clock_.reads() > before + 1; }));
  EXPECT_TRUE(lines().empty());
}

TEST(PollerWatchTest, APollerTellsWhatItCallsAndWhose) {
  const auto runtime = *Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/false);
  Poller& poller = runtime->poller(0);
  Timer timer([&] {
    const Poller::CallOut outer(poller, kCallback, "a");
    {
      const Poller::CallOut inner(poller, kHandler, "b");
      EXPECT_EQ(Describe(*poller.called_out().Now()), "the handler of b");
    }
    EXPECT_TRUE(poller.called_out().Now().has_value());
  });
  poller.Run([&] { poller.timers().Set(timer, poller.now_ns()); });
  while (timer.is_set()) poller.PollOnce();
  EXPECT_FALSE(poller.called_out().Now().has_value());
  EXPECT_EQ(Describe(poller.called_out().Last()), "the handler of b");
}

TEST(RoughDurationTest, ItIsShort) {
  EXPECT_EQ(RoughDuration(absl::Seconds(7)), "7 s");
  EXPECT_EQ(RoughDuration(absl::Milliseconds(1956)), "1.95 s");
  EXPECT_EQ(RoughDuration(absl::Milliseconds(2056)), "2.05 s");
  EXPECT_EQ(RoughDuration(absl::Milliseconds(125)), "120 ms");
  EXPECT_EQ(RoughDuration(absl::Milliseconds(83'750)), "83 s");
}

}  // namespace
}  // namespace hawser::transport
