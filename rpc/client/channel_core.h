#ifndef HAWSER_RPC_CLIENT_CHANNEL_CORE_H_
#define HAWSER_RPC_CLIENT_CHANNEL_CORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/client/attempt.h"
#include "hawser/rpc/client/call_queue.h"
#include "hawser/rpc/client/call_sender.h"
#include "hawser/rpc/client/channel_list.h"
#include "hawser/rpc/client/channel_state.h"
#include "hawser/rpc/client/link.h"
#include "hawser/rpc/client/untyped_call.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/serving/callback_gate.h"
#include "hawser/rpc/wire/no_channel.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/poller/called_out.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/security.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {

class ConnectionGroup;

// The implementation of Channel or, if it has several connections (ConnectionGroup), of one of them: keeps a
// Link to the peer, over which its CallSender sends calls, and decides on those that find none.
//
// A callback of the application is never called from inside a call of the application into the library, nor
// by a thread that only posts. It waits for the next turn of the thread that drives (Poller::MayCallOut()).
// So a callback may call the library, and a caller may hold a lock that its callback takes, except around the
// calls that wait: Wait(), Connect(), Listen(), Shutdown(), and the destructors of a server, and of a channel
// that has services or on_state_change. Interceptors are the exception (rpc/interceptor.h): Begin() runs
// inside Send(), which needs its answer.
// Thread:   as said for each method.
// Lifetime: shared by its Channel and its calls, and by itself until it is closed and nothing of it is under
//           way.
class ChannelCore final : public CallSender, Attempt::Owner {
 public:
  // Dials `uri`, again and again. `insists`: see InsistsOnFirst(). With several connections it returns the
  // first one.
  static absl::StatusOr<std::shared_ptr<ChannelCore>> Create(absl::string_view uri, ChannelOptions options,
                                                             bool insists = false);

  // The runtime for `uri`: that of `options`, or the process's own. InvalidArgument: that of `options` serves
  // another network. Other codes: this machine lacks what the network needs.
  static absl::StatusOr<std::shared_ptr<transport::Runtime>> RuntimeFor(const transport::Uri& uri,
                                                                        const ChannelOptions& options);

  // Over which the connections of `runtime`, which carries no TLS, are proved.
  static absl::StatusOr<std::shared_ptr<transport::Runtime>> RuntimeToProveOver(
      const transport::Runtime& runtime);

  // For ServerContext::peer(): the client has dialed `request`. When that connection ends, so does the
  // channel. On `poller`, which is of `runtime`. `on_gone` runs on the poller when the connection is no more.
  static absl::StatusOr<std::shared_ptr<ChannelCore>> Accept(
      std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller, transport::PeerRequest request,
      const transport::SessionToken& session, ChannelOptions options, absl::AnyInvocable<void()> on_gone);

  // Has no connection, and never gets one. Its calls end with FailedPrecondition and `why`, on the poller of
  // that.
  static std::shared_ptr<ChannelCore> WithoutConnection(NoChannel why);
  ~ChannelCore();

  // ---- From any thread.

  // Waits for the result of the first attempt to connect, of whichever connection. Not on the poller.
  absl::Status WaitForFirstAttempt();
  void Close(const absl::Status& why);
  // With all connections of its channel.
  void CloseChannel(const absl::Status& why);
  void OnClosed(absl::AnyInvocable<void()> callback);
  // It has a Channel, which ends with OnChannelDestroyed().
  void OnChannelCreated();
  // Its Channel is being destroyed: see Channel::Close().
  void OnChannelDestroyed();
  absl::StatusOr<Buffer> AllocateBuffer(size_t size_bytes);

  // Of its channel, which may have several connections.
  ChannelState channel_state() const;
  std::shared_ptr<const PeerIdentity> channel_peer_identity() const;
  // Null: it is the only connection of its channel.
  ConnectionGroup* group() const { return member_ == nullptr ? nullptr : member_->group.get(); }

  // ---- On the poller, for its group.

  // The first attempt of the channel has ended, or is not waited for any more.
  void EndFirstAttempt(const absl::Status& why);
  void NotifyGroupNews();
  // Another connection is ready. Unless this one is, it sends the calls that wait here.
  void Redeal();
  // No connection is ready, nor in its first attempt: calls that do not wait for longer fail, unless this one
  // is trying.
  void FailQueuedWithoutHope();

 private:
  ChannelCore(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
              std::string peer_address, ChannelOptions options);

  std::shared_ptr<ChannelCore> Self() { return std::static_pointer_cast<ChannelCore>(shared_from_this()); }
  // Unless this is closed.
  void Connect();
  void ConnectLater();
  // For a call of a channel that is closed.
  absl::Status WhyClosed(const UntypedCall& call) const;
  // WaitForFirstAttempt() goes on waiting, though an attempt has failed with `why`.
  bool InsistsOnFirst(const absl::Status& why) const;
  absl::StatusCode CodeWhileNotConnected() const;
  // For a call whose deadline passed before it was sent.
  std::string WhyUnsent();
  // Why the last attempt to connect failed, how long ago, and when the next one is.
  std::string WhyNotConnected() const;
  void OnRetryTimer();
  // Has another connection of the channel, one that is ready, carry the request. False: there is none.
  bool SendBeside(UntypedCall& call);
  void FailQueued();
  void OnFirstAttempt(const absl::Status& why);
  void OnFirstAttemptsTimeout();
  // Why Connect() does not wait any longer.
  absl::Status HeldUp(const transport::CalledOut::Call& by) const;
  void CloseOnceIdle();
  void Lose(Link& link, const absl::Status& why);
  // Connections that a server has asked to leave stay open until their calls have ended, at most so many.
  void CloseOldestLinks();
  void CloseNow(const absl::Status& why);
  void Move(ChannelEvent event, const absl::Status& why);
  void Notify();
  void ReleaseSelf();

  // CallSender
  const std::shared_ptr<CallSender>& ForNewCall() override;
  void CloseIfIdle() override;
  void OnCallNotRun(transport::Connection& connection) override;
  [[gnu::cold]] bool StartWhileNotReady(UntypedCall& call) override;
  [[gnu::cold]] void ForgetCarried(UntypedCall& call) override;

  // Attempt::Owner
  void OnAttemptConnected(std::unique_ptr<Link> link) override;
  void OnAttemptFailed(const absl::Status& why) override;
  void Retire(std::unique_ptr<Link> link) override;

  // Link::Observer
  void OnLinkReady(Link& link) override;
  void OnLinkGoingAway(Link& link) override;
  void OnLinkLost(Link& link, const absl::Status& why) override;
  void OnLinkEnded(Link& link) override;

  // What one of several connections has. A channel with one does without its 300 bytes.
  struct Member {
    Member(ChannelCore& core, std::shared_ptr<ConnectionGroup> group, size_t number);

    const std::shared_ptr<ConnectionGroup> group;
    const size_t number;  // In the group.
    // ---- On the poller.
    CallQueue carried;            // Over other connections of the channel.
    transport::Timer late_timer;  // Of the first connection: the first attempts should have ended.
    transport::Timer redeal_timer;
  };

  // For on_state_change and the offered services. Closed with the Channel.
  const std::shared_ptr<CallbackGate> gate_ = std::make_shared<CallbackGate>();
  std::unique_ptr<Member> member_;  // Set before the channel is used.

  // How the first attempt of the channel ended, or the first ones: see InsistsOnFirst().
  transport::WaitEvent first_attempt_done_;
  absl::Status first_attempt_;

  // ---- On the poller.
  transport::Uri uri_;
  transport::Security security_;
  std::shared_ptr<const Serving> offers_;
  absl::AnyInvocable<void()> on_gone_;
  std::shared_ptr<Attempt> attempt_;
  std::vector<std::unique_ptr<Link>> old_links_;  // Draining, or closing.
  int64_t ready_since_ns_ = 0;
  absl::Duration backoff_;
  int64_t failed_ns_ = 0;         // When the last attempt failed.
  int64_t insists_until_ns_ = 0;  // See InsistsOnFirst(). Here it takes no room of its own.
  transport::Timer retry_timer_;
  absl::Status refused_;            // The last of those attempts.
  absl::Status why_failed_;         // Why the last attempt failed. OK: it succeeded, or there was none.
  transport::Timer insists_timer_;  // Set from the first of those attempts on.
  std::optional<ChannelList::Entry> entry_;  // If it dials. Reads `queue_`.
  std::vector<std::pair<ChannelState, absl::Status>> news_;
  std::vector<absl::AnyInvocable<void()>> on_closed_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CHANNEL_CORE_H_
