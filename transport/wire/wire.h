#ifndef HAWSER_TRANSPORT_WIRE_WIRE_H_
#define HAWSER_TRANSPORT_WIRE_WIRE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hawser/base/endian.h"
#include "hawser/transport/wire/message.h"

// What one SEND carries, little endian; rpc/PROTOCOL.md has the field tables and an example in bytes.
//
//   header (16)  |  segment table (16 each)  |  envelope  |  the segments that are inline, in their order
//
// Every part is a multiple of 8 bytes, so what is read in place is aligned as Cap'n Proto wants it.
namespace hawser::transport {

enum class Kind : uint8_t {
  kRequest = 1,
  kResponse = 2,
  kControl = 3,     // A control request; in place of the segment table: ControlOps.
  kControlAck = 4,  // Its response: the header alone.
  kReturn = 5,  // Gives one credit back, with the receive that it uses up: the header alone. See credits.h.
};

inline constexpr size_t kHeaderBytes = 16;
inline constexpr size_t kTableEntryBytes = 16;

// The slot that messages about no exchange name: control messages and returns.
inline constexpr uint16_t kControlSlot = 0xffff;

struct Header {
  Kind kind = Kind::kRequest;
  uint8_t envelope_words = 0;  // In words of 8 bytes; at most kEnvelopeMax / 8.
  uint16_t slot = 0;
  uint32_t generation = 0;
  uint32_t timeout_us = 0;  // kRequest: how long the caller waits; kNoTimeout: for ever. Otherwise 0.
  // How many the segment table has, at most kSegmentsMax; kControl: how many ops, at most kControlOpsMax.
  uint16_t entries = 0;
  // See credits.h; kReturn: 0. Parse() does not know which values are right on a connection.
  uint16_t credits = 0;
};
inline constexpr uint32_t kNoTimeout = 0xffffffff;

// One segment of a message. rkey 0: inline. Otherwise the receiver READs it from the sender's memory.
struct TableEntry {
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t length_bytes = 0;  // A multiple of 8.
};

struct ControlOp {
  enum class Code : uint8_t {
    kPing = 1,       // Nothing but the answer is wanted.
    kCancel = 2,     // To the responder: nothing waits for the answer to this exchange.
    kRelease = 3,    // To the responder: the large response of this exchange has been READ.
    kGoingAway = 4,  // To the requester: send no new requests.
  };
  Code code = Code::kPing;
  uint16_t slot = 0;
  uint32_t generation = 0;
};
inline constexpr size_t kControlOpBytes = 8;
inline constexpr size_t kControlOpsMax = 32;
inline constexpr size_t kControlMessageMax = kHeaderBytes + kControlOpsMax * kControlOpBytes;

// Where the parts of a received SEND lie; into its buffer.
struct ParsedMessage {
  Header header;
  const uint8_t* table = nullptr;
  absl::Span<const uint8_t> envelope;
  const uint8_t* inline_segments = nullptr;
  uint64_t inline_bytes = 0;
  uint64_t remote_bytes = 0;
};

inline size_t PrefixBytes(size_t entries, size_t envelope_bytes) {
  return kHeaderBytes + entries * kTableEntryBytes + envelope_bytes;
}

inline void EncodeHeader(const Header& header, uint8_t* out) {
  out[0] = static_cast<uint8_t>(header.kind);
  out[1] = header.envelope_words;
  StoreLittle16(out + 2, header.slot);
  StoreLittle32(out + 4, header.generation);
  StoreLittle32(out + 8, header.timeout_us);
  StoreLittle16(out + 12, header.entries);
  StoreLittle16(out + 14, header.credits);
}

inline void EncodeTableEntry(const TableEntry& entry, uint8_t* out) {
  StoreLittle64(out, entry.address);
  StoreLittle32(out + 8, entry.rkey);
  StoreLittle32(out + 12, entry.length_bytes);
}

inline TableEntry DecodeTableEntry(const uint8_t* in) {
  return {LoadLittle64(in), LoadLittle32(in + 8), LoadLittle32(in + 12)};
}

// Everything before the envelope of a message of one inline segment.
inline void EncodeUsualPrefix(const Header& header, uint32_t body_bytes, uint8_t* out) {
  EncodeHeader(header, out);
  EncodeTableEntry({.length_bytes = body_bytes}, out + kHeaderBytes);
}

void EncodeControlOp(const ControlOp& op, uint8_t* out);
// The caller checks the code.
ControlOp DecodeControlOp(const uint8_t* in);

// Checks everything that can be checked of `length_bytes` received at `data` (aligned to 8) without knowing
// the connection, and fills `message`, which is new. DataLoss: what is wrong, with the values.
absl::Status Parse(const uint8_t* data, size_t length_bytes, ParsedMessage& message);

// The same for what most messages are: a request or a response of one segment, which came along. False: it is
// another one, or malformed, and `message` is as new.
inline bool ParseSmall(const uint8_t* data, size_t length_bytes, ParsedMessage& message) {
  if (length_bytes < kHeaderBytes + kTableEntryBytes) return false;
  const uint8_t kind = data[0];
  const size_t envelope_bytes = size_t{data[1]} * 8;
  const uint32_t timeout_us = LoadLittle32(data + 8);
  const uint8_t* const table = data + kHeaderBytes;
  const uint32_t inline_bytes = LoadLittle32(table + 12);
  const bool is_response = kind == static_cast<uint8_t>(Kind::kResponse);
  if ((kind != static_cast<uint8_t>(Kind::kRequest) && (!is_response || timeout_us != 0)) ||
      LoadLittle16(data + 12) != 1 || LoadLittle64(table) != 0 || LoadLittle32(table + 8) != 0 ||
      inline_bytes % 8 != 0 || envelope_bytes > kEnvelopeMax ||
      length_bytes != kHeaderBytes + kTableEntryBytes + envelope_bytes + inline_bytes) {
    return false;
  }
  message.header = {static_cast<Kind>(kind), data[1],    LoadLittle16(data + 2),
                    LoadLittle32(data + 4),  timeout_us, 1,
                    LoadLittle16(data + 14)};
  message.table = table;
  message.envelope = {table + kTableEntryBytes, envelope_bytes};
  message.inline_segments = table + kTableEntryBytes + envelope_bytes;
  message.inline_bytes = inline_bytes;
  return true;
}

// Gives `incoming` the segments of `message`, all of which came along.
inline void AddInlineSegments(const ParsedMessage& message, IncomingMessage& incoming) {
  const uint8_t* at = message.inline_segments;
  for (size_t i = 0; i < message.header.entries; ++i) {
    const uint32_t length_bytes = DecodeTableEntry(message.table + i * kTableEntryBytes).length_bytes;
    incoming.AddSegment(at, length_bytes);
    at += length_bytes;
  }
}

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_WIRE_WIRE_H_
