#include "hawser/rpc/client/connection_group.h"

#include <algorithm>
#include <climits>

#include "hawser/rpc/client/channel_core.h"

namespace hawser::internal {
namespace {

// Lower is better.
int Rank(ChannelState state) {
  switch (state) {
    case ChannelState::kReady:
      return 0;
    case ChannelState::kConnecting:
      return 1;
    case ChannelState::kTransientFailure:
      return 2;
    case ChannelState::kClosed:
      return 3;
  }
  return 3;
}

}  // namespace

ConnectionGroup::ConnectionGroup(const std::vector<std::shared_ptr<ChannelCore>>& connections)
    : members_(connections.begin(), connections.end()),
      connections_(connections.begin(), connections.end()),
      states_(members_.size()) {}

std::vector<std::shared_ptr<ChannelCore>> ConnectionGroup::Cores() const {
  std::vector<std::shared_ptr<ChannelCore>> cores;
  for (const std::weak_ptr<ChannelCore>& member : members_) {
    if (std::shared_ptr<ChannelCore> core = member.lock(); core != nullptr) cores.push_back(std::move(core));
  }
  return cores;
}

std::vector<std::shared_ptr<ChannelCore>> ConnectionGroup::Release() {
  std::vector<std::shared_ptr<ChannelCore>> cores = Cores();
  connections_.clear();
  return cores;
}

std::shared_ptr<const PeerIdentity> ConnectionGroup::peer_identity() const {
  for (const std::shared_ptr<ChannelCore>& core : Cores()) {
    if (core->state() == ChannelState::kReady) return core->peer_identity();
  }
  return nullptr;
}

const std::shared_ptr<CallSender>& ConnectionGroup::Choose() {
  const size_t count = connections_.size();
  const size_t first = next_.fetch_add(1, std::memory_order_relaxed);
  size_t best = first % count;
  std::pair<int, size_t> least = {INT_MAX, 0};
  for (size_t i = 0; i < count; ++i) {
    const size_t number = (first + i) % count;
    const CallSender& sender = *connections_[number];
    const std::pair<int, size_t> here = {Rank(sender.state()), sender.calls_in_use()};
    if (here >= least) continue;
    least = here;
    best = number;
  }
  return connections_[best];
}

std::shared_ptr<ChannelCore> ConnectionGroup::ReadyOne(const ChannelCore& beside) {
  const size_t first = next_.fetch_add(1, std::memory_order_relaxed);
  std::shared_ptr<ChannelCore> best;
  size_t least = 0;
  for (size_t i = 0; i < members_.size(); ++i) {
    std::shared_ptr<ChannelCore> core = members_[(first + i) % members_.size()].lock();
    if (core == nullptr || core.get() == &beside || core->state() != ChannelState::kReady) continue;
    const size_t calls = core->calls_in_use();
    if (best != nullptr && calls >= least) continue;
    least = calls;
    best = std::move(core);
  }
  return best;
}

void ConnectionGroup::OnEvent(size_t number, ChannelEvent event, ChannelState to, const absl::Status& why) {
  bool has_news = false, lost_hope = false;
  {
    absl::MutexLock lock(&mutex_);
    Member& member = states_[number];
    member.state = to;
    if (event == ChannelEvent::kAttemptFailed) member.failed = true;
    if (event == ChannelEvent::kConnected) member.failed = false;
    const bool hopeful = std::any_of(states_.begin(), states_.end(), [](const Member& each) {
      return each.state == ChannelState::kReady || (each.state == ChannelState::kConnecting && !each.failed);
    });
    lost_hope = hopeful_.exchange(hopeful, std::memory_order_acq_rel) && !hopeful;
    const ChannelState all = StateOfAll();
    if (all != state()) {
      has_news = true;
      state_.store(all, std::memory_order_release);
      news_.emplace_back(all, why);
    }
  }
  if (has_news) Post(0, &ChannelCore::NotifyGroupNews);
  for (size_t other = 0; other < members_.size(); ++other) {
    if (other == number) continue;
    if (event == ChannelEvent::kConnected) Post(other, &ChannelCore::Redeal);
    if (lost_hope) Post(other, &ChannelCore::FailQueuedWithoutHope);
  }
}

// One that is closed: Close() closes all of them.
ChannelState ConnectionGroup::StateOfAll() const {
  for (const ChannelState state : {ChannelState::kClosed, ChannelState::kReady, ChannelState::kConnecting}) {
    for (const Member& each : states_) {
      if (each.state == state) return state;
    }
  }
  return ChannelState::kTransientFailure;
}

void ConnectionGroup::OnFirstAttempt(const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    if (has_first_attempt_ || (!why.ok() && ++first_attempts_ < members_.size())) return;
    has_first_attempt_ = true;
  }
  if (const std::shared_ptr<ChannelCore> first = members_[0].lock(); first != nullptr) {
    first->poller().Run([first, why] { first->EndFirstAttempt(why); });
  }
}

std::optional<transport::CalledOut::Call> ConnectionGroup::HoldsFirstAttempt() {
  for (size_t number = 0; number < members_.size(); ++number) {
    {
      absl::MutexLock lock(&mutex_);
      if (states_[number].state != ChannelState::kConnecting || states_[number].failed) continue;
    }
    const std::shared_ptr<ChannelCore> core = members_[number].lock();
    if (core == nullptr) continue;
    if (auto call = core->poller().called_out().Now(); call.has_value()) return call;
  }
  return std::nullopt;
}

ConnectionGroup::News ConnectionGroup::TakeNews() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(news_, {});
}

void ConnectionGroup::Post(size_t number, void (ChannelCore::*function)()) {
  std::shared_ptr<ChannelCore> core = members_[number].lock();
  if (core == nullptr) return;
  transport::Poller& poller = core->poller();
  poller.Run([core = std::move(core), function] { (core.get()->*function)(); });
}

GroupMember::GroupMember(std::shared_ptr<ConnectionGroup> of, size_t its_number, ChannelCore& core)
    : group(std::move(of)),
      number(its_number),
      carried(core.poller()),
      late_timer([&core] { core.OnFirstAttemptsTimeout(); }),
      redeal_timer([&core] { core.Redeal(); }) {}

void GroupMember::Close(transport::Poller& poller, const absl::Status& why) {
  poller.timers().Cancel(late_timer);
  poller.timers().Cancel(redeal_timer);
  carried.EndAll(why);
}

}  // namespace hawser::internal
