// Which device Hawser takes where neither an address nor a route says which, as NewVerbsFabric() does: the
// one that HAWSER_RDMA_DEVICE names, else the first that librdmacm lists with an active port and that makes
// reliable connections. VerbsDevice::Find() is what this repeats.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "hawser/tools/doctor/checks.h"

namespace hawser::doctor {
namespace {

constexpr char kDevicesCheck[] = "devices";
constexpr char kVariable[] = "HAWSER_RDMA_DEVICE";

bool HasActivePort(const std::vector<Device>& devices, const std::string& name) {
  return std::any_of(devices.begin(), devices.end(),
                     [&](const Device& device) { return device.name == name && AnyPortIsActive({device}); });
}

// Null: libibverbs does not list it, or not by that name.
const VerbsDevice* Find(const std::vector<VerbsDevice>& verbs_devices, const std::string& name) {
  const auto it = std::find_if(verbs_devices.begin(), verbs_devices.end(),
                               [&](const VerbsDevice& device) { return device.name == name; });
  return it != verbs_devices.end() ? &*it : nullptr;
}

constexpr char kUseAnother[] = "use another device, or tcp://";

std::string MakesNone(const VerbsDevice& device) {
  return absl::StrCat("it makes no reliable queue pair: ", device.makes_queue_pairs.message());
}

Finding CheckNamed(const std::string& named, const std::vector<std::string>& listed,
                   const std::vector<Device>& devices, const VerbsDevice* verbs) {
  if (std::find(listed.begin(), listed.end(), named) == listed.end()) {
    if (std::any_of(devices.begin(), devices.end(),
                    [&](const Device& device) { return device.name == named; })) {
      return {Level::kProblem, kDevicesCheck, named,
              absl::StrCat(kVariable, " names it, but librdmacm does not list it, so Hawser uses none"),
              absl::StrCat("see its provider and its access; or name one of ", absl::StrJoin(listed, ", "))};
    }
    return {Level::kProblem, kDevicesCheck, named,
            absl::StrCat(kVariable, " names it, but it is not there, so Hawser uses none"),
            absl::StrCat("name one of ", absl::StrJoin(listed, ", "), ", or unset ", kVariable)};
  }
  if (verbs != nullptr && !verbs->suits.ok()) {
    return {Level::kProblem, kDevicesCheck, named,
            absl::StrCat(kVariable, " names it, but Hawser does not use it: ", verbs->suits.message()),
            absl::StrCat("name another device, or unset ", kVariable)};
  }
  if (verbs != nullptr && !verbs->makes_queue_pairs.ok()) {
    return {Level::kProblem, kDevicesCheck, named,
            absl::StrCat("used by Hawser, because ", kVariable, " names it, but ", MakesNone(*verbs)),
            absl::StrCat("name another device, or unset ", kVariable)};
  }
  if (HasActivePort(devices, named)) {
    return {Level::kOk, kDevicesCheck, named,
            absl::StrCat("used by Hawser, because ", kVariable, " names it"), ""};
  }
  return {Level::kProblem, kDevicesCheck, named,
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
    return {{Level::kProblem, kDevicesCheck, "",
             absl::StrCat("Hawser can use none, though one can be opened: ", listed.status().message(),
                          ": this librdmacm lists no device unless it can open each of them"),
             "see the provider and the access of those that cannot be opened"}};
  }
  const std::string named = system.Environment(kVariable);
  if (!named.empty()) return {CheckNamed(named, *listed, devices, Find(verbs_devices, named))};
  Findings findings;
  const VerbsDevice* chosen_last = nullptr;  // Makes no queue pairs, and is taken if there is no other.
  for (const std::string& name : *listed) {
    const VerbsDevice* const verbs = Find(verbs_devices, name);
    const auto pass_over = [&](absl::string_view why) {
      findings.push_back({Level::kOk, kDevicesCheck, name, absl::StrCat("passed over by Hawser: ", why), ""});
    };
    if (verbs != nullptr && !verbs->suits.ok()) {
      pass_over(verbs->suits.message());
    } else if (!HasActivePort(devices, name)) {
      pass_over("none of its ports is active");
    } else if (verbs != nullptr && !verbs->makes_queue_pairs.ok()) {
      pass_over(MakesNone(*verbs));
      if (chosen_last == nullptr) chosen_last = verbs;
    } else {
      findings.push_back(
          {Level::kOk, kDevicesCheck, name,
           absl::StrCat("used by Hawser where no address says which: it is the first with an active "
                        "port that makes reliable connections (",
                        kVariable, " would name one for all)"),
           ""});
      return findings;
    }
  }
  if (chosen_last != nullptr) {
    std::erase_if(findings, [&](const Finding& each) { return each.subject == chosen_last->name; });
    findings.push_back(
        {Level::kProblem, kDevicesCheck, chosen_last->name,
         absl::StrCat("used by Hawser, because there is no other, but ", MakesNone(*chosen_last)),
         absl::StrCat("see dmesg, `ulimit -l` and the rdma cgroup; or ", kUseAnother)});
    return findings;
  }
  // A port that is down is said elsewhere.
  std::erase_if(findings, [&](const Finding& each) {
    const VerbsDevice* const verbs = Find(verbs_devices, each.subject);
    return verbs == nullptr || verbs->suits.ok();
  });
  for (Finding& each : findings) {
    each.level = Level::kProblem;
    each.advice = kUseAnother;
  }
  return findings;
}

}  // namespace hawser::doctor
