#include "hawser/transport/fabric/verbs/route.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/base/unique_fd.h"

namespace hawser::fabric {
namespace {

// The sorted entries, without "." and "..". Empty: there is no such folder.
std::vector<std::string> Entries(const std::string& folder) {
  std::vector<std::string> entries;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (open == nullptr) return entries;
  while (const dirent* entry = readdir(open.get())) {
    if (entry->d_name[0] != '.') entries.emplace_back(entry->d_name);
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool SameHost(const sockaddr* a, SocketAddress b) {
  if (a == nullptr || a->sa_family != b.family()) return false;
  SocketAddress host(a, b.length_bytes());
  host.set_port(0);
  b.set_port(0);
  return host.ToString() == b.ToString();
}

// The interface with that address; empty: none.
std::string InterfaceOf(const SocketAddress& local) {
  ifaddrs* first = nullptr;
  if (local.family() == AF_UNSPEC || getifaddrs(&first) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, freeifaddrs);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (SameHost(each->ifa_addr, local)) return each->ifa_name;
  }
  return "";
}

// A table of GIDs has up to 256 places, most of them empty, and each is a file. The kernel gives a new GID
// the first empty place, so after so many empty ones in a row there is hardly another.
constexpr int kEmptyInARow = 16;
constexpr int kNoLimit = std::numeric_limits<int>::max();

// The GIDs of one port.
struct Gids {
  std::string device;
  std::string netdevs;  // The folder with a file for each place, which names the interface of the GID.
  int next = 0;         // The first place that was not read yet.
};

std::vector<Gids> GidsOf(const std::string& folder, const std::vector<std::string>& devices) {
  std::vector<Gids> all;
  for (const std::string& device : devices) {
    for (const std::string& port : Entries(absl::StrCat(folder, device, "/ports"))) {
      all.push_back({device, absl::StrCat(folder, device, "/ports/", port, "/gid_attrs/ndevs/")});
    }
  }
  return all;
}

// RoCE: whether one of the GIDs belongs to that interface, or to a VLAN on it. Reads on from Gids::next, and
// no more behind `empty_max` empty places in a row.
bool BelongTo(const std::string& interface, int empty_max, Gids& gids) {
  for (int empty = 0; empty < empty_max;) {
    std::ifstream file(absl::StrCat(gids.netdevs, gids.next));
    if (!file.is_open()) return false;
    ++gids.next;
    std::string netdev;
    file >> netdev;  // Fails where there is no GID.
    if (netdev == interface) return true;
    empty = netdev.empty() ? empty + 1 : 0;
  }
  return false;
}

std::string ReadWord(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

// iWARP: whether the device's GID is the MAC of the interface, `mac`, followed by zeros
// (irdma_iw_query_gid(), erdma_query_gid(), c4iw_query_gid(), siw_query_gid()). A MAC of zeros, as that of
// lo, would be the GID of an empty place, too.
bool HasGidOfMac(const std::string& mac, const std::string& device_folder) {
  if (mac.size() != 17) return false;  // "02:42:ac:11:00:02"
  if (mac.find_first_not_of("0:") == std::string::npos) return false;
  const auto pair = [&](size_t i) { return absl::StrCat(mac.substr(6 * i, 2), mac.substr(6 * i + 3, 2)); };
  const std::string gid = absl::StrCat(pair(0), ":", pair(1), ":", pair(2), ":0000:0000:0000:0000:0000");
  for (const std::string& port : Entries(device_folder + "/ports")) {
    if (ReadWord(absl::StrCat(device_folder, "/ports/", port, "/gids/0")) == gid) return true;
  }
  return false;
}

}  // namespace

std::string VerbsDeviceOf(const SocketAddress& local, const std::string& sysfs) {
  const std::string interface = InterfaceOf(local);
  if (interface.empty()) return "";
  const std::string folder = sysfs + "/class/infiniband/";
  const std::vector<std::string> devices = Entries(folder);
  const std::string mac = ReadWord(absl::StrCat(sysfs, "/class/net/", interface, "/address"));
  std::vector<Gids> gids = GidsOf(folder, devices);
  for (Gids& port : gids) {
    if (BelongTo(interface, kEmptyInARow, port)) return port.device;
  }
  for (const std::string& device : devices) {
    if (HasGidOfMac(mac, folder + device)) return device;
  }
  // IPoIB: interface and device are functions of one piece of hardware. Hardware with several ports has
  // several devices, and this folder does not name the right one.
  const std::vector<std::string> siblings =
      Entries(absl::StrCat(sysfs, "/class/net/", interface, "/device/infiniband"));
  if (siblings.size() == 1) return siblings.front();
  for (Gids& port : gids) {
    if (BelongTo(interface, kNoLimit, port)) return port.device;
  }
  return "";
}

size_t VerbsDeviceCount(const std::string& sysfs) { return Entries(sysfs + "/class/infiniband").size(); }

SocketAddress RouteSource(const SocketAddress& remote) {
  // Connecting a UDP socket sends nothing.
  const UniqueFd fd(socket(remote.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage storage = {};
  socklen_t length_bytes = sizeof(storage);
  auto* const source = reinterpret_cast<sockaddr*>(&storage);
  SocketAddress somewhere = remote;
  if (somewhere.port() == 0) somewhere.set_port(1);
  if (!fd.is_open() || connect(fd.get(), somewhere.get(), somewhere.length_bytes()) != 0 ||
      getsockname(fd.get(), source, &length_bytes) != 0) {
    return {};
  }
  SocketAddress result(source, length_bytes);
  result.set_port(0);
  return result;
}

}  // namespace hawser::fabric
