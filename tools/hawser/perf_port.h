#ifndef HAWSER_TOOLS_HAWSER_PERF_PORT_H_
#define HAWSER_TOOLS_HAWSER_PERF_PORT_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/base/socket_address.h"
#include "hawser/perf.rpc.h"
#include "hawser/rpc/channel.h"

namespace hawser::tool {

// A port that a server has opened for one raw connection of this client (openRaw of perf.capnp).
struct PerfPort {
  SocketAddress address;
  std::array<uint8_t, 16> token = {};
};

// Calls `connect` with such a port, for each address that the server's name has until one does not answer
// Unavailable; returns what that does.
absl::Status OpenPerfPort(const std::shared_ptr<Channel>& channel, perf::RawService service,
                          absl::FunctionRef<absl::Status(const PerfPort&)> connect);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_PERF_PORT_H_
