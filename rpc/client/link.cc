#include "hawser/rpc/client/link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/log/peer_log.h"

namespace hawser::internal {

Link::Link(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
           const transport::ConnectionOptions& options, transport::Security security, Observer& observer)
    : runtime_(std::move(runtime)),
      poller_(poller),
      options_(options),
      security_(std::move(security)),
      observer_(&observer) {}

Link::~Link() {
  if (reverse_ != nullptr) poller_.AddAsyncInterest(-1);
}

absl::Status Link::Dial(const SocketAddress& address, absl::Duration give_up_after,
                        std::shared_ptr<const Serving> offers) {
  poller_.AssertHeld();
  address_ = address;
  give_up_ns_ = transport::After(poller_.now_ns(), give_up_after);
  offers_ = std::move(offers);
  transport::Handshake hello;
  hello.role = transport::Role::kForward;
  absl::StatusOr<transport::Connection*> connection = transport::Connection::Dial(
      poller_, address, options_, hello, give_up_after, *this, nullptr, security_);
  if (!connection.ok()) return connection.status();
  dialed_ = true;
  forward_ = *connection;
  return absl::OkStatus();
}

absl::Status Link::Accept(transport::PeerRequest request, const transport::SessionToken& session) {
  poller_.AssertHeld();
  absl::StatusOr<transport::Connection*> connection =
      transport::Connection::Accept(poller_, std::move(request), options_, session, *this, nullptr);
  if (!connection.ok()) return connection.status();
  forward_ = *connection;
  return absl::OkStatus();
}

void Link::Drain() {
  poller_.AssertHeld();
  ready_ = false;
  if (forward_ != nullptr) forward_->Drain();
  if (reverse_ != nullptr) reverse_->ExpectEnd();  // The server ends it after the forward one.
}

void Link::Close(const absl::Status& why) {
  poller_.AssertHeld();
  closed_ = true;
  if (forward_ != nullptr) forward_->Close(why);
  if (reverse_ != nullptr) reverse_->Close(why);
  if (probe_ != nullptr) probe_->Close();
}

std::string Link::DescribeSilence(int64_t heard_ns) const {
  return forward_ != nullptr ? forward_->DescribeSilence(heard_ns) : std::string();
}

void Link::OnReady(const transport::Handshake& peer) {
  peer_identity_ = forward_->peer_identity();
  session_ = peer.session;
  if (offers_ == nullptr) return BecomeReady();
  if (absl::Status status = DialReverse(peer.session); !status.ok()) Down(status);
}

absl::Status Link::DialReverse(const transport::SessionToken& session) {
  transport::Handshake hello;
  hello.role = transport::Role::kReverse;
  hello.features = forward_->agreed().features;
  hello.session = session;
  const int64_t left_ns = std::max<int64_t>(0, give_up_ns_ - poller_.now_ns());
  ServingConnection::Owner& owner = *this;
  if (reverse_counters_ == nullptr) {
    reverse_counters_ = std::make_unique<ServingCounters>(offers_->methods.size());
  }
  auto reverse = std::make_unique<ServingConnection>(runtime_, poller_, offers_, *reverse_counters_, owner);
  if (absl::Status status = reverse->Dial(address_, options_, hello, absl::Nanoseconds(left_ns), security_);
      !status.ok()) {
    return status;
  }
  reverse_ = std::move(reverse);
  poller_.AddAsyncInterest(1);  // The server may send requests at any time.
  return absl::OkStatus();
}

// The services are called only by the server that the channel calls. Requests that came with the end of the
// handshake are not served either: the connection is closed before it looks at them.
void Link::OnServingReady() {
  if (reverse_->peer_identity() == *peer_identity_) return BecomeReady();
  const absl::Status why = absl::UnauthenticatedError(absl::StrCat(
      "the reverse connection, for the services that this client offers, reached another server: \"",
      reverse_->peer_identity().ToString(), "\", and the forward one \"", peer_identity_->ToString(),
      "\"; do several servers share ", reverse_->peer_address(), "?"));
  transport::PeerLog::Process().Line(LogSeverity::kWarning, address_, why.message());
  Down(why);
}

// A client cannot be probed: it does not listen.
void Link::OnPeerSilent(absl::Duration left) {
  if (!dialed_ || closing() || probe_ != nullptr) return;
  SessionProbe::Owner& owner = *this;
  auto probe = std::make_unique<SessionProbe>(poller_, owner);
  SessionProbe& dialing = *probe;
  probe_ = std::move(probe);
  if (!dialing.Dial(address_, options_, session_, left, security_).ok()) probe_.reset();
}

// After any answer but Aborted the connection ends at its keepalive_timeout. So it does after NotFound,
// because several servers may share an address, and another one may have answered.
void Link::OnProbeAnswer(const absl::Status& answer) {
  if (closing()) return;
  if (absl::IsAborted(answer)) {
    if (forward_ != nullptr) forward_->PeerIsBusy(answer.message());
    if (reverse_ != nullptr) reverse_->PeerIsBusy(answer.message());
  }
}

void Link::OnProbeEnded() {
  probe_.reset();
  CheckGone();
}

void Link::BecomeReady() {
  if (down_) return;
  ready_ = true;
  observer_->OnLinkReady(*this);
}

void Link::OnClosed(const absl::Status&) {
  forward_ = nullptr;
  CheckGone();
}

void Link::OnServingLost(const absl::Status& why) {
  Down(absl::Status(why.code(),
                    absl::StrCat("the reverse connection, for the services that this client offers: ",
                                 absl::string_view(why.message()))));
}

void Link::OnServingEnded() {
  reverse_.reset();
  poller_.AddAsyncInterest(-1);
  CheckGone();
}

void Link::Down(const absl::Status& why) {
  if (std::exchange(down_, true)) return;
  ready_ = false;
  observer_->OnLinkLost(*this, why);
  Close(why);
}

// The last step of an event handler, because it may destroy this.
void Link::CheckGone() {
  if (forward_ == nullptr && reverse_ == nullptr && probe_ == nullptr) observer_->OnLinkEnded(*this);
}

}  // namespace hawser::internal
