#ifndef HAWSER_TESTS_SIM_CHANNEL_RECORD_H_
#define HAWSER_TESTS_SIM_CHANNEL_RECORD_H_

#include <memory>

#include "hawser/rpc/channel.h"
#include "hawser/rpc/internal/channel_core.h"
#include "tests/sim/ledger.rpc.h"

namespace hawser::sim {

// A channel of a simulated client; never destroyed before the world.
struct ChannelRecord {
  int host = 0;
  std::unique_ptr<ledger::WatcherService> watcher;  // nullptr: it offers none.
  std::shared_ptr<Channel> channel;                 // nullptr: it was closed or released.
  // Calls in flight keep the core alive after that.
  std::weak_ptr<internal::ChannelCore> core;
  bool ready = false;
  int losses = 0;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_CHANNEL_RECORD_H_
