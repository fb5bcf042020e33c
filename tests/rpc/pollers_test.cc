// Connections spread over the pollers of both processes.

#include <memory>
#include <vector>

#include "hawser/rpc/internal/background.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::Each;

constexpr size_t kPollers = 3;
constexpr size_t kRounds = 4;

std::shared_ptr<transport::Runtime> NewRuntime() {
  transport::RuntimeOptions options;
  options.pollers = kPollers;
  return *transport::Runtime::Create(TestScheme(), options);
}

std::vector<size_t> ConnectionsByPoller(transport::Runtime& runtime) {
  std::vector<size_t> counts(runtime.poller_count());
  for (size_t i = 0; i < counts.size(); ++i) {
    internal::RunAndWait(runtime.poller(i), [&] { counts[i] = runtime.poller(i).connection_count(); });
  }
  return counts;
}

TEST(PollersTest, TheConnectionsOfManyChannelsSpreadEvenlyOverThePollersOfBothSides) {
  const std::shared_ptr<transport::Runtime> client = NewRuntime(), server = NewRuntime();
  TestServer serving({.runtime = server});
  std::vector<std::shared_ptr<Channel>> channels;
  for (size_t i = 0; i < kRounds * kPollers; ++i) {
    channels.push_back(serving.Connect({.runtime = client}));
    EXPECT_THAT(SendAct(channels.back(), i).Wait().status(), HasCode(absl::StatusCode::kOk));
  }
  EXPECT_THAT(ConnectionsByPoller(*client), Each(kRounds));
  EXPECT_THAT(ConnectionsByPoller(*server), Each(kRounds));
}

// As many as a runtime has that is asked for one poller a core (tests/transport/poller_test.cc).
TEST(PollersTest, AServerUsesEachCoreUnlessToldOtherwise) {
  const auto everywhere = *transport::Runtime::Create(TestScheme(), {.pollers = 0});
  EXPECT_EQ(TestServer().server.stats().pollers.size(), everywhere->poller_count());
  EXPECT_EQ(TestServer({.pollers = 5}).server.stats().pollers.size(), 5u);
}

}  // namespace
}  // namespace hawser
