#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/base/unique_fd.h"
#include "hawser/tests/testing/temporary_folder.h"
#include "hawser/transport/fabric/verbs/route.h"

namespace hawser::fabric {
namespace {

SocketAddress Ip(const char* text) {
  sockaddr_in v4 = {.sin_family = AF_INET};
  EXPECT_EQ(inet_pton(AF_INET, text, &v4.sin_addr), 1);
  return SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
}

SocketAddress Loopback6() {
  const sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  return SocketAddress(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6));
}

// A made-up /sys, in which RDMA devices are on the one interface that every machine has: lo, with 127.0.0.1.
class VerbsRouteTest : public testing::Test {
 protected:
  void Gid(const std::string& device, const std::string& port, const std::string& index,
           const std::string& netdev) {
    const std::string folder =
        sysfs_ + "/class/infiniband/" + device + "/ports/" + port + "/gid_attrs/ndevs/";
    std::filesystem::create_directories(folder);
    std::ofstream(folder + index) << netdev << "\n";
  }
  void Mac(const std::string& netdev, const std::string& mac) {
    const std::string folder = sysfs_ + "/class/net/" + netdev;
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/address") << mac << "\n";
  }
  void GidValue(const std::string& device, const std::string& port, const std::string& gid) {
    const std::string folder = sysfs_ + "/class/infiniband/" + device + "/ports/" + port + "/gids/";
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "0") << gid << "\n";
  }
  void Sibling(const std::string& netdev, const std::string& device) {
    std::filesystem::create_directories(sysfs_ + "/class/net/" + netdev + "/device/infiniband/" + device);
  }

  const TemporaryFolder folder_;
  const std::string& sysfs_ = folder_.path();
};

TEST_F(VerbsRouteTest, RoceIsTheDeviceWithAGidOfTheInterface) {
  Gid("mlx5_0", "1", "0", "eth0");
  Gid("mlx5_1", "1", "0", "eth1");
  Gid("mlx5_1", "2", "0", "");
  Gid("mlx5_1", "2", "1", "lo");
  EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "mlx5_1");
}

TEST_F(VerbsRouteTest, IpoibAndIwarpAreTheOneDeviceOfTheSameHardware) {
  Sibling("lo", "irdma0");
  EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "irdma0");
  Sibling("lo", "irdma1");
  EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "") << "one of two, and nothing says which";
}

// Their netdev may be a function of other hardware: that of erdma is virtio-net's.
TEST_F(VerbsRouteTest, TwoIwarpDevicesAreToldApartByTheMacInTheirGid) {
  Mac("lo", "02:42:ac:11:00:02");
  GidValue("erdma_0", "1", "0242:ac11:0003:0000:0000:0000:0000:0000");
  GidValue("erdma_1", "1", "0242:ac11:0002:0000:0000:0000:0000:0000");
  EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "erdma_1");
  Mac("lo", "02:42:ac:11:00:03");
  EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "erdma_0");
  Mac("lo", "02:42:ac:11:00:04");
  EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "");
  for (const char* odd : {"", "02:42:ac", "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:01:02:03"}) {
    Mac("lo", odd);
    EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "") << odd;
  }
  // That of lo. The GID of an empty place is the same.
  Mac("lo", "00:00:00:00:00:00");
  GidValue("erdma_1", "1", "0000:0000:0000:0000:0000:0000:0000:0000");
  EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "");
}

TEST_F(VerbsRouteTest, TheMacOfAPortIsThatOfItsGid) {
  Mac("lo", "02:42:ac:11:00:02");
  GidValue("cxgb4_0", "1", "0242:ac11:0001:0000:0000:0000:0000:0000");
  GidValue("cxgb4_0", "2", "0242:ac11:0002:0000:0000:0000:0000:0000");
  EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "cxgb4_0");
}

// Each place is a file, a NIC has 256, and they are looked at for each dial. So the search goes past many
// empty ones in a row only if it has found nothing elsewhere.
TEST_F(VerbsRouteTest, GidsBehindManyEmptyPlacesAreLookedForLast) {
  const auto fill = [&](const std::string& device, int count) {
    for (int i = 0; i < count; ++i) Gid(device, "1", std::to_string(i), "");
  };
  fill("mlx5_0", 40);
  Gid("mlx5_0", "1", "40", "lo");
  EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "mlx5_0");
  fill("mlx5_1", 15);
  Gid("mlx5_1", "1", "15", "lo");
  EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "mlx5_1");
  Gid("mlx5_0", "1", "12", "eth7");
  Gid("mlx5_0", "1", "25", "eth7");
  EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "mlx5_0") << "no sixteen in a row are empty";
}

// The names of the files of `folder` that were opened.
class Opened {
 public:
  explicit Opened(const std::string& folder) : fd_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    EXPECT_GE(inotify_add_watch(fd_.get(), folder.c_str(), IN_OPEN), 0);
  }
  // Of those since the last call.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    alignas(inotify_event) char buffer[1 << 16];
    const ssize_t length = read(fd_.get(), buffer, sizeof(buffer));
    for (ssize_t at = 0; at < length;) {
      const auto* const event = reinterpret_cast<const inotify_event*>(buffer + at);
      if (event->len > 0) names.emplace_back(event->name);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
    return names;
  }

 private:
  const UniqueFd fd_;
};

// An address of no RDMA device is the case where all places are read.
TEST_F(VerbsRouteTest, EachPlaceIsReadAtMostOnce) {
  std::vector<std::string> all;
  for (int i = 0; i < 64; ++i) {
    all.push_back(std::to_string(i));
    Gid("mlx5_0", "1", all.back(), i == 3 ? "eth7" : "");
  }
  const Opened opened(sysfs_ + "/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs");
  EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "");
  EXPECT_EQ(opened.Names(), all);
}

TEST_F(VerbsRouteTest, AnAddressOfNoInterfaceOrOfNoDeviceHasNone) {
  EXPECT_EQ(VerbsDeviceOf(Ip("127.0.0.1"), sysfs_), "");
  Gid("mlx5_0", "1", "0", "lo");
  EXPECT_EQ(VerbsDeviceOf(Ip("192.0.2.1"), sysfs_), "");  // For documentation (RFC 5737).
  EXPECT_EQ(VerbsDeviceOf(Ip("0.0.0.0"), sysfs_), "");
  EXPECT_EQ(VerbsDeviceOf({}, sysfs_), "");
}

TEST_F(VerbsRouteTest, ThePortOfTheAddressDoesNotMatter) {
  Gid("mlx5_0", "1", "0", "lo");
  SocketAddress local = Ip("127.0.0.1");
  local.set_port(7470);
  EXPECT_EQ(VerbsDeviceOf(local, sysfs_), "mlx5_0");
}

TEST_F(VerbsRouteTest, TheSourceIsTheAddressOfTheRoute) {
  SocketAddress peer = Ip("127.0.0.9");
  EXPECT_EQ(RouteSource(peer).ToString(), "127.0.0.1:0");
  peer.set_port(7470);
  EXPECT_EQ(RouteSource(peer).ToString(), "127.0.0.1:0");
  EXPECT_EQ(RouteSource(SocketAddress()).family(), AF_UNSPEC);
  // Without IPv6 there is no route.
  const SocketAddress six = RouteSource(Loopback6());
  EXPECT_TRUE(six.family() == AF_UNSPEC || six.ToString() == "[::1]:0") << six.ToString();
}

}  // namespace
}  // namespace hawser::fabric
