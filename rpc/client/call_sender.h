#ifndef HAWSER_RPC_CLIENT_CALL_SENDER_H_
#define HAWSER_RPC_CLIENT_CALL_SENDER_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "hawser/base/fork.h"
#include "hawser/base/mutex.h"
#include "hawser/rpc/client/call_pool.h"
#include "hawser/rpc/client/call_queue.h"
#include "hawser/rpc/client/link.h"
#include "hawser/rpc/client/outgoing_calls.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/options.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/security.h"

namespace hawser::internal {

class UntypedCall;

// What a call knows of its channel, or of its one of several connections: where it comes from, what sends it,
// and where it waits. ChannelCore adds how the link comes to be, and what becomes of calls without one.
// What every call does is not virtual.
// Thread:   as said for each method.
// Lifetime: as of ChannelCore.
class CallSender : protected Link::Observer, public std::enable_shared_from_this<CallSender> {
 public:
  CallSender(const CallSender&) = delete;
  CallSender& operator=(const CallSender&) = delete;

  // ---- From any thread, for new calls.

  // False: this is a child after fork(), or the channel has several connections, and each call goes to
  // ForNewCall().
  bool takes_new_calls() const { return !takes_none_.in_child(); }
  // With several connections: the one for a call. Otherwise do not call it.
  virtual const std::shared_ptr<CallSender>& ForNewCall() = 0;
  CallPool& calls() { return calls_; }
  // That were made and have not been returned: a hint, for the choice of a connection.
  size_t calls_in_use() const { return calls_.in_use(); }
  // Soon, unless a call is in use by then.
  virtual void CloseIfIdle() = 0;

  ChannelState state() const { return state_.load(std::memory_order_acquire); }
  const std::string& peer_address() const { return peer_address_; }
  // See Channel::peer_identity(). Never null. Not in a child after fork().
  std::shared_ptr<const PeerIdentity> peer_identity() const;
  // OK: it is ready, or its first attempt has not ended. Otherwise why not. Not in a child after fork().
  absl::Status why_not_ready() const;
  transport::Poller& poller() { return poller_; }
  const std::shared_ptr<transport::Runtime>& runtime() const { return runtime_; }
  const ReadLimits& read_limits() const { return options_.read; }
  const Interceptors& interceptors() const { return options_.interceptors; }
  bool intercepts() const { return intercepts_; }
  int64_t default_timeout_ns() const { return default_timeout_ns_; }

  // ---- On the poller, for its calls.

  // It dials again when its connection is lost, or the server goes away.
  bool reconnects() const { return dials_ && !closed(); }
  // The server of `connection` has refused a call without running it: it is going away.
  virtual void OnCallNotRun(transport::Connection& connection) = 0;

  // ChannelCore::WithoutConnection(): nothing is sent. From any thread.
  bool is_null() const { return is_null_; }
  bool closed() const { return state_.load(std::memory_order_relaxed) == ChannelState::kClosed; }
  const absl::Status& why_closed() const { return why_closed_; }
  // Sends `call`, queues it, or ends it.
  void Start(UntypedCall& call);
  // The same for a call that is new.
  void StartNew(UntypedCall& call);
  // `call` was sent and will be again, once OnRequestReturned() has brought its request.
  void AwaitRequest(UntypedCall& call);
  // Removes `call` from the queue that it waits in.
  void Forget(UntypedCall& call);
  // A call that began at `begun_ns` has its result.
  void CountEnd(const Method& method, absl::StatusCode code, int64_t begun_ns) {
    // What begins and ends in one turn may begin after the turn's own time.
    if (outgoing_) outgoing_->Add(method, code, std::max<int64_t>(poller_.now_ns() - begun_ns, 0));
  }
  // `call`, which another connection carries, ends without the result of that.
  virtual void EndCarried(UntypedCall& call, absl::StatusCode code, absl::string_view why) = 0;
  // `carrier`, which carries a call of another connection, has its result.
  virtual void OnCarrierEnd(UntypedCall& carrier) = 0;
  // Calls call.HandOver() in the next turn of the thread that drives.
  void HandOverSoon(UntypedCall& call);

 protected:
  // `on_unsent`: the deadline of a call passed while it waited to be sent. `notify`: see ScheduleNotify().
  CallSender(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller, std::string peer_address,
             ChannelOptions options, absl::AnyInvocable<void(UntypedCall&)> on_unsent,
             absl::AnyInvocable<void()> notify);
  ~CallSender();

  // Sends those that wait, as far as there are slots.
  [[gnu::noinline]] void Pump();
  // Has the first `most` calls that wait try once more. False: there are others.
  bool StartQueued(int most);
  // For a call that was to be sent after the channel was closed.
  absl::Status WhyClosed(const UntypedCall& call) const;
  // Ends those that wait.
  void EndQueued(const absl::Status& why);
  // Runs `notify` in the next turn of the thread that drives. Keeps this until that releases `self_`.
  void ScheduleNotify();
  // For `notify`: true: none is left.
  bool HandOverSome();
  void SetPeerIdentity(std::shared_ptr<const PeerIdentity> identity);
  void SetWhyNotReady(const absl::Status& why);

  // Link::Observer
  void OnLinkSlotFree(Link& link) final;

  const std::shared_ptr<transport::Runtime> runtime_;
  transport::Poller& poller_;
  const std::string peer_address_;
  const ChannelOptions options_;
  const int64_t default_timeout_ns_;
  const bool intercepts_;
  // Used on the poller; here they take no room of their own.
  bool dials_ = false;    // False: the peer dialed the connection, and there will be no other.
  bool is_null_ = false;  // Set before it is used.
  std::atomic<ChannelState> state_{ChannelState::kConnecting};
  CallPool calls_;
  // Set before the channel is used. One test finds both a fork and a group: see takes_new_calls().
  ForkMark takes_none_;
  mutable Mutex shown_mutex_;
  std::shared_ptr<const PeerIdentity> peer_identity_ ABSL_GUARDED_BY(shown_mutex_) =
      transport::OrNotAuthenticated(nullptr);
  absl::Status why_not_ready_ ABSL_GUARDED_BY(shown_mutex_);

  // ---- On the poller.
  std::shared_ptr<CallSender> self_;
  std::unique_ptr<Link> link_;  // Carries new calls.
  absl::Status why_closed_;
  CallQueue queue_;     // To be sent.
  CallQueue awaiting_;  // To be sent again, once their requests are back.
  transport::Timer notify_timer_;
  OutgoingCalls::Counting outgoing_;  // Empty: ChannelCore::WithoutConnection().

 private:
  // For a call that found no link, or a queue. False: it is to be queued.
  virtual bool StartWhileNotReady(UntypedCall& call) = 0;
  // `call` is in kCarried.
  virtual void ForgetCarried(UntypedCall& call) = 0;
  // Only if the link can send. False: it turned out to be lost. `stage`: of the call.
  bool TrySend(UntypedCall& call, CallStage::State stage);
  // It could not be sent, because of `why`. False: another connection can send it.
  [[gnu::noinline, gnu::cold]] bool EndUnsent(UntypedCall& call, const absl::Status& why);

  UntypedCall* ended_first_ = nullptr;  // To be handed over, in this order.
  UntypedCall* ended_last_ = nullptr;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CALL_SENDER_H_
