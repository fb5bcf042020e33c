#include "hawser/transport/pull_ledger.h"

#include <algorithm>

#include "hawser/base/check.h"

namespace hawser::transport {

void PullLedger::Add(Member& member) {
  absl::MutexLock lock(&mutex_);
  members_.push_back(&member);
}

void PullLedger::Remove(Member& member) {
  absl::MutexLock lock(&mutex_);
  members_.erase(std::find(members_.begin(), members_.end(), &member));
}

PullLedger::Host& PullLedger::Join(const PeerHost& key) {
  absl::MutexLock lock(&mutex_);
  std::unique_ptr<Host>& host = hosts_[key];
  if (host == nullptr) {
    host = std::make_unique<Host>();
    host->key = key;
  }
  ++host->users;
  return *host;
}

void PullLedger::Part(Host& host) {
  absl::MutexLock lock(&mutex_);
  if (--host.users != 0) return;
  HAWSER_CHECK(host.held_bytes == 0, "a host left that holds memory");
  hosts_.erase(PeerHost(host.key));
}

// The pool is asked under the lock: if another thread saw bytes counted for which there is no buffer then, it would wait
// and nobody would notify it.
Lease PullLedger::Lend(Host& host, uint64_t bytes, double share, Refusal& refusal) {
  refusal = {};
  absl::MutexLock lock(&mutex_);
  if (held_bytes_ != 0) {
    const BufferPoolStats stats = pool_.stats();
    const uint64_t free = stats.limit_bytes - std::min(stats.leased_bytes, stats.limit_bytes);
    const double wanted =
        static_cast<double>(host.held_bytes + bytes) / share - static_cast<double>(host.held_bytes);
    if (static_cast<double>(free) < wanted) return Lease();
  }
  Lease sink = pool_.TryAcquire(bytes, refusal.why);
  refusal.by_pool = !sink;
  if (sink) {
    host.held_bytes += bytes;
    held_bytes_ += bytes;
  }
  return sink;
}

void PullLedger::Release(Host& host, uint64_t bytes, const Member& by) {
  absl::MutexLock lock(&mutex_);
  host.held_bytes -= bytes;
  held_bytes_ -= bytes;
  for (Member* member : members_) {
    if (member != &by && member->wanted_bytes_ != 0) member->OnReleased();
  }
}

uint64_t PullLedger::held_bytes() const {
  absl::MutexLock lock(&mutex_);
  return held_bytes_;
}

bool PullLedger::SetWanted(Member& member, uint64_t bytes, int64_t now_ns) {
  absl::MutexLock lock(&mutex_);
  if (member.wanted_bytes_ == 0) member.wanted_since_ns_ = now_ns;
  member.wanted_bytes_ = bytes;
  return std::any_of(members_.begin(), members_.end(),
                     [&](const Member* other) { return other != &member && other->wanted_bytes_ != 0; });
}

uint64_t PullLedger::MissingSince(int64_t then_ns) const {
  absl::MutexLock lock(&mutex_);
  int64_t missing = -returning_bytes_;
  for (const Member* member : members_) {
    if (member->wanted_since_ns_ <= then_ns) missing += static_cast<int64_t>(member->wanted_bytes_);
  }
  return static_cast<uint64_t>(std::max<int64_t>(missing, 0));
}

void PullLedger::AddReturning(int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  returning_bytes_ += bytes;
}

}  // namespace hawser::transport
