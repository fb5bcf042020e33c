#ifndef HAWSER_TRANSPORT_FABRIC_TCP_FRAME_WRITER_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_FRAME_WRITER_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "hawser/transport/fabric/tcp/frame.h"
#include "hawser/transport/fabric/tcp/inline_frames.h"
#include "hawser/transport/fabric/tcp/options.h"
#include "hawser/transport/fabric/tcp/receive_queue.h"
#include "hawser/transport/fabric/tcp/send_batch.h"
#include "hawser/transport/fabric/tcp/send_queue.h"
#include "hawser/transport/fabric/tcp/stream.h"

namespace hawser::fabric {

// Writes a queue pair's requests, answers and acknowledgements as frames to its stream. Requests go in
// posting order, before the fragments of READ answers, so that small calls pass a bulk READ; pushes take
// turns with the fragments. A NAK goes behind all answers. Every header carries an acknowledgement; a frame
// of its own does only if nothing else goes. It keeps no bytes: what the socket did not accept is gathered
// again from the user's memory, which the fabric owns until completion. It keeps only a header that is partly
// on the wire, because a new one could differ; and the SENDs that were copied when they were posted. Between
// their doorbell and their end nothing else goes.
// Thread:   that of the queue pair.
class FrameWriter {
 public:
  FrameWriter(TcpSendQueue& send_queue, TcpReceiveQueue& receive_queue)
      : send_queue_(send_queue), receive_queue_(receive_queue) {}

  enum class Result {
    kDone,     // Nothing is left to be sent, here or in the stream.
    kBlocked,  // The socket is full, or it is the turn of the others: continue when it is writable.
    kBroken,   // See error(), an errno. The peer's earlier bytes can still be read.
  };
  // `with_answers`: READ answers and NAKs as well. Without: only requests and acknowledgements, for a quick
  // PostSend().
  Result Write(Stream& stream, bool with_answers, SendBatch& batch, InlineFramesStock& stock,
               TcpFabricCounters* counters);

  // Posts a SEND that is copied. It waits for RingDoorbell(). False: it has to be posted as any other,
  // because something is before it that is not sent, the peer acknowledges nothing, or there is no room. Not
  // while the socket is full.
  bool PostInline(absl::Span<const uint8_t> message, InlineFramesStock& stock) {
    if (!send_queue_.TakesCopied() || doorbell_rung_) return false;
    if (inline_ == nullptr) inline_ = stock.Take();
    return inline_->Add(message);
  }
  // True: SENDs that were copied go with the next Write(), before anything that is posted later.
  bool RingDoorbell() {
    if (inline_ == nullptr) return false;
    if (std::exchange(doorbell_rung_, true)) return true;
    send_queue_.PostCopied(inline_->frames());
    inline_->Stamp(receive_queue_.executed());
    receive_queue_.set_ack_due(false);
    return true;
  }

  // Nothing is sent any more: what was copied is dropped.
  void DropCopied(InlineFramesStock& stock);

  // Write() would send something other than an acknowledgement.
  bool HasOutput() const {
    return partial_sent_ > 0 || doorbell_rung_ || send_queue_.NextToSend() != nullptr ||
           receive_queue_.has_answer() || receive_queue_.nak_due();
  }

  bool in_the_middle_of_a_frame() const {
    return partial_sent_ > 0 || (inline_ != nullptr && inline_->is_begun());
  }
  int error() const { return error_; }

  // See QueuePair::Progress::sent. `unacknowledged`: bytes that the stream has taken, and the peer's host has
  // not acknowledged. What follows the last answer or push does not count, however much of it is
  // acknowledged. While one waits, all that is on the wire is before it.
  int64_t AcknowledgedOfTransfers(size_t unacknowledged) const {
    const bool waits = receive_queue_.has_answer() || send_queue_.HasPushToSend();
    const auto written = static_cast<int64_t>(written_bytes_);
    return std::min(written - static_cast<int64_t>(unacknowledged),
                    waits ? written : static_cast<int64_t>(transfers_end_));
  }

 private:
  // What was copied is to be sent, and no frame is on the wire in part.
  bool copied_is_next() const { return doorbell_rung_ && partial_sent_ == 0; }
  Result Stopped(int error);  // errno
  ssize_t Send(Stream& stream, iovec* segments, size_t count, TcpFabricCounters* counters);
  bool WriteInline(Stream& stream, InlineFramesStock& stock, TcpFabricCounters* counters);
  // Gathers frames until there are none.
  [[gnu::noinline]] Result WriteBatches(Stream& stream, bool with_answers, SendBatch& batch,
                                        InlineFramesStock& stock, TcpFabricCounters* counters);
  void Fill(bool with_answers, SendBatch& batch);
  void NoteWritten(size_t sent_bytes);
  void AppendRest(SendBatch& batch);
  void AppendRequests(bool with_answers, SendBatch& batch);
  bool AppendAnswer(SendBatch& batch);
  void AppendHeaderOnly(SendBatch::Owner owner, FrameHeader header, SendBatch& batch);
  void TakeBack(const SendBatch& batch, size_t sent_bytes, bool ack_was_due);
  size_t CutWordBytes(const uint8_t* fragment) const;

  TcpSendQueue& send_queue_;
  TcpReceiveQueue& receive_queue_;
  int error_ = 0;
  uint64_t written_bytes_ = 0;  // All that the stream has taken from here, ever.
  // How many of them end with the last byte of an answer to a READ or an atomic, or of a push. 0: there was
  // none.
  uint64_t transfers_end_ = 0;
  size_t batch_transfers_end_ = 0;  // The same in the batch that was filled last.

  // The frame whose first partial_sent_ bytes, if any, are on the wire. Its owner's cursor stands at it.
  uint32_t partial_sent_ = 0;
  SendBatch::Owner partial_owner_ = SendBatch::Owner::kAck;
  bool answer_is_next_ = false;  // It was the turn of an answer when the socket was full.
  bool doorbell_rung_ = false;   // For those in inline_.
  std::unique_ptr<InlineFrames> inline_;
  FrameHeader partial_header_;
};

[[gnu::always_inline]] inline ssize_t FrameWriter::Send(Stream& stream, iovec* segments, size_t count,
                                                        TcpFabricCounters* counters) {
  ssize_t sent;
  do {
    if (counters != nullptr) counters->send_calls.fetch_add(1, std::memory_order_relaxed);
    sent = stream.Send(segments, count);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

// Writes what was copied. False, with errno: some of it is left.
[[gnu::always_inline]] inline bool FrameWriter::WriteInline(Stream& stream, InlineFramesStock& stock,
                                                            TcpFabricCounters* counters) {
  const absl::Span<uint8_t> unsent = inline_->unsent();
  iovec segment = {unsent.data(), unsent.size()};
  const ssize_t sent = Send(stream, &segment, 1, counters);
  if (sent < 0) return false;
  written_bytes_ += static_cast<size_t>(sent);
  inline_->Advance(static_cast<size_t>(sent));
  if (!inline_->empty()) {
    errno = EAGAIN;
    return false;
  }
  stock.Return(inline_);
  doorbell_rung_ = false;
  return true;
}

[[gnu::always_inline]] inline FrameWriter::Result FrameWriter::Write(Stream& stream, bool with_answers,
                                                                     SendBatch& batch,
                                                                     InlineFramesStock& stock,
                                                                     TcpFabricCounters* counters) {
  if (stream.has_unsent() && !stream.Flush()) return Stopped(errno);
  // The usual write: all that there is was copied.
  if (copied_is_next()) [[likely]] {
    if (!WriteInline(stream, stock, counters)) return Stopped(errno);
    if (!HasOutput() && !receive_queue_.ack_due() && !stream.has_unsent()) [[likely]]
      return Result::kDone;
  }
  return WriteBatches(stream, with_answers, batch, stock, counters);
}

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_FRAME_WRITER_H_
