#include "hawser/transport/connection/send_queue.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/memcheck.h"
#include "hawser/transport/connection/port.h"
#include "hawser/transport/poller/work_id.h"

namespace hawser::transport {
namespace {

// Work requests posted in one chain; a longer queue takes several posts.
constexpr size_t kSendChainMax = 128;

constexpr uint32_t kSignalIntervalMax = 16;

// A control request, and the answer to the peer's.
constexpr uint32_t kControlSends = 2;

uint32_t WantedAtOnce(uint32_t slots, uint32_t read_depth) { return slots + read_depth + kControlSends; }

// Sends that the peer has answered keep their places, too, until the next signaled one completes. Each keeps
// its message, so connections with few slots, of which there may be many, signal more often.
uint32_t SignalInterval(uint32_t slots) { return std::clamp<uint32_t>(slots / 2, 1, kSignalIntervalMax); }

}  // namespace

uint32_t SendQueue::Depth(uint32_t slots, uint32_t read_depth) {
  return WantedAtOnce(slots, read_depth) + SignalInterval(slots);
}

uint32_t SendQueue::Size(uint32_t slots, uint32_t read_depth) {
  wanted_at_once_ = WantedAtOnce(slots, read_depth);
  signal_interval_ = SignalInterval(slots);
  depth_ = Depth(slots, read_depth);
  places_max_ = std::bit_ceil(depth_ + wanted_at_once_);
  return depth_;
}

bool SendQueue::MakeRoom() {
  if (end_ - completed_ != ring_.places()) return true;
  if (ring_.places() == places_max_) {
    // The NIC of an honest peer acknowledges every message that the peer has answered. Any other peer gets
    // no more of our memory.
    port_.Fail(Violation::kLimit, "answers messages whose arrival it never acknowledged",
               absl::StatusCode::kUnavailable);
    return false;
  }
  ring_.Reserve(completed_, end_, 1);
  return true;
}

SendQueue::Entry* SendQueue::Push() {
  if (!MakeRoom()) return nullptr;
  port_.FlushLater();
  return &at(end_++);
}

SendQueue::Entry* SendQueue::PushSend(size_t sge_count, SendOwner* owner, bool signaled, uint32_t rkey) {
  Entry* const entry = Push();
  if (entry == nullptr) return nullptr;
  entry->sge_count = static_cast<uint8_t>(sge_count);
  entry->read = nullptr;
  entry->send = owner;
  entry->rkey = rkey;
  entry->ahead = false;
  entry->signaled = signaled || signal_all_;
  if (++sends_since_signal_ >= signal_interval_) {
    sends_since_signal_ = 0;
    entry->signaled = true;
  }
  return entry;
}

bool SendQueue::PushSend(const fabric::Sge& sge, SendOwner* owner, bool signaled, uint32_t ends_rkey) {
  Entry* const entry = PushSend(1, owner, signaled, ends_rkey);
  if (entry == nullptr) return false;
  entry->sges[0] = sge;
  return true;
}

bool SendQueue::PushSend(absl::Span<const fabric::Sge> sges, SendOwner* owner, bool signaled,
                         uint32_t ends_rkey) {
  Entry* const entry = PushSend(sges.size(), owner, signaled, ends_rkey);
  if (entry == nullptr) return false;
  std::copy(sges.begin(), sges.end(), entry->sges);
  return true;
}

bool SendQueue::PushRead(const fabric::Sge& sink, uint64_t remote_address, uint32_t rkey, ReadOwner* owner) {
  Entry* const entry = Push();
  if (entry == nullptr) return false;
  entry->sges[0] = sink;
  entry->sge_count = 1;
  entry->remote_address = remote_address;
  entry->rkey = rkey;
  entry->read = owner;
  entry->send = nullptr;
  entry->ahead = false;
  entry->signaled = true;
  return true;
}

bool SendQueue::PushAhead(const fabric::Sge& data, uint64_t remote_address, uint32_t rkey, SendOwner* owner) {
  Entry* const entry = PushSend(1, owner, /*signaled=*/true, rkey);
  if (entry == nullptr) return false;
  entry->sges[0] = data;
  entry->remote_address = remote_address;
  entry->ahead = true;
  ahead_bytes_ += data.length;
  return true;
}

std::string SendQueue::Describe(uint32_t number) const {
  const Entry& entry = at(number);
  if (entry.read == nullptr && entry.ahead) return "a push";
  if (entry.read == nullptr) {
    return entry.rkey == 0 ? "a SEND" : absl::StrCat("a SEND that ends the grant with rkey ", entry.rkey);
  }
  return absl::StrCat("a READ of ", entry.sges[0].length, " bytes with rkey ", entry.rkey, " for slot ",
                      entry.read->slot());
}

std::string SendQueue::DescribeOldestRead() const {
  uint32_t number = completed_;
  while (at(number).read == nullptr) ++number;
  return Describe(number);
}

void SendQueue::DropQueued() {
  copied_ = 0;
  while (end_ != posted_) {
    Entry& entry = at(--end_);
    SendOwner* const send = std::exchange(entry.send, nullptr);
    ReadOwner* const read = std::exchange(entry.read, nullptr);
    const uint32_t bytes = entry.sges[0].length;
    if (entry.ahead) ahead_bytes_ -= bytes;
    if (send != nullptr) send->OnSendCompleted();
    if (read != nullptr) read->OnReadCompleted(bytes, false);
  }
}

absl::Status SendQueue::PostQueued(bool wants_completion) {
  if (wants_completion) {
    at(end_ - 1).signaled = true;
    sends_since_signal_ = 0;
  }
  while (posted_ != end_) {
    absl::InlinedVector<fabric::SendWorkRequest, kSendChainMax> chain;
    size_t count = std::min({size_t{end_ - posted_}, size_t{depth_ - outstanding()}, kSendChainMax});
    // A push is posted with its SEND, whose memory it owns, too.
    if (count < end_ - posted_ && at(posted_ + static_cast<uint32_t>(count)).ahead) --count;
    if (count == 0)
      return absl::OkStatus();  // Completions make room, and then the poller flushes this queue again.
    uint32_t reads = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t number = posted_ + static_cast<uint32_t>(i);
      const Entry& entry = at(number);
      fabric::SendWorkRequest& request = chain.emplace_back();
      request.wr_id = WorkId{port_.index(), WorkId::kSendQueue, number}.Encode();
      request.signaled = entry.signaled;
      request.sges = absl::MakeConstSpan(entry.sges, entry.sge_count);
      if (entry.read == nullptr) {
        for (const fabric::Sge& sge : request.sges) ExpectInitialized(sge.address, sge.length);
      }
      request.rkey = entry.rkey;
      if (entry.read == nullptr && !entry.ahead) [[likely]] {
        request.opcode = fabric::Opcode::kSend;
        continue;
      }
      request.opcode = entry.ahead ? fabric::Opcode::kPush : fabric::Opcode::kRead;
      request.remote_address = entry.remote_address;
      if (!entry.ahead) ++reads;
    }
    // Counted first: PostSend() may already report events that refer to these.
    posted_ += static_cast<uint32_t>(count);
    if (reads_posted_ == 0) reads_moved_ns_ = port_.poller().now_ns();
    reads_posted_ += reads;
    absl::Status posted = port_.queue_pair().PostSend(chain);
    if (!posted.ok()) {
      posted_ -= static_cast<uint32_t>(count);
      reads_posted_ -= reads;
      return posted;
    }
  }
  return absl::OkStatus();
}

void SendQueue::OnCompletion(uint32_t number, bool ok) {
  if (number - completed_ >= posted_ - completed_) return;  // The completion of a later one has covered it.
  while (completed_ != number + 1) {
    Entry& entry = at(completed_++);
    // The place is free from here on: the callbacks below may take it.
    SendOwner* const send = std::exchange(entry.send, nullptr);
    ReadOwner* const read = std::exchange(entry.read, nullptr);
    const uint32_t bytes = entry.sges[0].length;
    if (entry.ahead) ahead_bytes_ -= bytes;
    if (send != nullptr) send->OnSendCompleted();
    if (read == nullptr) continue;
    --reads_posted_;
    reads_moved_ns_ = port_.poller().now_ns();
    // `ok` is right for this READ: every READ is signaled, so an earlier READ has completed by itself before.
    read->OnReadCompleted(bytes, ok);
  }
  if (posted_ != end_) port_.FlushLater();
}

}  // namespace hawser::transport
