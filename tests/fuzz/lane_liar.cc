#include "hawser/tests/fuzz/lane_liar.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hawser/transport/wire/handshake.h"
#include "hawser/transport/wire/options.h"

namespace hawser::fuzz {
namespace {

using transport::Handshake;
using transport::LaneMessage;
using Kind = LaneMessage::Kind;

constexpr uint16_t kPort = 7471;
// In wr_ids, beside the index of the line from bit 24 on; else it is the number of a receive.
constexpr uint64_t kSendId = 1 << 20;
constexpr uint64_t kAccessId = 2 << 20;

Handshake Hello() {
  Handshake hello;
  hello.role = transport::Role::kLane;
  hello.slots = 1;
  hello.receive_buffer_bytes = transport::kReceiveBufferMin;
  return hello;
}

}  // namespace

LaneLiarMemory::LaneLiarMemory(fabric::Fabric& fabric)
    : memory_(kLinesMax * kLineBytes + kReachableBytes + 2 * kSinkBytes),
      region_(*fabric.Register(memory_.data(), memory_.size())) {
  memset(to_write(), kWritten, kSinkBytes);
}

void LaneLine::OnEstablished(absl::string_view private_data) {
  established = true;
  if (!dialed) return;
  const absl::StatusOr<Handshake> answer = transport::DecodeHandshake(private_data);
  FUZZ_EXPECT(answer.ok(), "the victim's handshake: ", answer.status().ToString());
}

void LaneLine::OnConnectFailed(const absl::Status&, absl::string_view private_data) {
  ended = true;
  if (private_data.empty()) return;
  // It says why.
  FUZZ_EXPECT(transport::DecodeRejection(private_data).message().size() > 10);
}

LaneLiar::LaneLiar(sim::Network& network, int host, const SocketAddress& victim,
                   std::vector<transport::LaneTicket> tickets)
    : fabric_(std::make_shared<sim::SimFabric>(network, host)),
      victim_(victim),
      tickets_(std::move(tickets)),
      memory_(*fabric_),
      completion_queue_(*fabric_->CreateCompletionQueue(1 << 16)),
      listener_(*fabric_->Listen(*completion_queue_, sim::SimFabric::AddressOf(host, kPort), *this, {})) {}

LaneLiar::~LaneLiar() { Leave(); }

void LaneLiar::Leave() {
  has_left_ = true;
  unanswered_.clear();
  for (LaneLine& line : lines_) line.queue_pair->Disconnect();
  for (int i = 0; i < 4; ++i) Turn();
  for (LaneLine& line : lines_) line.ended = true;
}

void LaneLiar::FillSink(uint8_t with) { memset(memory_.sink(), with, LaneLiarMemory::kSinkBytes); }

LaneLine& LaneLiar::NewLine(bool dialed) {
  LaneLine& line = lines_.emplace_back();
  line.index = lines_.size() - 1;
  line.dialed = dialed;
  fabric::QueuePairOptions options;
  options.send_depth = LaneLiarMemory::kSends;
  options.receive_depth = LaneLiarMemory::kReceives;
  fabric::ConnectionHandler& handler = line;
  line.queue_pair = *fabric_->CreateQueuePair(*completion_queue_, options, handler);
  for (size_t i = 0; i < LaneLiarMemory::kReceives; ++i) PostReceive(line, i);
  return line;
}

LaneLine* LaneLiar::Any(Script& script, bool dialed) {
  std::vector<LaneLine*> able;
  for (LaneLine& line : lines_) {
    if (line.dialed == dialed && line.carries()) able.push_back(&line);
  }
  const uint8_t which = script.Byte();
  return able.empty() ? nullptr : able[which % able.size()];
}

// ---- Connecting

void LaneLiar::Dial(Script& script) {
  const uint8_t how = script.Byte();
  if (lines_.size() == LaneLiarMemory::kLinesMax) return;
  LaneLine& line = NewLine(/*dialed=*/true);
  Handshake offer = Hello();
  if (how / 4 % 2 != 0) offer.features = transport::kFeatureArrivals;
  std::string hello = transport::Encode(offer);
  if (how % 4 == 3) {
    has_lied_ = true;
    hello[script.Byte() % hello.size()] ^= static_cast<char>(script.Byte());
    if (how >= 128) hello.resize(script.Byte() % hello.size());
  }
  if (!line.queue_pair->Connect(victim_, hello).ok()) line.ended = true;
}

void LaneLiar::OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) {
  const absl::StatusOr<Handshake> hello = transport::DecodeHandshake(request->private_data());
  FUZZ_EXPECT(hello.ok() && hello->role == transport::Role::kLane,
              "the victim's handshake: ", hello.status().ToString());
  const uint8_t how = next_accept_;
  if (has_left_ || lines_.size() == LaneLiarMemory::kLinesMax || how % 8 == 7)
    return;  // Rejects without a reason.
  if (how % 8 == 6) return unanswered_.push_back(std::move(request));
  if (how % 8 == 5) {
    std::string why = transport::EncodeRejection(absl::PermissionDeniedError("not for you"));
    why[next_accept_at_ % why.size()] ^= static_cast<char>(next_accept_bits_);
    return request->Reject(why);
  }
  LaneLine& line = NewLine(/*dialed=*/false);
  Handshake handshake = Hello();
  handshake.features = how / 8 * transport::kFeatureLanePing;
  if (how / 16 % 2 != 0) handshake.features |= transport::kFeatureAtomics;
  std::string answer = transport::Encode(handshake);
  if (how % 8 == 4) {
    answer[next_accept_at_ % answer.size()] ^= static_cast<char>(next_accept_bits_);
    if (next_accept_bits_ == 0) answer.resize(next_accept_at_ % answer.size());
  }
  if (!line.queue_pair->Accept(*request, answer).ok()) line.ended = true;
}

// ---- Speaking

void LaneLiar::PostReceive(LaneLine& line, size_t number) {
  const fabric::ReceiveWorkRequest receive = {
      line.index << 24 | number,
      {memory_.receive(line.index, number), LaneLiarMemory::kBufferBytes, memory_.lkey()}};
  line.queue_pair->PostReceive({&receive, 1}).IgnoreError();
}

void LaneLiar::Post(LaneLine& line, std::string bytes) {
  if (std::exchange(spoils_, false)) {
    has_lied_ = true;
    bytes[spoil_at_ % bytes.size()] ^= static_cast<char>(spoil_bits_);
    if (spoil_bits_ == 0) bytes.resize(spoil_at_ % (2 * bytes.size()));
    announced_ += transport::kLaneArrivedMax;  // Whatever it says now.
    if (bytes.empty()) return;
  }
  uint8_t* const at = memory_.send(line.index, line.sends);
  memcpy(at, bytes.data(), bytes.size());
  const fabric::Sge sge = {at, static_cast<uint32_t>(bytes.size()), memory_.lkey()};
  fabric::SendWorkRequest request;
  request.wr_id = kSendId | line.index << 24;
  request.signaled = true;
  request.sges = {&sge, 1};
  if (line.queue_pair->PostSend({&request, 1}).ok()) ++line.sends;
}

void LaneLiar::PostMessage(LaneLine& line, const LaneMessage& message) {
  Post(line, transport::Encode(message));
}

// ---- As the requester

// An open, a close, an announcement, or something else.
void LaneLiar::Ask(Script& script) {
  LaneLine* const line = Any(script, /*dialed=*/true);
  const uint8_t what = script.Byte();
  const uint8_t which = script.Byte();
  if (line == nullptr) return;
  LaneMessage message;
  if (what % 4 < 2) {
    message.kind = Kind::kOpen;
    message.ticket = tickets_[which % tickets_.size()];
    message.handle = what < 224 ? line->next_handle++ : script.Byte();
    if (what / 4 % 8 == 7) {
      message.ticket.offset += script.Byte();
      message.ticket.length ^= script.U32();
      message.ticket.access ^= script.Byte();
    }
    has_lied_ |= !line->used.insert(message.handle).second || line->unanswered >= transport::kLaneRequestsMax;
    ++line->unanswered;
    line->handles[message.handle] = {message.ticket};
    return PostMessage(*line, message);
  }
  if (what % 4 == 2 && what >= 128) return Announce(*line, which, script);
  if (what % 4 == 2) {
    message.kind = Kind::kClose;
    message.handle = which;
    const auto found = line->handles.find(which);
    has_lied_ |= found == line->handles.end() || found->second.rkey == 0 || found->second.closing ||
                 found->second.announced != 0 || line->operations != 0 ||
                 line->unanswered >= transport::kLaneRequestsMax;
    ++line->unanswered;
    if (found != line->handles.end()) found->second.closing = true;
    return PostMessage(*line, message);
  }
  has_lied_ = true;  // Also by a ping: it may be the second.
  message.kind = static_cast<Kind>(1 + which % 9);
  message.handle = script.Byte();
  message.count = 1 + which;
  message.address = script.U32();
  message.length = 1 + script.Byte();
  message.rkey = 1 + script.Byte();
  message.access = transport::kLaneRead;
  message.why = absl::UnavailableError("a lie");
  for (int copies = what >= 192 ? 40 : 1; copies > 0; --copies) {
    if (message.kind == Kind::kArrived) announced_ += message.count;
    PostMessage(*line, message);
  }
}

// How many WRITEs there were the victim cannot know, so a wrong number is no lie that it could blame.
void LaneLiar::Announce(LaneLine& line, uint32_t handle, Script& script) {
  LaneMessage arrived;
  arrived.kind = Kind::kArrived;
  arrived.handle = handle;
  arrived.count = script.U16();
  const auto found = line.handles.find(handle);
  const bool may = found != line.handles.end() && found->second.rkey != 0 && !found->second.closing &&
                   (found->second.ticket.access & transport::kLaneCounted) != 0;
  has_lied_ |= !may || found->second.announced != 0 || arrived.count == 0 ||
               arrived.count > transport::kLaneArrivedMax || line.unanswered >= transport::kLaneRequestsMax;
  ++line.unanswered;
  announced_ += arrived.count;
  if (may) found->second.announced = arrived.count;
  PostMessage(line, arrived);
}

// A READ, a WRITE or an atomic, of memory that was granted, or near it.
void LaneLiar::Access(Script& script) {
  LaneLine* const line = Any(script, /*dialed=*/true);
  const uint8_t what = script.Byte();
  const uint8_t which = script.Byte();
  const uint16_t offset = script.U16();
  const uint16_t length = script.U16();
  if (line == nullptr) return;
  const auto found = line->handles.find(which);
  const bool known = found != line->handles.end() && found->second.rkey != 0;
  constexpr fabric::Opcode kOpcodes[] = {fabric::Opcode::kRead, fabric::Opcode::kWrite,
                                         fabric::Opcode::kCompareSwap, fabric::Opcode::kFetchAdd};
  fabric::SendWorkRequest request;
  request.wr_id = kAccessId | line->index << 24;
  request.opcode = kOpcodes[what % 4];
  request.signaled = true;
  const bool atomic = what % 4 > 1;
  const uint32_t bytes = atomic ? 8 : 1 + length % LaneLiarMemory::kSinkBytes;
  const fabric::Sge sge = {what % 4 == 1 ? memory_.to_write() : memory_.sink(), bytes, memory_.lkey()};
  request.sges = {&sge, 1};
  request.rkey = known ? found->second.rkey : script.U32();
  request.remote_address = (known ? found->second.address : script.U64()) + offset;
  if (what >= 192) request.remote_address -= 2 * offset;
  if (atomic) request.remote_address &= ~uint64_t{7};
  request.compare_add = what / 4 % 2 == 0 ? 1 : 0x1111111111111111;
  request.swap = 2;
  const uint8_t needed = atomic          ? transport::kLaneAtomic
                         : what % 4 == 1 ? transport::kLaneWrite
                                         : transport::kLaneRead;
  has_lied_ |= !known || found->second.closing || what >= 192 ||
               (found->second.ticket.access & needed) == 0 ||
               offset + uint64_t{bytes} > found->second.ticket.length;
  if (line->queue_pair->PostSend({&request, 1}).ok()) ++line->operations;
}

// ---- As the owner

void LaneLiar::Answer(Script& script) {
  LaneLine* const line = Any(script, /*dialed=*/false);
  if (line == nullptr) return;
  AnswerOne(*line, script);
}

void LaneLiar::AnswerOne(LaneLine& line, Script& script) {
  const uint8_t how = script.Byte();
  LaneMessage answer;
  if (line.asked.empty() || how % 8 == 7) {  // What was not asked.
    answer.kind = static_cast<Kind>(1 + how / 8 % 9);
    answer.handle = script.Byte();
    answer.count = 1 + how;
    answer.address = script.U32();
    answer.length = 1 + script.U16();
    answer.rkey = 1 + script.Byte();
    answer.access = 1 + script.Byte() % transport::kLaneAccessAll;
    answer.why = absl::UnavailableError("a lie");
    return PostMessage(line, answer);
  }
  const LaneMessage asked = line.asked.front();
  if (how % 8 != 6) line.asked.pop_front();  // 6: answers twice.
  answer.handle = asked.handle;
  if (asked.kind == Kind::kArrived) {
    answer.kind = Kind::kCounted;
    return PostMessage(line, answer);
  }
  if (asked.kind == Kind::kClose) {
    answer.kind = Kind::kClosed;
    const auto found = line.granted.find(asked.handle);
    if (found != line.granted.end()) {
      line.queue_pair->Revoke(found->second, kSendId | line.index << 24);
      line.granted.erase(found);
    }
    return PostMessage(line, answer);
  }
  if (how % 8 == 5) {
    answer.kind = Kind::kRefused;
    answer.why = absl::Status(static_cast<absl::StatusCode>(1 + script.Byte() % 16), "not for you");
    return PostMessage(line, answer);
  }
  answer.kind = Kind::kOpened;
  answer.length = asked.ticket.length;
  answer.access = asked.ticket.access;
  const uint32_t bytes =
      static_cast<uint32_t>(std::min<uint64_t>(asked.ticket.length, LaneLiarMemory::kReachableBytes));
  using Access = fabric::QueuePair::Access;
  const auto granted = line.queue_pair->Grant({memory_.reachable(), bytes, memory_.lkey()},
                                              Access::kReadRepeatedly | Access::kWrite | Access::kAtomic);
  if (!granted.ok()) return;
  line.granted[asked.handle] = granted->rkey;
  answer.address = granted->address;
  answer.rkey = granted->rkey;
  if (how % 8 == 4) {
    switch (how / 8 % 4) {
      case 0:
        answer.length ^= 1 + script.U16();
        break;
      case 1:
        answer.access ^= script.Byte();
        break;
      case 2:
        answer.rkey ^= 1 + script.Byte();
        break;
      default:
        answer.address += script.U64();
    }
  }
  PostMessage(line, answer);
}

// Of a handle that it has granted, or of any.
void LaneLiar::Revoke(Script& script) {
  LaneLine* const line = Any(script, /*dialed=*/false);
  const uint8_t how = script.Byte();
  const uint8_t which = script.Byte();
  if (line == nullptr) return;
  LaneMessage revoke;
  revoke.kind = Kind::kRevoke;
  revoke.handle = which;
  if (const auto found = line->granted.find(which); how % 4 == 3 && found != line->granted.end()) {
    line->queue_pair->Revoke(found->second, kSendId | line->index << 24);  // Without a word.
    line->granted.erase(found);
    return;
  }
  PostMessage(*line, revoke);
}

// ---- Hearing

size_t LaneLiar::Turn() {
  fabric::Completion completions[64];
  const size_t count = completion_queue_->Poll(absl::MakeSpan(completions));
  for (size_t i = 0; i < count; ++i) {
    const fabric::Completion& completion = completions[i];
    LaneLine& line = lines_[completion.wr_id >> 24];
    const bool ok = completion.status == fabric::CompletionStatus::kSuccess;
    if ((completion.wr_id & kAccessId) != 0) {
      --line.operations;
      FUZZ_EXPECT(has_lied_ || completion.status != fabric::CompletionStatus::kRemoteAccessError,
                  "what was granted, and not taken back, cannot be reached");
    }
    if (!ok) line.ended = true;
    if (!ok || (completion.wr_id & (kSendId | kAccessId)) != 0) continue;
    const size_t number = completion.wr_id & 0xffff;
    const ExactCopy received(
        {reinterpret_cast<const char*>(memory_.receive(line.index, number)), completion.byte_len});
    PostReceive(line, number);
    line.established = true;
    const absl::StatusOr<LaneMessage> message =
        transport::DecodeLaneMessage({received.data(), received.size()});
    FUZZ_EXPECT(message.ok(), "the victim's message: ", message.status().ToString());
    Hear(line, *message);
  }
  return count;
}

// The victim is honest.
void LaneLiar::Hear(LaneLine& line, const LaneMessage& message) {
  if (!line.dialed) {
    FUZZ_EXPECT(message.kind == Kind::kOpen || message.kind == Kind::kClose || message.kind == Kind::kPing ||
                    message.kind == Kind::kArrived,
                "the victim says to an owner what only owners say");
    if (message.kind != Kind::kPing) line.asked.push_back(message);
    FUZZ_EXPECT(line.asked.size() <= 2 * transport::kLaneRequestsMax, line.asked.size());
    return;
  }
  const auto found = line.handles.find(message.handle);
  FUZZ_EXPECT(found != line.handles.end() || has_lied_, "an answer to what was not asked");
  switch (message.kind) {
    case Kind::kOpened:
      if (line.unanswered > 0) --line.unanswered;
      if (found == line.handles.end()) return;
      found->second.address = message.address;
      found->second.rkey = message.rkey;
      return;
    case Kind::kRefused:
      FUZZ_EXPECT(!message.why.ok() && message.why.message().size() > 10, "it does not say why");
      if (line.unanswered > 0) --line.unanswered;
      if (found != line.handles.end()) line.handles.erase(found);
      return;
    case Kind::kClosed:
      if (line.unanswered > 0) --line.unanswered;
      if (found != line.handles.end()) line.handles.erase(found);
      return;
    case Kind::kCounted:
      if (line.unanswered > 0) --line.unanswered;
      if (found == line.handles.end()) return;
      FUZZ_EXPECT(has_lied_ || found->second.announced != 0, "it counts what was not announced");
      counted_ += std::exchange(found->second.announced, 0);
      return;
    case Kind::kRevoke:
      return;
    default:
      FUZZ_EXPECT(false, "the victim says to a requester what only requesters say");
  }
}

void LaneLiar::Step(uint8_t what, Script& script) {
  switch (what % 10) {
    case 0:
      return Dial(script);
    case 1:
    case 2:
      return Ask(script);
    case 3:
    case 4:
      return Access(script);
    case 5:
    case 6:
      return Answer(script);
    case 7:
      return Revoke(script);
    case 8:
      spoil_at_ = script.Byte();
      spoil_bits_ = script.Byte();
      spoils_ = true;
      return;
    default: {
      const uint8_t how = script.Byte();
      if (how % 4 != 0) {
        next_accept_ = script.Byte();
        next_accept_at_ = script.Byte();
        next_accept_bits_ = script.Byte();
        return;
      }
      if (LaneLine* const line = Any(script, how % 8 == 0); line != nullptr) line->queue_pair->Disconnect();
    }
  }
}

}  // namespace hawser::fuzz
