// The devices, and state, link layer, speed and MTU of their ports.

#include <cstdint>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/tools/doctor/checks.h"

namespace hawser::doctor {
namespace {

std::string LinkLayerAndKind(const Device& device, const Port& port) {
  if (device.is_iwarp) return "iWARP";
  if (port.link_layer == "Ethernet") return "Ethernet (RoCE)";
  if (port.link_layer == "InfiniBand") return "InfiniBand";
  return absl::StrCat("link layer \"", port.link_layer, "\"");
}

std::string ForNetdev(const Port& port) { return port.netdev.empty() ? "<its netdev>" : port.netdev; }

std::string HowToBringUp(const Port& port) {
  if (port.link_layer == "InfiniBand") {
    return port.state == "INIT"
               ? "the link is up, but no subnet manager has configured it: start one (opensm), or ask who "
                 "runs it"
               : "check the cable and the switch, then whether a subnet manager (opensm) runs";
  }
  return absl::StrCat("bring up the network interface (ip link set ", ForNetdev(port),
                      " up), and check the cable and the switch");
}

Finding CheckState(const Device& device, const Port& port, bool another_is_active) {
  const std::string link = absl::StrCat(
      LinkLayerAndKind(device, port), ", ", port.rate.empty() ? "speed unknown" : port.rate, ", netdev ",
      port.netdev.empty() ? "unknown" : port.netdev, port.netdev_by_mac ? " (by its MAC address)" : "");
  const std::string state = absl::StrCat(port.state, port.phys_state.empty() ? "" : " / ", port.phys_state);
  Finding finding{.check = "port", .subject = PortName(device, port)};
  if (port.is_active()) {
    finding.found = absl::StrCat(state, ", ", link);
    if (port.link_layer != "Ethernet" && port.link_layer != "InfiniBand") {
      finding.level = Level::kWarning;
      finding.advice = "that is no link layer that Hawser knows; Ethernet and InfiniBand are";
    }
    return finding;
  }
  const bool known =
      port.state == "DOWN" || port.state == "INIT" || port.state == "ARMED" || port.state == "ACTIVE_DEFER";
  finding.level = known && !another_is_active ? Level::kProblem : Level::kWarning;
  if (known) {
    finding.found = absl::StrCat("not usable: ", state, ", ", link);
    finding.advice = HowToBringUp(port);
  } else {
    finding.found = absl::StrCat("its state \"", port.state, "\" is not one that verbs have, ", link);
    finding.advice = "see what `rdma link` and the kernel's log (dmesg) say of the driver";
  }
  return finding;
}

// The largest MTU of verbs that fits a netdev's, less what RoCE v2 puts round it: iboe_get_mtu() of the
// kernel's rdma/ib_addr.h takes off 96 bytes. 0: not even the smallest.
int RoceMtu(int64_t netdev_mtu) {
  for (int mtu = 4096; mtu >= 256; mtu /= 2) {
    if (mtu + 96 <= netdev_mtu) return mtu;
  }
  return 0;
}

// Bytes; nothing: not known.
std::optional<int> ActiveMtu(const Device& device, const Port& port,
                             const std::vector<VerbsDevice>& verbs_devices) {
  for (const VerbsDevice& candidate : verbs_devices) {
    if (candidate.name != device.name) continue;
    const auto at = candidate.active_mtu_of_ports.find(port.number);
    if (at != candidate.active_mtu_of_ports.end() && at->second > 0) return at->second;
  }
  return std::nullopt;
}

Finding CheckMtu(const System& system, const Device& device, const Port& port,
                 const std::vector<VerbsDevice>& verbs_devices) {
  Finding finding{.check = "mtu", .subject = PortName(device, port)};
  const std::optional<int> active = ActiveMtu(device, port, verbs_devices);
  std::vector<std::string> found;
  found.push_back(active ? absl::StrCat("active_mtu ", *active)
                         : "active_mtu unknown, since libibverbs cannot open the device");
  int64_t netdev_mtu = 0;
  if (!port.netdev.empty()) {
    const std::string text = system.ReadOrEmpty(absl::StrCat("/sys/class/net/", port.netdev, "/mtu"));
    const bool known = absl::SimpleAtoi(text, &netdev_mtu) && netdev_mtu > 0;
    if (!known) netdev_mtu = 0;
    found.push_back(absl::StrCat("netdev ", port.netdev, " has mtu ", known ? text : "unknown"));
  }
  finding.found = absl::StrJoin(found, ", ");
  if (port.link_layer != "Ethernet" || device.is_iwarp || netdev_mtu == 0) return finding;
  const int possible = RoceMtu(netdev_mtu);
  if (active && *active > possible) {
    finding.level = Level::kWarning;
    finding.advice =
        absl::StrCat("packets of ", *active, " bytes and their headers do not fit the netdev: ip link set ",
                     port.netdev, " mtu ", *active + 104, " or more, on every hop");
  } else if (possible < 4096) {
    finding.advice = absl::StrCat("larger packets are faster: ip link set ", port.netdev,
                                  " mtu 4200 or more, on both ends and every switch between them");
  }
  return finding;
}

}  // namespace

Findings CheckDevices(const std::vector<Device>& devices, bool rdma_wanted) {
  if (devices.empty()) {
    Finding finding{.check = "devices", .found = "no RDMA device (nothing in /sys/class/infiniband): "};
    finding.level = rdma_wanted ? Level::kProblem : Level::kOk;
    absl::StrAppend(&finding.found, rdma_wanted ? "rdma:// addresses cannot work here"
                                                : "TCP will be used; give tcp:// addresses");
    finding.advice =
        absl::StrCat(rdma_wanted ? "give a tcp:// address; " : "",
                     "if there should be a device, load its driver (modprobe mlx5_ib or the like) or, in a "
                     "container, "
                     "give it one");
    return {finding};
  }
  Findings findings;
  std::vector<std::string> names;
  for (const Device& device : devices) {
    names.push_back(device.name);
    if (!device.ports.empty()) continue;
    findings.push_back({Level::kWarning, "devices", device.name, "it has no port",
                        "see what `rdma link` and the kernel's log (dmesg) say of the driver"});
  }
  findings.insert(findings.begin(), {Level::kOk, "devices", "", absl::StrJoin(names, ", "), ""});
  return findings;
}

Findings CheckPorts(const System& system, const std::vector<Device>& devices,
                    const std::vector<VerbsDevice>& verbs_devices) {
  const bool any_is_active = AnyPortIsActive(devices);
  Findings findings;
  for (const Device& device : devices) {
    for (const Port& port : device.ports) {
      findings.push_back(CheckState(device, port, any_is_active));
      if (port.is_active()) findings.push_back(CheckMtu(system, device, port, verbs_devices));
    }
  }
  return findings;
}

}  // namespace hawser::doctor
