#ifndef HAWSER_TESTS_SIM_ONE_SIDED_OWNER_H_
#define HAWSER_TESTS_SIM_ONE_SIDED_OWNER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/server_context.h"
#include "hawser/tests/sim/dice.h"
#include "hawser/tests/sim/one_sided_region.h"
#include "hawser/tests/sim/world.h"
#include "tests/sim/ledger.rpc.h"

namespace hawser::sim {

// What the server of a world does with one-sided memory: it shares memory, grants it, writes to it, and takes
// it back. Once Revoke() has returned, or the server has ended, no NIC touches the memory.
class OneSidedOwner {
 public:
  // `world` and `dice` outlive it. `wait` runs code that waits while the world goes on.
  OneSidedOwner(World& world, Dice& dice, std::function<void(const std::function<void()>&)> wait);

  // Of this life of the server, which clients may be given.
  std::vector<OneSidedRegion*> Regions();
  uint64_t life() const { return life_; }

  // Unless it shares enough. `must`: there is no fault.
  void Share(Server& server, bool must);
  void Write();
  void Revoke(OneSidedRegion& region);
  void DestroyAll();
  absl::Status Serve(ServerContext& context, ledger::Ledger::GrantParams::Reader request,
                     ledger::Ledger::GrantResults::Builder reply);

  // See OneSidedWork.
  void OnServerUp(uint64_t life) { life_ = life; }
  void OnServerEnding();
  void OnServerEnded();
  void CheckTurn();
  void CheckEnd();
  void Dismantle();

 private:
  void Destroy(OneSidedRegion& region);

  World& world_;
  Dice& dice_;
  const std::function<void(const std::function<void()>&)> wait_;
  uint64_t life_ = 0;
  std::deque<OneSidedRegion> regions_;  // In the order of their ids, from 1.
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_ONE_SIDED_OWNER_H_
