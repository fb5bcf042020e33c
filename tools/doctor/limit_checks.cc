#include "absl/strings/str_cat.h"
#include "hawser/tools/doctor/checks.h"

namespace hawser::doctor {

Findings CheckLimits(const std::vector<VerbsDevice>& verbs_devices) {
  Findings findings;
  for (const VerbsDevice& device : verbs_devices) {
    if (!device.limits.has_value()) continue;  // Said elsewhere.
    const VerbsLimits& limits = *device.limits;
    findings.push_back(
        {Level::kOk, "limits", device.name,
         absl::StrCat("a SEND of up to ", limits.send_sges, limits.send_sges == 1 ? " entry" : " entries",
                      " (its max_sge is ", limits.max_sge, "), ",
                      limits.inline_bytes.has_value() ? absl::StrCat(*limits.inline_bytes, " bytes inline")
                                                      : "unknown bytes inline",
                      ", ", limits.read_depth, limits.read_depth == 1 ? " READ" : " READs",
                      " at once each way, completion queues of up to ", limits.max_cqe, " entries"),
         ""});
  }
  return findings;
}

}  // namespace hawser::doctor
