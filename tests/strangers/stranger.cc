#include "hawser/tests/strangers/stranger.h"

#include <algorithm>
#include <string>

#include "hawser/base/endian.h"
#include "hawser/tests/transport/testing/raw_message.h"
#include "hawser/transport/fabric/tcp/greeting.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::strangers {
namespace {

constexpr int64_t kTickNs = 100 * kMs;
constexpr uint32_t kReadDepth = 16;
constexpr size_t kRequestEnvelopeBytes = 16;

std::string Hello() {
  transport::Handshake hello;
  hello.slots = 32;
  hello.receive_buffer_bytes = 4096;
  hello.message_bytes_max = uint64_t{512} << 20;
  return fabric::EncodeGreeting(fabric::GreetingKind::kConnect, kReadDepth, transport::Encode(hello));
}

}  // namespace

void Stranger::Start(const Target& target, const in_addr& from, int64_t first_dial_ns) {
  target_ = target;
  from_ = from;
  next_ns_ = first_dial_ns;
  if (target.tls != nullptr) line_.SpeakTls(target.tls, record_bytes());
}

void Stranger::OnTime(int64_t now_ns) {
  now_ns_ = now_ns;
  if (now_ns < next_ns_) return;
  if (line_.open()) {
    next_ns_ = now_ns + kTickNs;
    return OnTick();
  }
  ++counts_.dials;
  dialed_ns_ = now_ns;
  greeted_ = silent_ = false;
  control_generation_ = 0;
  generations_ = {};
  next_ns_ = now_ns + (line_.Dial(target_.address, from_) ? kTickNs : BackInNs());
}

void Stranger::Leave(int64_t back_in_ns, bool abortive) {
  line_.Close(abortive);
  next_ns_ = now_ns_ + back_in_ns;
}

void Stranger::OnEnd() {
  if (!greeted_) ++counts_.rejected;
  next_ns_ = now_ns_ + BackInNs();
}

void Stranger::Greet() { line_.SendBytes(Hello()); }

void Stranger::OnGreeting(bool accepted) {
  if (!accepted) {
    ++counts_.rejected;
    greeted_ = true;
    return Leave(BackInNs());
  }
  greeted_ = true;
  ++counts_.accepted;
  OnAccepted();
}

void Stranger::OnMessage(const transport::Header& header, absl::Span<const transport::TableEntry> table) {
  switch (header.kind) {
    case transport::Kind::kResponse:
      if (header.slot < kSlots) OnResponse(header.slot, table);
      break;
    case transport::Kind::kControl:
      if (!silent_) line_.SendMessage(transport::RawControlAck(header.generation));
      break;
    case transport::Kind::kControlAck:
      OnControlAnswer();
      break;
    case transport::Kind::kRequest:
    case transport::Kind::kReturn:
      break;
  }
}

void Stranger::SendRequest(uint16_t slot, uint16_t method, absl::Span<const transport::TableEntry> table,
                           absl::string_view body) {
  transport::RawMessage message = transport::RawRequest(slot, ++generations_[slot]);
  message.header.entries = static_cast<uint16_t>(table.size());
  message.header.envelope_words = kRequestEnvelopeBytes / 8;
  message.table.assign(table.begin(), table.end());
  message.envelope.assign(kRequestEnvelopeBytes, '\0');
  auto* const envelope = reinterpret_cast<uint8_t*>(message.envelope.data());
  StoreLittle64(envelope, target_.interface_id);
  StoreLittle16(envelope + 8, method);
  message.inline_bytes.assign(body.data(), body.size());
  line_.SendMessage(message.Encode());
}

// The body is one granted segment of zeros, which Cap'n Proto reads as a null root.
void Stranger::SendPut(uint16_t slot, uint32_t granted_bytes) {
  SendRequest(slot, target_.put, {{/*address=*/4096, /*rkey=*/1u + slot, granted_bytes}}, "");
}

// The root is one word of data that holds the number.
void Stranger::SendGet(uint16_t slot, uint32_t bytes) {
  std::string body(16, '\0');
  body[4] = 1;
  StoreLittle32(reinterpret_cast<uint8_t*>(&body[8]), bytes);
  SendRequest(slot, target_.get, {{0, 0, static_cast<uint32_t>(body.size())}}, body);
}

transport::ControlOp Stranger::Cancelling(uint16_t slot) const {
  return {transport::ControlOp::Code::kCancel, slot, generations_[slot]};
}

void Stranger::SendControl(const std::vector<transport::ControlOp>& ops) {
  line_.SendMessage(transport::RawControl(++control_generation_, ops));
}

}  // namespace hawser::strangers
