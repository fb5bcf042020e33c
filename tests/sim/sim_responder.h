#ifndef HAWSER_TESTS_SIM_SIM_RESPONDER_H_
#define HAWSER_TESTS_SIM_SIM_RESPONDER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hawser/tests/sim/memory_guard.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::sim {

class SimQueuePair;

// A work request on its way from requester to responder.
struct SimPacket {
  uint32_t from;
  uint64_t number;  // Of the work request at the requester.
  fabric::Opcode opcode;
  std::vector<uint8_t> data;  // kSend, kWrite, kPush.
  uint64_t remote_address;
  uint32_t rkey;
  uint32_t length;
  bool push_follows;  // Of a SEND: arrives together with it.
};

// The responder of a queue pair: executes what the peer's requester sends, in order, answers in order, but is
// slow with READs, which SENDs may overtake. It has the receives, and what was granted to the peer. Locked.
class SimResponder {
 public:
  // Which outlives it, as a part.
  explicit SimResponder(SimQueuePair& queue_pair);

  absl::Status PostReceive(absl::Span<const fabric::ReceiveWorkRequest> requests, uint32_t depth);
  size_t WithdrawReceives(absl::Span<uint64_t> wr_ids);
  absl::StatusOr<uint32_t> Grant(const fabric::Sge& range, fabric::QueuePair::Access access,
                                 size_t grants_max);
  void Revoke(uint32_t rkey, uint64_t wr_id);
  bool TakePush(uint64_t wr_id, const fabric::Sge& sink, uint64_t remote_address, uint32_t rkey);

  // Receives posted and not polled yet.
  uint32_t receives_out() const { return receives_out_; }
  // SENDs that have arrived, of which the application has not been told yet.
  uint32_t arrivals_to_poll() const { return arrivals_to_poll_; }
  // One was polled.
  bool has_received() const { return sends_polled_ > 0; }
  // All that was granted is in force then.
  int64_t granted_ns() const { return granted_ns_; }

  // READs that were not served may be now.
  void OnReadServiceChanged() { AnswerInOrder(); }

  // From the peer's requester.
  void OnPacket(SimPacket packet);
  // The queue pair is in error: receives come back, and nothing is answered any more.
  void Flush();

 private:
  using Access = fabric::QueuePair::Access;

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
  // What is owed to the requester, in the order of its requests.
  struct Answer {
    SimPacket packet;  // A READ: its data is still to be sent. Otherwise only its number counts.
    fabric::CompletionStatus status;
    size_t sent_bytes = 0;
  };

  // A push that arrived. It can be taken until the Poll() after that which has returned its SEND.
  struct Pushed {
    SimPacket packet;
    uint64_t send;         // It came behind that SEND, counted from 1.
    uint64_t told_in = 0;  // The Poll() that has returned the SEND.
  };

  // Runs `event` on this responder, if its queue pair still exists then.
  void Later(int64_t delay_ns, std::function<void(SimResponder&)> event);
  void ExecuteInbound();
  bool ExecuteSend(const SimPacket& packet);
  void AddPush(const SimPacket& packet);
  void OnSendPolled();
  void PushReceive(const Receive& receive, fabric::CompletionStatus status, uint32_t byte_len,
                   int64_t delay_ns);
  fabric::CompletionStatus CheckAccess(const SimPacket& packet, Access access) const;
  void AnswerInOrder();

  SimQueuePair& qp_;
  std::deque<Receive> receives_;
  uint32_t receives_out_ = 0;
  uint32_t arrivals_to_poll_ = 0;
  uint64_t sends_arrived_ = 0;
  uint64_t sends_polled_ = 0;
  uint64_t received_in_poll_ = 0;  // The last of those polled was returned by that Poll().
  std::deque<Pushed> pushes_;      // Unless they were taken.
  int64_t last_receive_completion_ns_ = 0;
  std::deque<SimPacket> inbound_;
  int rnr_tries_ = 0;
  bool rnr_waiting_ = false;  // For the next look. With sends_wait: for a receive.
  bool refusing_ = false;     // What comes after a refused request is not looked at.
  std::deque<Answer> answers_;
  bool answering_ = false;
  std::map<uint32_t, Granted> grants_;
  uint32_t last_rkey_ = 0;
  int64_t granted_ns_ = 0;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_SIM_RESPONDER_H_
