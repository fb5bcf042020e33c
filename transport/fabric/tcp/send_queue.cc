#include "hawser/transport/fabric/tcp/send_queue.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace hawser::fabric {

TcpSendQueue::TcpSendQueue(uint32_t depth, uint32_t read_depth)
    : depth_(depth),
      read_depth_(read_depth),
      reads_mask_(std::bit_ceil(std::max(read_depth, 1u)) - 1),
      reads_(new uint32_t[reads_mask_ + 1]()) {}

bool TcpSendQueue::RefuseAcknowledgement(uint32_t acknowledged) {
  violation_ = absl::StrCat("it acknowledged ", acknowledged, " requests of ", sent_number_,
                            " that were sent, ", acknowledged_, " of them acknowledged before (modulo 2^32)");
  return false;
}

bool TcpSendQueue::BeginReadResponse(const FrameHeader& header) {
  if (!reads_outstanding()) {
    violation_ = absl::StrCat("it answered a READ (number ", header.key, ", ", header.length_bytes,
                              " bytes) when none was outstanding");
    return false;
  }
  const Request& read = requests_[reads_[reads_answered_ & reads_mask_]];
  const uint32_t number = read.number;
  // Otherwise the peer could answer the READ and then refuse it, and the READ would complete twice.
  if (static_cast<int32_t>(acknowledged_ - number) <= 0) {
    violation_ =
        absl::StrCat("it answered READ ", number, " but acknowledged only ", acknowledged_, " requests");
    return false;
  }
  const uint32_t missing = read.length_bytes - read_bytes_in_;
  const uint32_t shortest = std::min(missing, kReadFragmentMin);
  const uint32_t longest = std::min(missing, kReadFragmentMax);
  if (header.key != number || header.address != read_bytes_in_ || header.length_bytes < shortest ||
      header.length_bytes > longest) {
    violation_ = absl::StrCat("it answered READ ", header.key, " at offset ", header.address, " with ",
                              header.length_bytes, " bytes, where READ ", number, " at offset ",
                              read_bytes_in_, " with ", shortest, " to ", longest, " bytes was due");
    return false;
  }
  return true;
}

bool TcpSendQueue::Nak(const FrameHeader& header) {
  const auto status = static_cast<CompletionStatus>(header.status);
  const bool status_known =
      status == CompletionStatus::kRemoteAccessError || status == CompletionStatus::kRemoteInvalidRequest ||
      status == CompletionStatus::kRemoteOperationError || status == CompletionStatus::kRnrRetryExceeded;
  const bool read_before_it =
      reads_outstanding() &&
      static_cast<int32_t>(requests_[reads_[reads_answered_ & reads_mask_]].number - header.key) < 0;
  if (header.key != acknowledged_ || acknowledged_ == sent_number_ || !status_known || read_before_it) {
    violation_ = absl::StrCat("it refused request ", header.key, " with status ", header.status, ", where ",
                              acknowledged_, " of ", sent_number_, " requests were acknowledged and ",
                              reads_sent_ - reads_answered_, " READs outstanding");
    return false;
  }
  (IsCopied(header.key) ? copied_refused_with_ : refused_with_) = status;
  return true;
}

// `number` is that of a request that was sent, and is not acknowledged.
bool TcpSendQueue::IsCopied(uint32_t number) const {
  uint32_t cursor = completed_;
  while (cursor != sent_ && static_cast<int32_t>(requests_[cursor].number - number) < 0) ++cursor;
  return cursor == sent_ || requests_[cursor].number != number;
}

size_t TcpSendQueue::SmallAnswerBytes(size_t missing) const {
  uint32_t next = reads_answered_;
  if (missing > 0) {
    if (requests_[reads_[next & reads_mask_]].length_bytes - read_bytes_in_ != missing) return 0;
    ++next;
  }
  size_t bytes = 0;
  for (; next != reads_sent_; ++next) {
    const uint32_t length_bytes = requests_[reads_[next & reads_mask_]].length_bytes;
    if (length_bytes > kSmallReadMax) break;
    bytes += sizeof(FrameHeader) + length_bytes;
  }
  return bytes;
}

size_t TcpSendQueue::ReadSink(size_t length_bytes, iovec* segments) const {
  const Request& read = requests_[reads_[reads_answered_ & reads_mask_]];
  size_t skip = read_bytes_in_;
  size_t count = 0;
  for (uint8_t i = 0; i < read.sge_count && length_bytes > 0; ++i) {
    const Request::Segment& segment = read.segments[i];
    if (skip >= segment.length_bytes) {
      skip -= segment.length_bytes;
      continue;
    }
    const size_t part = std::min<size_t>(segment.length_bytes - skip, length_bytes);
    segments[count++] = {segment.address + skip, part};
    length_bytes -= part;
    skip = 0;
  }
  return count;
}

void TcpSendQueue::AdvanceRead(size_t length_bytes) {
  read_bytes_in_ += static_cast<uint32_t>(length_bytes);
  Request& read = requests_[reads_[reads_answered_ & reads_mask_]];
  if (read_bytes_in_ < read.length_bytes) return;
  read.answered = true;
  ++reads_answered_;
  read_bytes_in_ = 0;
}

void TcpSendQueue::Deliver(uint32_t qp_num, bool flush, CompletionSpan& out) {
  while (!out.full() && Done(completed_)) {
    const Request& request = requests_[completed_++];
    if (!request.signaled) continue;
    out.Add(request.wr_id, qp_num, CompletionStatus::kSuccess, request.opcode, 0);
    retired_ = completed_;
  }
  if (!flush || Done(completed_)) return;
  if (refused_with_ != CompletionStatus::kSuccess && !out.full()) {
    const Request& request = requests_[completed_];
    out.Add(request.wr_id, qp_num, refused_with_, request.opcode, 0);
    refused_with_ = CompletionStatus::kSuccess;
    retired_ = completed_ + 1;  // Its completion covers the unsignaled requests before it.
  }
  while (!out.full() && retired_ != posted_) {
    const Request& request = requests_[retired_++];
    out.Add(request.wr_id, qp_num, CompletionStatus::kFlushed, request.opcode, 0);
  }
  // Keeps completed_ at or above retired_, so that Done() finds nothing any more.
  if (static_cast<int32_t>(retired_ - completed_) > 0) completed_ = retired_;
}

}  // namespace hawser::fabric
