#include "hawser/transport/rendezvous.h"

#include <algorithm>

#include "hawser/transport/connection.h"

namespace hawser::transport {

void Pull::Start(const ParsedMessage& message, const Lease& sink, IncomingMessage& incoming, Owner* owner,
                 uint16_t slot) {
  owner_ = owner;
  slot_ = slot;
  stopped_ = false;
  outstanding_ = 0;
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

PullQueue::PullQueue(Connection& connection)
    : connection_(connection), share_(connection.poller().read_budget(), *this) {}

void PullQueue::Add(Pull* pull) {
  pull->queued_ = true;
  ready_.push_back(pull);
  Pump();
}

bool PullQueue::Stop(Pull* pull) {
  pull->stopped_ = true;
  Dequeue(pull);
  return pull->outstanding_ == 0;
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
    if (!connection_.send_queue().PushRead({pull->sink_, bytes, pull->lkey_},
                                           segment.address + pull->next_offset_, segment.rkey, pull)) {
      return share_.Return(bytes);
    }
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
  share_.Return(bytes);
  if (!ok) pull->stopped_ = true;
  Pump();
  if (pull->outstanding_ == 0 && pull->exhausted()) {
    Dequeue(pull);
    pull->owner_->OnPullEnded(pull->slot_, !pull->stopped_);
  }
}

}  // namespace hawser::transport
