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

PullQueue::~PullQueue() { connection_.poller().read_budget().Forget(this); }

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
  while (!failed_ && !ready_.empty() && outstanding_ < depth_) {
    Pull* const pull = ready_.front();
    if (pull->exhausted()) {
      Dequeue(pull);
      continue;
    }
    const Pull::Segment& segment = pull->segments_[pull->next_segment_];
    const uint32_t bytes = std::min(kReadChunkBytes, segment.length_bytes - pull->next_offset_);
    if (!connection_.poller().read_budget().Take(bytes, this)) return;
    if (!connection_.send_queue().PushRead({pull->sink_, bytes, pull->lkey_},
                                           segment.address + pull->next_offset_, segment.rkey, pull)) {
      return connection_.poller().read_budget().Return(bytes);
    }
    ++outstanding_;
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
  --outstanding_;
  --pull->outstanding_;
  connection_.poller().read_budget().Return(bytes);
  if (!ok) pull->stopped_ = true;
  Pump();
  if (pull->outstanding_ == 0 && pull->exhausted()) {
    Dequeue(pull);
    pull->owner_->OnPullEnded(pull->slot_, !pull->stopped_);
  }
}

}  // namespace hawser::transport
