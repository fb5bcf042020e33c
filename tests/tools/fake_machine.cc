#include "tests/tools/fake_machine.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace hawser::doctor {
namespace {

std::string NewFolder() {
  std::string name = testing::TempDir() + "/machine.XXXXXX";
  if (mkdtemp(name.data()) == nullptr) abort();
  return name;
}

std::string PortFolder(const std::string& device, int number) {
  return absl::StrCat("/sys/class/infiniband/", device, "/ports/", number, "/");
}

}  // namespace

FakeMachine::FakeMachine() : FakeMachine(NewFolder()) {}

FakeMachine::FakeMachine(std::string root) : System(root, *this), root_(std::move(root)) {
  SetMemlock("unlimited", "unlimited");
  Write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  Write("/sys/module/ib_core/parameters/netns_mode", "Y\n");
  Write("/sys/devices/system/node/node0/cpulist", "0-3\n");
  Write("/sys/devices/system/node/node1/cpulist", "4-7\n");
  Write("/etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
}

FakeMachine::~FakeMachine() { std::filesystem::remove_all(root_); }

void FakeMachine::Write(absl::string_view path, absl::string_view text) {
  const std::filesystem::path at = absl::StrCat(root_, path);
  std::filesystem::create_directories(at.parent_path());
  std::ofstream(at, std::ios::binary) << text;
}

void FakeMachine::Remove(absl::string_view path) { std::filesystem::remove_all(absl::StrCat(root_, path)); }

void FakeMachine::AddDevice(const std::string& device, const std::string& uverbs) {
  const std::string folder = absl::StrCat("/sys/class/infiniband/", device);
  Write(folder + "/node_type", "1: CA\n");
  Write(folder + "/device/numa_node", "0\n");
  Write(absl::StrCat("/sys/class/infiniband_verbs/", uverbs, "/ibdev"), device + "\n");
  Write("/sys/class/infiniband_verbs/abi_version", "6\n");
  Write("/dev/infiniband/" + uverbs, "");
  Write("/dev/infiniband/rdma_cm", "");
  verbs_devices.push_back(
      {.name = device,
       .limits = VerbsLimits{
           .send_sges = 6, .max_sge = 30, .read_depth = 16, .inline_bytes = 192, .max_cqe = 4194303}});
}

void FakeMachine::WritePort(const std::string& device, int number, absl::string_view file,
                            absl::string_view text) {
  Write(absl::StrCat(PortFolder(device, number), file), text);
}

void FakeMachine::WriteGid(const std::string& device, int number, int index, absl::string_view gid,
                           absl::string_view type, absl::string_view netdev) {
  WritePort(device, number, absl::StrCat("gids/", index), absl::StrCat(gid, "\n"));
  WritePort(device, number, absl::StrCat("gid_attrs/types/", index), absl::StrCat(type, "\n"));
  WritePort(device, number, absl::StrCat("gid_attrs/ndevs/", index), absl::StrCat(netdev, "\n"));
}

void FakeMachine::AddRocePort(const std::string& device, int number, const std::string& netdev) {
  WritePort(device, number, "state", "4: ACTIVE\n");
  WritePort(device, number, "phys_state", "5: LinkUp\n");
  WritePort(device, number, "link_layer", "Ethernet\n");
  WritePort(device, number, "rate", "100 Gb/sec (4X EDR)\n");
  WriteGid(device, number, 0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "IB/RoCE v1", netdev);
  const std::string gid = absl::StrCat("0000:0000:0000:0000:0000:ffff:0a00:000", number);
  WriteGid(device, number, 1, gid, "IB/RoCE v1", netdev);
  WriteGid(device, number, 2, gid, "RoCE v2", netdev);
  WritePort(device, number, "gids/10", "0000:0000:0000:0000:0000:0000:0000:0000\n");
  Write(absl::StrCat("/sys/class/net/", netdev, "/mtu"), "9000\n");
  for (VerbsDevice& each : verbs_devices) {
    if (each.name == device) each.active_mtu_of_ports[number] = 4096;
  }
}

void FakeMachine::AddInfiniBandPort(const std::string& device, int number) {
  WritePort(device, number, "state", "4: ACTIVE\n");
  WritePort(device, number, "phys_state", "5: LinkUp\n");
  WritePort(device, number, "link_layer", "InfiniBand\n");
  WritePort(device, number, "rate", "200 Gb/sec (4X HDR)\n");
  WriteGid(device, number, 0, "fe80:0000:0000:0000:0002:c903:00ab:cdef", "IB/RoCE v1", "");
  for (VerbsDevice& each : verbs_devices) {
    if (each.name == device) each.active_mtu_of_ports[number] = 4096;
  }
}

void FakeMachine::SetMemlock(absl::string_view soft, absl::string_view hard) {
  Write(
      "/proc/self/limits",
      absl::StrCat("Limit                     Soft Limit           Hard Limit           Units     \n",
                   "Max processes             15000                15000                processes \n",
                   "Max locked memory         ", soft, "              ", hard, "              bytes     \n"));
  Write("/proc/self/status", "Name:\tdoctor\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\n");
  Write("/proc/self/uid_map", "         0          0 4294967295\n");
}

std::vector<std::string> FakeMachine::Examine(bool rdma_wanted) const {
  std::vector<std::string> lines;
  for (const Finding& finding : doctor::Examine(*this, ReadDevices(*this), rdma_wanted)) {
    lines.push_back(ToText(finding));
    EXPECT_TRUE(finding.level == Level::kOk || !finding.advice.empty()) << lines.back();
  }
  return lines;
}

std::vector<std::string> NotOk(const std::vector<std::string>& lines) {
  std::vector<std::string> not_ok;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(not_ok),
               [](const std::string& line) { return !absl::StartsWith(line, "ok "); });
  return not_ok;
}

absl::Status FakeMachine::OpenDevice(const std::string& path) const {
  const auto at = open.find(path);
  return at != open.end() ? at->second : System::OpenDevice(path);
}

std::string FakeMachine::Environment(const std::string& name) const {
  const auto at = environment.find(name);
  return at != environment.end() ? at->second : "";
}

absl::Status FakeMachine::Load(const std::string& library) {
  const auto at = load.find(library);
  return at != load.end() ? at->second : absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FakeMachine::ListDevices() {
  if (!Load("librdmacm.so.1").ok()) return absl::FailedPreconditionError("not loaded");
  if (!listed.ok()) return listed;
  if (verbs_devices.empty()) return absl::ErrnoToStatus(ENODEV, "rdma_get_devices()");
  std::vector<std::string> names;
  for (const VerbsDevice& device : verbs_devices) names.push_back(device.name);
  return names;
}

}  // namespace hawser::doctor
