#include "hawser/transport/fabric/verbs/windows.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hawser/base/describe_errno.h"

namespace hawser::fabric {
namespace {

// A page of its own: while memory is registered, a child after fork() may not have its page.
constexpr size_t kBytes = 4096;

constexpr uint32_t kSends = 4;
constexpr uint32_t kReceives = 1;

// Some providers return null without an errno.
int Errno() { return errno != 0 ? errno : EINVAL; }

absl::Status CannotTry(absl::string_view call, int error) {
  return absl::UnavailableError(
      absl::StrCat("windows could not be tried: ", call, ": ", DescribeErrno(std::abs(error))));
}

// What the call `call` of a window answered.
absl::Status Refused(absl::string_view call, int error) {
  error = std::abs(error);
  if (error == ENOMEM || error == EAGAIN)
    return CannotTry(call, error);  // There are windows; too many are in use.
  return absl::UnimplementedError(absl::StrCat(call, ": ", DescribeErrno(error)));
}

class Trial {
 public:
  Trial(ibv_context& context, ibv_pd& pd, const WindowTrialCalls& calls)
      : context_(context), pd_(pd), calls_(calls) {}

  // The window last but one, because it could be bound to memory, and before that its queue pair, to which it
  // could be.
  ~Trial() {
    if (qp_ != nullptr) calls_.destroy_qp(qp_);
    if (window_ != nullptr) ibv_dealloc_mw(window_);
    if (mr_ != nullptr) calls_.dereg_mr(mr_);
    if (page_ != MAP_FAILED) munmap(page_, kBytes);
    if (cq_ != nullptr) calls_.destroy_cq(cq_);
  }

  absl::Status Run() {
    // First, since it needs nothing else: a provider without alloc_mw answers here.
    errno = 0;
    window_ = ibv_alloc_mw(&pd_, IBV_MW_TYPE_2);
    if (window_ == nullptr) return Refused("ibv_alloc_mw()", Errno());
    if (absl::Status status = MakeQueuePair(); !status.ok()) return status;
    return Post();
  }

 private:
  absl::Status MakeQueuePair() {
    errno = 0;
    cq_ = calls_.create_cq(&context_, kSends + kReceives, nullptr, nullptr, 0);
    if (cq_ == nullptr) return CannotTry("ibv_create_cq()", Errno());
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = cq_;
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = kSends;
    attr.cap.max_recv_wr = kReceives;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    errno = 0;
    qp_ = calls_.create_qp(&pd_, &attr);
    if (qp_ == nullptr) return CannotTry("ibv_create_qp()", Errno());
    ibv_qp_attr to = {};
    to.qp_state = IBV_QPS_INIT;  // RESET has no way to ERR.
    to.port_num = 1;
    int error =
        calls_.modify_qp(qp_, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error != 0) return CannotTry("ibv_modify_qp(INIT)", error);
    to.qp_state = IBV_QPS_ERR;
    error = calls_.modify_qp(qp_, &to, IBV_QP_STATE);
    return error == 0 ? absl::OkStatus() : CannotTry("ibv_modify_qp(ERR)", error);
  }

  absl::Status Post() {
    page_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page_ == MAP_FAILED) return CannotTry("mmap()", errno);
    errno = 0;
    mr_ = calls_.reg_mr(&pd_, page_, kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    if (mr_ == nullptr) return CannotTry("ibv_reg_mr()", Errno());
    ibv_send_wr bind = {}, invalidate = {};
    bind.next = &invalidate;
    bind.opcode = IBV_WR_BIND_MW;
    bind.bind_mw.mw = window_;
    bind.bind_mw.rkey = invalidate.invalidate_rkey = ibv_inc_rkey(window_->rkey);
    bind.bind_mw.bind_info = {.mr = mr_,
                              .addr = reinterpret_cast<uint64_t>(page_),
                              .length = kBytes,
                              .mw_access_flags = IBV_ACCESS_REMOTE_READ};
    invalidate.opcode = IBV_WR_LOCAL_INV;
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(qp_, &bind, &bad);
    if (error == 0) return absl::OkStatus();
    return Refused(absl::StrCat("ibv_post_send() of ", bad == &invalidate ? "LOCAL_INV" : "BIND_MW"), error);
  }

  ibv_context& context_;
  ibv_pd& pd_;
  const WindowTrialCalls& calls_;
  ibv_mw* window_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  void* page_ = MAP_FAILED;
  ibv_mr* mr_ = nullptr;
};

}  // namespace

absl::Status TryWindows(ibv_context& context, ibv_pd& pd, const WindowTrialCalls& calls) {
  return Trial(context, pd, calls).Run();
}

}  // namespace hawser::fabric
