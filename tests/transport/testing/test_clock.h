#ifndef HAWSER_TESTS_TRANSPORT_TESTING_TEST_CLOCK_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_TEST_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "hawser/transport/clock/environment.h"

namespace hawser::transport {

// A clock that only the test moves.
// Thread:   any.
class TestClock final : public Environment {
 public:
  explicit TestClock(int64_t now_ns = 1'000'000'000) : now_ns_(now_ns) {}

  int64_t NowNs() override { return now_ns_.load(std::memory_order_relaxed); }
  void Advance(absl::Duration by) {
    now_ns_.fetch_add(absl::ToInt64Nanoseconds(by), std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> now_ns_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_TEST_CLOCK_H_
