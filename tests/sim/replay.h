#ifndef HAWSER_TESTS_SIM_REPLAY_H_
#define HAWSER_TESTS_SIM_REPLAY_H_

#include <functional>
#include <string>

#include "hawser/base/socket_address.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::sim {

// A thief on a host of the network connects to `server` with what another has said, or something like it.
// `on_accepted` runs if the server takes it. It gives up by itself. On no poller.
void Replay(transport::Poller& poller, const SocketAddress& server, const std::string& connect,
            std::function<void()> on_accepted);

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_REPLAY_H_
