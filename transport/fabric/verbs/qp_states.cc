// How a VerbsQueuePair creates its ibv_qp and moves it through its states.

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/verbs/errors.h"
#include "hawser/transport/fabric/verbs/queue_pair.h"

namespace hawser::fabric {
namespace {

// 0.96 ms (InfiniBand Architecture Specification 1.2.1, table 45). The connection manager leaves it at 0,
// which is the longest: 655 ms.
constexpr uint8_t kMinRnrTimer = 13;

// The bits of enum ibv_qp_attr_mask. Kernels may add bits of their own to the mask of rdma_init_qp_attr()
// (IB_QP_SMAC, 1 << 21, and the two above), and ibv_modify_qp() refuses those.
constexpr int kUserAttributes = ~(7 << 21);

const char* NameOf(ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_INIT:
      return "INIT";
    case IBV_QPS_RTR:
      return "RTR";
    default:
      return "RTS";
  }
}

}  // namespace

absl::Status VerbsQueuePair::CreateQp(absl::string_view what) {
  const uint32_t sends = options_.send_depth + grants_.sends_max() + 1;
  absl::StatusOr<ibv_cq*> cq = completion_queue_.Reserve(sends + options_.receive_depth);
  if (!cq.ok()) return cq.status();
  ibv_qp_init_attr attr = {};
  int error = 0;
  device_.AddQueuePair(this);
  // A device that cannot send so many bytes inline returns EINVAL, and does not report its limit.
  for (uint32_t inline_bytes : {fabric_.inline_bytes, uint32_t{64}, uint32_t{0}}) {
    attr = {};
    attr.qp_context = static_cast<AsyncEventHandler*>(this);
    attr.send_cq = *cq;
    attr.recv_cq = *cq;
    attr.qp_type = IBV_QPT_RC;
    // An iWARP queue pair in error takes no work requests, so a drain that marks the last one is impossible.
    attr.sq_sig_all = AllSignaled() ? 1 : 0;
    attr.cap.max_send_wr = sends;
    attr.cap.max_recv_wr = options_.receive_depth;
    attr.cap.max_send_sge =
        static_cast<uint32_t>(std::min<size_t>(kSgeMax, static_cast<size_t>(device_.attr().max_sge)));
    attr.cap.max_recv_sge = 1;
    attr.cap.max_inline_data = std::min(inline_bytes, fabric_.inline_bytes);
    errno = 0;
    qp_ = verbs().ibv_create_qp(device_.pd(), &attr);
    if (qp_ != nullptr) break;
    error = errno;
    if (error != EINVAL) break;
  }
  if (qp_ == nullptr) {
    device_.RemoveQueuePair(this);
    completion_queue_.Release(*cq, sends + options_.receive_depth);
    const std::string call =
        absl::StrCat("ibv_create_qp() with ", sends, " sends and ", options_.receive_depth, " receives");
    switch (error) {
      case EINVAL:
        return VerbsError(what, call, error, "the device cannot do this much: ask for fewer slots");
      case ENOMEM:
        return VerbsError(what, call, error,
                          absl::StrCat("the device has no queue pair left, or ", MemlockAdvice()));
      default:
        return VerbsError(what, call, error);
    }
  }
  cq_ = *cq;
  qp_num_ = qp_->qp_num;
  const bool offer_ece = !accepted_ || AdoptEce();  // Before INIT.
  if (absl::Status status = MoveQp(what, IBV_QPS_INIT); !status.ok()) return status;
  if (offer_ece) OfferEce();
  // Devices round up. Keeps the configured value.
  inline_bytes_ = std::min(attr.cap.max_inline_data, fabric_.inline_bytes);
  // Posts receives before the handshake continues, so that the peer's first message finds one.
  const std::vector<ReceiveWorkRequest> pending = std::exchange(pending_receives_, {});
  if (!PostReceives(pending).ok()) {  // On an error it has posted none.
    for (const ReceiveWorkRequest& request : pending) DeliverFlushed(request.wr_id, Opcode::kReceive);
  }
  return state_ == State::kError ? error_ : absl::OkStatus();
}

// Sets what the connection manager provides: addresses, timers, and the agreed READ depth. `reads`: the READ
// depth for the side that accepts, whose connection manager does not have it yet.
absl::Status VerbsQueuePair::MoveQp(absl::string_view what, ibv_qp_state state,
                                    std::optional<uint8_t> reads) {
  ibv_qp_attr attr = {};
  attr.qp_state = state;
  int mask = 0;
  if (verbs().rdma_init_qp_attr(id_, &attr, &mask) != 0) {
    return ConnectCallError(what, absl::StrCat("rdma_init_qp_attr(", NameOf(state), ")"), errno);
  }
  mask &= kUserAttributes;
  // The connection manager has no parameter for this timer. iWARP has no RNR.
  if (state == IBV_QPS_RTR && !device_.iwarp()) {
    attr.min_rnr_timer = kMinRnrTimer;
    mask |= IBV_QP_MIN_RNR_TIMER;
  }
  if (reads.has_value()) attr.max_rd_atomic = attr.max_dest_rd_atomic = *reads;
  if (const int error = verbs().ibv_modify_qp(qp_, &attr, mask); error != 0) {
    return ConnectCallError(what, absl::StrCat("ibv_modify_qp(", NameOf(state), ")"), error);
  }
  return absl::OkStatus();
}

// Moves the ibv_qp from INIT to a state in which it can send and receive. It sets INIT again, because the
// peer's access is known only now. On an iWARP device the connection manager makes the other changes.
absl::Status VerbsQueuePair::MakeReadyToSend(absl::string_view what, std::optional<uint8_t> reads) {
  if (absl::Status status = MoveQp(what, IBV_QPS_INIT); !status.ok()) return status;
  if (absl::Status status = MoveQp(what, IBV_QPS_RTR, reads); !status.ok()) return status;
  return MoveQp(what, IBV_QPS_RTS, reads);
}

// Enhanced connection establishment: features of two NICs of one vendor beyond the standard (mlx5: resends
// only the lost packets). False: the device has none.
bool VerbsQueuePair::QueryEce(ibv_ece& ece) const {
  return verbs().ibv_query_ece != nullptr && verbs().ibv_set_ece != nullptr &&
         verbs().rdma_set_local_ece != nullptr && verbs().rdma_get_remote_ece != nullptr &&
         verbs().ibv_query_ece(qp_, &ece) == 0;
}

// rdma_connect() or rdma_accept() sends the offer.
void VerbsQueuePair::OfferEce() {
  ibv_ece own = {};
  if (QueryEce(own)) verbs().rdma_set_local_ece(id_, &own);
}

// Adopts the peer's offer, unless the peer's NIC is of another vendor. False: the peer offers nothing.
bool VerbsQueuePair::AdoptEce() {
  ibv_ece own = {}, offered = {};
  if (!QueryEce(own) || verbs().rdma_get_remote_ece(id_, &offered) != 0) return false;
  own.options = offered.vendor_id == own.vendor_id ? offered.options : 0;
  return verbs().ibv_set_ece(qp_, &own) == 0 && offered.vendor_id != 0;
}

}  // namespace hawser::fabric
