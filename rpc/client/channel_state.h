#ifndef HAWSER_RPC_CLIENT_CHANNEL_STATE_H_
#define HAWSER_RPC_CLIENT_CHANNEL_STATE_H_

#include <cstdint>
#include <optional>

#include "hawser/rpc/options.h"

namespace hawser::internal {

// The events that move a channel between its states.
enum class ChannelEvent : uint8_t {
  kConnected,      // An attempt to connect has succeeded.
  kAttemptFailed,  // It has failed at every address.
  kLost,           // The connection was lost, or the server goes away.
  kRetry,          // The backoff is over.
  kClose,          // The application closes it, or the client of a ServerContext::peer() is gone.
};

// nullopt: `event` cannot happen in `state`.
std::optional<ChannelState> NextState(ChannelState state, ChannelEvent event);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CHANNEL_STATE_H_
