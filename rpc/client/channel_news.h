#ifndef HAWSER_RPC_CLIENT_CHANNEL_NEWS_H_
#define HAWSER_RPC_CLIENT_CHANNEL_NEWS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/serving/callback_gate.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {

// The events of a channel that the application is notified of: the changes of its state, in order
// (on_state_change), and that it is closed (OnClosed()).
// Thread:   on the poller, in a turn of the thread that drives; StopCalls(): any.
// Lifetime: a part of ChannelCore.
class ChannelNews {
 public:
  void Add(ChannelState state, const absl::Status& why) { changes_.emplace_back(state, why); }
  // True: there are changes that the application has not got yet.
  bool has_changes() const { return !changes_.empty(); }
  void OnClosed(absl::AnyInvocable<void()> callback) { on_closed_.push_back(std::move(callback)); }

  void NotifyChanges(transport::Poller& poller, const ChannelOptions& options,
                     const std::string& peer_address);
  void NotifyClosed(transport::Poller& poller, const std::string& peer_address);

  // The application's objects may be destroyed from here on: on_state_change is not called any more, nor are
  // the handlers of the services that the channel offers.
  void StopCalls() { gate_->Close(); }
  const std::shared_ptr<CallbackGate>& gate() const { return gate_; }

 private:
  const std::shared_ptr<CallbackGate> gate_ = std::make_shared<CallbackGate>();
  std::vector<std::pair<ChannelState, absl::Status>> changes_;
  std::vector<absl::AnyInvocable<void()>> on_closed_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CHANNEL_NEWS_H_
