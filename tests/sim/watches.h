#ifndef HAWSER_TESTS_SIM_WATCHES_H_
#define HAWSER_TESTS_SIM_WATCHES_H_

#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "hawser/rpc/server_context.h"
#include "hawser/tests/sim/channel_record.h"
#include "hawser/tests/sim/world.h"
#include "tests/sim/ledger.rpc.h"

namespace hawser::sim {

// The server's revision and its watchers: what clients have asked for and have received. The server pushes
// one revision after the other. Each watcher gets every revision in order, or its channel reports a loss.
class Watches {
 public:
  // `world` outlives this object, and the calls that it sends.
  explicit Watches(World& world) : world_(world) {}

  // The service that a client offers, so that the server can call it.
  std::unique_ptr<ledger::WatcherService> NewService();

  // A server is up, in its life number `life`, or is shutting down.
  void OnServerUp(uint64_t life);
  void OnServerDown();

  // A client asks for a watch over `channel`, which offers a service.
  void Ask(ChannelRecord& channel);
  // The server answers such a call. `*revision`: the revision at which the watch begins.
  absl::Status Serve(ServerContext& context, uint64_t id, uint64_t* revision);
  // Makes a new revision.
  void Change();

  // Called when everything should have arrived.
  void Check() const;

 private:
  class Service;

  // One Watcher of a client, which the server calls.
  struct Watch {
    uint64_t id = 0;
    ChannelRecord* channel = nullptr;
    int losses_before = 0;  // The losses of the channel when the client asked for the watch.
    uint64_t last = 0;      // The last revision that the client has received.

    // At the server.
    uint64_t server_life = 0;  // 0: the request never arrived.
    uint64_t first = 0;        // The revision before the first one that the client must get.
    uint64_t sent = 0;
    bool sending = false;
    bool over = false;
    std::shared_ptr<Channel> peer;
  };

  void Push(Watch& watch);
  void End(Watch& watch);
  void OnChanged(uint64_t id, uint64_t revision);
  void CheckServer(uint64_t id, const PeerIdentity& seen) const;
  static bool WasTold(const Watch& watch);

  World& world_;
  uint64_t server_life_ = 0;  // 0: none is up.
  uint64_t revision_ = 0;
  std::deque<Watch> watches_;  // In the order of their ids, from 1.
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_WATCHES_H_
