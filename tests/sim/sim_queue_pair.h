#ifndef HAWSER_TESTS_SIM_SIM_QUEUE_PAIR_H_
#define HAWSER_TESTS_SIM_SIM_QUEUE_PAIR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "hawser/tests/sim/memory_guard.h"
#include "hawser/tests/sim/sim_completion_queue.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/tests/sim/sim_requester.h"
#include "hawser/tests/sim/sim_responder.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::sim {

// One RC queue pair: its requester, its responder, and the wire from here to the peer; how it connects, and
// how it ends.
//
// Events in flight name queue pairs by number, so that a destroyed one is not found.
// Thread: as QueuePair; all functions beyond that interface are locked.
class SimQueuePair final : public fabric::QueuePair {
 public:
  // Locked.
  SimQueuePair(SimFabric& fabric, SimCompletionQueue& completion_queue,
               const fabric::QueuePairOptions& options, fabric::ConnectionHandler& handler);
  ~SimQueuePair() override;

  uint32_t qp_num() const override { return qp_num_; }
  uint32_t read_depth() const override { return read_depth_; }
  SocketAddress peer_address() const override { return peer_address_; }
  SocketAddress local_address() const override { return local_address_; }
  std::shared_ptr<const PeerIdentity> peer_identity() const override { return peer_identity_; }
  absl::StatusOr<tls::Secret> ExportSecret(absl::string_view label) override;
  // What the two ends know of the TLS session that queue pair `dialer` has begun.
  static tls::Secret SecretOf(uint32_t dialer, absl::string_view label);
  absl::Status Connect(const SocketAddress& address, absl::string_view private_data) override;
  absl::Status Accept(fabric::ConnectRequest& request, absl::string_view private_data) override;
  bool PeerSharesCore() const override { return false; }
  absl::Status PostSend(absl::Span<const fabric::SendWorkRequest> requests) override;
  bool PostInline(absl::Span<const uint8_t> message) override;
  void RingDoorbell() override;
  absl::Status PostReceive(absl::Span<const fabric::ReceiveWorkRequest> requests) override;
  size_t WithdrawReceives(absl::Span<uint64_t> wr_ids) override;
  absl::StatusOr<fabric::Granted> Grant(const fabric::Sge& range, Access access) override;
  void Revoke(uint32_t rkey, uint64_t wr_id) override;
  bool takes_atomics() const override { return atomics() != fabric::Atomics::kNone; }
  uint32_t push_bytes_max() const override;
  bool TakePush(uint64_t wr_id, const fabric::Sge& sink, uint64_t remote_address, uint32_t rkey) override;
  bool offers_push() const override { return responder_.offers_push(); }
  void Disconnect() override;

  // ---- From the other side, by the network.

  int host() const { return fabric_.host(); }

  void OnAccepted(uint32_t peer, uint32_t read_depth, const std::string& private_data,
                  std::shared_ptr<const PeerIdentity> peer_identity);
  void OnRejected(const std::string& private_data);
  void OnConnectFailed(const absl::Status& why);
  void OnReadyToUse();  // For a responder: the requester has received the accept.
  void OnGoodbye(const std::string& why);

  // The host is off: this queue pair sends and receives nothing any more.
  void PowerLost() { powered_ = false; }
  void DeviceRemoved();

  // ---- For its two sides.

  SimRequester& requester() { return requester_; }
  SimResponder& responder() { return responder_; }
  Network& network() { return fabric_.network(); }
  fabric::Atomics atomics() const { return fabric_.atomics(); }
  Dice& dice() { return fabric_.network().dice(); }
  const Faults& faults() { return fabric_.network().faults(); }
  int64_t now_ns() { return fabric_.network().NowNs(); }
  bool working() const { return powered_ && (state_ == State::kEstablished || state_ == State::kAccepting); }
  void Trace(absl::string_view what);

  // Runs `event` on this queue pair, if it still exists then.
  void Later(int64_t delay_ns, std::function<void(SimQueuePair&)> event);
  // The interval of retries while the peer cannot be reached.
  static constexpr int64_t kLookAgainNs = 10'000'000;
  // Runs `event` on the peer, after the latency of the link and in order. If there is no link, it is lost.
  void ToPeer(std::string what, std::function<void(SimQueuePair&)> event);
  void EnterError();
  bool sends_wait() const { return options_.sends_wait; }
  bool in_error() const { return state_ == State::kError; }
  bool is_established() const { return powered_ && state_ == State::kEstablished; }
  fabric::ConnectionHandler& handler() { return handler_; }
  // The peer did not take a SEND that has no completion.
  void CopiedSendFailed(fabric::CompletionStatus status);
  void ReleaseGuard(MemoryGuard::Id guard, absl::string_view of);
  fabric::RegionTable& regions() { return fabric_.regions(); }
  SimCompletionQueue& completion_queue() { return completion_queue_; }
  uint32_t peer() const { return peer_; }
  int peer_host() const { return peer_host_; }

 private:
  enum class State { kIdle, kConnecting, kAccepting, kEstablished, kError };

  void Deliver();
  void Notify(std::function<void(fabric::ConnectionHandler&)> news);
  // For an established connection: notifies the handler after the application has polled all that has
  // arrived.
  void NotifyEnd(const absl::Status& why);

  SimFabric& fabric_;
  SimCompletionQueue& completion_queue_;
  fabric::ConnectionHandler& handler_;
  const fabric::QueuePairOptions options_;
  const uint32_t qp_num_;
  uint32_t read_depth_;
  State state_ = State::kIdle;
  bool powered_ = true;
  bool disconnected_ = false;
  bool said_goodbye_ = false;
  uint32_t peer_ = 0;
  int peer_host_ = 0;
  SocketAddress peer_address_, local_address_;
  std::shared_ptr<const PeerIdentity> peer_identity_;  // Null: no TLS.
  bool dialed_ = false;

  struct InFlight {
    int64_t sent_ns;
    int64_t arrival_ns;
    std::string what;  // For the history. Empty: not reported.
    std::function<void(SimQueuePair&)> event;
  };
  std::deque<InFlight> wire_;  // Requests and answers in flight to the peer.
  int64_t last_arrival_ns_ = 0;

  SimRequester requester_{*this};
  SimResponder responder_{*this};
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_SIM_QUEUE_PAIR_H_
