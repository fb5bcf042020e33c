#include "hawser/transport/connection/outbound.h"

#include <string.h>

#include <algorithm>
#include <bitset>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/memcheck.h"
#include "hawser/base/state_machine.h"
#include "hawser/transport/connection/inbound.h"
#include "hawser/transport/poller/work_id.h"

namespace hawser::transport {
namespace {

using Segment = OutgoingMessage::Segment;
using IsInline = std::bitset<kSegmentsMax>;

// In a message that does not fit one SEND, segments up to this size are still inline: a READ costs a round
// trip.
constexpr size_t kInlineSegmentMax = 1024;

struct Layout {
  IsInline is_inline;
  size_t prefix_bytes;
  size_t inline_bytes = 0;
};

Layout Plan(absl::Span<const Segment> segments, size_t prefix_bytes, uint64_t body_bytes,
            size_t send_bytes_max) {
  Layout layout{{}, prefix_bytes};
  const bool whole = prefix_bytes + body_bytes <= send_bytes_max;
  for (size_t i = 0; i < segments.size(); ++i) {
    const size_t length = segments[i].length_bytes;
    const bool fits = prefix_bytes + layout.inline_bytes + length <= send_bytes_max;
    // A segment of no bytes cannot be READ.
    if (whole || length == 0 || (length <= kInlineSegmentMax && fits)) {
      layout.is_inline.set(i);
      layout.inline_bytes += length;
    }
  }
  return layout;
}

// Everything before the envelope.
void WriteHeaderAndTable(const Header& header, absl::Span<const TableEntry> table, uint8_t* out) {
  EncodeHeader(header, out);
  out += kHeaderBytes;
  for (const TableEntry& entry : table) {
    EncodeTableEntry(entry, out);
    out += kTableEntryBytes;
  }
}

}  // namespace

// ---- Outbound

Outbound::State Outbound::Next(State state, Event event) {
  using enum State;
  constexpr State kNone = kImpossible;
  // clang-format off
  static constexpr State kNext[7][8] = {
    //                       post     completed   release    revoke             revoked    fail     gone  copy
    /* kIdle             */ {kPosted, kNone,      kNone,     kRevoking,         kNone,     kNone,   kIdle, kCompleted},
    /* kPosted           */ {kNone,   kCompleted, kReleased, kReleasedRevoking, kNone,     kEnding, kNone, kNone},
    /* kCompleted        */ {kNone,   kNone,      kIdle,     kRevoking,         kNone,     kEnding, kNone, kNone},
    /* kReleased         */ {kNone,   kIdle,      kNone,     kNone,             kNone,     kEnding, kIdle, kNone},
    /* kReleasedRevoking */ {kNone,   kRevoking,  kNone,     kNone,             kReleased, kNone,   kIdle, kNone},
    /* kRevoking         */ {kNone,   kNone,      kNone,     kNone,             kIdle,     kNone,   kIdle, kNone},
    /* kEnding           */ {kNone,   kEnding,    kNone,     kNone,             kEnding,   kNone,   kIdle, kNone},
  };  // kIdle and "revoke": what was granted of a message that could not be posted after all.
  // clang-format on
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

void Outbound::Move(Event event) {
  const State next = Moved<Outbound>(
      state_, event, [this] { return absl::StrCat("message ", index_, " to ", owner_.port_.peer()); });
  const State before = std::exchange(state_, next);
  if (next != State::kIdle) return;
  if (before != State::kIdle) owner_.Free(*this);
  if (request_memory_) [[unlikely]]
    request_memory_ = {};
  // Last: what takes the message may post it again at once. What was attached to it is destroyed here, and
  // may cancel calls, inside which no callback runs.
  const Poller::NoCallOut wait(owner_.port_.poller());
  message_.reset();
}

bool Outbound::IsFrom(const Inbound& request) const {
  const absl::Span<const Segment> segments = message_->segments();
  return std::any_of(segments.begin(), segments.end(),
                     [&](const Segment& segment) { return request.counts(segment.address); });
}

void Outbound::Release() {
  if (rkeys_.empty()) return Move(Event::kRelease);
  Revoke();
}

ResponseAccount::Bytes Outbound::TakeCounted() {
  counts_ = false;
  granted_bytes_ = 0;
  return std::exchange(counted_, {});
}

void Outbound::OnGivenUp() {
  if (!counts_ || counted_.granted != 0) return;
  counted_.granted = granted_bytes_;
  owner_.responses_.OnGranted({.granted = granted_bytes_, .held = 0});
}

void Outbound::Revoke() {
  if (counts_) owner_.responses_.OnReleased(TakeCounted());
  Move(Event::kRevoke);
  RevokeGrants();
}

void Outbound::RevokeGrants() {
  if (rkeys_.empty()) return;
  grants_left_ = static_cast<uint32_t>(rkeys_.size());
  ++owner_.revoking_;
  const uint64_t wr_id = WorkId{owner_.port_.index(), WorkId::kRevocation, index_}.Encode();
  for (const uint32_t rkey : rkeys_) owner_.port_.queue_pair().Revoke(rkey, wr_id);
  rkeys_.clear();
}

void Outbound::ReleaseAtFailure() {
  // It still counts, until the connection is destroyed; but there is nothing more to end.
  if (counts_) owner_.responses_.Unlink();
  TakeCounted();
  RevokeGrants();  // The peer may have access until a command to the device has taken it away.
  Move(Event::kFail);
}

// While its connection fails, no code of the application may run, and destroying what is attached would run
// some.
void Outbound::OnSendCompleted() {
  const bool failed = state_ == State::kReleased && !owner_.port_.carries_traffic();
  Move(failed ? Event::kFail : Event::kComplete);
}

// ---- Outbounds

Outbound& Outbounds::New() {
  if (free_ == nullptr) Grow();
  return *std::exchange(free_, free_->next_free_);
}

void Outbounds::Grow() {
  all_.push_back(std::unique_ptr<Outbound>(new Outbound(*this, static_cast<uint32_t>(all_.size()))));
  Free(*all_.back());
}

void Outbounds::OnRevoked(uint32_t index) {
  HAWSER_CHECK(index < all_.size() && all_[index]->grants_left_ > 0, "revocation ", index, " of ",
               all_.size(), " completed once too often, connection to ", port_.peer());
  if (--all_[index]->grants_left_ != 0) return;
  --revoking_;
  all_[index]->Move(Outbound::Event::kRevoked);
}

void Outbounds::OnFabricReleased() {
  revoking_ = 0;
  // A message that is returned to its Taker is not posted again here: this connection is no more.
  for (const auto& outbound : all_) {
    outbound->grants_left_ = 0;
    outbound->Move(Outbound::Event::kFabricGone);
  }
}

Outbound& Outbounds::Keep(OutgoingMessagePtr message) {
  Outbound& outbound = New();
  outbound.message_ = std::move(message);
  outbound.Move(Outbound::Event::kCopied);
  return outbound;
}

Outbound* Outbounds::Post(Header& header, OutgoingMessagePtr& message, absl::Status& why,
                          uint32_t ends_rkey) {
  const absl::Span<const Segment> segments = message->Finish();
  const size_t envelope_bytes = message->envelope().size();
  const size_t prefix_bytes = PrefixBytes(segments.size(), envelope_bytes);
  header.envelope_words = static_cast<uint8_t>(envelope_bytes / 8);
  header.entries = static_cast<uint16_t>(segments.size());
  const bool whole = segments.size() == 1 && message->is_in_head(segments[0]) &&
                     prefix_bytes + message->body_bytes() <= port_.agreed().receive_buffer_bytes &&
                     message->body_bytes() <= bytes_max() && message->status().ok();
  if (whole) {
    EncodeUsualPrefix(header, static_cast<uint32_t>(message->body_bytes()), message->body() - prefix_bytes);
  }
  Outbound& outbound = New();
  outbound.message_ = std::move(message);
  if (whole) {
    if (QueueWhole(outbound, prefix_bytes, ends_rkey)) {
      outbound.Move(Outbound::Event::kPost);
      return &outbound;
    }
    why = port_.why_closed();
  } else {
    why = QueueOther(header, outbound, prefix_bytes, ends_rkey);
    if (why.ok()) {
      outbound.Move(Outbound::Event::kPost);
      return &outbound;
    }
  }
  if (outbound.has_grants()) {
    outbound.Revoke();
    return &outbound;
  }
  message = std::move(outbound.message_);
  Free(outbound);
  return nullptr;
}

absl::Status Outbounds::TooLarge(const Header& header, const OutgoingMessage& message) const {
  if (message.segments().size() > kSegmentsMax) {
    return absl::InvalidArgumentError(absl::StrCat("the message has ", message.segments().size(),
                                                   " segments, at most ", kSegmentsMax,
                                                   " can be sent; attach fewer payloads"));
  }
  const uint64_t body_bytes = message.body_bytes();
  if (const uint64_t max = port_.options().message_bytes_max; body_bytes > max) {
    return absl::InvalidArgumentError(
        absl::StrCat("the message has ", body_bytes, " bytes, ",
                     header.kind == Kind::kRequest ? "this side" : "the side that answers", " sends at most ",
                     max, " (its own ConnectionOptions::message_bytes_max)"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the message has ", body_bytes, " bytes, the peer ", port_.peer(), " takes at most ",
                   port_.peer_message_bytes_max(), " (ConnectionOptions::message_bytes_max there)"));
}

absl::Status Outbounds::QueueOther(const Header& header, Outbound& outbound, size_t prefix_bytes,
                                   uint32_t ends_rkey) {
  const OutgoingMessage& message = *outbound.message_;
  const absl::Span<const Segment> segments = message.segments();
  if (!message.status().ok()) return message.status();
  if (segments.size() > kSegmentsMax || message.body_bytes() > bytes_max()) return TooLarge(header, message);
  const size_t send_bytes_max = port_.agreed().receive_buffer_bytes;
  if (prefix_bytes > send_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat("the table of ", segments.size(),
                                                   " segments does not fit the agreed receive buffer of ",
                                                   send_bytes_max, " bytes"));
  }
  return QueueParts(header, outbound, prefix_bytes, send_bytes_max, ends_rkey);
}

// One inline segment, directly behind the envelope.
bool Outbounds::QueueWhole(Outbound& outbound, size_t prefix_bytes, uint32_t ends_rkey) {
  const OutgoingMessage& message = *outbound.message_;
  const Segment& segment = message.segments().front();
  const fabric::Sge sge{message.body() - prefix_bytes,
                        static_cast<uint32_t>(prefix_bytes) + segment.length_bytes, segment.lkey};
  if (!sends_.PushSend(sge, &outbound, message.has_attached(), ends_rkey)) return false;
  CountWhole(message);
  return true;
}

// A fabric promises as many grants as the send queue has places. For more than those there may never be
// enough, so waiting for other exchanges to end would be in vain.
absl::Status Outbounds::NotGranted(size_t remote_segments, const absl::Status& why) const {
  if (remote_segments <= sends_.depth()) return why;
  return absl::InvalidArgumentError(
      absl::StrCat("the message has ", remote_segments, " large segments, a connection of ",
                   port_.agreed().slots, " slots can be sure to grant ", sends_.depth(),
                   " at once; attach fewer payloads, or raise ConnectionOptions::slots: ", why.message()));
}

uint64_t Outbounds::CountHeld() {
  uint64_t sum = 0;
  for (const auto& outbound : all_) {
    ResponseAccount::Bytes& counted = outbound->counted_;
    if (!outbound->counts_) continue;
    // The memory of a request counts as that of a message that is READ.
    if (outbound->message_->has_attached() && !outbound->request_memory_) {
      counted.held = outbound->message_->held_bytes();
    }
    sum += counted.held;
  }
  return sum;
}

void Outbounds::EndForMemory() {
  port_.Fail(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("holds ", responses_.holds().granted,
                   " bytes of large messages, and hardly READs or releases any while others need memory"));
}

absl::Status Outbounds::QueueParts(const Header& header, Outbound& outbound, size_t prefix_bytes,
                                   size_t send_bytes_max, uint32_t ends_rkey) {
  OutgoingMessage& message = *outbound.message_;
  const absl::Span<const Segment> segments = message.segments();
  const Layout layout = Plan(segments, prefix_bytes, message.body_bytes(), send_bytes_max);

  // A client trusts the server that it has dialed. A server does not trust the clients that it calls.
  const bool is_response = header.kind == Kind::kResponse;
  const bool counts = (is_response || port_.accepted()) && layout.is_inline.count() != segments.size();
  const uint64_t granted_bytes = message.body_bytes() - layout.inline_bytes;
  ResponseAccount::Bytes counted;
  if (counts) {
    counted = {.granted = is_response ? granted_bytes : 0, .held = message.held_bytes()};
    if (absl::Status may = responses_.MayGrant(counted); !may.ok()) return may;
  }

  // A message of which nothing was granted can be sent on another connection, so this is looked at first.
  if (layout.is_inline.count() != segments.size() && !sends_.MakeRoom()) return port_.why_closed();
  absl::InlinedVector<TableEntry, kHeadroomSegments> table;
  size_t inline_entries = 0;  // Gather entries of the inline segments, besides that of the prefix.
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    TableEntry entry{0, 0, segment.length_bytes};
    if (layout.is_inline[i]) {
      // The first one is directly behind the prefix.
      if (segment.length_bytes != 0 && segment.address != message.body()) ++inline_entries;
    } else {
      ExpectInitialized(segment.address, segment.length_bytes);
      absl::StatusOr<fabric::Granted> granted = port_.queue_pair().Grant(
          {segment.address, segment.length_bytes, segment.lkey}, fabric::QueuePair::Access::kRead);
      if (!granted.ok()) {
        if (absl::IsFailedPrecondition(granted.status())) {
          // The connection is lost, and the cause will be reported. The caller made no mistake.
          port_.Fail(absl::StatusCode::kUnavailable,
                     absl::StrCat("cannot be granted memory: ", granted.status().message()));
          return port_.why_closed();
        }
        return NotGranted(segments.size() - layout.is_inline.count(), granted.status());
      }
      outbound.rkeys_.push_back(granted->rkey);
      entry.address = granted->address;
      entry.rkey = granted->rkey;
    }
    table.push_back(entry);
  }

  fabric::Sge sges[kSendSgeMax];
  size_t count = 0;
  // The prefix is directly before the first segment, so a message of one segment is one range of memory.
  const size_t sges_max = std::min(kSendSgeMax, port_.poller().fabric().sge_max());
  if (segments.size() <= kHeadroomSegments && inline_entries < sges_max) {
    uint8_t* const prefix = message.body() - prefix_bytes;
    WriteHeaderAndTable(header, table, prefix);
    sges[count++] = {prefix, static_cast<uint32_t>(prefix_bytes), message.head().lkey()};
    for (size_t i = 0; i < segments.size(); ++i) {
      const Segment& segment = segments[i];
      if (!layout.is_inline[i] || segment.length_bytes == 0) continue;
      if (count == 1 && segment.address == message.body() && sges[0].length == prefix_bytes) {
        sges[0].length += segment.length_bytes;
      } else {
        sges[count++] = {segment.address, segment.length_bytes, segment.lkey};
      }
    }
  } else {
    // More parts than one SEND can gather: copied together, they are less than one receive buffer.
    fabric::Sge& sge = sges[count++];
    absl::StatusOr<uint8_t*> buffer = message.AllocateHeader(prefix_bytes + layout.inline_bytes, &sge.lkey);
    if (!buffer.ok()) {
      return buffer.status();
    }
    sge.address = *buffer;
    sge.length = static_cast<uint32_t>(prefix_bytes + layout.inline_bytes);
    WriteHeaderAndTable(header, table, *buffer);
    const absl::Span<const uint8_t> envelope = message.envelope();
    uint8_t* out = *buffer + prefix_bytes;
    if (!envelope.empty()) memcpy(out - envelope.size(), envelope.data(), envelope.size());
    for (size_t i = 0; i < segments.size(); ++i) {
      if (!layout.is_inline[i] || segments[i].length_bytes == 0) continue;
      memcpy(out, segments[i].address, segments[i].length_bytes);
      out += segments[i].length_bytes;
    }
  }
  const absl::Span<const fabric::Sge> parts = absl::MakeConstSpan(sges, count);
  // One segment of medium size, a page or a few, is pushed if the fabric can push.
  const size_t granted = outbound.rkeys_.size();
  const bool ahead = granted == 1 && granted_bytes <= port_.queue_pair().push_bytes_max() &&
                     sends_.CanPushAhead(granted_bytes);
  if (!sends_.PushSend(parts, ahead ? nullptr : &outbound, !ahead && (granted != 0 || message.has_attached()),
                       ends_rkey)) {
    return port_.why_closed();
  }
  MessageCounts& sent = port_.poller().sent();
  if (counts) {
    outbound.counts_ = true;
    outbound.counted_ = counted;
    outbound.granted_bytes_ = granted_bytes;
    responses_.OnGranted(counted);
  }
  (granted == 0 ? sent.whole : ahead ? sent.pushed : sent.read).Add();
  port_.poller().sent_bytes().Add(outbound.message_->body_bytes());
  if (!ahead) return absl::OkStatus();
  size_t i = 0;
  while (layout.is_inline[i]) ++i;
  const fabric::Sge data = {segments[i].address, segments[i].length_bytes, segments[i].lkey};
  return sends_.PushAhead(data, table[i].address, table[i].rkey, &outbound) ? absl::OkStatus()
                                                                            : port_.why_closed();
}

}  // namespace hawser::transport
