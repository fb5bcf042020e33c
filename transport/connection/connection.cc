#include "hawser/transport/connection/connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/option_range.h"
#include "hawser/base/state_machine.h"
#include "hawser/transport/log/peer_log.h"
#include "hawser/transport/poller/queue_depths.h"
#include "hawser/transport/uri.h"
#include "hawser/transport/wire/proof.h"

namespace hawser::transport {
namespace {

using State = Connection::State;
using Event = Connection::Event;
constexpr State kReady = State::kReady, kDraining = State::kDraining, kFlushing = State::kFlushing,
                kClosed = State::kClosed, kImpossible = State::kImpossible;

// clang-format off
constexpr State kNext[5][5] = {
    //                established  drain called  exchanges done  failed, closed  all WRs flushed
    /* kConnecting */ {kReady,     kFlushing,    kImpossible,    kFlushing,      kImpossible},
    /* kReady      */ {kReady,     kDraining,    kImpossible,    kFlushing,      kImpossible},
    /* kDraining   */ {kDraining,  kDraining,    kFlushing,      kFlushing,      kImpossible},
    /* kFlushing   */ {kFlushing,  kFlushing,    kFlushing,      kFlushing,      kClosed},
    /* kClosed     */ {kClosed,    kClosed,      kClosed,        kClosed,        kImpossible},
};
// clang-format on

// Those that are offered where the fabric allows them.
constexpr uint32_t kFeaturesOfFabrics = kFeatureCredits | kFeatureEndsGrants;

// A receive for a control request: the only message that the peer may send before this side has sent
// anything.
constexpr uint32_t kFirstReceives = 1;

// How long an accepted peer may take to finish the handshake.
constexpr absl::Duration kAcceptTimeout = absl::Seconds(5);

// How long a queue pair may take to flush. A NIC takes microseconds, a busy software device milliseconds. A
// stuck device or driver never flushes; then the poller destroys the queue pair, which ends the device's use
// of our memory. The time is long, because destroying the queue pair of a slow driver may block this thread.
constexpr absl::Duration kFlushTimeout = absl::Seconds(5);

// Likewise, where the fabric completes everything as soon as the device has let go, and nothing here waits
// for that (QueuePair::ForceFlush()). That takes long if the device is busy with the ends of many others. A
// device that is stuck does not let go.
constexpr absl::Duration kForcedFlushTimeout = absl::Seconds(30);

// How long the report of a loss waits for its cause, if so far only receives were flushed.
constexpr absl::Duration kCauseTimeout = absl::Milliseconds(20);

// How long a server that drains waits for the first message of a client that it has accepted, before it sends
// that it is going away.
constexpr absl::Duration kFirstMessage = absl::Milliseconds(100);

// How long a server that drains waits for a client without a call to leave. A client that is stopped, or cut
// off, does not, and would hold up the end of the server until it is taken for dead.
constexpr absl::Duration kLeaves = absl::Milliseconds(500);

// The text fits into a rejection, which has 140 bytes.
absl::Status NoMemoryToAccept() {
  return absl::ResourceExhaustedError(
      "the server has no memory for a new connection (BufferPoolOptions::limit_bytes, or ulimit -l)");
}

}  // namespace

State Connection::Next(State state, Event event) {
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

Connection::Connection(Poller& poller, const ConnectionOptions& options, ConnectionObserver& observer,
                       RequestHandler* handler, uint32_t features)
    : Port(poller, options),
      observer_(observer),
      handler_(handler),
      features_(features),
      send_queue_(*this),
      outbounds_(*this, send_queue_),
      receive_ring_(*this),
      inbounds_(*this, send_queue_),
      control_(*this, send_queue_, *this),
      keepalive_(*this, control_, inbounds_, *this),
      connect_timer_([this] {
        Fail(absl::UnavailableError(
            absl::StrCat("connect to ", peer_,
                         ": no answer in time; the host is down, a firewall drops the packets, or the "
                         "process that listens there is stopped, blocked or overloaded "
                         "(ChannelOptions::connect_timeout)")));
      }),
      starved_timer_([this] { OnStarved(); }),
      going_away_timer_([this] { control_.GoingAway(); }),
      leave_timer_([this] { OnLeaveTimer(); }),
      flush_timer_([this] { OnFlushTimer(); }) {}

// Destroys the queue pair first, because until then the fabric may use memory of the other members.
Connection::~Connection() {
  StopProving();
  queue_pair_.reset();
}

absl::Status Connection::CheckOptions(const ConnectionOptions& options) {
  if (options.receive_buffer_bytes % 64 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("ConnectionOptions::receive_buffer_bytes is ",
                                                   options.receive_buffer_bytes, ": a multiple of 64 from ",
                                                   kReceiveBufferMin, " to ", kReceiveBufferMax));
  }
  return FirstError(
      CheckOption("ConnectionOptions::slots", uint64_t{options.slots}, uint64_t{1}, uint64_t{kSlotsMax}),
      CheckOption("ConnectionOptions::receive_buffer_bytes", uint64_t{options.receive_buffer_bytes},
                  uint64_t{kReceiveBufferMin}, uint64_t{kReceiveBufferMax}),
      CheckOption("ConnectionOptions::message_bytes_max", options.message_bytes_max, kMessageBytesMin,
                  kMessageBytesMost),
      CheckOption("ConnectionOptions::keepalive_interval", options.keepalive_interval, kKeepaliveMin,
                  absl::InfiniteDuration(), "infinite: no pings"),
      CheckOption("ConnectionOptions::keepalive_timeout", options.keepalive_timeout, kKeepaliveMin,
                  kKeepaliveMost, "an infinite keepalive_interval turns pings off"),
      CheckOption("ConnectionOptions::busy_timeout", options.busy_timeout, absl::ZeroDuration(),
                  absl::InfiniteDuration()));
}

absl::StatusOr<Connection*> Connection::Make(Poller& poller, const ConnectionOptions& options,
                                             ConnectionObserver& observer, RequestHandler* handler,
                                             uint32_t features, const Security& security) {
  poller.AssertHeld();
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  auto* const result = new Connection(poller, options, observer, handler, features);
  poller.Adopt(std::unique_ptr<PollerClient>(result));
  if (absl::Status status = result->Open(security); !status.ok()) {
    poller.Drop(result);
    return status;
  }
  return result;
}

absl::Status Connection::Open(const Security& security) {
  fabric::QueuePairOptions options;
  if (security.tls != nullptr && security.prove_over == nullptr) {
    if (absl::Status carries = CheckCarriesTls(poller_.fabric()); !carries.ok()) return carries;
    options.tls = security.tls;
    options.tls_host = security.host;
  }
  if (!options_.local_address.empty()) {
    absl::StatusOr<SocketAddress> local = ParseNumericHost(options_.local_address);
    if (!local.ok()) {
      return absl::Status(local.status().code(),
                          absl::StrCat("ConnectionOptions::local_address: ", local.status().message()));
    }
    options.local_address = *local;
  }
  options.read_depth = kReadDepth;
  options.send_depth = send_queue_.Size(options_.slots, kReadDepth);
  // Unless requests can wait, the side that answers has a receive for each request that the peer may send:
  // one for each credit that it has given, or, if the peer knows no credits, one for each slot.
  options.sends_wait = handler_ != nullptr && poller_.fabric().sends_can_wait();
  const ReceiveRing::Kind kind = handler_ == nullptr                  ? ReceiveRing::Kind::kForAnswers
                                 : options.sends_wait                 ? ReceiveRing::Kind::kWaitedFor
                                 : (features_ & kFeatureCredits) != 0 ? ReceiveRing::Kind::kCredits
                                                                      : ReceiveRing::Kind::kPromised;
  options.receive_depth = receive_ring_.Size(options_.slots, options_.receive_buffer_bytes, kind);
  if (absl::Status status = control_.Open(); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<fabric::QueuePair>> queue_pair =
      poller_.fabric().CreateQueuePair(poller_.completion_queue(), options, *this);
  if (!queue_pair.ok()) return queue_pair.status();
  queue_pair_ = *std::move(queue_pair);
  return absl::OkStatus();
}

uint32_t Connection::Features(Poller& poller, uint32_t features) {
  uint32_t ours = 0;
  if (!poller.fabric().sends_can_wait()) ours |= kFeatureCredits;
  if (poller.fabric().sends_end_grants()) ours |= kFeatureEndsGrants;
  return features & ours;
}

absl::StatusOr<Connection*> Connection::Dial(Poller& poller, const SocketAddress& address,
                                             const ConnectionOptions& options, const Handshake& hello,
                                             absl::Duration connect_timeout, ConnectionObserver& observer,
                                             RequestHandler* handler, const Security& security) {
  // The side that answers posts its receives before it receives the peer's handshake, so it must know
  // beforehand what the peer will agree to.
  const uint32_t features = Features(poller, handler == nullptr ? kFeaturesOfFabrics : hello.features);
  absl::StatusOr<Connection*> made = Make(poller, options, observer, handler, features, security);
  if (!made.ok()) return made;
  Connection* const connection = *made;
  connection->NamePeer(address);
  Handshake offer = hello;
  offer.features = (hello.features & ~kFeaturesOfFabrics) | features;
  offer.slots = static_cast<uint16_t>(options.slots);
  offer.receive_buffer_bytes = options.receive_buffer_bytes;
  offer.message_bytes_max = options.message_bytes_max;
  connection->peer_hello_.role = offer.role;
  const absl::Status status = security.prove_over != nullptr
                                  ? connection->StartToProve(offer, connect_timeout, security)
                                  : connection->Connect(Encode(offer));
  if (!status.ok()) {
    connection->Fail(status);
    return connection;  // The observer is notified, as of every other failure.
  }
  // What proves it may have failed already.
  if (connection->state_ == State::kConnecting)
    poller.timers().Set(connection->connect_timer_, After(poller.environment().NowNs(), connect_timeout));
  return connection;
}

absl::Status Connection::Connect(absl::string_view hello) {
  // The peer's first message may arrive together with the end of the handshake.
  if (receive_ring_.Refill(kFirstReceives, 0)) return queue_pair_->Connect(peer_address_, hello);
  return absl::ResourceExhaustedError(
      "no memory for the receive ring of a new connection; raise BufferPoolOptions::limit_bytes");
}

absl::Status Connection::StartToProve(const Handshake& offer, absl::Duration connect_timeout,
                                      const Security& security) {
  SocketAddress local;
  if (!options_.local_address.empty()) {
    absl::StatusOr<SocketAddress> parsed = ParseNumericHost(options_.local_address);
    if (!parsed.ok()) return parsed.status();
    local = *parsed;
  }
  proves_ = true;
  proving_ = std::make_unique<Proving>();
  proving_->offer = offer;
  Prover::Client& client = *this;
  const auto prover = std::make_shared<Prover>(poller_, peer_address_, local, offer, security, client);
  proving_->prover = prover;
  prover->Start(connect_timeout);
  return absl::OkStatus();
}

void Connection::OnProof(absl::StatusOr<Prover::Result> result) {
  if (state_ != State::kConnecting || proving_ == nullptr) return;
  absl::Status status = result.status();
  if (result.ok()) {
    proving_->result = *std::move(result);
    proving_->connect = EncodeConnect(proving_->offer, proving_->result.proof);
    status = Connect(proving_->connect);
  } else {
    status = absl::Status(status.code(), absl::StrCat("connect to ", peer_, ": ", status.message()));
  }
  if (!status.ok()) Fail(status);
}

absl::StatusOr<Handshake> Connection::DecodeAnswer(absl::string_view private_data) const {
  if (!proves_) return DecodeAccept(private_data, peer_hello_.role);
  if (proving_ == nullptr) return absl::UnauthenticatedError("the proof was given up before the answer");
  return DecodeAccept(private_data, peer_hello_.role, proving_->result.proof.key, proving_->connect);
}

void Connection::StopProving() {
  if (proving_ == nullptr) return;
  const std::unique_ptr<Proving> proving = std::move(proving_);
  proving->prover->Abandon();
}

absl::StatusOr<Connection*> Connection::Accept(Poller& poller, PeerRequest request,
                                               const ConnectionOptions& options, const SessionToken& session,
                                               ConnectionObserver& observer, RequestHandler* handler) {
  const Handshake& hello = request.hello();
  // Limits the options to what the peer uses, so that the rest costs no memory.
  ConnectionOptions agreed = options;
  agreed.slots = std::min<uint32_t>(options.slots, hello.slots);
  agreed.receive_buffer_bytes = std::min(options.receive_buffer_bytes, hello.receive_buffer_bytes);
  absl::StatusOr<Connection*> made =
      Make(poller, agreed, observer, handler, Features(poller, hello.features), {});
  if (!made.ok()) {
    // The pool is exhausted, not the files or the device, if it has no room for receives either.
    const bool no_memory =
        absl::IsResourceExhausted(made.status()) && !poller.messages().buffers().HasRoomForSlab();
    request.Reject(no_memory ? NoMemoryToAccept() : made.status());
    return made;
  }
  Connection* const connection = *made;
  connection->accepted_ = true;
  connection->peer_identity_ = request.peer_identity();
  connection->NamePeer(request.peer_address());
  Handshake answer;
  answer.role = hello.role;
  answer.features = connection->features_;
  answer.slots = static_cast<uint16_t>(agreed.slots);
  answer.receive_buffer_bytes = agreed.receive_buffer_bytes;
  answer.message_bytes_max = options.message_bytes_max;
  answer.session = session;
  connection->peer_hello_ = hello;
  connection->Agree(hello);
  const std::optional<Proven>& proven = request.proven_;
  const std::string encoded =
      proven.has_value() ? EncodeAccept(answer, proven->key, proven->connect) : Encode(answer);
  const absl::Status status = connection->receive_ring_.Refill(kFirstReceives, 0)
                                  ? connection->queue_pair_->Accept(*request.request_, encoded)
                                  : NoMemoryToAccept();
  if (!status.ok()) {
    request.Reject(status);
    connection->Fail(status);
    return connection;
  }
  poller.timers().Set(connection->connect_timer_, After(poller.environment().NowNs(), kAcceptTimeout));
  return connection;
}

void Connection::NamePeer(const SocketAddress& address) {
  peer_address_ = address;
  peer_ = absl::StrCat(poller_.fabric().scheme(), "://", address.ToString());
}

std::string Connection::Name() const {
  return absl::StrCat("connection ", number_, accepted_ ? " of " : " to ", peer_);
}

void Connection::Agree(const Handshake& peer) {
  agreed_ = peer;
  agreed_.features = peer.features & features_;
  agreed_.slots = static_cast<uint16_t>(std::min<uint32_t>(options_.slots, peer.slots));
  agreed_.receive_buffer_bytes = std::min(options_.receive_buffer_bytes, peer.receive_buffer_bytes);
  peer_message_bytes_max_ = peer.message_bytes_max;
  const ExchangeParts parts{*this, send_queue_, outbounds_, inbounds_, control_};
  const bool with_credits = (agreed_.features & kFeatureCredits) != 0;
  if (handler_ == nullptr) {
    requester_ = std::make_unique<Requester>(parts, agreed_.slots, with_credits);
  } else {
    const bool ends_grants = (agreed_.features & kFeatureEndsGrants) != 0;
    responder_ = std::make_unique<Responder>(parts, agreed_.slots, with_credits, ends_grants, receive_ring_,
                                             *handler_);
  }
}

void Connection::Move(Event event) {
  state_ = Moved<Connection>(state_, event, [this] { return absl::StrCat("connection to ", peer_); });
  carries_traffic_ = state_ == State::kReady || state_ == State::kDraining;
}

void Connection::OnEstablished(absl::string_view private_data) {
  if (state_ == State::kConnecting && requester_ == nullptr && responder_ == nullptr) {  // This side dialed.
    absl::StatusOr<Handshake> answer = DecodeAnswer(private_data);
    if (!answer.ok()) {
      return Fail(absl::Status(answer.status().code(),
                               absl::StrCat("connect to ", peer_, ": ", answer.status().message())));
    }
    if (handler_ != nullptr && (features_ & ~answer->features & kFeatureCredits) != 0) {
      return Fail(absl::FailedPreconditionError(absl::StrCat(
          "connect to ", peer_, ": the peer accepted with features ", absl::Hex(answer->features),
          ", offered were ", absl::Hex(features_), ", which its session has")));
    }
    peer_hello_ = *answer;
    peer_identity_ =
        OrNotAuthenticated(proving_ != nullptr ? proving_->result.server : queue_pair_->peer_identity());
    StopProving();
    Agree(*answer);
  }
  Move(Event::kEstablished);
  if (!carries_traffic() || std::exchange(ready_, true)) return;
  inbounds_.SetDepth(std::max<uint32_t>(1, queue_pair_->read_depth()));
  poller_.timers().Cancel(connect_timer_);
  keepalive_.Start(requester_ != nullptr || awaits_first_message());
  poller_.MarkForFlush(this);
  if (LogLevel() <= LogSeverity::kDebug) [[unlikely]] {
    PeerLog::Process().Debug(absl::StrCat(
        Name(), " is ready: ", agreed_.slots, " slots, receive buffers of ", agreed_.receive_buffer_bytes,
        " bytes, ", peer_identity_->is_authenticated ? peer_identity_->ToString() : "not authenticated"));
  }
  observer_.OnReady(peer_hello_);
  for (auto& [buffer, length_bytes] : std::exchange(early_, {})) OnMessage(std::move(buffer), length_bytes);
  if (drains_when_ready_) Drain();
}

std::string Connection::OnAcceptFailed(const absl::Status& why) { return EncodeRejection(why); }

void Connection::OnConnectFailed(const absl::Status& why, absl::string_view private_data) {
  // Hawser rejects with a reason. Without one, the peer's program ended, or the kernel of its machine found
  // no listener.
  if (private_data.empty())
    return Fail(absl::IsPermissionDenied(why) ? absl::UnavailableError(why.message()) : why);
  const absl::Status reason = DecodeRejection(private_data);
  Fail(absl::Status(reason.code(), absl::StrCat("connect to ", peer_, ": ", reason.message())));
}

void Connection::OnDisconnected(const absl::Status& why) { Fail(why); }

absl::StatusOr<ExchangeId> Connection::SendRequest(OutgoingMessagePtr& request, int64_t deadline_ns,
                                                   ResponseHandler& handler) {
  poller_.AssertHeld();
  if (state_ != State::kReady || requester_ == nullptr) {
    return !why_closed_.ok() ? why_closed_
                             : absl::UnavailableError(absl::StrCat("connection to ", peer_, " is not ready"));
  }
  return requester_->Send(request, deadline_ns, handler);
}

void Connection::Cancel(ExchangeId id) {
  poller_.AssertHeld();
  if (carries_traffic() && requester_ != nullptr) requester_->Cancel(id);
}

const char* Connection::StateName() const {
  switch (state_) {
    case State::kConnecting:
      return "connecting";
    case State::kReady:
      return "ready";
    case State::kDraining:
      return "draining";
    case State::kFlushing:
      return "flushing";
    case State::kClosed:
    case State::kImpossible:
      break;
  }
  return "closed";
}

absl::Status Connection::Respond(ExchangeId id, OutgoingMessagePtr& response) {
  poller_.AssertHeld();
  if (!carries_traffic() || responder_ == nullptr) return absl::OkStatus();
  return responder_->Respond(id, response);
}

HeldByHost Connection::DetachRequestMemory(ExchangeId id) {
  poller_.AssertHeld();
  return responder_ != nullptr ? responder_->DetachRequestMemory(id) : HeldByHost();
}

void Connection::Drain() {
  poller_.AssertHeld();
  if (state_ == State::kConnecting) {
    // For the accepted client the connection may already be established, and its first requests in flight.
    drains_when_ready_ = accepted_ && responder_ != nullptr;
    if (!drains_when_ready_) Close();
    AwaitLeave();
    return;
  }
  if (state_ == State::kDraining) return;
  Move(Event::kDrainCalled);
  if (state_ != State::kDraining) return;
  if (responder_ != nullptr) {
    // This side disconnects only after the last answers have arrived, so from now on it signals each send.
    send_queue_.SignalAll();
    if (awaits_first_message()) {
      // On iWARP the first SEND is the client's (RFC 5044, section 7.1): its kernel may still be handling
      // the handshake, and Linux's siw then ends the connection.
      poller_.timers().Set(going_away_timer_, After(poller_.now_ns(), kFirstMessage));
    } else {
      control_.GoingAway();
    }
    AwaitLeave();
  }
  poller_.MarkForFlush(this);
}

void Connection::AwaitLeave() {
  if (!carries_traffic() || responder_ == nullptr || exchanges_in_flight() != 0) return;
  poller_.timers().Set(leave_timer_, After(poller_.now_ns(), kLeaves));
}

void Connection::OnLeaveTimer() {
  if (exchanges_in_flight() != 0) return;  // Set again after the last of them.
  Close(absl::CancelledError(
      absl::StrCat("closed by this side, which drains: the peer, which has no call, did not leave within ",
                   absl::FormatDuration(kLeaves))));
}

void Connection::Close(const absl::Status& why) {
  poller_.AssertHeld();
  if (state_ < State::kFlushing) closed_here_ = true;
  Fail(why);
}

uint32_t Connection::exchanges_in_flight() const {
  return requester_ != nullptr   ? requester_->in_flight()
         : responder_ != nullptr ? responder_->in_flight()
                                 : 0;
}

void Connection::Fail(absl::StatusCode code, absl::string_view what) {
  Fail(absl::Status(code, absl::StrCat("peer ", peer_, " ", what)));
}

void Connection::Fail(Violation violation, absl::string_view what, absl::StatusCode code) {
  absl::Status why(code, absl::StrCat("peer ", peer_, " ", what));
  SetViolation(why, violation);
  Fail(why);
}

void Connection::OnViolation(Violation violation) {
  if (!accepted_) return;
  poller_.violations().Record(violation, peer_address_,
                              absl::StrCat(why_closed_.message(), "; connection ", number_, " is closed"));
}

void Connection::Fail(const absl::Status& why) {
  if (state_ == State::kFlushing || state_ == State::kClosed) return;
  // Fail() may be called inside an unfinished step: a post that failed, or the end of a READ of another
  // connection. A callback that cancels its other calls must not run in the middle of such a step.
  const Poller::NoCallOut wait(poller_);
  // Copies code and text without the payload.
  why_closed_ = absl::Status(why.code(), why.message());
  if (why != seen_flushed_) seen_flushed_ = absl::OkStatus();
  NoteLoss(why);
  if (LogLevel() <= LogSeverity::kDebug) [[unlikely]]
    PeerLog::Process().Debug(absl::StrCat(Name(), " ends: ", absl::string_view(why.message())));
  Move(Event::kFailed);
  StopProving();
  for (Timer* timer : {&connect_timer_, &starved_timer_, &going_away_timer_, &leave_timer_}) {
    poller_.timers().Cancel(*timer);
  }
  keepalive_.Stop();
  receive_ring_.StopWaiting();
  const std::optional<Violation> violation = ViolationOf(why);
  if (violation.has_value()) OnViolation(*violation);
  // Tells the peer its violation, or the resource that this side lacks.
  if (violation.has_value() || absl::IsResourceExhausted(why)) {
    queue_pair_->DisconnectBecause(why_closed_.message());
  } else {
    queue_pair_->Disconnect();
  }
  AwaitFlush();
  inbounds_.Fail();
  send_queue_.DropQueued();
  poller_.MarkForFlush(this);
  // Calls need to know one thing: whether this process ended them, or whether they may be tried again.
  const absl::Status for_calls =
      why.code() == absl::StatusCode::kCancelled
          ? why
          : absl::UnavailableError(absl::StrCat("the connection to ", peer_, " was lost: ", why.message()));
  if (requester_ != nullptr) requester_->FailAll(for_calls);
  if (responder_ != nullptr) responder_->FailAll(for_calls);
}

void Connection::OnExchangeEnded() {
  if (state_ == State::kDraining) {
    poller_.MarkForFlush(this);
    AwaitLeave();
  }
  if (requester_ != nullptr) OnCredits();
}

void Connection::OnCredits() {
  if (state_ == State::kReady) observer_.OnSlotFree();
}

uint32_t Connection::messages_that_may_come() const {
  // The peer's control request, and its answer to ours. The side that sends requests always has both
  // receives, because a ping must not wait for memory.
  const uint32_t control = control_.waiting_since_ns() == kNever && requester_ == nullptr ? 1 : 2;
  return control + (requester_ != nullptr ? requester_->in_flight() : responder_->requests_that_may_come());
}

uint32_t Connection::answers_that_may_come() const {
  return requester_ != nullptr ? messages_that_may_come() : 0;
}

// Fills the ring at once, before a sink takes the memory.
void Connection::OnBulkTransfer() {
  if (!receive_ring_.Promise() || !ready_ || receive_ring_.waits_for_memory()) return;
  if (!receive_ring_.Refill(answers_that_may_come(), control_.received())) poller_.MarkForFlush(this);
}

// Called by the keepalive timer. On an idle connection this returns receives and places that only traffic
// needs.
void Connection::OnInterval() {
  if (state_ != State::kReady || !ready_) return;
  if (requester_ != nullptr) requester_->ReturnCredits();
  if (exchanges_in_flight() != 0 || !carries_traffic()) return;
  receive_ring_.OnIdle(answers_that_may_come());
  send_queue_.Trim();
}

void Connection::CloseIfDrained() {
  if (state_ != State::kDraining || exchanges_in_flight() != 0) return;
  if (responder_ != nullptr && (going_away_timer_.is_set() || send_queue_.has_queued() ||
                                send_queue_.outstanding() != 0 || control_.waiting_since_ns() != kNever)) {
    return;
  }
  Move(Event::kExchangesDone);
  why_closed_ = absl::CancelledError("closed by this side after its last call");
  poller_.timers().Cancel(starved_timer_);
  poller_.timers().Cancel(leave_timer_);
  keepalive_.Stop();
  receive_ring_.StopWaiting();
  queue_pair_->Disconnect();
  AwaitFlush();
  inbounds_.Fail();
  if (requester_ != nullptr) requester_->FailAll(why_closed_);  // No call is left. This ends its timers.
  if (responder_ != nullptr) responder_->FailAll(why_closed_);
}

void Connection::AwaitFlush() {
  const absl::Duration time = seen_flushed_.ok() ? kFlushTimeout : kCauseTimeout;
  poller_.timers().Set(flush_timer_, After(poller_.now_ns(), time));
}

void Connection::OnFlushTimer() {
  if (!seen_flushed_.ok()) {  // The cause has not arrived in time.
    seen_flushed_ = absl::OkStatus();
    AwaitFlush();
  } else if (!std::exchange(forced_, true) && queue_pair_->ForceFlush()) {
    NotifyLost();
    poller_.timers().Set(flush_timer_, After(poller_.now_ns(), kForcedFlushTimeout));
  } else {
    // From here on no posted work request completes, and the fabric uses none of our memory.
    queue_pair_.reset();
    send_queue_.Abandon();
    receive_ring_.Abandon();
    inbounds_.Abandon();
  }
  poller_.MarkForFlush(this);
}

// Not a loss: a client disconnects after its last call, or a server disconnects after it has sent "going
// away". A protocol violation has a line of its own.
void Connection::NoteLoss(const absl::Status& why) {
  if (closed_here_ || !carries_traffic() || (accepted_ && ViolationOf(why).has_value())) return;
  // A client that leaves need not have released the answers that it READ, nor have answered a ping.
  const bool peer_left = fabric::IsPeersEnd(why);
  const uint32_t calls =
      peer_left && responder_ != nullptr ? responder_->unanswered() : exchanges_in_flight();
  const bool is_missed = !accepted_ && state_ == State::kReady && !end_is_expected_;
  const bool is_asked = !peer_left && control_.waiting_since_ns() != kNever && !control_.only_tells();
  if (calls == 0 && !is_asked && !is_missed) return;
  loss_ = absl::StrCat(Name(), " was lost with ", calls, " calls under way");
}

void Connection::NotifyLost() {
  if (std::exchange(told_lost_, true)) return;
  if (!loss_.empty()) {
    const std::string line = absl::StrCat(loss_, ": ", absl::string_view(why_closed_.message()));
    PeerLog::Process().Line(LogSeverity::kWarning, peer_address_, line);
  }
  observer_.OnLost(why_closed_);
}

void Connection::CloseIfFlushed() {
  if (state_ != State::kFlushing || send_queue_.outstanding() != 0 || receive_ring_.posted() != 0 ||
      inbounds_.has_taken() || (outbounds_.revokes() && queue_pair_ != nullptr)) {
    return;
  }
  Move(Event::kFlushed);
  poller_.timers().Cancel(flush_timer_);
  NotifyLost();
  outbounds_.OnFabricReleased();
  observer_.OnClosed(why_closed_);
  poller_.MarkClosed(this);
}

std::optional<ControlOp> Connection::NextControlOp() {
  return requester_ != nullptr ? requester_->NextControlOp() : std::nullopt;
}

bool Connection::HasCreditsToTell() const {
  return responder_ != nullptr && responder_->credits().has_news();
}

uint16_t Connection::AdvertiseCredits() {
  if (responder_ == nullptr) return 0;
  responder_->credits().OnAdvertised();
  return responder_->credits().given();
}

void Connection::OnControlOp(const ControlOp& op) {
  switch (op.code) {
    case ControlOp::Code::kPing:
      return;
    case ControlOp::Code::kCancel:
    case ControlOp::Code::kRelease:
      if (responder_ != nullptr) return responder_->OnControlOp(op);
      break;
    case ControlOp::Code::kGoingAway:
      if (requester_ != nullptr) return observer_.OnGoingAway();
      break;
  }
  Fail(Violation::kControl,
       absl::StrCat("sent control operation ", static_cast<int>(op.code), ", which this side does not take"));
}

// After the first bad completion of any kind the queue pair is unusable, even if it does not report an error.
void Connection::OnBadCompletion(const WorkId& id, fabric::CompletionStatus status) {
  absl::Status why =
      absl::UnavailableError(absl::StrCat("peer ", peer_, ": ",
                                          id.kind == WorkId::kReceive      ? "a receive"
                                          : id.kind == WorkId::kRevocation ? "the revocation of a grant"
                                          : id.kind == WorkId::kTakenPush  ? "a push"
                                                                           : send_queue_.Describe(id.number),
                                          " failed: ", fabric::Describe(status)));
  if (id.kind == WorkId::kReceive && status == fabric::CompletionStatus::kLocalError) {
    SetViolation(why, Violation::kLimit);  // Longer than the receive.
  } else if (id.kind == WorkId::kSendQueue && status == fabric::CompletionStatus::kRemoteAccessError) {
    SetViolation(why, Violation::kMemoryAccess);  // The peer's table names memory that it did not grant.
  }
  // A taken push is like a READ: the owner of its message is notified now.
  if (id.kind != WorkId::kSendQueue && id.kind != WorkId::kTakenPush &&
      status == fabric::CompletionStatus::kFlushed) {
    // The cause may still arrive from the send queue, because the order across queues is undefined. If it
    // does not arrive in this turn, Flush() fails the connection at its end.
    if (state_ < State::kFlushing && seen_flushed_.ok()) seen_flushed_ = why;
    return;
  }
  // The cause arrives in a later turn than the flush. The calls have failed without it, but the observer gets
  // it.
  if (state_ == State::kFlushing && !seen_flushed_.ok() && status != fabric::CompletionStatus::kFlushed) {
    why_closed_ = absl::Status(why.code(), why.message());
    seen_flushed_ = absl::OkStatus();
    AwaitFlush();  // For as long as any flush may take.
    if (const std::optional<Violation> violation = ViolationOf(why)) OnViolation(*violation);
  }
  Fail(why);
}

void Connection::OnCompletion(const WorkId& id, const fabric::Completion& completion) {
  const bool ok = completion.status == fabric::CompletionStatus::kSuccess;
  if (!ok) OnBadCompletion(id, completion.status);
  if (id.kind == WorkId::kReceive) {
    if (ok && completion.byte_len <= kCopiedMax && OnSmall(id.number, completion.byte_len)) [[likely]] {
      return poller_.MarkForFlush(this);
    }
    Lease buffer = receive_ring_.Take(id.number);
    if (ok && buffer && state_ < State::kFlushing) OnMessage(std::move(buffer), completion.byte_len);
    poller_.MarkForFlush(this);
    return;
  }
  if (id.kind == WorkId::kRevocation) {
    outbounds_.OnRevoked(id.number);
  } else if (id.kind == WorkId::kTakenPush) {
    if (ok) keepalive_.OnPeerActivity();
    inbounds_.OnTaken(id.number, ok);
  } else {
    if (ok) keepalive_.OnPeerActivity();
    send_queue_.OnCompletion(id.number, ok);
  }
  if (!ok || state_ == State::kDraining || state_ == State::kFlushing) poller_.MarkForFlush(this);
}

bool Connection::TakeCredits(const Header& header) {
  if (requester_ != nullptr) {
    requester_->OnCredits(header.credits);
  } else if (header.credits != 0) {
    Fail(Violation::kMessage, absl::StrCat("sent a control message that gives ", header.credits,
                                           " credits, which this side does not take"));
  }
  return carries_traffic();
}

// Copies it first: what is checked then cannot be changed by a device, nor by a peer through one.
bool Connection::OnSmall(uint32_t receive, uint32_t length_bytes) {
  const uint8_t* const data = receive_ring_.Peek(receive);
  if (!heard_ || !carries_traffic() || data == nullptr) [[unlikely]]
    return false;
  IncomingMessagePtr incoming = poller_.messages().NewIncoming();
  ParsedMessage message;
  if (!ParseSmall(incoming->Copy(data, length_bytes), length_bytes, message)) [[unlikely]]
    return false;
  const bool is_request = message.header.kind == Kind::kRequest;
  if (is_request ? responder_ == nullptr : requester_ == nullptr) [[unlikely]]
    return false;
  receive_ring_.PutBack(receive);
  keepalive_.OnPeerActivity();
  incoming->SetEnvelope(message.envelope);
  incoming->AddSegment(message.inline_segments, static_cast<uint32_t>(message.inline_bytes));
  if (is_request) {
    responder_->OnRequest(message, std::move(incoming), Lease(), length_bytes);
  } else if (TakeCredits(message.header)) {
    requester_->OnResponse(message, std::move(incoming), Lease(), length_bytes);
  }
  return true;
}

void Connection::OnMessage(Lease&& buffer, uint32_t length_bytes) {
  keepalive_.OnPeerActivity();
  if (!ready_) {
    // The peer's first message may arrive before the connection manager reports the connection. The side that
    // accepted already has the whole handshake, so it is ready now.
    if (requester_ == nullptr && responder_ == nullptr)
      return early_.emplace_back(std::move(buffer), length_bytes), void();
    OnEstablished({});
  }
  if (!heard_) {
    heard_ = true;
    if (accepted_) observer_.OnFirstMessage();
    if (going_away_timer_.is_set()) {
      poller_.timers().Cancel(going_away_timer_);
      control_.GoingAway();
    }
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
      if (responder_ != nullptr)
        return responder_->OnRequest(message, nullptr, std::move(buffer), length_bytes);
      break;
    case Kind::kResponse:
      if (requester_ == nullptr) break;
      if (TakeCredits(message.header))
        requester_->OnResponse(message, nullptr, std::move(buffer), length_bytes);
      return;
    case Kind::kControl:
      if (TakeCredits(message.header)) control_.OnControl(message);
      return;
    case Kind::kControlAck:
      if (!TakeCredits(message.header)) return;
      control_.OnControlAck(message);
      keepalive_.OnControlAck();
      return;
    case Kind::kReturn:
      if (responder_ != nullptr) return responder_->OnReturn();
      return Fail(Violation::kRole, "returned a credit on a connection where it gives them");
  }
  Fail(Violation::kRole, requester_ != nullptr ? "sent a request on a connection where it answers them"
                                               : "sent a response on a connection where it gets them");
}

void Connection::Flush() {
  FlushAll();
  receive_ring_.ReleasePutBack();
}

void Connection::FlushAll() {
  // While connecting, this waits for OnConnectFailed(), which names the reason; siw flushes before it.
  if (state_ < State::kFlushing && state_ != State::kConnecting && !seen_flushed_.ok()) Fail(seen_flushed_);
  if (state_ < State::kFlushing) {
    // The messages of this turn carry the new credits. Without a message, a control request tells them, so
    // that the requester need not wait for slow handlers.
    if (responder_ != nullptr) responder_->credits().GiveWhatIsPosted();
    if (HasCreditsToTell()) control_.Pump();
    // Posts receives first, because the peer may answer at once. Until the connection is ready, this side
    // keeps the messages that arrive and does not refill, so that the ring bounds them.
    const uint32_t answers = answers_that_may_come();
    if (ready_ && receive_ring_.wants_refill(answers) &&
        (receive_ring_.waits_for_memory() || !receive_ring_.Refill(answers, control_.received()))) {
      receive_ring_.RefillLater();
      // The remaining receives may be enough. If not, our messages wait, because their answers would find no
      // receive. If the peer's messages can wait, one receive at a time is enough.
      const bool waits = receive_ring_.kind() == ReceiveRing::Kind::kWaitedFor;
      const bool few =
          waits ? receive_ring_.posted() == 0 : receive_ring_.posted() < messages_that_may_come();
      if (few && (send_queue_.has_queued() || waits) && !starved_timer_.is_set()) {
        poller_.timers().Set(starved_timer_, After(poller_.now_ns(), options_.keepalive_timeout));
      }
      if (few && !waits) return;
      if (!few) OnReceivesFilled();  // There are enough receives.
    } else {
      OnReceivesFilled();
    }
    if (carries_traffic() && send_queue_.has_queued()) {
      if (absl::Status status = send_queue_.Flush(); !status.ok()) {
        absl::Status why(status.code(), absl::StrCat("posting to ", peer_, " failed: ", status.message()));
        CopyViolation(status, why);
        Fail(why);
      }
    }
    CloseIfDrained();
  }
  if (state_ == State::kFlushing && seen_flushed_.ok()) NotifyLost();
  CloseIfFlushed();
}

void Connection::FlushIfLong() {
  if (send_queue_.queued() >= kLongQueue && state_ < State::kFlushing && !queue_pair_->PeerSharesCore())
    Flush();
}

void Connection::Disconnect() {
  StopProving();
  if (queue_pair_ != nullptr) queue_pair_->Disconnect();
}

void Connection::OnReceivesFilled() {
  if (starved_timer_.is_set()) poller_.timers().Cancel(starved_timer_);
}

// The answers to pings wait, too, so the peer would soon time out. Fail() tells it the reason instead, and
// other connections can use the memory of this one.
void Connection::OnStarved() {
  Fail(absl::ResourceExhaustedError(absl::StrCat(
      "no memory for the receives of this connection for ", absl::FormatDuration(options_.keepalive_timeout),
      ": what keeps requests or buffers has to release some, or BufferPoolOptions::limit_bytes be "
      "raised there")));
}

}  // namespace hawser::transport
