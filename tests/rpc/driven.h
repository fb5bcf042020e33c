#ifndef HAWSER_TESTS_RPC_DRIVEN_H_
#define HAWSER_TESTS_RPC_DRIVEN_H_

#include <functional>
#include <memory>

#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/spy_fabric.h"
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

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_DRIVEN_H_
