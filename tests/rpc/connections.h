#ifndef HAWSER_TESTS_RPC_CONNECTIONS_H_
#define HAWSER_TESTS_RPC_CONNECTIONS_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "hawser/rpc/channel.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/rpc/client/connection_group.h"
#include "tests/rpc/probe.h"

namespace hawser {

using Calls = std::vector<PendingCall<probe::Probe::ActResults>>;
// Of a call that outlasts the loss of its connection.
inline const CallOptions kPatient = {.timeout = kLong, .wait_for_ready = true};

// How many connections of a channel with several get new calls.
inline size_t ReadyConnections(const Channel& channel) {
  const auto& all = channel.core()->group()->Cores();
  return static_cast<size_t>(
      std::count_if(all.begin(), all.end(), [](const std::shared_ptr<internal::ChannelCore>& each) {
        return each->state() == ChannelState::kReady;
      }));
}

// None has a call that was made and has not ended, or whose object the test keeps.
inline bool AreIdle(const Channel& channel) {
  const auto& all = channel.core()->group()->Cores();
  return std::all_of(all.begin(), all.end(), [](const std::shared_ptr<internal::ChannelCore>& each) {
    return each->calls_in_use() == 0;
  });
}

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_CONNECTIONS_H_
