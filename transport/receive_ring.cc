#include "hawser/transport/receive_ring.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "hawser/transport/port.h"
#include "hawser/transport/work_id.h"

namespace hawser::transport {
namespace {

// A request, and an answer to ours.
constexpr uint32_t kControl = 2;
// For so many slots there is one receive to spare; many connections of few slots each have one, too.
constexpr uint32_t kSlotsPerSpare = 8;
constexpr uint32_t kSpareMax = 8;
constexpr size_t kChainMax = 64;

uint32_t SpareFor(uint32_t slots) { return std::clamp(slots / kSlotsPerSpare, 1u, kSpareMax); }

}  // namespace

uint64_t ReceiveRing::LeasedBytes(uint32_t slots, uint32_t buffer_bytes) {
  return uint64_t{slots + kControl + SpareFor(slots)} * BufferPool::CapacityOf(buffer_bytes);
}

uint32_t ReceiveRing::Size(uint32_t slots, uint32_t buffer_bytes) {
  buffer_bytes_ = buffer_bytes;
  spare_ = SpareFor(slots);
  entries_.resize(slots + kControl + spare_);
  missing_.reserve(entries_.size());
  for (uint32_t i = static_cast<uint32_t>(entries_.size()); i > 0; --i) missing_.push_back(i - 1);
  return static_cast<uint32_t>(entries_.size());
}

bool ReceiveRing::Refill() {
  Shortage why;
  return Refill(why);
}

void ReceiveRing::RefillLater() { port_.poller().memory_queue().Wait(*this, buffer_bytes_); }

bool ReceiveRing::OnMemory(Shortage& why) {
  const uint32_t before = posted();
  const bool filled = Refill(why);
  if (filled || !wants_refill()) port_.OnReceivesFilled();
  // Some may be enough for what waits to be sent.
  if (filled || posted() != before) port_.FlushLater();
  return filled;
}

bool ReceiveRing::Refill(Shortage& why) {
  BufferPool& pool = port_.poller().messages().buffers();
  // The first one decides whether there is a connection: it waits for memory that is only to be unmapped
  // first.
  const bool first = missing_.size() == entries_.size();
  while (!missing_.empty()) {
    absl::InlinedVector<fabric::ReceiveWorkRequest, kChainMax> chain;
    bool exhausted = false;
    for (size_t count = 0; count < std::min(missing_.size(), kChainMax); ++count) {
      const uint32_t number = missing_[missing_.size() - 1 - count];
      Lease lease = pool.TryAcquire(buffer_bytes_, why);
      if (!lease) {
        port_.poller().messages().Trim();
        lease = pool.TryAcquire(buffer_bytes_, why);
      }
      if (!lease && first) {
        if (absl::StatusOr<Lease> grown = pool.Acquire(buffer_bytes_); grown.ok()) lease = *std::move(grown);
      }
      if (!lease) {
        pool.TellShort(buffer_bytes_, why);
        exhausted = true;
        break;
      }
      entries_[number] = std::move(lease);
      chain.push_back({.wr_id = WorkId{port_.index(), WorkId::kReceive, number}.Encode(),
                       .buffer = {entries_[number].data(), buffer_bytes_, entries_[number].lkey()}});
    }
    if (!chain.empty()) {
      absl::Status posted = port_.queue_pair().PostReceive(chain);
      if (!posted.ok()) {
        // None of them was posted; their numbers are missing still.
        for (size_t count = 0; count < chain.size(); ++count) {
          entries_[missing_[missing_.size() - 1 - count]] = Lease();
        }
        port_.Fail(absl::StatusCode::kInternal,
                   absl::StrCat("posting ", chain.size(), " receives failed: ", posted.message()));
        return true;
      }
      missing_.resize(missing_.size() - chain.size());
    }
    if (exhausted) return false;
  }
  return true;
}

Lease ReceiveRing::Take(uint32_t number) {
  if (number >= entries_.size() || !entries_[number]) return Lease();
  missing_.push_back(number);
  return std::exchange(entries_[number], Lease());
}

void ReceiveRing::Abandon() {
  for (uint32_t number = 0; number < entries_.size(); ++number) Take(number);
}

}  // namespace hawser::transport
