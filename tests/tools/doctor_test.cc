// What hawser-doctor says of machines that are made up.

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tools/doctor/target.h"
#include "hawser/transport/uri.h"
#include "tests/tools/fake_machine.h"

namespace hawser::doctor {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using Lines = std::vector<std::string>;

class DoctorTest : public testing::Test {
 protected:
  void AddMlx5() {
    machine_.AddDevice("mlx5_0", "uverbs0");
    machine_.AddRocePort("mlx5_0", 1, "eth0");
  }
  FakeMachine machine_;
};

// ---- No RDMA.

TEST_F(DoctorTest, WithoutADeviceTcpWillBeUsedAndThatIsOk) {
  const Lines lines = machine_.Examine();
  EXPECT_THAT(NotOk(lines), IsEmpty());
  EXPECT_THAT(lines[0], AllOf(StartsWith("ok"), HasSubstr("no RDMA device"), HasSubstr("TCP will be used")));
}

TEST_F(DoctorTest, WithoutADeviceAWishForRdmaIsAProblem) {
  EXPECT_THAT(machine_.Examine(/*rdma_wanted=*/true),
              Contains(AllOf(StartsWith("problem"), HasSubstr("no RDMA device"), HasSubstr("tcp://"))));
}

TEST_F(DoctorTest, WithoutADeviceMissingLibrariesAreOkButNamed) {
  machine_.load["libibverbs.so.1"] = machine_.load["librdmacm.so.1"] = absl::NotFoundError("no such file");
  const Lines lines = machine_.Examine();
  EXPECT_THAT(NotOk(lines), IsEmpty());
  EXPECT_THAT(lines, Contains(HasSubstr("apt-get install librdmacm1")));
}

// ---- RoCE.

TEST_F(DoctorTest, OnAHealthyRoceNicAllIsOk) {
  AddMlx5();
  const Lines lines = machine_.Examine();
  EXPECT_THAT(NotOk(lines), IsEmpty());
  EXPECT_THAT(lines,
              Contains("ok       port mlx5_0/1: ACTIVE / LinkUp, Ethernet (RoCE), 100 Gb/sec (4X EDR), "
                       "netdev eth0"));
  EXPECT_THAT(lines, Contains("ok       mtu mlx5_0/1: active_mtu 4096, netdev eth0 has mtu 9000"));
  EXPECT_THAT(lines, Contains("ok       access /dev/infiniband/uverbs0: can be opened (mlx5_0)"));
}

TEST_F(DoctorTest, DeviceThatDoesNotConfineGrantsIsAWarning) {
  AddMlx5();
  EXPECT_THAT(machine_.Examine(), Contains(StartsWith("ok       grants mlx5_0: memory windows of type 2")));
  machine_.verbs_devices[0].uses_windows = false;
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("warning  grants mlx5_0: no memory windows of type 2"),
                                HasSubstr("any other peer"), HasSubstr("tcp://"), Not(HasSubstr("iWARP")))));
}

TEST_F(DoctorTest, WhatIwarpExposesIsAWarningOfItsOwn) {
  AddMlx5();
  EXPECT_THAT(machine_.Examine(), Not(Contains(HasSubstr("iwarp"))));
  machine_.verbs_devices[0].uses_windows = false;
  machine_.verbs_devices[0].iwarp = true;
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(StartsWith("warning  grants mlx5_0: no memory windows of type 2"),
                          AllOf(StartsWith("warning  iwarp mlx5_0:"), HasSubstr("can be written"),
                                HasSubstr("guesses its STag and address"), HasSubstr("no credentials"),
                                HasSubstr("tcp://"))));
  machine_.verbs_devices[0].opened = absl::UnavailableError("it cannot be opened");
  EXPECT_THAT(machine_.Examine(), Not(Contains(HasSubstr("iwarp"))));
}

// As with bnxt_re.
TEST_F(DoctorTest, KernelAndProviderThatDisagreeOnWindowsAreNamed) {
  AddMlx5();
  machine_.verbs_devices[0].uses_windows = false;
  machine_.verbs_devices[0].windows_refused = "ibv_alloc_mw(): operation not supported (EOPNOTSUPP)";
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("warning  grants mlx5_0: no memory windows of type 2 (the kernel"),
                                HasSubstr("provider"), HasSubstr("EOPNOTSUPP"))));
}

TEST_F(DoctorTest, WindowsThatCouldNotBeTriedAreAWarning) {
  AddMlx5();
  machine_.verbs_devices[0].windows_untried = "windows could not be tried: ibv_create_qp(): ENOMEM";
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(
                  StartsWith("warning  grants mlx5_0: memory windows of type 2, if the kernel is right"),
                  HasSubstr("could not be tried: ibv_create_qp(): ENOMEM"), HasSubstr("ulimit -l"),
                  HasSubstr("kRegistered"))));
}

TEST_F(DoctorTest, TheGidThatRdmaCmTakesIsNamedAndEmptyOnesAreLeftOut) {
  AddMlx5();
  Lines gids = machine_.Examine();
  gids.erase(std::remove_if(gids.begin(), gids.end(),
                            [](const std::string& line) { return !absl::StrContains(line, " gid "); }),
             gids.end());
  EXPECT_THAT(
      gids,
      ElementsAre(
          "ok       gid mlx5_0/1: 0 is fe80::e42:a1ff:fe00:1, RoCE v1, netdev eth0: not used, rdma_cm takes "
          "RoCE v2",
          "ok       gid mlx5_0/1: 1 is 10.0.0.1, RoCE v1, netdev eth0: not used, rdma_cm takes RoCE v2",
          "ok       gid mlx5_0/1: 2 is 10.0.0.1, RoCE v2, netdev eth0: used for what binds to 10.0.0.1 or "
          "goes out from it"));
}

TEST_F(DoctorTest, NoGidIsAWarning) {
  AddMlx5();
  machine_.Write("/sys/class/infiniband/mlx5_0/parent", "eth0\n");  // Which no GID tells now.
  for (int index : {0, 1, 2}) {
    machine_.WriteGid("mlx5_0", 1, index, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");
  }
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("warning  gid mlx5_0/1: no RoCE v2 GID"), HasSubstr("eth0"))));
}

// As cma_add_one() of the kernel has it.
TEST_F(DoctorTest, OfANicThatKnowsRoceV1OnlyThoseGidsAreUsed) {
  AddMlx5();
  machine_.WriteGid("mlx5_0", 1, 2, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");
  const Lines lines = machine_.Examine();
  EXPECT_THAT(NotOk(lines), ElementsAre(AllOf(StartsWith("warning  gid mlx5_0/1: it knows RoCE v1 only"),
                                              HasSubstr("not routed"))));
  EXPECT_THAT(lines,
              Contains("ok       gid mlx5_0/1: 1 is 10.0.0.1, RoCE v1, netdev eth0: used for what binds to "
                       "10.0.0.1 or goes out from it"));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("not used"))));
  machine_.Write("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode", "IB/RoCE v1\n");
  EXPECT_THAT(NotOk(machine_.Examine()), ElementsAre(HasSubstr("it knows RoCE v1 only")))
      << "it cannot be set to v2";
}

// The loopback address as a GID: from there this machine goes to itself.
TEST_F(DoctorTest, TheWayToAServerNamesTheGidThatRdmaCmTakes) {
  AddMlx5();
  const std::string here = "0000:0000:0000:0000:0000:ffff:7f00:0001",
                    none = "0000:0000:0000:0000:0000:0000:0000:0000";
  machine_.WriteGid("mlx5_0", 1, 1, here, "IB/RoCE v1", "lo");
  machine_.WriteGid("mlx5_0", 1, 2, here, "RoCE v2", "lo");
  const auto route = [&] {
    std::string text;
    const transport::Uri uri = transport::ParseUri("rdma://127.0.0.1:1").value();
    for (const Finding& finding : CheckTarget(uri, absl::Seconds(5), ReadDevices(machine_))) {
      if (finding.check == "route") text = finding.found;
    }
    return text;
  };
  EXPECT_THAT(route(), HasSubstr("which is mlx5_0/1, GID 2 (RoCE v2)"));
  machine_.Write("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode", "IB/RoCE v1\n");
  EXPECT_THAT(route(), HasSubstr("which is mlx5_0/1, GID 1 (RoCE v1)"));
  machine_.Remove("/sys/kernel/config");
  machine_.WriteGid("mlx5_0", 1, 2, none, "", "");
  EXPECT_THAT(route(), HasSubstr("which is mlx5_0/1, GID 1 (RoCE v1)"));
  machine_.WriteGid("mlx5_0", 1, 1, none, "", "");
  EXPECT_THAT(route(), HasSubstr("no address of an RDMA port"));
}

TEST_F(DoctorTest, NoIpAddressIsAWarning) {
  AddMlx5();
  machine_.WriteGid("mlx5_0", 1, 2, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "RoCE v2", "eth0");
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("warning  gid mlx5_0/1:"), HasSubstr("link-local"),
                                HasSubstr("ip address add"))));
}

TEST_F(DoctorTest, RdmaCmSetToRoceV1IsAWarning) {
  AddMlx5();
  machine_.Write("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode", "IB/RoCE v1\n");
  const Lines lines = machine_.Examine();
  EXPECT_THAT(NotOk(lines), ElementsAre(HasSubstr("default_roce_mode")));
  EXPECT_THAT(lines, Contains(HasSubstr("1 is 10.0.0.1, RoCE v1, netdev eth0: used for what binds to")));
}

TEST_F(DoctorTest, APortThatIsDownIsAProblemAndItsMissingGidsAreNotNews) {
  AddMlx5();
  machine_.WritePort("mlx5_0", 1, "state", "1: DOWN\n");
  machine_.WritePort("mlx5_0", 1, "phys_state", "3: Disabled\n");
  machine_.WriteGid("mlx5_0", 1, 2, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("problem  port mlx5_0/1: not usable: DOWN / Disabled"),
                                HasSubstr("ip link set eth0 up"))));
}

TEST_F(DoctorTest, OfTwoPortsOneMayBeDown) {
  AddMlx5();
  machine_.AddRocePort("mlx5_0", 2, "eth1");
  machine_.WritePort("mlx5_0", 2, "state", "1: DOWN\n");
  const Lines lines = machine_.Examine();
  EXPECT_THAT(NotOk(lines), ElementsAre(StartsWith("warning  port mlx5_0/2: not usable: DOWN")));
  EXPECT_THAT(lines, Contains(HasSubstr("gid mlx5_0/2: 2 is 10.0.0.2, RoCE v2, netdev eth1")));
}

TEST_F(DoctorTest, AnMtuThatLimitsThePacketsIsSaidWithTheBetterOne) {
  AddMlx5();
  machine_.Write("/sys/class/net/eth0/mtu", "1500\n");
  machine_.verbs_devices[0].active_mtu_of_ports[1] = 1024;
  const Lines lines = machine_.Examine();
  EXPECT_THAT(NotOk(lines), IsEmpty());
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("active_mtu 1024, netdev eth0 has mtu 1500"),
                                    HasSubstr("ip link set eth0 mtu 4200"))));
}

TEST_F(DoctorTest, PacketsThatDoNotFitTheNetdevAreAWarning) {
  AddMlx5();
  machine_.Write("/sys/class/net/eth0/mtu", "1500\n");
  EXPECT_THAT(NotOk(machine_.Examine()), ElementsAre(StartsWith("warning  mtu mlx5_0/1: active_mtu 4096")));
}

TEST_F(DoctorTest, ANodeFarFromTheAllowedCpusIsAWarning) {
  AddMlx5();
  machine_.Write("/sys/class/infiniband/mlx5_0/device/numa_node", "1\n");
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("warning  numa mlx5_0: on NUMA node 1 with CPUs 4-7; this process "
                                           "may run on CPUs 0-3, none of them near"),
                                HasSubstr("numactl --cpunodebind=1"))));
}

TEST_F(DoctorTest, ADeviceOfNoNodeIsOk) {
  AddMlx5();
  machine_.Write("/sys/class/infiniband/mlx5_0/device/numa_node", "-1\n");
  EXPECT_THAT(NotOk(machine_.Examine()), IsEmpty());
}

// ---- Which of several.

TEST_F(DoctorTest, TheDeviceThatHawserUsesIsTheFirstOfLibrdmacmWithAnActivePort) {
  for (const char* device : {"mlx5_2", "mlx5_1", "mlx5_0"}) {  // librdmacm has an order of its own.
    machine_.AddDevice(device, std::string("uverbs") + device[5]);
    machine_.AddRocePort(device, 1, std::string("eth") + device[5]);
  }
  EXPECT_THAT(machine_.Examine(), Contains("ok       devices mlx5_2: used by Hawser where no address says "
                                           "which: it is the first with an active port "
                                           "that makes reliable connections "
                                           "(HAWSER_RDMA_DEVICE would name one for all)"));
  machine_.WritePort("mlx5_2", 1, "state", "1: DOWN\n");
  const Lines lines = machine_.Examine();
  EXPECT_THAT(lines, Contains(StartsWith("ok       devices mlx5_1: used by Hawser")));
  EXPECT_THAT(lines, Contains("ok       devices mlx5_2: passed over by Hawser: none of its ports is active"));
}

constexpr char kNoConnections[] = "it has no reliable connections, which Hawser needs";

// librdmacm lists efa, and a mana of raw queue pairs only, and their ports are active.
TEST_F(DoctorTest, DevicesThatHawserPassesOverAreNamedWithTheReason) {
  for (const char* device : {"efa_0", "mana_0", "mlx5_0"}) {
    const int number = static_cast<int>(machine_.verbs_devices.size());
    machine_.AddDevice(device, absl::StrCat("uverbs", number));
    machine_.AddRocePort(device, 1, absl::StrCat("eth", number));
  }
  VerbsDevice& efa = machine_.verbs_devices[0];
  VerbsDevice& mana = machine_.verbs_devices[1];
  VerbsDevice& mlx5 = machine_.verbs_devices[2];
  efa.suits = absl::InvalidArgumentError(kNoConnections);
  efa.limits.reset();
  mana.makes_queue_pairs = absl::UnavailableError("ibv_create_qp(): EOPNOTSUPP");
  Lines lines = machine_.Examine();
  EXPECT_THAT(NotOk(lines), IsEmpty());
  EXPECT_THAT(lines,
              Contains(absl::StrCat("ok       devices efa_0: passed over by Hawser: ", kNoConnections)));
  EXPECT_THAT(lines,
              Contains("ok       devices mana_0: passed over by Hawser: it makes no reliable queue pair: "
                       "ibv_create_qp(): EOPNOTSUPP"));
  EXPECT_THAT(lines, Contains(StartsWith("ok       devices mlx5_0: used by Hawser where no address")));

  mlx5.suits = absl::FailedPreconditionError("the device says max_qp_rd_atom = 0");
  lines = NotOk(machine_.Examine());
  EXPECT_THAT(lines, ElementsAre(AllOf(StartsWith("problem  devices mana_0: used by Hawser, because there is "
                                                  "no other, but it makes no reliable queue pair"),
                                       HasSubstr("tcp://"))));
  mana.suits = absl::FailedPreconditionError("the device says max_cqe = 0");
  EXPECT_THAT(
      NotOk(machine_.Examine()),
      ElementsAre(StartsWith(absl::StrCat("problem  devices efa_0: passed over by Hawser: ", kNoConnections)),
                  StartsWith("problem  devices mana_0: passed over by Hawser: the device says max_cqe"),
                  StartsWith("problem  devices mlx5_0: passed over by Hawser: the device says max_qp")));
}

TEST_F(DoctorTest, ADeviceThatTheEnvironmentNamesAndHawserRefusesIsAProblem) {
  AddMlx5();
  machine_.environment["HAWSER_RDMA_DEVICE"] = "mlx5_0";
  VerbsDevice& named = machine_.verbs_devices[0];
  named.makes_queue_pairs = absl::UnavailableError("ibv_create_qp(): EOPNOTSUPP");
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("problem  devices mlx5_0: used by Hawser, because"),
                                HasSubstr("it makes no reliable queue pair: ibv_create_qp(): EOPNOTSUPP"))));
  named.suits = absl::InvalidArgumentError(kNoConnections);
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("problem  devices mlx5_0: HAWSER_RDMA_DEVICE names it, but Hawser "
                                           "does not use it"),
                                HasSubstr(kNoConnections))));
}

TEST_F(DoctorTest, LimitsOfADeviceAreOneLine) {
  AddMlx5();
  EXPECT_THAT(machine_.Examine(),
              Contains("ok       limits mlx5_0: a SEND of up to 6 entries (its max_sge is 30), 192 bytes "
                       "inline, 16 READs at once each way, completion queues of up to 4194303 entries"));
  *machine_.verbs_devices[0].limits = {.send_sges = 1, .max_sge = 1, .read_depth = 1, .max_cqe = 64};
  EXPECT_THAT(machine_.Examine(),
              Contains("ok       limits mlx5_0: a SEND of up to 1 entry (its max_sge is 1), unknown bytes "
                       "inline, 1 READ at once each way, completion queues of up to 64 entries"));
}

TEST_F(DoctorTest, TheDeviceThatTheEnvironmentNamesIsUsedEvenIfItIsDown) {
  AddMlx5();
  machine_.AddDevice("mlx5_1", "uverbs1");
  machine_.AddRocePort("mlx5_1", 1, "eth1");
  machine_.environment["HAWSER_RDMA_DEVICE"] = "mlx5_1";
  EXPECT_THAT(machine_.Examine(),
              Contains("ok       devices mlx5_1: used by Hawser, because HAWSER_RDMA_DEVICE names it"));
  machine_.WritePort("mlx5_1", 1, "state", "1: DOWN\n");
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("problem  devices mlx5_1: used by Hawser, because"),
                                HasSubstr("none of its ports is active")),
                          StartsWith("warning  port mlx5_1/1: not usable: DOWN")));
  machine_.environment["HAWSER_RDMA_DEVICE"] = "mlx5_9";
  EXPECT_THAT(machine_.Examine(),
              Contains(AllOf(StartsWith("problem  devices mlx5_9: HAWSER_RDMA_DEVICE names it"),
                             HasSubstr("name one of mlx5_0, mlx5_1"))));
}

TEST_F(DoctorTest, TheChoiceIsInTheJson) {
  AddMlx5();
  Lines json;
  for (const Finding& finding : Examine(machine_, ReadDevices(machine_), false))
    json.push_back(ToJson(finding));
  EXPECT_THAT(json, Contains(AllOf(HasSubstr("\"check\": \"devices\", \"subject\": \"mlx5_0\""),
                                   HasSubstr("\"found\": \"used by Hawser where no address says which"))));
}

// As rdma_get_devices() of librdmacm 44 does, which leaves out what it cannot open.
TEST_F(DoctorTest, ADeviceThatTheEnvironmentNamesMayBeOneThatIsNotListed) {
  AddMlx5();
  machine_.AddDevice("mlx5_1", "uverbs1");
  machine_.AddRocePort("mlx5_1", 1, "eth1");
  machine_.verbs_devices.pop_back();
  machine_.environment["HAWSER_RDMA_DEVICE"] = "mlx5_1";
  EXPECT_THAT(
      NotOk(machine_.Examine()),
      ElementsAre(AllOf(StartsWith("problem  devices mlx5_1: HAWSER_RDMA_DEVICE names it, but librdmacm does "
                                   "not list it"),
                        HasSubstr("mlx5_0")),
                  StartsWith("problem  provider mlx5_1:")));
}

// As that of others.
TEST_F(DoctorTest, OneDeviceThatCannotBeOpenedIsSaidToSpoilTheOthers) {
  AddMlx5();
  machine_.AddDevice("mlx5_1", "uverbs1");
  machine_.AddRocePort("mlx5_1", 1, "eth1");
  machine_.open["/dev/infiniband/uverbs1"] = machine_.verbs_devices[1].opened =
      absl::ErrnoToStatus(EACCES, "open()");
  machine_.listed = absl::ErrnoToStatus(ENODEV, "rdma_get_devices()");
  EXPECT_THAT(
      NotOk(machine_.Examine()),
      ElementsAre(AllOf(StartsWith("problem  devices: Hawser can use none"), HasSubstr("rdma_get_devices()")),
                  StartsWith("problem  provider mlx5_1:"),
                  StartsWith("problem  access /dev/infiniband/uverbs1:")));
}

// ---- Others.

TEST_F(DoctorTest, AnInfiniBandPortIsFoundByItsIpoibInterface) {
  machine_.AddDevice("mlx5_0", "uverbs0");
  machine_.AddInfiniBandPort("mlx5_0", 1);
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("warning  gid mlx5_0/1: no IPoIB"), HasSubstr("ib_ipoib"))));
  machine_.Write("/sys/class/net/ib0/address",
                 "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:ab:cd:ef\n");
  const Lines lines = machine_.Examine();
  EXPECT_THAT(NotOk(lines), IsEmpty());
  EXPECT_THAT(lines, Contains(HasSubstr("by the IP addresses of ib0 (IPoIB)")));
  EXPECT_THAT(lines, Contains("ok       mtu mlx5_0/1: active_mtu 4096"));
}

TEST_F(DoctorTest, AnInfiniBandPortWithoutASubnetManagerIsAProblem) {
  machine_.AddDevice("mlx5_0", "uverbs0");
  machine_.AddInfiniBandPort("mlx5_0", 1);
  machine_.WritePort("mlx5_0", 1, "state", "2: INIT\n");
  EXPECT_THAT(NotOk(machine_.Examine()), ElementsAre(AllOf(StartsWith("problem"), HasSubstr("opensm"))));
}

TEST_F(DoctorTest, IwarpNeedsNoGid) {
  machine_.AddDevice("siw0", "uverbs0");
  machine_.AddRocePort("siw0", 1, "eth0");
  machine_.Write("/sys/class/infiniband/siw0/node_type", "4: RNIC\n");
  const Lines lines = machine_.Examine();
  EXPECT_THAT(NotOk(lines), IsEmpty());
  EXPECT_THAT(lines,
              Contains(HasSubstr("iWARP needs none: rdma_cm finds the port by the IP addresses of eth0")));
}

// ---- Libraries and access.

TEST_F(DoctorTest, EachMissingLibraryNamesItsPackage) {
  AddMlx5();
  machine_.load["librdmacm.so.1"] = absl::NotFoundError("librdmacm.so.1: cannot open shared object file");
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("problem  library librdmacm.so.1:"),
                                HasSubstr("cannot open shared object file"), HasSubstr("librdmacm1"))));
  machine_.load = {{"libibverbs.so.1", absl::NotFoundError("cannot open shared object file")}};
  EXPECT_THAT(NotOk(machine_.Examine()), ElementsAre(HasSubstr("apt-get install libibverbs1")));
}

TEST_F(DoctorTest, ADeviceWithoutAProviderNamesThePackage) {
  AddMlx5();
  machine_.verbs_devices.clear();
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("problem  provider mlx5_0:"), HasSubstr("ibverbs-providers"))));
}

TEST_F(DoctorTest, NoPermissionIsAProblemThatNamesTheFile) {
  AddMlx5();
  machine_.open["/dev/infiniband/uverbs0"] = absl::ErrnoToStatus(EACCES, "open()");
  machine_.open["/dev/infiniband/rdma_cm"] = absl::ErrnoToStatus(EPERM, "open()");
  machine_.verbs_devices[0].opened = absl::ErrnoToStatus(EACCES, "ibv_open_device()");
  machine_.listed = absl::ErrnoToStatus(ENODEV, "rdma_get_devices()");
  EXPECT_THAT(
      NotOk(machine_.Examine()),
      ElementsAre(AllOf(StartsWith("problem  provider mlx5_0:"), HasSubstr("ibv_open_device()")),
                  AllOf(StartsWith("problem  access /dev/infiniband/uverbs0:"), HasSubstr("ls -l")),
                  AllOf(StartsWith("problem  access /dev/infiniband/rdma_cm:"), HasSubstr("container"))));
}

TEST_F(DoctorTest, MissingKernelModulesAreNamed) {
  AddMlx5();
  machine_.Remove("/sys/class/infiniband_verbs");
  machine_.Remove("/dev/infiniband");
  machine_.verbs_devices.clear();
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(HasSubstr("modprobe ib_uverbs"), HasSubstr("modprobe ib_uverbs"),
                          HasSubstr("modprobe rdma_ucm")));
}

TEST_F(DoctorTest, TheNetnsModeIsToldOrUnknown) {
  AddMlx5();
  EXPECT_THAT(machine_.Examine(), Contains(AllOf(StartsWith("ok       netns:"), HasSubstr("shared"))));
  machine_.Write("/sys/module/ib_core/parameters/netns_mode", "N\n");
  EXPECT_THAT(machine_.Examine(), Contains(AllOf(StartsWith("ok       netns:"), HasSubstr("exclusive"))));
  machine_.Remove("/sys/module/ib_core/parameters/netns_mode");
  EXPECT_THAT(machine_.Examine(), Contains(AllOf(StartsWith("ok       netns:"), HasSubstr("unknown"))));
}

// ---- The process.

TEST_F(DoctorTest, AMemlockLimitBelowThePoolsIsAWarning) {
  AddMlx5();
  machine_.SetMemlock("8388608", "8388608");
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("warning  memlock: limit 8 MiB, Hawser registers up to 4 GiB"),
                                HasSubstr("LimitMEMLOCK"))));
  machine_.SetMemlock("8388608", "unlimited");
  EXPECT_THAT(NotOk(machine_.Examine()), ElementsAre(HasSubstr("ulimit -l unlimited")));
}

// 4 GiB, and a NIC's rings of a thousand connections.
TEST_F(DoctorTest, AMemlockLimitHasToHoldWhatDevicesPinBesideThePool) {
  AddMlx5();
  machine_.SetMemlock("4294967296", "4294967296");
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(AllOf(StartsWith("warning  memlock: limit 4 GiB"),
                                HasSubstr("MiB for the rings of 1000 connections over 4 pollers"))));
  machine_.SetMemlock("4563402752", "4563402752");
  EXPECT_THAT(NotOk(machine_.Examine()), IsEmpty());
  machine_.verbs_devices[0].pins_rings = false;
  machine_.SetMemlock("4294967296", "4294967296");
  EXPECT_THAT(NotOk(machine_.Examine()), IsEmpty());
}

TEST_F(DoctorTest, WithoutWindowsAMemlockLimitHasToHoldGrantsTwice) {
  AddMlx5();
  machine_.verbs_devices[0].uses_windows = machine_.verbs_devices[0].pins_rings = false;
  machine_.SetMemlock("4294967296", "4294967296");
  EXPECT_THAT(machine_.Examine(), Contains(AllOf(StartsWith("warning  memlock: limit 4 GiB"),
                                                 HasSubstr("counts a second time"))));
  machine_.SetMemlock("8589934592", "8589934592");
  EXPECT_THAT(machine_.Examine(), Contains(StartsWith("ok       memlock: limit 8 GiB")));
}

TEST_F(DoctorTest, AMemlockLimitBelowOneSlabIsAProblem) {
  AddMlx5();
  machine_.SetMemlock("65536", "65536");
  EXPECT_THAT(NotOk(machine_.Examine()), ElementsAre(StartsWith("problem  memlock: limit 64 KiB")));
}

TEST_F(DoctorTest, WhoMayLockMemoryIsExemptUnlessOnlyInAUserNamespace) {
  AddMlx5();
  machine_.SetMemlock("65536", "65536");
  machine_.Write("/proc/self/status", "CapEff:\t0000000000004000\nCpus_allowed_list:\t0-3\n");
  EXPECT_THAT(NotOk(machine_.Examine()), IsEmpty());
  machine_.Write("/proc/self/uid_map", "0 1000 1\n");
  EXPECT_THAT(NotOk(machine_.Examine()), ElementsAre(StartsWith("problem  memlock:")));
}

TEST_F(DoctorTest, HugePagesThatAreOffAreAWarning) {
  machine_.Write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  EXPECT_THAT(NotOk(machine_.Examine()), ElementsAre(StartsWith("warning  huge pages:")));
}

TEST_F(DoctorTest, ForkSafeVariablesAreNoted) {
  EXPECT_THAT(machine_.Examine(), Contains(AllOf(StartsWith("ok       fork:"), Not(HasSubstr("is set")))));
  machine_.environment["RDMAV_FORK_SAFE"] = "1";
  EXPECT_THAT(machine_.Examine(), Contains(AllOf(HasSubstr("RDMAV_FORK_SAFE is set, and changes nothing"),
                                                 HasSubstr("always calls ibv_fork_init()"))));
}

// ---- Garbage.

TEST_F(DoctorTest, FilesThatAreEmptyAreFindingsAndNoMore) {
  AddMlx5();
  for (const char* file : {"state", "phys_state", "link_layer", "rate", "gids/2", "gid_attrs/types/2"}) {
    machine_.WritePort("mlx5_0", 1, file, "");
  }
  machine_.Write("/sys/class/infiniband/mlx5_0/device/numa_node", "");
  machine_.Write("/proc/self/limits", "");
  machine_.Write("/sys/kernel/mm/transparent_hugepage/enabled", "");
  EXPECT_THAT(NotOk(machine_.Examine()),
              ElementsAre(StartsWith("warning  port mlx5_0/1: its state \"\""), HasSubstr("gids/2 is \"\""),
                          StartsWith("warning  memlock:"), StartsWith("warning  huge pages:")));
}

TEST_F(DoctorTest, NoTextOfTheSystemCanBreakALineOrTheJson) {
  AddMlx5();
  const std::string garbage("4: \"\\ \n\xff\0\x1b[2J", 13);
  for (const char* file : {"state", "phys_state", "link_layer", "rate", "gids/2", "gid_attrs/types/1",
                           "gid_attrs/ndevs/0", "gids/x"}) {
    machine_.WritePort("mlx5_0", 1, file, garbage);
  }
  machine_.Write("/sys/class/infiniband/mlx5_0/device/numa_node", "999999999999999999999");
  machine_.Write("/sys/devices/system/node/node0/cpulist", "0-999999999");
  machine_.Write("/proc/self/limits", "Max locked memory  -1 bytes");
  machine_.Write("/proc/self/status", "CapEff:\tzz\nCpus_allowed_list:\t7-3,,\n");
  machine_.Write("/sys/module/ib_core/parameters/netns_mode", std::string(200000, 'Y'));
  for (const Finding& finding : Examine(machine_, ReadDevices(machine_), false)) {
    EXPECT_THAT(ToText(finding), Each(testing::AllOf(testing::Ge(' '), testing::Le('~'))));
    EXPECT_THAT(ToJson(finding), Each(testing::AllOf(testing::Ge(' '), testing::Le('~'))));
  }
  EXPECT_THAT(machine_.Examine(), Contains(StartsWith("warning  memlock:")));
}

TEST_F(DoctorTest, CpuListsThatAreNoneAreAWarning) {
  AddMlx5();
  for (const char* list : {"", "x", "0-", "3-1", "-1", "0,,1", "0-999999999"}) {
    machine_.Write("/sys/devices/system/node/node0/cpulist", list);
    EXPECT_THAT(NotOk(machine_.Examine()), ElementsAre(StartsWith("warning  numa mlx5_0:"))) << list;
  }
}

TEST_F(DoctorTest, ADeviceWithoutPortsIsAWarning) {
  machine_.AddDevice("mlx5_0", "uverbs0");
  EXPECT_THAT(NotOk(machine_.Examine()), ElementsAre(StartsWith("warning  devices mlx5_0: it has no port")));
}

TEST(FindingTest, JsonEscapesWhatItMust) {
  EXPECT_EQ(ToJson({Level::kProblem, "c", "s", "a \"b\" \\ \n", "do"}),
            "{\"level\": \"problem\", \"check\": \"c\", \"subject\": \"s\", \"found\": \"a \\\"b\\\" \\\\ "
            "\\n\", "
            "\"advice\": \"do\"}");
}

TEST(FindingTest, ALineOfTextHasTheLevelFirstAndTheAdviceLast) {
  EXPECT_EQ(ToText({Level::kWarning, "port", "mlx5_0/1", "down", "plug it in"}),
            "warning  port mlx5_0/1: down; plug it in");
  EXPECT_EQ(ToText({Level::kOk, "fork", "", "fine", ""}), "ok       fork: fine");
}

}  // namespace
}  // namespace hawser::doctor
