// What is between a program and the NIC: libraries, kernel modules, character devices, namespaces.

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/tools/doctor/checks.h"

namespace hawser::doctor {
namespace {

struct Library {
  const char* name;
  const char* debian_package;
};
constexpr Library kLibraries[] = {{"libibverbs.so.1", "libibverbs1"}, {"librdmacm.so.1", "librdmacm1"}};

constexpr char kProviders[] = "apt-get install ibverbs-providers (or what the NIC's vendor ships)";

// Of one device: whether libibverbs can use it.
Finding CheckProvider(const Device& device, const std::vector<VerbsDevice>& verbs_devices) {
  Finding finding{.check = "provider", .subject = device.name};
  const auto at = std::find_if(verbs_devices.begin(), verbs_devices.end(),
                               [&](const VerbsDevice& each) { return each.name == device.name; });
  if (at == verbs_devices.end()) {
    finding.level = Level::kProblem;
    finding.found = "libibverbs has no provider for it";
    finding.advice = kProviders;
    if (device.uverbs.empty()) {  // Without it libibverbs does not see the device at all.
      finding.found = "libibverbs does not list it, since ib_uverbs does not serve it";
      finding.advice = "modprobe ib_uverbs";
    }
  } else if (!at->opened.ok()) {
    finding.level = Level::kProblem;
    finding.found = absl::StrCat("libibverbs has a provider, which cannot open it: ", at->opened.message());
    finding.advice = absl::StrCat("see the access to /dev/infiniband/", device.uverbs);
  } else {
    finding.found = "libibverbs has a provider, which opens it";
  }
  return finding;
}

// Without a device: whether there is any provider at all.
Findings CheckAnyProvider(const System& system, bool rdma_wanted) {
  const std::vector<std::string> files = system.List("/etc/libibverbs.d");
  const auto count = std::count_if(files.begin(), files.end(),
                                   [](const std::string& file) { return absl::EndsWith(file, ".driver"); });
  Finding finding{.check = "provider"};
  finding.found = absl::StrCat(count, count == 1 ? " provider" : " providers", " in /etc/libibverbs.d");
  if (count == 0) {
    finding.level = rdma_wanted ? Level::kWarning : Level::kOk;
    finding.advice = absl::StrCat("for RDMA: ", kProviders);
  }
  return {finding};
}

std::string HowToGetAccess(const absl::Status& why, const std::string& path, const char* module) {
  if (absl::IsNotFound(why)) {
    return absl::StrCat("modprobe ", module,
                        "; if it is loaded, udev has not made the file or this is a container: start it with "
                        "--device=/dev/infiniband or the like");
  }
  if (absl::IsPermissionDenied(why)) {
    return absl::StrCat("give this user the right (ls -l ", path,
                        "): Debian's rdma-core has udev rules that let everybody in; in a container, allow "
                        "the device "
                        "(--device=/dev/infiniband)");
  }
  return absl::StrCat("is the driver still there? modprobe ", module, ", and see dmesg");
}

Finding CheckCharacterDevice(const System& system, const std::string& path, const char* module,
                             absl::string_view consequence) {
  const absl::Status opened = system.OpenDevice(path);
  if (opened.ok()) return {Level::kOk, "access", path, "can be opened", ""};
  return {Level::kProblem, "access", path,
          absl::StrCat("cannot be opened, so ", consequence, ": ", opened.message()),
          HowToGetAccess(opened, path, module)};
}

}  // namespace

Findings CheckLibraries(const System& system, const std::vector<Device>& devices, bool rdma_wanted,
                        std::vector<VerbsDevice>* verbs_devices) {
  const bool needed = rdma_wanted || !devices.empty();
  Findings findings;
  bool have_verbs = false;
  for (const Library& library : kLibraries) {
    const absl::Status loaded = system.loader().Load(library.name);
    Finding finding{.check = "library", .subject = library.name, .found = "loads"};
    if (&library == &kLibraries[0]) have_verbs = loaded.ok();
    if (!loaded.ok()) {
      finding.level = needed ? Level::kProblem : Level::kOk;
      finding.found = absl::StrCat(needed ? "does not load: " : "does not load, and TCP does not need it: ",
                                   loaded.message());
      finding.advice = absl::StrCat("for RDMA: apt-get install ", library.debian_package);
    }
    findings.push_back(std::move(finding));
  }
  if (!have_verbs) return findings;
  if (devices.empty()) {
    Append(CheckAnyProvider(system, rdma_wanted), &findings);
    return findings;
  }
  absl::StatusOr<std::vector<VerbsDevice>> opened = system.loader().OpenDevices();
  if (!opened.ok()) {
    findings.push_back({Level::kProblem, "provider", "",
                        absl::StrCat("libibverbs lists no devices: ", opened.status().message()),
                        "modprobe ib_uverbs, and see the access to /dev/infiniband"});
    return findings;
  }
  *verbs_devices = *std::move(opened);
  for (const Device& device : devices) findings.push_back(CheckProvider(device, *verbs_devices));
  return findings;
}

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
      if (device.iwarp) {
        absl::StrAppend(&finding.found,
                        "; over iWARP a large message can be changed in the same way while it arrives; other "
                        "memory cannot be written");
      }
      finding.advice = "use it among machines that trust each other, or use tcp://";
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings CheckAccess(const System& system, const std::vector<Device>& devices) {
  Findings findings;
  for (const Device& device : devices) {
    if (device.uverbs.empty()) {
      findings.push_back({Level::kProblem, "access", device.name,
                          "the kernel does not offer it to user space: ib_uverbs is not loaded",
                          "modprobe ib_uverbs"});
      continue;
    }
    Finding finding = CheckCharacterDevice(system, "/dev/infiniband/" + device.uverbs, "ib_uverbs",
                                           absl::StrCat(device.name, " cannot be used"));
    if (finding.level == Level::kOk) finding.found = absl::StrCat("can be opened (", device.name, ")");
    findings.push_back(std::move(finding));
  }
  findings.push_back(
      CheckCharacterDevice(system, "/dev/infiniband/rdma_cm", "rdma_ucm", "rdma_cm cannot connect"));
  return findings;
}

Findings CheckNetns(const System& system) {
  const std::string mode = system.ReadOrEmpty("/sys/module/ib_core/parameters/netns_mode");
  Finding finding{.check = "netns"};
  if (mode == "Y" || mode == "1") {
    finding.found = "RDMA devices are shared by all network namespaces; a container sees the GIDs of its own";
  } else if (mode == "N" || mode == "0") {
    finding.found = "RDMA devices are exclusive: each belongs to one network namespace";
    finding.advice =
        "for a container: rdma dev set DEVICE netns NAME, or share them: rdma system set netns shared";
  } else {
    finding.found =
        "unknown whether network namespaces share RDMA devices (no "
        "/sys/module/ib_core/parameters/netns_mode)";
    finding.advice = "`rdma system` may tell; it matters only to containers";
  }
  return {finding};
}

}  // namespace hawser::doctor
