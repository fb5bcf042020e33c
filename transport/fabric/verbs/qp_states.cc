// How the ibv_qp of a VerbsQueuePair is made, and moved through its states.

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

// Those of enum ibv_qp_attr_mask. Kernels may add bits of their own to what rdma_init_qp_attr() tells
// (IB_QP_SMAC, 1 << 21, and the two above), which ibv_modify_qp() refuses.
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
  // A device that cannot do as much inline says EINVAL, and not what it could do.
  for (uint32_t inline_bytes : {fabric_.inline_bytes, uint32_t{64}, uint32_t{0}}) {
    attr = {};
    attr.qp_context = static_cast<AsyncEventHandler*>(this);
    attr.send_cq = *cq;
    attr.recv_cq = *cq;
    attr.qp_type = IBV_QPT_RC;
    // An iWARP device takes no work requests when it is in error, so none can be posted there to know the
    // last one by.
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
        return VerbsError(
            what, call, error,
            "the device has no queue pair or memory left, or the memlock limit (ulimit -l) is reached");
      default:
        return VerbsError(what, call, error);
    }
  }
  cq_ = *cq;
  qp_num_ = qp_->qp_num;
  const bool offer_ece = !accepted_ || AdoptEce();  // Before INIT.
  if (absl::Status status = MoveQp(what, IBV_QPS_INIT); !status.ok()) return status;
  if (offer_ece) OfferEce();
  // Devices round up, which is not what was asked for.
  inline_bytes_ = std::min(attr.cap.max_inline_data, fabric_.inline_bytes);
  // Before the peer can hear of us, so that its first message finds one.
  const std::vector<ReceiveWorkRequest> pending = std::exchange(pending_receives_, {});
  if (!PostReceives(pending).ok()) {  // None of them.
    for (const ReceiveWorkRequest& request : pending) DeliverFlushed(request.wr_id, Opcode::kReceive);
  }
  return state_ == State::kError ? error_ : absl::OkStatus();
}

// As the connection manager says: addresses, timers, and the READs that both sides have agreed on. `reads`: of
// the side that accepts, which has told the connection manager nothing of them yet.
absl::Status VerbsQueuePair::MoveQp(absl::string_view what, ibv_qp_state state,
                                    std::optional<uint8_t> reads) {
  ibv_qp_attr attr = {};
  attr.qp_state = state;
  int mask = 0;
  if (verbs().rdma_init_qp_attr(id_, &attr, &mask) != 0) {
    return ConnectCallError(what, absl::StrCat("rdma_init_qp_attr(", NameOf(state), ")"), errno);
  }
  mask &= kUserAttributes;
  // The connection manager has no parameter for it. iWARP has no RNR.
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

// From a state in which it only receives, or nothing at all, to one in which it does all. The first again,
// since what the peer may do is known only now. An iWARP device is told the rest by the connection manager:
// nothing is left to change then.
absl::Status VerbsQueuePair::MakeReadyToSend(absl::string_view what, std::optional<uint8_t> reads) {
  if (absl::Status status = MoveQp(what, IBV_QPS_INIT); !status.ok()) return status;
  if (absl::Status status = MoveQp(what, IBV_QPS_RTR, reads); !status.ok()) return status;
  return MoveQp(what, IBV_QPS_RTS, reads);
}

// Enhanced connection establishment: what two NICs of one vendor can do beyond the standard (mlx5: to send again
// only what was lost). A device that has none says so, and nothing of this is needed.
bool VerbsQueuePair::QueryEce(ibv_ece& ece) const {
  return verbs().ibv_query_ece != nullptr && verbs().ibv_set_ece != nullptr &&
         verbs().rdma_set_local_ece != nullptr && verbs().rdma_get_remote_ece != nullptr &&
         verbs().ibv_query_ece(qp_, &ece) == 0;
}

// With rdma_connect(), or rdma_accept().
void VerbsQueuePair::OfferEce() {
  ibv_ece own = {};
  if (QueryEce(own)) verbs().rdma_set_local_ece(id_, &own);
}

// What the peer offers, or nothing if that is another vendor's. False: it offers nothing at all.
bool VerbsQueuePair::AdoptEce() {
  ibv_ece own = {}, offered = {};
  if (!QueryEce(own) || verbs().rdma_get_remote_ece(id_, &offered) != 0) return false;
  own.options = offered.vendor_id == own.vendor_id ? offered.options : 0;
  return verbs().ibv_set_ece(qp_, &own) == 0 && offered.vendor_id != 0;
}

}  // namespace hawser::fabric
