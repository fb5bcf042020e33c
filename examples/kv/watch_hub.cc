#include "examples/kv/watch_hub.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace kv {
namespace {

// The limits of one push. Small enough that a push of short keys fits one SEND to a default receive buffer (4
// KiB).
constexpr size_t kChangesMax = 64;
constexpr size_t kKeyBytesMax = 16 << 10;

// What the peers of one host have in common, of "tcp://10.0.0.7:51234" or "tcp://[2001:db8::7]:51234": the
// IPv4 address, or the first 64 bits of the IPv6 address. Of any other text all but the port.
std::string HostOf(absl::string_view address) {
  const size_t scheme = address.find("://");
  if (scheme != absl::string_view::npos) address.remove_prefix(scheme + 3);
  std::string host(address.substr(0, address.rfind(':')));
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return host;
  host = host.substr(1, host.size() - 2);
  in6_addr bytes;  // Not of a link-local address, which has the name of an interface: that counts as a whole.
  if (inet_pton(AF_INET6, host.c_str(), &bytes) != 1) return host;
  return std::string(reinterpret_cast<const char*>(bytes.s6_addr), sizeof(bytes.s6_addr) / 2);
}

}  // namespace

bool WatchHub::AddPeer(std::shared_ptr<const void> peer, absl::string_view address) {
  absl::MutexLock lock(&mutex_);
  const void* name = peer.get();
  return peers_.try_emplace(name, Peer{std::move(peer), HostOf(address), {}}).second;
}

void WatchHub::RemovePeer(const void* peer) {
  Peer gone;  // Destroyed without the lock, because it may have the last reference to a channel.
  absl::MutexLock lock(&mutex_);
  auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  gone = std::move(found->second);
  peers_.erase(found);
  SubtractFromHost(gone.host, gone.watchers.size());
  for (auto& [number, watcher] : gone.watchers) {
    watcher->removed = true;
    RemoveIdle(*watcher);
  }
}

absl::StatusOr<WatchHub::Started> WatchHub::Watch(const void* peer, uint64_t number, absl::string_view prefix,
                                                  std::optional<uint64_t> after, Push push) {
  auto watcher = std::make_shared<Watcher>(
      Watcher{.peer = peer, .number = number, .prefix = std::string(prefix), .push = std::move(push)});
  Started started;
  Pushes pushes;
  WatcherPtr replaced;
  {
    absl::MutexLock lock(&mutex_);
    auto found = peers_.find(peer);
    if (found == peers_.end()) return absl::UnavailableError("the watching client is gone");
    auto& [keep, host, watchers, in_flight] = found->second;
    const bool is_new = !watchers.contains(number);
    if (is_new && watchers.size() >= kWatchesMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("this client has ", kWatchesMax, " watches already; unwatch some"));
    }
    if (*in_flight >= kWatchesMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("this client has not answered ", *in_flight, " pushes"));
    }
    const auto of_host = hosts_.find(host);
    if (is_new && of_host != hosts_.end() && of_host->second >= kHostWatchesMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the clients of this host have ", of_host->second, " watches already; unwatch some"));
    }
    if (is_new && watch_count_ >= kAllWatchesMax) {
      return absl::ResourceExhaustedError(absl::StrCat("the server has ", watch_count_, " watches already"));
    }
    watcher->in_flight = in_flight;
    started.lost = after && !changes_->ReachesBackTo(*after);
    started.revision = after && !started.lost ? *after : changes_->last_revision();
    watcher->after = started.revision;
    replaced = Remove(peer, number);
    watchers[number] = watcher;
    AddToHost(host, 1);
    Next(watcher, &pushes);
  }
  Start(std::move(pushes));
  return started;
}

void WatchHub::Unwatch(const void* peer, uint64_t number) {
  WatcherPtr removed;
  absl::MutexLock lock(&mutex_);
  removed = Remove(peer, number);
}

WatchHub::WatcherPtr WatchHub::Remove(const void* peer, uint64_t number) {
  auto found = peers_.find(peer);
  if (found == peers_.end()) return nullptr;
  auto& watchers = found->second.watchers;
  auto at = watchers.find(number);
  if (at == watchers.end()) return nullptr;
  WatcherPtr watcher = std::move(at->second);
  watchers.erase(at);
  SubtractFromHost(found->second.host, 1);
  watcher->removed = true;
  RemoveIdle(*watcher);
  return watcher;
}

void WatchHub::AddToHost(const std::string& host, size_t count) {
  watch_count_ += count;
  hosts_[host] += count;
}

void WatchHub::SubtractFromHost(const std::string& host, size_t count) {
  const auto found = hosts_.find(host);
  if (found == hosts_.end()) return;  // It has none, and neither has this peer.
  watch_count_ -= count;
  found->second -= count;
  if (found->second == 0) hosts_.erase(found);
}

void WatchHub::MakeIdle(const WatcherPtr& watcher, Group& group, uint64_t newest) {
  watcher->group = &group;
  watcher->idle_since = newest;
  watcher->at = group.idle.insert(group.idle.end(), watcher);
}

void WatchHub::RemoveIdle(Watcher& watcher) {
  Group* const group = std::exchange(watcher.group, nullptr);
  if (group == nullptr) return;
  group->idle.erase(watcher.at);  // The caller has a reference.
  const bool any_due = !group->idle.empty() && group->idle.front()->idle_since < group->changed;
  if (group->is_due && !any_due) {
    group->is_due = false;
    due_.erase(group->at);
  }
  if (group->idle.empty() && group != &starved_) groups_.erase(watcher.prefix);
}

void WatchHub::MakeDue(Group& group, uint64_t revision, uint64_t since) {
  group.changed = revision;
  if (group.is_due || group.idle.empty() || group.idle.front()->idle_since >= revision) return;
  group.is_due = true;
  group.since = since;
  group.at = due_.insert(due_.end(), &group);
}

// Visits the prefixes of `key` that are in the map, the longest first. `rest` is a prefix of the key; all
// longer ones were visited. The greatest entry up to `rest` is a prefix of the key, or it differs from the
// key after `same` bytes. In the latter case no entry in between is a prefix of the key, either.
void WatchHub::MakeDue(absl::string_view key, uint64_t revision) {
  absl::string_view rest = key;
  while (true) {
    auto at = groups_.upper_bound(rest);
    if (at == groups_.begin()) return;
    --at;
    const absl::string_view prefix = at->first;
    const size_t same = static_cast<size_t>(
        std::mismatch(prefix.begin(), prefix.end(), rest.begin(), rest.end()).first - prefix.begin());
    const bool matches = same == prefix.size();
    if (matches) {
      MakeDue(at->second, revision, revision);
      if (same == 0) return;
    }
    rest = rest.substr(0, matches ? same - 1 : same);
  }
}

void WatchHub::Notify() {
  Pushes pushes;
  {
    absl::MutexLock lock(&mutex_);
    if (groups_.empty() && starved_.idle.empty()) {
      // A watcher that becomes idle has read the log up to its end, so no change is missed.
      notified_ = changes_->last_revision();
      return;
    }
    while (true) {
      // If several threads change keys at once, the first one here notifies for all of them.
      const ChangeLog::Batch batch = changes_->Read(notified_, "", kChangesMax, kKeyBytesMax);
      if (batch.lost) {
        // Threads that have not called Notify() yet have made more changes than the log keeps.
        for (auto& [prefix, group] : groups_) MakeDue(group, batch.through, 0);
      }
      for (const Change& change : batch.changes) MakeDue(change.key, change.revision);
      notified_ = batch.through;
      if (!batch.more) break;
    }
    MakeDue(starved_, notified_, 0);
    TakeDue(&pushes);
  }
  Start(std::move(pushes));
}

size_t WatchHub::idle_watchers() const {
  absl::MutexLock lock(&mutex_);
  size_t idle = starved_.idle.size();
  for (const auto& [prefix, group] : groups_) idle += group.idle.size();
  return idle;
}

size_t WatchHub::watches() const {
  absl::MutexLock lock(&mutex_);
  return watch_count_;
}

void WatchHub::Next(const WatcherPtr& watcher, Pushes* pushes) {
  if (watcher->removed) return;  // The caller may have the last reference.
  ChangeLog::Batch batch = changes_->Read(watcher->after, watcher->prefix, kChangesMax, kKeyBytesMax);
  if (!batch.changes.empty() || batch.lost || batch.more) {
    ++*watcher->in_flight;
    pushes->pushes.emplace_back(watcher, std::move(batch));
    return;
  }
  watcher->after = batch.through;
  MakeIdle(watcher, groups_[watcher->prefix], batch.through);
}

void WatchHub::TakeDue(Pushes* pushes) {
  if (starts_soon_) return;
  while (!due_.empty() && pushes->pushes.size() < kStartedMax) {
    Group& group = *due_.front();
    due_.splice(due_.end(), due_, due_.begin());
    const WatcherPtr watcher = group.idle.front();
    if (group.since > 0) watcher->after = std::max(watcher->after, group.since - 1);
    RemoveIdle(*watcher);
    Next(watcher, pushes);
  }
  pushes->more = starts_soon_ = !due_.empty();
}

void WatchHub::StartSoon() {
  Pushes pushes;
  {
    absl::MutexLock lock(&mutex_);
    starts_soon_ = false;
    TakeDue(&pushes);
  }
  Start(std::move(pushes));
}

void WatchHub::Start(Pushes started) {
  for (auto& [watcher, batch] : started.pushes) {
    const bool is_last = &watcher == &started.pushes.back().first;
    watcher->push(
        batch,
        [this, watcher = watcher, through = batch.through](PushEnd end) { Pushed(watcher, through, end); },
        started.more && is_last ? [this] { StartSoon(); } : Soon());
  }
}

void WatchHub::Pushed(const WatcherPtr& watcher, uint64_t through, PushEnd end) {
  Pushes pushes;
  WatcherPtr removed;
  {
    absl::MutexLock lock(&mutex_);
    --*watcher->in_flight;
    switch (end) {
      case PushEnd::kReceived:
        watcher->after = through;
        Next(watcher, &pushes);
        break;
      case PushEnd::kTimedOut:
        Next(watcher, &pushes);
        break;
      case PushEnd::kNoMemory:
        if (!watcher->removed) MakeIdle(watcher, starved_, changes_->last_revision());
        break;
      case PushEnd::kFailed:
        if (!watcher->removed) removed = Remove(watcher->peer, watcher->number);
        break;
    }
  }
  Start(std::move(pushes));
}

}  // namespace kv
