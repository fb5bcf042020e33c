// What is between a program and the NIC: libraries, kernel modules, character devices, namespaces.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/tools/doctor/checks.h"
#include "hawser/tools/doctor/provider.h"

namespace hawser::doctor {
namespace {

struct Library {
  const char* name;
  const char* debian_package;
};
constexpr Library kLibraries[] = {{"libibverbs.so.1", "libibverbs1"}, {"librdmacm.so.1", "librdmacm1"}};

// Without a device: whether there is any provider at all.
Findings CheckAnyProvider(const System& system, bool rdma_wanted) {
  const size_t count = InstalledProviders(system).size();
  Finding finding{.check = "provider"};
  finding.found = absl::StrCat(count, count == 1 ? " provider" : " providers", " in /etc/libibverbs.d");
  if (count == 0) {
    finding.level = rdma_wanted ? Level::kWarning : Level::kOk;
    finding.advice = absl::StrCat("for RDMA: ", kInstallProviders);
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
  Append(CheckProviders(system, devices, *verbs_devices), &findings);
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
