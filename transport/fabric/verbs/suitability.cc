#include "hawser/transport/fabric/verbs/suitability.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

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

}  // namespace hawser::fabric
