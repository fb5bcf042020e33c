#include "examples/kv/watch_hub.h"

#include "absl/strings/str_cat.h"

namespace kv {
namespace {

// Of one push. Small enough that a push of short keys is one SEND of the default receive buffer (4 KiB).
constexpr size_t kChangesMax = 64;
constexpr size_t kKeyBytesMax = 16 << 10;

}  // namespace

bool WatchHub::AddPeer(std::shared_ptr<const void> peer) {
  absl::MutexLock lock(&mutex_);
  const void* name = peer.get();
  return peers_.try_emplace(name, Peer{std::move(peer), {}}).second;
}

void WatchHub::RemovePeer(const void* peer) {
  Peer gone;  // Let go of without the lock: it may be the last to hold a channel.
  absl::MutexLock lock(&mutex_);
  auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  gone = std::move(found->second);
  peers_.erase(found);
  for (auto& [number, watcher] : gone.watchers) watcher->removed = true;
}

absl::StatusOr<WatchHub::Started> WatchHub::Watch(const void* peer, uint64_t number, absl::string_view prefix,
                                                  std::optional<uint64_t> after, Push push) {
  auto watcher = std::make_shared<Watcher>(Watcher{peer, number, std::string(prefix), std::move(push)});
  Started started;
  Pushes pushes;
  {
    absl::MutexLock lock(&mutex_);
    auto found = peers_.find(peer);
    if (found == peers_.end()) return absl::UnavailableError("the watching client is gone");
    auto& watchers = found->second.watchers;
    if (watchers.size() >= kWatchesMax && !watchers.contains(number)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("this client has ", kWatchesMax, " watches already; unwatch some"));
    }
    started.lost = after && !changes_->ReachesBackTo(*after);
    started.revision = after && !started.lost ? *after : changes_->last_revision();
    watcher->after = started.revision;
    Remove(peer, number);
    watchers[number] = watcher;
    Next(watcher, &pushes);
  }
  Start(std::move(pushes));
  return started;
}

void WatchHub::Unwatch(const void* peer, uint64_t number) {
  absl::MutexLock lock(&mutex_);
  Remove(peer, number);
}

void WatchHub::Remove(const void* peer, uint64_t number) {
  auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  auto& watchers = found->second.watchers;
  auto watcher = watchers.find(number);
  if (watcher == watchers.end()) return;
  watcher->second->removed = true;
  watchers.erase(watcher);
}

void WatchHub::Notify() {
  Pushes pushes;
  std::vector<WatcherPtr> idle;  // Let go of without the lock, as in RemovePeer().
  {
    absl::MutexLock lock(&mutex_);
    idle.swap(idle_);
    for (const WatcherPtr& watcher : idle) Next(watcher, &pushes);
  }
  Start(std::move(pushes));
}

size_t WatchHub::watches() const {
  absl::MutexLock lock(&mutex_);
  size_t watches = 0;
  for (const auto& [name, peer] : peers_) watches += peer.watchers.size();
  return watches;
}

void WatchHub::Next(const WatcherPtr& watcher, Pushes* pushes) {
  if (watcher->removed) return;  // The last to hold it may be us.
  ChangeLog::Batch batch = changes_->Read(watcher->after, watcher->prefix, kChangesMax, kKeyBytesMax);
  if (!batch.changes.empty() || batch.lost) {
    pushes->emplace_back(watcher, std::move(batch));
    return;
  }
  watcher->after = batch.through;
  idle_.push_back(watcher);
}

void WatchHub::Start(Pushes pushes) {
  for (auto& [watcher, batch] : pushes) {
    watcher->push(batch, [this, watcher = watcher, through = batch.through](const absl::Status& status) {
      Pushed(watcher, through, status);
    });
  }
}

void WatchHub::Pushed(const WatcherPtr& watcher, uint64_t through, const absl::Status& status) {
  Pushes pushes;
  {
    absl::MutexLock lock(&mutex_);
    switch (status.code()) {
      case absl::StatusCode::kOk:
        watcher->after = through;
        Next(watcher, &pushes);
        break;
      case absl::StatusCode::kDeadlineExceeded:
        // Whether it has arrived is not known, so the same changes are sent again.
        Next(watcher, &pushes);
        break;
      case absl::StatusCode::kResourceExhausted:
        // No memory for it at this moment; the next change tries again.
        if (!watcher->removed) idle_.push_back(watcher);
        break;
      default:
        // The client is gone, or no longer knows this watch.
        if (!watcher->removed) Remove(watcher->peer, watcher->number);
    }
  }
  Start(std::move(pushes));
}

}  // namespace kv
