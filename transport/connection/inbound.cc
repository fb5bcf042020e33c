#include "hawser/transport/connection/inbound.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/probe.h"
#include "hawser/base/state_machine.h"
#include "hawser/transport/poller/work_id.h"

namespace hawser::transport {
// ---- Inbound

Inbound::State Inbound::Next(State state, Event event) {
  using enum State;
  constexpr State kNone = kImpossible;
  // clang-format off
  static constexpr State kNext[4][5] = {
    //              announced admitted  whole  stopped    last READ
    /* kIdle     */ {kWaiting, kNone,    kNone, kNone,     kNone},
    /* kWaiting  */ {kNone,    kReading, kNone, kIdle,     kNone},
    /* kReading  */ {kNone,    kNone,    kIdle, kStopping, kNone},
    /* kStopping */ {kNone,    kNone,    kNone, kStopping, kIdle},
  };
  // clang-format on
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

void Inbound::Move(Event event) {
  state_ = Moved<Inbound>(state_, event, [this] {
    return absl::StrCat("what comes in slot ", slot_, " from ", inbounds_->port_.peer());
  });
}

void Inbound::OnAdmitted(Lease sink) {
  Move(Event::kAdmitted);
  const absl::Span<const uint8_t> received = message_->received();
  ParsedMessage parsed;
  // It was checked when it arrived, and only this side has had access to it since.
  Parse(received.data(), received.size(), parsed).IgnoreError();
  next_segment_ = 0;
  next_offset_ = 0;
  segments_.clear();
  sink_begin_ = nullptr;
  sink_end_ = nullptr;
  const uint64_t sink_bytes = parsed.remote_bytes - landing_.length_bytes;  // READ into the sink.
  const uint8_t* inline_segment = parsed.inline_segments;
  if (sink) {
    sink_begin_ = sink.data();
    sink_end_ = sink_begin_ + sink_bytes + parsed.inline_bytes;
    lkey_ = sink.lkey();
    uint8_t* const inline_segments = sink_begin_ + sink_bytes;
    memcpy(inline_segments, parsed.inline_segments, parsed.inline_bytes);
    inline_segment = inline_segments;
  }
  uint8_t* sink_segment = sink_begin_;
  for (size_t i = 0; i < parsed.header.entries; ++i) {
    const TableEntry entry = DecodeTableEntry(parsed.table + i * kTableEntryBytes);
    if (entry.rkey == 0) {
      message_->AddSegment(inline_segment, entry.length_bytes);
      inline_segment += entry.length_bytes;
    } else if (landing_.length_bytes != 0 && i == landing_entry_) {
      message_->AddLanded(landing_);
      segments_.push_back({entry.address, entry.rkey, entry.length_bytes, landing_.address, true});
    } else {
      message_->AddSegment(sink_segment, entry.length_bytes);
      segments_.push_back({entry.address, entry.rkey, entry.length_bytes, sink_segment, false});
      sink_segment += entry.length_bytes;
    }
  }
  if (sink) message_->SetSink(std::move(sink));
  const size_t of_sink = segments_.size() - (landing_.length_bytes != 0 ? 1 : 0);
  sink_is_open_ =
      (of_sink > 1 || sink_bytes > kReadChunkBytes) && inbounds_->OpenSink(sink_begin_, sink_bytes);
  landing_is_open_ =
      landing_.length_bytes > kReadChunkBytes && inbounds_->OpenSink(landing_.address, landing_.length_bytes);
  inbounds_->Start(*this);
}

void Inbound::ChooseLanding(const ParsedMessage& parsed, const Landing& landing) {
  uint64_t longest = 0;
  for (size_t i = 0; i < parsed.header.entries; ++i) {
    const TableEntry entry = DecodeTableEntry(parsed.table + i * kTableEntryBytes);
    if (entry.rkey == 0 || entry.length_bytes <= longest || entry.length_bytes > landing.length_bytes)
      continue;
    // The processor has to read the first one, which has the root.
    if (i == 0 && !landing.cpu_visible) continue;
    longest = entry.length_bytes;
    landing_entry_ = i;
  }
  landing_ = landing;
  landing_.length_bytes = longest;
}

void Inbound::OnNoMemory() {
  was_short_ = true;
  owner_->OnNoMemory(slot_);
}

void Inbound::OnReadCompleted(uint32_t bytes, bool ok) {
  inbounds_->OnReadCompleted(*this, bytes, ok, /*lands=*/false);
}

void Inbound::LandingReads::OnReadCompleted(uint32_t bytes, bool ok) {
  inbound_.inbounds_->OnReadCompleted(inbound_, bytes, ok, /*lands=*/true);
}

// ---- Inbounds

Inbounds::Inbounds(Port& port, SendQueue& sends)
    : port_(port),
      sends_(sends),
      admission_(port.poller().read_admission()),
      account_(admission_, *this),
      share_(port.poller().read_budget(), *this) {}

Inbounds::Fit Inbounds::Receive(Inbound& inbound, const ParsedMessage& parsed, Lease&& buffer,
                                uint32_t length_bytes, Inbound::Owner& owner, IncomingMessagePtr& message) {
  if (parsed.inline_bytes + parsed.remote_bytes > port_.options().message_bytes_max) return Fit::kTooLarge;
  MessagePool& messages = port_.poller().messages();
  if (parsed.remote_bytes != 0) {
    inbound.landing_ = {};
    // An error is not what was asked for, and lands nowhere.
    if (const Landing* const landing = owner.landing(parsed.header.slot);
        landing != nullptr && !MayReturnRequest(parsed.envelope)) [[unlikely]] {
      inbound.ChooseLanding(parsed, *landing);
    }
    const uint64_t sink_bytes = parsed.remote_bytes - inbound.landing_.length_bytes;
    if (sink_bytes != 0 && !messages.buffers().CanEverHold(sink_bytes + parsed.inline_bytes)) {
      return Fit::kNeverFits;
    }
  }
  message = messages.NewIncoming();
  message->SetReceived(std::move(buffer), length_bytes, parsed.envelope);
  if (parsed.remote_bytes == 0) {
    AddInlineSegments(parsed, *message);
    port_.poller().received().whole.Add();
    return Fit::kWhole;
  }
  inbound.inbounds_ = this;
  inbound.owner_ = &owner;
  inbound.slot_ = parsed.header.slot;
  inbound.message_ = std::move(message);
  inbound.was_short_ = false;
  inbound.Move(Inbound::Event::kAnnounced);
  return Fit::kAnnounced;
}

void Inbounds::Fetch(Inbound& inbound, const ParsedMessage& parsed) {
  // Before the sink takes memory. Not if a push may bring the bytes: then they are rarely READ.
  if (parsed.remote_bytes > port_.queue_pair().push_bytes_max()) port_.OnBulkTransfer();
  if (failed_) return;
  const uint64_t sink_bytes = parsed.remote_bytes - inbound.landing_.length_bytes;
  if (sink_bytes == 0) return inbound.OnAdmitted({});  // All of it lands.
  admission_.Announce(inbound, sink_bytes, parsed.inline_bytes, account_);
}

void Inbounds::Start(Inbound& inbound) {
  inbound.queued_ = true;
  ready_.push_back(&inbound);
  TakePush(inbound);
  MessageCounts& received = port_.poller().received();
  (inbound.exhausted() ? received.pushed : received.read).Add();
  HAWSER_PROBE(pull_start, port_.number(), inbound.slot_, inbound.message_.get());
  Pump();
}

bool Inbounds::OpenSink(uint8_t* address, uint64_t bytes) {
  if (!port_.carries_traffic()) return false;
  port_.queue_pair().OpenSink(address, bytes);
  return true;
}

// Before anything else gets the memory. When the connection has failed, the fabric closes it by itself.
bool Inbounds::CloseSink(Inbound& inbound) {
  if (!port_.carries_traffic()) return true;
  if (inbound.sink_is_open_) inbound.sink_is_open_ = !port_.queue_pair().CloseSink(inbound.sink_begin_);
  if (inbound.landing_is_open_)
    inbound.landing_is_open_ = !port_.queue_pair().CloseSink(inbound.landing_.address);
  return !inbound.sink_is_open_ && !inbound.landing_is_open_;
}

// A push arrives whether it is taken or not, so it needs neither a turn nor a share of the READ budget.
void Inbounds::TakePush(Inbound& inbound) {
  if (failed_ || inbound.exhausted()) return;
  const Inbound::Segment& segment = inbound.segments_.front();
  if (segment.length_bytes > port_.queue_pair().push_bytes_max()) return;
  const bool lands = segment.lands;
  const fabric::Sge sink = {segment.sink, segment.length_bytes,
                            lands ? inbound.landing_.lkey : inbound.lkey_};
  const WorkId id = {port_.index(), WorkId::kTakenPush, next_taken_};
  if (!port_.queue_pair().TakePush(id.Encode(), sink, segment.address, segment.rkey)) return;
  if (taken_.empty()) taken_moved_ns_ = port_.poller().now_ns();
  taken_.push_back({next_taken_++, segment.length_bytes, &inbound, lands});
  OnQueued(inbound, segment.length_bytes);
}

// The next bytes of `inbound` come, by a READ that was queued or a push that was taken.
void Inbounds::OnQueued(Inbound& inbound, uint32_t bytes) {
  const Inbound::Segment& segment = inbound.segments_[inbound.next_segment_];
  if (!segment.lands) admission_.OnReadQueued(inbound, bytes);
  ++inbound.outstanding_;
  inbound.next_offset_ += bytes;
  if (inbound.next_offset_ != segment.length_bytes) return;
  ++inbound.next_segment_;
  inbound.next_offset_ = 0;
}

bool Inbounds::Stop(Inbound& inbound) {
  admission_.Withdraw(inbound);
  Dequeue(inbound);
  if (inbound.holds_memory()) admission_.OnReadsEnded(inbound);
  inbound.Move(Inbound::Event::kStopped);
  if (inbound.outstanding_ != 0 || !CloseSink(inbound)) return false;
  if (inbound.state_ == Inbound::State::kStopping) inbound.Move(Inbound::Event::kLastRead);
  inbound.message_.reset();
  return true;
}

void Inbounds::Fail() {
  failed_ = true;
  admission_.WithdrawAll(account_);
}

PeerHost Inbounds::peer_host() const { return PeerHost(port_.peer_address()); }

bool Inbounds::waits_for_peer() const { return !share_.waits_in_line() && stands_still_since_ns() != kNever; }

std::string Inbounds::DescribeOldest() const {
  if (sends_.reads_stand_still_since_ns() == stands_still_since_ns()) return sends_.DescribeOldestRead();
  return absl::StrCat("a push of ", taken_.front().bytes, " bytes");
}

void Inbounds::EndForMemory() {
  port_.Fail(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("holds memory for large messages that it announced, but answers hardly any READ of them (",
                   DescribeOldest(), " is the oldest) while others wait for memory"));
}

void Inbounds::Dequeue(Inbound& inbound) {
  if (!inbound.queued_) return;
  inbound.queued_ = false;
  ready_.erase(std::find(ready_.begin(), ready_.end(), &inbound));
}

void Inbounds::Pump() {
  while (!failed_ && !ready_.empty()) {
    Inbound& inbound = *ready_.front();
    if (inbound.exhausted()) {
      Dequeue(inbound);
      continue;
    }
    const Inbound::Segment& segment = inbound.segments_[inbound.next_segment_];
    const uint32_t bytes = std::min(kReadChunkBytes, segment.length_bytes - inbound.next_offset_);
    if (!share_.Take(bytes)) return;
    const fabric::Sge sink = {segment.sink + inbound.next_offset_, bytes,
                              segment.lands ? inbound.landing_.lkey : inbound.lkey_};
    ReadOwner& owner = segment.lands ? static_cast<ReadOwner&>(inbound.landing_reads_) : inbound;
    port_.OnBulkTransfer();
    if (failed_) return share_.Return(bytes);
    // False: the connection has failed.
    if (!sends_.PushRead(sink, segment.address + inbound.next_offset_, segment.rkey, &owner)) {
      return share_.Return(bytes);
    }
    OnQueued(inbound, bytes);
    std::rotate(ready_.begin(), ready_.begin() + 1, ready_.end());
  }
}

void Inbounds::OnTaken(uint32_t number, bool ok) {
  const auto it =
      std::find_if(taken_.begin(), taken_.end(), [&](const Taken& taken) { return taken.number == number; });
  HAWSER_CHECK(it != taken_.end(), "push ", number, ", which was not taken, has completed, connection to ",
               port_.peer());
  const Taken taken = *it;
  taken_.erase(it);
  taken_moved_ns_ = port_.poller().now_ns();
  OnArrived(*taken.inbound, taken.bytes, ok, taken.lands);
}

void Inbounds::OnReadCompleted(Inbound& inbound, uint32_t bytes, bool ok, bool lands) {
  OnArrived(inbound, bytes, ok, lands);
  // Last: this starts READs of other connections. They may fail, and a handler that is notified may stop
  // `inbound`.
  share_.Return(bytes);
  Pump();
}

void Inbounds::OnArrived(Inbound& inbound, uint32_t bytes, bool ok, bool lands) {
  HAWSER_SUBTRACT(inbound.outstanding_, 1);
  if (inbound.state_ != Inbound::State::kStopping && !lands) admission_.OnRead(inbound, bytes);
  if (!ok) inbound.Move(Inbound::Event::kStopped);
  if (inbound.outstanding_ == 0 && inbound.exhausted()) End(inbound);
}

void Inbounds::End(Inbound& inbound) {
  Dequeue(inbound);
  const bool is_ours = CloseSink(inbound);
  admission_.OnReadsEnded(inbound);
  // The connection has failed, or is about to. The message is kept until the fabric no longer writes to it.
  if (!is_ours || !port_.carries_traffic()) return;
  if (inbound.state_ == Inbound::State::kReading) {
    inbound.Move(Inbound::Event::kRead);
    HAWSER_PROBE(pull_end, port_.number(), inbound.slot_, inbound.message_.get());
    return inbound.owner_->OnRead(inbound.slot_, std::move(inbound.message_));
  }
  inbound.Move(Inbound::Event::kLastRead);
  inbound.message_.reset();
  inbound.owner_->OnStopped(inbound.slot_);
}

}  // namespace hawser::transport
