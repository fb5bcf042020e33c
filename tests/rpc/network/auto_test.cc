// auto:// where one of its two networks is not there. Setup rxe_pair of tests/softroce.

#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/network/two_devices.h"

namespace hawser {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A channel to auto:// does not take a runtime, so the environment names the device.
ChannelOptions OfNearDevice(const FarServer& far) {
  ChannelOptions options;
  options.connection.local_address = far.near_address;
  return options;
}

std::string Taken(const absl::StatusOr<std::shared_ptr<Channel>>& channel) {
  EXPECT_THAT(channel.status(), IsOk());
  if (!channel.ok()) return "";
  EXPECT_THAT(SendAct(*channel, 1).Wait().status(), IsOk());
  return (*channel)->peer_address();
}

TEST(AutoNetworkTest, ItIsTcpWhileADeviceOfEitherSideIsGone) {
  FarServer far({}, "auto");
  const ChannelOptions options = OfNearDevice(far);
  const std::pair<std::string, std::string> devices[] = {{far.near_device, "veth0"},
                                                         {Environment("HAWSER_RDMA_PEER_DEVICE"), "veth1"}};
  for (const auto& [device, interface] : devices) {
    EXPECT_THAT(Taken(Channel::Connect(far.server->uri, options)), StartsWith("rdma://"));
    RemoveDevice(device);
    const auto channel = Channel::Connect(far.server->uri, options);
    EXPECT_THAT(Taken(channel), StartsWith("tcp://"));
    EXPECT_NE((*channel)->why_not_rdma(), "");
    AddDevice(device, interface);
    // A server looks every second.
    EXPECT_TRUE(Eventually([&] {
      return absl::StartsWith(Taken(Channel::Connect(far.server->uri, options)), "rdma://");
    })) << device;
  }
}

TEST(AutoNetworkTest, APortThatIsTakenOverRdmaOnlyIsNamed) {
  FarServer far;
  const std::string port = far.server->uri.substr(far.server->uri.rfind(':'));
  setenv("HAWSER_RDMA_DEVICE", Environment("HAWSER_RDMA_PEER_DEVICE").c_str(), 1);
  TestServer second({}, absl::StrCat("auto://", Environment("HAWSER_RDMA_PEER_ADDRESS"), port));
  setenv("HAWSER_RDMA_DEVICE", far.near_device.c_str(), 1);
  EXPECT_THAT(second.server.addresses(), ElementsAre(StartsWith("tcp://")));
  EXPECT_THAT(second.server.why_not_rdma(), HasSubstr("has the port"));
}

// What "port 0" is taken from.
class PortRange {
 public:
  explicit PortRange(const std::string& range) {
    std::getline(std::ifstream(kFile), before_);
    Become(range);
  }
  ~PortRange() { Become(before_); }

 private:
  static constexpr char kFile[] = "/proc/sys/net/ipv4/ip_local_port_range";
  static void Become(const std::string& range) {
    std::ofstream file(kFile);
    file << range << std::endl;
    EXPECT_TRUE(file.good()) << kFile;
  }
  std::string before_;
};

TEST(AutoNetworkTest, AnyPortIsOneThatIsFreeOverBoth) {
  PortRange range("40000 40001");
  FarServer far;  // Over RDMA it has one of the two.
  setenv("HAWSER_RDMA_DEVICE", Environment("HAWSER_RDMA_PEER_DEVICE").c_str(), 1);
  for (int i = 0; i < 10; ++i) {
    TestServer second({}, absl::StrCat("auto://", Environment("HAWSER_RDMA_PEER_ADDRESS"), ":0"));
    EXPECT_THAT(second.server.addresses(), ElementsAre(StartsWith("tcp://"), StartsWith("rdma://")))
        << second.server.why_not_rdma();
  }
  setenv("HAWSER_RDMA_DEVICE", far.near_device.c_str(), 1);
}

}  // namespace
}  // namespace hawser
