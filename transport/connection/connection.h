#ifndef HAWSER_TRANSPORT_CONNECTION_CONNECTION_H_
#define HAWSER_TRANSPORT_CONNECTION_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hawser/base/violation.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/connection/connection_observer.h"
#include "hawser/transport/connection/connection_parts.h"
#include "hawser/transport/connection/connection_state.h"
#include "hawser/transport/connection/control.h"
#include "hawser/transport/connection/ending.h"
#include "hawser/transport/connection/keepalive.h"
#include "hawser/transport/connection/opening.h"
#include "hawser/transport/connection/port.h"
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

// A reliable connection to one peer: one QueuePair and its slots, each carrying one exchange at a time. One
// side sends the requests (Requester), the other answers them (Responder); control exchanges go both ways.
// Here is what it is asked, what its messages and the ends of its turns lead to; its Opening brings it to
// that, its Ending ends it.
// Thread:   belongs to one Poller; call every method on it.
// Lifetime: owned by the Poller, destroyed in kClosed, when the fabric holds none of our buffers, or with its
//           poller.
// Failure:  the first error closes the connection, and every later call returns that error.
class Connection final : Port, public fabric::ConnectionHandler, Control::Source, Keepalive::Source {
 public:
  using State = ConnectionState::State;
  using Event = ConnectionState::Event;

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
  // at the latest. OK means posted, not delivered: only the response proves delivery. Not OK: nothing was
  // sent, and `request` is as it was, or null if the connection keeps it until what it had granted of it is
  // revoked. ResourceExhausted: every slot is busy; try again from OnSlotFree().
  // InvalidArgument: larger than the peer takes, or this side sends. Unavailable: not ready, draining, or
  // failed.
  absl::StatusOr<ExchangeId> SendRequest(OutgoingMessagePtr& request, int64_t deadline_ns,
                                         ResponseHandler& handler);

  // Ends `id` with Cancelled, unless its handler was already called with its end, and notifies the peer. Has
  // no effect if it is late.
  void Cancel(ExchangeId id);

  // The peer has sent something since the handshake.
  bool has_received() const override { return has_received_; }
  // It has sent something that the poller, which has much to do, has yet to come to.
  bool has_unpolled() { return queue_pair().HasUnpolled(); }

  bool CanSend() const {
    return state_ == State::kReady && parts_.requester != nullptr && parts_.requester->CanSend();
  }

  // InvalidArgument: an option is out of its range.
  static absl::Status CheckOptions(const ConnectionOptions& options) {
    return Opening::CheckOptions(options);
  }

  // What keeps the slots busy, for an error: "all 32 slots are busy, ...".
  std::string DescribeSlots() const { return parts_.DescribeSlots(); }

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
  void ExpectEnd() { ending_.ExpectEnd(); }
  // Ends everything now.
  void Close(const absl::Status& why = absl::CancelledError("closed by this side"));

  // The silent peer is alive: `how` says what keeps it busy, "its poller has been held for 7 s by the handler
  // of ...". The silence is counted anew; OnPeerSilent() is called again after a keepalive_timeout.
  void PeerIsBusy(absl::string_view how) { parts_.keepalive.PeerIsBusy(how); }

  using Port::number;

  // When something has come from the peer or its NIC last; from OnReady() on.
  int64_t last_receive_ns() const override { return parts_.keepalive.last_receive_ns(); }

  // Who the peer is, as TLS has found, or as it has proved, from OnReady() on; at the side that accepts, from
  // the start. Not authenticated: neither. Never null.
  using Port::peer_identity;

  using Port::state;
  const char* StateName() const { return ConnectionState::Name(state_); }  // "ready".
  using Port::agreed;
  using Port::DescribeSilence, Port::peer_is_busy;
  using Port::peer;
  using Port::poller;
  using Port::why_closed;
  uint32_t exchanges_in_flight() const { return parts_.exchanges_in_flight(); }
  uint32_t receives_posted() const { return parts_.receive_ring.posted(); }
  // Of the agreed slots, those with which the peer may send requests now; and with these, those for which
  // receives wait for memory. 0 without a RequestHandler.
  uint32_t slots_given() const { return parts_.slots_given(); }
  uint32_t slots_wanted() const { return parts_.slots_wanted(); }

  // ---- For tests.
  using Port::queue_pair;
  // Work requests, and grants, that are possible at once.
  uint32_t send_depth() const { return parts_.send_queue.depth(); }
  Control& control() { return parts_.control; }

 private:
  Connection(Poller& poller, const ConnectionOptions& options, ConnectionObserver& observer,
             RequestHandler* handler, uint32_t features);

  static absl::StatusOr<Connection*> Make(Poller& poller, const ConnectionOptions& options,
                                          ConnectionObserver& observer, RequestHandler* handler,
                                          uint32_t features, const Security& security);
  bool is_ready() const { return opening_ == nullptr; }
  absl::Status WhyNotReady() const;
  void OnMessage(Lease&& buffer, uint32_t length_bytes);
  // The usual message (usual_in.cc): a small request or response on a connection in use. `receive`: which it
  // has completed, or kNoReceive. False: it is another one, and nothing was done.
  bool TakeUsual(const uint8_t* data, size_t length_bytes, uint32_t receive);
  bool TakeFromRing(uint32_t receive, uint32_t length_bytes);
  // Of a response or a control message. False: the connection has failed.
  bool TakeCredits(const Header& header);
  void OnStarved();
  void FlushAll();
  [[gnu::noinline, gnu::cold]] void OnPostFailed(const absl::Status& status);

  // PollerClient
  void OnCompletion(const WorkId& id, const fabric::Completion& completion) override;
  void Flush() override;
  void FlushIfLong() override;
  void Disconnect() override;

  // Port
  using Port::Fail;
  void Fail(const absl::Status& why) override;
  void OnExchangeEnded() override {
    ending_.OnExchangeEnded();
    if (parts_.requester != nullptr) OnCredits();
  }
  void OnCredits() override {
    if (state_ == State::kReady) observer_.OnSlotFree();
  }
  void OnReceivesFilled() override {
    if (starved_timer_.is_set()) [[unlikely]]
      poller_.timers().Cancel(starved_timer_);
  }
  void OnBulkTransfer() override;

  // Control::Source
  std::optional<ControlOp> NextControlOp() override { return parts_.NextControlOp(); }
  bool HasCreditsToAdvertise() const override { return parts_.HasCreditsToAdvertise(); }
  uint16_t AdvertiseCredits() override { return parts_.AdvertiseCredits(); }
  void OnControlOp(const ControlOp& op) override;

  // Keepalive::Source
  bool waits_for_first_answer() const override { return !has_received_ && parts_.requests_in_flight() != 0; }
  // A client that has sent nothing yet to the server that it has dialed.
  bool awaits_first_message() const override {
    return accepted_ && !has_received_ && parts_.responder != nullptr;
  }
  bool is_idle() const override { return parts_.exchanges_in_flight() == 0; }
  void OnPeerSilent(absl::Duration left) override { observer_.OnPeerSilent(left); }
  void OnInterval() override;

  // fabric::ConnectionHandler
  bool TakeSend(absl::Span<const uint8_t> message) override;
  void OnEstablished(absl::string_view private_data) override;
  std::string OnAcceptFailed(const absl::Status& why) override;
  void OnConnectFailed(const absl::Status& why, absl::string_view private_data) override;
  void OnDisconnected(const absl::Status& why) override;

  ConnectionObserver& observer_;
  bool has_received_ = false;
  ConnectionParts parts_;
  Ending ending_;
  std::unique_ptr<Opening> opening_;  // Null: OnReady() was called.
  Timer starved_timer_;               // Sends wait for memory for receives.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_CONNECTION_H_
