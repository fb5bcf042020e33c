#ifndef HAWSER_TRANSPORT_CONNECTION_SEND_QUEUE_H_
#define HAWSER_TRANSPORT_CONNECTION_SEND_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hawser/base/cursor_ring.h"
#include "hawser/base/memcheck.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/connection/port.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/wire/message.h"

namespace hawser::transport {

// The owner of a SEND's memory.
class SendOwner {
 public:
  // The fabric has done with the SEND, and with its memory: it was sent, flushed, or never posted.
  virtual void OnSendCompleted() = 0;

 protected:
  ~SendOwner() = default;
};

// The owner of a READ.
class ReadOwner {
 public:
  // The READ of `bytes` has completed: the fabric no longer writes to its sink. Not `ok`: it failed, was
  // flushed or was never posted.
  virtual void OnReadCompleted(uint32_t bytes, bool ok) = 0;
  // For the text of an error.
  virtual uint16_t slot() const = 0;

 protected:
  ~ReadOwner() = default;
};

// Gather entries of one SEND; a message of more parts is copied together first.
inline constexpr size_t kSendSgeMax = 4;
static_assert(kSendSgeMax <= fabric::kSgeMax);

// Bytes that a connection pushes ahead of READs and that have not completed: whatever is sent next waits for
// them, answers to READs as well. 32 messages of 16 KiB.
inline constexpr uint64_t kAheadBytesMax = 512 * 1024;

// The work requests of one connection, from the moment they are wanted until they have completed: queued,
// posted as one chain by Flush(), retired by completions.
// Thread:   on the poller.
//
// Only one small SEND in 16 asks for a completion, since a completion costs both the NIC and us as much as a
// small message, which says that those before it have completed. A SEND that the fabric copies has none, but
// it counts while others wait for one: the SEND whose turn it is asks for a completion, and is not copied.
// What follows it in the turn is queued behind it, and the last of that asks for a completion, too: when both
// have come, nothing has not completed, and SENDs are copied again. No call waits for a completion: it is the
// peer's response that says that a message has arrived, and a completion may come long after that. Memory is
// another matter. A peer that answers what it has not received yet must not make us send whatever the memory
// holds next, so a message is released only when its SEND, or a later one, has completed.
class SendQueue {
 public:
  explicit SendQueue(Port& port) : port_(port) {}

  // `slots` and `read_depth` bound what can be wanted at once. Returns the send depth that the queue pair
  // needs: Depth().
  uint32_t Size(uint32_t slots, uint32_t read_depth);
  static uint32_t Depth(uint32_t slots, uint32_t read_depth);

  // A place for the next work request. False: as PushSend().
  bool MakeRoom();
  // Both are posted by the next Flush(). `signaled`: asks for a completion, whatever its turn; for large
  // messages, whose memory is wanted back soon. `owner`: null if its memory is the connection's.
  // `ends_rkey`: a grant of the peer's that it ends (fabric::Fabric::sends_end_grants()); 0: none.
  // False: there is no room, and the connection has failed; the owner is not called.
  bool PushSend(const fabric::Sge& sge, SendOwner* owner, bool signaled = false, uint32_t ends_rkey = 0);
  bool PushSend(absl::Span<const fabric::Sge> sges, SendOwner* owner, bool signaled, uint32_t ends_rkey = 0);
  bool PushRead(const fabric::Sge& sink, uint64_t remote_address, uint32_t rkey, ReadOwner* owner);
  // Behind the SEND that grants `data`, and names `remote_address` and `rkey`: sends it ahead
  // (fabric::Opcode::kPush). `owner` is that of the SEND, too, which then has none. Only if CanPushAhead().
  bool PushAhead(const fabric::Sge& data, uint64_t remote_address, uint32_t rkey, SendOwner* owner);
  // A SEND whose bytes the fabric copies (fabric::QueuePair::PostInline()): their memory is the caller's
  // again, and no completion comes. It leaves with the next Flush(). False: it is to be queued as any other,
  // because others are queued before it, the fabric does not copy it, or it has to ask for a completion.
  [[gnu::always_inline]] bool PostInline(absl::Span<const uint8_t> message) {
    if (!has_uncompleted()) [[likely]]
      return Copy(message);
    // The last one may have no signal. This one gets it, with a place, if its turn has come.
    const bool counts = !at(end_ - 1).signaled;
    if (posted_ != end_ || (counts && sends_since_signal_ + 1 >= signal_interval_)) {
      wants_completion_ = wants_completion_ || (copies_ && message.size() <= kCopiedMax);
      return false;
    }
    if (!Copy(message)) return false;
    if (counts) ++sends_since_signal_;
    return true;
  }
  // There is a place to spare, and few bytes are on their way ahead of READs: whatever is sent next waits for
  // them.
  bool CanPushAhead(uint64_t bytes) const {
    return ahead_bytes_ + bytes <= kAheadBytesMax && end_ - completed_ + wanted_at_once_ < places_max_;
  }

  // Posts what is queued, as far as the queue pair has room. Not OK: the queue pair is of no use any more.
  absl::Status Flush() {
    if (std::exchange(copied_, 0) != 0) port_.queue_pair().RingDoorbell();
    const bool wants_completion = std::exchange(wants_completion_, false);
    if (posted_ == end_) [[likely]]
      return absl::OkStatus();
    return PostQueued(wants_completion);
  }

  // Work request `number`, and with it every one before, has completed.
  void OnCompletion(uint32_t number, bool ok);

  // "a READ of 4096 bytes with rkey 77 for slot 3": for an error. It names no address of the peer's memory,
  // since it may reach others. `number` is outstanding.
  std::string Describe(uint32_t number) const;

  // When a READ last completed, or the first was posted. kNever: none is outstanding.
  int64_t reads_stand_still_since_ns() const { return reads_posted_ == 0 ? kNever : reads_moved_ns_; }
  // A READ is outstanding.
  std::string DescribeOldestRead() const;

  // Drops what was queued and not posted: the connection has failed.
  void DropQueued();

  // The queue pair is no more: what was posted ends as if it had failed.
  void Abandon() {
    if (outstanding() != 0) OnCompletion(posted_ - 1, /*ok=*/false);
  }

  // Something was wanted whose completion has not come.
  bool has_uncompleted() const { return completed_ != end_; }

  // Frees places that are not in use.
  void Trim() { ring_.Trim(completed_, end_); }

  // Each SEND asks for a completion from now on.
  void SignalAll() { signal_all_ = true; }

  // Of the queue pair: work requests, and grants, that are possible at once.
  uint32_t depth() const { return depth_; }

  bool has_queued() const { return queued() != 0; }
  uint32_t queued() const { return end_ - posted_ + copied_; }
  uint32_t outstanding() const { return posted_ - completed_; }

 private:
  struct Entry {
    fabric::Sge sges[kSendSgeMax];
    uint64_t remote_address = 0;  // READ, push: see fabric.h. SEND: stale; Flush() does not read it.
    ReadOwner* read = nullptr;    // Null: a SEND or a push.
    SendOwner* send = nullptr;    // SEND, push: its owner, if it has one.
    uint32_t rkey = 0;            // READ, push: as `remote_address`. SEND: what it ends.
    uint8_t sge_count = 0;
    bool signaled = false;
    bool ahead = false;  // A push, not a SEND.
  };

  Entry* Push();
  Entry* PushSend(size_t sge_count, SendOwner* owner, bool signaled, uint32_t rkey);
  // Something is queued. `wants_completion`: the last of it asks for one.
  absl::Status PostQueued(bool wants_completion);
  // For PostInline(); with nothing queued.
  [[gnu::always_inline]] bool Copy(absl::Span<const uint8_t> message) {
    if (signal_all_) [[unlikely]]
      return false;
    ExpectInitialized(message.data(), message.size());
    if (!port_.queue_pair().PostInline(message)) return false;
    copies_ = true;
    if (copied_++ == 0) port_.FlushLater();
    return true;
  }
  Entry& at(uint32_t number) { return ring_[number]; }
  const Entry& at(uint32_t number) const { return ring_[number]; }

  Port& port_;
  CursorRing<Entry> ring_;
  uint32_t places_max_ = 0;  // Of ring_. A power of two.
  uint32_t depth_ = 0;
  uint32_t wanted_at_once_ = 0;
  uint32_t signal_interval_ = 1;
  uint32_t sends_since_signal_ = 0;
  bool signal_all_ = false;
  bool copies_ = false;            // The fabric has copied SENDs.
  bool wants_completion_ = false;  // Something was queued that would be copied if all had completed.
  uint32_t copied_ = 0;            // Posted, and waiting for Flush(), with nothing queued before them.
  // Numbers of work requests, modulo 2^32: [completed_, posted_) belong to the fabric, [posted_, end_) wait
  // for Flush().
  uint32_t completed_ = 0;
  uint32_t posted_ = 0;
  uint32_t end_ = 0;
  uint64_t ahead_bytes_ = 0;    // Of pushes, queued or posted, and not completed.
  uint32_t reads_posted_ = 0;   // And not completed.
  int64_t reads_moved_ns_ = 0;  // When one completed, or the first was posted.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_SEND_QUEUE_H_
