// What hawser-doctor says of drivers: the network interface that belongs to an RDMA device, and a kernel and
// a libibverbs that disagree. The machines are made up.

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tools/doctor/device.h"
#include "tests/tools/fake_machine.h"

namespace hawser::doctor {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using Lines = std::vector<std::string>;

class DoctorDriversTest : public testing::Test {
 protected:
  // As erdma on a kernel that has no interfaces in the GID tables of iWARP devices. `mac`:
  // "02:42:ac:11:00:02".
  void AddErdma(const std::string& device, const std::string& uverbs, const std::string& mac) {
    AddOfUnknownNetdev(device, uverbs);
    machine_.Write(absl::StrCat("/sys/class/infiniband/", device, "/node_type"), "4: RNIC\n");
    const auto pair = [&](size_t i) { return absl::StrCat(mac.substr(6 * i, 2), mac.substr(6 * i + 3, 2)); };
    const std::string gid = absl::StrCat(pair(0), ":", pair(1), ":", pair(2), ":0000:0000:0000:0000:0000");
    machine_.WriteGid(device, 1, 0, gid, "IB/RoCE v1", "");
  }
  // RoCE without a GID. `node_guid`: "0042:acff:fe11:0002".
  void AddRoce(const std::string& device, const std::string& uverbs, const std::string& node_guid) {
    AddOfUnknownNetdev(device, uverbs);
    machine_.Write(absl::StrCat("/sys/class/infiniband/", device, "/node_guid"), node_guid + "\n");
  }
  void AddNetdev(const std::string& name, const std::string& mac, bool hardware = true) {
    machine_.Write(absl::StrCat("/sys/class/net/", name, "/address"), mac + "\n");
    machine_.Write(absl::StrCat("/sys/class/net/", name, "/mtu"), "9000\n");
    if (hardware) machine_.Write(absl::StrCat("/sys/class/net/", name, "/device/vendor"), "0x1af4\n");
  }
  std::string NetdevOf(const std::string& device, size_t port = 0) const {
    for (const Device& each : ReadDevices(machine_)) {
      if (each.name == device) return each.ports.at(port).netdev;
    }
    return "no such device";
  }
  void AddMlx5() {
    machine_.AddDevice("mlx5_0", "uverbs0");
    machine_.AddRocePort("mlx5_0", 1, "eth0");
  }
  Lines Provider() const {
    Lines lines = machine_.Examine();
    std::erase_if(lines, [](const std::string& line) { return !absl::StrContains(line, " provider "); });
    return lines;
  }
  FakeMachine machine_;

 private:
  void AddOfUnknownNetdev(const std::string& device, const std::string& uverbs) {
    machine_.AddDevice(device, uverbs);
    machine_.AddRocePort(device, 1, "none");
    for (const int index : {0, 1, 2}) {
      machine_.WriteGid(device, 1, index, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");
    }
  }
};

// ---- The network interface.

TEST_F(DoctorDriversTest, DevicesOverIwarpAreToldApartByTheMacInTheirGid) {
  AddErdma("erdma_0", "uverbs0", "02:42:ac:11:00:02");
  AddErdma("erdma_1", "uverbs1", "02:42:ac:11:00:03");
  AddNetdev("eth0", "02:42:ac:11:00:03");
  AddNetdev("eth1", "02:42:ac:11:00:02");
  AddNetdev("lo", "00:00:00:00:00:00", /*hardware=*/false);
  EXPECT_EQ(NetdevOf("erdma_0"), "eth1");
  EXPECT_EQ(NetdevOf("erdma_1"), "eth0");
  const Lines lines = machine_.Examine();
  EXPECT_THAT(NotOk(lines), IsEmpty());
  EXPECT_THAT(lines, Contains(HasSubstr("erdma_0/1: ACTIVE / LinkUp, iWARP, 100 Gb/sec (4X EDR), netdev eth1 "
                                        "(by its MAC address)")));
  EXPECT_THAT(lines, Contains("ok       mtu erdma_1/1: active_mtu 4096, netdev eth0 has mtu 9000"));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("gid erdma_1/1: iWARP needs none"), HasSubstr("of eth0"))));
}

TEST_F(DoctorDriversTest, GidTableThatNamesTheInterfaceGoesBeforeTheMac) {
  AddErdma("erdma_0", "uverbs0", "02:42:ac:11:00:02");
  AddNetdev("eth0", "02:42:ac:11:00:02");
  machine_.WriteGid("erdma_0", 1, 0, "0242:ac11:0002:0000:0000:0000:0000:0000", "IB/RoCE v1", "eth7");
  EXPECT_EQ(NetdevOf("erdma_0"), "eth7");
  EXPECT_THAT(machine_.Examine(), Not(Contains(HasSubstr("by its MAC address"))));
}

TEST_F(DoctorDriversTest, InterfaceIsFoundByTheMacInTheNodeGuid) {
  AddRoce("bnxt_re0", "uverbs0", "0042:acff:fe11:0002");
  AddNetdev("eth0", "02:42:ac:11:00:03");
  AddNetdev("eth1", "02:42:ac:11:00:02");
  EXPECT_EQ(NetdevOf("bnxt_re0"), "eth1");
  EXPECT_THAT(machine_.Examine(),
              Contains(AllOf(StartsWith("warning  gid bnxt_re0/1: no RoCE v2 GID"), HasSubstr("give eth1"))));
}

// That of mlx5 is none of a MAC; its second port has none; the last ones are garbage.
TEST_F(DoctorDriversTest, NodeGuidThatIsNoMacOfThePortFindsNothing) {
  AddRoce("mlx5_0", "uverbs0", "0042:ac03:0011:0002");
  AddNetdev("eth0", "02:42:ac:11:00:02");
  EXPECT_EQ(NetdevOf("mlx5_0"), "");
  for (const char* guid : {"", "0042:acff:fe11", "0042:acff:fe11:zzzz", "42:acff:fe11:0002", "::::"}) {
    machine_.Write("/sys/class/infiniband/mlx5_0/node_guid", guid);
    EXPECT_EQ(NetdevOf("mlx5_0"), "") << guid;
  }
  machine_.Write("/sys/class/infiniband/mlx5_0/node_guid", "0042:acff:fe11:0002\n");
  EXPECT_EQ(NetdevOf("mlx5_0"), "eth0");
  for (const char* address :
       {"", "02:42:ac:11:00", "02:42:ac:11:00:2", "02:42:ac:11:00:02:00:00", "zz:42:ac:11:00:02"}) {
    machine_.Write("/sys/class/net/eth0/address", address);
    EXPECT_EQ(NetdevOf("mlx5_0"), "") << address;
  }
  machine_.Write("/sys/class/net/eth0/address", "02:42:ac:11:00:02\n");
  machine_.WritePort("mlx5_0", 2, "state", "4: ACTIVE\n");
  EXPECT_EQ(NetdevOf("mlx5_0", 0), "");
  EXPECT_EQ(NetdevOf("mlx5_0", 1), "");
}

// The GID of an empty place, and the address of lo.
TEST_F(DoctorDriversTest, MacOfZerosIsNone) {
  AddErdma("siw0", "uverbs0", "00:00:00:00:00:00");
  AddNetdev("lo", "00:00:00:00:00:00", /*hardware=*/false);
  EXPECT_EQ(NetdevOf("siw0"), "");
  machine_.Write("/sys/class/infiniband/siw0/node_guid", "0200:00ff:fe00:0000\n");
  EXPECT_EQ(NetdevOf("siw0"), "");
}

TEST_F(DoctorDriversTest, HardwareIsPreferredToVlansAndBridgesOfItsMac) {
  const std::string mac = "02:42:ac:11:00:02";
  AddErdma("erdma_0", "uverbs0", mac);
  AddNetdev("br0", mac, /*hardware=*/false);
  EXPECT_EQ(NetdevOf("erdma_0"), "br0");
  AddNetdev("br0.5", mac, /*hardware=*/false);
  EXPECT_EQ(NetdevOf("erdma_0"), "") << "it may be either";
  AddNetdev("eth0", mac);
  EXPECT_EQ(NetdevOf("erdma_0"), "eth0");
  AddNetdev("eth1", mac);  // Both below a bond.
  EXPECT_EQ(NetdevOf("erdma_0"), "") << "it may be either";
  machine_.Write("/sys/class/infiniband/erdma_0/device/net/eth1/address", mac);
  EXPECT_EQ(NetdevOf("erdma_0"), "eth1");
}

TEST_F(DoctorDriversTest, OnlyInterfaceOfThePciFunctionIsTakenIfNoMacTells) {
  AddRoce("mlx5_0", "uverbs0", "0042:ac03:0011:0002");
  machine_.Write("/sys/class/infiniband/mlx5_0/device/net/eth0/address", "02:42:ac:11:00:09\n");
  EXPECT_EQ(NetdevOf("mlx5_0"), "eth0");
  EXPECT_THAT(machine_.Examine(), Not(Contains(HasSubstr("by its MAC address"))));
}

// ---- The provider.

TEST_F(DoctorDriversTest, NoProviderIsInstalled) {
  AddMlx5();
  machine_.verbs_devices.clear();
  machine_.Remove("/etc/libibverbs.d");
  EXPECT_THAT(Provider(),
              ElementsAre(AllOf(StartsWith("problem  provider mlx5_0: libibverbs has no provider for it, "
                                           "since none is installed"),
                                HasSubstr("apt-get install ibverbs-providers"))));
}

TEST_F(DoctorDriversTest, ProviderIsOlderThanTheKernelsDriver) {
  AddMlx5();
  machine_.verbs_devices.clear();
  machine_.Write("/sys/class/infiniband/mlx5_0/device/uevent", "DRIVER=erdma\nPCI_ID=1DED:107F\n");
  EXPECT_THAT(Provider(),
              ElementsAre(AllOf(
                  StartsWith("problem  provider mlx5_0: libibverbs has no provider for it: the kernel has "
                             "a driver (erdma), and /etc/libibverbs.d has no erdma"),
                  HasSubstr("--only-upgrade ibverbs-providers"))));
  // The driver of the Ethernet half, which lends its function.
  machine_.Write("/sys/class/infiniband/mlx5_0/device/uevent", "DRIVER=ice\n");
  EXPECT_THAT(Provider(), ElementsAre(HasSubstr("has no irdma")));
}

TEST_F(DoctorDriversTest, ProviderThatIsInstalledAndDoesNotTakeTheDeviceDisagreesWithTheKernel) {
  AddMlx5();
  machine_.verbs_devices.clear();
  machine_.Write("/sys/class/infiniband_verbs/uverbs0/abi_version", "2\n");
  for (const char* uevent : {"DRIVER=mlx5_core\n", "DRIVER=a_new_one\n", "PCI_CLASS=20000\n"}) {
    machine_.Write("/sys/class/infiniband/mlx5_0/device/uevent", uevent);
    EXPECT_THAT(Provider(),
                ElementsAre(AllOf(StartsWith("problem  provider mlx5_0: kernel and libibverbs disagree: "),
                                  HasSubstr("no provider of those in /etc/libibverbs.d (1) takes it"),
                                  HasSubstr("has ABI version 2"), HasSubstr("stderr"),
                                  HasSubstr("ibverbs-providers"))))
        << uevent;
  }
  machine_.Write("/sys/class/infiniband/mlx5_0/device/uevent", "DRIVER=mlx5_core\n");
  machine_.Remove("/sys/class/infiniband_verbs/uverbs0/abi_version");
  EXPECT_THAT(Provider(),
              ElementsAre(HasSubstr("the kernel's driver (mlx5_core) has an unknown ABI version")));
}

// As in a container that was not given /dev/infiniband. libibverbs passes over such a device if it looks in
// sysfs; if it asks the kernel by netlink, it lists the device, unless there is no provider.
TEST_F(DoctorDriversTest, DeviceFileThatIsNotThereIsNoFaultOfTheProvider) {
  AddMlx5();
  machine_.verbs_devices.clear();
  machine_.Remove("/dev/infiniband/uverbs0");
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(StartsWith("problem  provider mlx5_0: libibverbs does not list it, and "
                                     "/dev/infiniband/uverbs0 is not there"),
                          StartsWith("problem  access /dev/infiniband/uverbs0")));
}

TEST_F(DoctorDriversTest, ProviderThatIsMissingIsNamedThoughTheDeviceFileIsMissingToo) {
  AddMlx5();
  machine_.verbs_devices.clear();
  machine_.Remove("/dev/infiniband/uverbs0");
  machine_.Remove("/etc/libibverbs.d/mlx5.driver");
  EXPECT_THAT(Provider(), ElementsAre(HasSubstr("no provider")));
}

TEST_F(DoctorDriversTest, ProviderThatCannotOpenTheDeviceSaysWhatToLookAt) {
  AddMlx5();
  machine_.Write("/sys/class/infiniband_verbs/uverbs0/abi_version", "2\n");
  absl::Status& opened = machine_.verbs_devices[0].opened;
  opened = absl::ErrnoToStatus(EACCES, "ibv_open_device()");
  EXPECT_THAT(Provider(),
              ElementsAre(AllOf(HasSubstr("cannot open it: ibv_open_device()"),
                                HasSubstr("access to /dev/infiniband/uverbs0"), Not(HasSubstr("ABI")))));
  opened = absl::ErrnoToStatus(ENOMEM, "ibv_open_device()");
  EXPECT_THAT(Provider(),
              ElementsAre(AllOf(HasSubstr("cannot open it: ibv_open_device()"), HasSubstr("ulimit -l"))));
  for (const int error : {EINVAL, EOPNOTSUPP, EPROTO}) {
    opened = absl::ErrnoToStatus(error, "ibv_open_device()");
    EXPECT_THAT(Provider(), ElementsAre(AllOf(HasSubstr("cannot open it: ibv_open_device()"),
                                              HasSubstr("the kernel's driver has ABI version 2"),
                                              HasSubstr("releases of the same time"))));
  }
}

TEST_F(DoctorDriversTest, DeviceThatOnlyLibibverbsListsIsAWarning) {
  AddMlx5();
  machine_.verbs_devices.push_back({.name = "mlx5_7"});
  EXPECT_THAT(Provider(), ElementsAre(StartsWith("ok       provider mlx5_0:"),
                                      AllOf(StartsWith("warning  provider mlx5_7: libibverbs lists it, but "
                                                       "/sys/class/infiniband does not show it"),
                                            HasSubstr("mount the /sys"))));
}

}  // namespace
}  // namespace hawser::doctor
