// What one SEND carries: Parse(), the segment table and control operations.
#include "absl/status/status.h"
#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/transport/wire/wire.h"

namespace hawser::fuzz {
namespace {

using transport::ControlOp;
using transport::Header;
using transport::Kind;
using transport::ParsedMessage;
using transport::TableEntry;

bool IsControl(const Header& header) { return header.kind >= Kind::kControl; }

// The message that was understood, said again.
std::string Encode(const ParsedMessage& message) {
  std::string out(transport::kHeaderBytes, '\0');
  auto* const header = reinterpret_cast<uint8_t*>(&out[0]);
  transport::EncodeHeader(message.header, header);
  for (size_t i = 0; i < message.header.entries; ++i) {
    uint8_t entry[transport::kTableEntryBytes];
    if (IsControl(message.header)) {
      transport::EncodeControlOp(transport::DecodeControlOp(message.table + i * transport::kControlOpBytes),
                                 entry);
      out.append(reinterpret_cast<char*>(entry), transport::kControlOpBytes);
    } else {
      transport::EncodeTableEntry(
          transport::DecodeTableEntry(message.table + i * transport::kTableEntryBytes), entry);
      out.append(reinterpret_cast<char*>(entry), transport::kTableEntryBytes);
    }
  }
  const absl::string_view inline_segments(reinterpret_cast<const char*>(message.inline_segments),
                                          message.inline_bytes);
  return absl::StrCat(out, View(message.envelope), inline_segments);
}

void CheckBounds(const ParsedMessage& message, const ExactCopy& bytes) {
  const Header& header = message.header;
  if (IsControl(header)) {
    FUZZ_EXPECT(header.entries <= transport::kControlOpsMax && header.slot == transport::kControlSlot);
    FUZZ_EXPECT(header.kind != Kind::kReturn || (header.generation == 0 && header.credits == 0));
    return;
  }
  FUZZ_EXPECT(header.entries <= transport::kSegmentsMax, header.entries);
  FUZZ_EXPECT(message.envelope.size() <= transport::kEnvelopeMax, message.envelope.size());
  FUZZ_EXPECT(message.inline_segments + message.inline_bytes == bytes.data() + bytes.size());
  FUZZ_EXPECT(reinterpret_cast<uintptr_t>(message.inline_segments) % 8 == 0);
  uint64_t inline_bytes = 0, remote_bytes = 0;
  for (size_t i = 0; i < header.entries; ++i) {
    const TableEntry entry = transport::DecodeTableEntry(message.table + i * transport::kTableEntryBytes);
    FUZZ_EXPECT(entry.length_bytes % 8 == 0, entry.length_bytes);
    FUZZ_EXPECT(entry.rkey == 0 || entry.length_bytes != 0);  // What is READ has a byte at least.
    FUZZ_EXPECT(entry.rkey != 0 || entry.address == 0);
    (entry.rkey == 0 ? inline_bytes : remote_bytes) += entry.length_bytes;
  }
  FUZZ_EXPECT(inline_bytes == message.inline_bytes && remote_bytes == message.remote_bytes);
}

// The short way takes nothing else, and what it takes as Parse() does.
void CheckSmall(const ExactCopy& bytes, const ParsedMessage& parsed, const absl::Status& status) {
  ParsedMessage small;
  if (!transport::ParseSmall(bytes.data(), bytes.size(), small)) return;
  FUZZ_EXPECT(status.ok(), status.ToString());
  CheckBounds(small, bytes);
  FUZZ_EXPECT(Encode(small) == Encode(parsed) && small.table == parsed.table &&
              small.envelope.data() == parsed.envelope.data() && small.remote_bytes == parsed.remote_bytes);
}

// Whatever an honest sender may say is taken.
void CheckHonestMessage(Script script) {
  Header header;
  header.kind = static_cast<Kind>(1 + script.Below(5));
  if (header.kind != Kind::kReturn) {
    header.generation = script.U32();
    header.credits = script.U16();
  }
  std::string rest;
  uint8_t entry[transport::kTableEntryBytes];
  if (IsControl(header)) {
    header.slot = transport::kControlSlot;
    header.entries = static_cast<uint16_t>(
        header.kind == Kind::kControl ? script.Below(transport::kControlOpsMax + 1) : 0);
    for (size_t i = 0; i < header.entries; ++i) {
      const ControlOp op = {static_cast<ControlOp::Code>(1 + script.Below(4)), script.U16(), script.U32()};
      transport::EncodeControlOp(op, entry);
      rest.append(reinterpret_cast<char*>(entry), transport::kControlOpBytes);
    }
  } else {
    header.slot = script.U16();
    header.envelope_words = static_cast<uint8_t>(script.Below(transport::kEnvelopeMax / 8 + 1));
    header.timeout_us = header.kind == Kind::kRequest ? script.U32() : 0;
    header.entries = static_cast<uint16_t>(script.Below(transport::kSegmentsMax + 1));
    std::string body;
    for (size_t i = 0; i < header.entries; ++i) {
      TableEntry segment;
      segment.length_bytes = script.Byte() * 8u;
      if (segment.length_bytes != 0 && script.Below(2) == 0) {
        segment = {script.U64(), script.U32() | 1, segment.length_bytes};
      } else {
        body.append(segment.length_bytes, 'b');
      }
      transport::EncodeTableEntry(segment, entry);
      rest.append(reinterpret_cast<char*>(entry), transport::kTableEntryBytes);
    }
    rest.append(header.envelope_words * 8, 'e');
    rest.append(body);
  }
  std::string bytes(transport::kHeaderBytes, '\0');
  transport::EncodeHeader(header, reinterpret_cast<uint8_t*>(&bytes[0]));
  bytes += rest;
  const ExactCopy copy(bytes);
  ParsedMessage parsed;
  const absl::Status status = transport::Parse(copy.data(), copy.size(), parsed);
  FUZZ_EXPECT(status.ok(), status.ToString());
  CheckBounds(parsed, copy);
  FUZZ_EXPECT(Encode(parsed) == bytes);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  std::vector<std::pair<std::string, std::string>> seeds;
  const auto add = [&](const std::string& name, Header header, const std::vector<TableEntry>& table,
                       const std::string& rest) {
    std::string bytes(transport::kHeaderBytes + table.size() * transport::kTableEntryBytes, '\0');
    auto* out = reinterpret_cast<uint8_t*>(&bytes[0]);
    header.entries = static_cast<uint16_t>(table.size());
    transport::EncodeHeader(header, out);
    for (size_t i = 0; i < table.size(); ++i) {
      transport::EncodeTableEntry(table[i], out + transport::kHeaderBytes + i * transport::kTableEntryBytes);
    }
    seeds.emplace_back(name, bytes + rest);
  };
  add("request", {Kind::kRequest, 2, 3, 7, 5000, 0}, {{0, 0, 24}}, std::string(16 + 24, 'x'));
  add("empty_response", {Kind::kResponse, 0, 0, 1, 0, 0}, {}, "");
  add("granted", {Kind::kResponse, 1, 31, 9, 0, 0}, {{0, 0, 16}, {0x7f0000001000, 77, 1 << 20}},
      std::string(8 + 16, 'y'));
  add("three_gib", {Kind::kRequest, 0, 0, 1, transport::kNoTimeout, 0},
      {{0x1000, 1, 0xfffffff8}, {0x1000, 2, 0xfffffff8}, {0x1000, 3, 0xfffffff8}}, "");
  add("credits", {Kind::kResponse, 0, 2, 5, 0, 0, 32}, {{0, 0, 8}}, "12345678");
  add("return", {Kind::kReturn, 0, transport::kControlSlot, 0, 0, 0, 0}, {}, "");
  add("control_ack", {Kind::kControlAck, 0, transport::kControlSlot, 4, 0, 0}, {}, "");
  std::string control(transport::kHeaderBytes + 2 * transport::kControlOpBytes, '\0');
  auto* const out = reinterpret_cast<uint8_t*>(&control[0]);
  transport::EncodeHeader({Kind::kControl, 0, transport::kControlSlot, 1, 0, 2}, out);
  transport::EncodeControlOp({ControlOp::Code::kCancel, 3, 7}, out + transport::kHeaderBytes);
  transport::EncodeControlOp({ControlOp::Code::kPing, 0, 0},
                             out + transport::kHeaderBytes + transport::kControlOpBytes);
  seeds.emplace_back("control", control);
  return seeds;
}

}  // namespace hawser::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hawser::fuzz;
  const ExactCopy bytes({reinterpret_cast<const char*>(data), size});
  hawser::transport::ParsedMessage parsed;
  const absl::Status status = hawser::transport::Parse(bytes.data(), bytes.size(), parsed);
  if (status.ok()) {
    CheckBounds(parsed, bytes);
    // Nothing that was accepted is ignored.
    FUZZ_EXPECT(Encode(parsed) == bytes.view(), "a field was accepted and dropped");
  } else {
    FUZZ_EXPECT(absl::IsDataLoss(status), status.ToString());
  }
  CheckSmall(bytes, parsed, status);
  CheckHonestMessage(Script(data, size));
  return 0;
}
