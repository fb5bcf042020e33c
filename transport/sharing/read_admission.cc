#include "hawser/transport/sharing/read_admission.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "hawser/base/check.h"

namespace hawser::transport {
namespace {

constexpr size_t kShort = 0, kLong = 1;
constexpr size_t kNothing = std::numeric_limits<size_t>::max();

// Short messages may take three quarters of the memory that long messages leave free.
constexpr double kShortLeaves = 0.25;

}  // namespace

// ---- ReadAccount

ReadAccount::ReadAccount(ReadAdmission& admission, Owner& owner) : admission_(admission), owner_(owner) {
  for (ReadLane& lane : lanes_) lane.account = this;
}

ReadAccount::~ReadAccount() {
  if (host_ == nullptr) return;
  admission_.WithdrawAll(*this);
  admission_.Leave(*host_, held_bytes_);
  if (claimed_bytes_ != 0) admission_.ledger_.Unclaim(claimed_bytes_);
}

// ---- HeldByHost

HeldByHost::~HeldByHost() {
  if (admission_ != nullptr) admission_->Leave(*host_, bytes_);
}

// ---- ReadAdmission

ReadAdmission::ReadAdmission(PollerServices& poller, ReadLedger& ledger, double host_share)
    : poller_(poller),
      ledger_(ledger),
      shares_{1 - (1 - host_share) * kShortLeaves, host_share},
      news_(poller, [this] { Pump(); }),
      pump_timer_([this] { Pump(); }),
      watch_timer_([this] { Watch(); }),
      interval_(poller, watch_timer_, kWatchInterval) {
  ledger_.Add(*this);
}

ReadAdmission::~ReadAdmission() { ledger_.Remove(*this); }

void ReadAdmission::Stop() { stopped_ = true; }

size_t ReadAdmission::LaneOf(const AnnouncedMessage& message) {
  return message.read_bytes_ <= kReadAheadBytes ? kShort : kLong;
}

ReadHost& ReadAdmission::HostOf(ReadAccount& account) {
  if (account.host_ == nullptr) {
    const PeerHost key = account.owner_.peer_host();
    std::unique_ptr<ReadHost>& host = hosts_[key];
    if (host == nullptr) {
      host = std::make_unique<ReadHost>();
      host->held = &ledger_.Join(key);
      for (ReadHost::Lane& lane : host->lanes) lane.host = host.get();
    }
    ++host->owners;
    account.host_ = host.get();
  }
  return *account.host_;
}

void ReadAdmission::Announce(AnnouncedMessage& message, uint64_t read_bytes, uint64_t other_bytes,
                             ReadAccount& account) {
  message.read_bytes_ = read_bytes;
  message.sink_bytes_ = read_bytes + other_bytes;
  const size_t index = LaneOf(message);
  ReadLane& lane = account.lanes_[index];
  HostOf(account);
  message.account_ = &account;
  lane.waiting.MoveToBack(&message);
  Place(lane, index);
  // If other messages wait before it, the ring need not be served.
  const ReadHost::Lane& host = account.host_->lanes[index];
  if (lane.waiting.front() == &message && host.connections.front() == &lane) Pump();
}

void ReadAdmission::Withdraw(AnnouncedMessage& message) {
  if (!message.linked()) return;
  message.Unlink();
  const size_t index = LaneOf(message);
  Place(message.account_->lanes_[index], index);
  OnWithdrawn();
}

void ReadAdmission::WithdrawAll(ReadAccount& account) {
  if (account.host_ == nullptr) return;
  for (size_t index : {kShort, kLong}) {
    ReadLane& lane = account.lanes_[index];
    while (AnnouncedMessage* const message = lane.waiting.front()) message->Unlink();
    Place(lane, index);
  }
  OnWithdrawn();
}

void ReadAdmission::OnWithdrawn() {
  if (!any_waits()) NoteWaiting();
  PumpSoon();
}

void ReadAdmission::OnReadQueued(AnnouncedMessage& message, uint64_t bytes) {
  const size_t index = LaneOf(message);
  ReadLane& lane = message.account_->lanes_[index];
  HAWSER_SUBTRACT(message.unposted_bytes_, bytes);
  HAWSER_SUBTRACT(lane.unposted_bytes, bytes);
  if (lane.linked() || lane.waiting.empty()) return;
  Place(lane, index);
  if (lane.linked()) PumpSoon();
}

void ReadAdmission::OnRead(AnnouncedMessage& message, uint64_t bytes) {
  ReadAccount& account = *message.account_;
  HAWSER_SUBTRACT(message.unread_bytes_, bytes);
  HAWSER_SUBTRACT(account.unread_bytes_, bytes);
  account.read_bytes_ += bytes;
  if (account.unread_bytes_ == 0) account.ListLink<InHolders>::Unlink();
}

void ReadAdmission::OnReadsEnded(AnnouncedMessage& message) {
  if (message.unposted_bytes_ != 0) OnReadQueued(message, message.unposted_bytes_);
  if (message.unread_bytes_ == 0) return;
  ReadAccount& account = *message.account_;
  HAWSER_SUBTRACT(account.unread_bytes_, message.unread_bytes_);
  message.unread_bytes_ = 0;
  if (account.unread_bytes_ == 0) account.ListLink<InHolders>::Unlink();
}

void ReadAdmission::ReleaseHeld(AnnouncedMessage& message) { Detach(message); }

HeldByHost ReadAdmission::Detach(AnnouncedMessage& message) {
  HeldByHost held;
  if (!message.holds_memory_) return held;
  OnReadsEnded(message);
  message.holds_memory_ = false;
  HAWSER_SUBTRACT(message.account_->held_bytes_, message.sink_bytes_);
  held.admission_ = this;
  held.host_ = message.account_->host_;
  held.bytes_ = message.sink_bytes_;
  ++held.host_->owners;
  return held;
}

void ReadAdmission::Leave(ReadHost& host, uint64_t bytes) {
  if (bytes != 0) {
    if (ledger_.Release(*host.held, bytes, *this)) notify_others_ = true;
    PumpSoon();
  }
  HAWSER_SUBTRACT(host.owners, 1);
  if (host.owners != 0) return;
  const PeerHost key = host.held->key;
  ledger_.Part(*host.held);
  hosts_.erase(key);
}

void ReadAdmission::Place(ReadLane& lane, size_t index) {
  ReadHost::Lane& host = lane.account->host_->lanes[index];
  const bool may_go_on = !lane.waiting.empty() && lane.unposted_bytes < kReadAheadBytes;
  if (may_go_on && !lane.linked()) host.connections.MoveToBack(&lane);
  if (!may_go_on) lane.Unlink();
  if (host.connections.empty()) {
    host.Unlink();
  } else if (!host.linked()) {
    rings_[index].MoveToBack(&host);
  }
}

// Memory may be returned anywhere, in the application's code, too, and comes back to the pool a little after
// Leave(). So waiting messages, of other members as well, are served in a turn of their own.
void ReadAdmission::PumpSoon() {
  if ((any_waits() || notify_others_) && !stopped_ && !pump_timer_.is_set()) {
    poller_.timers().Set(pump_timer_, poller_.now_ns());
  }
}

void ReadAdmission::Pump() {
  if (pumping_) again_ = true;
  if (stopped_ || std::exchange(pumping_, true)) return;
  poller_.timers().Cancel(pump_timer_);
  if (std::exchange(notify_others_, false)) ledger_.NotifyReleased(*this);
  // The second round finds memory that was released before this asked to be notified. If the system has
  // refused memory, there is no second round: it would start the next growth at once, but the timer of
  // MemoryNews starts that.
  for (int round = 0; round < 2; ++round) {
    refused_bytes_ = kNothing;
    why_ = Shortage::kAtLimit;
    misses_ = false;
    for (size_t index : {kShort, kLong}) ServeRing(index);
    NoteWaiting();
    if (!any_waits() || why_ == Shortage::kRefused) break;
  }
  pumping_ = false;
  if (std::exchange(again_, false)) PumpSoon();
}

void ReadAdmission::NoteWaiting() {
  if (any_waits()) {
    news_.Await(refused_bytes_, why_);
    awaiting_ = true;
  } else if (std::exchange(awaiting_, false)) {
    news_.StopAwaiting();
  }
  const bool misses = any_waits() && misses_;
  if (misses == said_misses_) {
    if (misses) ledger_.StillMissing(*this);
    return;
  }
  said_misses_ = misses;
  const bool others_miss = ledger_.SetMissing(*this, misses ? WaitingBytes() : 0, poller_.now_ns());
  // Starts a new interval, unless one is running on behalf of another poller: a restart would delay its
  // messages.
  if (misses && !(others_miss && watch_timer_.is_set())) Look();
}

void ReadAdmission::ServeRing(size_t index) {
  auto& ring = rings_[index];
  ++passes_;
  while (ReadHost::Lane* const host = ring.front()) {
    if (host->refused_in_pass == passes_) break;  // All others were refused in this pass, too.
    ReadLane* const lane = host->connections.front();
    AnnouncedMessage* const message = lane->waiting.front();
    ring.MoveToBack(host);
    host->refused_in_pass = passes_;
    if (Admit(*message, *lane, index)) host->refused_in_pass = 0;
  }
}

// When the pool has grown, it notifies the waiters for a buffer of that size.
void ReadAdmission::NoteRefusal(size_t bytes, Shortage why) {
  // Growth that the system refuses is tried again and again. That does not end a wait that has begun.
  if (why != Shortage::kGrowing || said_misses_) misses_ = true;
  if (why_ == Shortage::kGrowing) return;
  if (why != Shortage::kGrowing && bytes > refused_bytes_) return;
  refused_bytes_ = bytes;
  why_ = why;
}

bool ReadAdmission::Admit(AnnouncedMessage& message, ReadLane& lane, size_t index) {
  ++attempts_;
  ReadAccount& account = *lane.account;
  ReadHost& host = *account.host_;
  ReadLedger::Refusal refusal;
  Lease sink = ledger_.Lend(*host.held, message.sink_bytes_, shares_[index], refusal);
  if (!sink) {
    if (refusal.by_pool) poller_.messages().buffers().NotifyShortage(message.sink_bytes_, refusal.why);
    NoteRefusal(message.sink_bytes_, refusal.why);
    // While the pool grows, memory is only late, not short.
    if (refusal.why != Shortage::kGrowing) message.OnNoMemory();
    return false;
  }
  message.Unlink();
  message.holds_memory_ = true;
  message.unposted_bytes_ = message.unread_bytes_ = message.read_bytes_;
  account.held_bytes_ += message.sink_bytes_;
  lane.unposted_bytes += message.read_bytes_;
  if (account.unread_bytes_ == 0) {
    holders_.MoveToBack(&account);
    account.look_ = 0;
  }
  account.unread_bytes_ += message.read_bytes_;
  if (!watch_timer_.is_set()) Look();
  // The next connection of the host has its turn next.
  lane.Unlink();
  Place(lane, index);
  message.OnAdmitted(std::move(sink));
  return true;
}

// ---- The watch

void ReadAdmission::Look() {
  ++looks_;
  looked_ns_ = poller_.now_ns();
  for (ReadAccount* account = holders_.front(); account != nullptr; account = holders_.after(account)) {
    account->look_ = looks_;
    account->unread_bytes_then_ = account->unread_bytes_;
    account->read_bytes_then_ = account->read_bytes_;
  }
  interval_.Begin();
}

bool ReadAdmission::HardlyMoves(const ReadAccount& account) const {
  if (account.look_ != looks_ || !account.owner_.waits_for_peer()) return false;
  const uint64_t then = account.unread_bytes_then_;
  return account.read_bytes_ - account.read_bytes_then_ <
         std::min(then, std::max(kWatchedBytesMin, then / kWatchedFraction));
}

// The bytes of the first waiting message of each connection.
uint64_t ReadAdmission::WaitingBytes() const {
  uint64_t sum = 0;
  for (const auto& ring : rings_) {
    for (auto* host = ring.front(); host != nullptr; host = ring.after(host)) {
      for (auto* lane = host->connections.front(); lane != nullptr; lane = host->connections.after(lane)) {
        sum += lane->waiting.front()->sink_bytes_;
      }
    }
  }
  return sum;
}

void ReadAdmission::Watch() {
  if (!interval_.IsOver()) return;
  if (said_misses_) ledger_.SetMissing(*this, WaitingBytes(), poller_.now_ns());
  const uint64_t missing = ledger_.ClaimMissing(looked_ns_);
  uint64_t freed = 0;
  std::vector<ReadAccount::Owner*> to_end;
  for (ReadAccount* account = holders_.front(); account != nullptr && freed < missing;
       account = holders_.after(account)) {
    if (account->claimed_bytes_ != 0 || !HardlyMoves(*account)) continue;
    account->claimed_bytes_ = std::min(account->held_bytes_, missing - freed);
    freed += account->claimed_bytes_;
    to_end.push_back(&account->owner_);
  }
  ledger_.Unclaim(missing - freed);
  if (said_misses_ || !holders_.empty()) Look();
  for (ReadAccount::Owner* const owner : to_end) owner->EndForMemory();
}

}  // namespace hawser::transport
