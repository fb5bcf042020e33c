// A device that is taken away, and comes back. Setup rxe_pair of tests/softroce.

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/network/two_devices.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

TEST(DeviceRemovalTest, TheClientsDeviceIsClosedAndUsedAgainWhenItIsBack) {
  FarServer far;
  far.server->probe.on_act = [&](ServerContext& context, uint64_t number) {
    return number == 1 ? far.server->held.Handler()(context, number) : absl::OkStatus();
  };
  const auto runtime = far.NewRuntime();
  auto channel =
      *Channel::Connect(far.server->uri, far.From(runtime, {.backoff_max = absl::Milliseconds(100)}));
  auto call = SendAct(channel, 1, {.timeout = kLong});
  DeferredCall held = far.server->held.Take();
  RemoveDevice(far.near_device);
  const absl::Status lost = call.Wait().status();
  EXPECT_THAT(lost, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(lost.message()),
              HasSubstr(absl::StrCat("RDMA device ", far.near_device, " has failed or was removed")));
  EXPECT_TRUE(Eventually([&] { return channel->state() == ChannelState::kTransientFailure; }));
  // A first attempt may fail while the lost connection still has the device.
  absl::Status meanwhile;
  EXPECT_TRUE(Eventually([&] {
    meanwhile = SendAct(channel, 2).Wait().status();
    return absl::StrContains(meanwhile.message(), "is not back");
  })) << meanwhile;
  EXPECT_THAT(meanwhile, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(WasSent(meanwhile));
  EXPECT_THAT(channel->AllocateBuffer(8 << 20), IsOk()) << "memory is to be had nevertheless";
  AddDevice(far.near_device, "veth0");
  EXPECT_THAT(SendAct(channel, 3, {.timeout = kLong, .wait_for_ready = true}).Wait().status(), IsOk());
  auto big = probe::ProbeStub(channel).Echo({.timeout = kLong});
  big.request().initData(1 << 20);
  EXPECT_THAT(big.Send().Wait().status(), IsOk());
}

TEST(DeviceRemovalTest, AServerListensAgainAndOverTcpAllTheTime) {
  FarServer far;
  const std::string tcp = far.server->server.Listen("tcp://127.0.0.1:0").value();
  const auto over_tcp = *Channel::Connect(tcp);
  const auto runtime = far.NewRuntime();
  const std::string device = Environment("HAWSER_RDMA_PEER_DEVICE");
  auto channel = *Channel::Connect(
      far.server->uri, far.From(runtime, {.connect_timeout = absl::Seconds(2),
                                          .backoff_max = absl::Milliseconds(100),
                                          .connection = {.keepalive_interval = absl::Seconds(2),
                                                         .keepalive_timeout = absl::Seconds(2)}}));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(SendAct(channel, 1, {.timeout = kLong, .wait_for_ready = true}).Wait().status(), IsOk());
    RemoveDevice(device);
    EXPECT_TRUE(Eventually([&] { return channel->state() == ChannelState::kTransientFailure; }));
    EXPECT_THAT(SendAct(over_tcp, 2).Wait().status(), IsOk());
    EXPECT_EQ(far.server->server.stats().connections, 1u) << "those over RDMA are gone, that over TCP is not";
    AddDevice(device, "veth1");
    EXPECT_THAT(SendAct(channel, 3, {.timeout = kLong, .wait_for_ready = true}).Wait().status(), IsOk());
    EXPECT_THAT(SendAct(over_tcp, 4).Wait().status(), IsOk());
  }
}

TEST(DeviceRemovalTest, ANewChannelUsesTheDeviceThatIsBack) {
  FarServer far;
  const auto runtime = far.NewRuntime();
  ASSERT_THAT(Channel::Connect(far.server->uri, far.From(runtime)), IsOk());
  RemoveDevice(far.near_device);
  EXPECT_THAT(Channel::Connect(far.server->uri, far.From(runtime)).status(),
              HasCode(absl::StatusCode::kUnavailable));
  AddDevice(far.near_device, "veth0");
  const auto channel = Channel::Connect(far.server->uri, far.From(runtime));
  ASSERT_THAT(channel.status(), IsOk());
  EXPECT_THAT(SendAct(*channel, 1).Wait().status(), IsOk());
}

}  // namespace
}  // namespace hawser
