// Which device Hawser takes where neither an address nor a route says which, as NewVerbsFabric() does: the
// one that HAWSER_RDMA_DEVICE names, else the first that librdmacm lists with an active port.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/tools/doctor/checks.h"

namespace hawser::doctor {
namespace {

constexpr char kCheck[] = "devices";
constexpr char kVariable[] = "HAWSER_RDMA_DEVICE";

bool HasActivePort(const std::vector<Device>& devices, const std::string& name) {
  return std::any_of(devices.begin(), devices.end(),
                     [&](const Device& device) { return device.name == name && AnyPortIsActive({device}); });
}

Finding CheckNamed(const std::string& named, const std::vector<std::string>& listed,
                   const std::vector<Device>& devices) {
  if (std::find(listed.begin(), listed.end(), named) == listed.end()) {
    if (std::any_of(devices.begin(), devices.end(),
                    [&](const Device& device) { return device.name == named; })) {
      return {Level::kProblem, kCheck, named,
              absl::StrCat(kVariable, " names it, but librdmacm does not list it, so Hawser uses none"),
              absl::StrCat("see its provider and its access; or name one of ", absl::StrJoin(listed, ", "))};
    }
    return {Level::kProblem, kCheck, named,
            absl::StrCat(kVariable, " names it, but it is not there, so Hawser uses none"),
            absl::StrCat("name one of ", absl::StrJoin(listed, ", "), ", or unset ", kVariable)};
  }
  if (HasActivePort(devices, named)) {
    return {Level::kOk, kCheck, named, absl::StrCat("used by Hawser, because ", kVariable, " names it"), ""};
  }
  return {Level::kProblem, kCheck, named,
          absl::StrCat("used by Hawser, because ", kVariable, " names it, but none of its ports is active"),
          absl::StrCat("bring one up, name another device, or unset ", kVariable)};
}

}  // namespace

Findings CheckChoice(const System& system, const std::vector<Device>& devices,
                     const std::vector<VerbsDevice>& verbs_devices) {
  const absl::StatusOr<std::vector<std::string>> listed = system.loader().ListDevices();
  if (!listed.ok()) {
    const bool others_open = std::any_of(verbs_devices.begin(), verbs_devices.end(),
                                         [](const VerbsDevice& device) { return device.opened.ok(); });
    if (!others_open || absl::IsFailedPrecondition(listed.status())) return {};
    return {{Level::kProblem, kCheck, "",
             absl::StrCat("Hawser can use none, though one can be opened: ", listed.status().message(),
                          ": this librdmacm lists no device unless it can open each of them"),
             "see the provider and the access of those that cannot be opened"}};
  }
  const std::string named = system.Environment(kVariable);
  if (!named.empty()) return {CheckNamed(named, *listed, devices)};
  for (const std::string& name : *listed) {
    if (!HasActivePort(devices, name)) continue;
    return {{Level::kOk, kCheck, name,
             absl::StrCat("used by Hawser where no address says which: it is the first with an active port (",
                          kVariable, " would name one for all)"),
             ""}};
  }
  return {};
}

}  // namespace hawser::doctor
