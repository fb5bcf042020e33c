#ifndef HAWSER_TRANSPORT_FABRIC_TCP_RECEIVE_QUEUE_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_RECEIVE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "hawser/base/cursor_ring.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/tcp/frame.h"
#include "hawser/transport/fabric/tcp/grants.h"
#include "hawser/transport/fabric/tcp/send_queue.h"

namespace hawser::fabric {

// The responding half of a queue pair: its receive queue, the grants to the peer, and the answers to READs
// and atomics that the peer waits for. It trusts nothing: every number in a FrameHeader comes from the peer.
// Thread:   that of the queue pair.
class TcpReceiveQueue {
 public:
  // `qp_num` makes rkeys of different queue pairs differ.
  TcpReceiveQueue(const QueuePairOptions& options, uint32_t qp_num);

  GrantTable& grants() { return grants_; }
  void set_read_depth(uint32_t read_depth) { read_depth_ = read_depth; }

  // Posting: reserve places, place each work request of a chain, then post all or none. Only if there is
  // room.
  uint32_t depth() const { return depth_; }
  uint32_t room() const { return depth_ - (posted_ - delivered_); }
  void Reserve(uint32_t count) { receives_.Reserve(delivered_, posted_, count); }
  void Place(uint32_t index, const ReceiveWorkRequest& request) {
    receives_[posted_ + index] = {request.wr_id, request.buffer.address, request.buffer.length, 0,
                                  CompletionStatus::kSuccess};
  }
  void Post(uint32_t count) { posted_ += count; }
  bool has_receive() const { return filled_ != posted_; }
  // What the posted receives can take, if they are all as long as the first, with their headers.
  size_t room_bytes() const {
    return has_receive() ? size_t{posted_ - filled_} * (receives_[filled_].length_bytes + sizeof(FrameHeader))
                         : 0;
  }
  // See QueuePair::WithdrawReceives(). `receiving`: a part of a SEND is in the oldest that is not filled.
  uint32_t Withdraw(absl::Span<uint64_t> wr_ids, bool receiving);
  // Frees places that are not in use.
  void Trim() { receives_.Trim(delivered_, posted_); }

  // Executing.
  enum class Verdict {
    kOk,
    kNotReady,   // A SEND, and no receive is posted.
    kRefused,    // A NAK is due; nothing more is executed.
    kViolation,  // See reason().
  };
  // kOk: the payload goes to `*target`, then Finish...() follows.
  Verdict BeginSend(const FrameHeader& header, uint8_t** target);
  void FinishSend(uint32_t length_bytes, uint8_t flags) {
    receives_[filled_++].filled_bytes = length_bytes;
    push_is_due_ = (flags & kPushFollowsFlag) != 0;
    Executed(flags);
  }
  // The same for a SEND that has come whole, that CanTake(), and that no push follows, or whose push is
  // offered with it: ExecuteSend(), then FillReceive(), unless the handler of the connection takes it
  // (ConnectionHandler::TakeSend()). It is offered to the handler only if MayOffer().
  void ExecuteSend(uint8_t flags) { Executed(flags); }
  void FillReceive(const uint8_t* payload, uint32_t length_bytes) {
    if (filled_ == posted_) [[unlikely]]
      EndForWithdrawn();
    Receive& receive = receives_[filled_++];
    std::memcpy(receive.address, payload, length_bytes);
    receive.filled_bytes = length_bytes;
  }
  // Longer ones are so many fewer that the copy to their receive does not matter.
  static constexpr uint32_t kOfferedBytesMax = 512;
  bool MayOffer(uint32_t length_bytes) const {
    return delivered_ == filled_ && length_bytes <= kOfferedBytesMax;
  }
  bool CanTake(uint32_t length_bytes) const {
    return filled_ != posted_ && !push_is_due_ && length_bytes != 0 &&
           length_bytes <= receives_[filled_].length_bytes;
  }
  // The last SEND announced a push, and is not delivered until that comes.
  bool push_is_due() const { return push_is_due_; }
  void PushHasCome() { push_is_due_ = false; }
  Verdict BeginWrite(const FrameHeader& header, uint8_t** target);
  void FinishWrite(uint8_t flags) { Executed(flags); }
  void FinishPush(uint8_t flags) { Executed(flags); }
  Verdict AcceptRead(const FrameHeader& header);
  // As BeginWrite(), of the operands. FinishAtomic() executes it, and its answer is due.
  Verdict BeginAtomic(const FrameHeader& header, uint8_t** target);
  void FinishAtomic(FrameKind kind);

  // A NAK with `status` will go out behind the answers that are due; `reason` is for this side.
  void Refuse(CompletionStatus status, std::string reason);
  const std::string& reason() const { return reason_; }
  CompletionStatus nak_status() const { return nak_status_; }

  // Answering.
  uint32_t executed() const { return executed_; }
  bool ack_due() const { return ack_due_; }
  void set_ack_due(bool due) { ack_due_ = due; }

  bool has_answer() const { return answers_done_ != answers_accepted_; }
  // The next answer is from memory that its owner may change meanwhile: it crosses in whole words, and what
  // is left of a word of which a part is on the wire is kept in cut_word().
  bool answers_in_words() const { return answer(answers_done_).in_words; }
  uint8_t* cut_word() { return reinterpret_cast<uint8_t*>(answer(answers_done_).operands); }
  // Returns the next fragment's header and memory; moves past it.
  FrameHeader NextFragment(const uint8_t** data) const;
  void MarkFragmentSent();
  uint32_t answers_done() const { return answers_done_; }
  uint32_t answer_offset() const { return answer_offset_; }
  // The bytes of all answers, as far as they were sent.
  uint64_t answered_bytes() const { return bytes_done_ + answer_offset_; }
  void RewindAnswers(uint32_t answers_done, uint32_t answer_offset) {
    while (answers_done_ != answers_done) bytes_done_ -= answer(--answers_done_).length_bytes;
    answer_offset_ = answer_offset;
  }
  // An accepted READ with this key is not answered in full yet.
  bool IsAnswering(uint32_t rkey) const;

  bool nak_due() const { return nak_due_; }
  void set_nak_due(bool due) { nak_due_ = due; }
  FrameHeader Nak() const;

  // Completing, as TcpSendQueue::Deliver().
  void Deliver(uint32_t qp_num, bool flush, CompletionSpan& out);
  bool HasCompletions(bool flush) const { return delivered_ != (flush ? posted_ : complete()); }

 private:
  // Not inlined, so that a read has no room on its stack for the text.
  [[noreturn, gnu::noinline, gnu::cold]] static void EndForWithdrawn();

  struct Receive {
    uint64_t wr_id = 0;
    uint8_t* address = nullptr;
    uint32_t length_bytes = 0;
    uint32_t filled_bytes = 0;
    CompletionStatus status = CompletionStatus::kSuccess;
  };
  struct Answer {
    uint8_t* address = nullptr;
    uint32_t length_bytes = 0;
    uint32_t number = 0;
    uint32_t rkey = 0;  // 0: of an atomic that was executed, and needs the granted memory no longer.
    bool in_words = false;
    // Of an atomic. Once it was executed, the first is its answer. Of a READ in words: cut_word().
    uint64_t operands[2] = {0, 0};
  };

  uint32_t complete() const { return filled_ - (push_is_due_ ? 1 : 0); }
  Answer& answer(uint32_t cursor) { return answers_[cursor & answers_mask_]; }
  const Answer& answer(uint32_t cursor) const { return answers_[cursor & answers_mask_]; }
  void Executed(uint8_t flags) {
    ++executed_;
    if (flags & kAckRequestedFlag) ack_due_ = true;
  }
  Verdict Violation(const FrameHeader& header, const char* what);
  bool HasRoomToAnswer();
  uint32_t FragmentBytes() const;

  const uint32_t depth_;
  uint32_t read_depth_;
  const uint32_t answers_mask_;
  CursorRing<Receive> receives_;
  std::unique_ptr<Answer[]> answers_;  // Null until the first READ or atomic.
  GrantTable grants_;

  uint32_t posted_ = 0;     // Receives posted,
  uint32_t filled_ = 0;     // of them filled by a SEND,
  uint32_t delivered_ = 0;  // of them completed.
  uint32_t executed_ = 0;
  uint32_t answers_accepted_ = 0;
  uint32_t answers_done_ = 0;
  uint64_t bytes_done_ = 0;     // Sum of those that are done.
  uint32_t answer_offset_ = 0;  // In the first that is not done.
  bool push_is_due_ = false;
  bool ack_due_ = false;
  bool nak_due_ = false;
  CompletionStatus nak_status_ = CompletionStatus::kSuccess;
  std::string reason_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_RECEIVE_QUEUE_H_
