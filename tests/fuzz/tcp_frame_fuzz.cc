// Frames of the TCP fabric: FrameReader, TcpSendQueue, TcpReceiveQueue and GrantTable, against a model of
// what rpc/PROTOCOL.md says of them, and with the same bytes in other pieces.
//
// An input is a script: what the victim has posted and granted, then the frames of the peer. Frames are right
// unless the script spoils one; addresses cannot stand in a file, so they are offsets.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/transport/fabric/tcp/atomic.h"
#include "hawser/transport/fabric/tcp/frame_reader.h"

namespace hawser::fuzz {
namespace {

using fabric::CompletionStatus;
using fabric::FrameHeader;
using fabric::FrameKind;
using fabric::FrameReader;
using fabric::QueuePair;
using Result = FrameReader::Result;

constexpr uint32_t kDepth = 8;
constexpr uint32_t kMemoryMax = 600;  // For one receive, grant or request.

using Memory = std::vector<uint8_t>;

// What the victim has done before, and the state that the peer's frames act on.
struct Setup {
  explicit Setup(Script& script) {
    read_depth = 1 + script.Below(4);
    for (uint32_t i = script.Below(kDepth); i > 0; --i) receives.push_back(1 + script.U16() % kMemoryMax);
    for (uint32_t i = script.Below(4); i > 0; --i) {
      const uint32_t bytes = 1 + script.U16() % kMemoryMax;
      grants.push_back({bytes, kAccesses[script.Below(4)]});
    }
    for (uint32_t i = script.Below(kDepth); i > 0; --i) {
      requests.push_back({1 + script.U16() % kMemoryMax, script.Below(2) == 0});
    }
    takes_pushes = read_depth != 4;
    takes_atomics = read_depth != 1;
    posted_at_once = receives.empty() ? 0 : script.Below(static_cast<uint32_t>(receives.size()) + 1);
  }

  struct Grant {
    uint32_t bytes;
    QueuePair::Access access;
  };
  static constexpr QueuePair::Access kAccesses[] = {
      QueuePair::Access::kRead, QueuePair::Access::kWrite, QueuePair::Access::kAtomic,
      QueuePair::Access::kReadRepeatedly | QueuePair::Access::kWrite | QueuePair::Access::kAtomic};
  struct Request {
    uint32_t bytes;
    bool is_read;
  };
  uint32_t read_depth;
  std::vector<uint32_t>
      receives;  // The first posted_at_once at once, the others one by one when a SEND waits.
  std::vector<Grant> grants;
  std::vector<Request> requests;
  uint32_t posted_at_once;
  bool takes_pushes;
  bool takes_atomics;
};

// The victim's half of a connection.
struct Victim {
  explicit Victim(const Setup& of)
      : setup(of),
        send_queue(kDepth, setup.read_depth),
        receive_queue({.send_depth = kDepth, .receive_depth = kDepth, .read_depth = setup.read_depth}, 7),
        reader(send_queue, receive_queue) {
    reader.set_takes_pushes(setup.takes_pushes);
    reader.set_takes_atomics(setup.takes_atomics);
    for (const uint32_t bytes : setup.receives) receives.emplace_back(bytes, 0xdb);
    while (posted < setup.posted_at_once) PostReceive();
    for (const Setup::Grant& grant : setup.grants) {
      Memory& memory = granted.emplace_back(grant.bytes, 0xee);
      told.push_back(receive_queue.grants().Add({memory.data(), grant.bytes, 1}, grant.access));
    }
    for (const Setup::Request& request : setup.requests) {
      Memory& memory = sinks.emplace_back(request.bytes, 0xdb);
      // In two pieces, where there are two bytes.
      const uint32_t front = request.bytes / 2;
      fabric::Sge sges[2] = {{memory.data(), front, 1}, {memory.data() + front, request.bytes - front, 1}};
      fabric::SendWorkRequest work;
      work.wr_id = sinks.size() - 1;
      work.opcode = request.is_read ? fabric::Opcode::kRead : fabric::Opcode::kSend;
      work.signaled = true;
      work.sges = front == 0 ? absl::MakeConstSpan(&sges[1], 1) : absl::MakeConstSpan(sges);
      send_queue.Reserve(1);
      send_queue.Place(0, work, request.bytes);
      send_queue.Post(1);
    }
    while (send_queue.NextToSend() != nullptr) send_queue.MarkSent();
  }

  bool PostReceive() {
    if (posted == receives.size()) return false;
    Memory& memory = receives[posted];
    receive_queue.Reserve(1);
    receive_queue.Place(0, {posted, {memory.data(), static_cast<uint32_t>(memory.size()), 1}});
    receive_queue.Post(1);
    ++posted;
    return true;
  }

  const Setup& setup;
  fabric::TcpSendQueue send_queue;
  fabric::TcpReceiveQueue receive_queue;
  FrameReader reader;
  size_t posted = 0;
  std::vector<Memory> receives, granted, sinks;
  std::vector<fabric::Granted> told;  // For each of `granted`.
  std::vector<Memory> pushed;         // The sinks of pushes that were taken.
};

// A push is taken or dropped by a bit of its key.
bool IsTaken(const FrameHeader& push) { return push.key % 2 == 1; }

// How it ends, by the rules alone.
struct Expected {
  Result result = Result::kDrained;
  std::vector<Memory> receives, granted, sinks, pushed;
  uint32_t executed = 0;
  uint32_t received = 0;
  uint32_t reads_accepted = 0;                         // And atomics.
  std::vector<std::pair<uint32_t, uint64_t>> atomics;  // How many were accepted before, and the answer.
  bool push_is_due = false;                            // The last SEND announced one.
};

struct Frame {
  FrameHeader header;
  std::string payload;
  // For a WRITE, READ request or atomic: the grant that its address is relative to; -1: none.
  int grant = -1;
};

class Model {
 public:
  explicit Model(const Victim& victim) : setup_(victim.setup) {
    expected_.receives = victim.receives;
    expected_.granted = victim.granted;
    expected_.sinks = victim.sinks;
    sent_ = victim.send_queue.sent();
    for (uint32_t i = 0; i < sent_; ++i) {
      if (setup_.requests[i].is_read) reads_.push_back(i);
    }
  }

  // `offset`: of the header's address from that of its grant.
  void Take(const Frame& frame, uint64_t offset, bool key_is_right) {
    if (expected_.result != Result::kDrained) return;
    const FrameHeader& header = frame.header;
    const uint32_t length = header.length_bytes;
    if (header.acknowledged - acknowledged_ > sent_ - acknowledged_) return End(Result::kViolation);
    const bool acknowledges = header.acknowledged != acknowledged_;
    acknowledged_ = header.acknowledged;
    const bool has_length = header.kind != FrameKind::kAck && header.kind != FrameKind::kNak;
    const bool may_ask = header.kind == FrameKind::kSend || header.kind == FrameKind::kWrite ||
                         header.kind == FrameKind::kPush;
    const int flags = (may_ask ? fabric::kAckRequestedFlag : 0) |
                      (header.kind == FrameKind::kSend && setup_.takes_pushes ? fabric::kPushFollowsFlag : 0);
    if (header.reserved != 0 || (header.flags & ~flags) != 0 ||
        (header.status != 0 && header.kind != FrameKind::kNak) || (!has_length && length != 0)) {
      return End(Result::kViolation);
    }
    const auto is_granted = [&](QueuePair::Access access) {
      if (frame.grant < 0 || !key_is_right) return false;
      const Setup::Grant& grant = setup_.grants[static_cast<size_t>(frame.grant)];
      return Allows(grant.access, access) && offset <= grant.bytes && length <= grant.bytes - offset;
    };
    if (expected_.push_is_due && (header.kind == FrameKind::kSend || header.kind == FrameKind::kWrite ||
                                  header.kind == FrameKind::kReadRequest || IsAtomic(header.kind))) {
      return End(Result::kViolation);
    }
    switch (header.kind) {
      case FrameKind::kSend:
        if (length == 0 || length > fabric::kMessageBytesMax) return End(Result::kViolation);
        if (expected_.received == setup_.receives.size()) return End(Result::kReceiverNotReady);
        if (length > setup_.receives[expected_.received]) return End(Result::kRefused);
        Copy(frame, expected_.receives[expected_.received], 0);
        if (frame.payload.size() < length) return;
        ++expected_.received;
        ++expected_.executed;
        may_push_ = true;
        expected_.push_is_due = (header.flags & fabric::kPushFollowsFlag) != 0;
        break;
      case FrameKind::kPush:
        if (!setup_.takes_pushes || length == 0 || length > fabric::kPushBytesMax)
          return End(Result::kViolation);
        if (!std::exchange(may_push_, false)) return End(Result::kViolation);
        expected_.push_is_due = false;
        if (IsTaken(header)) Copy(frame, expected_.pushed.emplace_back(length, 0xdb), 0);
        if (frame.payload.size() < length) return;
        ++expected_.executed;
        break;
      case FrameKind::kWrite:
        if (length == 0 || length > fabric::kMessageBytesMax) return End(Result::kViolation);
        if (!is_granted(QueuePair::Access::kWrite)) return End(Result::kRefused);
        if (frame.payload.size() < length) {
          // What has arrived of whole words. Memory begins with one.
          Frame arrived = frame;
          const size_t rest = (offset + arrived.payload.size()) % fabric::kAtomicBytes;
          arrived.payload.resize(arrived.payload.size() - std::min(rest, arrived.payload.size()));
          return Copy(arrived, expected_.granted[static_cast<size_t>(frame.grant)], offset);
        }
        Copy(frame, expected_.granted[static_cast<size_t>(frame.grant)], offset);
        ++expected_.executed;
        break;
      case FrameKind::kReadRequest:
        if (length == 0 || length > fabric::kMessageBytesMax) return End(Result::kViolation);
        if (expected_.reads_accepted == setup_.read_depth) return End(Result::kRefused);
        if (!is_granted(QueuePair::Access::kRead)) return End(Result::kRefused);
        ++expected_.reads_accepted;
        ++expected_.executed;
        break;
      case FrameKind::kCompareSwap:
      case FrameKind::kFetchAdd: {
        if (!setup_.takes_atomics) return End(Result::kViolation);
        const bool adds = header.kind == FrameKind::kFetchAdd;
        if (length != (adds ? 8u : 16u)) return End(Result::kViolation);
        if (expected_.reads_accepted == setup_.read_depth) return End(Result::kRefused);
        if (frame.grant < 0 || !key_is_right) return End(Result::kRefused);
        const Setup::Grant& grant = setup_.grants[static_cast<size_t>(frame.grant)];
        if (!Allows(grant.access, QueuePair::Access::kAtomic) || grant.bytes < 8 ||
            offset > grant.bytes - 8 || offset % 8 != 0) {
          return End(Result::kRefused);
        }
        if (frame.payload.size() < length) return;
        uint64_t before, operands[2];
        uint8_t* const word = expected_.granted[static_cast<size_t>(frame.grant)].data() + offset;
        std::memcpy(&before, word, 8);
        std::memcpy(operands, frame.payload.data(), length);
        const uint64_t after = adds ? before + operands[0] : before == operands[0] ? operands[1] : before;
        std::memcpy(word, &after, 8);
        expected_.atomics.emplace_back(expected_.reads_accepted++, before);
        ++expected_.executed;
        break;
      }
      case FrameKind::kReadResponse: {
        if (answered_ == reads_.size()) return End(Result::kViolation);
        const uint32_t number = reads_[answered_];
        if (acknowledged_ <= number) return End(Result::kViolation);
        const uint32_t missing = setup_.requests[number].bytes - read_bytes_in_;
        if (header.key != number || header.address != read_bytes_in_ || length > missing ||
            length < std::min(missing, fabric::kReadFragmentMin)) {
          return End(Result::kViolation);
        }
        Copy(frame, expected_.sinks[number], read_bytes_in_);
        read_bytes_in_ += static_cast<uint32_t>(frame.payload.size());
        if (read_bytes_in_ == setup_.requests[number].bytes) {
          ++answered_;
          read_bytes_in_ = 0;
        }
        break;
      }
      case FrameKind::kAck:
        if (!acknowledges) return End(Result::kViolation);
        break;
      case FrameKind::kNak: {
        const auto status = static_cast<CompletionStatus>(header.status);
        const bool known = status == CompletionStatus::kRemoteAccessError ||
                           status == CompletionStatus::kRemoteInvalidRequest ||
                           status == CompletionStatus::kRemoteOperationError ||
                           status == CompletionStatus::kRnrRetryExceeded;
        const bool read_before_it = answered_ != reads_.size() && reads_[answered_] < header.key;
        const bool right = known && header.key == acknowledged_ && acknowledged_ != sent_ && !read_before_it;
        return End(right ? Result::kNak : Result::kViolation);
      }
      case FrameKind::kFarewell:
        if (length == 0 || length > fabric::kFarewellBytesMax) return End(Result::kViolation);
        break;
      default:
        return End(Result::kViolation);
    }
  }

  const Expected& expected() const { return expected_; }
  bool push_is_due() const { return expected_.push_is_due; }
  // Counts of honest frames.
  uint32_t acknowledged() const { return acknowledged_; }
  uint32_t sent() const { return sent_; }
  uint32_t due_read() const { return answered_ < reads_.size() ? reads_[answered_] : 0; }
  uint32_t due_offset() const { return read_bytes_in_; }

 private:
  void End(Result result) { expected_.result = result; }
  static void Copy(const Frame& frame, Memory& memory, size_t offset) {
    std::copy(frame.payload.begin(), frame.payload.end(), memory.begin() + static_cast<long>(offset));
  }

  const Setup& setup_;
  Expected expected_;
  uint32_t sent_ = 0;
  uint32_t acknowledged_ = 0;
  std::vector<uint32_t> reads_;
  uint32_t answered_ = 0;
  uint32_t read_bytes_in_ = 0;
  bool may_push_ = false;  // A SEND has come, and no push since.
};

// One frame that is right for `model`, then spoiled as the script wants it.
Frame NextFrame(Script& script, const Model& model, const Setup& setup, uint64_t* offset,
                bool* key_is_right) {
  Frame frame;
  FrameHeader& header = frame.header;
  const uint32_t what = script.Byte();
  header.kind = what < 240   ? static_cast<FrameKind>(1 + what % 6)
                : what < 246 ? FrameKind::kPush
                : what < 250 ? FrameKind::kFetchAdd
                             : FrameKind::kCompareSwap;
  if (header.kind == FrameKind::kSend || header.kind == FrameKind::kWrite) header.flags = what / 6 % 2;
  if (header.kind == FrameKind::kSend && what / 12 % 4 == 3) header.flags |= fabric::kPushFollowsFlag;
  if (model.push_is_due() && what % 8 != 7) header.kind = FrameKind::kPush;
  if (header.kind == FrameKind::kPush) header.key = header.flags = what % 2;
  header.acknowledged = model.acknowledged();
  if (what >= 128 && model.acknowledged() != model.sent()) ++header.acknowledged;
  header.length_bytes = 1 + script.U16() % kMemoryMax;
  *offset = 0;
  *key_is_right = true;
  switch (header.kind) {
    case FrameKind::kWrite:
    case FrameKind::kReadRequest: {
      if (setup.grants.empty()) break;
      frame.grant = static_cast<int>(script.Below(static_cast<uint32_t>(setup.grants.size())));
      const uint32_t bytes = setup.grants[static_cast<size_t>(frame.grant)].bytes;
      *offset = script.U16() % bytes;
      header.length_bytes = std::min<uint32_t>(header.length_bytes, bytes - static_cast<uint32_t>(*offset));
      break;
    }
    case FrameKind::kCompareSwap:
    case FrameKind::kFetchAdd: {
      header.length_bytes = fabric::OperandBytes(header.kind);
      if (setup.grants.empty()) break;
      frame.grant = static_cast<int>(script.Below(static_cast<uint32_t>(setup.grants.size())));
      *offset = script.U16() % setup.grants[static_cast<size_t>(frame.grant)].bytes;
      if (what % 4 != 3) *offset &= ~uint64_t{7};
      break;
    }
    case FrameKind::kReadResponse:
      header.key = model.due_read();
      header.address = model.due_offset();
      if (script.Below(8) != 0) header.acknowledged = std::max(header.acknowledged, header.key + 1);
      if (!setup.requests.empty()) {
        const uint32_t missing = setup.requests[header.key].bytes - model.due_offset();
        header.length_bytes =
            std::clamp(header.length_bytes, std::min(missing, fabric::kReadFragmentMin), missing);
      }
      break;
    case FrameKind::kNak:
      header.status = static_cast<uint8_t>(CompletionStatus::kRemoteAccessError);
      header.key = header.acknowledged;
      [[fallthrough]];
    case FrameKind::kAck:
      header.length_bytes = 0;
      if (header.kind == FrameKind::kAck && header.acknowledged == model.acknowledged() &&
          model.acknowledged() != model.sent()) {
        ++header.acknowledged;
      }
      break;
    default:
      break;
  }
  size_t payload_bytes = header.kind == FrameKind::kReadRequest ? 0 : header.length_bytes;
  switch (script.Byte()) {  // Most frames are right.
    case 1:
      header.kind = static_cast<FrameKind>(script.Byte());
      break;
    case 2:
      header.flags = script.Byte();
      break;
    case 3:
      header.status = script.Byte();
      break;
    case 4:
      header.reserved = script.Byte();
      break;
    case 5:
      header.length_bytes = script.U32();
      break;
    case 6:
      header.acknowledged = script.U32();
      break;
    case 7: {
      const uint32_t change = script.U32();
      header.key ^= change;
      *key_is_right = change == 0;
      break;
    }
    case 8: {
      const uint64_t change = script.U64();
      header.address += change;
      *offset += change;
      break;
    }
    case 9:  // Cut: what follows is taken for its payload.
      payload_bytes = script.U16() % (payload_bytes + 1);
      break;
    default:
      break;
  }
  frame.payload = std::string(payload_bytes, static_cast<char>(what));
  // A swap that is done: 0xee is in all memory that is granted.
  if (header.kind == FrameKind::kCompareSwap && payload_bytes == 16 && what % 2 == 0)
    frame.payload.replace(0, 8, 8, '\xee');
  return frame;
}

struct Outcome {
  Result result = Result::kDrained;
  bool violated = false;
};

// Looks at each SEND that it is offered, and takes none: then all is as if nothing had been offered.
class Refuser : public fabric::ConnectionHandler {
 public:
  bool TakeSend(absl::Span<const uint8_t> message) override {
    for (const uint8_t byte : message) sum_ = sum_ + byte;
    return false;
  }
  void OnEstablished(absl::string_view) override {}
  void OnConnectFailed(const absl::Status&, absl::string_view) override {}
  void OnDisconnected(const absl::Status&) override {}

 private:
  volatile uint32_t sum_ = 0;
};

// Feeds `bytes` in pieces of `piece`, 0: at once. SENDs of pieces of even size are offered to a handler.
Result Feed(Victim& victim, absl::string_view bytes, size_t piece, size_t staging_bytes) {
  int sockets[2];
  FUZZ_EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets) == 0);
  fabric::Stream stream{UniqueFd(sockets[0])};
  std::vector<uint8_t> staging(staging_bytes);
  Refuser refuser;
  const ForkMark fork_mark;
  FrameReader::Taker taker = {refuser, fork_mark};
  Result result = Result::kDrained;
  while (!bytes.empty() && (result == Result::kDrained || result == Result::kMore)) {
    const size_t count = piece == 0 ? std::min<size_t>(bytes.size(), 60'000) : std::min(piece, bytes.size());
    FUZZ_EXPECT(send(sockets[1], bytes.data(), count, MSG_NOSIGNAL) == static_cast<ssize_t>(count));
    bytes.remove_prefix(count);
    do {
      result =
          victim.reader.Read(stream, absl::MakeSpan(staging), nullptr, piece % 2 == 0 ? &taker : nullptr);
      while (result == Result::kPushed || (result == Result::kReceiverNotReady && victim.PostReceive())) {
        if (result == Result::kPushed) {
          for (fabric::WaitingPushes::Push& push : victim.reader.pushes()) {
            if (!IsTaken(push.header)) continue;
            victim.reader.TakePush(push, victim.pushed.emplace_back(push.header.length_bytes, 0xdb).data());
          }
          result = victim.reader.ResumeAfterPushes();
        } else {
          result = victim.reader.Resume();
        }
        // Only what was held is read; there may be more in the socket.
        if (result == Result::kDrained) result = Result::kMore;
      }
    } while (result == Result::kMore);
  }
  close(sockets[1]);
  return result;
}

// Every work request comes back once, in order.
template <typename Half>
size_t CheckDelivery(Half& half, size_t posted) {
  fabric::Completion completions[2 * kDepth + 2];
  fabric::CompletionSpan span = {completions, completions + 2 * kDepth + 2};
  half.Deliver(9, /*flush=*/false, span);
  const auto successes = static_cast<size_t>(span.next - completions);
  half.Deliver(9, /*flush=*/true, span);
  FUZZ_EXPECT(static_cast<size_t>(span.next - completions) == posted, "came back: ", span.next - completions);
  for (size_t i = 0; i < posted; ++i) {
    FUZZ_EXPECT(completions[i].wr_id == i, i);
    FUZZ_EXPECT(i < successes || completions[i].status != CompletionStatus::kSuccess);
  }
  return successes;
}

void CheckOutcome(Victim& victim, Result result, const Expected& expected) {
  FUZZ_EXPECT(result == expected.result, static_cast<int>(result), " instead of ",
              static_cast<int>(expected.result), ": ", victim.reader.violation());
  FUZZ_EXPECT((result == Result::kViolation) == !victim.reader.violation().empty());
  FUZZ_EXPECT(victim.receives == expected.receives, "a receive holds something else");
  FUZZ_EXPECT(victim.granted == expected.granted, "granted memory holds something else");
  FUZZ_EXPECT(victim.sinks == expected.sinks, "what was READ is something else");
  FUZZ_EXPECT(victim.pushed == expected.pushed, "what was pushed is something else");
  FUZZ_EXPECT(victim.receive_queue.executed() == expected.executed, victim.receive_queue.executed());
  uint32_t answers = 0;
  while (victim.receive_queue.has_answer()) {
    const uint8_t* data = nullptr;
    const FrameHeader header = victim.receive_queue.NextFragment(&data);
    FUZZ_EXPECT(std::string(reinterpret_cast<const char*>(data), header.length_bytes).size() != 0);
    for (const auto& [index, before] : expected.atomics) {
      FUZZ_EXPECT(index != answers || std::memcmp(data, &before, 8) == 0, "an atomic's answer is wrong");
    }
    victim.receive_queue.MarkFragmentSent();
    if (victim.receive_queue.answer_offset() == 0) ++answers;
  }
  FUZZ_EXPECT(answers == expected.reads_accepted, answers);
  CheckDelivery(victim.send_queue, victim.setup.requests.size());
  FUZZ_EXPECT(victim.receive_queue.push_is_due() == expected.push_is_due);
  victim.receive_queue.PushHasCome();  // As at the end of a connection.
  const size_t received = CheckDelivery(victim.receive_queue, victim.posted);
  FUZZ_EXPECT(received >= expected.received, received);
}

void RunOnce(const uint8_t* data, size_t size, size_t piece_of_run) {
  Script script(data, size);
  const size_t piece = piece_of_run == 0 ? 0 : 1 + script.Byte() % 97;
  if (piece_of_run == 0) script.Byte();
  const size_t staging_bytes = 64 + script.Byte() * 16u;
  const Setup setup(script);
  Victim victim(setup);
  Model model(victim);
  std::string bytes;
  for (int frames = 0; !script.empty() && frames < 64; ++frames) {
    uint64_t offset;
    bool key_is_right;
    Frame frame = NextFrame(script, model, setup, &offset, &key_is_right);
    FrameHeader header = frame.header;
    // One that was spoiled into another kind names no grant.
    const bool names_grant =
        header.kind == FrameKind::kWrite || header.kind == FrameKind::kReadRequest || IsAtomic(header.kind);
    if (frame.grant >= 0 && names_grant) {
      const auto grant = static_cast<size_t>(frame.grant);
      header.key ^= victim.told[grant].rkey;
      header.address = victim.told[grant].address + offset;
    }
    const bool takes_payload = header.kind == FrameKind::kSend || header.kind == FrameKind::kWrite ||
                               header.kind == FrameKind::kReadResponse ||
                               header.kind == FrameKind::kFarewell || header.kind == FrameKind::kPush ||
                               IsAtomic(header.kind);
    // What the reader will take for the payload, and no more: what follows is the next frame. Where it is
    // less, there is no next frame.
    const size_t wanted = takes_payload ? header.length_bytes : 0;
    if (frame.payload.size() > wanted) frame.payload.resize(wanted);
    bytes.append(reinterpret_cast<const char*>(&header), sizeof(header));
    bytes.append(frame.payload);
    model.Take(frame, offset, key_is_right);
    if (frame.payload.size() < wanted) break;
  }
  CheckOutcome(victim, Feed(victim, bytes, piece, staging_bytes), model.expected());
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  const auto from = [](std::initializer_list<int> bytes) {
    std::string seed;
    for (const int byte : bytes) seed.push_back(static_cast<char>(byte));
    return seed;
  };
  // Piece, staging, READ depth, receives, grants, requests, posted at once; then frames.
  return {
      {"sends", from({5, 1, 3, 2, 100, 0, 50, 0, 0, 0, 2, 0, 40, 0, 0, 6, 20, 0, 0})},
      {"send_waits", from({90, 9, 0, 1, 100, 0, 0, 0, 0, 0, 40, 0, 0})},
      {"write", from({17, 0, 0, 0, 1, 200, 0, 1, 0, 0, 1, 100, 0, 0, 50, 0, 0})},
      {"read_request", from({33, 4, 2, 0, 1, 200, 0, 0, 0, 0, 2, 100, 0, 0, 50, 0, 0, 2, 9, 0, 0, 0, 0, 0})},
      {"read_response",
       from({3, 2, 2, 0, 0, 2, 100, 0, 0, 40, 0, 0, 0, 129 + 3, 60, 0, 0, 3, 80, 0, 0, 3, 80, 0, 0})},
      {"refusal", from({8, 2, 2, 0, 0, 1, 100, 0, 1, 0, 5, 0, 0, 0})},
      // Posted at once; then a SEND, a push that is taken, a SEND, one that is dropped, and one too many.
      {"pushes", from({9,  2, 0, 2, 100, 0, 100, 0,   0,  0, 2, 0,   40, 0, 0, 241,
                       20, 1, 0, 0, 9,   0, 0,   240, 80, 2, 0, 241, 1,  0, 0})},
      // Two grants of all rights; fetch-and-add, compare-and-swap, one that is not aligned.
      {"atomics", from({9,  2, 2, 0,   2, 200, 0, 3, 100, 0, 3,   0, 0, 246, 0, 0, 0,
                        16, 0, 0, 250, 0, 0,   1, 8, 0,   0, 247, 0, 0, 0,   3, 0, 0})},
      {"spoiled_length", from({2, 2, 2, 1, 100, 0, 0, 0, 1, 0, 40, 0, 5, 255, 255, 255, 255})}};
}

}  // namespace hawser::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hawser::fuzz::RunOnce(data, size, 0);
  hawser::fuzz::RunOnce(data, size, 1);
  return 0;
}
