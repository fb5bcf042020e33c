// Runs the fabric contract in the simulator, so that it cannot drift from the fabrics that ship.

#include <memory>
#include <utility>
#include <vector>

#include "hawser/tests/sim/network.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"

namespace hawser::fabric {
namespace {

// A fabric with a network of its own, in which a poll that finds nothing moves the clock.
class SelfDriven {
 public:
  SelfDriven(const sim::Faults& faults, bool sends_can_wait)
      : network_({.seed = 1,
                  .faults = faults,
                  .idle_poll_ns = 10'000,
                  .sends_can_wait = sends_can_wait,
                  .sends_end_grants = true,
                  .offered = 1}),
        fabric_(network_, 1) {}
  ~SelfDriven() { EXPECT_THAT(network_.TakeViolations(), ::testing::IsEmpty()); }

  static std::function<std::shared_ptr<Fabric>()> With(const sim::Faults& faults,
                                                       bool sends_can_wait = false) {
    return [faults, sends_can_wait]() -> std::shared_ptr<Fabric> {
      auto world = std::make_shared<SelfDriven>(faults, sends_can_wait);
      return std::shared_ptr<Fabric>(world, &world->fabric_);
    };
  }

 private:
  sim::Network network_;
  sim::SimFabric fabric_;
};

sim::Faults Slow() {
  sim::Faults faults;
  faults.fetch = {0, 20'000};
  faults.latency = {1'000, 100'000};
  faults.completion = {0, 300'000};
  faults.flush = {0, 300'000};
  faults.event = {1'000, 400'000};
  faults.revocation = {0, 200'000};
  faults.spread = {0, 100'000};
  return faults;
}

sim::Faults Eager() {
  sim::Faults faults;
  faults.fetch = faults.completion = faults.flush = faults.revocation = faults.spread = {0, 0};
  faults.latency = faults.event = {1, 1};
  faults.error_on_goodbye = 1;
  return faults;
}

}  // namespace

std::vector<FabricUnderTest> FabricsUnderTest() {
  const SocketAddress address = sim::SimFabric::AddressOf(1);
  std::vector<FabricUnderTest> all = {
      {"Sim",
       SelfDriven::With({}),
       address,
       {},
       /*pushes=*/true,
       /*sends_can_wait=*/false,
       /*posts_inline=*/true,
       /*offers_sends=*/true},
      {"SimThatIsSlow",
       SelfDriven::With(Slow()),
       address,
       {},
       /*pushes=*/true,
       /*sends_can_wait=*/false,
       /*posts_inline=*/true,
       /*offers_sends=*/true},
      {"SimThatIsEager",
       SelfDriven::With(Eager()),
       address,
       {},
       /*pushes=*/true,
       /*sends_can_wait=*/false,
       /*posts_inline=*/true,
       /*offers_sends=*/true},
      {"SimWhereSendsCanWait",
       SelfDriven::With({}, true),
       address,
       {},
       /*pushes=*/true,
       /*sends_can_wait=*/true,
       /*posts_inline=*/true,
       /*offers_sends=*/true},
      {"SlowSimWhereSendsCanWait",
       SelfDriven::With(Slow(), true),
       address,
       {},
       /*pushes=*/true,
       /*sends_can_wait=*/true,
       /*posts_inline=*/true,
       /*offers_sends=*/true},
  };
  for (FabricUnderTest& one : all) one.atomics = true;
  return all;
}

}  // namespace hawser::fabric
