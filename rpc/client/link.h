#ifndef HAWSER_RPC_CLIENT_LINK_H_
#define HAWSER_RPC_CLIENT_LINK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "hawser/rpc/client/session_probe.h"
#include "hawser/rpc/serving/serving_connection.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/security.h"

namespace hawser::internal {

// The connections of a channel: a forward connection for its calls and, if the client offers services, the
// reverse connection of the same session. When one is lost, the other is closed, because a client without its
// reverse connection would wait for ever for the server's calls. When one is silent, the link asks the server
// whether the session's poller is only busy; if so, both stay.
// Thread:   on the poller.
// Lifetime: its owner keeps it until OnLinkEnded().
class Link final : transport::ConnectionObserver, ServingConnection::Owner, SessionProbe::Owner {
 public:
  class Observer {
   public:
    // Once: both connections are up.
    virtual void OnLinkReady(Link& link) = 0;
    virtual void OnLinkSlotFree(Link& link) { (void)link; }
    // The server refuses new calls, and answers those that it has.
    virtual void OnLinkGoingAway(Link& link) { (void)link; }
    // Once: one of the connections is lost, or failed to connect; the other one is being closed. Their calls
    // have ended. The fabric may still own their memory.
    virtual void OnLinkLost(Link& link, const absl::Status& why) = 0;
    // Once, the last call: nothing uses the link any more. The observer may destroy it here.
    virtual void OnLinkEnded(Link& link) = 0;

   protected:
    ~Observer() = default;
  };

  // `poller` is of `runtime`.
  // `security`: of each connection that it dials.
  Link(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
       const transport::ConnectionOptions& options, transport::Security security, Observer& observer);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Call one of these, once. Not OK: it did not start, and the observer is not called.

  // `give_up_after`: for both connections together. `offers`: the services of the reverse connection; null:
  // there is no reverse connection.
  absl::Status Dial(const SocketAddress& address, absl::Duration give_up_after,
                    std::shared_ptr<const Serving> offers);
  // Accepts the reverse connection that a client has dialed: at this end it carries calls.
  absl::Status Accept(transport::PeerRequest request, const transport::SessionToken& session);

  // The peer of both connections, once OnLinkReady() was called. Never null.
  const std::shared_ptr<const PeerIdentity>& peer_identity() const { return peer_identity_; }

  // What it has dialed, and the session once it is ready: for further connections of it.
  const SocketAddress& address() const { return address_; }
  const transport::SessionToken& session() const { return session_; }

  void set_observer(Observer& observer) { observer_ = &observer; }

  bool CanSend() const { return ready_ && forward_ != nullptr && forward_->CanSend(); }
  // Only if CanSend().
  transport::Connection& forward() { return *forward_; }
  // For the text of an error: as Connection::DescribeSilence().
  std::string DescribeSilence(int64_t heard_ns = 0) const;
  bool Carries(const transport::Connection& connection) const { return forward_ == &connection; }
  // The peer has sent something since the handshake.
  bool has_received() const { return forward_ != nullptr && forward_->has_received(); }
  // Takes no new calls, and closes after the last one.
  void Drain();
  void Close(const absl::Status& why);
  // It is lost, or closed: OnLinkEnded() follows soon.
  bool closing() const { return down_ || closed_; }

 private:
  // transport::ConnectionObserver, of the forward connection.
  void OnReady(const transport::Handshake& peer) override;
  void OnSlotFree() override { observer_->OnLinkSlotFree(*this); }
  void OnGoingAway() override { observer_->OnLinkGoingAway(*this); }
  void OnPeerSilent(absl::Duration left) override;
  void OnLost(const absl::Status& why) override { Down(why); }
  void OnClosed(const absl::Status& why) override;

  // ServingConnection::Owner, of the reverse one.
  void OnServingReady() override;
  void OnServingPeerSilent(absl::Duration left) override { OnPeerSilent(left); }
  void OnServingLost(const absl::Status& why) override;
  void OnServingClosed(const absl::Status&) override {}
  void OnServingEnded() override;

  // SessionProbe::Owner
  void OnProbeAnswer(const absl::Status& answer) override;
  void OnProbeEnded() override;

  absl::Status DialReverse(const transport::SessionToken& session);
  void BecomeReady();
  void Down(const absl::Status& why);
  void CheckGone();

  const std::shared_ptr<transport::Runtime> runtime_;
  transport::Poller& poller_;
  const transport::ConnectionOptions options_;
  const transport::Security security_;
  Observer* observer_;
  std::shared_ptr<const PeerIdentity> peer_identity_ = transport::OrNotAuthenticated(nullptr);
  transport::Connection* forward_ = nullptr;
  std::unique_ptr<ServingConnection> reverse_;
  std::unique_ptr<ServingCounters> reverse_counters_;  // With services.
  std::unique_ptr<SessionProbe> probe_;
  bool dialed_ = false;                   // Not accepted.
  transport::SessionToken session_ = {};  // Once ready, if it was dialed.
  SocketAddress address_;
  int64_t give_up_ns_ = 0;
  std::shared_ptr<const Serving> offers_;
  bool ready_ = false;
  bool down_ = false;
  bool closed_ = false;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_LINK_H_
