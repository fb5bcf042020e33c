#ifndef HAWSER_TESTS_RPC_DRIVEN_H_
#define HAWSER_TESTS_RPC_DRIVEN_H_

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "hawser/base/check.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/spy_fabric.h"
#include "hawser/tests/transport/testing/test_clock.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {

// Runs turns of the only poller of `runtime`, which has no thread of its own, until nothing else owns the
// runtime. Destroyed channels end during turns, and own it until then.
inline void DriveToTheEnd(const std::shared_ptr<transport::Runtime>& runtime) {
  EXPECT_TRUE(Eventually([&] {
    runtime->poller(0).PollOnce();
    return runtime.use_count() == 1;
  }));
}

// A runtime whose poller has no thread of its own: it runs only when the test drives it or waits. A test thus
// detects what runs inside a call into the library.
struct Driven {
  std::shared_ptr<transport::SpyFabric> fabric = std::make_shared<transport::SpyFabric>(NewTestFabric());
  std::shared_ptr<transport::Runtime> runtime =
      *transport::Runtime::CreateOn(fabric, {}, /*start_threads=*/false);

  // Some tests end with a runtime that something outside of them still keeps.
  ~Driven() {
    for (int turn = 0; turn < 1000; ++turn) poller().PollOnce();
  }

  transport::Poller& poller() { return runtime->poller(0); }

  // False: `condition` did not come true.
  bool Until(const std::function<bool()>& condition) {
    return Eventually([&] {
      if (condition()) return true;
      poller().PollOnce();
      return false;
    });
  }
};

// What clients, or a server, run on: a runtime, and a thread that drives it, on a clock that only the test
// moves. A deadline or a keepalive expires when the test says so, however busy the machine is.
class ClockedRuntime {
 public:
  explicit ClockedRuntime(std::shared_ptr<fabric::Fabric> fabric = NewTestFabric(),
                          const transport::BufferPoolOptions& pool = {})
      : runtime_(*transport::Runtime::CreateOn(std::move(fabric), {.pollers = 1, .pool = pool},
                                               /*start_threads=*/false, clock_)),
        thread_([this] { Drive(); }) {}
  // Channels and servers that have ended still use the clock for a moment. What kept the runtime would use
  // the clock when that is destroyed.
  ~ClockedRuntime() {
    const bool is_last = Eventually([&] { return runtime_.use_count() == 1; });
    HAWSER_CHECK(is_last, "the runtime has ", runtime_.use_count(), " owners");
    stopping_ = true;
    thread_.join();
  }
  ClockedRuntime(const ClockedRuntime&) = delete;
  ClockedRuntime& operator=(const ClockedRuntime&) = delete;

  const std::shared_ptr<transport::Runtime>& get() const { return runtime_; }

  // First the poller runs what this thread has posted. When this returns, it has run the timers that were due
  // before then.
  void Pass(absl::Duration time) {
    internal::RunAndWait(poller(), [] {});
    clock_.Advance(time);
    // The last of those that are due.
    std::atomic<bool> done{false};
    transport::Timer last([&done] { done = true; });
    poller().Run([&] { poller().timers().Set(last, clock_.NowNs()); });
    const bool ran = Eventually([&] { return done.load(); });
    internal::RunAndWait(poller(), [&] { poller().timers().Cancel(last); });
    ASSERT_TRUE(ran);
  }

  // The same, of clients with `connections` whose server is held: in steps, and after each until nothing else
  // is connected. A client whose server does not answer has one more connection while it asks whether the
  // server is only busy.
  void PassBesideABusyServer(absl::Duration time, size_t connections) {
    // A hold of a millisecond is not reported. The server's clock is the system's.
    const int64_t long_enough_ns =
        transport::After(transport::Environment::Real().NowNs(), absl::Milliseconds(5));
    ASSERT_TRUE(Eventually([&] { return transport::Environment::Real().NowNs() > long_enough_ns; }));
    constexpr absl::Duration kStep = absl::Milliseconds(500);
    for (absl::Duration passed; passed < time; passed += kStep) {
      ASSERT_NO_FATAL_FAILURE(Pass(kStep));
      ASSERT_TRUE(Eventually([&] { return ConnectionCount() <= connections; })) << "after " << passed;
    }
  }

 private:
  transport::Poller& poller() { return runtime_->poller(0); }

  // A poller's own thread would sleep by the system's clock. This one does not Wait() on the completion
  // queue: a thread that waits for a call may drive the poller and do so, and only one may at a time. It
  // waits for no condition: the pause leaves the core to the threads that have work.
  void Drive() {
    while (!stopping_) {
      if (poller().PollOnce() == 0) absl::SleepFor(absl::Microseconds(100));
    }
  }

  size_t ConnectionCount() {
    size_t count = 0;
    internal::RunAndWait(poller(), [&] { count = poller().connection_count(); });
    return count;
  }

  // An hour ahead of the system's clock, by which a thread that waits for a call sleeps until the next timer.
  transport::TestClock clock_{transport::After(transport::Environment::Real().NowNs(), absl::Hours(1))};
  std::shared_ptr<transport::Runtime> runtime_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_DRIVEN_H_
