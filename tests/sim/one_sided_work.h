#ifndef HAWSER_TESTS_SIM_ONE_SIDED_WORK_H_
#define HAWSER_TESTS_SIM_ONE_SIDED_WORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/server_context.h"
#include "hawser/tests/sim/channel_record.h"
#include "hawser/tests/sim/dice.h"
#include "hawser/tests/sim/one_sided_access.h"
#include "hawser/tests/sim/one_sided_owner.h"
#include "hawser/tests/sim/one_sided_region.h"
#include "hawser/tests/sim/world.h"
#include "tests/sim/ledger.rpc.h"

namespace hawser::sim {

// What the hosts of a world do with one-sided memory: the server shares memory, grants it, writes to it and
// revokes it; clients READ and WRITE it, and change it with atomics, with deadlines, and cancel.
//
// It checks these rules:
//  - Each operation has exactly one end, with a Status that fits what has happened.
//  - Once it has ended, its local memory is not touched. If the client has registered that, it can be
//    released.
//  - Once Revoke() has returned, or the server has ended, no NIC touches the memory.
//  - A READ returns words that the memory held at some time between its beginning and its end.
//  - What has succeeded has happened, and once. What has failed has not, unless its Status says that it may.
//  - A WRITE that the server counts is counted once all of it is there, and once. What has succeeded was
//    counted; what has failed was not, unless its Status says that it may. Once Revoke() has returned, or the
//    server has ended, nothing is counted.
//  - A ticket that is forged, or of another channel, gives nothing.
//  - On a good day everything succeeds.
class OneSidedWork {
 public:
  using Access = OneSidedAccess;

  // The processes of the world, as they are now.
  struct Processes {
    Server* server = nullptr;  // Null: there is none that can do something.
    std::vector<ChannelRecord*> channels;
    bool may_wait = false;  // The server may run code that waits.
  };

  // `world` outlives it; `seed` is that of the world. `wait` runs code that waits while the world goes on.
  OneSidedWork(World& world, uint64_t seed, std::function<void(const std::function<void()>&)> wait);

  // Something happens, or nothing.
  void Step(const Processes& processes);
  // The server answers a request for a ticket.
  absl::Status Serve(ServerContext& context, ledger::Ledger::GrantParams::Reader request,
                     ledger::Ledger::GrantResults::Builder reply) {
    return owner_.Serve(context, request, reply);
  }

  // A server is up, in its life number `life`.
  void OnServerUp(uint64_t life) { owner_.OnServerUp(life); }
  // It is about to end, where code may wait; it has ended.
  void OnServerEnding() { owner_.OnServerEnding(); }
  void OnServerEnded() { owner_.OnServerEnded(); }
  // A host loses its power.
  void OnPowerOff(int host);
  // Called after each turn of the world.
  void CheckTurn();

  // On a good day, at least a second after each other: each channel of one connection gets a ticket, and
  // reaches the memory.
  // After that, in CheckEnd(), all of it has succeeded.
  void AskOnGoodDay(const Processes& processes);
  void ReachOnGoodDay();
  void CheckGoodDay();
  // No client reaches any memory. Then, when nothing is in flight any more: everything has ended well.
  void DropTickets();
  void CheckEnd();
  // Nothing is checked any more.
  void Dismantle();

 private:
  void Revoke();
  // Whether it can reach memory.
  static bool IsAble(const ChannelRecord& channel) {
    return channel.cores.size() == 1 && channel.channel != nullptr;
  }
  void Ask(ChannelRecord& channel, const std::vector<ChannelRecord*>& all);
  void OnTicket(OneSidedTicket& ticket, std::shared_ptr<Channel> channel, memory::Ticket::Reader reader);
  void DropSomeTicket();
  // That clients can use. Drops some that are void.
  std::vector<OneSidedTicket*> Tickets();

  void Operate();
  void OperateOn(OneSidedTicket& ticket);
  // Chooses what it does, among what the ticket allows, or something wrong. False: there is nothing.
  bool Choose(Access& access);
  void ChooseRanges(Access& access, uint64_t from, uint64_t to);
  void Begin(Access& access);
  // Its memory is the client's own: registers it, if it can.
  static void RegisterOwn(Access& access, const Channel& channel);
  RemoteOperation Operation(Access& access, const RemoteOptions& options);
  void OnEnd(Access& access, const absl::Status& status);
  void CancelSomething();
  void Drop(Access& access);

  template <typename Container>
  auto& AnyOf(Container& all) {
    return all[static_cast<size_t>(dice_.Between(0, static_cast<int64_t>(all.size()) - 1))];
  }
  void Check(const std::string& broken) {
    if (!broken.empty()) world_.Broken(broken);
  }

  World& world_;
  Dice dice_;  // Its own, so that worlds without one-sided memory do not change.
  OneSidedOwner owner_;
  bool good_day_ = false;
  std::vector<const ChannelRecord*> unreached_;  // On a good day: those that are able, and must.
  std::deque<OneSidedTicket> tickets_;
  std::deque<Access> accesses_;  // In the order of their ids, from 1.
  std::vector<Access*> open_;    // That have not ended, or whose memory is still watched.
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_ONE_SIDED_WORK_H_
