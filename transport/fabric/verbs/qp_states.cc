// How an ibv_qp is created, moved through its states and destroyed.

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/verbs/device_qp.h"
#include "hawser/transport/fabric/verbs/errors.h"
#include "hawser/transport/fabric/verbs/suitability.h"

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

absl::Status VerbsDeviceQp::CreateQp(absl::string_view what) {
  absl::StatusOr<ibv_cq*> cq = completion_queue_.Reserve(sends_ + receives_);
  if (!cq.ok()) return cq.status();
  ibv_qp_init_attr attr = {};
  int error = 0;
  device_.AddQueuePair(this);
  for (const uint32_t inline_bytes : InlineSteps(wanted_inline_bytes_)) {
    attr = {};
    attr.qp_context = static_cast<AsyncEventHandler*>(this);
    attr.send_cq = *cq;
    attr.recv_cq = *cq;
    attr.qp_type = IBV_QPT_RC;
    // An iWARP queue pair in error takes no work requests, so a drain that marks the last one is impossible.
    attr.sq_sig_all = device_.iwarp() ? 1 : 0;
    attr.cap.max_send_wr = sends_;
    attr.cap.max_recv_wr = receives_;
    attr.cap.max_send_sge = static_cast<uint32_t>(device_.sge_max());
    attr.cap.max_recv_sge = 1;
    attr.cap.max_inline_data = inline_bytes;
    errno = 0;
    qp_ = verbs().ibv_create_qp(device_.pd(), &attr);
    if (qp_ != nullptr) break;
    error =
        errno != 0 ? errno : EINVAL;  // bnxt_re returns null, and sets no errno, for what exceeds its limits.
    if (error != EINVAL) break;
  }
  if (qp_ == nullptr) {
    device_.RemoveQueuePair(this);
    completion_queue_.Release(*cq, sends_ + receives_);
    const std::string call =
        absl::StrCat("ibv_create_qp() with ", sends_, " sends and ", receives_, " receives");
    switch (error) {
      case EINVAL:
        return VerbsError(what, call, error, "the device cannot do this much: ask for fewer slots");
      case ENOMEM:
        return VerbsError(what, call, error,
                          absl::StrCat(MemlockAdvice(), "; or the device has no queue pair left"));
      default:
        return VerbsError(what, call, error);
    }
  }
  cq_ = *cq;
  // Devices round up. Keeps the configured value.
  inline_bytes_ = std::min(attr.cap.max_inline_data, wanted_inline_bytes_);
  return absl::OkStatus();
}

absl::Status VerbsDeviceQp::Create(rdma_cm_id* id, bool accepted, absl::string_view what) {
  MutexLock lock(mutex_);
  if (absl::Status status = Ended(what); !status.ok()) return status;
  if (absl::Status status = CreateQp(what); !status.ok()) return status;
  const bool offer_ece = !accepted || AdoptEce(id);  // Before INIT.
  if (absl::Status status = MoveQp(id, what, IBV_QPS_INIT); !status.ok()) return status;
  if (offer_ece) OfferEce(id);
  return absl::OkStatus();
}

// Sets what the connection manager provides: addresses, timers, and the agreed READ depth. `reads`: the READ
// depth for the side that accepts, whose connection manager does not have it yet.
absl::Status VerbsDeviceQp::MoveQp(rdma_cm_id* id, absl::string_view what, ibv_qp_state state,
                                   std::optional<uint8_t> reads) {
  ibv_qp_attr attr = {};
  attr.qp_state = state;
  int mask = 0;
  if (verbs().rdma_init_qp_attr(id, &attr, &mask) != 0) {
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
absl::Status VerbsDeviceQp::MakeReadyToSend(rdma_cm_id* id, absl::string_view what,
                                            std::optional<uint8_t> reads) {
  if (absl::Status status = MoveQp(id, what, IBV_QPS_INIT); !status.ok()) return status;
  if (absl::Status status = MoveQp(id, what, IBV_QPS_RTR, reads); !status.ok()) return status;
  return MoveQp(id, what, IBV_QPS_RTS, reads);
}

// Enhanced connection establishment: features of two NICs of one vendor beyond the standard (mlx5: resends
// only the lost packets). False: the device has none.
bool VerbsDeviceQp::QueryEce(ibv_ece& ece) const {
  return verbs().ibv_query_ece != nullptr && verbs().ibv_set_ece != nullptr &&
         verbs().rdma_set_local_ece != nullptr && verbs().rdma_get_remote_ece != nullptr &&
         verbs().ibv_query_ece(qp_, &ece) == 0;
}

// rdma_connect() or rdma_accept() sends the offer.
void VerbsDeviceQp::OfferEce(rdma_cm_id* id) {
  ibv_ece own = {};
  if (QueryEce(own)) verbs().rdma_set_local_ece(id, &own);
}

// Adopts the peer's offer, unless the peer's NIC is of another vendor. False: the peer offers nothing.
bool VerbsDeviceQp::AdoptEce(rdma_cm_id* id) {
  ibv_ece own = {}, offered = {};
  if (!QueryEce(own) || verbs().rdma_get_remote_ece(id, &offered) != 0) return false;
  own.options = offered.vendor_id == own.vendor_id ? offered.options : 0;
  return verbs().ibv_set_ece(qp_, &own) == 0 && offered.vendor_id != 0;
}

absl::Status VerbsDeviceQp::Establish(rdma_cm_id* id, absl::string_view what) {
  {
    MutexLock lock(mutex_);
    if (absl::Status status = Ended(what); !status.ok()) return status;
    AdoptEce(id);
    if (absl::Status status = MakeReadyToSend(id, what); !status.ok()) return status;
  }
  if (verbs().rdma_establish(id) != 0) return ConnectCallError(what, "rdma_establish()", errno);
  return absl::OkStatus();
}

absl::Status VerbsDeviceQp::Connect(rdma_cm_id* id, rdma_conn_param& parameters, absl::string_view what) {
  if (absl::Status status = Ended(what); !status.ok()) return status;
  if (verbs().rdma_connect(id, &parameters) == 0) return absl::OkStatus();
  const int error = errno;
  // The driver binds and connects a socket of TCP (kernel_bindconnect() of siw and erdma). EADDRINUSE:
  // another socket has the port. EADDRNOTAVAIL: perhaps an old connection from it to the same peer has not
  // ended yet.
  if (device_.iwarp() && (error == EADDRINUSE || error == EADDRNOTAVAIL)) {
    return absl::AlreadyExistsError(ConnectCallError(what, "rdma_connect()", error).message());
  }
  // siw reports a closed port here. Other devices report it by an event.
  return error == ECONNREFUSED
             ? absl::UnavailableError(absl::StrCat(what,
                                                   ": rdma_connect(): connection refused (ECONNREFUSED)"
                                                   ": nothing listens there over RDMA"))
             : ConnectCallError(what, "rdma_connect()", error);
}

absl::Status VerbsDeviceQp::Accept(rdma_cm_id* id, rdma_conn_param& parameters, absl::string_view what) {
  {
    MutexLock lock(mutex_);
    if (absl::Status status = Ended(what); !status.ok()) return status;
    absl::Status ready = MakeReadyToSend(id, what, parameters.initiator_depth);
    if (!ready.ok()) return ready;
  }
  answered_.store(true, std::memory_order_release);
  if (verbs().rdma_accept(id, &parameters) != 0) return ConnectCallError(what, "rdma_accept()", errno);
  return absl::OkStatus();
}

absl::Status VerbsDeviceQp::EnterError(bool move) {
  MutexLock lock(mutex_);
  if (qp_ != nullptr && move) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_ERR;
    verbs().ibv_modify_qp(qp_, &attr, IBV_QP_STATE);
  }
  // Now, not when the ibv_qp is destroyed: the caller may deregister the memory once its revocations have
  // completed, which fails while a window is bound to it (ibv_dereg_mr(3)). ibv_dealloc_mw(3) unbinds.
  ReleaseNow();
  return unreleased_.gives_access() ? absl::InternalError("ibv_dereg_mr() of a grant failed")
                                    : absl::OkStatus();
}

void VerbsDeviceQp::RevokeAll() {
  MutexLock lock(mutex_);
  RevokeNow();
}

bool VerbsDeviceQp::TryRevokeAll() {
  if (!mutex_.try_lock()) return false;
  RevokeNow();
  mutex_.unlock();
  return true;
}

void VerbsDeviceQp::RevokeNow() {
  std::vector<Revocation> revocations;
  {
    MutexLock lock(notes_mutex_);
    revocations = std::exchange(to_revoke_, {});
  }
  for (Revocation& revocation : revocations) {
    revocation.error = verbs().ibv_dereg_mr(revocation.mr);
    if (revocation.error != 0) unreleased_.registrations.push_back(revocation.mr);
    MutexLock lock(notes_mutex_);  // Each at once: the poller may wait for a place.
    revoked_.push_back(revocation);
  }
}

void VerbsDeviceQp::ReleaseNow() {
  RevokeNow();
  {
    MutexLock lock(notes_mutex_);
    unreleased_.Add(std::exchange(to_release_, {}));
  }
  for (ibv_mw* window : std::exchange(unreleased_.windows, {})) ibv_dealloc_mw(window);
  device_.windows().Return(std::exchange(unreleased_.unbound, {}));
  std::erase_if(unreleased_.registrations, [this](ibv_mr* mr) { return verbs().ibv_dereg_mr(mr) == 0; });
}

// On rxe a bound window keeps the ibv_qp alive, so the windows come first.
void VerbsDeviceQp::Destroy() {
  MutexLock lock(mutex_);
  ReleaseNow();
  if (qp_ == nullptr) return;
  device_.RemoveQueuePair(this);
  const bool exclusive = FreesQueuePairsWithoutLock(device_.attr(), device_.iwarp());
  std::optional<absl::MutexLock> one_at_a_time;  // Each collects what has completed before it.
  if (exclusive) one_at_a_time.emplace(&completion_queue_.destroying());
  completion_queue_.BeforeDestruction(cq_, exclusive);
  verbs().ibv_destroy_qp(std::exchange(qp_, nullptr));
  completion_queue_.AfterDestruction(cq_, exclusive);
  completion_queue_.Release(cq_, sends_ + receives_);
}

}  // namespace hawser::fabric
