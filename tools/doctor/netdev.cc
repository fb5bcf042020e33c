#include "hawser/tools/doctor/netdev.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hawser::doctor {
namespace {

constexpr char kNetClass[] = "/sys/class/net/";

std::string DeviceFolder(const std::string& device) { return absl::StrCat("/sys/class/infiniband/", device); }

using Mac = std::array<uint8_t, 6>;

// "02:42:ac:11:00:02". None: it has another form, as that of IPoIB, or is all zeros, as that of lo.
std::optional<Mac> ParseMac(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  Mac mac = {};
  if (parts.size() != mac.size()) return std::nullopt;
  for (size_t i = 0; i < mac.size(); ++i) {
    uint32_t byte = 0;
    if (parts[i].size() != 2 || !absl::SimpleHexAtoi(parts[i], &byte)) return std::nullopt;
    mac[i] = static_cast<uint8_t>(byte);
  }
  return mac == Mac() ? std::nullopt : std::optional(mac);
}

// iWARP: GID 0 is the MAC and ten zeros (erdma_query_gid(), irdma_query_gid(), c4iw_query_gid(),
// siw_query_gid(), qedr_iw_query_gid() of the kernel).
std::optional<Mac> MacOfGid(const Port& port) {
  const auto gid =
      std::find_if(port.gids.begin(), port.gids.end(), [](const Gid& g) { return g.index == 0; });
  if (gid == port.gids.end()) return std::nullopt;
  const uint8_t* const bytes = gid->address.s6_addr;
  Mac mac;
  std::copy_n(bytes, mac.size(), mac.begin());
  const bool zeros_follow = std::all_of(bytes + mac.size(), bytes + sizeof(gid->address.s6_addr),
                                        [](uint8_t byte) { return byte == 0; });
  return zeros_follow ? std::optional(mac) : std::nullopt;
}

// "0042:acff:fe11:0002": the MAC with ff:fe in its middle, and one bit inverted (addrconf_addr_eui48() of the
// kernel). Most drivers of Ethernet NICs make it so. mlx5 does not, so that its node_guid is none.
std::optional<Mac> MacOfNodeGuid(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() != 4) return std::nullopt;
  std::array<uint8_t, 8> guid;
  for (size_t i = 0; i < parts.size(); ++i) {
    uint32_t pair = 0;
    if (parts[i].size() != 4 || !absl::SimpleHexAtoi(parts[i], &pair)) return std::nullopt;
    guid[2 * i] = static_cast<uint8_t>(pair >> 8);
    guid[2 * i + 1] = static_cast<uint8_t>(pair);
  }
  if (guid[3] != 0xff || guid[4] != 0xfe) return std::nullopt;
  return Mac{static_cast<uint8_t>(guid[0] ^ 2), guid[1], guid[2], guid[5], guid[6], guid[7]};
}

// VLANs, bridges and bonds share the MAC of the interface below. So one of the device's own PCI function is
// better than one of other hardware, and that is better than one of no hardware. "": none, or several of the
// same rank.
std::string WithMac(const System& system, const std::vector<std::string>& siblings, const Mac& mac) {
  std::vector<std::string> same;
  for (const std::string& name : system.List(kNetClass)) {
    if (ParseMac(system.ReadOrEmpty(absl::StrCat(kNetClass, name, "/address"))) == mac) same.push_back(name);
  }
  const std::function<bool(const std::string&)> ranks[] = {
      [&](const std::string& name) {
        return std::find(siblings.begin(), siblings.end(), name) != siblings.end();
      },
      [&](const std::string& name) { return system.Exists(absl::StrCat(kNetClass, name, "/device")); },
      [](const std::string&) { return true; },
  };
  for (const auto& fits : ranks) {
    const auto first = std::find_if(same.begin(), same.end(), fits);
    if (first == same.end()) continue;
    return std::count_if(same.begin(), same.end(), fits) == 1 ? *first : "";
  }
  return "";
}

}  // namespace

Netdev FindNetdev(const System& system, const std::string& device, const Port& port, bool is_iwarp,
                  bool only_port) {
  for (const Gid& gid : port.gids) {
    if (!gid.netdev.empty()) return {gid.netdev};
  }
  const std::string folder = DeviceFolder(device);
  if (std::string parent = system.ReadOrEmpty(folder + "/parent"); !parent.empty()) return {parent};
  const std::vector<std::string> siblings = system.List(folder + "/device/net");
  std::vector<std::optional<Mac>> macs;
  if (is_iwarp) macs.push_back(MacOfGid(port));
  if (only_port && port.link_layer != "InfiniBand") {
    macs.push_back(MacOfNodeGuid(system.ReadOrEmpty(folder + "/node_guid")));
  }
  for (const std::optional<Mac>& mac : macs) {
    if (!mac) continue;
    if (const std::string name = WithMac(system, siblings, *mac); !name.empty()) return {name, true};
  }
  return {siblings.size() == 1 ? siblings[0] : ""};
}

}  // namespace hawser::doctor
