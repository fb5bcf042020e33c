#include "hawser/transport/fabric/verbs/receive_queue.h"

#include <bit>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"

namespace hawser::fabric {

VerbsReceiveQueue::VerbsReceiveQueue(VerbsEndpoint& endpoint, const VerbsMemory& memory, uint32_t depth)
    : endpoint_(endpoint),
      memory_(memory),
      depth_(depth),
      token_(endpoint.token()),
      wr_ids_(std::bit_ceil(depth)) {}

absl::Status VerbsReceiveQueue::Post(ibv_qp* qp, absl::Span<const ReceiveWorkRequest> requests,
                                     std::vector<ibv_sge>& sges) {
  const size_t outstanding = posted_ - retired_ + pending_.size();
  if (requests.size() + outstanding > depth_) {
    return absl::ResourceExhaustedError(absl::StrCat("PostReceive: ", requests.size(),
                                                     " work requests, but the receive queue of ", depth_,
                                                     " has room for ", depth_ - outstanding));
  }
  for (const ReceiveWorkRequest& request : requests) {
    if (!memory_.Contains(request.buffer)) return memory_.Refusal(request.buffer);
  }
  if (qp == nullptr) {
    pending_.insert(pending_.end(), requests.begin(), requests.end());
    return absl::OkStatus();
  }
  return PostNow(qp, requests, sges);
}

absl::Status VerbsReceiveQueue::PostNow(ibv_qp* qp, absl::Span<const ReceiveWorkRequest> requests,
                                        std::vector<ibv_sge>& sges) {
  if (requests.empty()) return absl::OkStatus();
  const size_t count = requests.size();
  chain_.assign(count, {});
  sges.clear();
  sges.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t number = posted_ + static_cast<uint32_t>(i);
    wr_ids_[number & (wr_ids_.size() - 1)] = requests[i].wr_id;
    sges.push_back(memory_.ToVerbs(requests[i].buffer));
    ibv_recv_wr& wr = chain_[i];
    wr.wr_id = VerbsCompletionQueue::WorkRequestId(token_, /*receive=*/true, number);
    wr.sg_list = &sges[i];
    wr.num_sge = 1;
    wr.next = i + 1 < count ? &chain_[i + 1] : nullptr;
  }
  ibv_recv_wr* bad = nullptr;
  const int error = std::abs(ibv_post_recv(qp, chain_.data(), &bad));
  if (error == 0) {
    posted_ += static_cast<uint32_t>(count);
    return absl::OkStatus();
  }
  // If some were posted, all count as posted. Those that were not complete as flushed.
  const size_t posted =
      bad >= chain_.data() && bad < chain_.data() + count ? static_cast<size_t>(bad - chain_.data()) : 0;
  posted_ += static_cast<uint32_t>(posted);
  endpoint_.Fail(absl::InternalError(absl::StrCat("PostReceive: ibv_post_recv(): ", DescribeErrno(error),
                                                  " at work request ", posted, " of ", count)));
  if (posted == 0) return endpoint_.error();
  for (size_t i = posted; i < count; ++i) {
    endpoint_.DeliverFlushed(requests[i].wr_id, Opcode::kReceive);
  }
  return absl::OkStatus();
}

void VerbsReceiveQueue::PostPending(ibv_qp* qp, std::vector<ibv_sge>& sges) {
  const std::vector<ReceiveWorkRequest> pending = std::exchange(pending_, {});
  if (PostNow(qp, pending, sges).ok()) return;
  for (const ReceiveWorkRequest& request : pending) {  // It has posted none.
    endpoint_.DeliverFlushed(request.wr_id, Opcode::kReceive);
  }
}

void VerbsReceiveQueue::FlushPending() {
  for (const ReceiveWorkRequest& request : std::exchange(pending_, {})) {
    endpoint_.DeliverFlushed(request.wr_id, Opcode::kReceive);
  }
}

void VerbsReceiveQueue::FlushOutstanding() {
  while (!empty()) endpoint_.DeliverFlushed(Retire(retired_), Opcode::kReceive);
}

}  // namespace hawser::fabric
