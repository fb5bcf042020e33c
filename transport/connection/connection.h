#ifndef HAWSER_TRANSPORT_CONNECTION_CONNECTION_H_
#define HAWSER_TRANSPORT_CONNECTION_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/base/violation.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/connection/control.h"
#include "hawser/transport/connection/inbound.h"
#include "hawser/transport/connection/keepalive.h"
#include "hawser/transport/connection/outbound.h"
#include "hawser/transport/connection/port.h"
#include "hawser/transport/connection/prover.h"
#include "hawser/transport/connection/receive_ring.h"
#include "hawser/transport/connection/requester.h"
#include "hawser/transport/connection/responder.h"
#include "hawser/transport/connection/send_queue.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/poller/work_id.h"
#include "hawser/transport/security.h"
#include "hawser/transport/wire/exchange.h"
#include "hawser/transport/wire/handshake.h"
#include "hawser/transport/wire/message.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {

// Notifies the owner of a connection. Called on the poller; never from inside a call into the connection,
// except that Cancel() may call OnSlotFree().
class ConnectionObserver {
 public:
  virtual ~ConnectionObserver() = default;

  // The handshake is done: `peer` is what the other side sent. Called before the first request, if this side
  // answers requests.
  virtual void OnReady(const Handshake& peer) = 0;

  // Once, on a connection that this side has accepted: the peer has sent its first message. Until then it has
  // sent only its handshake.
  virtual void OnFirstMessage() {}

  // A request may be sent again, after SendRequest() had returned ResourceExhausted.
  virtual void OnSlotFree() {}

  // The peer has not answered a ping for half of ConnectionOptions::keepalive_timeout; `left` is the other
  // half, after which the connection ends. An observer that learns that the peer is only busy calls
  // PeerIsBusy().
  virtual void OnPeerSilent(absl::Duration left) { (void)left; }

  // The peer drains: it answers the requests it has, and refuses new ones.
  virtual void OnGoingAway() {}

  // Once, before OnClosed(): the connection cannot be used any more, and every handler of an exchange has
  // been notified of its end. The fabric may still own its memory, so use this only for what need not wait
  // for that, such as the next connection. `why`: as for OnClosed().
  virtual void OnLost(const absl::Status& why) { (void)why; }

  // Once, the last call: the fabric holds none of the connection's memory. It follows OnLost() as soon as all
  // work requests have completed; if they do not (a device or its driver is stuck), the queue pair is
  // destroyed after 5 s, over RDMA after 35 s. The poller destroys the connection soon after. `why`: what
  // ended it first; Cancelled after Close(). If OnReady() was not called before, connecting failed:
  // Unavailable; Unauthenticated, if TLS is asked for and one side does not trust the other; or
  // FailedPrecondition and the like with the peer's own reason.
  virtual void OnClosed(const absl::Status& why) = 0;
};

// A reliable connection to one peer: one QueuePair and its slots, each carrying one exchange at a time. One
// side sends the requests (Requester), the other answers them (Responder); control exchanges go both ways.
// Thread:   belongs to one Poller; call every method on it.
// Lifetime: owned by the Poller, destroyed in kClosed, when the fabric holds none of our buffers, or with its
//           poller.
// Failure:  the first error closes the connection, and every later call returns that error.
class Connection final : Port,
                         public fabric::ConnectionHandler,
                         Control::Source,
                         Keepalive::Source,
                         Prover::Client {
 public:
  enum class State : uint8_t { kConnecting, kReady, kDraining, kFlushing, kClosed, kImpossible };
  enum class Event : uint8_t { kEstablished, kDrainCalled, kExchangesDone, kFailed, kFlushed };
  // The whole life of a connection: kNext in connection.cc. kImpossible: only a bug of ours could cause this
  // event here.
  static State Next(State state, Event event);

  // Dials `address` as the side that sends requests, or, with `handler`, as the side that answers them (a
  // reverse connection). The observer is notified of the result within `connect_timeout`. If the fabric does
  // not carry the TLS that `security` asks for, a TLS connection proves this one first. Not OK: it did not
  // start.
  // Unimplemented: `security` does not say over what to prove it.
  static absl::StatusOr<Connection*> Dial(Poller& poller, const SocketAddress& address,
                                          const ConnectionOptions& options, const Handshake& hello,
                                          absl::Duration connect_timeout, ConnectionObserver& observer,
                                          RequestHandler* handler, const Security& security = {});

  // Answers a peer that an Acceptor has brought. `handler`: as for Dial(). Not OK: the peer was rejected with
  // the reason. If accepting fails later, the peer is rejected likewise, and the connection closes.
  static absl::StatusOr<Connection*> Accept(Poller& poller, PeerRequest request,
                                            const ConnectionOptions& options, const SessionToken& session,
                                            ConnectionObserver& observer, RequestHandler* handler);

  ~Connection() override;

  // ---- As the side that sends requests.

  // Sends `request`; `handler` is called with its end exactly once, at `deadline_ns` (of the poller's clock)
  // at the latest. OK means posted, not delivered: only the response proves delivery. `request` is moved from
  // only on OK; not OK: nothing was sent. ResourceExhausted: every slot is busy; try again from OnSlotFree().
  // InvalidArgument: larger than the peer takes, or this side sends. Unavailable: not ready, draining, or
  // failed.
  absl::StatusOr<ExchangeId> SendRequest(OutgoingMessagePtr& request, int64_t deadline_ns,
                                         ResponseHandler& handler);

  // Ends `id` with Cancelled, unless its handler was already called with its end, and notifies the peer. Has
  // no effect if it is late.
  void Cancel(ExchangeId id);

  // The peer has sent something since the handshake.
  bool heard() const override { return heard_; }
  // It has sent something that the poller, which has much to do, has yet to come to.
  bool has_unpolled() { return queue_pair().HasUnpolled(); }

  bool CanSend() const { return state_ == State::kReady && requester_ != nullptr && requester_->CanSend(); }

  // InvalidArgument: an option is out of its range.
  static absl::Status CheckOptions(const ConnectionOptions& options);

  // What keeps the slots busy, for an error: "all 32 slots are busy, ...".
  std::string DescribeSlots() const {
    return requester_ != nullptr ? requester_->DescribeSlots() : "not connected";
  }

  // ---- As the side that answers them.

  // Answers the request `id`. If the connection is gone, the response is dropped. InvalidArgument: larger
  // than the peer takes, or this side sends; answer with something else. ResourceExhausted: there is no
  // memory for it, or the peer's host holds its share for responses already (ResponseWatch); likewise.
  absl::Status Respond(ExchangeId id, OutgoingMessagePtr& response);

  // `id` is about to be answered while its handler still reads the request: the memory that it was READ into
  // counts against the peer's host as long as the result lives.
  HeldByHost DetachRequestMemory(ExchangeId id);

  // ---- Both.

  // Drains: allows no new requests (notifies a peer that sends them; SendRequest() fails) and closes once
  // every exchange has ended. A peer that has sent nothing yet is notified after 100 ms, or with its first
  // message. The side that answers gives a peer without an exchange half a second to leave, then disconnects.
  // While it connects: closes, or, if a peer that sends requests was accepted, drains once it is ready.
  void Drain();
  // From now on an end of this connection, without calls under way, is no loss: the peer ends it after
  // another one.
  void ExpectEnd() { end_is_expected_ = true; }
  // Ends everything now.
  void Close(const absl::Status& why = absl::CancelledError("closed by this side"));

  // The silent peer is alive: `how` says what keeps it busy, "its poller has been held for 7 s by the handler
  // of ...". The silence is counted anew; OnPeerSilent() is called again after a keepalive_timeout.
  void PeerIsBusy(absl::string_view how) { keepalive_.PeerIsBusy(how); }

  // Who the peer is, as TLS has found, or as it has proved, from OnReady() on; at the side that accepts, from
  // the start. Not authenticated: neither. Never null.
  const std::shared_ptr<const PeerIdentity>& peer_identity() const { return peer_identity_; }
  using Port::number;

  State state() const { return state_; }
  const char* StateName() const;  // "ready".
  using Port::agreed;
  using Port::peer;
  using Port::peer_is_busy;
  using Port::poller;
  using Port::why_closed;
  uint32_t exchanges_in_flight() const;
  uint32_t receives_posted() const { return receive_ring_.posted(); }
  // Of the agreed slots, those with which the peer may send requests now; and with these, those for which
  // receives wait for memory. 0 without a RequestHandler.
  uint32_t slots_given() const { return responder_ == nullptr ? 0 : responder_->credits().limit(); }
  uint32_t slots_wanted() const { return responder_ == nullptr ? 0 : responder_->credits().wanted(); }

  // ---- For tests.
  using Port::queue_pair;
  // Work requests, and grants, that are possible at once.
  uint32_t send_depth() const { return send_queue_.depth(); }
  Control& control() { return control_; }

 private:
  Connection(Poller& poller, const ConnectionOptions& options, ConnectionObserver& observer,
             RequestHandler* handler, uint32_t features);

  absl::Status Open(const Security& security);
  static absl::StatusOr<Connection*> Make(Poller& poller, const ConnectionOptions& options,
                                          ConnectionObserver& observer, RequestHandler* handler,
                                          uint32_t features, const Security& security);
  // Those of the fabric, without what `features` does not have.
  static uint32_t Features(Poller& poller, uint32_t features);
  absl::Status StartToProve(const Handshake& offer, absl::Duration connect_timeout, const Security& security);
  absl::Status Connect(absl::string_view hello);
  absl::StatusOr<Handshake> DecodeAnswer(absl::string_view private_data) const;
  void StopProving();
  void NamePeer(const SocketAddress& address);
  std::string Name() const;  // "connection 12 of tcp://10.0.0.7:51234", for the log.
  void Agree(const Handshake& peer);
  void Move(Event event);
  void OnMessage(Lease&& buffer, uint32_t length_bytes);
  // The usual message: a small request or response on a connection in use. False: it is another one.
  bool OnSmall(uint32_t receive, uint32_t length_bytes);
  // Of a response or a control message. False: the connection has failed.
  bool TakeCredits(const Header& header);
  void OnBadCompletion(const WorkId& id, fabric::CompletionStatus status);
  void OnStarved();
  void OnViolation(Violation violation);
  void Fail(const absl::Status& why);
  // Messages that an honest peer may send after everything that we have queued.
  uint32_t messages_that_may_come() const;
  // The same for the side that sends requests; 0 for the other, which needs it only when memory is short.
  uint32_t answers_that_may_come() const;
  void FlushAll();
  void CloseIfDrained();
  // Gives a client that has no call kLeaves from now on, while this side drains.
  void AwaitLeave();
  void OnLeaveTimer();
  // In kFlushing: sets the timer for the flush, or for the cause of the loss.
  void AwaitFlush();
  void OnFlushTimer();
  // Sets loss_: the connection fails because of `why`.
  void NoteLoss(const absl::Status& why);
  void NotifyLost();
  void CloseIfFlushed();

  // PollerClient
  void OnCompletion(const WorkId& id, const fabric::Completion& completion) override;
  void Flush() override;
  void FlushIfLong() override;
  void Disconnect() override;

  // Port
  using Port::Fail;
  void Fail(Violation violation, absl::string_view what, absl::StatusCode code) override;
  void Fail(absl::StatusCode code, absl::string_view what) override;
  void OnExchangeEnded() override;
  void OnCredits() override;
  void OnReceivesFilled() override;
  void OnBulkTransfer() override;

  // Control::Source
  std::optional<ControlOp> NextControlOp() override;
  bool HasCreditsToTell() const override;
  uint16_t AdvertiseCredits() override;
  void OnControlOp(const ControlOp& op) override;

  // Keepalive::Source
  bool waits_for_first_answer() const override {
    return !heard_ && requester_ != nullptr && requester_->in_flight() != 0;
  }
  // A client that has sent nothing yet to the server that it has dialed.
  bool awaits_first_message() const override { return accepted_ && !heard_ && responder_ != nullptr; }
  bool is_idle() const override { return exchanges_in_flight() == 0; }
  void OnPeerSilent(absl::Duration left) override { observer_.OnPeerSilent(left); }
  void OnInterval() override;

  // Prover::Client
  void OnProof(absl::StatusOr<Prover::Result> result) override;

  // fabric::ConnectionHandler
  void OnEstablished(absl::string_view private_data) override;
  std::string OnAcceptFailed(const absl::Status& why) override;
  void OnConnectFailed(const absl::Status& why, absl::string_view private_data) override;
  void OnDisconnected(const absl::Status& why) override;

  ConnectionObserver& observer_;
  RequestHandler* const handler_;  // Null: this side sends the requests.
  const uint32_t features_;        // That this side has offered, or agrees to.
  Handshake peer_hello_;           // At the side that dials, until it is answered: the role that it offered.
  // While this side dials what TLS over TCP proves.
  struct Proving {
    Handshake offer;
    std::shared_ptr<Prover> prover;
    // Once there is a proof:
    Prover::Result result;
    std::string connect;  // What was sent.
  };
  std::unique_ptr<Proving> proving_;
  bool proves_ = false;  // An answer without a code is not accepted.
  std::shared_ptr<const PeerIdentity> peer_identity_ = OrNotAuthenticated(nullptr);
  State state_ = State::kConnecting;
  absl::Status seen_flushed_;     // Not OK: receives were flushed, and the cause is not known yet.
  bool closed_here_ = false;      // By Close(), not by a failure.
  bool end_is_expected_ = false;  // ExpectEnd().
  std::string loss_;              // For the log: what was lost. Empty: there is nothing to log.
  bool accepted_ = false;         // The peer dialed.
  bool ready_ = false;            // OnReady() was called.
  bool drains_when_ready_ = false;
  bool told_lost_ = false;                         // OnLost() was called.
  bool forced_ = false;                            // QueuePair::ForceFlush() was called.
  std::vector<std::pair<Lease, uint32_t>> early_;  // Received before the handshake's end was known here.
  bool heard_ = false;
  SendQueue send_queue_;
  Outbounds outbounds_;
  ReceiveRing receive_ring_;
  Inbounds inbounds_;
  Control control_;
  Keepalive keepalive_;
  std::unique_ptr<Requester> requester_;  // One of these two.
  std::unique_ptr<Responder> responder_;
  Timer connect_timer_;
  Timer starved_timer_;     // Sends wait for memory for receives.
  Timer going_away_timer_;  // Drains, and waits for a first message before it says so.
  Timer leave_timer_;       // Drains, and waits for a client without a call to leave.
  Timer flush_timer_;       // In kFlushing.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_CONNECTION_H_
