#ifndef HAWSER_TRANSPORT_FABRIC_TCP_FRAME_READER_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_FRAME_READER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "hawser/base/fork.h"
#include "hawser/transport/fabric/tcp/atomic.h"
#include "hawser/transport/fabric/tcp/frame.h"
#include "hawser/transport/fabric/tcp/options.h"
#include "hawser/transport/fabric/tcp/receive_queue.h"
#include "hawser/transport/fabric/tcp/send_queue.h"
#include "hawser/transport/fabric/tcp/stream.h"
#include "hawser/transport/fabric/tcp/waiting_pushes.h"

namespace hawser::fabric {

// Offers SENDs to the handler of the connection, which may close the stream meanwhile, or call fork(). What
// follows is void then (in the child), and the result is kDrained.
struct SendTaker {
  ConnectionHandler& handler;
  const ForkMark& fork_mark;
  uint32_t taken = 0;
};

// Reads frames from a queue pair's stream and passes them to its two queues. Small payloads go through a
// staging buffer that all queue pairs of a completion queue share; the rest of a payload is read straight to
// its destination. While READs are outstanding it reads at most the answers to small ones (of 4 KiB at most:
// TcpSendQueue::kSmallReadMax) and one header into staging: many of these arrive with one system call, and
// the payload of a larger READ is never copied.
// Between calls it keeps at most a partial header, pushes (see pushes_) and what it holds (see held_).
// Thread:   that of the queue pair.
class FrameReader {
 public:
  FrameReader(TcpSendQueue& send_queue, TcpReceiveQueue& receive_queue)
      : send_queue_(send_queue), receive_queue_(receive_queue) {}

  enum class Result {
    kDrained,           // The stream is empty.
    kMore,              // The stream may have more, and it is the turn of the others.
    kClosed,            // End of file, or error() as errno.
    kReceiverNotReady,  // A SEND waits for a receive: call Resume() once there is one, not Read().
    kRefused,           // A request was refused; whatever follows it is void. Call Discard(), not Read().
    kPushed,            // There are pushes(): call ResumeAfterPushes(), not Read().
    kNak,               // The peer refused a request of this side.
    kViolation,         // See violation().
  };
  using Taker = SendTaker;
  // `taker`: null: no SEND is offered.
  Result Read(Stream& stream, absl::Span<uint8_t> staging, TcpFabricCounters* counters, Taker* taker);
  Result Resume();

  // After kPushed, oldest first.
  absl::Span<WaitingPushes::Push> pushes() { return pushes_.all(); }
  // Moves the bytes of one of them to `sink`, once. False: not all have come yet, and the others will go
  // there.
  bool TakePush(WaitingPushes::Push& push, uint8_t* sink);
  // The push behind the SEND that is being offered, while it can be taken. Null: there is none.
  const FrameHeader* offered_push() const { return offered_bytes_ != nullptr ? &header_ : nullptr; }
  // Likewise, of that one.
  bool TakeOfferedPush(uint8_t* sink);
  // Drops those that were not taken, and goes on as Resume().
  Result ResumeAfterPushes();
  // Bytes of a push that was taken, and that are on their way.
  uint32_t rest_of_taken_push() const {
    return payload_ == FrameKind::kPush && target_ != nullptr && pushes_.empty() ? payload_missing_ : 0;
  }

  // The last Read() left the stream empty.
  bool emptied() const { return emptied_; }

  // Reads and drops. kDrained, kMore or kClosed.
  Result Discard(Stream& stream, absl::Span<uint8_t> staging);

  // The greeting says that the peer may push.
  void set_takes_pushes(bool takes) { takes_pushes_ = takes; }
  // Both greetings say that atomics may cross.
  void set_takes_atomics(bool takes) { takes_atomics_ = takes; }
  bool takes_atomics() const { return takes_atomics_; }

  // A part of a WRITE or an atomic with this rkey has arrived.
  bool IsWriting(uint32_t rkey) const {
    return (payload_ == FrameKind::kWrite || IsAtomic(payload_)) && payload_missing_ > 0 &&
           header_.key == rkey;
  }
  // A part of a SEND has arrived, in the oldest receive that is not filled.
  bool IsReceiving() const { return payload_ == FrameKind::kSend && payload_missing_ > 0; }
  bool in_the_middle_of_a_frame() const { return partial_bytes_ > 0 || payload_missing_ > 0; }

  const std::string& violation() const { return violation_; }
  // The peer's farewell; empty: there is none, or not all of it has arrived.
  std::string farewell() const {
    return payload_ == FrameKind::kFarewell && payload_missing_ > 0 ? std::string() : farewell_;
  }
  int error() const { return error_; }

 private:
  // Goes on with Read() after so many calls, which have cost so much.
  [[gnu::noinline]] Result ReadOn(Stream& stream, absl::Span<uint8_t> staging, TcpFabricCounters* counters,
                                  Taker* taker, int calls, size_t cost);
  // `stream`: null if `taker` is.
  Result Parse(const uint8_t* next, const uint8_t* end, Taker* taker, const Stream* stream);
  // A frame that is not a usual SEND. `next`, after kMore: what follows the part of it that has arrived.
  struct Parsed {
    Result result;
    const uint8_t* next = nullptr;
  };
  [[gnu::noinline]] Parsed ParseOther(const uint8_t* next, const uint8_t* end, Taker* taker,
                                      const Stream* stream);
  Parsed Offer(const FrameHeader& send, const uint8_t* next, const uint8_t* end, Taker& taker,
               const Stream& stream);
  Result Begin(const FrameHeader& header);
  size_t StagedMax() const;
  Result OnNothing(ssize_t n, const Stream& stream);
  Result OrPushed(Result result) const { return pushes_.empty() ? result : Result::kPushed; }
  void Advance(size_t length_bytes);
  const uint8_t* CopyPayload(const uint8_t* next, const uint8_t* end);
  bool MayFollowPushes(const FrameHeader& header, size_t bytes) const;
  bool MayPush(const FrameHeader& header) const;
  Result Violation(const std::string& what);

  TcpSendQueue& send_queue_;
  TcpReceiveQueue& receive_queue_;

  FrameKind payload_ = FrameKind::kAck;  // Kind of the frame whose payload_missing_ bytes come next.
  uint32_t payload_missing_ = 0;
  // Their destination, of a SEND, WRITE, push or atomic. Null: of a push that is dropped, or is in pushes_
  // and long.
  uint8_t* target_ = nullptr;
  FrameHeader header_;  // That frame's.
  // Of a header, or of a word of a WRITE.
  uint32_t partial_bytes_ = 0;
  uint8_t partial_[sizeof(FrameHeader)];

  // A SEND that found no receive, with all that was already read behind it: some KiB more than the receives
  // that were posted then can take, and at most one staging buffer's worth. Until the RNR timeout, or, with
  // QueuePairOptions::sends_wait, until a receive is posted. Or a frame that cannot be looked at before the
  // pushes are gone, with what was read behind it.
  std::string held_;
  // 90 KiB at most: of kPushedBytesMax, what one more read brings, and the rest of a short push. Those that
  // were taken hold no bytes.
  WaitingPushes pushes_;
  // Of the push that is being offered with its SEND, and was not taken: what has come, in staging.
  const uint8_t* offered_bytes_ = nullptr;

  bool takes_pushes_ = false;
  bool takes_atomics_ = false;
  bool is_pushed_to_ = false;     // The last message but one came with a push: less is read into staging.
  bool pushes_are_long_ = false;  // The last push was a long one: still less is.
  bool push_followed_ = true;     // The push of the last one has come, or there was no message yet.
  bool emptied_ = false;
  bool closed_ = false;        // Found behind pushes.
  uint64_t copied_bytes_ = 0;  // For READs, since the last Read().
  int error_ = 0;
  std::string violation_;
  std::string farewell_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_FRAME_READER_H_
