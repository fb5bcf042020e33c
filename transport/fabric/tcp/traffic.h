#ifndef HAWSER_TRANSPORT_FABRIC_TCP_TRAFFIC_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_TRAFFIC_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/tcp/completion_queue.h"
#include "hawser/transport/fabric/tcp/frame_reader.h"
#include "hawser/transport/fabric/tcp/frame_writer.h"
#include "hawser/transport/fabric/tcp/queue_pair_life.h"
#include "hawser/transport/fabric/tcp/receive_queue.h"
#include "hawser/transport/fabric/tcp/send_queue.h"
#include "hawser/transport/fabric/tcp/stream.h"
#include "hawser/transport/fabric/tcp/taken_pushes.h"

namespace hawser::fabric {

// What moves between the two queues of a queue pair and its socket: when frames are read and written, why
// that has to wait, what the socket is watched for, and what a failure of it means. The frames are in
// FrameWriter and FrameReader.
// Thread:   that of the queue pair.
// Lifetime: part of its TcpQueuePair, which posts to the queues and polls them.
class TcpTraffic {
 public:
  using State = TcpQueuePairLife::State;
  using Event = TcpQueuePairLife::Event;

  // `source`: the queue pair, as `completion_queue` knows it.
  TcpTraffic(TcpCompletionQueue& completion_queue, CompletionSource& source, ConnectionHandler& handler,
             uint32_t qp_num, const QueuePairOptions& options);

  TcpCompletionQueue& completion_queue() const { return completion_queue_; }
  ConnectionHandler& handler() const { return handler_; }
  TcpQueuePairLife& life() { return life_; }
  const TcpQueuePairLife& life() const { return life_; }
  Stream& stream() { return stream_; }
  const Stream& stream() const { return stream_; }
  TcpSendQueue& send_queue() { return send_queue_; }
  const TcpSendQueue& send_queue() const { return send_queue_; }
  TcpReceiveQueue& receive_queue() { return receive_queue_; }
  const TcpReceiveQueue& receive_queue() const { return receive_queue_; }
  bool takes_pushes() const { return pushes_; }
  bool takes_atomics() const { return reader_.takes_atomics(); }
  bool IsReceiving() const { return reader_.IsReceiving(); }
  bool offers_push() const { return reader_.offered_push() != nullptr; }
  const FrameWriter& writer() const { return writer_; }
  // See QueuePair::Progress.
  uint64_t arrived() const { return send_queue_.read_position() - reader_.rest_of_taken_push(); }

  // Frames pass from here on: both greetings are exchanged, and these were agreed.
  void Start(uint32_t read_depth, uint8_t flags, absl::string_view private_data);
  // What the socket is watched for, once this side has sent its greeting.
  void UpdateWatch();

  // Something was posted. The rest of an answer to a READ, if there is one, continues with EPOLLOUT.
  void OnSendPosted() {
    if (!blocked_ && stream_.is_open()) Transmit(/*with_answers=*/false);
  }
  void OnReceivePosted() {
    if (paused_) completion_queue_.Schedule(source_);
  }
  // See QueuePair::PostInline() and RingDoorbell().
  bool PostInline(absl::Span<const uint8_t> message) {
    if (life_.state() != State::kEstablished || blocked_ || message.empty() ||
        message.size() > SendBatch::kCopyMax || completion_queue_.in_forked_child()) [[unlikely]] {
      return false;
    }
    return writer_.PostInline(message, completion_queue_.inline_frames());
  }
  void RingDoorbell() {
    if (!completion_queue_.in_forked_child() && writer_.RingDoorbell()) OnSendPosted();
  }
  // Numbers what was copied before: other requests follow.
  void NumberCopied() { writer_.RingDoorbell(); }

  // See QueuePair. `sink` is in a region.
  bool TakePush(uint64_t wr_id, const Sge& sink, uint64_t remote_address, uint32_t rkey);
  void Revoke(uint32_t rkey, uint64_t wr_id);

  // As of the completion queue, in kEstablished, kRefusing and kError.
  void OnEvents(uint32_t events);
  void OnTimer();
  void Acknowledge();

  // Completing. A Poll() first calls ResumeIfReady().
  void ResumeIfReady() {
    if (paused_ && receive_queue_.has_receive()) Resume();
  }
  // Without `receives`: neither their completions nor what belongs to an end.
  void Deliver(CompletionSpan& out, bool receives);
  bool HasCompletions(bool flush) const {
    return receive_queue_.HasCompletions(flush) || send_queue_.HasCompletions(flush) || !revoked_.empty() ||
           taken_.HasCompletions(flush);
  }
  // Between two Poll()s, the caller has handled what the first has returned: deals with the pushes that it
  // told of, and reads what ReceiveSoon() has noted. False: there was neither.
  bool OnEndDue();
  bool receives_soon() const { return receive_soon_; }

  // Moves to kError. The next Poll() notifies the handler, unless Disconnect() was called.
  void Fail(absl::Status why, absl::string_view private_data = {});
  // Ends it from this side; once. See QueuePair::DisconnectBecause().
  void Disconnect(absl::string_view why);
  void CloseSocket();

 private:
  // Pushes of the peer, until the first Poll() after that which has returned their SENDs.
  enum class PushState : uint8_t {
    kNone,
    kUnpolled,  // Poll() has not returned all of their SENDs yet.
    kOffered,   // It has; the next one deals with the pushes.
  };

  void OnOtherEvents(uint32_t events);
  void Receive();
  FrameReader::Result Read();
  // Receive() in the next Poll(), though the socket may report nothing: TLS may hold bytes that it has read.
  void ReceiveSoon();
  void Resume();
  void ResumeAfterPush();
  void NoteRest();
  void OnRead(FrameReader::Result result);
  void OnUndrained(FrameReader::Result result);
  void Transmit(bool with_answers);
  void EndIfNakWasSent();
  void AfterTraffic();

  void EnterError();
  // Tells the peer why the connection ends, if that can go at once.
  void SayFarewell(absl::string_view why);

  TcpCompletionQueue& completion_queue_;
  CompletionSource& source_;
  ConnectionHandler& handler_;
  TcpQueuePairLife life_;
  const bool sends_wait_;  // See QueuePairOptions.
  bool pushes_ = false;    // Both sides take pushes.
  PushState push_ = PushState::kNone;
  // There may be something to read: an event came while a push waited, or a SEND without a receive.
  bool missed_event_ = false;
  bool paused_ = false;         // A SEND waits for a receive, see FrameReader::Result::kReceiverNotReady.
  bool watch_was_off_ = false;  // Meanwhile there were no events, or not those of the peer's end.
  bool blocked_ = false;        // The socket was full, or it was the others' turn: continues at EPOLLOUT.
  bool receive_soon_ = false;   // See ReceiveSoon().
  Stream stream_;
  TcpSendQueue send_queue_;
  TcpReceiveQueue receive_queue_;
  FrameWriter writer_;
  FrameReader reader_;
  std::vector<uint64_t> revoked_;  // The wr_ids of revocations that did not complete yet.
  TakenPushes taken_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_TRAFFIC_H_
