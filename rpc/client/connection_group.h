#ifndef HAWSER_RPC_CLIENT_CONNECTION_GROUP_H_
#define HAWSER_RPC_CLIENT_CONNECTION_GROUP_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "hawser/rpc/client/carried_calls.h"
#include "hawser/rpc/client/channel_state.h"
#include "hawser/rpc/options.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/poller/called_out.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {

class CallSender;
class ChannelCore;

// The connections of one channel that has several (ChannelOptions::connections). Each is a ChannelCore, on
// the next poller of the runtime, that dials, backs off, and sends its calls again by itself. The group
// chooses the connection of each call, and knows the state of the channel as a whole.
//
// A new call goes to the connection that is ready and has the fewest calls. It stays with that connection's
// poller: there its callback runs, and there a thread waits for it. If that connection is not ready when the
// call is to be sent, or sent again, a ready one carries the request (ChannelCore::SendBeside()); without one
// the call waits where it is. So a call neither waits nor fails because its own connection is not ready,
// while another one is. It does wait for a slot of its own connection, if that is ready, or has not found out
// yet that its peer is silent, though another one may have slots.
// Thread:   any, but for OnEvent().
// Lifetime: shared by its connections. Until Release() it keeps them.
class ConnectionGroup {
 public:
  using News = std::vector<std::pair<ChannelState, absl::Status>>;

  // The first of them notifies the application of changes. Two at least.
  explicit ConnectionGroup(const std::vector<std::shared_ptr<ChannelCore>>& connections);
  ConnectionGroup(const ConnectionGroup&) = delete;
  ConnectionGroup& operator=(const ConnectionGroup&) = delete;

  // ---- For the Channel, while it is there.

  std::vector<std::shared_ptr<ChannelCore>> Cores() const;
  // For a new call: the connection that is ready and has the fewest calls. If none is, one that is
  // connecting. Those that are alike take turns.
  const std::shared_ptr<CallSender>& Choose();
  // Ready if one of them is; else connecting if one of them is.
  ChannelState state() const { return state_.load(std::memory_order_acquire); }
  // The identity of the peer of the first connection that is ready. Null: none is.
  std::shared_ptr<const PeerIdentity> peer_identity() const;
  // The Channel is being destroyed: returns the connections, which the group does not keep any more.
  std::vector<std::shared_ptr<ChannelCore>> Release();

  // ---- For its connections.

  // One that is ready and is not `beside`, with the fewest calls. Null: there is none.
  std::shared_ptr<ChannelCore> ReadyOne(const ChannelCore& beside);
  // A call may still find a connection: one is ready, or its first attempt since it was made, or lost, is not
  // over.
  bool hopeful() const { return hopeful_.load(std::memory_order_acquire); }
  // `event` has moved the connection `number` to `to`. On the poller of that one.
  void OnEvent(size_t number, ChannelEvent event, ChannelState to, const absl::Status& why);
  // The first attempt of a connection has ended with `why`. The channel's has when one has succeeded, or all
  // have failed.
  void OnFirstAttempt(const absl::Status& why);
  // What holds the poller of a connection whose first attempt has not ended. Empty: nothing holds one.
  std::optional<transport::CalledOut::Call> HoldsFirstAttempt();
  // For the first connection: the news that the application has not got yet, in order.
  News TakeNews();

 private:
  struct Member {
    ChannelState state = ChannelState::kConnecting;
    bool failed = false;  // An attempt has, since it was made or lost.
  };

  ChannelState StateOfAll() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs `function` on the poller of a connection, if that still exists.
  void Post(size_t number, void (ChannelCore::*function)());

  const std::vector<std::weak_ptr<ChannelCore>> members_;
  std::vector<std::shared_ptr<CallSender>> connections_;  // The Channel's: empty after Release().
  std::atomic<size_t> next_{0};                           // Where the next search begins.
  std::atomic<ChannelState> state_{ChannelState::kConnecting};
  std::atomic<bool> hopeful_{true};
  absl::Mutex mutex_;
  std::vector<Member> states_ ABSL_GUARDED_BY(mutex_);
  News news_ ABSL_GUARDED_BY(mutex_);
  size_t first_attempts_ ABSL_GUARDED_BY(mutex_) = 0;  // That have failed.
  bool has_first_attempt_ ABSL_GUARDED_BY(mutex_) = false;
};

// What one of several connections has.
// Thread:   on the poller, but for what is const.
// Lifetime: owned by its ChannelCore.
struct GroupMember {
  GroupMember(std::shared_ptr<ConnectionGroup> of, size_t its_number, ChannelCore& core);
  // Its connection is closed for good, because of `why`.
  void Close(transport::Poller& poller, const absl::Status& why);

  const std::shared_ptr<ConnectionGroup> group;
  const size_t number;  // In the group.
  CarriedCalls carried;
  transport::Timer late_timer;  // The first connection's: the first attempts should have ended.
  transport::Timer redeal_timer;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CONNECTION_GROUP_H_
