#include "hawser/rpc/client/channel_core.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "hawser/base/check.h"
#include "hawser/base/option_range.h"
#include "hawser/rpc/client/connection_group.h"
#include "hawser/rpc/service.h"
#include "hawser/rpc/status.h"
#include "hawser/rpc/wire/credentials.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/rpc/wire/read_limits.h"
#include "hawser/transport/fabrics.h"
#include "hawser/transport/log/peer_log.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::internal {
namespace {

// An attempt gets a little longer than the call, because its result says more than a timeout does.
constexpr absl::Duration kConnectGrace = absl::Milliseconds(100);

// Calls that a connection hands to others in one turn of its poller. Each takes about 2 us.
constexpr int kRedealtMax = 256;

// Each connection has receives at both sides, and more of them than a server has pollers, or a network has
// paths, only take memory. A server admits 16384 connections of one host.
constexpr int64_t kConnectionsMax = 16;

// How old an error of an attempt to connect is when its text begins to say so.
constexpr int64_t kNewNs = 10'000'000;

// The most draining connections ("going away") that still have calls to answer. An honest server leaves one
// of them. If a server drains each connection in turn, the channel closes the oldest ones, and their calls
// fail.
constexpr size_t kCalledOffMax = 4;

absl::StatusOr<std::shared_ptr<Serving>> MakeOffers(const ChannelOptions& options) {
  if (options.services.empty()) return nullptr;
  auto offers = std::make_shared<Serving>();
  offers->read = options.read;
  offers->interceptors = options.interceptors;
  for (Service* service : options.services) {
    if (service == nullptr)
      return absl::InvalidArgumentError("ChannelOptions::services: one of them is null");
    service->AddMethods(offers->methods);
  }
  if (const Method* method = offers->methods.conflict(); method != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("ChannelOptions::services: two of them implement ", method->name));
  }
  return offers;
}

// What the server sends goes over the reverse connection of one session, and a session has one forward
// connection.
absl::Status CheckOneSession(const ChannelOptions& options) {
  if (options.connections == 1 || options.services.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ChannelOptions::connections is ", options.connections,
                   ", and ChannelOptions::services is not empty: services belong to the session of one "
                   "connection; offer them on a channel "
                   "of their own, which has one"));
}

absl::Status CheckRanges(const ChannelOptions& options) {
  constexpr absl::Duration kBackoffMost = absl::Hours(24 * 365);
  return FirstError(
      CheckOption("ChannelOptions::default_timeout", options.default_timeout, absl::Microseconds(1),
                  absl::InfiniteDuration(), "infinite: no deadline"),
      CheckOption("ChannelOptions::connect_timeout", options.connect_timeout, absl::Milliseconds(1),
                  absl::InfiniteDuration()),
      CheckOption("ChannelOptions::backoff_min", options.backoff_min, absl::Milliseconds(1), kBackoffMost),
      CheckOption("ChannelOptions::backoff_max", options.backoff_max, absl::Milliseconds(1), kBackoffMost),
      CheckOption("ChannelOptions::connections", int64_t{options.connections}, int64_t{1}, kConnectionsMax),
      transport::Connection::CheckOptions(options.connection),
      CheckReadLimits(options.read, "ChannelOptions::read"), CheckOneSession(options));
}

// With several devices: the device of the local address, or of the route to the target. Names are not looked
// up for this, because a lookup blocks.
std::string DeviceTo(const transport::Uri& uri, const std::string& local_address) {
  const absl::StatusOr<SocketAddress> local = transport::ParseNumericHost(local_address);
  const absl::StatusOr<SocketAddress> remote = transport::ParseNumericHost(uri.host);
  if (!local.ok() && !remote.ok()) return "";
  return transport::DeviceFor(uri.scheme, local.value_or(SocketAddress()), remote.value_or(SocketAddress()));
}

}  // namespace

absl::StatusOr<std::shared_ptr<ChannelCore>> ChannelCore::Create(absl::string_view uri,
                                                                 ChannelOptions options, bool insists) {
  absl::StatusOr<transport::Uri> parsed = transport::ParseUri(uri);
  if (!parsed.ok()) return parsed.status();
  if (parsed->port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(uri, ": port 0 is for listening; which one to connect to?"));
  }
  if (absl::Status in_range = CheckRanges(options); !in_range.ok()) return in_range;
  absl::Status intercepts = CheckInterceptors(options.interceptors, "ChannelOptions::interceptors");
  if (!intercepts.ok()) return intercepts;
  absl::StatusOr<std::shared_ptr<Serving>> offers = MakeOffers(options);
  if (!offers.ok()) return offers.status();
  // Checked before the runtime is made: without RDMA devices the caller should read that require_encryption
  // refuses rdma://, not that there is no device.
  transport::Security security;
  if (options.credentials.has_value()) {
    absl::Status secure =
        transport::CheckSchemeIsSecure(parsed->scheme, options.credentials->require_encryption);
    if (!secure.ok()) return secure;
    absl::StatusOr<std::shared_ptr<tls::Context>> tls =
        LoadCredentials(*options.credentials, "ChannelOptions::credentials", tls::Side::kClient);
    if (!tls.ok()) return tls.status();
    security.tls = *std::move(tls);
    security.host = parsed->host;
  }
  absl::StatusOr<std::shared_ptr<transport::Runtime>> runtime = RuntimeFor(*parsed, options);
  if (!runtime.ok()) return runtime.status();
  if (security.tls != nullptr && !(*runtime)->carries_tls()) {
    absl::StatusOr<std::shared_ptr<transport::Runtime>> over = RuntimeToProveOver(**runtime);
    if (!over.ok()) return over.status();
    security.prove_over = *std::move(over);
    security.runtime = *runtime;
  }
  if (!(*runtime)->poller(0).usable_in_this_process()) {
    return absl::FailedPreconditionError(
        "this process is a child made by fork() after the runtime of the channel's options was; make one "
        "here");
  }
  options.runtime = nullptr;  // The channel holds its reference in another member.
  const std::string address = parsed->ToString();
  const int connections = options.connections;
  std::vector<std::shared_ptr<ChannelCore>> cores;
  for (int number = 0; number < connections; ++number) {
    transport::Poller& poller = (*runtime)->NextPoller();
    std::shared_ptr<ChannelCore> core(new ChannelCore(*runtime, poller, address, options));
    core->dials_ = true;
    core->entry_.emplace(connections == 1
                             ? address
                             : absl::StrCat(address, " (connection ", number + 1, " of ", connections, ")"),
                         core->queue_.size());
    core->outgoing_ = OutgoingCalls::Process().To(address, poller);
    core->uri_ = *parsed;
    core->security_ = security;
    core->offers_ = *offers;
    cores.push_back(std::move(core));
  }
  const std::shared_ptr<ChannelCore> first = cores.front();
  if (*offers != nullptr) (*offers)->gate = first->gate_;  // There is one connection.
  if (connections > 1) {
    const auto group = std::make_shared<ConnectionGroup>(cores);
    for (size_t number = 0; number < cores.size(); ++number) {
      cores[number]->member_ = std::make_unique<Member>(*cores[number], group, number);
      cores[number]->takes_none_ = ForkMark::OfNoProcess();
    }
  }
  for (const std::shared_ptr<ChannelCore>& core : cores) {
    core->poller_.Run([core, insists] {
      core->self_ = core;
      if (insists) {
        core->insists_until_ns_ = transport::After(core->poller_.now_ns(), core->options_.connect_timeout);
      }
      if (insists && core->member_ != nullptr && core->member_->number == 0) {
        core->poller_.timers().Set(
            core->member_->late_timer,
            transport::After(core->poller_.now_ns(), core->options_.connect_timeout + kConnectGrace));
      }
      core->Connect();
    });
  }
  return first;
}

absl::StatusOr<std::shared_ptr<transport::Runtime>> ChannelCore::RuntimeFor(const transport::Uri& uri,
                                                                            const ChannelOptions& options) {
  if (options.runtime == nullptr) {
    const std::string device = DeviceTo(uri, options.connection.local_address);
    if (options.server != nullptr) return options.server->RuntimeOn(uri.scheme, device);
    return transport::Runtime::Default(uri.scheme, device);
  }
  if (absl::Status status = options.runtime->CheckServes(uri.scheme); !status.ok()) return status;
  return options.runtime;
}

absl::StatusOr<std::shared_ptr<transport::Runtime>> ChannelCore::RuntimeToProveOver(
    const transport::Runtime& runtime) {
  if (runtime.prove_over() != nullptr) return runtime.prove_over();
  return transport::Runtime::Default(transport::kProvingScheme);
}

absl::StatusOr<std::shared_ptr<ChannelCore>> ChannelCore::Accept(
    std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller, transport::PeerRequest request,
    const transport::SessionToken& session, ChannelOptions options, absl::AnyInvocable<void()> on_gone) {
  const std::string address = absl::StrCat(runtime->scheme(), "://", request.peer_address().ToString());
  std::shared_ptr<ChannelCore> core(new ChannelCore(std::move(runtime), poller, address, std::move(options)));
  Link::Observer& observer = *core;
  core->link_ = std::make_unique<Link>(core->runtime_, poller, core->options_.connection,
                                       transport::Security(), observer);
  const std::shared_ptr<const PeerIdentity> identity = request.peer_identity();
  if (absl::Status status = core->link_->Accept(std::move(request), session); !status.ok()) return status;
  core->SetPeerIdentity(identity);
  core->outgoing_ = OutgoingCalls::Process().To(OutgoingCalls::kClients, poller);
  core->on_gone_ = std::move(on_gone);
  core->self_ = core;
  return core;
}

std::shared_ptr<ChannelCore> ChannelCore::WithoutConnection(NoChannel why) {
  std::shared_ptr<ChannelCore> core(
      new ChannelCore(std::move(why.runtime), *why.poller, std::move(why.peer_address), {}));
  core->is_null_ = true;
  core->why_closed_ = absl::FailedPreconditionError(why.why);
  core->state_.store(ChannelState::kClosed, std::memory_order_release);
  return core;
}

ChannelCore::ChannelCore(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
                         std::string peer_address, ChannelOptions options)
    : CallSender(
          std::move(runtime), poller, std::move(peer_address), std::move(options),
          [this](UntypedCall& call) {
            call.EndSoon(call.Error(absl::StatusCode::kDeadlineExceeded,
                                    absl::StrCat(WhyUnsent(), poller_.WhyLate(call.deadline_ns_))));
          },
          [this] { Notify(); }),
      backoff_(options_.backoff_min),
      retry_timer_([this] { OnRetryTimer(); }),
      insists_timer_([this] { OnFirstAttempt(refused_); }) {}

ChannelCore::Member::Member(ChannelCore& core, std::shared_ptr<ConnectionGroup> of, size_t its_number)
    : group(std::move(of)),
      number(its_number),
      carried(core.poller_,
              [&core](UntypedCall& call) {
                call.EndWithoutCarrier(
                    absl::StatusCode::kDeadlineExceeded,
                    absl::StrCat("the deadline passed while another connection of the channel carried it",
                                 core.poller_.WhyLate(call.deadline_ns_)));
              }),
      late_timer([&core] { core.OnFirstAttemptsTimeout(); }),
      redeal_timer([&core] { core.Redeal(); }) {}

ChannelCore::~ChannelCore() = default;

// ---- From any thread.

absl::Status ChannelCore::WaitForFirstAttempt() {
  const auto until_ns = [this] {
    return transport::After(poller_.environment().NowNs(), options_.connect_timeout + kConnectGrace);
  };
  const auto connecting = [this](const absl::Status& why) {
    absl::Status status(
        why.code(), absl::StrCat("connecting to ", peer_address_, ": ", absl::string_view(why.message())));
    KeepTextHere(status, "connecting");
    return status;
  };
  while (!poller_.WaitFor(first_attempt_done_, until_ns)) {
    const std::optional<transport::CalledOut::Call> call = poller_.called_out().Now();
    if (call.has_value()) return connecting(HeldUp(*call));
    // The poller was held, and runs again.
  }
  return first_attempt_.ok() ? absl::OkStatus() : connecting(first_attempt_);
}

absl::Status ChannelCore::HeldUp(const transport::CalledOut::Call& by) const {
  return absl::UnavailableError(
      absl::StrCat("not done within ", absl::FormatDuration(options_.connect_timeout),
                   " (ChannelOptions::connect_timeout), because the poller that has to do it is held by ",
                   transport::Describe(by)));
}

// A thread that waits for the first attempts drives this poller, or its own thread does; another connection's
// may be held.
void ChannelCore::OnFirstAttemptsTimeout() {
  if (first_attempt_done_.is_set()) return;
  const std::optional<transport::CalledOut::Call> call = member_->group->HoldsFirstAttempt();
  if (call.has_value()) return EndFirstAttempt(HeldUp(*call));
  poller_.timers().Set(member_->late_timer, transport::After(poller_.now_ns(), kConnectGrace));
}

void ChannelCore::Close(const absl::Status& why) {
  if (!poller_.usable_in_this_process()) return;
  poller_.Run([core = Self(), why] { core->CloseNow(why); });
}

void ChannelCore::CloseChannel(const absl::Status& why) {
  if (!poller_.usable_in_this_process()) return;
  if (member_ == nullptr) return Close(why);
  for (const std::shared_ptr<ChannelCore>& core : member_->group->Cores()) core->Close(why);
}

void ChannelCore::OnChannelCreated() {
  if (member_ == nullptr) return calls_.KeepOnPoller();
  for (const std::shared_ptr<ChannelCore>& core : member_->group->Cores()) core->calls_.KeepOnPoller();
}

void ChannelCore::OnChannelDestroyed() {
  if (!poller_.usable_in_this_process()) return;
  // The application's objects may be destroyed from here on: none of its code runs any more.
  gate_->Close();
  if (member_ == nullptr) return CloseOnceIdle();
  for (const std::shared_ptr<ChannelCore>& core : member_->group->Release()) core->CloseOnceIdle();
}

void ChannelCore::CloseOnceIdle() {
  calls_.CloseWhenIdle();
  if (offers_ != nullptr) Close(absl::CancelledError("the channel was destroyed"));
  CloseIfIdle();
}

// Asks on the poller: until then it may carry a call of another connection of the channel. The end of that
// call asks again.
void ChannelCore::CloseIfIdle() {
  if (!poller_.usable_in_this_process()) return;
  poller_.Run([core = Self()] {
    core->calls_.GiveUpKept();
    if (core->calls_in_use() == 0) core->CloseNow(absl::CancelledError("the channel was destroyed"));
  });
}

void ChannelCore::OnClosed(absl::AnyInvocable<void()> callback) {
  if (callback == nullptr || !poller_.usable_in_this_process()) return;
  poller_.Run([core = Self(), callback = std::move(callback)]() mutable {
    core->on_closed_.push_back(std::move(callback));
    if (core->closed()) core->ScheduleNotify();
  });
}

absl::StatusOr<Buffer> ChannelCore::AllocateBuffer(size_t size_bytes) {
  if (!poller_.usable_in_this_process()) {
    return absl::FailedPreconditionError("this process is a child made by fork() after the channel was");
  }
  return Buffer::Allocate(runtime_->buffers(), size_bytes);
}

ChannelState ChannelCore::channel_state() const {
  return member_ == nullptr ? state() : member_->group->state();
}

// ---- Calls.

const std::shared_ptr<CallSender>& ChannelCore::ForNewCall() { return member_->group->Choose(); }

bool ChannelCore::StartWhileNotReady(UntypedCall& call) {
  if (call.carried_for_ != nullptr) {
    call.GiveBack();
    return true;
  }
  if (closed()) {
    call.EndSoon(WhyClosed(call));
    return true;
  }
  if (member_ != nullptr && SendBeside(call)) return true;
  if (state() == ChannelState::kTransientFailure && !call.wait_for_ready_ &&
      (member_ == nullptr || !member_->group->hopeful())) {
    call.EndSoon(call.Error(CodeWhileNotConnected(), WhyNotConnected()));
    return true;
  }
  return false;
}

bool ChannelCore::SendBeside(UntypedCall& call) {
  const std::shared_ptr<ChannelCore> other = member_->group->ReadyOne(*this);
  if (other == nullptr) return false;
  call.Move(CallStage::Event::kCarry);
  member_->carried.PushBack(call);
  UntypedCall* const carrier = other->calls_.Get(other, other->poller_.Held());
  carrier->PrepareToCarry(call, *other);
  call.carrier_ = carrier;
  other->poller_.Run([carrier] { carrier->StartToCarry(); });
  return true;
}

void ChannelCore::Redeal() {
  poller_.AssertHeld();
  if (queue_.empty() || state() == ChannelState::kReady || member_->group->ReadyOne(*this) == nullptr) return;
  // One at a time: what Start() runs on the poller of another connection may cancel the others.
  uint64_t left = queue_.size().value();
  for (int i = 0; left > 0 && !queue_.empty(); --left, ++i) {
    if (i == kRedealtMax) {
      poller_.timers().Set(member_->redeal_timer, poller_.now_ns() + 1);
      return;
    }
    UntypedCall& call = *queue_.front();
    queue_.Remove(call);
    Start(call);
  }
}

void ChannelCore::FailQueuedWithoutHope() {
  poller_.AssertHeld();
  if (state() == ChannelState::kTransientFailure && !member_->group->hopeful()) FailQueued();
}

void ChannelCore::FailQueued() {
  for (UntypedCall* call : queue_.TakeIf([](const UntypedCall& each) { return !each.wait_for_ready_; })) {
    call->EndSoon(call->Error(CodeWhileNotConnected(), WhyNotConnected()));
  }
}

absl::Status ChannelCore::WhyClosed(const UntypedCall& call) const {
  if (is_null_) {
    return PublicCallError(why_closed_.code(), call.method_.name, why_closed_.message(), /*sent=*/false);
  }
  return call.Error(why_closed_.code(), why_closed_.message());
}

void ChannelCore::ForgetCarried(UntypedCall& call) { member_->carried.Remove(call); }

// ---- Connecting.

// The step that handles a loss may close this core before it dials again: it gives back the last call that
// the core carried for a channel that is destroyed.
void ChannelCore::Connect() {
  poller_.AssertHeld();
  if (closed()) return;
  Attempt::Owner& owner = *this;
  attempt_ = std::make_shared<Attempt>(runtime_, poller_, uri_, options_, security_, offers_, owner);
  attempt_->Start();
}

void ChannelCore::ConnectLater() {
  poller_.AssertHeld();
  if (closed()) return;  // As in Connect().
  // Spreads out clients that lost the same server at the same time.
  uint8_t byte;
  poller_.environment().FillRandom(absl::MakeSpan(&byte, 1));
  const absl::Duration wait = backoff_ * (256 + byte) / 512;
  poller_.timers().Set(retry_timer_, transport::After(poller_.now_ns(), wait));
  backoff_ = std::min(backoff_ * 2, std::max(options_.backoff_min, options_.backoff_max));
}

void ChannelCore::OnRetryTimer() {
  if (state() == ChannelState::kTransientFailure) Move(ChannelEvent::kRetry, why_failed_);
  Connect();
}

std::string ChannelCore::WhyUnsent() {
  if (link_ != nullptr) {
    return absl::StrCat("the deadline passed while it waited for a slot: ", link_->forward().DescribeSlots(),
                        " (ConnectionOptions::slots)", link_->peer_is_busy());
  }
  return absl::StrCat("the deadline passed while it waited for a connection; ",
                      why_failed_.ok()
                          ? "no attempt to connect has ended since it was lost or the channel made"
                          : WhyNotConnected());
}

std::string ChannelCore::WhyNotConnected() const {
  const auto rough = [](int64_t ns) {
    return transport::RoughDuration(absl::Nanoseconds(std::max<int64_t>(0, ns)));
  };
  const int64_t now_ns = poller_.now_ns();
  const int64_t age_ns = now_ns - failed_ns_;
  return absl::StrCat(absl::string_view(why_failed_.message()),
                      age_ns < kNewNs ? "" : absl::StrCat(" (", rough(age_ns), " ago)"),
                      "; the next attempt ",
                      retry_timer_.is_set() ? absl::StrCat("is in ", rough(retry_timer_.when_ns() - now_ns))
                                            : "is under way");
}

void ChannelCore::OnAttemptConnected(std::unique_ptr<Link> link) {
  poller_.AssertHeld();
  attempt_.reset();
  why_failed_ = absl::OkStatus();
  link->set_observer(*this);
  link_ = std::move(link);
  OnLinkReady(*link_);
}

void ChannelCore::OnAttemptFailed(const absl::Status& why) {
  poller_.AssertHeld();
  attempt_.reset();
  if (InsistsOnFirst(why)) {
    refused_ = why;
    poller_.timers().Set(insists_timer_, insists_until_ns_);
    return ConnectLater();
  }
  why_failed_ = absl::Status(why.code(), absl::StrCat("not connected: ", absl::string_view(why.message())));
  failed_ns_ = poller_.now_ns();
  Move(ChannelEvent::kAttemptFailed, why);
  ConnectLater();
  if (member_ == nullptr || !member_->group->hopeful()) FailQueued();
}

// A server that has no room now may have some in a moment, since connections that are no more, or say
// nothing, make room for others. While there is time, Channel::Connect() hears only of the attempt that ends
// otherwise.
bool ChannelCore::InsistsOnFirst(const absl::Status& why) const {
  return !had_first_attempt_ && absl::IsResourceExhausted(why) && transport::IsRefusedByPeer(why) &&
         transport::After(poller_.now_ns(), backoff_) < insists_until_ns_;
}

// A server that lacks memory or has too many connections is reported as such, not as unreachable. So is a
// TLS handshake that failed: another try helps only after a certificate is replaced.
absl::StatusCode ChannelCore::CodeWhileNotConnected() const {
  const bool says_more = absl::IsResourceExhausted(why_failed_) || absl::IsUnauthenticated(why_failed_);
  return says_more ? why_failed_.code() : absl::StatusCode::kUnavailable;
}

void ChannelCore::Retire(std::unique_ptr<Link> link) {
  poller_.AssertHeld();
  link->set_observer(*this);
  old_links_.push_back(std::move(link));
}

void ChannelCore::OnLinkReady(Link&) {
  poller_.AssertHeld();
  ready_since_ns_ = poller_.now_ns();
  SetPeerIdentity(link_->peer_identity());
  Move(ChannelEvent::kConnected, absl::OkStatus());
  Pump();
}

// This side, too, closes the link after its last call: an honest server does, but another may not.
void ChannelCore::OnLinkGoingAway(Link& link) {
  poller_.AssertHeld();
  if (&link != link_.get() || !dials_) return;
  Lose(link, absl::UnavailableError("the server is shutting down"));
  link.Drain();
  CloseOldestLinks();
}

void ChannelCore::OnCallNotRun(transport::Connection& connection) {
  poller_.AssertHeld();
  if (link_ != nullptr && link_->Carries(connection)) OnLinkGoingAway(*link_);
}

void ChannelCore::CloseOldestLinks() {
  const auto open = [](const std::unique_ptr<Link>& link) { return !link->closing(); };
  auto too_many =
      std::count_if(old_links_.begin(), old_links_.end(), open) - static_cast<std::ptrdiff_t>(kCalledOffMax);
  // By index: ending a link may add another.
  for (size_t i = 0; i < old_links_.size() && too_many > 0; ++i) {
    if (!open(old_links_[i])) continue;
    --too_many;
    old_links_[i]->Close(absl::UnavailableError(absl::StrCat("the server called off ", kCalledOffMax,
                                                             " connections more before this one had ended")));
  }
}

void ChannelCore::OnLinkLost(Link& link, const absl::Status& why) {
  poller_.AssertHeld();
  if (&link != link_.get()) return;
  if (dials_) return Lose(link, why);
  CloseNow(absl::UnavailableError(absl::StrCat("the client is gone: ", absl::string_view(why.message()))));
}

void ChannelCore::Lose(Link& link, const absl::Status& why) {
  const bool heard = link.heard();
  SetPeerIdentity(transport::OrNotAuthenticated(nullptr));
  Retire(std::move(link_));
  Move(ChannelEvent::kLost, why);
  if (member_ != nullptr) Redeal();
  // Backs off. Otherwise a server that accepts and then drops all connections, or drains each before the last
  // one has ended, would get a storm of connections. Likewise idle clients that reconnect at once: if they
  // are more than the server admits as newcomers (Admission), they would displace each other endlessly.
  if (!heard || old_links_.size() > 1 ||
      poller_.now_ns() - ready_since_ns_ < absl::ToInt64Nanoseconds(backoff_)) {
    return ConnectLater();
  }
  backoff_ = options_.backoff_min;
  Connect();
}

void ChannelCore::OnLinkEnded(Link& link) {
  poller_.AssertHeld();
  const auto at = std::find_if(old_links_.begin(), old_links_.end(),
                               [&](const auto& each) { return each.get() == &link; });
  if (at != old_links_.end()) old_links_.erase(at);
  ReleaseSelf();
}

// ---- Closing and state changes.

void ChannelCore::CloseNow(const absl::Status& why) {
  poller_.AssertHeld();
  if (closed()) return;
  why_closed_ = why;
  Move(ChannelEvent::kClose, why);
  poller_.timers().Cancel(retry_timer_);
  if (member_ != nullptr) {
    poller_.timers().Cancel(member_->late_timer);
    poller_.timers().Cancel(member_->redeal_timer);
  }
  if (attempt_ != nullptr) std::exchange(attempt_, nullptr)->Abandon();
  for (CallQueue* queue : {&queue_, &awaiting_}) {
    for (UntypedCall* call : queue->TakeIf([](const UntypedCall&) { return true; })) {
      call->EndSoon(call->Error(why.code(), why.message()));
    }
  }
  // One at a time: what a cancel runs on the poller of another connection may end the others.
  while (member_ != nullptr && !member_->carried.empty()) {
    UntypedCall& call = *member_->carried.front();
    member_->carried.Remove(call);
    call.EndWithoutCarrier(why.code(), why.message());
  }
  SetPeerIdentity(transport::OrNotAuthenticated(nullptr));
  if (link_ != nullptr) Retire(std::move(link_));
  for (size_t i = 0; i < old_links_.size(); ++i) old_links_[i]->Close(why);
}

// That of the first connection that is up.
std::shared_ptr<const PeerIdentity> ChannelCore::channel_peer_identity() const {
  if (member_ != nullptr) {
    for (const std::shared_ptr<ChannelCore>& core : member_->group->Cores()) {
      if (core->state() == ChannelState::kReady) return core->peer_identity();
    }
  }
  return peer_identity();
}

void ChannelCore::Move(ChannelEvent event, const absl::Status& why) {
  poller_.AssertHeld();
  const ChannelState from = state();
  const std::optional<ChannelState> to = NextState(from, event);
  HAWSER_CHECK(to.has_value(), "channel to ", peer_address_, " met event ", static_cast<int>(event),
               " while it was ", ToString(from));
  if (*to == from) return;
  state_.store(*to, std::memory_order_release);
  if (entry_.has_value()) entry_->OnEvent(event, *to);
  if (LogLevel() <= LogSeverity::kDebug) [[unlikely]] {
    transport::PeerLog::Process().Debug(absl::StrCat("the channel to ", peer_address_, " is ", ToString(*to),
                                                     why.ok() ? "" : ": ", absl::string_view(why.message())));
  }
  if (member_ != nullptr) {
    member_->group->OnEvent(member_->number, event, *to, why);
  } else {
    news_.emplace_back(*to, why);
  }
  if (*to != ChannelState::kConnecting) OnFirstAttempt(why);
  ScheduleNotify();
}

void ChannelCore::OnFirstAttempt(const absl::Status& why) {
  if (std::exchange(had_first_attempt_, true)) return;
  poller_.timers().Cancel(insists_timer_);
  if (member_ == nullptr) return EndFirstAttempt(why);
  member_->group->OnFirstAttempt(why);
}

void ChannelCore::EndFirstAttempt(const absl::Status& why) {
  poller_.AssertHeld();
  if (first_attempt_done_.is_set()) return;  // It was late.
  if (member_ != nullptr) poller_.timers().Cancel(member_->late_timer);
  first_attempt_ = why;
  first_attempt_done_.Set();
}

void ChannelCore::NotifyGroupNews() {
  poller_.AssertHeld();
  for (auto& news : member_->group->TakeNews()) news_.push_back(std::move(news));
  if (!news_.empty()) ScheduleNotify();
}

void ChannelCore::Notify() {
  poller_.AssertHeld();
  const std::shared_ptr<CallSender> keep = shared_from_this();
  for (const auto& change :
       std::exchange(news_, {})) {  // No structured binding: clang 14 cannot capture one.
    if (!options_.on_state_change || !gate_->Enter()) break;
    const transport::Poller::CallOut out(poller_, "on_state_change of", "a channel");
    CallUser("on_state_change of the channel to", peer_address_,
             [&] { options_.on_state_change(change.first, change.second); });
    gate_->Leave();
  }
  if (!HandOverSome()) {
    // The rest follows in the next turn.
    poller_.timers().Set(notify_timer_, poller_.now_ns() + 1);
    return;
  }
  if (closed()) {
    for (auto& callback : std::exchange(on_closed_, {})) {
      const transport::Poller::CallOut out(poller_, "the OnClosed() callback of", "a channel");
      CallUser("the OnClosed() callback of the channel to", peer_address_, [&] { callback(); });
    }
  }
  ReleaseSelf();
}

// Nothing in flight refers to this any more: only calls and the Channel own it.
void ChannelCore::ReleaseSelf() {
  if (!closed() || link_ != nullptr || !old_links_.empty() || notify_timer_.is_set()) return;
  const std::shared_ptr<CallSender> last = std::move(self_);
  // Not earlier: until here callbacks of its calls may run, and the server's owner must outlive them.
  if (on_gone_) std::exchange(on_gone_, nullptr)();
}

}  // namespace hawser::internal
