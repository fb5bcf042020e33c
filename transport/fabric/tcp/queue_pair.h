#ifndef HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/region_table.h"
#include "hawser/transport/fabric/tcp/completion_queue.h"
#include "hawser/transport/fabric/tcp/dialing.h"
#include "hawser/transport/fabric/tcp/frame.h"
#include "hawser/transport/fabric/tcp/queue_pair_life.h"
#include "hawser/transport/fabric/tcp/traffic.h"

namespace hawser::fabric {

// A queue pair and its TCP connection, as fabric.h and the completion queue see it: what it is asked, in
// which state, and what its handler is told. TcpTraffic has the two queues and moves frames between them and
// the socket, TcpQueuePairLife the state, Dialing the way to it. An idle one takes about 2 KiB: two rings,
// which grow with use, and no buffers.
class TcpQueuePair final : public QueuePair, public CompletionSource {
 public:
  TcpQueuePair(TcpCompletionQueue& completion_queue, const RegionTable& regions, uint32_t qp_num,
               const QueuePairOptions& options, ConnectionHandler& handler);
  ~TcpQueuePair() override;

  uint32_t qp_num() const override { return life().qp_num(); }
  uint32_t read_depth() const override { return traffic_.send_queue().read_depth(); }
  SocketAddress peer_address() const override { return life().peer_address(); }
  SocketAddress local_address() const override { return local_address_; }
  std::shared_ptr<const PeerIdentity> peer_identity() const override { return peer_identity_; }
  absl::StatusOr<tls::Secret> ExportSecret(absl::string_view label) override {
    tls::Session* const session = traffic_.stream().tls();
    return session == nullptr ? QueuePair::ExportSecret(label) : session->ExportSecret(label);
  }

  absl::Status Connect(const SocketAddress& address, absl::string_view private_data) override;
  absl::Status Accept(ConnectRequest& request, absl::string_view private_data) override;
  bool PeerSharesCore() const override;
  absl::Status PostSend(absl::Span<const SendWorkRequest> requests) override;
  bool PostInline(absl::Span<const uint8_t> message) override { return traffic_.PostInline(message); }
  void RingDoorbell() override { traffic_.RingDoorbell(); }
  absl::Status PostReceive(absl::Span<const ReceiveWorkRequest> requests) override;
  size_t WithdrawReceives(absl::Span<uint64_t> wr_ids) override;
  void Trim() override;
  bool HasUnpolled() const override {
    return traffic_.receive_queue().HasCompletions(/*flush=*/false) || traffic_.stream().HasUnread();
  }
  absl::StatusOr<Granted> Grant(const Sge& range, Access access) override;
  void Revoke(uint32_t rkey, uint64_t wr_id) override;
  bool takes_atomics() const override { return traffic_.takes_atomics(); }
  uint32_t push_bytes_max() const override { return traffic_.takes_pushes() ? kPushBytesMax : 0; }
  std::optional<uint64_t> answered_read_bytes() const override {
    return traffic_.receive_queue().answered_bytes();
  }
  Progress progress() const override {
    return {.sent = traffic_.writer().AcknowledgedOfTransfers(traffic_.stream().UnacknowledgedBytes()),
            .arrived = traffic_.arrived()};
  }
  bool TakePush(uint64_t wr_id, const Sge& sink, uint64_t remote_address, uint32_t rkey) override;
  bool offers_push() const override { return traffic_.offers_push(); }
  void Disconnect() override;
  void DisconnectBecause(absl::string_view why) override;

  // From the completion queue.
  void OnEvents(uint32_t events) override;
  void OnTimer() override;
  void Deliver(CompletionSpan& out, bool receives) override;
  void OnEndDue() override;
  void Acknowledge() override;

 private:
  using State = TcpQueuePairLife::State;
  using Event = TcpQueuePairLife::Event;

  TcpCompletionQueue& completion_queue() const { return traffic_.completion_queue(); }
  TcpQueuePairLife& life() { return traffic_.life(); }
  const TcpQueuePairLife& life() const { return traffic_.life(); }
  ConnectionHandler& handler() { return traffic_.handler(); }
  absl::Status NotUsable(absl::string_view call) const {
    return life().NotUsable(call, completion_queue().in_forked_child());
  }

  void ContinueToDial();
  // Does what `progress` asks for. True: it is kDone.
  bool Advance(Dialing::Progress progress);

  const RegionTable& regions_;
  TcpTraffic traffic_;
  SocketAddress local_address_;
  std::shared_ptr<const PeerIdentity> peer_identity_;
  std::unique_ptr<Dialing> dialing_;  // Of Connect(), until it is established or freed.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_H_
