// What peers can reach of the memory of a process, beyond what they were granted.

#include "absl/strings/str_cat.h"
#include "hawser/tools/doctor/checks.h"

namespace hawser::doctor {
namespace {

// rpc/PROTOCOL.md, drawbacks.
constexpr char kIwarpExposes[] =
    "an iWARP READ is answered by a WRITE: while a large message arrives, what is being READ of it, up to "
    "32 MiB, can be written by the peer that sends it, and by any other peer of the process on this device "
    "that guesses its STag and address. That changes the message. Nothing else can be written, and nothing "
    "afterwards. rdma:// has no credentials here, since its ports are those of TCP";

}  // namespace

Findings CheckGrants(const std::vector<VerbsDevice>& verbs_devices) {
  Findings findings;
  for (const VerbsDevice& device : verbs_devices) {
    if (!device.opened.ok()) continue;  // Said elsewhere.
    Finding finding{.check = "grants", .subject = device.name};
    if (device.uses_windows) {
      finding.found = "memory windows of type 2 confine what is granted to a peer to its connection";
      if (!device.windows_untried.empty()) {
        finding.level = Level::kWarning;
        finding.found =
            absl::StrCat("memory windows of type 2, if the kernel is right: ", device.windows_untried);
        finding.advice =
            "see `ulimit -l`, dmesg and the rdma cgroup, and run this again; if large messages fail, choose "
            "RuntimeOptions::rdma_grants = kRegistered";
      }
    } else {
      finding.level = Level::kWarning;
      const std::string reason =
          device.windows_refused.empty()
              ? "(or not used, on rxe)"
              : absl::StrCat("(the kernel advertises them, but its provider in user space has none: ",
                             device.windows_refused, ")");
      finding.found =
          absl::StrCat("no memory windows of type 2 ", reason,
                       ": what is granted to one peer for a call can be READ by any other peer of the "
                       "process that guesses its rkey and address");
      finding.advice = "use it among machines that trust each other, or use tcp://";
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings CheckIwarp(const std::vector<VerbsDevice>& verbs_devices) {
  Findings findings;
  for (const VerbsDevice& device : verbs_devices) {
    if (!device.opened.ok() || !device.iwarp) continue;
    findings.push_back({Level::kWarning, "iwarp", device.name, kIwarpExposes,
                        "use it among machines that trust each other, or use tcp:// with credentials"});
  }
  return findings;
}

}  // namespace hawser::doctor
