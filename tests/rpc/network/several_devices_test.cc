// A machine with more than one RDMA device. Setup rxe_pair of tests/softroce.

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/network/two_devices.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Device {
  const std::string name;
  const std::string address;
};

const Device& Near() {
  static const Device device{Environment("HAWSER_RDMA_DEVICE"), Environment("HAWSER_RDMA_ADDRESS")};
  return device;
}

const Device& Far() {
  static const Device device{Environment("HAWSER_RDMA_PEER_DEVICE"), Environment("HAWSER_RDMA_PEER_ADDRESS")};
  return device;
}

std::shared_ptr<transport::Runtime> Of(const Device& device) {
  return transport::Runtime::Create("rdma", {.rdma_device = device.name}).value();
}

absl::Status Call(const std::string& uri, const Device& from) {
  ChannelOptions options;
  options.runtime = Of(from);
  options.connection.local_address = from.address;
  const auto channel = Channel::Connect(uri, std::move(options));
  return channel.ok() ? SendAct(*channel, 1).Wait().status() : channel.status();
}

TEST(SeveralDevicesTest, OneProcessUsesEachByARuntimeOfItsOwn) {
  for (const Device& server_device : {Near(), Far()}) {
    ServerOptions options;
    options.runtime = Of(server_device);
    const TestServer server(std::move(options), absl::StrCat("rdma://", server_device.address, ":0"));
    for (const Device& client_device : {Near(), Far()}) {
      EXPECT_THAT(Call(server.uri, client_device), IsOk())
          << client_device.name << " to " << server_device.name;
    }
  }
}

TEST(SeveralDevicesTest, WhoComesOverOneThatTheServerDoesNotUseIsToldSo) {
  ServerOptions options;
  options.runtime = Of(Near());
  const TestServer server(std::move(options), "rdma://0.0.0.0:0");
  const std::string port = server.uri.substr(server.uri.rfind(':'));
  EXPECT_THAT(Call(absl::StrCat("rdma://", Near().address, port), Far()), IsOk());
  const absl::Status refused = Call(absl::StrCat("rdma://", Far().address, port), Far());
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("it came over RDMA device ", Far().name, ", the server uses ",
                                     Near().name, " (RuntimeOptions::rdma_device)")));
}

// Neither a runtime nor the environment chooses a device.
class NobodyChooses {
 public:
  NobodyChooses() { unsetenv("HAWSER_RDMA_DEVICE"); }
  ~NobodyChooses() { setenv("HAWSER_RDMA_DEVICE", near_.c_str(), 1); }

 private:
  const std::string near_ = Near().name;
};

TEST(SeveralDevicesTest, AServerListensOnTheAddressesOfEachAndAClientTakesTheOneOfTheRoute) {
  const NobodyChooses nobody;
  for (const char* scheme : {"rdma", "auto"}) {
    TestServer server({}, absl::StrCat(scheme, "://", Near().address, ":0"));
    const absl::StatusOr<std::string> far =
        server.server.Listen(absl::StrCat(scheme, "://", Far().address, ":0"));
    ASSERT_THAT(far.status(), IsOk());
    for (const std::string& uri : {server.uri, *far}) {
      const auto channel = Channel::Connect(uri);
      ASSERT_THAT(channel.status(), IsOk());
      EXPECT_THAT((*channel)->peer_address(), StartsWith("rdma://")) << (*channel)->why_not_rdma();
      EXPECT_THAT(SendAct(*channel, 1).Wait().status(), IsOk());
      for (const Device& from : {Near(), Far()}) {
        ChannelOptions options;
        options.connection.local_address = from.address;
        const auto chosen = Channel::Connect(uri, options);
        ASSERT_THAT(chosen.status(), IsOk()) << from.name << " to " << uri;
        EXPECT_THAT((*chosen)->peer_address(), StartsWith("rdma://")) << (*chosen)->why_not_rdma();
        EXPECT_THAT(SendAct(*chosen, 1).Wait().status(), IsOk());
      }
    }
  }
}

TEST(SeveralDevicesTest, AServerWithARuntimeCountsItsMemoryOnceHoweverManyAddressesItListensOn) {
  const NobodyChooses nobody;
  ServerOptions options;
  options.runtime = Of(Near());
  const auto runtime = options.runtime;
  TestServer server(std::move(options), absl::StrCat("rdma://", Near().address, ":0"));
  ASSERT_THAT(server.server.Listen("rdma://0.0.0.0:0").status(), IsOk());
  EXPECT_THAT(Call(server.uri, Near()), IsOk());
  const auto lease = runtime->buffers().Acquire(1 << 20);
  ASSERT_THAT(lease, IsOk());
  const uint64_t leased_bytes = runtime->buffers().stats().leased_bytes;
  EXPECT_LT(server.server.stats().leased_bytes, leased_bytes + (1 << 20));
}

TEST(SeveralDevicesTest, AnAddressOfOneThatTheRuntimeDoesNotUseIsRefusedWhereItIsGiven) {
  ServerOptions options;
  options.runtime = Of(Near());
  Server server(std::move(options));
  const absl::Status listening = server.Listen(absl::StrCat("rdma://", Far().address, ":0")).status();
  EXPECT_THAT(listening, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(listening.message()), HasSubstr(Far().name));

  EXPECT_THAT(transport::Runtime::Create("rdma", {.rdma_device = "rxe9"}).status(),
              HasCode(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace hawser
