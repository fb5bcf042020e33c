#ifndef HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/region_table.h"
#include "hawser/transport/fabric/tcp/completion_queue.h"
#include "hawser/transport/fabric/tcp/frame_reader.h"
#include "hawser/transport/fabric/tcp/frame_writer.h"
#include "hawser/transport/fabric/tcp/greeting.h"
#include "hawser/transport/fabric/tcp/queue_pair_state.h"
#include "hawser/transport/fabric/tcp/receive_queue.h"
#include "hawser/transport/fabric/tcp/send_queue.h"
#include "hawser/transport/fabric/tcp/socket.h"
#include "hawser/transport/fabric/tcp/stream.h"

namespace hawser::fabric {

// A queue pair and its TCP connection. This class has connecting, errors and events; the work requests are in
// its TcpSendQueue and TcpReceiveQueue, the frames in its FrameWriter and FrameReader. An idle one takes
// about 2 KiB: two rings, which grow with use, and no buffers.
class TcpQueuePair final : public QueuePair, public CompletionSource {
 public:
  TcpQueuePair(TcpCompletionQueue& completion_queue, const RegionTable& regions, uint32_t qp_num,
               const QueuePairOptions& options, ConnectionHandler& handler);
  ~TcpQueuePair() override;

  uint32_t qp_num() const override { return qp_num_; }
  uint32_t read_depth() const override { return send_queue_.read_depth(); }
  SocketAddress peer_address() const override { return peer_address_; }
  SocketAddress local_address() const override { return local_address_; }
  std::shared_ptr<const PeerIdentity> peer_identity() const override { return peer_identity_; }
  absl::StatusOr<tls::Secret> ExportSecret(absl::string_view label) override {
    return stream_.tls() == nullptr ? QueuePair::ExportSecret(label) : stream_.tls()->ExportSecret(label);
  }

  absl::Status Connect(const SocketAddress& address, absl::string_view private_data) override;
  absl::Status Accept(ConnectRequest& request, absl::string_view private_data) override;
  bool PeerSharesCore() const override;
  absl::Status PostSend(absl::Span<const SendWorkRequest> requests) override;
  bool PostInline(absl::Span<const uint8_t> message) override;
  void RingDoorbell() override;
  absl::Status PostReceive(absl::Span<const ReceiveWorkRequest> requests) override;
  size_t WithdrawReceives(absl::Span<uint64_t> wr_ids) override;
  bool HasUnpolled() const override {
    return receive_queue_.HasCompletions(/*flush=*/false) || stream_.HasUnread();
  }
  absl::StatusOr<Granted> Grant(const Sge& range, Access access) override;
  void Revoke(uint32_t rkey, uint64_t wr_id) override;
  uint32_t push_bytes_max() const override { return pushes_ ? kPushBytesMax : 0; }
  std::optional<uint64_t> answered_read_bytes() const override { return receive_queue_.answered_bytes(); }
  bool TakePush(uint64_t wr_id, const Sge& sink, uint64_t remote_address, uint32_t rkey) override;
  void Disconnect() override;
  void DisconnectBecause(absl::string_view why) override;

  // From the completion queue.
  void OnEvents(uint32_t events) override;
  void OnTimer() override;
  void Deliver(CompletionSpan& out) override;
  void OnEndDue() override;
  void Acknowledge() override;

 private:
  using State = TcpQueuePairState::State;
  using Event = TcpQueuePairState::Event;

  // Pushes of the peer, until the first Poll() after that which has returned their SENDs.
  enum class PushState : uint8_t {
    kNone,
    kUntold,   // Poll() has not returned all of their SENDs yet.
    kOffered,  // It has; the next one deals with the pushes.
  };

  // For the handler, from the next Poll().
  struct News {
    bool established = false;
    bool ended = false;
    bool ended_before_established = false;
    absl::Status why;          // If it ended.
    std::string private_data;  // From the peer's answer.
  };

  void Move(Event event);

  void FinishConnect();
  void Secure();
  void Greet();
  void ReadGreeting();
  void FailToConnect(int error);  // errno
  void FailToSecure();
  void Establish(uint32_t read_depth, uint8_t flags, absl::string_view private_data);
  void MoveToKernel();

  void Receive();
  // Receive() in the next Poll(), though the socket may report nothing: TLS may hold bytes that it has read.
  void ReceiveSoon();
  void Resume();
  void ResumeAfterPush();
  void NoteTaken();
  void DeliverTaken(bool flush, CompletionSpan& out);
  bool HasCompletions(bool flush) const {
    return receive_queue_.HasCompletions(flush) || send_queue_.HasCompletions(flush) || !revoked_.empty() ||
           !taken_.empty() || (flush && filling_.has_value());
  }
  void OnRead(FrameReader::Result result);
  void Transmit(bool with_answers);
  void AfterTraffic();

  absl::Status CheckSend(const SendWorkRequest& request, uint32_t* length_bytes) const;
  absl::Status NotUsable(absl::string_view call) const;
  // The handler will soon be notified of the end. What is posted until then is flushed.
  bool ends_soon() const {
    return state_ == State::kError && news_ != nullptr && !news_->ended_before_established;
  }

  // Moves to kError. The next Poll() notifies the handler, unless Disconnect() was called.
  void Fail(absl::Status why, absl::string_view private_data = {});
  void EnterError();
  // Tells the peer why the connection ends, if that can go at once.
  void SayFarewell(absl::string_view why);
  absl::Status WhyClosed() const;
  void CloseSocket();
  void UpdateWatch();
  News& news();
  std::string Peer() const { return peer_address_.ToString(); }

  TcpCompletionQueue& completion_queue_;
  const RegionTable& regions_;
  ConnectionHandler& handler_;
  const uint32_t qp_num_;
  State state_ = State::kIdle;
  bool disconnected_ = false;  // By Disconnect(): the handler is not called any more.
  const bool sends_wait_;      // See QueuePairOptions.
  bool pushes_ = false;        // Both sides take pushes.
  PushState push_ = PushState::kNone;
  // There may be something to read: an event came while a push waited, or a SEND without a receive.
  bool missed_event_ = false;
  bool paused_ = false;         // A SEND waits for a receive, see FrameReader::Result::kReceiverNotReady.
  bool watch_was_off_ = false;  // Meanwhile there were no events, or not those of the peer's end.
  bool blocked_ = false;        // The socket was full, or it was the others' turn: continues at EPOLLOUT.
  bool receive_soon_ = false;   // See ReceiveSoon().
  Stream stream_;
  const std::shared_ptr<tls::Context> tls_;  // For Connect(); null: no TLS.
  const std::string tls_host_;
  std::shared_ptr<const PeerIdentity> peer_identity_;
  SocketAddress peer_address_;
  SocketAddress local_address_;
  TcpSendQueue send_queue_;
  TcpReceiveQueue receive_queue_;
  FrameWriter writer_;
  FrameReader reader_;

  std::unique_ptr<GreetingReader> greeting_;  // While connecting.
  std::string greeting_to_send_;              // Likewise.
  std::vector<uint64_t> revoked_;             // The wr_ids of revocations that did not complete yet.
  std::vector<uint64_t> taken_;               // The wr_ids of pushes that were taken and are in their sinks.
  // The wr_id of the one that was taken before all of it had come: the fabric owns its sink.
  std::optional<uint64_t> filling_;
  std::unique_ptr<News> news_;
  absl::Status error_;  // Why it is in kError.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_H_
