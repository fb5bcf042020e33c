#include "hawser/tests/fuzz/rpc_words.h"

#include <capnp/message.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/base/endian.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/status.capnp.h"
#include "hawser/rpc/wire/envelope.h"
#include "hawser/tests/fuzz/fuzz.h"
#include "tests/sim/ledger.rpc.h"

namespace hawser::fuzz {
namespace {

namespace ledger = sim::ledger;

constexpr int kSendsOfIdempotentMax = 3;

template <typename Bytes>
std::string ToString(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::string RequestFor(uint64_t interface_id, uint16_t ordinal) {
  return ToString(internal::Encode(internal::RequestEnvelope{interface_id, ordinal}));
}

std::string RequestFor(const Method& method) { return RequestFor(method.interface_id, method.ordinal); }

// Whatever the script says, in words of 8 bytes, fewer than `bound`.
std::string AnyWords(Script& script, uint32_t bound) {
  const size_t bytes = script.Below(bound) * 8;
  std::string words = std::string(script.Bytes(bytes));
  words.resize(bytes);
  return words;
}

std::string FirstSegment(capnp::MessageBuilder& builder) {
  const auto bytes = builder.getSegmentsForOutput()[0].asBytes();
  return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()};
}

std::string EntryOf(uint64_t id, Script& script) {
  constexpr uint32_t kAnswers[] = {0, 8, 100, 900, 5'000, 70'000, 600'000, UINT32_MAX};
  capnp::MallocMessageBuilder builder;
  const auto entry = builder.initRoot<ledger::Entry>();
  auto to = entry;
  to.setId(id);
  to.setAnswerBytes(kAnswers[script.Below(8)]);
  to.initBytes(script.Below(80) * 8);
  return FirstSegment(builder);
}

std::string StatusOf(Script& script) {
  capnp::MallocMessageBuilder builder;
  auto status = builder.initRoot<internal::wire::Status>();
  status.initMessage(script.Byte());
  auto details = status.initDetails(script.Below(4));
  for (auto detail : details) {
    detail.setTypeUrl("a");
    detail.initValue(script.Byte() % 64);
  }
  return FirstSegment(builder);
}

// An Entry whose bytes are where `pointer` says.
std::string EntryWith(uint64_t id, uint64_t pointer) {
  std::string words(4 * 8, '\0');
  auto* const out = reinterpret_cast<uint8_t*>(words.data());
  StoreLittle64(out, uint64_t{1} << 48 | uint64_t{2} << 32);  // A struct of two words and a pointer, here.
  StoreLittle64(out + 8, id);
  StoreLittle64(out + 24, pointer);
  return words;
}

}  // namespace

std::string RpcWords::Envelope(Script& script, bool request) {
  const uint8_t how = script.Byte() % 8;
  if (request) {
    if (how < 2) return RequestFor(ledger::LedgerStub::kAdd);
    if (how == 2) return RequestFor(ledger::LedgerStub::kLook);
    if (how == 3) return RequestFor(ledger::LedgerStub::kWatch);
    if (how == 4) return RequestFor(ledger::WatcherStub::kChanged);
    if (how == 5) return RequestFor(ledger::LedgerStub::kAdd.interface_id, script.Byte());
    if (how == 6) {
      internal::RequestEnvelope envelope = {script.U64(), 0, static_cast<uint16_t>(script.Below(4))};
      if (envelope.metadata_segment != 0) envelope.interface_id = ledger::LedgerStub::kAdd.interface_id;
      return ToString(internal::Encode(envelope));
    }
    return AnyWords(script, 5);
  }
  if (how < 4) return ToString(internal::Encode(internal::ResponseEnvelope{}));
  said_something_odd_ = true;
  if (how < 6) {
    const auto code = static_cast<absl::StatusCode>(1 + script.Below(16));
    said_not_run_ = true;
    const auto metadata_segment = static_cast<uint16_t>(how == 5 ? 0 : script.Below(4));
    return ToString(internal::Encode(internal::ResponseEnvelope{code, how == 5, metadata_segment}));
  }
  const std::string words = how == 6 ? AnyWords(script, 2) : AnyWords(script, 5);
  said_not_run_ |= words.size() == 8 && (words[0] != 0 || words[1] == 1);
  return words;
}

std::string RpcWords::Body(Script& script, bool request) {
  const uint8_t how = script.Byte();
  const uint64_t id = how / 8;
  if (how % 8 < 3) return EntryOf(id, script);
  said_something_odd_ |= !request;
  switch (how % 8) {
    case 3:
      return StatusOf(script);
    case 4:
      return "";
    case 5:  // A far pointer to what may be granted, if anything is.
      return EntryWith(id, uint64_t{1} << 32 | 1 << 3 | 2);
    case 6:  // A list of up to 2^29 bytes, or of nothing, which takes no room.
      return EntryWith(id, uint64_t{script.U32()} << 35 | uint64_t{script.Below(2) * 2} << 32 | 1);
    default:
      return AnyWords(script, 64);
  }
}

void RpcWords::Hear(const transport::ParsedMessage& message) {
  if (message.header.kind == transport::Kind::kResponse) {
    const auto envelope = internal::DecodeResponseEnvelope(message.envelope);
    FUZZ_EXPECT(envelope.ok(), envelope.status().ToString());
    return;
  }
  const auto envelope = internal::DecodeRequestEnvelope(message.envelope);
  FUZZ_EXPECT(envelope.ok(), envelope.status().ToString());
  const transport::TableEntry first = transport::DecodeTableEntry(message.table);
  if (message.header.entries == 0 || first.rkey != 0 || first.length_bytes < 16) return;
  const uint64_t id = LoadLittle64(message.inline_segments + 8);
  const bool idempotent = envelope->interface_id == ledger::LedgerStub::kLook.interface_id &&
                          envelope->ordinal == ledger::LedgerStub::kLook.ordinal;
  const int times = ++heard_[id];
  FUZZ_EXPECT(times <= (idempotent ? kSendsOfIdempotentMax : 1), "call ", id, " was sent ", times, " times");
}

int RpcWords::heard(uint64_t id) const {
  const auto found = heard_.find(id);
  return found == heard_.end() ? 0 : found->second;
}

}  // namespace hawser::fuzz
