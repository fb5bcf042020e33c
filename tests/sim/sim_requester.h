#ifndef HAWSER_TESTS_SIM_SIM_REQUESTER_H_
#define HAWSER_TESTS_SIM_SIM_REQUESTER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hawser/tests/sim/memory_guard.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::sim {

class SimQueuePair;

// The requester of a queue pair. It fetches work requests in order, some time after the post, and sends them.
// They complete in posting order, some time later. Locked.
class SimRequester {
 public:
  // `queue_pair` owns this object.
  explicit SimRequester(SimQueuePair& queue_pair) : qp_(queue_pair) {}

  // `not_before_ns`: from then on all grants from before this post are valid.
  absl::Status Post(absl::Span<const fabric::SendWorkRequest> requests, uint32_t depth,
                    int64_t not_before_ns);
  // A copy of `message`, which waits for RingDoorbell() or Post(). False: a SEND that the NIC has yet to
  // fetch is before it, and this one is to be posted as any other, so that both roads mix.
  bool PostInline(absl::Span<const uint8_t> message);
  void RingDoorbell(int64_t not_before_ns);
  // Work requests posted, whose completions were not polled yet.
  uint64_t posted() const { return posted_; }

  // ---- From the peer's responder.

  void OnAnswer(uint64_t number, fabric::CompletionStatus status);
  // The peer has the message of a SEND, and its answer may arrive before the completion. From then on the
  // sender may change the content, though it may not release the memory yet. So the guard stops watching it.
  void OnTaken(uint64_t number);
  void OnReadData(uint64_t number, size_t offset, const std::vector<uint8_t>& data, bool last);

  // ---- From the queue pair.

  // If there is no peer, the oldest work request fails.
  void FailOldest();
  // The queue pair is in error: all remaining work requests complete as flushed.
  void Flush();

 private:
  struct Send {
    uint64_t number;
    fabric::SendWorkRequest request;  // Its sges are in `sges`.
    std::vector<fabric::Sge> sges;
    std::vector<uint8_t> copied;  // What was posted inline, in place of `sges`. It has no completion.
    uint32_t length;
    std::vector<MemoryGuard::Id> guards;  // One for each sge.
    int64_t not_before_ns = 0;
    bool taken_up = false;
    bool done = false;
    int64_t sent_ns = 0;
  };
  // A completed or flushed work request, until the application has polled the completion that covers it.
  struct Unproved {
    uint64_t number;
    uint64_t wr_id;
    bool will_be_proved;
    std::vector<MemoryGuard::Id> guards;
  };

  void Retire(Send& send, bool will_be_proved);
  // Runs `event` on this requester, if its queue pair still exists then.
  void Later(int64_t delay_ns, std::function<void(SimRequester&)> event);
  absl::Status Check(const fabric::SendWorkRequest& request) const;
  void TakeUp();
  void TransmitHead();
  void Transmit(Send& send);
  void WatchAnswers();
  void OnAnswersDue();
  void CompleteInOrder();
  void PushSend(uint64_t number, uint64_t wr_id, fabric::Opcode opcode, fabric::CompletionStatus status,
                int64_t delay_ns);
  void Proved(uint64_t number);
  void Fail(uint64_t number, fabric::CompletionStatus status);

  SimQueuePair& qp_;
  std::deque<Send> sends_;
  std::deque<Unproved> unproved_;
  std::vector<std::vector<uint8_t>> copied_;  // Posted inline, and waiting for the doorbell.
  uint64_t posted_ = 0;
  uint64_t next_number_ = 0;
  size_t taken_up_ = 0;  // How many of sends_ were fetched, from the front.
  uint32_t reads_outstanding_ = 0;
  bool transmitting_ = false;
  bool watching_answers_ = false;
  int64_t unreachable_since_ns_ = 0;  // 0: the peer can be reached.
  int64_t last_send_completion_ns_ = 0;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_SIM_REQUESTER_H_
