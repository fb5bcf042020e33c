#include "hawser/rpc/server/session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/transport/acceptor.h"

namespace hawser::internal {
namespace {

// How often CloseIfNothingReceived() looks whether the poller has read what the client sent, and whether it
// was a message.
constexpr absl::Duration kFirstMessageInterval = absl::Milliseconds(10);
// How often it looks at most: a client that trickles bytes always has some on the way.
constexpr int kFirstMessageLooksMax = 100;

SocketAddress WithoutPort(SocketAddress address) {
  address.set_port(0);
  return address;
}

}  // namespace

Session::Session(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
                 const SocketAddress& peer, std::shared_ptr<const PeerIdentity> identity,
                 const Admission::Place& place, const ServerOptions& options,
                 std::shared_ptr<const Serving> serving, ServingCounters& counters, Owner& owner)
    : peer_host_(WithoutPort(peer)),
      peer_identity_(std::move(identity)),
      place_(place),
      options_(options),
      owner_(owner),
      token_(transport::NewSessionToken(poller.environment())),
      serving_(std::move(runtime), poller, std::move(serving), counters, *this),
      since_unix_ns_(absl::ToUnixNanos(poller.environment().Now())),
      first_message_timer_([this] { CloseIfNothingReceived(); }) {}

absl::Status Session::Accept(transport::PeerRequest request) {
  poller().AssertHeld();
  return serving_.Accept(std::move(request), options_.connection, token_);
}

// The identity is compared, because otherwise a handler that has authorized one client could push to another.
// Without TLS the token crosses the network unencrypted, so the host is compared; the runtime because a
// fabric casts each request that it accepts to its own type.
absl::Status Session::CheckFurther(absl::string_view what, const transport::Runtime& runtime,
                                   const SocketAddress& peer, const PeerIdentity& identity) const {
  if (&runtime != serving_.runtime().get()) {
    return absl::PermissionDeniedError(
        absl::StrCat(what, " has to come over the same fabric and device as its session"));
  }
  if (WithoutPort(peer).ToString() != peer_host_.ToString()) {
    return absl::PermissionDeniedError(absl::StrCat(what, " has to come from the same host as its session"));
  }
  if (identity.is_authenticated && !identity.has_names()) {
    return absl::PermissionDeniedError(
        absl::StrCat(what, " needs a certificate with a name: without one all look alike"));
  }
  // The text does not name the session's identity: the peer may have stolen the token.
  if (!(identity == *peer_identity_)) {
    return absl::PermissionDeniedError(
        absl::StrCat(what, " needs a certificate with the names of its session's: ", identity.ToString()));
  }
  return absl::OkStatus();
}

absl::Status Session::AcceptReverse(transport::PeerRequest request, const Admission::Place& place) {
  poller().AssertHeld();
  absl::Status refused;
  {
    absl::MutexLock lock(&mutex_);
    if (peer_ != nullptr)
      refused = absl::AlreadyExistsError("the session has, or had, its reverse connection");
  }
  if (closed_) refused = absl::NotFoundError("the session has ended");
  if (!refused.ok()) {
    request.Refuse(refused);
    return refused;
  }
  ChannelOptions options;
  options.connection = options_.connection;
  options.read = options_.read;
  options.interceptors = options_.interceptors;
  absl::StatusOr<std::shared_ptr<ChannelCore>> core =
      ChannelCore::Accept(serving_.runtime(), poller(), std::move(request), token_, std::move(options),
                          [&owner = owner_, place] { owner.OnFurtherEnded(place); });
  if (!core.ok()) return core.status();
  auto channel = std::make_shared<Channel>(*std::move(core));
  absl::MutexLock lock(&mutex_);
  peer_ = std::move(channel);
  return absl::OkStatus();
}

std::shared_ptr<SessionMemory> Session::Memory() {
  absl::MutexLock lock(&mutex_);
  if (memory_ == nullptr) {
    std::shared_ptr<SharedRegions> regions = owner_.shared_regions();
    if (regions == nullptr) return nullptr;
    memory_ = std::make_shared<SessionMemory>(serving_.runtime(), serving_.poller(), PeerHost(peer_host_),
                                              std::move(regions));
  }
  return memory_;
}

absl::Status Session::AcceptLane(transport::PeerRequest request, const Admission::Place& place) {
  poller().AssertHeld();
  const std::shared_ptr<SessionMemory> memory = closed_ ? nullptr : Memory();
  if (memory == nullptr) {
    const absl::Status refused = closed_ ? absl::NotFoundError("the session has ended")
                                         : absl::FailedPreconditionError("the server shares no memory");
    request.Refuse(refused);
    return refused;
  }
  return memory->Accept(std::move(request), [&owner = owner_, place] { owner.OnFurtherEnded(place); });
}

absl::StatusOr<transport::LaneTicket> Session::GrantMemory(
    const std::shared_ptr<transport::LentMemory>& memory, uint64_t offset, uint64_t length, uint8_t access,
    const std::shared_ptr<transport::Arrivals>& arrivals) {
  const std::shared_ptr<SessionMemory> mine = Memory();
  if (mine == nullptr) return absl::FailedPreconditionError("the server shares no memory");
  return mine->Grant(memory, offset, length, access, arrivals);
}

// A client that loses its reverse connection soon ends the session by itself.
std::shared_ptr<Channel> Session::peer() {
  absl::MutexLock lock(&mutex_);
  return peer_ != nullptr && peer_->state() != ChannelState::kClosed ? peer_ : nullptr;
}

void Session::CloseIfNothingReceived() {
  poller().AssertHeld();
  if (has_received_ || closed_) return;
  if (serving_.has_unpolled() && ++first_message_looks_ <= kFirstMessageLooksMax) {
    return poller().timers().Set(first_message_timer_,
                                 transport::After(poller().now_ns(), kFirstMessageInterval));
  }
  Close(
      absl::ResourceExhaustedError("the server's memory for receives, or its number of new clients, is "
                                   "nearly used up: a client that had sent "
                                   "nothing yet makes room for newer ones"));
}

void Session::OnServingFirstMessage() {
  has_received_ = true;
  poller().timers().Cancel(first_message_timer_);
  owner_.OnSessionFirstMessage(*this);
}

void Session::OnServingClosed(const absl::Status& why) {
  closed_ = true;
  poller().timers().Cancel(first_message_timer_);
  std::shared_ptr<Channel> peer;
  std::shared_ptr<SessionMemory> memory;
  {
    absl::MutexLock lock(&mutex_);
    peer = std::move(peer_);
    memory = memory_;
  }
  if (memory != nullptr) memory->Close(why);
  if (peer != nullptr) {
    peer->core()->Close(
        absl::UnavailableError(absl::StrCat("the client is gone: ", absl::string_view(why.message()))));
  }
  owner_.OnSessionLost(*this);
}

void Session::OnServingEnded() { owner_.OnSessionEnded(*this); }

}  // namespace hawser::internal
