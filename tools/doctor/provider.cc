#include "hawser/tools/doctor/provider.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace hawser::doctor {
namespace {

constexpr char kProviderCheck[] = "provider";

// The driver of the PCI function below an RDMA device, and the provider for it. That driver is the NIC's own,
// or that of its Ethernet half, which lends the function to the RDMA half.
struct KernelDriver {
  absl::string_view name;
  absl::string_view provider;
};
constexpr KernelDriver kKernelDrivers[] = {
    {"bnxt_en", "bnxt_re"},
    {"cxgb4", "cxgb4"},
    {"efa", "efa"},
    {"erdma", "erdma"},
    {"hns3", "hns"},
    {"i40e", "irdma"},
    {"ice", "irdma"},
    {"idpf", "irdma"},
    {"ionic", "ionic"},
    {"mana", "mana"},
    {"mlx4_core", "mlx4"},
    {"mlx5_core", "mlx5"},
    {"qede", "qedr"},
    // Before release 35 of rdma-core.
    {"i40e", "i40iw"},
};

// "erdma"; "": there is no PCI function, as with rxe and siw, or it has no driver.
std::string DriverOf(const System& system, const Device& device) {
  const std::string uevent =
      system.ReadOrEmpty(absl::StrCat("/sys/class/infiniband/", device.name, "/device/uevent"));
  for (absl::string_view line : absl::StrSplit(uevent, '\n')) {
    if (absl::ConsumePrefix(&line, "DRIVER=")) return std::string(line);
  }
  return "";
}

// The provider that is missing for it; "": one is installed, or none is known.
absl::string_view MissingProviderFor(absl::string_view driver, const std::vector<std::string>& installed) {
  absl::string_view missing;
  for (const KernelDriver& each : kKernelDrivers) {
    if (each.name != driver) continue;
    if (std::find(installed.begin(), installed.end(), each.provider) != installed.end()) return "";
    if (missing.empty()) missing = each.provider;
  }
  return missing;
}

// "the kernel's driver (erdma) has ABI version 2". (ib_uverbs has one of its own, which is 6 on all kernels.)
std::string AbiOf(const System& system, const Device& device, absl::string_view driver) {
  const std::string version =
      system.ReadOrEmpty(absl::StrCat("/sys/class/infiniband_verbs/", device.uverbs, "/abi_version"));
  return absl::StrCat("the kernel's driver", driver.empty() ? "" : absl::StrCat(" (", driver, ")"), " has ",
                      version.empty() ? "an unknown ABI version" : absl::StrCat("ABI version ", version));
}

constexpr char kSameRelease[] =
    "bring ibverbs-providers (apt-get install --only-upgrade ibverbs-providers, or what the NIC's vendor "
    "ships) and the kernel's driver to releases of the same time";

// It is in /sys/class/infiniband, and libibverbs does not list it.
void ExplainNotListed(const System& system, const Device& device, Finding* finding) {
  finding->level = Level::kProblem;
  if (device.uverbs.empty()) {  // Without it libibverbs does not see the device at all.
    finding->found = "libibverbs does not list it, since ib_uverbs does not serve it";
    finding->advice = "modprobe ib_uverbs";
    return;
  }
  const std::vector<std::string> installed = InstalledProviders(system);
  const std::string driver = DriverOf(system, device);
  const absl::string_view missing = MissingProviderFor(driver, installed);
  const std::string file = absl::StrCat("/dev/infiniband/", device.uverbs);
  if (installed.empty()) {
    finding->found =
        "libibverbs has no provider for it, since none is installed (/etc/libibverbs.d has none)";
    finding->advice = kInstallProviders;
  } else if (!missing.empty()) {
    finding->found = absl::StrCat("libibverbs has no provider for it: the kernel has a driver (", driver,
                                  "), and /etc/libibverbs.d has no ", missing,
                                  ", so ibverbs-providers is older than that driver, or incomplete");
    finding->advice =
        "apt-get install --only-upgrade ibverbs-providers, or install what the NIC's vendor ships";
  } else if (!system.Exists(file)) {
    // Which counts where libibverbs looks in sysfs, and does not ask the kernel by netlink.
    finding->found = absl::StrCat("libibverbs does not list it, and ", file, " is not there");
    finding->advice = absl::StrCat("see the access to ", file);
  } else {
    finding->found = absl::StrCat(
        "kernel and libibverbs disagree: the kernel has the device, and no provider of those in "
        "/etc/libibverbs.d (",
        installed.size(), ") takes it; ", AbiOf(system, device, driver));
    finding->advice = absl::StrCat(
        "see what libibverbs writes to stderr, also here: \"does not support the kernel ABI\", "
        "\"couldn't load driver\"; ",
        kSameRelease);
  }
}

void ExplainNotOpened(const System& system, const Device& device, const absl::Status& why, Finding* finding) {
  finding->level = Level::kProblem;
  finding->found = absl::StrCat("libibverbs has a provider, which cannot open it: ", why.message());
  if (absl::IsPermissionDenied(why) || absl::IsNotFound(why)) {
    finding->advice = absl::StrCat("see the access to /dev/infiniband/", device.uverbs);
  } else if (absl::IsResourceExhausted(why)) {
    finding->advice = "see `ulimit -l`, the rdma cgroup and dmesg";
  } else {
    absl::StrAppend(&finding->found, "; ", AbiOf(system, device, DriverOf(system, device)));
    finding->advice = absl::StrCat("see dmesg; if it tells nothing, ", kSameRelease);
  }
}

}  // namespace

std::vector<std::string> InstalledProviders(const System& system) {
  std::vector<std::string> providers;
  for (const std::string& file : system.List("/etc/libibverbs.d")) {
    absl::string_view name = file;
    if (absl::ConsumeSuffix(&name, ".driver")) providers.emplace_back(name);
  }
  return providers;
}

Findings CheckProviders(const System& system, const std::vector<Device>& devices,
                        const std::vector<VerbsDevice>& verbs_devices) {
  Findings findings;
  for (const Device& device : devices) {
    Finding finding{.check = kProviderCheck, .subject = device.name};
    const auto at = std::find_if(verbs_devices.begin(), verbs_devices.end(),
                                 [&](const VerbsDevice& each) { return each.name == device.name; });
    if (at == verbs_devices.end()) {
      ExplainNotListed(system, device, &finding);
    } else if (!at->opened.ok()) {
      ExplainNotOpened(system, device, at->opened, &finding);
    } else {
      finding.found = "libibverbs has a provider, which opens it";
    }
    findings.push_back(std::move(finding));
  }
  for (const VerbsDevice& listed : verbs_devices) {
    if (std::any_of(devices.begin(), devices.end(),
                    [&](const Device& device) { return device.name == listed.name; })) {
      continue;
    }
    findings.push_back(
        {Level::kWarning, kProviderCheck, listed.name,
         "libibverbs lists it, but /sys/class/infiniband does not show it, so nothing is known of its "
         "ports, and Hawser cannot tell which addresses lead to it",
         "in a container, mount the /sys of its network namespace; or name it with HAWSER_RDMA_DEVICE"});
  }
  return findings;
}

}  // namespace hawser::doctor
