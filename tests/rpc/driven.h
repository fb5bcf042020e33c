#ifndef HAWSER_TESTS_RPC_DRIVEN_H_
#define HAWSER_TESTS_RPC_DRIVEN_H_

#include <functional>
#include <memory>

#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/spy_fabric.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {

// A runtime whose poller has no thread of its own: it moves on when the test says so, or waits. So what runs
// inside a call into the library is seen to run there.
struct Driven {
  std::shared_ptr<transport::SpyFabric> fabric = std::make_shared<transport::SpyFabric>(NewTestFabric());
  std::shared_ptr<transport::Runtime> runtime =
      *transport::Runtime::CreateOn(fabric, {}, /*start_threads=*/false);

  transport::Poller& poller() { return runtime->poller(0); }

  // False: it did not come.
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
