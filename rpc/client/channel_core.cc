#include "hawser/rpc/client/channel_core.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/rpc/client/carried_calls.h"
#include "hawser/rpc/client/connection_group.h"
#include "hawser/rpc/client/outgoing_calls.h"
#include "hawser/rpc/client/remote_lane.h"
#include "hawser/rpc/serving/serving.h"
#include "hawser/rpc/status.h"
#include "hawser/transport/log/peer_log.h"

namespace hawser::internal {
namespace {

// Calls that a connection hands to others in one turn of its poller. Each takes about 2 us.
constexpr int kRedealtMax = 256;

}  // namespace

std::shared_ptr<ChannelCore> ChannelCore::Create(const ChannelSetup& setup, bool insists) {
  const int connections = setup.options.connections;
  std::vector<std::shared_ptr<ChannelCore>> cores;
  for (int number = 0; number < connections; ++number) {
    std::shared_ptr<ChannelCore> core(
        new ChannelCore(setup.runtime, setup.runtime->NextPoller(), setup.address, setup.options));
    core->dials_ = true;
    core->entry_.emplace(setup.NameOf(number), core->queue_.size());
    core->outgoing_ = OutgoingCalls::Process().To(setup.address, core->poller_);
    core->uri_ = setup.uri;
    core->security_ = setup.security;
    core->offers_ = setup.offers;
    cores.push_back(std::move(core));
  }
  const std::shared_ptr<ChannelCore> first = cores.front();
  if (setup.offers != nullptr) setup.offers->gate = first->news_.gate();  // There is one connection.
  if (connections > 1) {
    const auto group = std::make_shared<ConnectionGroup>(cores);
    for (size_t number = 0; number < cores.size(); ++number) {
      cores[number]->member_ = std::make_unique<GroupMember>(group, number, *cores[number]);
      cores[number]->takes_none_ = ForkMark::OfNoProcess();
    }
  }
  for (const std::shared_ptr<ChannelCore>& core : cores)
    core->poller_.Run([core, insists] { core->StartDialing(insists); });
  return first;
}

void ChannelCore::StartDialing(bool insists) {
  self_ = shared_from_this();
  if (insists) {
    const int64_t until_ns = transport::After(poller_.now_ns(), options_.connect_timeout);
    first_attempt_.InsistUntil(until_ns);
    if (member_ != nullptr && member_->number == 0)
      poller_.timers().Set(member_->late_timer, transport::After(until_ns, FirstAttempt::kGrace));
  }
  Connect();
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
            call.EndSoon(call.errors().Error(absl::StatusCode::kDeadlineExceeded,
                                             absl::StrCat(WhyUnsent(), poller_.WhyLate(call.deadline_ns_))));
          },
          [this] { Notify(); }),
      first_attempt_([this] { OnFirstAttempt(first_attempt_.refused()); }),
      redial_(options_.backoff_min, [this] { OnRetryTimer(); }) {}

ChannelCore::~ChannelCore() = default;

// ---- From any thread.

ConnectionGroup* ChannelCore::group() const { return member_ == nullptr ? nullptr : member_->group.get(); }

// A thread that waits for the first attempts drives this poller, or its own thread does; another connection's
// may be held.
void ChannelCore::OnFirstAttemptsTimeout() {
  if (first_attempt_.has_result()) return;
  const std::optional<transport::CalledOut::Call> call = member_->group->HoldsFirstAttempt();
  if (call.has_value()) return EndFirstAttempt(FirstAttempt::HeldUp(options_.connect_timeout, *call));
  poller_.timers().Set(member_->late_timer, transport::After(poller_.now_ns(), FirstAttempt::kGrace));
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
  news_.StopCalls();
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
    core->news_.OnClosed(std::move(callback));
    if (core->closed()) core->ScheduleNotify();
  });
}

ChannelState ChannelCore::channel_state() const {
  return member_ == nullptr ? state() : member_->group->state();
}

// ---- Calls.

bool ChannelCore::hopeful() const { return member_ != nullptr && member_->group->hopeful(); }

const std::shared_ptr<CallSender>& ChannelCore::ForNewCall() { return member_->group->Choose(); }

bool ChannelCore::StartWhileNotReady(UntypedCall& call) {
  if (call.carried_for_ != nullptr) {
    CarriedCalls::GiveBack(call);
    return true;
  }
  if (closed()) {
    call.EndSoon(WhyClosed(call));
    return true;
  }
  if (member_ != nullptr && SendBeside(call)) return true;
  if (state() == ChannelState::kTransientFailure && !call.wait_for_ready_ && !hopeful()) {
    call.EndSoon(call.errors().Error(redial_.code(), redial_.Describe(poller_.now_ns())));
    return true;
  }
  return false;
}

bool ChannelCore::SendBeside(UntypedCall& call) {
  const std::shared_ptr<ChannelCore> other = member_->group->ReadyOne(*this);
  if (other == nullptr) return false;
  member_->carried.Carry(call, other);
  return true;
}

void ChannelCore::Redeal() {
  poller_.AssertHeld();
  if (queue_.empty() || state() == ChannelState::kReady || member_->group->ReadyOne(*this) == nullptr) return;
  if (!StartQueued(kRedealtMax)) poller_.timers().Set(member_->redeal_timer, poller_.now_ns() + 1);
}

void ChannelCore::FailQueuedWithoutHope() {
  poller_.AssertHeld();
  if (state() != ChannelState::kTransientFailure || hopeful()) return;
  for (UntypedCall* call : queue_.TakeIf([](const UntypedCall& each) { return !each.wait_for_ready_; })) {
    call->EndSoon(call->errors().Error(redial_.code(), redial_.Describe(poller_.now_ns())));
  }
}

void ChannelCore::EndCarried(UntypedCall& call, absl::StatusCode code, absl::string_view why) {
  member_->carried.End(call, code, why);
}

void ChannelCore::OnCarrierEnd(UntypedCall& carrier) { CarriedCalls::PassOn(carrier); }

void ChannelCore::ForgetCarried(UntypedCall& call) { member_->carried.Forget(call); }

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
  redial_.BackOff(poller_, options_);
}

void ChannelCore::OnRetryTimer() {
  if (state() == ChannelState::kTransientFailure) Move(ChannelEvent::kRetry, redial_.why());
  Connect();
}

std::string ChannelCore::WhyUnsent() {
  if (link_ != nullptr) {
    return absl::StrCat("the deadline passed while it waited for a slot: ", link_->forward().DescribeSlots(),
                        " (ConnectionOptions::slots)", link_->DescribeSilence());
  }
  return absl::StrCat("the deadline passed while it waited for a connection; ",
                      redial_.Describe(poller_.now_ns()));
}

void ChannelCore::OnAttemptConnected(std::unique_ptr<Link> link) {
  poller_.AssertHeld();
  attempt_.reset();
  link->set_observer(*this);
  link_ = std::move(link);
  OnLinkReady(*link_);
}

void ChannelCore::OnAttemptFailed(const absl::Status& why) {
  poller_.AssertHeld();
  attempt_.reset();
  const int64_t now_ns = poller_.now_ns();
  if (first_attempt_.GoesOn(why, redial_.NextNs(now_ns), poller_)) return ConnectLater();
  redial_.OnFailed(why, now_ns);
  Move(ChannelEvent::kAttemptFailed, why);
  ConnectLater();
  FailQueuedWithoutHope();
}

void ChannelCore::Retire(std::unique_ptr<Link> link) {
  poller_.AssertHeld();
  link->set_observer(*this);
  retired_.Add(std::move(link));
}

void ChannelCore::OnLinkReady(Link&) {
  poller_.AssertHeld();
  redial_.OnReady(poller_.now_ns());
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
  retired_.CloseOldest();
}

void ChannelCore::OnCallNotRun(transport::Connection& connection) {
  poller_.AssertHeld();
  if (link_ != nullptr && link_->Carries(connection)) OnLinkGoingAway(*link_);
}

void ChannelCore::OnLinkLost(Link& link, const absl::Status& why) {
  poller_.AssertHeld();
  if (&link != link_.get()) return;
  if (dials_) {
    const transport::SessionToken session = link.session();
    Lose(link, why);
    return RemoteLane::OnSessionEnded(*this, session, why);
  }
  CloseNow(absl::UnavailableError(absl::StrCat("the client is gone: ", absl::string_view(why.message()))));
}

void ChannelCore::Lose(Link& link, const absl::Status& why) {
  const bool received = link.has_received();
  SetPeerIdentity(transport::OrNotAuthenticated(nullptr));
  Retire(std::move(link_));
  Move(ChannelEvent::kLost, why);
  if (member_ != nullptr) Redeal();
  // Backs off. Otherwise a server that accepts and then drops all connections, or drains each before the last
  // one has ended, would get a storm of connections. Likewise idle clients that reconnect at once: if they
  // are more than the server admits as newcomers (Admission), they would displace each other endlessly.
  if (!received || retired_.size() > 1 || !redial_.MayConnectNow(poller_.now_ns(), options_.backoff_min))
    return ConnectLater();
  Connect();
}

void ChannelCore::OnLinkEnded(Link& link) {
  poller_.AssertHeld();
  // Of a server that was shutting down.
  if (dials_) RemoteLane::OnSessionEnded(*this, link.session(), absl::UnavailableError("it was drained"));
  retired_.Remove(link);
  ReleaseSelf();
}

// ---- Closing and state changes.

void ChannelCore::CloseNow(const absl::Status& why) {
  poller_.AssertHeld();
  if (closed()) return;
  why_closed_ = why;
  Move(ChannelEvent::kClose, why);
  redial_.Cancel(poller_);
  if (attempt_ != nullptr) std::exchange(attempt_, nullptr)->Abandon();
  EndQueued(why);
  if (member_ != nullptr) member_->Close(poller_, why);
  SetPeerIdentity(transport::OrNotAuthenticated(nullptr));
  if (link_ != nullptr) Retire(std::move(link_));
  retired_.CloseAll(why);
}

std::shared_ptr<const PeerIdentity> ChannelCore::channel_peer_identity() const {
  std::shared_ptr<const PeerIdentity> identity =
      member_ == nullptr ? nullptr : member_->group->peer_identity();
  return identity != nullptr ? identity : peer_identity();
}

void ChannelCore::Move(ChannelEvent event, const absl::Status& why) {
  poller_.AssertHeld();
  const ChannelState from = state();
  const std::optional<ChannelState> to = NextState(from, event);
  HAWSER_CHECK(to.has_value(), "channel to ", peer_address_, " met event ", static_cast<int>(event),
               " while it was ", ToString(from));
  if (*to == from) return;
  // Who sees kReady finds no reason why it is not.
  SetWhyNotReady(why);
  state_.store(*to, std::memory_order_release);
  if (entry_.has_value()) entry_->OnEvent(event, *to);
  if (LogLevel() <= LogSeverity::kDebug) [[unlikely]] {
    transport::PeerLog::Process().Debug(absl::StrCat("the channel to ", peer_address_, " is ", ToString(*to),
                                                     why.ok() ? "" : ": ", absl::string_view(why.message())));
  }
  if (member_ != nullptr) {
    member_->group->OnEvent(member_->number, event, *to, why);
  } else {
    news_.Add(*to, why);
  }
  if (*to != ChannelState::kConnecting) OnFirstAttempt(why);
  ScheduleNotify();
}

void ChannelCore::OnFirstAttempt(const absl::Status& why) {
  if (!first_attempt_.End(poller_)) return;
  if (member_ == nullptr) return EndFirstAttempt(why);
  member_->group->OnFirstAttempt(why);
}

void ChannelCore::EndFirstAttempt(const absl::Status& why) {
  poller_.AssertHeld();
  if (member_ != nullptr) poller_.timers().Cancel(member_->late_timer);
  first_attempt_.SetResult(why);
}

void ChannelCore::NotifyGroupNews() {
  poller_.AssertHeld();
  for (auto& news : member_->group->TakeNews()) news_.Add(news.first, news.second);
  if (news_.has_changes()) ScheduleNotify();
}

void ChannelCore::Notify() {
  poller_.AssertHeld();
  const std::shared_ptr<CallSender> keep = shared_from_this();
  news_.NotifyChanges(poller_, options_, peer_address_);
  if (!HandOverSome()) {
    // The rest follows in the next turn.
    poller_.timers().Set(notify_timer_, poller_.now_ns() + 1);
    return;
  }
  if (closed()) news_.NotifyClosed(poller_, peer_address_);
  ReleaseSelf();
}

// Nothing in flight refers to this any more: only calls and the Channel own it.
void ChannelCore::ReleaseSelf() {
  if (!closed() || link_ != nullptr || !retired_.empty() || notify_timer_.is_set()) return;
  const std::shared_ptr<CallSender> last = std::move(self_);
  // Not earlier: until here callbacks of its calls may run, and the server's owner must outlive them.
  if (on_gone_) std::exchange(on_gone_, nullptr)();
}

}  // namespace hawser::internal
