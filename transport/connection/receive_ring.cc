#include "hawser/transport/connection/receive_ring.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "hawser/transport/connection/port.h"
#include "hawser/transport/poller/work_id.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::transport {
namespace {

// The peer's control request, and its answer to ours.
constexpr uint32_t kControl = 2;
// There is one spare receive for each so many slots, but at least one for each connection.
constexpr uint32_t kSlotsPerSpare = 8;
constexpr uint32_t kSpareMax = 8;
constexpr size_t kReceiveChainMax = 64;
// kWaitedFor: the receives of an idle connection.
constexpr uint32_t kIdle = 2;
// kWaitedFor: the receives of a connection with a single call at a time; it then posts once in four calls.
constexpr uint32_t kOneByOne = 8;
// With more refills than this between two calls of OnIdle() there is traffic other than pings.
constexpr uint32_t kIdleRefills = 4;

uint32_t SpareFor(uint32_t slots) { return std::clamp(slots / kSlotsPerSpare, 1u, kSpareMax); }

}  // namespace

uint64_t ReceiveRing::LeasedBytes(uint32_t slots, uint32_t buffer_bytes) {
  return uint64_t{Depth(slots)} * BufferPool::CapacityOf(buffer_bytes);
}

uint32_t ReceiveRing::Depth(uint32_t slots) { return slots + kControl + SpareFor(slots); }

uint32_t ReceiveRing::Size(uint32_t slots, uint32_t buffer_bytes, Kind kind) {
  buffer_bytes_ = buffer_bytes;
  kind_ = kind;
  spare_max_ = static_cast<uint8_t>(SpareFor(slots));
  entries_.resize(Depth(slots));
  Want(kind == Kind::kWaitedFor ? kIdle : static_cast<uint32_t>(entries_.size()));
  if (kind == Kind::kCredits) {
    allowed_ = FirstCredits(slots);
    WantAllowed(0);
  }
  missing_.reserve(entries_.size());
  for (uint32_t i = static_cast<uint32_t>(entries_.size()); i > 0; --i) missing_.push_back(i - 1);
  return static_cast<uint32_t>(entries_.size());
}

void ReceiveRing::Want(uint32_t wanted) {
  const auto most = static_cast<uint32_t>(entries_.size());
  wanted_ = std::min(wanted, most);
  // A ring that may run empty is refilled when half of it is used, any other when its spare receives are
  // used.
  posted_min_ = wanted_ - (wanted_ == most ? spare_max_ : wanted_ / 2) + 1;
}

// Flush() replaces used receives before it sends anything that the peer may answer, so the promise holds
// without spare receives. Spare ones let several messages share a post.
void ReceiveRing::WantAllowed(uint32_t spare) {
  spare_ = spare;
  posted_min_ = allowed_ + kControl;
  wanted_ = posted_min_ + spare_;
}

bool ReceiveRing::Allow(uint32_t requests) {
  allowed_ = requests;
  WantAllowed(spare_);
  Shortage why;
  if (!has_allowed() && !waits_for_memory() && !Refill(why)) RefillLater();
  return has_allowed();
}

void ReceiveRing::Grow(uint32_t control_messages) {
  if (full_) return;
  if (kind_ == Kind::kForAnswers) {
    wanted_ = std::min(may_come_ + spare_, static_cast<uint32_t>(entries_.size()));
    spare_ = std::min<uint32_t>(spare_ + 1, spare_max_);
  } else if (kind_ == Kind::kCredits) {
    if (refills_ > kIdleRefills) WantAllowed(std::min<uint32_t>(spare_ + 1, spare_max_));
  } else if (kind_ == Kind::kWaitedFor &&
             // The last turn ended with more than half of the ring posted, so this turn has used a quarter of
             // it.
             (posted() + control_messages <= wanted_ / 4 ||
              (refills_ > kIdleRefills && wanted_ < kOneByOne))) {
    Want(wanted_ * 2);
  }
}

bool ReceiveRing::Promise() {
  if (full_ || kind_ == Kind::kPromised || kind_ == Kind::kCredits) return false;
  full_ = true;
  Want(static_cast<uint32_t>(entries_.size()));
  return true;
}

void ReceiveRing::OnIdle(uint32_t may_come) {
  if (std::exchange(refills_, 0) > kIdleRefills || kind_ == Kind::kPromised || waits_for_memory()) return;
  full_ = false;
  if (kind_ == Kind::kForAnswers) {
    wanted_ = may_come_ = may_come;
    spare_ = 0;
  } else if (kind_ == Kind::kCredits) {
    WantAllowed(0);
  } else {
    Want(kIdle);
  }
  Withdraw();
  port_.queue_pair().Trim();
}

void ReceiveRing::Withdraw() {
  absl::InlinedVector<uint64_t, kReceiveChainMax> withdrawn(posted() - std::min(posted(), wanted_));
  withdrawn.resize(port_.queue_pair().WithdrawReceives(absl::MakeSpan(withdrawn)));
  for (const uint64_t wr_id : withdrawn) Take(WorkId::Decode(wr_id).number);
}

bool ReceiveRing::Refill(uint32_t may_come, uint32_t control_messages) {
  may_come_ = may_come;
  const uint32_t since = control_messages - std::exchange(control_messages_, control_messages);
  if (std::exchange(opened_, true)) {
    ++refills_;
    Grow(since);
  } else if (kind_ == Kind::kForAnswers) {
    wanted_ = may_come;
  }
  Shortage why;
  return Refill(why);
}

void ReceiveRing::RefillLater() { port_.poller().memory_queue().Wait(*this, buffer_bytes_); }

bool ReceiveRing::OnMemory(Shortage& why) {
  const uint32_t before = posted();
  const bool filled = Refill(why);
  if (filled || !wants_refill(may_come_)) port_.OnReceivesFilled();
  // Some receives may be enough for the messages that wait to be sent.
  if (filled || posted() != before) port_.FlushLater();
  return filled;
}

bool ReceiveRing::Refill(Shortage& why) {
  BufferPool& pool = port_.poller().messages().buffers();
  // A connection needs its first receive to exist. So this waits for memory if the pool only has to unmap
  // other memory first.
  const bool first = missing_.size() == entries_.size();
  bool exhausted = false;
  while (posted() < wanted_) {
    size_t length = std::min<size_t>(wanted_ - posted(), kReceiveChainMax);
    if (exhausted) [[unlikely]] {
      if (put_back_ == 0) break;
      // The ring still has these buffers, so they need nothing of the pool. They go to the end of missing_.
      std::partition(missing_.begin(), missing_.end(), [this](uint32_t number) { return !entries_[number]; });
      length = std::min<size_t>(length, put_back_);
    }
    // Not initialized, and a plain array: this runs for each small message.
    alignas(fabric::ReceiveWorkRequest)
        std::byte memory[kReceiveChainMax * sizeof(fabric::ReceiveWorkRequest)];
    static_assert(std::is_aggregate_v<fabric::ReceiveWorkRequest> &&
                  std::is_trivially_destructible_v<fabric::ReceiveWorkRequest>);
    auto* const chain = reinterpret_cast<fabric::ReceiveWorkRequest*>(memory);
    const uint64_t wr_id = WorkId{port_.index(), WorkId::kReceive, 0}.Encode();
    size_t count = 0;
    for (; count < length; ++count) {
      const uint32_t number = missing_[missing_.size() - 1 - count];
      if (const Lease& entry = entries_[number]) {  // It was put back.
        --put_back_;
        chain[count] = {wr_id | number, {entry.data(), buffer_bytes_, entry.lkey()}};
        continue;
      }
      Lease lease = pool.TryAcquire(buffer_bytes_, why);
      if (!lease) {
        port_.poller().messages().Trim();
        lease = pool.TryAcquire(buffer_bytes_, why);
      }
      if (!lease && first) {
        if (absl::StatusOr<Lease> grown = pool.Acquire(buffer_bytes_); grown.ok()) lease = *std::move(grown);
      }
      if (!lease) {
        exhausted = true;
        break;
      }
      chain[count] = {wr_id | number, {lease.data(), buffer_bytes_, lease.lkey()}};
      entries_[number] = std::move(lease);
    }
    if (count != 0) {
      absl::Status posted = port_.queue_pair().PostReceive({chain, count});
      if (!posted.ok()) {
        // None of them was posted, so their numbers stay in missing_.
        for (size_t i = 0; i < count; ++i) entries_[missing_[missing_.size() - 1 - i]] = Lease();
        port_.Fail(absl::StatusCode::kInternal,
                   absl::StrCat("posting ", count, " receives failed: ", posted.message()));
        return true;
      }
      missing_.resize(missing_.size() - count);
    }
  }
  if (posted() >= wanted_) return true;
  pool.NotifyShortage(buffer_bytes_, why);
  return false;
}

Lease ReceiveRing::Take(uint32_t number) {
  if (number >= entries_.size() || !entries_[number]) return Lease();
  missing_.push_back(number);
  return std::exchange(entries_[number], Lease());
}

void ReceiveRing::DropPutBack() {
  // They are among the last.
  for (size_t i = missing_.size(); put_back_ != 0;) {
    Lease& buffer = entries_[missing_[--i]];
    if (!buffer) continue;
    buffer = Lease();
    --put_back_;
  }
}

void ReceiveRing::Abandon() {
  ReleasePutBack();
  for (uint32_t number = 0; number < entries_.size(); ++number) Take(number);
}

}  // namespace hawser::transport
