#ifndef HAWSER_RPC_CLIENT_CHANNEL_CORE_H_
#define HAWSER_RPC_CLIENT_CHANNEL_CORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/client/attempt.h"
#include "hawser/rpc/client/call_sender.h"
#include "hawser/rpc/client/channel_list.h"
#include "hawser/rpc/client/channel_news.h"
#include "hawser/rpc/client/channel_setup.h"
#include "hawser/rpc/client/channel_state.h"
#include "hawser/rpc/client/first_attempt.h"
#include "hawser/rpc/client/link.h"
#include "hawser/rpc/client/redial.h"
#include "hawser/rpc/client/retired_links.h"
#include "hawser/rpc/client/untyped_call.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/wire/no_channel.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/security.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {

class ConnectionGroup;
struct GroupMember;

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
  // Dials, again and again. `insists`: see FirstAttempt. With several connections it returns the first one.
  static std::shared_ptr<ChannelCore> Create(const ChannelSetup& setup, bool insists);

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
  absl::Status WaitForFirstAttempt() {
    return first_attempt_.Wait(poller_, options_.connect_timeout, peer_address_);
  }
  FirstAttempt& first_attempt() { return first_attempt_; }
  absl::Duration connect_timeout() const { return options_.connect_timeout; }
  void Close(const absl::Status& why);
  // With all connections of its channel.
  void CloseChannel(const absl::Status& why);
  void OnClosed(absl::AnyInvocable<void()> callback);
  // It has a Channel, which ends with OnChannelDestroyed().
  void OnChannelCreated();
  // Its Channel is being destroyed: see Channel::Close().
  void OnChannelDestroyed();

  // Of its channel, which may have several connections.
  ChannelState channel_state() const;
  std::shared_ptr<const PeerIdentity> channel_peer_identity() const;
  // Null: it is the only connection of its channel.
  ConnectionGroup* group() const;

  // ---- On the poller, for its group.

  // The first attempt of the channel has ended, or is not waited for any more.
  void EndFirstAttempt(const absl::Status& why);
  void NotifyGroupNews();
  // Another connection is ready. Unless this one is, it sends the calls that wait here.
  void Redeal();
  // If no connection is ready, nor in its first attempt: calls that do not wait for longer fail, unless this
  // one is trying.
  void FailQueuedWithoutHope();
  // For its GroupMember.
  void OnFirstAttemptsTimeout();

 private:
  friend class LaneAccess;

  ChannelCore(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
              std::string peer_address, ChannelOptions options);

  std::shared_ptr<ChannelCore> Self() { return std::static_pointer_cast<ChannelCore>(shared_from_this()); }
  // The channel is made. On the poller.
  void StartDialing(bool insists);
  // See ConnectionGroup::hopeful(). Alone: false.
  bool hopeful() const;
  // Unless this is closed.
  void Connect();
  void ConnectLater();
  // For a call whose deadline passed before it was sent.
  std::string WhyUnsent();
  void OnRetryTimer();
  // Has another connection of the channel, one that is ready, carry the request. False: there is none.
  bool SendBeside(UntypedCall& call);
  void OnFirstAttempt(const absl::Status& why);
  void CloseOnceIdle();
  void Lose(Link& link, const absl::Status& why);
  void CloseNow(const absl::Status& why);
  void Move(ChannelEvent event, const absl::Status& why);
  void Notify();
  void ReleaseSelf();

  // CallSender
  const std::shared_ptr<CallSender>& ForNewCall() override;
  void CloseIfIdle() override;
  void OnCallNotRun(transport::Connection& connection) override;
  [[gnu::cold]] bool StartWhileNotReady(UntypedCall& call) override;
  [[gnu::cold]] void EndCarried(UntypedCall& call, absl::StatusCode code, absl::string_view why) override;
  [[gnu::cold]] void OnCarrierEnd(UntypedCall& carrier) override;
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

  // Null: it is the only connection; it does without the 300 bytes. Set before the channel is used.
  std::unique_ptr<GroupMember> member_;
  // Whose tail has room for what follows; so has that of `redial_`.
  [[no_unique_address]] FirstAttempt first_attempt_;

  // ---- On the poller.
  ChannelNews news_;
  transport::Uri uri_;
  transport::Security security_;
  std::shared_ptr<const Serving> offers_;
  absl::AnyInvocable<void()> on_gone_;
  std::shared_ptr<Attempt> attempt_;
  [[no_unique_address]] Redial redial_;
  RetiredLinks retired_;
  std::optional<ChannelList::Entry> entry_;  // If it dials. Reads `queue_`.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CHANNEL_CORE_H_
