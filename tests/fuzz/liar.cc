#include "hawser/tests/fuzz/liar.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"

namespace hawser::fuzz {
namespace {

using transport::ControlOp;
using transport::Handshake;
using transport::Header;
using transport::Kind;
using transport::TableEntry;

constexpr size_t kBuffer = 2048;  // Twice what is agreed.
constexpr size_t kReceives = 24;
constexpr size_t kSends = 64;
constexpr size_t kLinesMax = 4;
// A part for each line to receive into, one to send from; then what may be READ, and what READs are for.
constexpr size_t kLineBytes = (kReceives + kSends) * kBuffer;
constexpr size_t kReadable = 512 << 10;
constexpr size_t kSink = 512 << 10;
constexpr size_t kMemory = kLinesMax * kLineBytes + kReadable + kSink;

constexpr uint64_t kSendId = 1 << 20;
constexpr uint64_t kReadId = 2 << 20;

constexpr uint16_t kPort = 7471;
constexpr uint16_t kSlots = 4;

// Kept from one run to the next, since to get it anew would take most of a run's time. What an earlier run
// left in it decides nothing.
uint8_t* Memory() {
  static std::vector<uint8_t>* const memory = new std::vector<uint8_t>(kMemory);
  return memory->data();
}

}  // namespace

class Liar::Line final : public fabric::ConnectionHandler {
 public:
  void OnEstablished(absl::string_view private_data) override {
    established = true;
    if (!private_data.empty()) {
      const absl::StatusOr<Handshake> answer = transport::DecodeHandshake(private_data);
      FUZZ_EXPECT(answer.ok(), "the victim's handshake: ", answer.status().ToString());
      slots = std::min(slots, answer->slots);
    }
  }
  void OnConnectFailed(const absl::Status&, absl::string_view private_data) override {
    ended = true;
    if (!private_data.empty()) {
      // It says why.
      FUZZ_EXPECT(transport::DecodeRejection(private_data).message().size() > 40);
    }
  }
  void OnDisconnected(const absl::Status&) override { ended = true; }

  bool carries() const { return established && !ended; }

  size_t index = 0;
  std::unique_ptr<fabric::QueuePair> queue_pair;
  uint32_t features = 0;  // Of the victim's handshake, if it dialed.
  bool asks = false;      // This side sends the requests.
  bool established = false;
  bool ended = false;
  bool lied = false;
  bool receives = true;
  uint16_t slots = kSlots;
  size_t sends = 0;
  std::string last;
  std::string held;

  // Where this side asks.
  struct Asked {
    uint32_t generation = 0;
    bool busy = false;
    std::vector<TableEntry> granted;  // Of its last response.
  };
  std::vector<Asked> asked{kSlots};
  // Where it answers: what was asked, and not answered.
  struct Question {
    uint16_t slot;
    uint32_t generation;
    std::vector<TableEntry> granted;
  };
  std::vector<Question> questions;
  std::map<uint16_t, uint32_t> generations;  // Of the victim's requests.

  uint32_t control_generation = 0;
  bool control_waits = false;
  std::vector<uint32_t> controls;  // Of the victim, not answered.
  uint32_t peer_control_generation = 0;
  int reads = 0;
  std::vector<uint32_t> rkeys;  // Granted, in turn.
};

Liar::Liar(sim::Network& network, int host, const fabric::SocketAddress& victim)
    : network_(network),
      host_(host),
      fabric_(std::make_shared<sim::SimFabric>(network, host)),
      victim_(victim),
      memory_(Memory()),
      region_(*fabric_->Register(memory_, kMemory)),
      completion_queue_(*fabric_->CreateCompletionQueue(1 << 16)),
      listener_(*fabric_->Listen(*completion_queue_, sim::SimFabric::AddressOf(host, kPort), *this)) {}

Liar::~Liar() { Leave(); }

void Liar::Leave() {
  unanswered_.clear();
  for (Line& line : lines_) line.queue_pair->Disconnect();
  for (int i = 0; i < 4; ++i) Turn();
  for (Line& line : lines_) line.ended = true;
}

Handshake Liar::Hello(transport::Role role) {
  Handshake hello;
  hello.role = role;
  hello.slots = kSlots;
  hello.receive_buffer_bytes = 1024;
  hello.message_bytes_max = 1 << 20;
  return hello;
}

bool Liar::HasLied(const fabric::SocketAddress& local) const {
  for (const Line& line : lines_) {
    if (line.queue_pair->local_address().ToString() == local.ToString()) return line.lied;
  }
  return true;
}

bool Liar::HasLied(uint32_t features) const {
  for (const Line& line : lines_) {
    if (line.features == features) return line.lied;
  }
  return true;
}

Liar::Line& Liar::NewLine(bool asks) {
  Line& line = lines_.emplace_back();
  line.index = lines_.size() - 1;
  line.asks = asks;
  fabric::QueuePairOptions options;
  options.send_depth = kSends;
  options.receive_depth = kReceives;
  fabric::ConnectionHandler& handler = line;
  line.queue_pair = *fabric_->CreateQueuePair(*completion_queue_, options, handler);
  for (size_t i = 0; i < kReceives; ++i) PostReceive(line, i);
  return line;
}

void Liar::PostReceive(Line& line, size_t number) {
  const fabric::ReceiveWorkRequest receive = {
      line.index << 24 | number,
      {memory_ + line.index * kLineBytes + number * kBuffer, kBuffer, region_->lkey()}};
  line.queue_pair->PostReceive({&receive, 1}).IgnoreError();
}

Liar::Line* Liar::Any(Script& script) {
  const uint32_t which = script.Byte();
  return lines_.empty() ? nullptr : &lines_[which % lines_.size()];
}

// ---- Connecting

void Liar::Dial(Script& script) {
  const uint8_t how = script.Byte();
  if (lines_.size() == kLinesMax) return;
  Line& line = NewLine(how % 2 == 0);
  std::string hello =
      transport::Encode(Hello(line.asks ? transport::Role::kForward : transport::Role::kReverse));
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
  if (lines_.size() == kLinesMax || how % 8 == 7) return;  // Rejects without a reason.
  if (how % 8 == 6) return unanswered_.push_back(std::move(request));
  if (how % 8 == 5) {
    std::string why = transport::EncodeRejection(absl::UnavailableError("the server is shutting down"));
    why[next_answer_at_ % why.size()] ^= static_cast<char>(next_answer_bits_);
    return request->Reject(why);
  }
  Line& line = NewLine(hello->role == transport::Role::kReverse);
  line.features = hello->features;
  line.slots = std::min(line.slots, hello->slots);
  std::string answer = transport::Encode(Hello(hello->role));
  if (how % 8 == 4) {
    line.lied = true;
    answer[next_answer_at_ % answer.size()] ^= static_cast<char>(next_answer_bits_);
    if (next_answer_bits_ == 0) answer.resize(next_answer_at_ % answer.size());
  }
  line.queue_pair->Accept(std::move(request), answer).IgnoreError();
  line.established = true;
}

// ---- Speaking

void Liar::Post(Line& line, absl::string_view bytes) {
  bytes = bytes.substr(0, kBuffer);
  if (bytes.empty()) return;
  uint8_t* const at = memory_ + line.index * kLineBytes + (kReceives + line.sends % kSends) * kBuffer;
  memcpy(at, bytes.data(), bytes.size());
  const fabric::Sge sge = {at, static_cast<uint32_t>(bytes.size()), region_->lkey()};
  fabric::SendWorkRequest request;
  request.wr_id = kSendId | line.index << 24;
  request.signaled = true;
  request.sges = {&sge, 1};
  if (line.queue_pair->PostSend({&request, 1}).ok()) ++line.sends;
}

void Liar::Send(Line& line, std::string bytes) {
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
      Post(line, bytes);
      break;
    case Spoil::What::kHeld:  // Behind the next.
      line.held = bytes;
      return;
  }
  Post(line, bytes);
  if (!line.held.empty()) Post(line, std::exchange(line.held, ""));
}

std::string Liar::Compose(Line& line, Header header, Script& script, bool request) {
  const uint8_t shape = script.Byte();
  const std::string words = envelope ? envelope(script, request) : std::string(shape / 64 * 8, 'e');
  std::string inline_bytes = body ? body(script, request) : std::string(script.Byte() % 64 * 8, 'b');
  std::vector<TableEntry> table;
  if (!inline_bytes.empty()) table.push_back({0, 0, static_cast<uint32_t>(inline_bytes.size())});
  for (uint32_t granted = shape % 4; granted > 0 && granted < 3; --granted) {
    constexpr uint32_t kBytes[] = {8, 1032, 70'000, 300'000};
    const uint32_t bytes = kBytes[script.Below(4)];
    uint8_t* const at = memory_ + kLinesMax * kLineBytes + script.Byte() * 64;
    const absl::StatusOr<uint32_t> rkey =
        line.queue_pair->Grant({at, bytes, region_->lkey()}, fabric::QueuePair::Access::kRead);
    if (!rkey.ok()) break;
    line.rkeys.push_back(*rkey);
    table.push_back({reinterpret_cast<uint64_t>(at), *rkey, bytes});
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
  std::string bytes(transport::kHeaderBytes + table.size() * transport::kTableEntryBytes, '\0');
  auto* const out = reinterpret_cast<uint8_t*>(&bytes[0]);
  transport::EncodeHeader(header, out);
  for (size_t i = 0; i < table.size(); ++i) {
    transport::EncodeTableEntry(table[i], out + transport::kHeaderBytes + i * transport::kTableEntryBytes);
  }
  bytes += words + inline_bytes;
  // Longer than the agreed receive buffer.
  if (bytes.size() > 1024) line.lied = true;
  return bytes;
}

void Liar::SendRequest(Line& line, Script& script) {
  const uint8_t choice = script.Byte();
  if (!line.asks) line.lied = true;
  // A slot that is free, unless there is none, or the script says otherwise.
  uint16_t slot = static_cast<uint16_t>(choice % line.slots);
  for (uint16_t i = 0; i < line.slots && line.asked[slot].busy && choice < 240; ++i) {
    slot = static_cast<uint16_t>((slot + 1) % line.slots);
  }
  Line::Asked& asked = line.asked[slot];
  // READs of the slot's last response, which this lets go, may fail.
  line.lied |= asked.busy || line.reads != 0;
  Header header;
  header.kind = Kind::kRequest;
  header.slot = slot;
  header.generation = ++asked.generation;
  header.timeout_us = script.Below(4) == 0 ? 1000u * script.Byte() : transport::kNoTimeout;
  asked.busy = true;
  asked.granted.clear();
  Send(line, Compose(line, header, script, true));
}

void Liar::SendResponse(Line& line, Script& script) {
  const uint8_t which = script.Byte();
  Header header;
  header.kind = Kind::kResponse;
  if (line.asks || line.questions.empty()) {
    line.lied = true;
    header.slot = which % 8;
    header.generation = script.Byte();
  } else {
    // READs of what is let go with the response may fail.
    line.lied |= line.reads != 0;
    const auto question = line.questions.begin() + which % static_cast<int>(line.questions.size());
    header.slot = question->slot;
    header.generation = question->generation;
    line.questions.erase(question);
  }
  Send(line, Compose(line, header, script, false));
}

void Liar::SendControl(Line& line, Script& script) {
  const uint8_t count = script.Byte();
  if (line.control_waits) line.lied = flooded_control_ = true;
  line.control_waits = true;
  Header header;
  header.kind = Kind::kControl;
  header.slot = transport::kControlSlot;
  header.generation = ++line.control_generation;
  header.entries = static_cast<uint16_t>(1 + count % 4 * (count < 128 ? 1 : 8));
  std::string bytes(transport::kHeaderBytes + header.entries * transport::kControlOpBytes, '\0');
  auto* const out = reinterpret_cast<uint8_t*>(&bytes[0]);
  transport::EncodeHeader(header, out);
  for (size_t i = 0; i < header.entries; ++i) {
    const uint8_t what = script.Byte();
    ControlOp op;
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
    transport::EncodeControlOp(op, out + transport::kHeaderBytes + i * transport::kControlOpBytes);
  }
  Send(line, bytes);
}

void Liar::SendControlAck(Line& line, Script& script) {
  Header header;
  header.kind = Kind::kControlAck;
  header.slot = transport::kControlSlot;
  if (line.controls.empty()) {
    line.lied = true;
    header.generation = script.Byte();
  } else {
    header.generation = line.controls.front();
    line.controls.erase(line.controls.begin());
  }
  std::string bytes(transport::kHeaderBytes, '\0');
  transport::EncodeHeader(header, reinterpret_cast<uint8_t*>(&bytes[0]));
  Send(line, bytes);
}

void Liar::PostRead(Line& line, const TableEntry& entry, fabric::Opcode opcode) {
  const uint32_t bytes = std::min<uint32_t>(entry.length_bytes, kSink);
  const fabric::Sge sge = {memory_ + kMemory - kSink, bytes, region_->lkey()};
  fabric::SendWorkRequest request;
  request.wr_id = kReadId | line.index << 24;
  request.opcode = opcode;
  request.signaled = true;
  request.sges = {&sge, 1};
  request.remote_address = entry.address;
  request.rkey = entry.rkey;
  if (bytes != 0 && line.queue_pair->PostSend({&request, 1}).ok()) ++line.reads;
}

// What an honest peer would READ, or something next to it.
void Liar::ReadWhatWasGranted(Line& line, Script& script) {
  const uint8_t how = script.Byte();
  std::vector<TableEntry> entries;
  for (const Line::Question& question : line.questions) {
    entries.insert(entries.end(), question.granted.begin(), question.granted.end());
  }
  for (const Line::Asked& asked : line.asked) {
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
      return PostRead(line, entry, fabric::Opcode::kWrite);
    default:
      break;
  }
  PostRead(line, entry, fabric::Opcode::kRead);
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
  Line* const line = Any(script);
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
      return Post(*line, count < 200 ? script.Bytes(count) : absl::string_view(line->last));
    }
    case 13:
      line->lied = true;
      if (line->rkeys.empty()) return;
      line->queue_pair->Revoke(line->rkeys.back(), kSendId | line->index << 24);
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
          Post(*line, line->last);
        }
      }
    }
  }
}

// ---- Hearing

size_t Liar::Turn() {
  fabric::Completion completions[64];
  const size_t count = completion_queue_->Poll(absl::MakeSpan(completions));
  for (size_t i = 0; i < count; ++i) {
    const fabric::Completion& completion = completions[i];
    Line& line = lines_[completion.wr_id >> 24];
    const bool ok = completion.status == fabric::CompletionStatus::kSuccess;
    if ((completion.wr_id & kReadId) != 0) {
      --line.reads;
      FUZZ_EXPECT(line.lied || completion.status != fabric::CompletionStatus::kRemoteAccessError,
                  "what was granted, and not taken back, cannot be READ");
    }
    if (!ok) line.ended = true;
    if (!ok || (completion.wr_id & (kSendId | kReadId)) != 0) continue;
    const size_t number = completion.wr_id & 0xffff;
    const uint8_t* const at = memory_ + line.index * kLineBytes + number * kBuffer;
    const ExactCopy received({reinterpret_cast<const char*>(at), completion.byte_len});
    if (line.receives) PostReceive(line, number);
    Hear(line, received.view());
  }
  return count;
}

// The victim is honest.
void Liar::Hear(Line& line, absl::string_view bytes) {
  transport::ParsedMessage parsed;
  const absl::Status status =
      transport::Parse(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), parsed);
  FUZZ_EXPECT(status.ok(), status.ToString());
  const Header& header = parsed.header;
  std::vector<TableEntry> granted;
  for (size_t i = 0; i < header.entries && header.kind <= Kind::kResponse; ++i) {
    const TableEntry entry = transport::DecodeTableEntry(parsed.table + i * transport::kTableEntryBytes);
    if (entry.rkey != 0) granted.push_back(entry);
  }
  switch (header.kind) {
    case Kind::kRequest:
      FUZZ_EXPECT(line.lied || !line.asks, "a request to the side that asks");
      if (!line.lied) {
        FUZZ_EXPECT(header.slot < line.slots, header.slot);
        FUZZ_EXPECT(header.generation == line.generations[header.slot] + 1, header.generation);
        for (const Line::Question& question : line.questions) {
          FUZZ_EXPECT(question.slot != header.slot, "a request in a busy slot");
        }
      }
      line.generations[header.slot] = header.generation;
      line.questions.push_back({header.slot, header.generation, std::move(granted)});
      break;
    case Kind::kResponse: {
      FUZZ_EXPECT(line.lied || line.asks, "a response to the side that answers");
      FUZZ_EXPECT(header.slot < line.asked.size(), header.slot);
      Line::Asked& asked = line.asked[header.slot];
      if (!line.lied) FUZZ_EXPECT(asked.busy && asked.generation == header.generation, header.generation);
      asked.busy = false;
      asked.granted = std::move(granted);
      break;
    }
    case Kind::kControl:
      FUZZ_EXPECT(line.lied || header.generation == line.peer_control_generation + 1, header.generation);
      FUZZ_EXPECT(line.lied || line.controls.empty(), "two control requests at once");
      line.peer_control_generation = header.generation;
      line.controls.push_back(header.generation);
      break;
    case Kind::kControlAck:
      FUZZ_EXPECT(line.lied || (line.control_waits && header.generation == line.control_generation));
      line.control_waits = false;
      break;
  }
}

}  // namespace hawser::fuzz
