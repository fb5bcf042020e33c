// What fails on a NIC at a chosen moment, while a server and its client work on it. In a guest: the device is
// rxe or siw, below a NicLibrary.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/softroce/nic/nic_library.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

// More than a message of one piece: it is READ, and granted.
constexpr uint32_t kLargeBytes = 100'000;

class NicFaultsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const fabric::NicBehavior* const behavior = fabric::FindNicBehavior(GetParam());
    ASSERT_NE(behavior, nullptr);
    const char* const device = std::getenv("HAWSER_RDMA_DEVICE");
    if (device == nullptr || !absl::StartsWith(device, behavior->iwarp ? "siw" : "rxe")) {
      GTEST_SKIP() << "of another device";
    }
    nic_ = std::make_unique<fabric::NicLibrary>(*fabric::VerbsLibrary::Load().value(),
                                                fabric::NicOptions{.behavior = *behavior});
  }

  // Every object was destroyed, and nothing is pinned any more.
  void TearDown() override {
    if (nic_ == nullptr) return;
    EXPECT_TRUE(Eventually([&] { return nic_->objects() == 0; })) << nic_->objects();
    EXPECT_EQ(nic_->pinned_bytes(), 0u);
  }

  std::shared_ptr<transport::Runtime> NewRuntime() {
    return transport::Runtime::CreateOn(fabric::NewVerbsFabric({.library = &nic_->library()}).value(),
                                        {.pollers = 1}, /*start_threads=*/true)
        .value();
  }

  static absl::Status Echo(const std::shared_ptr<Channel>& channel, uint32_t bytes) {
    auto call = probe::ProbeStub(channel).Echo();
    auto data = call.request().initData(bytes);
    for (uint32_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i * 7);
    auto reply = call.Send().Wait();
    if (!reply.ok()) return reply.status();
    const auto echoed = (*reply)->getData();
    if (echoed.size() != bytes) return absl::DataLossError("another length");
    for (uint32_t i = 0; i < bytes; ++i) {
      if (echoed[i] != static_cast<uint8_t>(i * 7)) return absl::DataLossError("other bytes");
    }
    return absl::OkStatus();
  }

  std::unique_ptr<fabric::NicLibrary> nic_;
};

// With memory windows, with registrations, and of iWARP.
INSTANTIATE_TEST_SUITE_P(Nics, NicFaultsTest, ::testing::Values("mlx5", "hns", "erdma"),
                         [](const auto& nic) { return nic.param; });

TEST_P(NicFaultsTest, ASendThatFailsEndsItsConnectionAndTheNextCallHasAnother) {
  const std::shared_ptr<transport::Runtime> runtime = NewRuntime();
  TestServer server({.runtime = runtime});
  const auto channel = server.Connect({.runtime = runtime});
  ASSERT_NE(channel, nullptr);
  size_t failures = 0;
  for (uint64_t nth = 1; nth <= 8; ++nth) {
    nic_->FailSend(nth);
    for (uint32_t bytes : {100u, kLargeBytes}) {
      const absl::Status status = Echo(channel, bytes);
      if (status.ok()) continue;
      ++failures;
      EXPECT_NE(status.code(), absl::StatusCode::kDataLoss) << status;
    }
    nic_->FailSend(0);
    EXPECT_TRUE(Eventually([&] { return Echo(channel, kLargeBytes).ok(); })) << "after the post " << nth;
  }
  EXPECT_GT(failures, 0u);
}

TEST_P(NicFaultsTest, WhenNoMoreMemoryCanBePinnedNewConnectionsSayWhyAndOldOnesWork) {
  const std::shared_ptr<transport::Runtime> runtime = NewRuntime();
  TestServer server({.runtime = runtime});
  const auto first = server.Connect({.runtime = runtime});
  ASSERT_NE(first, nullptr);
  ASSERT_THAT(Echo(first, kLargeBytes), IsOk());
  nic_->SetMemlock(nic_->pinned_bytes() + (1 << 20));
  std::vector<std::shared_ptr<Channel>> more;
  absl::Status refused;
  while (refused.ok() && more.size() < 200) {
    absl::StatusOr<std::shared_ptr<Channel>> channel =
        Channel::Connect(server.uri, TryingOnce({.runtime = runtime}));
    refused = channel.status();
    if (channel.ok()) more.push_back(*channel);
  }
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("memlock"));
  EXPECT_THAT(Echo(first, 100), IsOk());
  more.clear();
  EXPECT_TRUE(Eventually([&] { return Channel::Connect(server.uri, {.runtime = runtime}).ok(); }));
}

}  // namespace
}  // namespace hawser
