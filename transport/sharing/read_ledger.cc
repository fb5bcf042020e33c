#include "hawser/transport/sharing/read_ledger.h"

#include <algorithm>

#include "hawser/base/check.h"

namespace hawser::transport {

void ReadLedger::Add(Member& member) {
  MutexLock lock(mutex_);
  members_.push_back(&member);
}

void ReadLedger::Remove(Member& member) {
  MutexLock lock(mutex_);
  members_.erase(std::find(members_.begin(), members_.end(), &member));
}

ReadLedger::Host& ReadLedger::Join(const PeerHost& key) {
  MutexLock lock(mutex_);
  std::unique_ptr<Host>& host = hosts_[key];
  if (host == nullptr) {
    host = std::make_unique<Host>();
    host->key = key;
  }
  ++host->users;
  return *host;
}

void ReadLedger::Part(Host& host) {
  MutexLock lock(mutex_);
  HAWSER_SUBTRACT(host.users, 1);
  if (host.users != 0) return;
  const uint64_t responses = host.response_bytes.load(std::memory_order_relaxed);
  HAWSER_CHECK(host.held_bytes == 0 && responses == 0, "a host left that holds ", host.held_bytes,
               " bytes of announced messages and ", responses, " of responses");
  hosts_.erase(PeerHost(host.key));
}

// The pool is asked with the lock held. Otherwise another thread could be refused because of bytes that are
// counted but never acquired, and nothing would notify it. So the lock may be held while a slab of 2 MiB is
// mapped (see BufferPool::TryAcquire()).
Lease ReadLedger::Lend(Host& host, uint64_t bytes, double share, Refusal& refusal) {
  refusal = {};
  MutexLock lock(mutex_);
  if (held_bytes_ != 0) {
    const BufferPoolStats stats = pool_.stats();
    const uint64_t free = stats.limit_bytes - std::min(stats.leased_bytes, stats.limit_bytes);
    const uint64_t held = host.held_bytes + host.response_bytes.load(std::memory_order_relaxed);
    const double wanted = static_cast<double>(held + bytes) / share - static_cast<double>(held);
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

bool ReadLedger::Release(Host& host, uint64_t bytes, const Member& by) {
  MutexLock lock(mutex_);
  HAWSER_SUBTRACT(host.held_bytes, bytes);
  HAWSER_SUBTRACT(held_bytes_, bytes);
  return OthersMiss(by);
}

bool ReadLedger::MayHoldResponse(Host& host, uint64_t bytes, double share) {
  const uint64_t responses = host.response_bytes.load(std::memory_order_relaxed);
  if (responses == 0) return true;
  const BufferPoolStats stats = pool_.stats();
  if (responses + bytes <= stats.limit_bytes / kFreelyHeldFraction) return true;
  const uint64_t free = stats.limit_bytes - std::min(stats.leased_bytes, stats.limit_bytes);
  MutexLock lock(mutex_);
  const auto held = static_cast<double>(host.held_bytes + responses + bytes);
  if (static_cast<double>(free) >= held / share - held) return true;
  refused_responses_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void ReadLedger::NotifyReleased(const Member& by) {
  MutexLock lock(mutex_);
  for (Member* member : members_) {
    if (member == &by || member->missing_bytes_ == 0) continue;
    member->notified_ = true;
    member->OnReleased();
  }
}

bool ReadLedger::OthersMiss(const Member& member) const {
  return std::any_of(members_.begin(), members_.end(),
                     [&](const Member* other) { return other != &member && other->missing_bytes_ != 0; });
}

bool ReadLedger::SetMissing(Member& member, uint64_t bytes, int64_t now_ns) {
  MutexLock lock(mutex_);
  if (member.missing_bytes_ == 0) member.missing_since_ns_ = now_ns;
  member.missing_bytes_ = bytes;
  member.notified_ = false;
  const bool others_miss = OthersMiss(member);
  any_misses_.store(bytes != 0 || others_miss, std::memory_order_relaxed);
  return others_miss;
}

void ReadLedger::StillMissing(Member& member) {
  MutexLock lock(mutex_);
  member.notified_ = false;
}

uint64_t ReadLedger::ClaimMissing(int64_t then_ns, bool is_short, uint64_t at_least) {
  MutexLock lock(mutex_);
  uint64_t missing = 0;
  for (const Member* member : members_) {
    if (!member->notified_ && member->missing_since_ns_ <= then_ns) missing += member->missing_bytes_;
  }
  if (missing != 0 || is_short) missing = std::max(missing, at_least);
  const uint64_t claim = missing - std::min(missing, claimed_bytes_);
  claimed_bytes_ += claim;
  return claim;
}

void ReadLedger::Unclaim(uint64_t bytes) {
  MutexLock lock(mutex_);
  HAWSER_SUBTRACT(claimed_bytes_, bytes);
}

}  // namespace hawser::transport
