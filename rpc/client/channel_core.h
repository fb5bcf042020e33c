#ifndef HAWSER_RPC_CLIENT_CHANNEL_CORE_H_
#define HAWSER_RPC_CLIENT_CHANNEL_CORE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/base/fork.h"
#include "hawser/base/mutex.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/client/attempt.h"
#include "hawser/rpc/client/call_pool.h"
#include "hawser/rpc/client/call_queue.h"
#include "hawser/rpc/client/channel_list.h"
#include "hawser/rpc/client/channel_state.h"
#include "hawser/rpc/client/link.h"
#include "hawser/rpc/client/outgoing_calls.h"
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
// Link to the peer, and sends calls over it, or queues them until there is one.
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
class ChannelCore final : public std::enable_shared_from_this<ChannelCore>, Link::Observer, Attempt::Owner {
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
  // Soon, unless a call is in use by then.
  void CloseIfIdle();
  // With all connections of its channel.
  void CloseChannel(const absl::Status& why);
  void OnClosed(absl::AnyInvocable<void()> callback);
  // It has a Channel, which ends with OnChannelDestroyed().
  void OnChannelCreated();
  // Its Channel is being destroyed: see Channel::Close().
  void OnChannelDestroyed();
  absl::StatusOr<Buffer> AllocateBuffer(size_t size_bytes);

  ChannelState state() const { return state_.load(std::memory_order_acquire); }
  // Of its channel, which may have several connections.
  ChannelState channel_state() const;
  const std::string& peer_address() const { return peer_address_; }
  // See Channel::peer_identity(). Never null. Not in a child after fork().
  std::shared_ptr<const PeerIdentity> peer_identity() const;
  std::shared_ptr<const PeerIdentity> channel_peer_identity() const;
  transport::Poller& poller() { return poller_; }
  const std::shared_ptr<transport::Runtime>& runtime() const { return runtime_; }
  CallPool& calls() { return calls_; }
  const ReadLimits& read_limits() const { return options_.read; }
  const Interceptors& interceptors() const { return options_.interceptors; }
  bool intercepts() const { return intercepts_; }
  int64_t default_timeout_ns() const { return default_timeout_ns_; }
  // False: this is a child after fork(), or the channel has several connections, and group() chooses that of
  // each call.
  bool takes_new_calls() const { return !takes_none_.in_child(); }
  // Null: it is the only connection of its channel.
  ConnectionGroup* group() const { return member_ == nullptr ? nullptr : member_->group.get(); }
  // That were made and have not been returned: a hint, for the choice of a connection.
  size_t calls_in_use() const { return calls_.in_use(); }

  // ---- On the poller, for its calls.

  // It dials again when its connection is lost, or the server goes away.
  bool reconnects() const { return dials_ && !closed(); }
  // The server of `connection` has refused a call without running it: it is going away.
  void OnCallNotRun(transport::Connection& connection);

  bool closed() const { return state_.load(std::memory_order_relaxed) == ChannelState::kClosed; }
  const absl::Status& why_closed() const { return why_closed_; }
  // Sends `call`, queues it, or ends it.
  void Start(UntypedCall& call);
  // `call` was sent and will be again, once OnRequestReturned() has brought its request.
  void AwaitRequest(UntypedCall& call);
  // Removes `call` from the queue that it waits in.
  void Forget(UntypedCall& call);
  // A call that began at `begun_ns` has its result.
  void CountEnd(const Method& method, absl::StatusCode code, int64_t begun_ns) {
    // What begins and ends in one turn may begin after the turn's own time.
    if (outgoing_) outgoing_->Add(method, code, std::max<int64_t>(poller_.now_ns() - begun_ns, 0));
  }
  // Calls call.HandOver() in the next turn of the thread that drives.
  void HandOverSoon(UntypedCall& call);

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
  // Only if the link can send. False: it turned out to be lost.
  bool TrySend(UntypedCall& call);
  // It could not be sent, because of `why`. False: another connection can send it.
  [[gnu::noinline, gnu::cold]] bool EndUnsent(UntypedCall& call, const absl::Status& why);
  // False: it is to be queued.
  [[gnu::noinline, gnu::cold]] bool StartWhileNotReady(UntypedCall& call);
  // Has another connection of the channel, one that is ready, carry the request. False: there is none.
  bool SendBeside(UntypedCall& call);
  void FailQueued();
  void OnFirstAttempt(const absl::Status& why);
  void OnFirstAttemptsTimeout();
  // Why Connect() does not wait any longer.
  absl::Status HeldUp(const transport::CalledOut::Call& by) const;
  void CloseOnceIdle();
  void Pump();
  void Lose(Link& link, const absl::Status& why);
  // Connections that a server has asked to leave stay open until their calls have ended, at most so many.
  void CloseOldestLinks();
  void CloseNow(const absl::Status& why);
  void SetPeerIdentity(std::shared_ptr<const PeerIdentity> identity);
  void Move(ChannelEvent event, const absl::Status& why);
  void ScheduleNotify();
  void Notify();
  bool HandOverSome();
  void ReleaseSelf();

  // Attempt::Owner
  void OnAttemptConnected(std::unique_ptr<Link> link) override;
  void OnAttemptFailed(const absl::Status& why) override;
  void Retire(std::unique_ptr<Link> link) override;

  // Link::Observer
  void OnLinkReady(Link& link) override;
  void OnLinkSlotFree(Link& link) override;
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

  std::shared_ptr<transport::Runtime> runtime_;
  transport::Poller& poller_;
  const std::string peer_address_;
  const ChannelOptions options_;
  const int64_t default_timeout_ns_;
  const bool intercepts_;
  // Used on the poller; here they take no room of their own.
  bool dials_ = false;              // False: the peer dialed the connection, and there will be no other.
  bool is_null_ = false;            // WithoutConnection().
  bool had_first_attempt_ = false;  // Of this connection.
  std::atomic<ChannelState> state_{ChannelState::kConnecting};
  // For on_state_change and the offered services. Closed with the Channel.
  const std::shared_ptr<CallbackGate> gate_ = std::make_shared<CallbackGate>();
  CallPool calls_;
  // Set before the channel is used. One test finds both a fork and a group: see takes_new_calls().
  ForkMark takes_none_;
  std::unique_ptr<Member> member_;
  mutable Mutex identity_mutex_;
  std::shared_ptr<const PeerIdentity> peer_identity_ ABSL_GUARDED_BY(identity_mutex_) =
      transport::OrNotAuthenticated(nullptr);

  // How the first attempt of the channel ended, or the first ones: see InsistsOnFirst().
  transport::WaitEvent first_attempt_done_;
  absl::Status first_attempt_;

  // ---- On the poller.
  transport::Uri uri_;
  transport::Security security_;
  std::shared_ptr<const Serving> offers_;
  absl::AnyInvocable<void()> on_gone_;
  std::shared_ptr<ChannelCore> self_;
  std::shared_ptr<Attempt> attempt_;
  std::unique_ptr<Link> link_;                    // Carries new calls.
  std::vector<std::unique_ptr<Link>> old_links_;  // Draining, or closing.
  int64_t ready_since_ns_ = 0;
  absl::Duration backoff_;
  int64_t failed_ns_ = 0;  // When the last attempt failed. Here it takes no room of its own.
  transport::Timer retry_timer_;
  int64_t insists_until_ns_ = 0;    // See InsistsOnFirst().
  absl::Status refused_;            // The last of those attempts.
  transport::Timer insists_timer_;  // Set from the first of them on.
  absl::Status why_failed_;         // Why the last attempt failed. OK: it succeeded, or there was none.
  absl::Status why_closed_;

  CallQueue queue_;                          // To be sent.
  CallQueue awaiting_;                       // To be sent again, once their requests are back.
  std::optional<ChannelList::Entry> entry_;  // If it dials. Reads `queue_`.
  OutgoingCalls::Counting outgoing_;         // Empty: WithoutConnection().
  UntypedCall* ended_first_ = nullptr;       // To be handed over, in this order.
  UntypedCall* ended_last_ = nullptr;
  std::vector<std::pair<ChannelState, absl::Status>> news_;
  std::vector<absl::AnyInvocable<void()>> on_closed_;
  transport::Timer notify_timer_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CHANNEL_CORE_H_
