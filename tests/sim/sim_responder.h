#ifndef HAWSER_TESTS_SIM_SIM_RESPONDER_H_
#define HAWSER_TESTS_SIM_SIM_RESPONDER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
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
  uint64_t number;  // The number of the work request at the requester.
  fabric::Opcode opcode;
  std::vector<uint8_t> data;  // For kSend, kWrite and kPush.
  uint64_t remote_address;
  uint32_t rkey;
  uint32_t length;
  uint64_t compare_add;  // For an atomic.
  uint64_t swap;
  bool push_follows;  // For a SEND: a push arrives together with it.
};

// The responder of a queue pair. It executes the requests of the peer in order, and answers in order, but
// READs take long, and SENDs may overtake them. It has the receives, and the grants to the peer. Locked.
class SimResponder {
 public:
  // `queue_pair` owns this object.
  explicit SimResponder(SimQueuePair& queue_pair);

  absl::Status PostReceive(absl::Span<const fabric::ReceiveWorkRequest> requests, uint32_t depth);
  size_t WithdrawReceives(absl::Span<uint64_t> wr_ids);
  absl::StatusOr<fabric::Granted> Grant(const fabric::Sge& range, fabric::QueuePair::Access access,
                                        size_t grants_max);
  void Revoke(uint32_t rkey, uint64_t wr_id);
  bool TakePush(uint64_t wr_id, const fabric::Sge& sink, uint64_t remote_address, uint32_t rkey);
  // Inside TakeSend(), which the thread that polls calls.
  bool offers_push() const { return offers_push_; }

  // Receives posted and not polled yet.
  uint32_t receives_out() const { return receives_out_; }
  uint32_t grants() const { return static_cast<uint32_t>(grants_.size()); }  // In force.
  // SENDs that have arrived, whose receives the application has not polled yet.
  uint32_t arrivals_to_poll() const { return arrivals_to_poll_; }
  // The application has polled a SEND.
  bool has_received() const { return sends_polled_ > 0; }
  // From then on all grants are valid.
  int64_t granted_ns() const { return granted_ns_; }

  // Serves READs that could not be served before.
  void OnReadServiceChanged() { AnswerInOrder(); }

  // Called for the peer's requester.
  void OnPacket(SimPacket packet);
  // The queue pair is in error: receives complete as flushed, and the responder answers nothing any more.
  void Flush();

 private:
  using Access = fabric::QueuePair::Access;

  struct Receive {
    uint64_t wr_id;
    fabric::Sge buffer;
    MemoryGuard::Id guard;
    uint64_t number;  // In the order of posting.
  };
  struct GrantedRange {
    fabric::Sge range;
    uint64_t address;  // Where the range begins, for the peer.
    Access access;
    int64_t from_ns;  // Valid from then on.
    MemoryGuard::Id guard;
    bool ended = false;  // By a SEND of the peer's. It is revoked later.
  };
  // An answer that the requester has not received yet, in the order of its requests.
  struct Answer {
    SimPacket packet;  // For a READ its data must still be sent. Otherwise only its number matters.
    fabric::CompletionStatus status;
    size_t sent_bytes = 0;
    uint32_t parts = 0;              // Accesses to memory that are under way.
    std::vector<uint8_t> data = {};  // What they have read, for an atomic or for a READ in words.
  };

  // A push that has arrived. It can be taken until the Poll() after the one that has returned its SEND.
  struct Pushed {
    SimPacket packet;
    uint64_t send;         // It arrived behind that SEND, counted from 1.
    uint64_t told_in = 0;  // The Poll() that has returned the SEND.
  };

  // Runs `event` on this responder, if its queue pair still exists then.
  void Later(int64_t delay_ns, std::function<void(SimResponder&)> event);
  void ExecuteInbound();
  bool ExecuteSend(const SimPacket& packet);
  // Ends the grant that `packet`, a SEND, names. False: it may not.
  bool EndGrant(const SimPacket& packet);
  void AddPush(const SimPacket& packet);
  void OnSendPolled();
  bool TellPushOf(uint64_t send, uint64_t poll);
  void PushReceive(const Receive& receive, fabric::CompletionStatus status, uint32_t byte_len,
                   int64_t delay_ns, std::function<bool(std::unique_lock<std::mutex>*)> offer = nullptr);
  // Offers a SEND to the handler, unless `lock` is null. True: it was taken, and `receive` is posted again.
  // False: it is in `receive`.
  bool Offer(const Receive& receive, const std::vector<uint8_t>& data, std::unique_lock<std::mutex>* lock);
  void RetrySoon();
  // The memory that `packet` wants to access; null: it may not.
  uint8_t* Resolve(const SimPacket& packet, Access access) const;
  void AnswerInOrder();

  // ---- Accesses to granted memory that take time. Each method with a number is an event.

  Answer* FindAnswer(uint64_t number);
  void BeginWrite(SimPacket packet);
  void WritePart(uint64_t number, size_t offset, size_t length_bytes);
  void BeginReadInWords(Answer& answer, const uint8_t* memory);
  void ReadPart(uint64_t number, size_t offset, size_t length_bytes);
  void BeginAtomic(SimPacket packet);
  void ReadWord(uint64_t number, int64_t duration_ns);
  void WriteWord(uint64_t number);
  // The memory of an answer; null: it was revoked meanwhile, and the answer is a refusal.
  uint8_t* StillGranted(Answer& answer, Access access);

  SimQueuePair& qp_;
  std::deque<Receive> receives_;
  uint64_t receives_posted_ = 0;
  uint32_t receives_out_ = 0;
  uint32_t arrivals_to_poll_ = 0;
  uint64_t sends_arrived_ = 0;
  uint64_t sends_polled_ = 0;
  uint64_t received_in_poll_ = 0;  // That Poll() has returned the last polled SEND.
  std::deque<Pushed> pushes_;      // Pushes that were not taken.
  bool offers_push_ = false;
  int64_t last_receive_completion_ns_ = 0;
  std::deque<SimPacket> inbound_;
  int rnr_tries_ = 0;
  bool rnr_waiting_ = false;  // Waits for the next retry. With sends_wait: for a receive.
  uint32_t landing_ = 0;      // Parts of WRITEs under way. SENDs and atomics wait for them.
  bool refusing_ = false;     // Ignores all requests after a refused one.
  std::deque<Answer> answers_;
  bool answering_ = false;
  std::map<uint32_t, GrantedRange> grants_;
  uint32_t last_rkey_ = 0;
  // For the next grant. No program has memory there, so that a READ fails if it was told the address of
  // memory.
  uint64_t next_address_ = uint64_t{1} << 56;
  int64_t granted_ns_ = 0;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_SIM_RESPONDER_H_
