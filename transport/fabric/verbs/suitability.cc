#include "hawser/transport/fabric/verbs/suitability.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {

absl::Status CheckAttributes(const ibv_device_attr& attr) {
  const struct {
    absl::string_view name;
    int value;
    absl::string_view meaning;
  } needed[] = {{"max_qp_wr", attr.max_qp_wr, "no work requests fit a queue pair"},
                {"max_cqe", attr.max_cqe, "no completions fit a completion queue"},
                {"max_qp_rd_atom", attr.max_qp_rd_atom, "peers can have no READs outstanding at it"},
                {"max_qp_init_rd_atom", attr.max_qp_init_rd_atom, "it can have no READs outstanding"}};
  for (const auto& [name, value, meaning] : needed) {
    if (value > 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the device says ", name, " = ", value, ": ", meaning,
                     ", so Hawser cannot use it: use another device (RuntimeOptions::rdma_device, "
                     "HAWSER_RDMA_DEVICE), or tcp://"));
  }
  return absl::OkStatus();
}

uint32_t ReadDepthMax(const ibv_device_attr& attr) {
  return static_cast<uint32_t>(std::min({attr.max_qp_rd_atom, attr.max_qp_init_rd_atom, 254}));
}

size_t SgeMax(const ibv_device_attr& attr) {
  return static_cast<size_t>(std::clamp(attr.max_sge, 1, static_cast<int>(kSgeMax)));
}

std::vector<uint32_t> InlineSteps(uint32_t wanted) {
  std::vector<uint32_t> steps = {wanted};
  for (const uint32_t less : {128, 96, 64, 48, 0}) {
    if (less < wanted) steps.push_back(less);
  }
  return steps;
}

absl::StatusOr<uint32_t> TryQueuePair(ibv_context& context, ibv_pd& pd, const QueuePairTrialCalls& calls,
                                      size_t sges, uint32_t inline_bytes) {
  const auto failed = [](absl::string_view call, int error) {
    return absl::UnavailableError(absl::StrCat(call, ": ", DescribeErrno(error)));
  };
  const auto error_of_call = [] { return errno != 0 ? errno : EINVAL; };  // Some providers set none.
  errno = 0;
  ibv_cq* const cq = calls.create_cq(&context, 2, nullptr, nullptr, 0);
  if (cq == nullptr) return failed("ibv_create_cq()", error_of_call());
  absl::StatusOr<uint32_t> granted;
  for (const uint32_t step : InlineSteps(inline_bytes)) {
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = attr.cap.max_recv_sge = 1;
    attr.cap.max_send_sge = static_cast<uint32_t>(sges);
    attr.cap.max_inline_data = step;
    errno = 0;
    ibv_qp* const qp = calls.create_qp(&pd, &attr);
    const int error = error_of_call();
    if (qp != nullptr) {
      calls.destroy_qp(qp);
      granted = std::min(attr.cap.max_inline_data, inline_bytes);  // Devices round up.
      break;
    }
    granted = failed("ibv_create_qp()", error);
    if (error != EINVAL) break;
  }
  calls.destroy_cq(cq);
  return granted;
}

}  // namespace hawser::fabric
