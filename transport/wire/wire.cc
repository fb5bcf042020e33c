#include "hawser/transport/wire/wire.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/endian.h"

namespace hawser::transport {
namespace {

absl::Status Malformed(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("sent a malformed message: ", what));
}

}  // namespace

void EncodeControlOp(const ControlOp& op, uint8_t* out) {
  out[0] = static_cast<uint8_t>(op.code);
  out[1] = 0;
  StoreLittle16(out + 2, op.slot);
  StoreLittle32(out + 4, op.generation);
}

ControlOp DecodeControlOp(const uint8_t* in) {
  return {static_cast<ControlOp::Code>(in[0]), LoadLittle16(in + 2), LoadLittle32(in + 4)};
}

absl::Status Parse(const uint8_t* data, size_t length_bytes, ParsedMessage& message) {
  if (length_bytes < kHeaderBytes) {
    return Malformed(absl::StrCat(length_bytes, " bytes, shorter than the header of ", kHeaderBytes));
  }
  Header& header = message.header;
  header.kind = static_cast<Kind>(data[0]);
  header.envelope_words = data[1];
  header.slot = LoadLittle16(data + 2);
  header.generation = LoadLittle32(data + 4);
  header.timeout_us = LoadLittle32(data + 8);
  header.entries = LoadLittle16(data + 12);
  header.credits = LoadLittle16(data + 14);
  if (data[0] < 1 || data[0] > 5) return Malformed(absl::StrCat("kind ", data[0]));

  if (header.kind == Kind::kReturn) {
    if (header.slot != kControlSlot || header.envelope_words != 0 || header.generation != 0 ||
        header.timeout_us != 0 || header.entries != 0 || header.credits != 0 ||
        length_bytes != kHeaderBytes) {
      return Malformed(absl::StrCat("a return of ", length_bytes, " bytes in slot ", header.slot,
                                    " with more than its kind"));
    }
    return absl::OkStatus();
  }

  if (header.kind == Kind::kControl || header.kind == Kind::kControlAck) {
    const size_t entries = header.kind == Kind::kControl ? header.entries : 0;
    if (header.slot != kControlSlot || header.envelope_words != 0 || header.timeout_us != 0 ||
        header.entries != entries || entries > kControlOpsMax ||
        length_bytes != kHeaderBytes + entries * kControlOpBytes) {
      return Malformed(absl::StrCat("control message of ", length_bytes, " bytes with ", header.entries,
                                    " operations in slot ", header.slot));
    }
    message.table = data + kHeaderBytes;
    for (size_t i = 0; i < entries; ++i) {
      const uint8_t reserved_of_op = message.table[i * kControlOpBytes + 1];
      if (reserved_of_op != 0) {
        return Malformed(
            absl::StrCat("control operation ", i, " with reserved bits ", absl::Hex(reserved_of_op)));
      }
    }
    return absl::OkStatus();
  }

  const size_t envelope_bytes = size_t{header.envelope_words} * 8;
  if (envelope_bytes > kEnvelopeMax) return Malformed(absl::StrCat("envelope of ", envelope_bytes, " bytes"));
  if (header.entries > kSegmentsMax) return Malformed(absl::StrCat(header.entries, " segments"));
  if (header.kind == Kind::kResponse && header.timeout_us != 0) return Malformed("a response with a timeout");
  const size_t prefix_bytes = PrefixBytes(header.entries, envelope_bytes);
  if (length_bytes < prefix_bytes) {
    return Malformed(absl::StrCat(length_bytes, " bytes, but its header announces ", prefix_bytes));
  }
  message.table = data + kHeaderBytes;
  for (size_t i = 0; i < header.entries; ++i) {
    const TableEntry entry = DecodeTableEntry(message.table + i * kTableEntryBytes);
    if (entry.length_bytes % 8 != 0)
      return Malformed(absl::StrCat("segment of ", entry.length_bytes, " bytes"));
    if (entry.rkey == 0 ? entry.address != 0 : entry.length_bytes == 0) {
      // Without the address: the text may reach others than the peer.
      return Malformed(absl::StrCat("segment ", i, " with ", entry.address != 0 ? "an" : "no",
                                    " address, rkey ", entry.rkey, " and length ", entry.length_bytes));
    }
    // At most kSegmentsMax times 2^32: no overflow.
    (entry.rkey == 0 ? message.inline_bytes : message.remote_bytes) += entry.length_bytes;
  }
  if (length_bytes - prefix_bytes != message.inline_bytes) {
    return Malformed(absl::StrCat(length_bytes - prefix_bytes,
                                  " bytes of inline segments, but its table announces ",
                                  message.inline_bytes));
  }
  message.envelope = {data + prefix_bytes - envelope_bytes, envelope_bytes};
  message.inline_segments = data + prefix_bytes;
  return absl::OkStatus();
}

}  // namespace hawser::transport
