#ifndef HAWSER_TESTS_SIM_SIM_QUEUE_PAIR_H_
#define HAWSER_TESTS_SIM_SIM_QUEUE_PAIR_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hawser/tests/sim/memory_guard.h"
#include "hawser/tests/sim/sim_completion_queue.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::sim {

// One RC queue pair. Its requester takes work requests up in order, some time after the post, and sends them;
// the peer's responder executes them in order, answers in order, but is slow with READs, which SENDs may
// overtake. What completes, completes in posting order, some time later.
//
// Events under way name queue pairs by number, so one that is gone is simply not found.
// Thread: as QueuePair; what is not of that interface is locked.
class SimQueuePair final : public fabric::QueuePair {
 public:
  // Locked.
  SimQueuePair(SimFabric& fabric, SimCompletionQueue& completion_queue,
               const fabric::QueuePairOptions& options, fabric::ConnectionHandler& handler);
  ~SimQueuePair() override;

  uint32_t qp_num() const override { return qp_num_; }
  uint32_t read_depth() const override { return read_depth_; }
  fabric::SocketAddress peer_address() const override { return peer_address_; }
  fabric::SocketAddress local_address() const override { return local_address_; }
  absl::Status Connect(const fabric::SocketAddress& address, absl::string_view private_data) override;
  absl::Status Accept(std::unique_ptr<fabric::ConnectRequest> request,
                      absl::string_view private_data) override;
  bool PeerSharesCore() const override { return false; }
  absl::Status PostSend(absl::Span<const fabric::SendWorkRequest> requests) override;
  absl::Status PostReceive(absl::Span<const fabric::ReceiveWorkRequest> requests) override;
  absl::StatusOr<uint32_t> Grant(const fabric::Sge& range, Access access) override;
  void Revoke(uint32_t rkey, uint64_t wr_id) override;
  void Disconnect() override;

  // ---- From the other side, by the network.

  int host() const { return fabric_.host(); }

  void OnAccepted(uint32_t peer, uint32_t read_depth, const std::string& private_data);
  void OnRejected(const std::string& private_data);
  void OnConnectFailed(const absl::Status& why);
  void OnReadyToUse();  // Responder: the requester has heard of the accept.
  void OnGoodbye(const std::string& why);

  struct Packet {
    uint32_t from;
    uint64_t number;  // Of the work request at the requester.
    fabric::Opcode opcode;
    std::vector<uint8_t> data;  // kSend, kWrite.
    uint64_t remote_address;
    uint32_t rkey;
    uint32_t length;
  };
  void OnPacket(Packet packet);
  void OnAnswer(uint64_t number, fabric::CompletionStatus status);
  // The peer has the message of a SEND. From its answer on, which it may give before we hear of this by a
  // completion, the contents are the sender's to change (not the memory itself to give away); so they are
  // watched no longer.
  void OnTaken(uint64_t number);
  void OnReadData(uint64_t number, size_t offset, const std::vector<uint8_t>& data, bool last);

  // The host is off: nothing of this is heard, or hears, any more.
  void PowerLost() { powered_ = false; }
  void DeviceRemoved();

 private:
  enum class State { kIdle, kConnecting, kAccepting, kEstablished, kError };

  struct Send {
    uint64_t number;
    fabric::SendWorkRequest request;  // Its sges are in `sges`.
    std::vector<fabric::Sge> sges;
    uint32_t length;
    std::vector<MemoryGuard::Id> guards;  // One an sge.
    int64_t not_before_ns = 0;            // What was granted before its post is in force then.
    bool taken_up = false;
    bool done = false;
    int64_t sent_ns = 0;
  };
  // A completed or flushed one, until the application has polled the completion that proves it.
  struct Unproved {
    uint64_t number;
    uint64_t wr_id;
    bool will_be_proved;
    std::vector<MemoryGuard::Id> guards;
  };
  struct Receive {
    uint64_t wr_id;
    fabric::Sge buffer;
    MemoryGuard::Id guard;
  };
  struct Granted {
    fabric::Sge range;
    Access access;
    int64_t from_ns;  // In force from then on.
    MemoryGuard::Id guard;
  };
  // What the responder owes the requester, in the order of the requests.
  struct Answer {
    Packet packet;  // A READ: its data is still to be sent. Otherwise only its number counts.
    fabric::CompletionStatus status;
    size_t sent_bytes = 0;
  };

  Network& network() { return fabric_.network(); }
  Dice& dice() { return fabric_.network().dice(); }
  const Faults& faults() { return fabric_.network().faults(); }
  int64_t now_ns() { return fabric_.network().NowNs(); }
  bool working() const { return powered_ && (state_ == State::kEstablished || state_ == State::kAccepting); }
  void Trace(absl::string_view what);

  // Runs `event` on this queue pair, if it still exists then.
  void Later(int64_t delay_ns, std::function<void(SimQueuePair&)> event);
  // Likewise on the peer, after the way to it; in order. Lost if there is no way.
  void ToPeer(std::string what, std::function<void(SimQueuePair&)> event);
  void Deliver();
  void Tell(std::function<void(fabric::ConnectionHandler&)> news);

  absl::Status Check(const fabric::SendWorkRequest& request) const;
  void TakeUp();
  void TransmitHead();
  void Transmit(Send& send);
  void WatchAnswers();
  void OnAnswersDue();
  void CompleteInOrder();
  void PushSend(uint64_t number, uint64_t wr_id, fabric::Opcode opcode, fabric::CompletionStatus status,
                int64_t delay_ns);
  void PushReceive(const Receive& receive, fabric::CompletionStatus status, uint32_t byte_len,
                   int64_t delay_ns);
  void Proved(uint64_t number);
  void ReleaseGuard(MemoryGuard::Id guard, absl::string_view of);

  void ExecuteInbound();
  bool ExecuteSend(const Packet& packet);
  fabric::CompletionStatus CheckAccess(const Packet& packet, Access access) const;
  void AnswerInOrder();

  void Fail(uint64_t number, fabric::CompletionStatus status);
  void FailOldest();
  void EnterError();

  SimFabric& fabric_;
  SimCompletionQueue& completion_queue_;
  fabric::ConnectionHandler& handler_;
  const fabric::QueuePairOptions options_;
  uint32_t qp_num_ = 0;
  uint32_t read_depth_;
  State state_ = State::kIdle;
  bool powered_ = true;
  bool disconnected_ = false;
  bool has_received_ = false;
  bool said_goodbye_ = false;
  uint32_t peer_ = 0;
  int peer_host_ = 0;
  fabric::SocketAddress peer_address_, local_address_;

  // Requester.
  std::deque<Send> sends_;
  std::deque<Unproved> unproved_;
  uint64_t posted_ = 0;
  uint64_t next_number_ = 0;
  size_t taken_up_ = 0;  // Of sends_, from the front.
  uint32_t reads_outstanding_ = 0;
  bool transmitting_ = false;
  bool watching_answers_ = false;
  int64_t unreachable_since_ns_ = 0;  // 0: it is not.
  struct InFlight {
    int64_t sent_ns;
    int64_t arrival_ns;
    std::string what;  // For the history. Empty: not worth a word.
    std::function<void(SimQueuePair&)> event;
  };
  std::deque<InFlight> wire_;  // To the peer; requests and answers.
  int64_t last_arrival_ns_ = 0;
  int64_t last_send_completion_ns_ = 0;

  // Responder.
  std::deque<Receive> receives_;
  uint32_t receives_out_ = 0;  // Posted and not polled yet.
  int64_t last_receive_completion_ns_ = 0;
  std::deque<Packet> inbound_;
  int rnr_tries_ = 0;
  bool rnr_waiting_ = false;
  bool refusing_ = false;  // What comes after a refused request is not looked at.
  std::deque<Answer> answers_;
  bool answering_ = false;
  std::map<uint32_t, Granted> grants_;
  uint32_t last_rkey_ = 0;
  int64_t granted_ns_ = 0;  // All that was granted is in force then.
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_SIM_QUEUE_PAIR_H_
