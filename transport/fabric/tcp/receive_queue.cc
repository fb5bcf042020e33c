#include "hawser/transport/fabric/tcp/receive_queue.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hawser/base/check.h"
#include "hawser/transport/fabric/tcp/atomic.h"

namespace hawser::fabric {

void TcpReceiveQueue::EndForWithdrawn() {
  hawser::internal::CheckFailed(__FILE__, __LINE__, "filled_ < posted_",
                                "a receive was withdrawn by a handler that did not take a SEND");
}

TcpReceiveQueue::TcpReceiveQueue(const QueuePairOptions& options, uint32_t qp_num)
    : depth_(options.receive_depth),
      read_depth_(options.read_depth),
      answers_mask_(std::bit_ceil(std::max(options.read_depth, 1u)) - 1),
      // Any odd factor far from a power of two spreads consecutive numbers over the 16 bits of a generation.
      grants_(qp_num * 40503u) {}

uint32_t TcpReceiveQueue::Withdraw(absl::Span<uint64_t> wr_ids, bool receiving) {
  const uint32_t count =
      std::min(static_cast<uint32_t>(wr_ids.size()), posted_ - filled_ - (receiving ? 1 : 0));
  for (uint32_t i = 0; i < count; ++i) wr_ids[i] = receives_[--posted_].wr_id;
  return count;
}

TcpReceiveQueue::Verdict TcpReceiveQueue::Violation(const FrameHeader& header, const char* what) {
  reason_ = absl::StrFormat("it sent a %s of %u bytes", what, header.length_bytes);
  return Verdict::kViolation;
}

TcpReceiveQueue::Verdict TcpReceiveQueue::BeginSend(const FrameHeader& header, uint8_t** target) {
  if (header.length_bytes == 0 || header.length_bytes > kMessageBytesMax) return Violation(header, "SEND");
  if (filled_ == posted_) return Verdict::kNotReady;
  Receive& receive = receives_[filled_];
  if (header.length_bytes > receive.length_bytes) {
    receive.status = CompletionStatus::kLocalError;  // IBV_WC_LOC_LEN_ERR
    ++filled_;
    Refuse(CompletionStatus::kRemoteInvalidRequest,
           absl::StrCat("its SEND of ", header.length_bytes, " bytes met a posted receive of ",
                        receive.length_bytes));
    return Verdict::kRefused;
  }
  *target = receive.address;
  return Verdict::kOk;
}

TcpReceiveQueue::Verdict TcpReceiveQueue::BeginWrite(const FrameHeader& header, uint8_t** target) {
  if (header.length_bytes == 0 || header.length_bytes > kMessageBytesMax) return Violation(header, "WRITE");
  *target = grants_.Resolve(header.key, header.address, header.length_bytes, QueuePair::Access::kWrite);
  if (*target == nullptr) {
    Refuse(CompletionStatus::kRemoteAccessError,
           absl::StrFormat("its WRITE to [0x%x, +%u) with rkey 0x%x is not inside anything granted to it",
                           header.address, header.length_bytes, header.key));
    return Verdict::kRefused;
  }
  return Verdict::kOk;
}

TcpReceiveQueue::Verdict TcpReceiveQueue::AcceptRead(const FrameHeader& header) {
  if (header.length_bytes == 0 || header.length_bytes > kMessageBytesMax) return Violation(header, "READ");
  if (!HasRoomToAnswer()) return Verdict::kRefused;
  uint8_t* const memory =
      grants_.Resolve(header.key, header.address, header.length_bytes, QueuePair::Access::kRead);
  if (memory == nullptr) {
    Refuse(CompletionStatus::kRemoteAccessError,
           absl::StrFormat("its READ of [0x%x, +%u) with rkey 0x%x is not inside anything granted to it",
                           header.address, header.length_bytes, header.key));
    return Verdict::kRefused;
  }
  if (!grants_.CountRead(header.key, header.length_bytes)) {
    Refuse(CompletionStatus::kRemoteAccessError,
           absl::StrFormat("its READ of [0x%x, +%u) with rkey 0x%x is one too many: it has READ what it was "
                           "granted %u times over",
                           header.address, header.length_bytes, header.key, GrantTable::kReadsOfEachByteMax));
    return Verdict::kRefused;
  }
  const bool in_words = grants_.Resolve(header.key, header.address, header.length_bytes,
                                        QueuePair::Access::kReadRepeatedly) != nullptr;
  answer(answers_accepted_++) = {memory, header.length_bytes, executed_, header.key, in_words};
  Executed(0);
  return Verdict::kOk;
}

TcpReceiveQueue::Verdict TcpReceiveQueue::BeginAtomic(const FrameHeader& header, uint8_t** target) {
  if (header.length_bytes != OperandBytes(header.kind)) return Violation(header, "payload for an atomic");
  if (!HasRoomToAnswer()) return Verdict::kRefused;
  uint8_t* const memory =
      grants_.Resolve(header.key, header.address, kAtomicBytes, QueuePair::Access::kAtomic);
  if (memory == nullptr) {
    Refuse(CompletionStatus::kRemoteAccessError,
           absl::StrFormat("its atomic on [0x%x, +8) with rkey 0x%x is not inside anything granted to it",
                           header.address, header.key));
    return Verdict::kRefused;
  }
  // A grant for atomics begins at a multiple of 8, here and as the peer sees it.
  if (header.address % kAtomicBytes != 0) {
    Refuse(CompletionStatus::kRemoteInvalidRequest,
           absl::StrFormat("its atomic on address 0x%x, which is no multiple of 8", header.address));
    return Verdict::kRefused;
  }
  Answer& next = answer(answers_accepted_);
  next = {memory, kAtomicBytes, executed_, header.key};
  *target = reinterpret_cast<uint8_t*>(next.operands);
  return Verdict::kOk;
}

void TcpReceiveQueue::FinishAtomic(FrameKind kind) {
  Answer& next = answer(answers_accepted_++);
  next.operands[0] = ExecuteAtomic(kind, next.address, next.operands);
  next.address = reinterpret_cast<uint8_t*>(next.operands);
  next.rkey = 0;
  Executed(0);
}

// For a READ or atomic more. False: it was refused.
bool TcpReceiveQueue::HasRoomToAnswer() {
  if (answers_accepted_ - answers_done_ == read_depth_) {
    Refuse(CompletionStatus::kRemoteInvalidRequest,
           absl::StrCat("it has more READs outstanding than the ", read_depth_, " agreed"));
    return false;
  }
  if (answers_ == nullptr) answers_.reset(new Answer[answers_mask_ + 1]);
  return true;
}

void TcpReceiveQueue::Refuse(CompletionStatus status, std::string reason) {
  nak_due_ = true;
  nak_status_ = status;
  reason_ = std::move(reason);
}

uint32_t TcpReceiveQueue::FragmentBytes() const {
  const Answer& next = answer(answers_done_);
  const uint32_t left = next.length_bytes - answer_offset_;
  if (!next.in_words) return std::min(left, kReadFragmentMax);
  // Ends with a word.
  const auto into_word = reinterpret_cast<uintptr_t>(next.address + answer_offset_) % kAtomicBytes;
  return std::min(left, kWordFragmentMax - static_cast<uint32_t>(into_word));
}

FrameHeader TcpReceiveQueue::NextFragment(const uint8_t** data) const {
  const Answer& next = answer(answers_done_);
  *data = next.address + answer_offset_;
  return {.kind = FrameKind::kReadResponse,
          .length_bytes = FragmentBytes(),
          .key = next.number,
          .address = answer_offset_};
}

void TcpReceiveQueue::MarkFragmentSent() {
  const Answer& next = answer(answers_done_);
  answer_offset_ += FragmentBytes();
  if (answer_offset_ < next.length_bytes) return;
  bytes_done_ += next.length_bytes;
  ++answers_done_;
  answer_offset_ = 0;
}

bool TcpReceiveQueue::IsAnswering(uint32_t rkey) const {
  for (uint32_t i = answers_done_; i != answers_accepted_; ++i) {
    if (answer(i).rkey == rkey) return true;
  }
  return false;
}

FrameHeader TcpReceiveQueue::Nak() const {
  return {.kind = FrameKind::kNak, .status = static_cast<uint8_t>(nak_status_), .key = executed_};
}

void TcpReceiveQueue::Deliver(uint32_t qp_num, bool flush, CompletionSpan& out) {
  for (; !out.full() && delivered_ != complete(); ++delivered_) {
    const Receive& receive = receives_[delivered_];
    out.Add(receive.wr_id, qp_num, receive.status, Opcode::kReceive, receive.filled_bytes);
  }
  if (!flush) return;
  for (; !out.full() && delivered_ != posted_; ++delivered_) {
    out.Add(receives_[delivered_].wr_id, qp_num, CompletionStatus::kFlushed, Opcode::kReceive, 0);
  }
  if (static_cast<int32_t>(delivered_ - filled_) > 0) filled_ = delivered_;
}

}  // namespace hawser::fabric
