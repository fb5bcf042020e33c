// How many exchanges a measurement makes, and what their times come to.

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "hawser/measure/in_flight.h"
#include "hawser/measure/one_at_a_time.h"
#include "hawser/measure/times.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::measure {
namespace {

TEST(OneAtATimeTest, MakesAsManyAsItIsTold) {
  int made = 0, added = 0;
  const auto exchange = [&] {
    ++made;
    return absl::OkStatus();
  };
  EXPECT_THAT(OneAtATime({.exchanges = 7}, exchange, [&](int64_t ns) { added += ns >= 0; }), IsOk());
  EXPECT_EQ(made, 7);
  EXPECT_EQ(added, 7);
}

TEST(OneAtATimeTest, EndsWhenItsTimeIsOver) {
  const auto exchange = [] { return absl::OkStatus(); };
  const absl::Time start = absl::Now();
  EXPECT_THAT(OneAtATime({.time = absl::Milliseconds(5)}, exchange, [](int64_t) {}), IsOk());
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(4));
}

TEST(OneAtATimeTest, EndsAtTheFirstFailure) {
  int made = 0;
  const auto exchange = [&] { return ++made == 3 ? absl::DataLossError("third") : absl::OkStatus(); };
  EXPECT_EQ(OneAtATime({}, exchange, [](int64_t) {}).message(), "third");
  EXPECT_EQ(made, 3);
}

// Ends exchanges on a thread of its own.
class Echoes {
 public:
  ~Echoes() {
    {
      const absl::MutexLock lock(&mutex_);
      closed_ = true;
    }
    thread_.join();
  }

  void Start() {
    const absl::MutexLock lock(&mutex_);
    ++started_;
    ++waiting_;
    most_ = std::max(most_, waiting_);
  }
  void Serve(InFlight& in_flight) {
    thread_ = std::thread([this, &in_flight] {
      while (true) {
        absl::Status status;
        {
          const auto due = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return closed_ || waiting_ > 0; };
          const absl::MutexLock lock(&mutex_, absl::Condition(&due));
          if (waiting_ == 0) return;
          --waiting_;
          if (started_ >= fails_at) status = absl::DataLossError("lost");
        }
        in_flight.OnEnd(status);
      }
    });
  }

  int64_t started() {
    const absl::MutexLock lock(&mutex_);
    return started_;
  }
  int64_t most() {
    const absl::MutexLock lock(&mutex_);
    return most_;
  }

  int64_t fails_at = 1'000'000'000'000;

 private:
  absl::Mutex mutex_;
  bool closed_ = false;
  int64_t started_ = 0, waiting_ = 0, most_ = 0;
  std::thread thread_;
};

class InFlightTest : public ::testing::Test {
 protected:
  Echoes echoes_;
  InFlight in_flight_{[this] { echoes_.Start(); }};
};

TEST_F(InFlightTest, MakesAsManyAsItIsTold) {
  echoes_.Serve(in_flight_);
  for (const int64_t exchanges : {0, 1, 3, 8, 1000}) {
    const int64_t before = echoes_.started();
    const absl::StatusOr<Ran> ran = in_flight_.Run({.exchanges = exchanges}, 8);
    EXPECT_EQ(ran.value().exchanges, exchanges);
    EXPECT_EQ(echoes_.started() - before, exchanges);
    EXPECT_LE(echoes_.most(), 8);
  }
}

TEST_F(InFlightTest, CountsThoseThatItMadeUntilItsTimeWasOver) {
  echoes_.Serve(in_flight_);
  const absl::StatusOr<Ran> ran = in_flight_.Run({.time = absl::Milliseconds(10)}, 4);
  EXPECT_EQ(ran.value().exchanges, echoes_.started());
  EXPECT_GT(ran->exchanges, 4);
  EXPECT_GE(ran->time, absl::Milliseconds(9));
}

TEST_F(InFlightTest, EndsAtTheFirstFailure) {
  echoes_.fails_at = 100;
  echoes_.Serve(in_flight_);
  EXPECT_EQ(in_flight_.Run({}, 4).status().message(), "lost");
  EXPECT_LT(echoes_.started(), 110);
}

TEST(TimesTest, QuantilesAreThoseOfTheSamples) {
  Times times;
  std::vector<double> samples;
  for (int64_t i = 1; i <= 100'000; ++i) {
    const int64_t ns = i * i / 7 + i;
    times.Add(ns);
    samples.push_back(static_cast<double>(ns) / 1e3);
  }
  for (const double share : {0.001, 0.5, 0.9, 0.99, 0.999}) {
    const double exact = samples[static_cast<size_t>(share * 100'000) - 1];
    EXPECT_NEAR(times.quantile_us(share), exact, exact * 0.003 + 0.001) << share;
  }
  EXPECT_EQ(times.count(), 100'000);
  EXPECT_EQ(times.min_us(), samples.front());
  EXPECT_EQ(times.max_us(), samples.back());
  EXPECT_EQ(times.quantile_us(1), samples.back());
}

TEST(TimesTest, TimesOfAnyLengthHaveAPlace) {
  Times times;
  EXPECT_EQ(times.quantile_us(0.5), 0);
  for (const int64_t ns : {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{511}, int64_t{512}, INT64_MAX}) {
    times.Add(ns);
  }
  times.Add(-5);  // A clock that was set.
  EXPECT_EQ(times.count(), 7);
  EXPECT_EQ(times.min_us(), 0);
  EXPECT_NEAR(times.quantile_us(0.5), 0.256, 0.001);
}

}  // namespace
}  // namespace hawser::measure
