#include "hawser/transport/connection/connection.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace hawser::transport {
namespace {

absl::Status WhyRejected(absl::string_view peer, absl::string_view private_data) {
  const absl::Status reason = DecodeRejection(private_data);
  return absl::Status(reason.code(), absl::StrCat("connect to ", peer, ": ", reason.message()));
}

absl::Status NoMemoryForReceives(absl::Duration waited) {
  return absl::ResourceExhaustedError(absl::StrCat("no memory for the receives of this connection for ",
                                                   absl::FormatDuration(waited),
                                                   ": what keeps requests or buffers has to release some, or "
                                                   "BufferPoolOptions::limit_bytes be raised there"));
}

}  // namespace

Connection::Connection(Poller& poller, const ConnectionOptions& options, ConnectionObserver& observer,
                       RequestHandler* handler, uint32_t features)
    : Port(poller, options),
      observer_(observer),
      parts_(*this, *this, *this),
      ending_(*this, parts_, observer),
      opening_(new Opening(*this, parts_, handler, features)),
      starved_timer_([this] { OnStarved(); }) {}

// Destroys the queue pair first, because until then the fabric may use memory of the other members.
Connection::~Connection() {
  if (opening_ != nullptr) opening_->Stop();
  queue_pair_.reset();
}

absl::StatusOr<Connection*> Connection::Make(Poller& poller, const ConnectionOptions& options,
                                             ConnectionObserver& observer, RequestHandler* handler,
                                             uint32_t features, const Security& security) {
  poller.AssertHeld();
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  auto* const result = new Connection(poller, options, observer, handler, features);
  poller.Adopt(std::unique_ptr<PollerClient>(result));
  if (absl::Status status = result->opening_->CreateQueuePair(security, *result); !status.ok()) {
    poller.Drop(result);
    return status;
  }
  return result;
}

absl::StatusOr<Connection*> Connection::Dial(Poller& poller, const SocketAddress& address,
                                             const ConnectionOptions& options, const Handshake& hello,
                                             absl::Duration connect_timeout, ConnectionObserver& observer,
                                             RequestHandler* handler, const Security& security) {
  const uint32_t features = Opening::FeaturesToDial(poller, handler, hello);
  absl::StatusOr<Connection*> made = Make(poller, options, observer, handler, features, security);
  // If that fails, the observer is notified, as of every other failure.
  if (made.ok()) (*made)->opening_->Dial(address, hello, connect_timeout, security);
  return made;
}

absl::StatusOr<Connection*> Connection::Accept(Poller& poller, PeerRequest request,
                                               const ConnectionOptions& options, const SessionToken& session,
                                               ConnectionObserver& observer, RequestHandler* handler) {
  const uint32_t features = Opening::FeaturesToAccept(poller, request.hello());
  absl::StatusOr<Connection*> made =
      Make(poller, Opening::Limited(options, request.hello()), observer, handler, features, {});
  if (made.ok()) {
    (*made)->opening_->Accept(request, session);
  } else {
    request.Reject(Opening::WhyNotAccepted(poller, made.status()));
  }
  return made;
}

void Connection::OnEstablished(absl::string_view private_data) {
  if (state() == State::kConnecting && !parts_.are_agreed()) {  // This side dialed.
    if (absl::Status status = opening_->TakeAnswer(private_data); !status.ok()) return Fail(status);
  }
  Move(Event::kEstablished);
  if (!carries_traffic() || is_ready()) return;
  const std::unique_ptr<Opening> opening = std::move(opening_);
  opening->Finish();
  parts_.keepalive.Start(parts_.requester != nullptr || awaits_first_message());
  poller_.MarkForFlush(this);
  observer_.OnReady(opening->peer_hello());
  for (auto& [buffer, length_bytes] : opening->TakeEarly()) OnMessage(std::move(buffer), length_bytes);
  if (ending_.drains_when_ready()) Drain();
}

std::string Connection::OnAcceptFailed(const absl::Status& why) { return EncodeRejection(why); }

void Connection::OnConnectFailed(const absl::Status& why, absl::string_view private_data) {
  Fail(private_data.empty() ? WithoutReason(why) : WhyRejected(peer_, private_data));
}

void Connection::OnDisconnected(const absl::Status& why) { Fail(why); }

absl::Status Connection::WhyNotReady() const {
  return !why_closed_.ok() ? why_closed_
                           : absl::UnavailableError(absl::StrCat("connection to ", peer_, " is not ready"));
}

void Connection::Cancel(ExchangeId id) {
  poller_.AssertHeld();
  if (carries_traffic() && parts_.requester != nullptr) parts_.requester->Cancel(id);
}

HeldByHost Connection::DetachRequestMemory(ExchangeId id) {
  poller_.AssertHeld();
  return parts_.responder != nullptr ? parts_.responder->DetachRequestMemory(id) : HeldByHost();
}

void Connection::Drain() {
  poller_.AssertHeld();
  ending_.Drain(awaits_first_message());
}

void Connection::Close(const absl::Status& why) {
  poller_.AssertHeld();
  ending_.Close(why);
}

void Connection::Fail(const absl::Status& why) {
  if (state_ == State::kFlushing || state_ == State::kClosed) return;
  // Fail() may be called inside an unfinished step: a post that failed, or the end of a READ of another
  // connection. A callback that cancels its other calls must not run in the middle of such a step.
  const Poller::NoCallOut wait(poller_);
  if (opening_ != nullptr) opening_->Stop();
  poller_.timers().Cancel(starved_timer_);
  ending_.Fail(why);
}

// Fills the ring at once, before a sink takes the memory.
void Connection::OnBulkTransfer() {
  if (!parts_.receive_ring.Promise() || !is_ready() || parts_.receive_ring.waits_for_memory()) return;
  if (!parts_.receive_ring.Refill(parts_.answers_that_may_come(), parts_.control.received()))
    poller_.MarkForFlush(this);
}

// Called by the keepalive timer. On an idle connection this returns receives and places that only traffic
// needs.
void Connection::OnInterval() {
  if (state_ != State::kReady || !is_ready()) return;
  if (parts_.requester != nullptr) parts_.requester->ReturnCredits();
  if (parts_.exchanges_in_flight() != 0 || !carries_traffic()) return;
  parts_.receive_ring.OnIdle(parts_.answers_that_may_come());
  parts_.send_queue.Trim();
}

void Connection::OnControlOp(const ControlOp& op) {
  switch (op.code) {
    case ControlOp::Code::kPing:
      return;
    case ControlOp::Code::kCancel:
    case ControlOp::Code::kRelease:
      if (parts_.responder != nullptr) return parts_.responder->OnControlOp(op);
      break;
    case ControlOp::Code::kGoingAway:
      if (parts_.requester != nullptr) return observer_.OnGoingAway();
      break;
  }
  Fail(Violation::kControl,
       absl::StrCat("sent control operation ", static_cast<int>(op.code), ", which this side does not take"));
}

void Connection::OnCompletion(const WorkId& id, const fabric::Completion& completion) {
  const bool ok = completion.status == fabric::CompletionStatus::kSuccess;
  if (!ok) ending_.OnBadCompletion(id, completion.status);
  if (id.kind == WorkId::kReceive) {
    if (ok && completion.byte_len <= kCopiedMax && TakeFromRing(id.number, completion.byte_len)) [[likely]] {
      return poller_.MarkForFlush(this);
    }
    Lease buffer = parts_.receive_ring.Take(id.number);
    if (ok && buffer && state_ < State::kFlushing) OnMessage(std::move(buffer), completion.byte_len);
    poller_.MarkForFlush(this);
    return;
  }
  if (id.kind == WorkId::kRevocation) {
    parts_.outbounds.OnRevoked(id.number);
  } else if (id.kind == WorkId::kTakenPush) {
    if (ok) parts_.keepalive.OnPeerActivity();
    parts_.inbounds.OnTaken(id.number, ok);
  } else {
    if (ok) parts_.keepalive.OnPeerActivity();
    parts_.send_queue.OnCompletion(id.number, ok);
  }
  if (!ok || state_ == State::kDraining || state_ == State::kFlushing) poller_.MarkForFlush(this);
}

bool Connection::TakeCredits(const Header& header) {
  if (parts_.requester != nullptr) {
    parts_.requester->OnCredits(header.credits);
  } else if (header.credits != 0) {
    Fail(Violation::kMessage, absl::StrCat("sent a control message that gives ", header.credits,
                                           " credits, which this side does not take"));
  }
  return carries_traffic();
}

void Connection::OnMessage(Lease&& buffer, uint32_t length_bytes) {
  parts_.keepalive.OnPeerActivity();
  if (!is_ready()) {
    // The peer's first message may arrive before the connection manager reports the connection. The side that
    // accepted already has the whole handshake, so it is ready now.
    if (!parts_.are_agreed()) return opening_->KeepEarly(std::move(buffer), length_bytes);
    OnEstablished({});
  }
  if (!has_received_) {
    has_received_ = true;
    if (accepted_) observer_.OnFirstMessage();
    ending_.OnFirstMessage();
  }
  if (!carries_traffic()) return;
  ParsedMessage message;
  if (!ParseSmall(buffer.data(), length_bytes, message)) [[unlikely]] {
    if (absl::Status status = Parse(buffer.data(), length_bytes, message); !status.ok()) {
      return Fail(Violation::kMessage, status.message(), status.code());
    }
  }
  switch (message.header.kind) {
    case Kind::kRequest:
      if (parts_.responder != nullptr)
        return parts_.responder->OnRequest(message, std::move(buffer), length_bytes);
      break;
    case Kind::kResponse:
      if (parts_.requester == nullptr) break;
      if (TakeCredits(message.header)) parts_.requester->OnResponse(message, std::move(buffer), length_bytes);
      return;
    case Kind::kControl:
      if (TakeCredits(message.header)) parts_.control.OnControl(message);
      return;
    case Kind::kControlAck:
      if (!TakeCredits(message.header)) return;
      parts_.control.OnControlAck(message);
      parts_.keepalive.OnControlAck();
      return;
    case Kind::kReturn:
      if (parts_.responder != nullptr) return parts_.responder->OnReturn();
      return Fail(Violation::kRole, "returned a credit on a connection where it gives them");
  }
  Fail(Violation::kRole, parts_.requester != nullptr ? "sent a request on a connection where it answers them"
                                                     : "sent a response on a connection where it gets them");
}

void Connection::Flush() {
  FlushAll();
  parts_.receive_ring.ReleasePutBack();
}

[[gnu::always_inline]] inline void Connection::FlushAll() {
  if (state_ < State::kFlushing) ending_.FailIfFlushed();
  if (state_ < State::kFlushing) {
    // The messages of this turn carry the new credits. Without a message, a control request tells them, so
    // that the requester need not wait for slow handlers.
    if (parts_.responder != nullptr) parts_.responder->credits().GiveWhatIsPosted();
    if (HasCreditsToAdvertise()) parts_.control.Pump();
    // Posts receives first, because the peer may answer at once. Until the connection is ready, this side
    // keeps the messages that arrive and does not refill, so that the ring bounds them.
    const uint32_t answers = parts_.answers_that_may_come();
    if (is_ready() && parts_.receive_ring.wants_refill(answers) &&
        (parts_.receive_ring.waits_for_memory() ||
         !parts_.receive_ring.Refill(answers, parts_.control.received()))) {
      parts_.receive_ring.RefillLater();
      // The remaining receives may be enough. If not, our messages wait, because their answers would find no
      // receive. If the peer's messages can wait, one receive at a time is enough.
      const bool waits = parts_.receive_ring.kind() == ReceiveRing::Kind::kWaitedFor;
      const bool few = waits ? parts_.receive_ring.posted() == 0
                             : parts_.receive_ring.posted() < parts_.messages_that_may_come();
      if (few && (parts_.send_queue.has_queued() || waits) && !starved_timer_.is_set()) {
        poller_.timers().Set(starved_timer_, After(poller_.now_ns(), options_.keepalive_timeout));
      }
      if (few && !waits) return;
      if (!few) OnReceivesFilled();  // There are enough receives.
    } else {
      OnReceivesFilled();
      if (parts_.receive_ring.has_surplus(answers)) [[unlikely]]
        parts_.receive_ring.WithdrawSurplus(answers);
    }
    if (carries_traffic() && parts_.send_queue.has_queued()) {
      if (const absl::Status status = parts_.send_queue.Flush(); !status.ok()) [[unlikely]]
        OnPostFailed(status);
    }
    if (ending_.CloseIfDrained()) poller_.timers().Cancel(starved_timer_);
  }
  if (state_ == State::kFlushing) ending_.Settle();
}

void Connection::OnPostFailed(const absl::Status& status) {
  absl::Status why(status.code(), absl::StrCat("posting to ", peer_, " failed: ", status.message()));
  CopyViolation(status, why);
  Fail(why);
}

void Connection::FlushIfLong() {
  if (parts_.send_queue.queued() >= kLongQueue && state_ < State::kFlushing && !queue_pair_->PeerSharesCore())
    Flush();
}

void Connection::Disconnect() {
  if (opening_ != nullptr) opening_->Stop();
  if (queue_pair_ != nullptr) queue_pair_->Disconnect();
}

// The answers to pings wait, too, so the peer would soon time out. Fail() tells it the reason instead, and
// other connections can use the memory of this one.
void Connection::OnStarved() { Fail(NoMemoryForReceives(options_.keepalive_timeout)); }

}  // namespace hawser::transport
