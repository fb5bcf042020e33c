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

// The server's revision, and who watches it: what clients have asked for and have got, and what the server
// pushes to them, one revision after the other. Each watcher gets every revision in order, or its channel
// says that it was lost.
class Watches {
 public:
  // Outlives it, and the calls that it sends.
  explicit Watches(World& world) : world_(world) {}

  // What a client offers, so that it can be called.
  std::unique_ptr<ledger::WatcherService> NewService();

  // A server is up, its `life`th, or on its way down.
  void OnServerUp(uint64_t life);
  void OnServerDown();

  // A client asks, by `channel`, which offers a service.
  void Ask(ChannelRecord& channel);
  // The server is asked. `*revision`: that the watch begins at.
  absl::Status Serve(ServerContext& context, uint64_t id, uint64_t* revision);
  // There is a new revision.
  void Change();

  // Of a time when everything should have arrived.
  void Check() const;

 private:
  class Service;

  // One Watcher of a client, which the server calls.
  struct Watch {
    uint64_t id = 0;
    ChannelRecord* channel = nullptr;
    int losses_before = 0;  // Of the channel, when it was asked for.
    uint64_t last = 0;      // Revision that the client has got.

    // At the server.
    uint64_t server_life = 0;  // 0: it never heard of it.
    uint64_t first = 0;        // The revision before the first one that it is to get.
    uint64_t sent = 0;
    bool sending = false;
    bool over = false;
    std::shared_ptr<Channel> peer;
  };

  void Push(Watch& watch);
  void End(Watch& watch);
  void OnChanged(uint64_t id, uint64_t revision);
  static bool WasTold(const Watch& watch);

  World& world_;
  uint64_t server_life_ = 0;  // 0: none is up.
  uint64_t revision_ = 0;
  std::deque<Watch> watches_;  // By id, from 1.
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_WATCHES_H_
