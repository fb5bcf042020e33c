#include "hawser/tests/fuzz/liar_line.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/base/endian.h"

namespace hawser::fuzz {

using transport::Header;
using transport::Kind;
using transport::TableEntry;

// Kept from one run to the next, because getting it anew would take most of a run's time. What an earlier run
// left in it has no effect.
LiarMemory::LiarMemory(fabric::Fabric& fabric)
    : memory_([] {
        static std::vector<uint8_t>* const memory =
            new std::vector<uint8_t>(kLinesMax * kLineBytes + kReadableBytes + kSinkBytes);
        constexpr uint64_t kListOf40Bytes = uint64_t{40} << 35 | uint64_t{2} << 32 | 1;
        for (uint8_t* at = memory->data() + kLinesMax * kLineBytes; at < &memory->back() - kSinkBytes;
             at += 64) {
          StoreLittle64(at + 8, kListOf40Bytes);
        }
        return memory->data();
      }()),
      region_(*fabric.Register(memory_, kLinesMax * kLineBytes + kReadableBytes + kSinkBytes)) {}

LiarLine::LiarLine(fabric::Fabric& fabric, fabric::CompletionQueue& completion_queue,
                   const LiarMemory& memory, LiarWords* words, size_t its_index, bool it_asks)
    : index(its_index), asks(it_asks), memory_(memory), words_(words) {
  fabric::QueuePairOptions options;
  options.send_depth = LiarMemory::kSends;
  options.receive_depth = LiarMemory::kReceives;
  fabric::ConnectionHandler& handler = *this;
  queue_pair = *fabric.CreateQueuePair(completion_queue, options, handler);
  for (size_t i = 0; i < LiarMemory::kReceives; ++i) PostReceive(i);
}

void LiarLine::OnEstablished(absl::string_view private_data) {
  established = true;
  if (private_data.empty()) return;
  const absl::StatusOr<transport::Handshake> answer = transport::DecodeHandshake(private_data);
  FUZZ_EXPECT(answer.ok(), "the victim's handshake: ", answer.status().ToString());
  slots = std::min(slots, answer->slots);
  with_credits &= (answer->features & transport::kFeatureCredits) != 0;
  session = answer->session;
}

void LiarLine::OnConnectFailed(const absl::Status&, absl::string_view private_data) {
  ended = true;
  if (private_data.empty()) return;
  // It says why.
  FUZZ_EXPECT(transport::DecodeRejection(private_data).message().size() > 40);
}

// ---- Posting

void LiarLine::PostReceive(size_t number) {
  const fabric::ReceiveWorkRequest receive = {
      index << 24 | number, {memory_.receive(index, number), LiarMemory::kBufferBytes, memory_.lkey()}};
  queue_pair->PostReceive({&receive, 1}).IgnoreError();
}

void LiarLine::Post(absl::string_view bytes) {
  bytes = bytes.substr(0, LiarMemory::kBufferBytes);
  if (bytes.empty()) return;
  uint8_t* const at = memory_.send(index, sends_);
  memcpy(at, bytes.data(), bytes.size());
  const fabric::Sge sge = {at, static_cast<uint32_t>(bytes.size()), memory_.lkey()};
  fabric::SendWorkRequest request;
  request.wr_id = kSendId | index << 24;
  request.signaled = true;
  request.sges = {&sge, 1};
  if (queue_pair->PostSend({&request, 1}).ok()) ++sends_;
}

void LiarLine::PostRead(const TableEntry& entry, fabric::Opcode opcode) {
  const uint32_t bytes = std::min<uint32_t>(entry.length_bytes, LiarMemory::kSinkBytes);
  const fabric::Sge sge = {memory_.sink(), bytes, memory_.lkey()};
  fabric::SendWorkRequest request;
  request.wr_id = kReadId | index << 24;
  request.opcode = opcode;
  request.signaled = true;
  request.sges = {&sge, 1};
  request.remote_address = entry.address;
  request.rkey = entry.rkey;
  if (bytes != 0 && queue_pair->PostSend({&request, 1}).ok()) ++reads;
}

// ---- Hearing

void LiarLine::OnCompletion(const fabric::Completion& completion) {
  const bool ok = completion.status == fabric::CompletionStatus::kSuccess;
  if ((completion.wr_id & kReadId) != 0) {
    --reads;
    FUZZ_EXPECT(lied || completion.status != fabric::CompletionStatus::kRemoteAccessError,
                "what was granted, and not taken back, cannot be READ");
  }
  if (!ok) ended = true;
  if (!ok || (completion.wr_id & (kSendId | kReadId)) != 0) return;
  const size_t number = completion.wr_id & 0xffff;
  const ExactCopy received(
      {reinterpret_cast<const char*>(memory_.receive(index, number)), completion.byte_len});
  if (receives) PostReceive(number);
  Hear(received.view());
}

// The victim is honest.
void LiarLine::Hear(absl::string_view bytes) {
  transport::ParsedMessage parsed;
  const absl::Status status =
      transport::Parse(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), parsed);
  FUZZ_EXPECT(status.ok(), status.ToString());
  const Header& header = parsed.header;
  if (words_ != nullptr && header.kind <= Kind::kResponse) words_->Hear(parsed);
  std::vector<TableEntry> granted;
  for (size_t i = 0; i < header.entries && header.kind <= Kind::kResponse; ++i) {
    const TableEntry entry = transport::DecodeTableEntry(parsed.table + i * transport::kTableEntryBytes);
    if (entry.rkey != 0) granted.push_back(entry);
  }
  if (!lied) HearCredits(header);
  switch (header.kind) {
    case Kind::kRequest:
      return HearRequest(header, std::move(granted));
    case Kind::kResponse:
      return HearResponse(header, std::move(granted));
    case Kind::kControl:
      FUZZ_EXPECT(lied || header.generation == peer_control_generation_ + 1, header.generation);
      FUZZ_EXPECT(lied || controls.empty(), "two control requests at once");
      peer_control_generation_ = header.generation;
      return controls.push_back(header.generation);
    case Kind::kControlAck:
      FUZZ_EXPECT(lied || (control_waits && header.generation == control_generation));
      control_waits = false;
      return;
    case Kind::kReturn:
      --credits;
      return;
  }
}

void LiarLine::HearCredits(const Header& header) {
  if (header.kind == Kind::kReturn) {
    FUZZ_EXPECT(with_credits && !asks && credits > 2 && credits > questions.size(), credits);
  } else if (!with_credits || (!asks && header.kind != Kind::kRequest)) {
    FUZZ_EXPECT(header.credits == 0, header.credits);
  } else if (!asks) {
    FUZZ_EXPECT(header.credits > questions.size() && header.credits <= credits, header.credits);
  } else {
    const auto more = static_cast<uint16_t>(header.credits - given);
    credits += more;
    given = header.credits;
    FUZZ_EXPECT(credits <= slots, credits);
  }
}

void LiarLine::SayCredits(std::string& bytes) const {
  if (with_credits && !asks && bytes.size() >= transport::kHeaderBytes) {
    StoreLittle16(reinterpret_cast<uint8_t*>(&bytes[14]), given);
  }
}

void LiarLine::HearRequest(const Header& header, std::vector<TableEntry> granted) {
  FUZZ_EXPECT(lied || !asks, "a request to the side that asks");
  if (!lied) {
    FUZZ_EXPECT(header.slot < slots, header.slot);
    FUZZ_EXPECT(header.generation == generations_[header.slot] + 1, header.generation);
    for (const Question& question : questions) {
      FUZZ_EXPECT(question.slot != header.slot, "a request in a busy slot");
    }
  }
  generations_[header.slot] = header.generation;
  questions.push_back({header.slot, header.generation, std::move(granted)});
}

void LiarLine::HearResponse(const Header& header, std::vector<TableEntry> granted) {
  FUZZ_EXPECT(lied || asks, "a response to the side that answers");
  FUZZ_EXPECT(header.slot < asked.size(), header.slot);
  Asked& exchange = asked[header.slot];
  if (!lied) FUZZ_EXPECT(exchange.busy && exchange.generation == header.generation, header.generation);
  exchange.busy = false;
  exchange.granted = std::move(granted);
}

}  // namespace hawser::fuzz
