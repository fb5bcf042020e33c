#ifndef HAWSER_TRANSPORT_FABRIC_TCP_SEND_QUEUE_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_SEND_QUEUE_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "hawser/base/cursor_ring.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/tcp/frame.h"

namespace hawser::fabric {

// The array that Poll() fills with completions.
struct CompletionSpan {
  bool full() const { return next == end; }
  void Add(uint64_t wr_id, uint32_t qp_num, CompletionStatus status, Opcode opcode, uint32_t byte_len) {
    *next++ = {wr_id, qp_num, status, opcode, byte_len};
  }

  Completion* next;
  Completion* end;
};

// The requesting half of a queue pair: its send queue. A request is posted -> sent -> acknowledged (READ and
// atomic: answered) -> completed. An atomic is a READ of 8 bytes here, whose frame has operands. A cursor
// counts what was posted, modulo 2^32. A number counts requests as frame.h does. Both begin at 0. They differ
// by the SENDs that were copied: these have numbers, but no places here.
// Thread:   that of the queue pair.
class TcpSendQueue {
 public:
  struct Request {
    uint64_t wr_id = 0;
    uint64_t remote_address = 0;  // SEND: 0.
    uint32_t rkey = 0;            // SEND: 0.
    uint32_t length_bytes = 0;
    uint32_t number = 0;
    Opcode opcode = Opcode::kSend;
    bool signaled : 1 = false;
    bool answered : 1 = false;      // READ, atomic: all of its bytes have arrived.
    bool push_follows : 1 = false;  // SEND: was posted together with the push behind it.
    uint8_t sge_count = 0;
    struct Segment {
      uint8_t* address = nullptr;
      uint32_t length_bytes = 0;
    } segments[kSgeMax];

    // Atomic: what its frame carries, in the place of segments that it has not.
    uint8_t* operands() { return reinterpret_cast<uint8_t*>(&segments[1]); }
    const uint8_t* operands() const { return reinterpret_cast<const uint8_t*>(&segments[1]); }
    static_assert(sizeof(Segment) >= 2 * sizeof(uint64_t) && kSgeMax > 1);
  };

  TcpSendQueue(uint32_t depth, uint32_t read_depth);

  // Both sides' minimum, at most what the constructor was given.
  void set_read_depth(uint32_t read_depth) { read_depth_ = read_depth; }
  uint32_t read_depth() const { return read_depth_; }

  // Posting: reserve places, place each work request of a chain, `length_bytes` long, then post all or none.
  // Only if there is room.
  uint32_t depth() const { return depth_; }
  uint32_t room() const { return depth_ - (posted_ - retired_); }
  void Reserve(uint32_t count) { requests_.Reserve(retired_, posted_, count); }
  // Frees places that are not in use.
  void Trim() { requests_.Trim(retired_, posted_); }
  void Place(uint32_t index, const SendWorkRequest& request, uint32_t length_bytes) {
    Request& placed = requests_[posted_ + index];
    placed.wr_id = request.wr_id;
    // HeaderOf() writes both into the frame. Whatever the caller left in a SEND is not for the peer.
    const bool names_memory = request.opcode != Opcode::kSend;
    placed.remote_address = names_memory ? request.remote_address : 0;
    placed.rkey = names_memory ? request.rkey : 0;
    placed.length_bytes = length_bytes;
    placed.number = next_number_ + index;
    placed.opcode = request.opcode;
    placed.signaled = request.signaled;
    placed.answered = false;
    placed.push_follows = false;
    placed.sge_count = static_cast<uint8_t>(request.sges.size());
    for (size_t i = 0; i < request.sges.size(); ++i) {
      placed.segments[i] = {request.sges[i].address, request.sges[i].length};
    }
  }
  // For an atomic that was placed.
  void PlaceOperands(uint32_t index, const SendWorkRequest& request) {
    const uint64_t operands[2] = {request.compare_add, request.swap};
    std::memcpy(requests_[posted_ + index].operands(), operands, sizeof(operands));
  }
  // For a SEND: the next that was placed is a push.
  void MarkPushFollows(uint32_t index) { requests_[posted_ + index].push_follows = true; }
  void Post(uint32_t count) {
    posted_ += count;
    next_number_ += count;
  }
  // So many SENDs follow that were copied, and are sent before anything that is posted later. Only if
  // TakesCopied(). They count as sent although they are not on the wire yet, so a peer may acknowledge, or
  // refuse, what it has not received. It gains nothing: these have no memory that this could release.
  void PostCopied(uint32_t count) {
    next_number_ += count;
    sent_number_ += count;
  }
  // Everything that was posted is sent, and the peer acknowledges. A peer that never did could make the
  // numbers of later requests look acknowledged, after 2^31 of them: these would complete before they are
  // sent.
  bool TakesCopied() const { return sent_ == posted_ && sent_number_ - acknowledged_ < kUnacknowledgedMax; }
  static constexpr uint32_t kUnacknowledgedMax = 16 * 1024;

  // Sending: the next request that may go, or null. As on a NIC, a READ or an atomic beyond the READ depth
  // waits, and what was posted behind it too.
  const Request* NextToSend() const {
    if (sent_ == posted_) return nullptr;
    const Request& request = requests_[sent_];
    return IsAnswered(request.opcode) && reads_sent_ - reads_answered_ == read_depth_ ? nullptr : &request;
  }
  // A push was posted, and is not on the wire, or only in part. It looks at all that wait.
  bool HasPushToSend() const {
    uint32_t next = sent_;
    while (next != posted_ && requests_[next].opcode != Opcode::kPush) ++next;
    return next != posted_;
  }
  // The request at sent(), of which a part is on the wire.
  const Request& Sending() const { return requests_[sent_]; }
  void MarkSent() {
    if (IsAnswered(requests_[sent_].opcode)) reads_[reads_sent_++ & reads_mask_] = sent_;
    ++sent_;
    ++sent_number_;
  }
  // Without the length of an atomic's operands.
  FrameHeader HeaderOf(const Request& request) const {
    return {.kind = KindOf(request.opcode),
            .flags = static_cast<uint8_t>(
                (request.signaled && !IsAnswered(request.opcode) ? kAckRequestedFlag : 0) |
                (request.push_follows ? kPushFollowsFlag : 0)),
            .length_bytes = request.length_bytes,
            .key = request.rkey,
            .address = request.remote_address};
  }
  uint32_t sent() const { return sent_; }
  uint32_t reads_sent() const { return reads_sent_; }
  // Sets sent() and reads_sent() back: the socket did not accept what followed.
  void Rewind(uint32_t sent, uint32_t reads_sent) {
    sent_number_ -= sent_ - sent;
    sent_ = sent;
    reads_sent_ = reads_sent;
  }

  // From the peer's headers. False: it broke the protocol; see violation().
  bool Acknowledge(uint32_t acknowledged) {
    if (!MayAcknowledge(acknowledged)) return RefuseAcknowledgement(acknowledged);
    acknowledged_ = acknowledged;
    return true;
  }
  bool MayAcknowledge(uint32_t acknowledged) const {
    return acknowledged - acknowledged_ <= sent_number_ - acknowledged_;
  }
  uint32_t acknowledged() const { return acknowledged_; }
  bool BeginReadResponse(const FrameHeader& header);
  bool Nak(const FrameHeader& header);
  // Not kSuccess: a SEND that was copied was refused so. It has no completion.
  CompletionStatus copied_refused_with() const { return copied_refused_with_; }
  const std::string& violation() const { return violation_; }

  bool reads_outstanding() const { return reads_sent_ != reads_answered_; }
  // Changes whenever bytes of an answer arrive.
  uint64_t read_position() const { return uint64_t{reads_answered_} << 32 | read_bytes_in_; }
  // READs of at most so many bytes are answered in one fragment each.
  static constexpr uint32_t kSmallReadMax = kReadFragmentMin;
  // The bytes of the frames that answer the next READs, up to the first one that is not small. `missing`: of
  // a fragment that has arrived in part; 0: there is none.
  size_t SmallAnswerBytes(size_t missing) const;
  // Sets the destination of the next `length_bytes` of the current fragment. Returns the number of segments,
  // at most kSgeMax.
  size_t ReadSink(size_t length_bytes, iovec* segments) const;
  // These bytes have arrived.
  void AdvanceRead(size_t length_bytes);

  // Completing: adds as many as there is room for. `flush`: the queue pair is in error, so everything
  // completes.
  void Deliver(uint32_t qp_num, bool flush, CompletionSpan& out);
  bool HasCompletions(bool flush) const { return flush ? retired_ != posted_ : Done(completed_); }

 private:
  static FrameKind KindOf(Opcode opcode) { return kKinds[static_cast<size_t>(opcode)]; }
  static constexpr FrameKind kKinds[] = {FrameKind::kSend,        FrameKind::kWrite,
                                         FrameKind::kPush,        FrameKind::kReadRequest,
                                         FrameKind::kCompareSwap, FrameKind::kFetchAdd};
  bool Done(uint32_t cursor) const {
    if (cursor == posted_) return false;
    const Request& request = requests_[cursor];
    return IsAnswered(request.opcode) ? request.answered
                                      : static_cast<int32_t>(acknowledged_ - request.number) > 0;
  }
  bool RefuseAcknowledgement(uint32_t acknowledged);
  bool IsCopied(uint32_t number) const;

  const uint32_t depth_;
  uint32_t read_depth_;
  const uint32_t reads_mask_;
  uint32_t next_number_ = 0;  // Of what is posted next.
  CursorRing<Request> requests_;
  const std::unique_ptr<uint32_t[]> reads_;  // The cursors of the READs and atomics that are on the wire.

  // retired_ <= completed_ <= sent_ <= posted_. Between the first two: executed, but unsignaled, so they keep
  // their place.
  uint32_t posted_ = 0;
  uint32_t sent_ = 0;
  uint32_t completed_ = 0;
  uint32_t retired_ = 0;
  uint32_t sent_number_ = 0;   // Of the request at sent_.
  uint32_t acknowledged_ = 0;  // A number.
  uint32_t reads_sent_ = 0;
  uint32_t reads_answered_ = 0;
  uint32_t read_bytes_in_ = 0;  // For the oldest READ on the wire.
  CompletionStatus refused_with_ =
      CompletionStatus::kSuccess;  // If not kSuccess: what became of acknowledged_.
  CompletionStatus copied_refused_with_ = CompletionStatus::kSuccess;
  std::string violation_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_SEND_QUEUE_H_
