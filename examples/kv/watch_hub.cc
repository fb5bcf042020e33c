#include "examples/kv/watch_hub.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace kv {
namespace {

// The limits of one push. Small enough that a push of short keys fits one SEND to a default receive buffer (4
// KiB).
constexpr size_t kChangesMax = 64;
constexpr size_t kKeyBytesMax = 16 << 10;

}  // namespace

bool WatchHub::AddPeer(std::shared_ptr<const void> peer) {
  absl::MutexLock lock(&mutex_);
  const void* name = peer.get();
  return peers_.try_emplace(name, Peer{std::move(peer), {}}).second;
}

void WatchHub::RemovePeer(const void* peer) {
  Peer gone;  // Destroyed without the lock, because it may have the last reference to a channel.
  absl::MutexLock lock(&mutex_);
  auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  gone = std::move(found->second);
  peers_.erase(found);
  watch_count_ -= gone.watchers.size();
  for (auto& [number, watcher] : gone.watchers) {
    watcher->removed = true;
    RemoveIdle(watcher);
  }
}

absl::StatusOr<WatchHub::Started> WatchHub::Watch(const void* peer, uint64_t number, absl::string_view prefix,
                                                  std::optional<uint64_t> after, Push push) {
  auto watcher =
      std::make_shared<Watcher>(Watcher{peer, number, std::string(prefix), std::move(push), nullptr});
  Started started;
  Pushes pushes;
  WatcherPtr replaced;
  {
    absl::MutexLock lock(&mutex_);
    auto found = peers_.find(peer);
    if (found == peers_.end()) return absl::UnavailableError("the watching client is gone");
    auto& watchers = found->second.watchers;
    if (watchers.size() >= kWatchesMax && !watchers.contains(number)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("this client has ", kWatchesMax, " watches already; unwatch some"));
    }
    if (*found->second.in_flight >= kWatchesMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("this client has not answered ", *found->second.in_flight, " pushes"));
    }
    if (watch_count_ >= kAllWatchesMax && !watchers.contains(number)) {
      return absl::ResourceExhaustedError(absl::StrCat("the server has ", watch_count_, " watches already"));
    }
    watcher->in_flight = found->second.in_flight;
    started.lost = after && !changes_->ReachesBackTo(*after);
    started.revision = after && !started.lost ? *after : changes_->last_revision();
    watcher->after = started.revision;
    replaced = Remove(peer, number);
    watchers[number] = watcher;
    ++watch_count_;
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
  --watch_count_;
  watcher->removed = true;
  RemoveIdle(watcher);
  return watcher;
}

void WatchHub::MakeIdle(const WatcherPtr& watcher) { idle_[watcher->prefix].insert(watcher); }

void WatchHub::RemoveIdle(const WatcherPtr& watcher) {
  if (starved_.erase(watcher) > 0) return;
  auto found = idle_.find(watcher->prefix);
  if (found == idle_.end()) return;
  found->second.erase(watcher);
  if (found->second.empty()) idle_.erase(found);
}

// Visits the prefixes of `key` that are in the map, the longest first. `rest` is a prefix of the key; all
// longer ones were visited. The greatest entry up to `rest` is a prefix of the key, or it differs from the
// key after `same` bytes. In the latter case no entry in between is a prefix of the key, either.
void WatchHub::TakeIdle(absl::string_view key, uint64_t revision, std::vector<WatcherPtr>* taken) {
  absl::string_view rest = key;
  while (true) {
    auto at = idle_.upper_bound(rest);
    if (at == idle_.begin()) return;
    --at;
    const absl::string_view prefix = at->first;
    const size_t same = static_cast<size_t>(
        std::mismatch(prefix.begin(), prefix.end(), rest.begin(), rest.end()).first - prefix.begin());
    const bool matches = same == prefix.size();
    if (matches) {
      absl::flat_hash_set<WatcherPtr>& watchers = at->second;
      for (auto each = watchers.begin(); each != watchers.end();) {
        if ((*each)->after >= revision) {
          ++each;
          continue;
        }
        (*each)->after = revision - 1;  // It is idle, so no earlier change concerns it.
        taken->push_back(*each);
        watchers.erase(each++);
      }
      if (watchers.empty()) idle_.erase(at);
      if (same == 0) return;
    }
    rest = rest.substr(0, matches ? same - 1 : same);
  }
}

void WatchHub::Notify() {
  Pushes pushes;
  {
    absl::MutexLock lock(&mutex_);
    if (idle_.empty() && starved_.empty()) {
      // A watcher that becomes idle has read the log up to its end, so no change is missed.
      notified_ = changes_->last_revision();
      return;
    }
    std::vector<WatcherPtr> taken(starved_.begin(), starved_.end());
    starved_.clear();
    while (true) {
      // If several threads change keys at once, the first one here notifies for all of them.
      const ChangeLog::Batch batch = changes_->Read(notified_, "", kChangesMax, kKeyBytesMax);
      if (batch.lost) {
        // Threads that have not called Notify() yet have made more changes than the log keeps.
        for (auto& [prefix, watchers] : idle_) taken.insert(taken.end(), watchers.begin(), watchers.end());
        idle_.clear();
      }
      for (const Change& change : batch.changes) TakeIdle(change.key, change.revision, &taken);
      notified_ = batch.through;
      if (!batch.more) break;
    }
    for (const WatcherPtr& watcher : taken) Next(watcher, &pushes);
  }
  Start(std::move(pushes));
}

size_t WatchHub::idle_watchers() const {
  absl::MutexLock lock(&mutex_);
  size_t idle = starved_.size();
  for (const auto& [prefix, watchers] : idle_) idle += watchers.size();
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
    pushes->emplace_back(watcher, std::move(batch));
    return;
  }
  watcher->after = batch.through;
  MakeIdle(watcher);
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
    --*watcher->in_flight;
    switch (status.code()) {
      case absl::StatusCode::kOk:
        watcher->after = through;
        Next(watcher, &pushes);
        break;
      case absl::StatusCode::kDeadlineExceeded:
        // The push may or may not have arrived, so this sends the same changes again.
        Next(watcher, &pushes);
        break;
      case absl::StatusCode::kResourceExhausted:
        // There is no memory for it at this moment. The next change of any key tries again.
        if (!watcher->removed) starved_.insert(watcher);
        break;
      default:
        // The client is gone, or no longer knows this watch.
        if (!watcher->removed) Remove(watcher->peer, watcher->number);
    }
  }
  Start(std::move(pushes));
}

}  // namespace kv
