// The GID tables: by which of them rdma_cm finds a port.
//
// A program gives rdma_cm an IP address. On Ethernet, rdma_cm takes the GID that is this address, in the type
// that is its default for the port (cma_validate_port() of the kernel's cma.c), see Port::rdma_cm_gid_type().
// On InfiniBand it takes the port below the IPoIB interface that has the address.

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "hawser/tools/doctor/checks.h"

namespace hawser::doctor {
namespace {

Finding DescribeRoceGid(const Device& device, const Port& port, const Gid& gid, GidType in_use) {
  std::string found = absl::StrCat(gid.index, " is ", gid.ToString(), ", ", RoceName(gid.type), ", netdev ",
                                   gid.netdev.empty() ? "unknown" : gid.netdev);
  if (gid.type != in_use) {
    absl::StrAppend(&found, ": not used, rdma_cm takes ", RoceName(in_use));
  } else if (gid.is_link_local()) {
    absl::StrAppend(&found, ": used for this link-local address only");
  } else {
    absl::StrAppend(&found, ": used for what binds to ", gid.ToString(), " or goes out from it");
  }
  return {Level::kOk, "gid", PortName(device, port), found, ""};
}

Findings CheckRoceGids(const Device& device, const Port& port) {
  const std::string name = PortName(device, port);
  const GidType in_use = port.rdma_cm_gid_type();
  Findings findings;
  for (const Gid& gid : port.gids) findings.push_back(DescribeRoceGid(device, port, gid, in_use));
  const bool v1 = in_use == GidType::kInfiniBandOrRoceV1;
  const bool knows_v1_only = v1 && port.HasGidOf(in_use) && !port.HasGidOf(GidType::kRoceV2);
  if (v1 && !knows_v1_only) {
    findings.push_back({Level::kWarning, "gid", name,
                        "rdma_cm is set to RoCE v1 here, which is not routed and finds no peer that uses v2",
                        absl::StrCat("echo \"RoCE v2\" > ", DefaultRoceModePath(device.name, port.number))});
  }
  if (!port.is_active()) return findings;  // What it lacks is said of the port already.
  if (knows_v1_only) {
    findings.push_back(
        {Level::kWarning, "gid", name,
         "it knows RoCE v1 only, so rdma_cm takes that, which is not routed and finds no peer that uses "
         "v2",
         "if the NIC should know v2, see the settings of its firmware and driver; else keep to peers "
         "in the same network that use v1 as well"});
  }
  const std::string netdev = port.netdev.empty() ? "its netdev" : port.netdev;
  const auto is_for_peers = [&](const Gid& gid) { return gid.type == in_use && !gid.is_link_local(); };
  if (!port.HasGidOf(in_use)) {
    findings.push_back({Level::kWarning, "gid", name,
                        absl::StrCat("no ", RoceName(in_use), " GID, so rdma_cm finds no peer through it"),
                        absl::StrCat("give ", netdev, " an IP address")});
  } else if (std::none_of(port.gids.begin(), port.gids.end(), is_for_peers)) {
    findings.push_back(
        {Level::kWarning, "gid", name,
         absl::StrCat("its ", RoceName(in_use), " GIDs are link-local ones only"),
         absl::StrCat("give ", netdev, " an IP address (ip address add ...): rdma_cm finds the port by it")});
  }
  return findings;
}

// An IPoIB interface's hardware address ends in the GID of its port.
std::string IpoibOf(const System& system, const Gid& gid) {
  std::vector<std::string> bytes;
  for (const uint8_t byte : gid.address.s6_addr) bytes.push_back(absl::StrFormat("%02x", byte));
  const std::string end = absl::StrJoin(bytes, ":");
  for (const std::string& netdev : system.List("/sys/class/net")) {
    const std::string address = system.ReadOrEmpty(absl::StrCat("/sys/class/net/", netdev, "/address"));
    if (absl::EndsWith(absl::AsciiStrToLower(address), end)) return netdev;
  }
  return "";
}

Findings CheckInfiniBandGids(const System& system, const Device& device, const Port& port) {
  Findings findings;
  std::string ipoib;
  for (const Gid& gid : port.gids) {
    if (ipoib.empty()) ipoib = IpoibOf(system, gid);
    findings.push_back({Level::kOk, "gid", PortName(device, port),
                        absl::StrCat(gid.index, " is ", gid.ToString(), ", IB"), ""});
  }
  if (!ipoib.empty()) {
    findings.push_back({Level::kOk, "gid", PortName(device, port),
                        absl::StrCat("rdma_cm finds this port by the IP addresses of ", ipoib, " (IPoIB)"),
                        ""});
  } else if (port.is_active()) {
    findings.push_back({Level::kWarning, "gid", PortName(device, port),
                        "no IPoIB interface for it, so rdma_cm finds no peer through it",
                        "modprobe ib_ipoib, and give the interface (ib0 or the like) an IP address"});
  }
  return findings;
}

Findings CheckIwarpGids(const Device& device, const Port& port) {
  return {{Level::kOk, "gid", PortName(device, port),
           absl::StrCat("iWARP needs none: rdma_cm finds the port by the IP addresses of ",
                        port.netdev.empty() ? "its netdev" : port.netdev),
           ""}};
}

}  // namespace

Findings CheckGids(const System& system, const std::vector<Device>& devices) {
  Findings findings;
  for (const Device& device : devices) {
    for (const Port& port : device.ports) {
      for (const std::string& bad : port.bad_gids) {
        findings.push_back({Level::kWarning, "gid", PortName(device, port), bad + ", which is no GID",
                            "see what the kernel's log (dmesg) says of the driver"});
      }
      if (device.is_iwarp) {
        Append(CheckIwarpGids(device, port), &findings);
      } else if (port.link_layer == "InfiniBand") {
        Append(CheckInfiniBandGids(system, device, port), &findings);
      } else {
        Append(CheckRoceGids(device, port), &findings);
      }
    }
  }
  return findings;
}

}  // namespace hawser::doctor
