#include "hawser/tools/doctor/device.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "hawser/tools/doctor/netdev.h"

namespace hawser::doctor {
namespace {

constexpr char kClass[] = "/sys/class/infiniband/";

// "4: ACTIVE" -> "ACTIVE"; what does not look like that stays as it is.
std::string WithoutNumber(std::string text) {
  const size_t colon = text.find(": ");
  return colon == text.npos ? text : text.substr(colon + 2);
}

GidType TypeOf(const std::string& text) {
  if (text == "RoCE v2") return GidType::kRoceV2;
  if (text == "IB/RoCE v1") return GidType::kInfiniBandOrRoceV1;
  return GidType::kUnknown;
}

void ReadGids(const System& system, const std::string& folder, Port* port) {
  for (const std::string& entry : system.List(folder + "/gids")) {
    Gid gid;
    const absl::StatusOr<std::string> text = system.Read(absl::StrCat(folder, "/gids/", entry));
    if (!text.ok()) continue;  // The kernel refuses to show some that are empty.
    if (!absl::SimpleAtoi(entry, &gid.index) || inet_pton(AF_INET6, text->c_str(), &gid.address) != 1) {
      port->bad_gids.push_back(absl::StrCat(folder, "/gids/", entry, " is \"", *text, "\""));
      continue;
    }
    if (IN6_IS_ADDR_UNSPECIFIED(&gid.address)) continue;
    gid.type = TypeOf(system.ReadOrEmpty(absl::StrCat(folder, "/gid_attrs/types/", entry)));
    gid.netdev = system.ReadOrEmpty(absl::StrCat(folder, "/gid_attrs/ndevs/", entry));
    port->gids.push_back(std::move(gid));
  }
}

Port ReadPort(const System& system, const Device& device, const std::string& folder, int number,
              bool only_port) {
  Port port;
  port.number = number;
  port.state = WithoutNumber(system.ReadOrEmpty(folder + "/state"));
  port.phys_state = WithoutNumber(system.ReadOrEmpty(folder + "/phys_state"));
  port.link_layer = system.ReadOrEmpty(folder + "/link_layer");
  port.rate = system.ReadOrEmpty(folder + "/rate");
  ReadGids(system, folder, &port);
  port.default_roce_mode = system.ReadOrEmpty(DefaultRoceModePath(device.name, number));
  Netdev netdev = FindNetdev(system, device.name, port, device.is_iwarp, only_port);
  port.netdev = std::move(netdev.name);
  port.netdev_by_mac = netdev.by_mac;
  return port;
}

std::string UverbsOf(const System& system, const std::string& device) {
  constexpr absl::string_view kVerbsClass = "/sys/class/infiniband_verbs/";
  for (const std::string& entry : system.List(kVerbsClass)) {
    if (absl::StartsWith(entry, "uverbs") &&
        system.ReadOrEmpty(absl::StrCat(kVerbsClass, entry, "/ibdev")) == device) {
      return entry;
    }
  }
  return "";
}

}  // namespace

absl::string_view RoceName(GidType type) {
  switch (type) {
    case GidType::kInfiniBandOrRoceV1:
      return "RoCE v1";
    case GidType::kRoceV2:
      return "RoCE v2";
    case GidType::kUnknown:
      break;
  }
  return "unknown type";
}

std::string Gid::ToString() const {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &address, text, sizeof(text));
  absl::string_view shown = text;
  if (IN6_IS_ADDR_V4MAPPED(&address)) absl::ConsumePrefix(&shown, "::ffff:");
  return std::string(shown);
}

bool Port::HasGidOf(GidType type) const {
  return std::any_of(gids.begin(), gids.end(), [&](const Gid& gid) { return gid.type == type; });
}

// cma_add_one() of the kernel's cma.c: RoCE v2 where the device supports it, else what it supports;
// configfs can set another. A device that supports v2 has a GID of each type for each address.
GidType Port::rdma_cm_gid_type() const {
  if (default_roce_mode == "RoCE v2") return GidType::kRoceV2;
  if (default_roce_mode == "IB/RoCE v1") return GidType::kInfiniBandOrRoceV1;
  return HasGidOf(GidType::kInfiniBandOrRoceV1) && !HasGidOf(GidType::kRoceV2) ? GidType::kInfiniBandOrRoceV1
                                                                               : GidType::kRoceV2;
}

std::vector<Device> ReadDevices(const System& system) {
  std::vector<Device> devices;
  for (const std::string& name : system.List(kClass)) {
    Device device;
    device.name = name;
    const std::string folder = absl::StrCat(kClass, name);
    device.is_iwarp = WithoutNumber(system.ReadOrEmpty(folder + "/node_type")) == "RNIC";
    device.numa_node = system.ReadOrEmpty(folder + "/device/numa_node");
    device.uverbs = UverbsOf(system, name);
    std::vector<int> numbers;
    for (const std::string& entry : system.List(folder + "/ports")) {
      int number = 0;
      if (absl::SimpleAtoi(entry, &number)) numbers.push_back(number);
    }
    for (const int number : numbers) {
      device.ports.push_back(ReadPort(system, device, absl::StrCat(folder, "/ports/", number), number,
                                      /*only_port=*/numbers.size() == 1));
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

bool AnyPortIsActive(const std::vector<Device>& devices) {
  return std::any_of(devices.begin(), devices.end(), [](const Device& device) {
    return std::any_of(device.ports.begin(), device.ports.end(),
                       [](const Port& port) { return port.is_active(); });
  });
}

std::string DefaultRoceModePath(const std::string& device, int port) {
  return absl::StrCat("/sys/kernel/config/rdma_cm/", device, "/ports/", port, "/default_roce_mode");
}

std::string PortName(const Device& device, const Port& port) {
  return absl::StrCat(device.name, "/", port.number);
}

}  // namespace hawser::doctor
