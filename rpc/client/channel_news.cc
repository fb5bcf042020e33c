#include "hawser/rpc/client/channel_news.h"

#include "hawser/rpc/wire/called_codes.h"
#include "hawser/rpc/wire/exceptions.h"

namespace hawser::internal {

void ChannelNews::NotifyChanges(transport::Poller& poller, const ChannelOptions& options,
                                const std::string& peer_address) {
  // No structured binding: clang 14 cannot capture one.
  for (const auto& change : std::exchange(changes_, {})) {
    if (!options.on_state_change || !gate_->Enter()) break;
    const transport::Poller::CallOut out(poller, kOnStateChange, "a channel");
    CallUser("on_state_change of the channel to", peer_address,
             [&] { options.on_state_change(change.first, change.second); });
    gate_->Leave();
  }
}

void ChannelNews::NotifyClosed(transport::Poller& poller, const std::string& peer_address) {
  for (auto& callback : std::exchange(on_closed_, {})) {
    const transport::Poller::CallOut out(poller, kOnClosed, "a channel");
    CallUser("the OnClosed() callback of the channel to", peer_address, [&] { callback(); });
  }
}

}  // namespace hawser::internal
