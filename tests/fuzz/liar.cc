#include "hawser/tests/fuzz/liar.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "hawser/tests/transport/testing/raw_message.h"

namespace hawser::fuzz {
namespace {

using transport::ControlOp;
using transport::Handshake;
using transport::Header;
using transport::Kind;
using transport::TableEntry;

constexpr uint16_t kPort = 7471;

}  // namespace

Liar::Liar(sim::Network& network, int host, const SocketAddress& victim, size_t lines_max, LiarWords* words)
    : fabric_(std::make_shared<sim::SimFabric>(network, host)),
      victim_(victim),
      lines_max_(lines_max),
      words_(words),
      memory_(*fabric_),
      completion_queue_(*fabric_->CreateCompletionQueue(1 << 16)),
      listener_(*fabric_->Listen(*completion_queue_, sim::SimFabric::AddressOf(host, kPort), *this, {})) {}

Liar::~Liar() { Leave(); }

void Liar::Leave() {
  unanswered_.clear();
  for (LiarLine& line : lines_) line.queue_pair->Disconnect();
  for (int i = 0; i < 4; ++i) Turn();
  for (LiarLine& line : lines_) line.ended = true;
}

Handshake Liar::Hello(transport::Role role) {
  Handshake hello;
  hello.role = role;
  hello.slots = LiarLine::kSlots;
  hello.receive_buffer_bytes = 1024;
  hello.message_bytes_max = 1 << 20;
  return hello;
}

bool Liar::HasLied(const SocketAddress& local) const {
  for (const LiarLine& line : lines_) {
    if (line.queue_pair->local_address().ToString() == local.ToString()) return line.lied;
  }
  return true;
}

bool Liar::HasLied(uint32_t features) const {
  for (const LiarLine& line : lines_) {
    if (line.features == features) return line.lied;
  }
  return true;
}

bool Liar::HasLied() const {
  return std::any_of(lines_.begin(), lines_.end(), [](const LiarLine& line) { return line.lied; });
}

transport::SessionToken Liar::Session() const {
  transport::SessionToken session = {};
  for (const LiarLine& line : lines_) {
    if (line.asks && line.established) session = line.session;
  }
  return session;
}

LiarLine& Liar::NewLine(bool asks) {
  return lines_.emplace_back(*fabric_, *completion_queue_, memory_, words_, lines_.size(), asks);
}

LiarLine* Liar::Any(Script& script) {
  const uint32_t which = script.Byte();
  return lines_.empty() ? nullptr : &lines_[which % lines_.size()];
}

// ---- Connecting

void Liar::Dial(Script& script) {
  const uint8_t how = script.Byte();
  if (lines_.size() == lines_max_) return;
  LiarLine& line = NewLine(how % 2 == 0);
  Handshake handshake = Hello(line.asks ? transport::Role::kForward : transport::Role::kReverse);
  if (!line.asks) handshake.session = Session();
  line.with_credits = how / 8 % 2 == 0;
  if (line.with_credits) handshake.features = transport::kFeatureCredits;
  std::string hello = transport::Encode(handshake);
  if (how / 2 % 4 == 3) {
    line.lied = true;
    hello[script.Byte() % hello.size()] ^= static_cast<char>(script.Byte());
    if (how >= 128) hello.resize(script.Byte() % (fabric::kConnectPrivateDataMax + 1));
  }
  line.queue_pair->Connect(victim_, hello).IgnoreError();
}

void Liar::OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) {
  const absl::StatusOr<Handshake> hello = transport::DecodeHandshake(request->private_data());
  FUZZ_EXPECT(hello.ok(), "the victim's handshake: ", hello.status().ToString());
  const uint8_t how = next_answer_;
  if (lines_.size() == lines_max_ || how % 8 == 7) return;  // Rejects without a reason.
  if (how % 8 == 6) return unanswered_.push_back(std::move(request));
  if (how % 8 == 5) {
    std::string why = transport::EncodeRejection(absl::UnavailableError("the server is shutting down"));
    why[next_answer_at_ % why.size()] ^= static_cast<char>(next_answer_bits_);
    return request->Reject(why);
  }
  LiarLine& line = NewLine(hello->role == transport::Role::kReverse);
  line.features = hello->features & ~transport::kFeatureCredits;
  line.slots = std::min(line.slots, hello->slots);
  Handshake handshake = Hello(hello->role);
  if (!line.asks) handshake.session[0] = static_cast<uint8_t>(lines_.size());
  handshake.features = how / 8 % 2 == 0 ? hello->features & transport::kFeatureCredits : 0;
  line.with_credits = handshake.features != 0;
  std::string answer = transport::Encode(handshake);
  if (how % 8 == 4) {
    line.lied = true;
    answer[next_answer_at_ % answer.size()] ^= static_cast<char>(next_answer_bits_);
    if (next_answer_bits_ == 0) answer.resize(next_answer_at_ % answer.size());
  }
  line.queue_pair->Accept(*request, answer).IgnoreError();
  line.established = true;
}

// ---- Speaking

void Liar::Send(LiarLine& line, std::string bytes) {
  const Spoil spoil = std::exchange(spoil_, {});
  line.lied |= spoil.what != Spoil::What::kNothing;
  line.last = bytes;
  switch (spoil.what) {
    case Spoil::What::kNothing:
      break;
    case Spoil::What::kBits:
      bytes[spoil.at % bytes.size()] ^= static_cast<char>(spoil.bits);
      break;
    case Spoil::What::kCut:
      bytes.resize(spoil.at % bytes.size());
      break;
    case Spoil::What::kLonger:
      bytes.append(1 + spoil.at * 8, static_cast<char>(spoil.bits));
      break;
    case Spoil::What::kTwice:
      line.Post(bytes);
      break;
    case Spoil::What::kHeld:  // Behind the next.
      line.held = bytes;
      return;
  }
  line.Post(bytes);
  if (!line.held.empty()) line.Post(std::exchange(line.held, ""));
}

std::string Liar::Compose(LiarLine& line, Header header, Script& script, bool request) {
  const uint8_t shape = script.Byte();
  const std::string words =
      words_ != nullptr ? words_->Envelope(script, request) : std::string(shape / 64 * 8, 'e');
  std::string inline_bytes =
      words_ != nullptr ? words_->Body(script, request) : std::string(script.Byte() % 64 * 8, 'b');
  std::vector<TableEntry> table;
  if (!inline_bytes.empty()) table.push_back({0, 0, static_cast<uint32_t>(inline_bytes.size())});
  for (uint32_t granted = shape % 4; granted > 0 && granted < 3; --granted) {
    constexpr uint32_t kBytes[] = {8, 1032, 70'000, 300'000};
    const uint32_t bytes = kBytes[script.Below(4)];
    uint8_t* const at = memory_.readable() + script.Byte() * 64;
    const absl::StatusOr<fabric::Granted> granted_range =
        line.queue_pair->Grant({at, bytes, memory_.lkey()}, fabric::QueuePair::Access::kRead);
    if (!granted_range.ok()) break;
    line.rkeys.push_back(granted_range->rkey);
    table.push_back({granted_range->address, granted_range->rkey, bytes});
  }
  if (shape % 8 == 5 && table.size() > 1) std::rotate(table.begin(), table.begin() + 1, table.end());
  if (std::exchange(spoil_descriptor_, false)) {
    line.lied = true;
    const uint8_t how = script.Byte();
    if (table.empty()) table.push_back({0x1000, 1, 8});
    TableEntry& entry = table[how % table.size()];
    switch (how / 16 % 4) {
      case 0:
        entry.rkey ^= 1u << script.Below(32);
        break;
      case 1:
        entry.address += script.U64();
        break;
      case 2:
        entry.length_bytes += script.U32() & ~7u;
        break;
      default:
        table.insert(table.end(), script.Byte(), entry);
        break;
    }
  }
  header.envelope_words = static_cast<uint8_t>(words.size() / 8);
  header.entries = static_cast<uint16_t>(table.size());
  std::string bytes = transport::RawMessage{header, std::move(table), words, inline_bytes}.Encode();
  // Longer than the agreed receive buffer.
  if (bytes.size() > 1024) line.lied = true;
  return bytes;
}

void Liar::SendRequest(LiarLine& line, Script& script) {
  const uint8_t choice = script.Byte();
  if (!line.asks) line.lied = true;
  // A slot that is free, unless there is none, or the script says otherwise.
  uint16_t slot = static_cast<uint16_t>(choice % line.slots);
  for (uint16_t i = 0; i < line.slots && line.asked[slot].busy && choice < 240; ++i) {
    slot = static_cast<uint16_t>((slot + 1) % line.slots);
  }
  LiarLine::Asked& asked = line.asked[slot];
  // READs of the slot's last response, which this request releases, may fail.
  line.lied |= asked.busy || line.reads != 0;
  Header header;
  header.kind = Kind::kRequest;
  header.slot = slot;
  header.generation = ++asked.generation;
  header.timeout_us = script.Below(4) == 0 ? 1000u * script.Byte() : transport::kNoTimeout;
  asked.busy = true;
  asked.granted.clear();
  if (line.with_credits) {
    header.credits = static_cast<uint16_t>(
        std::count_if(line.asked.begin(), line.asked.end(), [](const auto& other) { return other.busy; }));
    line.lied |= header.credits > line.credits;
  }
  Send(line, Compose(line, header, script, true));
}

void Liar::SendResponse(LiarLine& line, Script& script) {
  const uint8_t which = script.Byte();
  Header header;
  header.kind = Kind::kResponse;
  if (line.asks || line.questions.empty()) {
    line.lied = true;
    header.slot = which % 8;
    header.generation = script.Byte();
  } else {
    // READs of what the response releases may fail.
    line.lied |= line.reads != 0;
    const auto question = line.questions.begin() + which % static_cast<int>(line.questions.size());
    header.slot = question->slot;
    header.generation = question->generation;
    line.questions.erase(question);
    // It has receives for all slots at any time.
    if (line.with_credits && which >= 128 && line.credits < line.slots) {
      ++line.credits;
      ++line.given;
    }
    if (line.with_credits) header.credits = line.given;
  }
  Send(line, Compose(line, header, script, false));
}

void Liar::SendControl(LiarLine& line, Script& script) {
  const uint8_t count = script.Byte();
  if (line.control_waits) line.lied = flooded_control_ = true;
  line.control_waits = true;
  std::vector<ControlOp> ops(1 + count % 4 * (count < 128 ? 1 : 8));
  for (ControlOp& op : ops) {
    const uint8_t what = script.Byte();
    op.code = static_cast<ControlOp::Code>(1 + what % 4);
    if (op.code == ControlOp::Code::kCancel || op.code == ControlOp::Code::kRelease) {
      op.slot = static_cast<uint16_t>(what / 4 % line.slots);
      op.generation = line.asked[op.slot].generation - (what >= 192 ? 1 : 0);
      line.lied |= !line.asks;
      // A READ that is under way may fail.
      if (op.code == ControlOp::Code::kRelease) line.lied |= line.reads != 0;
    } else if (op.code == ControlOp::Code::kGoingAway) {
      line.lied |= line.asks;
    }
  }
  std::string bytes = transport::RawControl(++line.control_generation, ops);
  line.SayCredits(bytes);
  Send(line, std::move(bytes));
}

void Liar::SendControlAck(LiarLine& line, Script& script) {
  uint32_t generation;
  if (line.controls.empty()) {
    line.lied = true;
    generation = script.Byte();
  } else {
    generation = line.controls.front();
    line.controls.erase(line.controls.begin());
  }
  std::string bytes = transport::RawControlAck(generation);
  line.SayCredits(bytes);
  Send(line, std::move(bytes));
}

// What an honest peer would READ, or something next to it.
void Liar::ReadWhatWasGranted(LiarLine& line, Script& script) {
  const uint8_t how = script.Byte();
  std::vector<TableEntry> entries;
  for (const LiarLine::Question& question : line.questions) {
    entries.insert(entries.end(), question.granted.begin(), question.granted.end());
  }
  for (const LiarLine::Asked& asked : line.asked) {
    if (!asked.busy) entries.insert(entries.end(), asked.granted.begin(), asked.granted.end());
  }
  TableEntry entry = {0x1000, 77, 64};
  if (entries.empty()) {
    line.lied = true;
  } else {
    entry = entries[how % entries.size()];
  }
  switch (how / 32) {
    case 4:
      entry.rkey ^= 1u << script.Below(32);
      line.lied = true;
      break;
    case 5:
      entry.address += script.U64();
      line.lied = true;
      break;
    case 6:
      entry.length_bytes += script.U32();
      line.lied = true;
      break;
    case 7:
      line.lied = true;
      return line.PostRead(entry, fabric::Opcode::kWrite);
    default:
      break;
  }
  line.PostRead(entry, fabric::Opcode::kRead);
}

void Liar::Arm(Script& script) {
  const uint8_t what = script.Byte();
  if (what % 8 == 6) {
    spoil_descriptor_ = true;
    return;
  }
  spoil_.what = static_cast<Spoil::What>(1 + what % 5);
  spoil_.at = script.Byte();
  spoil_.bits = script.Byte();
}

void Liar::Step(uint8_t what, Script& script) {
  what %= 16;
  if (what == 0 || lines_.empty()) return Dial(script);
  if (what == 1) return Arm(script);
  if (what == 2) {
    next_answer_ = script.Byte();
    next_answer_at_ = script.Byte();
    next_answer_bits_ = script.Byte();
    return;
  }
  LiarLine* const line = Any(script);
  if (line == nullptr || !line->carries()) return;
  switch (what) {
    case 3:
    case 4:
    case 5:
      return line->asks ? SendRequest(*line, script) : SendResponse(*line, script);
    case 6:
    case 7:
      return ReadWhatWasGranted(*line, script);
    case 8:
      return SendControl(*line, script);
    case 9:
    case 10:
      return SendControlAck(*line, script);
    case 11:  // The other one's part.
      return line->asks ? SendResponse(*line, script) : SendRequest(*line, script);
    case 12: {
      line->lied = true;
      const size_t count = script.Byte();
      return line->Post(count < 200 ? script.Bytes(count) : absl::string_view(line->last));
    }
    case 13:
      line->lied = true;
      if (line->rkeys.empty()) return;
      line->queue_pair->Revoke(line->rkeys.back(), LiarLine::kSendId | line->index << 24);
      return line->rkeys.pop_back();
    case 14:
      line->lied = true;
      if (script.Below(2) == 0) return line->queue_pair->Disconnect();
      line->receives = !line->receives;
      return;
    default: {  // Many of one kind.
      line->lied = true;
      const uint8_t count = script.Byte() % 64;
      for (uint8_t i = 0; i < count; ++i) {
        if (line->asks) {
          Script none(nullptr, 0);
          SendControl(*line, none);
        } else {
          line->Post(line->last);
        }
      }
    }
  }
}

size_t Liar::Turn() {
  fabric::Completion completions[64];
  const size_t count = completion_queue_->Poll(absl::MakeSpan(completions));
  for (size_t i = 0; i < count; ++i) lines_[completions[i].wr_id >> 24].OnCompletion(completions[i]);
  return count;
}

}  // namespace hawser::fuzz
