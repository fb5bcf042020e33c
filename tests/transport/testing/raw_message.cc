#include "hawser/tests/transport/testing/raw_message.h"

namespace hawser::transport {
namespace {

RawMessage Raw(Kind kind, uint16_t slot, uint32_t generation, size_t body_bytes) {
  RawMessage message;
  message.header.kind = kind;
  message.header.slot = slot;
  message.header.generation = generation;
  if (kind == Kind::kRequest) message.header.timeout_us = kNoTimeout;
  if (body_bytes != 0) {
    message.header.entries = 1;
    message.table = {{0, 0, static_cast<uint32_t>(body_bytes)}};
    message.inline_bytes.assign(body_bytes, '\0');
  }
  return message;
}

}  // namespace

std::string RawMessage::Encode() const {
  std::string bytes(PrefixBytes(table.size(), 0), '\0');
  auto* const out = reinterpret_cast<uint8_t*>(&bytes[0]);
  EncodeHeader(header, out);
  for (size_t i = 0; i < table.size(); ++i) {
    EncodeTableEntry(table[i], out + kHeaderBytes + i * kTableEntryBytes);
  }
  return bytes + envelope + inline_bytes;
}

RawMessage RawRequest(uint16_t slot, uint32_t generation, size_t body_bytes) {
  return Raw(Kind::kRequest, slot, generation, body_bytes);
}

RawMessage RawResponse(uint16_t slot, uint32_t generation, size_t body_bytes) {
  return Raw(Kind::kResponse, slot, generation, body_bytes);
}

std::string RawControl(uint32_t generation, const std::vector<ControlOp>& ops) {
  std::string bytes(kHeaderBytes + ops.size() * kControlOpBytes, '\0');
  auto* const out = reinterpret_cast<uint8_t*>(&bytes[0]);
  Header header;
  header.kind = Kind::kControl;
  header.slot = kControlSlot;
  header.generation = generation;
  header.entries = static_cast<uint16_t>(ops.size());
  EncodeHeader(header, out);
  for (size_t i = 0; i < ops.size(); ++i) EncodeControlOp(ops[i], out + kHeaderBytes + i * kControlOpBytes);
  return bytes;
}

std::string RawControlAck(uint32_t generation) {
  RawMessage message;
  message.header.kind = Kind::kControlAck;
  message.header.slot = kControlSlot;
  message.header.generation = generation;
  return message.Encode();
}

}  // namespace hawser::transport
