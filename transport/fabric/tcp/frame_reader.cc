#include "hawser/transport/fabric/tcp/frame_reader.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hawser::fabric {
namespace {

// Limits of one call, so that the other queue pairs get their turns. A limit of bytes alone would not bound
// the cost: while a READ is outstanding, a system call may return a single small frame, and with TLS each
// byte may be a record of its own (Stream::CostOf()). Whole fragments of READs reach the limit of bytes
// within eight system calls.
constexpr size_t kReadCostMax = 1024 * 1024;
constexpr int kReadCallsMax = 32;

// Bytes to read into staging from a peer of which nothing is known, and while pushes wait. From a peer that
// does not push the limit is higher by what the posted receives can take. The limit bounds what is held when
// a SEND finds no receive, which is heap memory that no pool counts.
constexpr size_t kStagedMin = 9 * 1024;

// The most bytes of pushes that wait for their destinations. At this limit the reader stops until they are
// taken or dropped. It still reads the rest of a short push: this costs one more copy, but many short pushes
// then share a Poll(). The rest of a long push is worth a Poll() of its own.
constexpr size_t kPushedBytesMax = 64 * 1024;
constexpr size_t kShortPushMax = WaitingPushes::kShortMax;

// From a peer that pushes: a short push with the SEND before it, since to copy it once more costs less than
// another system call. Of a long push little more than that SEND: the kernel copies the rest straight to its
// destination, so that it is copied once.
constexpr size_t kStagedOfShort = kShortPushMax + 1024;
constexpr size_t kStagedOfLong = 2 * 1024;

// Whether this kind of frame may have its flags, status and reserved bits. Few frames set any.
bool MaySet(const FrameHeader& header, bool takes_pushes) {
  const bool asks =
      header.kind == FrameKind::kSend || header.kind == FrameKind::kWrite || header.kind == FrameKind::kPush;
  const int flags = (asks ? kAckRequestedFlag : 0) |
                    (takes_pushes && header.kind == FrameKind::kSend ? kPushFollowsFlag : 0);
  return (header.flags & ~flags) == 0 && header.reserved == 0 &&
         (header.status == 0 || header.kind == FrameKind::kNak);
}

// `frame`: its bytes. A SEND that asks for an acknowledgement at most.
bool IsPlainSend(const uint8_t* frame) {
  uint32_t first;
  static_assert(offsetof(FrameHeader, kind) == 0 && offsetof(FrameHeader, flags) == 1 &&
                offsetof(FrameHeader, status) == 2 && offsetof(FrameHeader, reserved) == 3);
  std::memcpy(&first, frame, sizeof(first));
  return (first & ~(uint32_t{kAckRequestedFlag} << 8)) == static_cast<uint32_t>(FrameKind::kSend);
}

// At `next` is a SEND that has come whole, and behind it the beginning of the push that it announces.
bool IsSendWithPush(const uint8_t* next, const uint8_t* end, FrameHeader& send, FrameHeader& push) {
  std::memcpy(&send, next, sizeof(send));
  next += sizeof(send);
  if (send.kind != FrameKind::kSend || (send.flags & kPushFollowsFlag) == 0 ||
      send.length_bytes + sizeof(push) > static_cast<size_t>(end - next)) {
    return false;
  }
  std::memcpy(&push, next + send.length_bytes, sizeof(push));
  return push.kind == FrameKind::kPush;
}

// A request of the peer, but no push.
bool IsOtherRequest(FrameKind kind) {
  return kind == FrameKind::kSend || kind == FrameKind::kWrite || kind == FrameKind::kReadRequest ||
         IsAtomic(kind);
}

bool IsLengthOfPush(uint32_t length_bytes) { return length_bytes != 0 && length_bytes <= kPushBytesMax; }

bool MayOffer(const FrameHeader& send, const FrameHeader& push, const TcpReceiveQueue& receive_queue,
              const TcpSendQueue& send_queue, bool takes_pushes) {
  return receive_queue.CanTake(send.length_bytes) && receive_queue.MayOffer(send.length_bytes) &&
         MaySet(send, takes_pushes) && MaySet(push, takes_pushes) && IsLengthOfPush(push.length_bytes) &&
         push.acknowledged == send.acknowledged && send_queue.MayAcknowledge(push.acknowledged);
}

// Otherwise a peer could send any number of useless acknowledgements, and each costs this side time.
constexpr char kIdleAck[] = "it sent an acknowledgement frame that acknowledges nothing new";

std::string Kept(const uint8_t* next, const uint8_t* end) {
  return std::string(reinterpret_cast<const char*>(next), end - next);
}

// Copies `data` to the segments of a READ.
void Scatter(const uint8_t* data, const iovec* segments, size_t count) {
  for (; count > 0; data += segments->iov_len, ++segments, --count) {
    std::memcpy(segments->iov_base, data, segments->iov_len);
  }
}

// A field of the header that begins at `frame`.
uint32_t FieldOf(const uint8_t* frame, size_t offset) {
  uint32_t field;
  std::memcpy(&field, frame + offset, sizeof(field));
  return field;
}

// The peer would treat the following bytes as payload, and this side as the next frame.
std::string HasPayload(const FrameHeader& header) {
  return absl::StrCat("it sent a frame of kind ", static_cast<int>(header.kind),
                      ", which has no payload, with one of ", header.length_bytes, " bytes");
}

std::string UnknownKind(const FrameHeader& header) {
  return absl::StrCat("it sent a frame of unknown kind ", static_cast<int>(header.kind));
}

std::string HasWrongBits(const FrameHeader& header) {
  return absl::StrCat("it sent a frame of kind ", static_cast<int>(header.kind), " with flags ",
                      static_cast<int>(header.flags), ", status ", static_cast<int>(header.status),
                      " and reserved bits ", static_cast<int>(header.reserved));
}

std::string WrongPush(const FrameHeader& header, bool takes_pushes) {
  return takes_pushes && IsLengthOfPush(header.length_bytes)
             ? "it pushed before its first SEND, or twice behind one"
             : absl::StrCat("it pushed ", header.length_bytes, " bytes");
}

std::string WrongFarewell(const FrameHeader& header) {
  return absl::StrCat("it sent a farewell of ", header.length_bytes, " bytes");
}

// Why a Receive() has returned `n`, which is 0 or -1. kMore: a signal interrupted it. kDrained: there is
// nothing yet. kClosed: `error` is the errno with which the stream has failed, 0 at its end.
FrameReader::Result WhyNothing(ssize_t n, int& error) {
  const int why = n < 0 ? errno : 0;
  if (why == EINTR) return FrameReader::Result::kMore;
  if (why == EAGAIN || why == EWOULDBLOCK) return FrameReader::Result::kDrained;
  error = why;
  return FrameReader::Result::kClosed;
}

FrameReader::Result ReadAndDrop(Stream& stream, absl::Span<uint8_t> staging, int& error) {
  for (size_t cost = 0; cost < kReadCostMax;) {
    const iovec segment = {staging.data(), staging.size()};
    const ssize_t n = stream.Receive(&segment, 1);
    if (n <= 0) {
      const FrameReader::Result why = WhyNothing(n, error);
      if (why == FrameReader::Result::kMore) continue;
      return why;
    }
    if (stream.IsEmptyAfter(n, staging.size())) return FrameReader::Result::kDrained;
    cost += stream.CostOf(n);
  }
  return FrameReader::Result::kMore;
}

}  // namespace

// Returns kMore when it has parsed all of it. Called only when no payload is missing.
[[gnu::always_inline]] inline FrameReader::Result FrameReader::Parse(const uint8_t* next, const uint8_t* end,
                                                                     Taker* taker, const Stream* stream) {
  while (static_cast<size_t>(end - next) >= sizeof(FrameHeader)) {
    const uint8_t* const payload = next + sizeof(FrameHeader);
    if (IsPlainSend(next) && pushes_.empty()) [[likely]] {
      const uint32_t length_bytes = FieldOf(next, offsetof(FrameHeader, length_bytes));
      const uint32_t acknowledged = FieldOf(next, offsetof(FrameHeader, acknowledged));
      if (length_bytes <= static_cast<size_t>(end - payload) && receive_queue_.CanTake(length_bytes) &&
          send_queue_.MayAcknowledge(acknowledged)) [[likely]] {
        send_queue_.Acknowledge(acknowledged);
        payload_ = FrameKind::kSend;
        is_pushed_to_ = std::exchange(push_followed_, false);
        // Executed before it is offered: what is sent meanwhile acknowledges it.
        receive_queue_.ExecuteSend(next[offsetof(FrameHeader, flags)]);
        next = payload + length_bytes;
        if (taker != nullptr && receive_queue_.MayOffer(length_bytes)) [[likely]] {
          const bool taken = taker->handler.TakeSend({payload, length_bytes});
          taker->taken += taken ? 1 : 0;
          if (!stream->is_open() || taker->fork_mark.in_child()) [[unlikely]] {
            partial_bytes_ = 0;
            return Result::kDrained;
          }
          if (taken) [[likely]]
            continue;
        }
        receive_queue_.FillReceive(payload, length_bytes);
        continue;
      }
    }
    const Parsed other = ParseOther(next, end, taker, stream);
    if (other.result != Result::kMore) return other.result;
    next = other.next;
  }
  partial_bytes_ = static_cast<uint32_t>(end - next);
  if (partial_bytes_ != 0) std::memcpy(partial_, next, partial_bytes_);
  return Result::kMore;
}

// For a peer that pushes less is read into staging.
[[gnu::always_inline]] inline size_t FrameReader::StagedMax() const {
  if (is_pushed_to_) [[unlikely]]
    return pushes_are_long_ ? kStagedOfLong : kStagedOfShort;
  return kStagedMin + receive_queue_.room_bytes();
}

FrameReader::Result FrameReader::Read(Stream& stream, absl::Span<uint8_t> staging,
                                      TcpFabricCounters* counters, Taker* taker) {
  if (closed_) return Result::kClosed;
  if (payload_missing_ != 0 || partial_bytes_ != 0 || !pushes_.empty() || send_queue_.reads_outstanding())
      [[unlikely]] {
    return ReadOn(stream, staging, counters, taker, /*calls=*/0, /*cost=*/0);
  }
  // The usual read: nothing is under way, and all that comes is small.
  const size_t room = std::min(staging.size(), StagedMax());
  const iovec segment = {staging.data(), room};
  if (counters != nullptr) counters->receive_calls.fetch_add(1, std::memory_order_relaxed);
  const ssize_t n = stream.Receive(&segment, 1);
  if (n <= 0) return OnNothing(n, stream);
  emptied_ = stream.IsEmptyAfter(n, room);
  const Result result = Parse(staging.data(), staging.data() + n, taker, &stream);
  if (result != Result::kMore) return result;
  if (emptied_) return OrPushed(Result::kDrained);
  if (pushes_.bytes() >= kPushedBytesMax) return Result::kPushed;
  return ReadOn(stream, staging, counters, taker, /*calls=*/1, stream.CostOf(n));
}

FrameReader::Result FrameReader::ReadOn(Stream& stream, absl::Span<uint8_t> staging,
                                        TcpFabricCounters* counters, Taker* taker, int calls, size_t cost) {
  for (; calls < kReadCallsMax && cost < kReadCostMax; ++calls) {
    // Reads the rest of the payload, if there is one, to its destination. Reads what follows into staging,
    // behind the part of a header that is already there.
    iovec segments[kSgeMax + 1];
    size_t count = 0;
    // What is dropped passes through staging, and a WRITE, because the kernel would write parts of words.
    const bool drops = payload_ == FrameKind::kPush && target_ == nullptr;
    const bool is_staged = payload_missing_ > 0 && (drops || payload_ == FrameKind::kWrite);
    const size_t missing = is_staged ? 0 : payload_missing_;
    const bool answers = missing > 0 && payload_ == FrameKind::kReadResponse;
    if (answers) {
      count = send_queue_.ReadSink(missing, segments);
    } else if (missing > 0) {
      segments[count++] = {target_, missing};
    }
    const size_t kept = partial_bytes_;
    if (kept != 0) std::memcpy(staging.data(), partial_, kept);
    size_t staged_max = send_queue_.reads_outstanding()
                            ? sizeof(FrameHeader) + send_queue_.SmallAnswerBytes(answers ? missing : 0)
                            : StagedMax();
    if (!pushes_.empty()) staged_max = std::min(staged_max, kStagedMin);
    if (is_staged) staged_max += payload_missing_;
    const size_t room = std::min(staged_max, staging.size()) - kept;
    segments[count++] = {staging.data() + kept, room};

    if (counters != nullptr) counters->receive_calls.fetch_add(1, std::memory_order_relaxed);
    const ssize_t n = stream.Receive(segments, count);
    if (n <= 0) return OnNothing(n, stream);

    const size_t to_payload = std::min<size_t>(n, missing);
    if (to_payload > 0) {
      if (counters != nullptr && answers) {
        counters->read_bytes.fetch_add(to_payload, std::memory_order_relaxed);
      }
      Advance(to_payload);
    }
    emptied_ = stream.IsEmptyAfter(n, missing + room);
    cost += stream.CostOf(n);
    if (const size_t staged = n - to_payload; staged > 0) {
      const uint8_t* const end = staging.data() + kept + staged;
      const Result result =
          Parse(is_staged ? CopyPayload(staging.data(), end) : staging.data(), end, taker, &stream);
      if (counters != nullptr && copied_bytes_ > 0) {
        counters->read_bytes.fetch_add(copied_bytes_, std::memory_order_relaxed);
        counters->read_bytes_copied.fetch_add(std::exchange(copied_bytes_, 0), std::memory_order_relaxed);
      }
      if (result != Result::kMore) return result;
    }
    // Another read would only return EAGAIN.
    if (emptied_) return OrPushed(Result::kDrained);
    if (pushes_.bytes() >= kPushedBytesMax) return Result::kPushed;
  }
  return OrPushed(Result::kMore);
}

// A Receive() has returned `n`, which is 0 or -1.
FrameReader::Result FrameReader::OnNothing(ssize_t n, const Stream& stream) {
  const Result why = WhyNothing(n, error_);
  emptied_ = why == Result::kDrained && stream.IsEmptyAfter(n, 1);
  closed_ = why == Result::kClosed;
  return OrPushed(why == Result::kDrained && !emptied_ ? Result::kMore : why);
}

bool FrameReader::TakePush(WaitingPushes::Push& push, uint8_t* sink) {
  const uint32_t missing = &push == &pushes_.last() ? payload_missing_ : 0;
  const size_t here = WaitingPushes::Take(push, sink, missing);
  if (missing != 0) target_ = sink + here;
  return missing == 0;
}

FrameReader::Result FrameReader::ResumeAfterPushes() {
  // Only the last push can have missing bytes, because nothing behind it was parsed.
  if (!pushes_.last().is_taken) target_ = nullptr;
  pushes_.Clear();
  return held_.empty() ? Result::kMore : Resume();
}

FrameReader::Result FrameReader::Resume() {
  const std::string held = std::exchange(held_, {});
  const auto* const next = reinterpret_cast<const uint8_t*>(held.data());
  const Result result = Parse(next, next + held.size(), nullptr, nullptr);
  return result == Result::kMore && !pushes_.empty() ? Result::kPushed : result;
}

FrameReader::Result FrameReader::Discard(Stream& stream, absl::Span<uint8_t> staging) {
  return ReadAndDrop(stream, staging, error_);
}

bool FrameReader::TakeOfferedPush(uint8_t* sink) {
  std::memcpy(sink, std::exchange(offered_bytes_, nullptr), header_.length_bytes - payload_missing_);
  if (payload_missing_ != 0) target_ = sink + (header_.length_bytes - payload_missing_);
  return payload_missing_ == 0;
}

// As Parse() does with a SEND, and ParseOther() with a push, which is header_. What of the push has come is
// executed before the SEND is offered: what is sent meanwhile acknowledges it.
FrameReader::Parsed FrameReader::Offer(const FrameHeader& send, const uint8_t* next, const uint8_t* end,
                                       Taker& taker, const Stream& stream) {
  const uint8_t* const message = next + sizeof(send);
  const uint8_t* const bytes = message + send.length_bytes + sizeof(header_);
  const size_t here = std::min<size_t>(header_.length_bytes, end - bytes);
  send_queue_.Acknowledge(send.acknowledged);
  receive_queue_.ExecuteSend(send.flags);
  is_pushed_to_ = std::exchange(push_followed_, true);
  pushes_are_long_ = header_.length_bytes > kShortPushMax;
  payload_ = FrameKind::kPush;
  payload_missing_ = header_.length_bytes - static_cast<uint32_t>(here);
  target_ = nullptr;
  if (payload_missing_ == 0) receive_queue_.FinishPush(header_.flags);
  offered_bytes_ = bytes;
  const bool taken = taker.handler.TakeSend({message, send.length_bytes});
  offered_bytes_ = nullptr;
  taker.taken += taken ? 1 : 0;
  partial_bytes_ = 0;
  if (!stream.is_open() || taker.fork_mark.in_child()) [[unlikely]]
    return {Result::kDrained};
  if (taken) return {Result::kMore, bytes + here};
  receive_queue_.FillReceive(message, send.length_bytes);
  target_ = pushes_.Add(header_, bytes, here);
  const bool waits = payload_missing_ != 0 && target_ == nullptr;
  return {waits ? Result::kPushed : Result::kMore, bytes + here};
}

FrameReader::Parsed FrameReader::ParseOther(const uint8_t* next, const uint8_t* end, Taker* taker,
                                            const Stream* stream) {
  FrameHeader send;
  if (taker != nullptr && pushes_.empty() && IsSendWithPush(next, end, send, header_) &&
      MayOffer(send, header_, receive_queue_, send_queue_, takes_pushes_))
    return Offer(send, next, end, *taker, *stream);
  const uint8_t* const payload = next + sizeof(FrameHeader);
  std::memcpy(&header_, next, sizeof(header_));
  if (!pushes_.empty() && !MayFollowPushes(header_, end - next)) {
    held_ = Kept(next, end);
    partial_bytes_ = 0;
    return {Result::kPushed};
  }
  const uint32_t acknowledged_before = send_queue_.acknowledged();
  if (!send_queue_.Acknowledge(header_.acknowledged)) return {Violation(send_queue_.violation())};
  Result result = Begin(header_);
  if (result == Result::kPushed) {
    const size_t here = std::min<size_t>(header_.length_bytes, end - payload);
    payload_missing_ = header_.length_bytes - static_cast<uint32_t>(here);
    target_ = pushes_.Add(header_, payload, here);
    if (payload_missing_ == 0) receive_queue_.FinishPush(header_.flags);
    if (payload_missing_ == 0 || target_ != nullptr) return {Result::kMore, payload + here};
  }
  if (payload_ == FrameKind::kAck && header_.acknowledged == acknowledged_before && result == Result::kMore) {
    result = Violation(kIdleAck);
  }
  if (result == Result::kReceiverNotReady) held_ = Kept(next, end);
  if (result != Result::kMore) {
    partial_bytes_ = 0;
    return {result};
  }
  return {Result::kMore, CopyPayload(payload, end)};
}

// Allows one push behind each SEND, and none before the first. Otherwise a peer could push without bound,
// because pushes use no receives.
bool FrameReader::MayPush(const FrameHeader& header) const {
  return takes_pushes_ && !push_followed_ && IsLengthOfPush(header.length_bytes);
}

FrameReader::Result FrameReader::Begin(const FrameHeader& header) {
  payload_ = header.kind;
  if ((header.flags | header.status | header.reserved) != 0 && !MaySet(header, takes_pushes_)) {
    return Violation(HasWrongBits(header));
  }
  if (IsOtherRequest(header.kind) && receive_queue_.push_is_due()) {
    return Violation("it sent another request in place of the push that its SEND announced");
  }
  TcpReceiveQueue::Verdict verdict = TcpReceiveQueue::Verdict::kOk;
  switch (header.kind) {
    case FrameKind::kSend:
      verdict = receive_queue_.BeginSend(header, &target_);
      // A SEND that waits for a receive reaches this line again.
      if (verdict == TcpReceiveQueue::Verdict::kOk) is_pushed_to_ = std::exchange(push_followed_, false);
      break;
    case FrameKind::kWrite:
      verdict = receive_queue_.BeginWrite(header, &target_);
      break;
    case FrameKind::kReadRequest:
      verdict = receive_queue_.AcceptRead(header);
      break;
    case FrameKind::kReadResponse:
      if (!send_queue_.BeginReadResponse(header)) return Violation(send_queue_.violation());
      break;
    case FrameKind::kAck:
      if (header.length_bytes != 0) return Violation(HasPayload(header));
      break;
    case FrameKind::kNak:
      if (header.length_bytes != 0) return Violation(HasPayload(header));
      return send_queue_.Nak(header) ? Result::kNak : Violation(send_queue_.violation());
    case FrameKind::kPush:
      if (!MayPush(header)) return Violation(WrongPush(header, takes_pushes_));
      push_followed_ = true;
      pushes_are_long_ = header.length_bytes > kShortPushMax;
      receive_queue_.PushHasCome();
      return Result::kPushed;
    case FrameKind::kCompareSwap:
    case FrameKind::kFetchAdd:
      if (!takes_atomics_) return Violation(UnknownKind(header));
      verdict = receive_queue_.BeginAtomic(header, &target_);
      break;
    case FrameKind::kFarewell:
      if (header.length_bytes == 0 || header.length_bytes > kFarewellBytesMax) {
        return Violation(WrongFarewell(header));
      }
      // Nothing answers a farewell, so a peer could send any number of them, and each costs this side time.
      if (!farewell_.empty()) return Violation("it sent a second farewell");
      farewell_.assign(header.length_bytes, '\0');
      target_ = reinterpret_cast<uint8_t*>(&farewell_[0]);
      break;
    default:
      return Violation(UnknownKind(header));
  }
  switch (verdict) {
    case TcpReceiveQueue::Verdict::kOk:
      break;
    case TcpReceiveQueue::Verdict::kNotReady:
      return Result::kReceiverNotReady;
    case TcpReceiveQueue::Verdict::kRefused:
      return Result::kRefused;
    case TcpReceiveQueue::Verdict::kViolation:
      return Violation(receive_queue_.reason());
  }
  const bool has_payload = header.kind != FrameKind::kReadRequest && header.kind != FrameKind::kAck;
  payload_missing_ = has_payload ? header.length_bytes : 0;
  return Result::kMore;
}

// `length_bytes` more of the payload are at their destination.
void FrameReader::Advance(size_t length_bytes) {
  payload_missing_ -= static_cast<uint32_t>(length_bytes);
  if (payload_ == FrameKind::kReadResponse) {
    send_queue_.AdvanceRead(length_bytes);
    return;
  }
  if (target_ != nullptr) target_ += length_bytes;
  if (payload_missing_ > 0) return;
  if (payload_ == FrameKind::kSend) {
    receive_queue_.FinishSend(header_.length_bytes, header_.flags);
  } else if (payload_ == FrameKind::kWrite) {
    receive_queue_.FinishWrite(header_.flags);
  } else if (payload_ == FrameKind::kPush) {
    receive_queue_.FinishPush(header_.flags);
  } else if (IsAtomic(payload_)) {
    receive_queue_.FinishAtomic(payload_);
  }
}

// Copies the part of the payload that has arrived. Of a WRITE that goes on it leaves the bytes of a word that
// is not complete, so that others see each word that the WRITE covers as a whole as it was or as it is to be.
// (Of the words at its ends, of which it changes a part, they may see some of these bytes changed.) Returns
// what follows: of a WRITE that goes on, fewer bytes than a word.
const uint8_t* FrameReader::CopyPayload(const uint8_t* next, const uint8_t* end) {
  size_t length_bytes = std::min<size_t>(payload_missing_, end - next);
  if (payload_ == FrameKind::kWrite && length_bytes < payload_missing_) {
    length_bytes -= std::min(length_bytes, BytesOfLastWord(target_ + length_bytes));
  }
  if (length_bytes == 0) return next;
  if (payload_ == FrameKind::kReadResponse) {  // Of a small READ. Counted, so that a test detects others.
    copied_bytes_ += length_bytes;
    iovec segments[kSgeMax];
    const size_t count = send_queue_.ReadSink(length_bytes, segments);
    Scatter(next, segments, count);
  } else if (payload_ == FrameKind::kWrite) {
    StoreWords(target_, next, length_bytes);
  } else if (target_ != nullptr) {
    std::memcpy(target_, next, length_bytes);
  }
  Advance(length_bytes);
  return next + length_bytes;
}

// While pushes wait, the reader accepts only more pushes, and SENDs that are complete and find a receive. Any
// frame that could wait, or end the connection, must wait until the pushes are taken or dropped.
bool FrameReader::MayFollowPushes(const FrameHeader& header, size_t bytes) const {
  if (!MaySet(header, takes_pushes_) || !send_queue_.MayAcknowledge(header.acknowledged)) return false;
  if (header.kind == FrameKind::kPush) return MayPush(header);
  return header.kind == FrameKind::kSend && header.length_bytes <= bytes - sizeof(FrameHeader) &&
         receive_queue_.CanTake(header.length_bytes);
}

FrameReader::Result FrameReader::Violation(const std::string& what) {
  violation_ = what;
  return Result::kViolation;
}

}  // namespace hawser::fabric
