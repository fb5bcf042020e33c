#include "hawser/transport/connection/opening.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "hawser/base/option_range.h"
#include "hawser/transport/log/peer_log.h"
#include "hawser/transport/poller/queue_depths.h"
#include "hawser/transport/uri.h"
#include "hawser/transport/wire/proof.h"

namespace hawser::transport {
namespace {

// Those that are offered where the fabric allows them.
constexpr uint32_t kFeaturesOfFabrics = kFeatureCredits | kFeatureEndsGrants;

// A receive for a control request: the only message that the peer may send before this side has sent
// anything.
constexpr uint32_t kFirstReceives = 1;

// How long an accepted peer may take to finish the handshake.
constexpr absl::Duration kAcceptTimeout = absl::Seconds(5);

// The text fits into a rejection, which has 140 bytes.
absl::Status NoMemoryToAccept() {
  return absl::ResourceExhaustedError(
      "the server has no memory for a new connection (BufferPoolOptions::limit_bytes, or ulimit -l)");
}

// The features of the fabric, without what `features` does not have.
uint32_t Features(Poller& poller, uint32_t features) {
  uint32_t ours = 0;
  if (!poller.fabric().sends_can_wait()) ours |= kFeatureCredits;
  if (poller.fabric().sends_end_grants()) ours |= kFeatureEndsGrants;
  return features & ours;
}

}  // namespace

Opening::Opening(Port& port, ConnectionParts& parts, RequestHandler* handler, uint32_t features)
    : port_(port), parts_(parts), handler_(handler), features_(features), timer_([this] { OnTimeout(); }) {}

absl::Status Opening::CheckOptions(const ConnectionOptions& options) {
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

// The side that answers posts its receives before it receives the peer's handshake, so it must know
// beforehand what the peer will agree to.
uint32_t Opening::FeaturesToDial(Poller& poller, const RequestHandler* handler, const Handshake& hello) {
  return Features(poller, handler == nullptr ? kFeaturesOfFabrics : hello.features);
}

uint32_t Opening::FeaturesToAccept(Poller& poller, const Handshake& hello) {
  return Features(poller, hello.features);
}

ConnectionOptions Opening::Limited(ConnectionOptions options, const Handshake& hello) {
  options.slots = std::min<uint32_t>(options.slots, hello.slots);
  options.receive_buffer_bytes = std::min(options.receive_buffer_bytes, hello.receive_buffer_bytes);
  return options;
}

absl::Status Opening::WhyNotAccepted(Poller& poller, const absl::Status& why) {
  // The pool is exhausted, not the files or the device, if it has no room for receives either.
  const bool no_memory = absl::IsResourceExhausted(why) && !poller.messages().buffers().HasRoomForSlab();
  return no_memory ? NoMemoryToAccept() : why;
}

absl::Status Opening::CreateQueuePair(const Security& security, fabric::ConnectionHandler& events) {
  fabric::QueuePairOptions options;
  if (security.tls != nullptr && security.prove_over == nullptr) {
    if (absl::Status carries = CheckCarriesTls(port_.poller().fabric()); !carries.ok()) return carries;
    options.tls = security.tls;
    options.tls_host = security.host;
  }
  if (!port_.options().local_address.empty()) {
    absl::StatusOr<SocketAddress> local = ParseNumericHost(port_.options().local_address);
    if (!local.ok()) {
      return absl::Status(local.status().code(),
                          absl::StrCat("ConnectionOptions::local_address: ", local.status().message()));
    }
    options.local_address = *local;
  }
  options.read_depth = kReadDepth;
  options.send_depth = parts_.send_queue.Size(port_.options().slots, kReadDepth);
  // Unless requests can wait, the side that answers has a receive for each request that the peer may send:
  // one for each credit that it has given, or, if the peer knows no credits, one for each slot.
  options.sends_wait = handler_ != nullptr && port_.poller().fabric().sends_can_wait();
  const ReceiveRing::Kind kind = handler_ == nullptr                  ? ReceiveRing::Kind::kForAnswers
                                 : options.sends_wait                 ? ReceiveRing::Kind::kWaitedFor
                                 : (features_ & kFeatureCredits) != 0 ? ReceiveRing::Kind::kCredits
                                                                      : ReceiveRing::Kind::kPromised;
  options.receive_depth =
      parts_.receive_ring.Size(port_.options().slots, port_.options().receive_buffer_bytes, kind);
  if (absl::Status status = parts_.control.Open(); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<fabric::QueuePair>> queue_pair =
      port_.poller().fabric().CreateQueuePair(port_.poller().completion_queue(), options, events);
  if (!queue_pair.ok()) return queue_pair.status();
  port_.queue_pair_ = *std::move(queue_pair);
  return absl::OkStatus();
}

void Opening::Dial(const SocketAddress& address, const Handshake& hello, absl::Duration connect_timeout,
                   const Security& security) {
  NamePeer(address);
  Handshake offer = hello;
  offer.features = (hello.features & ~kFeaturesOfFabrics) | features_;
  offer.slots = static_cast<uint16_t>(port_.options().slots);
  offer.receive_buffer_bytes = port_.options().receive_buffer_bytes;
  offer.message_bytes_max = port_.options().message_bytes_max;
  peer_hello_.role = offer.role;
  const absl::Status status = security.prove_over != nullptr ? StartToProve(offer, connect_timeout, security)
                                                             : Connect(Encode(offer));
  if (!status.ok()) return port_.Fail(status);
  Poller& poller = port_.poller();
  // What proves it may have failed already.
  if (port_.state() == ConnectionState::State::kConnecting)
    poller.timers().Set(timer_, After(poller.environment().NowNs(), connect_timeout));
}

absl::Status Opening::Connect(absl::string_view hello) {
  // The peer's first message may arrive together with the end of the handshake.
  if (parts_.receive_ring.Refill(kFirstReceives, 0))
    return port_.queue_pair_->Connect(port_.peer_address_, hello);
  return absl::ResourceExhaustedError(
      "no memory for the receive ring of a new connection; raise BufferPoolOptions::limit_bytes");
}

absl::Status Opening::StartToProve(const Handshake& offer, absl::Duration connect_timeout,
                                   const Security& security) {
  SocketAddress local;
  if (!port_.options().local_address.empty()) {
    absl::StatusOr<SocketAddress> parsed = ParseNumericHost(port_.options().local_address);
    if (!parsed.ok()) return parsed.status();
    local = *parsed;
  }
  proves_ = true;
  proving_ = std::make_unique<Proving>();
  proving_->offer = offer;
  Prover::Client& client = *this;
  const auto prover =
      std::make_shared<Prover>(port_.poller(), port_.peer_address_, local, offer, security, client);
  proving_->prover = prover;
  prover->Start(connect_timeout);
  return absl::OkStatus();
}

void Opening::OnProof(absl::StatusOr<Prover::Result> result) {
  if (port_.state() != ConnectionState::State::kConnecting || proving_ == nullptr) return;
  absl::Status status = result.status();
  if (result.ok()) {
    proving_->result = *std::move(result);
    proving_->connect = EncodeConnect(proving_->offer, proving_->result.proof);
    status = Connect(proving_->connect);
  } else {
    status = absl::Status(status.code(), absl::StrCat("connect to ", port_.peer(), ": ", status.message()));
  }
  if (!status.ok()) port_.Fail(status);
}

absl::StatusOr<Handshake> Opening::DecodeAnswer(absl::string_view private_data) const {
  if (!proves_) return DecodeAccept(private_data, peer_hello_.role);
  if (proving_ == nullptr) return absl::UnauthenticatedError("the proof was given up before the answer");
  return DecodeAccept(private_data, peer_hello_.role, proving_->result.proof.key, proving_->connect);
}

void Opening::StopProving() {
  if (proving_ == nullptr) return;
  const std::unique_ptr<Proving> proving = std::move(proving_);
  proving->prover->Abandon();
}

void Opening::Finish() {
  Stop();
  parts_.inbounds.SetDepth(std::max<uint32_t>(1, port_.queue_pair().read_depth()));
  if (LogLevel() <= LogSeverity::kDebug) [[unlikely]] {
    PeerLog::Process().Debug(absl::StrCat(
        port_.Name(), " is ready: ", port_.agreed().slots, " slots, receive buffers of ",
        port_.agreed().receive_buffer_bytes, " bytes, ",
        port_.peer_identity()->is_authenticated ? port_.peer_identity()->ToString() : "not authenticated"));
  }
}

void Opening::Stop() {
  StopProving();
  port_.poller().timers().Cancel(timer_);
}

void Opening::OnTimeout() {
  port_.Fail(absl::UnavailableError(
      absl::StrCat("connect to ", port_.peer(),
                   ": no answer in time; the host is down, a firewall drops the packets, or the "
                   "process that listens there is stopped, blocked or overloaded "
                   "(ChannelOptions::connect_timeout)")));
}

void Opening::Accept(PeerRequest& request, const SessionToken& session) {
  const Handshake& hello = request.hello();
  port_.accepted_ = true;
  port_.peer_identity_ = request.peer_identity();
  NamePeer(request.peer_address());
  Handshake answer;
  answer.role = hello.role;
  answer.features = features_;
  answer.slots = static_cast<uint16_t>(port_.options().slots);
  answer.receive_buffer_bytes = port_.options().receive_buffer_bytes;
  answer.message_bytes_max = port_.options().message_bytes_max;
  answer.session = session;
  peer_hello_ = hello;
  Agree(hello);
  const std::optional<Proven>& proven = request.proven_;
  const std::string encoded =
      proven.has_value() ? EncodeAccept(answer, proven->key, proven->connect) : Encode(answer);
  const absl::Status status = parts_.receive_ring.Refill(kFirstReceives, 0)
                                  ? port_.queue_pair_->Accept(*request.request_, encoded)
                                  : NoMemoryToAccept();
  if (!status.ok()) {
    request.Reject(status);
    return port_.Fail(status);
  }
  Poller& poller = port_.poller();
  poller.timers().Set(timer_, After(poller.environment().NowNs(), kAcceptTimeout));
}

absl::Status Opening::TakeAnswer(absl::string_view private_data) {
  absl::StatusOr<Handshake> answer = DecodeAnswer(private_data);
  if (!answer.ok()) {
    return absl::Status(answer.status().code(),
                        absl::StrCat("connect to ", port_.peer(), ": ", answer.status().message()));
  }
  if (handler_ != nullptr && (features_ & ~answer->features & kFeatureCredits) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "connect to ", port_.peer(), ": the peer accepted with features ", absl::Hex(answer->features),
        ", offered were ", absl::Hex(features_), ", which its session has"));
  }
  peer_hello_ = *answer;
  port_.peer_identity_ =
      OrNotAuthenticated(proving_ != nullptr ? proving_->result.server : port_.queue_pair_->peer_identity());
  StopProving();
  Agree(*answer);
  return absl::OkStatus();
}

void Opening::NamePeer(const SocketAddress& address) {
  port_.peer_address_ = address;
  port_.peer_ = absl::StrCat(port_.poller().fabric().scheme(), "://", address.ToString());
}

void Opening::Agree(const Handshake& peer) {
  port_.agreed_ = peer;
  port_.agreed_.features = peer.features & features_;
  port_.agreed_.slots = static_cast<uint16_t>(std::min<uint32_t>(port_.options().slots, peer.slots));
  port_.agreed_.receive_buffer_bytes =
      std::min(port_.options().receive_buffer_bytes, peer.receive_buffer_bytes);
  port_.peer_message_bytes_max_ = peer.message_bytes_max;
  const ExchangeParts parts{port_, parts_.send_queue, parts_.outbounds, parts_.inbounds, parts_.control};
  const bool with_credits = (port_.agreed_.features & kFeatureCredits) != 0;
  if (handler_ == nullptr) {
    parts_.requester = std::make_unique<Requester>(parts, port_.agreed_.slots, with_credits);
  } else {
    const bool ends_grants = (port_.agreed_.features & kFeatureEndsGrants) != 0;
    parts_.responder = std::make_unique<Responder>(parts, port_.agreed_.slots, with_credits, ends_grants,
                                                   parts_.receive_ring, *handler_);
  }
}

}  // namespace hawser::transport
