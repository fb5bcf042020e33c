#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_RECEIVE_QUEUE_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_RECEIVE_QUEUE_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/endpoint.h"
#include "hawser/transport/fabric/verbs/memory.h"

namespace hawser::fabric {

// The receives of one queue pair: those that the ibv_qp has, oldest first, and those that wait until there is
// one. A sequence number, modulo 2^32, identifies each, as in VerbsSendRing.
// Thread:   that of the queue pair.
class VerbsReceiveQueue {
 public:
  VerbsReceiveQueue(VerbsEndpoint& endpoint, const VerbsMemory& memory, uint32_t depth);

  bool empty() const { return posted_ == retired_; }
  bool Outstanding(uint32_t number) const { return number - retired_ < posted_ - retired_; }
  // This one has completed. They do in order: an RC queue pair with a receive queue of its own. Returns its
  // wr_id.
  uint64_t Retire(uint32_t number) {
    retired_ = number + 1;
    return wr_ids_[number & (wr_ids_.size() - 1)];
  }

  // As QueuePair::PostReceive(), in each state but kError. `qp`: null if there is none yet. `sges` is
  // overwritten.
  absl::Status Post(ibv_qp* qp, absl::Span<const ReceiveWorkRequest> requests, std::vector<ibv_sge>& sges);
  // There is an ibv_qp now: posts what waited, or completes it as flushed.
  void PostPending(ibv_qp* qp, std::vector<ibv_sge>& sges);

  // Complete as flushed what waits for an ibv_qp, and what the device will not complete any more.
  void FlushPending();
  void FlushOutstanding();

 private:
  absl::Status PostNow(ibv_qp* qp, absl::Span<const ReceiveWorkRequest> requests, std::vector<ibv_sge>& sges);

  VerbsEndpoint& endpoint_;
  const VerbsMemory& memory_;
  const uint32_t depth_;
  const uint32_t token_;
  std::vector<uint64_t> wr_ids_;  // By number, a power of two.
  uint32_t posted_ = 0;           // Numbers in [retired_, posted_) are outstanding.
  uint32_t retired_ = 0;
  std::vector<ReceiveWorkRequest> pending_;  // Until there is an ibv_qp.
  std::vector<ibv_recv_wr> chain_;           // While it is built; kept so that posting allocates nothing.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_RECEIVE_QUEUE_H_
