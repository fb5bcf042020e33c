#include "hawser/transport/message_sender.h"

#include <string.h>

#include <bitset>

#include "absl/strings/str_cat.h"
#include "hawser/transport/port.h"
#include "hawser/transport/send_queue.h"

namespace hawser::transport {
namespace {

using Segment = OutgoingMessage::Segment;
using IsInline = std::bitset<kSegmentsMax>;

// Of a message that does not fit one SEND, segments up to this size still go along: a READ costs a round
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

// A fabric promises as many grants as the send queue has places. For more than those there may never be
// enough, so waiting for other exchanges to end would be in vain.
absl::Status NotGranted(Port& port, const SendQueue& sends, size_t remote_segments, const absl::Status& why) {
  if (remote_segments <= sends.depth()) return why;
  return absl::InvalidArgumentError(
      absl::StrCat("the message has ", remote_segments, " large segments, a connection of ",
                   port.agreed().slots, " slots can be sure to grant ", sends.depth(),
                   " at once; attach fewer payloads, or raise ConnectionOptions::slots: ", why.message()));
}

// All that precedes the envelope.
void WriteHeaderAndTable(const Header& header, absl::Span<const TableEntry> table, uint8_t* out) {
  EncodeHeader(header, out);
  out += kHeaderBytes;
  for (const TableEntry& entry : table) {
    EncodeTableEntry(entry, out);
    out += kTableEntryBytes;
  }
}

// The usual message: its one segment stands behind its envelope, and goes along.
absl::Status SendWhole(Port& port, SendQueue& sends, const Header& header, const OutgoingMessage& message,
                       size_t prefix_bytes) {
  const Segment& segment = message.segments().front();
  uint8_t* const prefix = message.body() - prefix_bytes;
  const TableEntry entry{.length_bytes = segment.length_bytes};
  WriteHeaderAndTable(header, {&entry, 1}, prefix);
  const fabric::Sge sge{prefix, static_cast<uint32_t>(prefix_bytes) + segment.length_bytes, segment.lkey};
  if (!sends.PushSend(sge, message.has_attached())) return port.why_closed();
  return absl::OkStatus();
}

}  // namespace

absl::Status SendMessage(Port& port, SendQueue& sends, Revocations& revocations, Header& header,
                         OutgoingMessage& message, Grants& grants) {
  const absl::Span<const Segment> segments = message.Finish();
  if (!message.status().ok()) return message.status();
  if (segments.size() > kSegmentsMax) {
    return absl::InvalidArgumentError(absl::StrCat("the message has ", segments.size(), " segments, at most ",
                                                   kSegmentsMax, " can be sent; attach fewer payloads"));
  }
  const uint64_t body_bytes = message.body_bytes();
  if (const uint64_t max = port.options().message_bytes_max; body_bytes > max) {
    return absl::InvalidArgumentError(
        absl::StrCat("the message has ", body_bytes, " bytes, ",
                     header.kind == Kind::kRequest ? "this side" : "the side that answers", " sends at most ",
                     max, " (its own ConnectionOptions::message_bytes_max)"));
  }
  if (body_bytes > port.peer_message_bytes_max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the message has ", body_bytes, " bytes, the peer ", port.peer(), " takes at most ",
                     port.peer_message_bytes_max(), " (ConnectionOptions::message_bytes_max there)"));
  }
  const size_t send_bytes_max = port.agreed().receive_buffer_bytes;
  const size_t prefix_bytes = PrefixBytes(segments.size(), message.envelope().size());
  if (prefix_bytes > send_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat("the table of ", segments.size(),
                                                   " segments does not fit the agreed ", "receive buffer of ",
                                                   send_bytes_max, " bytes"));
  }
  header.envelope_words = static_cast<uint8_t>(message.envelope().size() / 8);
  header.entries = static_cast<uint16_t>(segments.size());
  if (segments.size() == 1 && segments[0].address == message.body() &&
      prefix_bytes + body_bytes <= send_bytes_max) {
    return SendWhole(port, sends, header, message, prefix_bytes);
  }
  const Layout layout = Plan(segments, prefix_bytes, body_bytes, send_bytes_max);

  absl::InlinedVector<TableEntry, kHeadroomSegments> table;
  size_t inline_parts = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    TableEntry entry{0, 0, segment.length_bytes};
    if (layout.is_inline[i]) {
      if (segment.length_bytes != 0) ++inline_parts;
    } else {
      absl::StatusOr<uint32_t> rkey = port.queue_pair().Grant(
          {segment.address, segment.length_bytes, segment.lkey}, fabric::QueuePair::Access::kRead);
      if (!rkey.ok()) {
        revocations.TakeBack(grants);
        if (absl::IsFailedPrecondition(rkey.status())) {
          // The connection is lost, and we shall be told why. The caller has made no mistake.
          port.Fail(absl::StatusCode::kUnavailable,
                    absl::StrCat("cannot be granted memory: ", rkey.status().message()));
          return port.why_closed();
        }
        return NotGranted(port, sends, segments.size() - layout.is_inline.count(), rkey.status());
      }
      grants.Add(*rkey);
      entry.address = reinterpret_cast<uint64_t>(segment.address);
      entry.rkey = *rkey;
    }
    table.push_back(entry);
  }

  fabric::Sge sges[kSendSgeMax];
  size_t count = 0;
  // The prefix stands right before the first segment, so one segment of one message is one range of memory.
  if (segments.size() <= kHeadroomSegments && inline_parts < kSendSgeMax) {
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
    // Many small parts: copied together, they are less than one receive buffer.
    fabric::Sge& sge = sges[count++];
    absl::StatusOr<uint8_t*> buffer = message.AllocateHeader(prefix_bytes + layout.inline_bytes, &sge.lkey);
    if (!buffer.ok()) {
      revocations.TakeBack(grants);
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
  if (!sends.PushSend(absl::MakeConstSpan(sges, count), !grants.empty() || message.has_attached())) {
    revocations.TakeBack(grants);
    return port.why_closed();
  }
  return absl::OkStatus();
}

}  // namespace hawser::transport
