#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_SEND_RING_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_SEND_RING_H_

#include <cstdint>
#include <vector>

#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {

// The work requests in the send queue of an ibv_qp, oldest first: those of the caller and those of the
// fabric. A sequence number, modulo 2^32, identifies each, because after an error only the wr_id of a
// completion is valid.
// Thread:   that of the queue pair.
class VerbsSendRing {
 public:
  enum class Kind : uint8_t {
    kCaller,      // Of PostSend().
    kCopied,      // Of PostInline(): its caller is notified of nothing.
    kBind,        // BIND_MW of a Grant().
    kInvalidate,  // LOCAL_INV of a Revoke().
    kDrain,       // Posted last, to an ibv_qp in error: when it completes, everything has.
    kSilent,      // Of a PostSend() that failed halfway: to its caller nothing was posted.
  };
  struct Entry {
    uint64_t wr_id = 0;   // kCaller, kInvalidate: the caller's.
    uint32_t window = 0;  // kBind, kInvalidate: see VerbsGrants.
    uint32_t sink = 0;    // A READ: see VerbsSinks.
    Opcode opcode = Opcode::kSend;
    Kind kind = Kind::kCaller;
    bool signaled = false;   // The caller asked for a completion; kInvalidate, kDrain: always; others: some.
    bool completed = false;  // Out of order, see VerbsSendQueue::OnUnorderedCompletion().
    CompletionStatus status = CompletionStatus::kSuccess;
  };

  // `capacity` of the ibv_qp; `depth` of it are for kCaller and kCopied.
  VerbsSendRing(uint32_t depth, uint32_t capacity);

  uint32_t depth() const { return depth_; }
  uint32_t room() const { return depth_ - callers_; }              // For work requests of callers.
  uint32_t callers() const { return callers_; }                    // Outstanding ones of kCaller.
  uint32_t copied() const { return copied_; }                      // And of kCopied.
  uint32_t places() const { return depth_ - callers_ - copied_; }  // For both.
  uint32_t others() const { return posted_ - retired_ - callers_ - copied_; }
  bool empty() const { return retired_ == posted_; }
  bool Outstanding(uint32_t number) const { return number - retired_ < posted_ - retired_; }

  // Returns its number.
  uint32_t Push(const Entry& entry);
  // Removes the last `count`, which could not be posted.
  void Unpush(uint32_t count);

  // `number`, which is outstanding and of kCaller, becomes kSilent.
  void Silence(uint32_t number);

  void Complete(uint32_t number, CompletionStatus status) {
    entries_[number & mask_].completed = true;
    entries_[number & mask_].status = status;
  }

  uint32_t oldest() const { return retired_; }
  // The newest, or the newest of kCaller, is unsignaled, so its success is not reported.
  bool EndsSilently() const;
  const Entry& at(uint32_t number) const { return entries_[number & mask_]; }
  Entry& at(uint32_t number) { return entries_[number & mask_]; }
  // Removes the oldest. Not empty().
  Entry Retire();

 private:
  // Counts an entry that comes (1), or one that goes (-1).
  void Count(Kind kind, int change) {
    if (kind == Kind::kCaller) callers_ += static_cast<uint32_t>(change);
    if (kind == Kind::kCopied) copied_ += static_cast<uint32_t>(change);
  }

  const uint32_t depth_;
  std::vector<Entry> entries_;  // A power of two.
  const uint32_t mask_;
  uint32_t callers_ = 0;  // Outstanding ones of kCaller.
  uint32_t copied_ = 0;   // And of kCopied.
  uint32_t posted_ = 0;   // Numbers in [retired_, posted_) are outstanding.
  uint32_t retired_ = 0;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_SEND_RING_H_
