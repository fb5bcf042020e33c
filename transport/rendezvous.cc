#include "hawser/transport/rendezvous.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hawser/transport/port.h"

namespace hawser::transport {

void Pull::Start(const ParsedMessage& message, const Lease& sink, IncomingMessage& incoming) {
  next_segment_ = 0;
  next_offset_ = 0;
  segments_.clear();
  sink_ = sink ? sink.data() : nullptr;
  lkey_ = sink ? sink.lkey() : 0;
  const uint8_t* inline_segment = message.inline_segments;
  const uint8_t* sink_segment = sink_;
  for (size_t i = 0; i < message.header.entries; ++i) {
    const TableEntry entry = DecodeTableEntry(message.table + i * kTableEntryBytes);
    const uint8_t*& at = entry.rkey == 0 ? inline_segment : sink_segment;
    incoming.AddSegment(at, entry.length_bytes);
    at += entry.length_bytes;
    if (entry.rkey != 0) segments_.push_back({entry.address, entry.rkey, entry.length_bytes});
  }
}

void Pull::OnReadCompleted(uint32_t bytes, bool ok) { queue_->OnReadCompleted(this, bytes, ok); }

PullQueue::PullQueue(Port& port, SendQueue& sends)
    : port_(port),
      sends_(sends),
      admission_(port.poller().pull_admission()),
      account_(admission_, *this),
      share_(port.poller().read_budget(), *this) {}

void PullQueue::Announce(Pull* pull, uint64_t bytes, Pull::Owner* owner, uint16_t slot) {
  Release(pull);
  pull->queue_ = this;
  pull->owner_ = owner;
  pull->slot_ = slot;
  pull->stopped_ = false;
  pull->outstanding_ = 0;
  admission_.Announce(*pull, bytes, account_);
}

void PullQueue::Add(Pull* pull) {
  pull->queued_ = true;
  ready_.push_back(pull);
  Pump();
}

bool PullQueue::Stop(Pull* pull) {
  pull->stopped_ = true;
  admission_.Withdraw(*pull);
  Dequeue(pull);
  if (pull->holds_memory()) admission_.OnPullEnded(*pull);
  return pull->outstanding_ == 0;
}

void PullQueue::Fail() {
  failed_ = true;
  admission_.WithdrawAll(account_);
}

PeerHost PullQueue::peer_host() const { return PeerHost(port_.queue_pair().peer_address()); }

bool PullQueue::waits_for_peer() const {
  return !share_.waits_in_line() && sends_.reads_stand_still_since_ns() != kNever;
}

void PullQueue::EndForMemory() {
  port_.Fail(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("holds memory for large messages that it announced, but answers hardly any READ of them (",
                   sends_.DescribeOldestRead(), " is the oldest) while others wait for memory"));
}

void PullQueue::Dequeue(Pull* pull) {
  if (!pull->queued_) return;
  pull->queued_ = false;
  ready_.erase(std::find(ready_.begin(), ready_.end(), pull));
}

void PullQueue::Pump() {
  while (!failed_ && !ready_.empty()) {
    Pull* const pull = ready_.front();
    if (pull->exhausted()) {
      Dequeue(pull);
      continue;
    }
    const Pull::Segment& segment = pull->segments_[pull->next_segment_];
    const uint32_t bytes = std::min(kReadChunkBytes, segment.length_bytes - pull->next_offset_);
    if (!share_.Take(bytes)) return;
    if (!sends_.PushRead({pull->sink_, bytes, pull->lkey_}, segment.address + pull->next_offset_,
                         segment.rkey, pull)) {
      return share_.Return(bytes);
    }
    admission_.OnReadQueued(*pull, bytes);
    ++pull->outstanding_;
    pull->sink_ += bytes;
    pull->next_offset_ += bytes;
    if (pull->next_offset_ == segment.length_bytes) {
      ++pull->next_segment_;
      pull->next_offset_ = 0;
    }
    std::rotate(ready_.begin(), ready_.begin() + 1, ready_.end());
  }
}

void PullQueue::OnReadCompleted(Pull* pull, uint32_t bytes, bool ok) {
  --pull->outstanding_;
  if (!pull->stopped_) admission_.OnRead(*pull, bytes);
  if (!ok) pull->stopped_ = true;
  share_.Return(bytes);
  Pump();
  if (pull->outstanding_ == 0 && pull->exhausted()) {
    Dequeue(pull);
    admission_.OnPullEnded(*pull);
    pull->owner_->OnPullEnded(pull->slot_, !pull->stopped_);
  }
}

}  // namespace hawser::transport
