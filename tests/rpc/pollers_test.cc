// Pollers of both processes: how connections spread over them, and what threads cost that wait for one.

#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/tests/testing/status_matchers.h"
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
    EXPECT_THAT(SendAct(channels.back(), i).Wait().status(), IsOk());
  }
  EXPECT_THAT(ConnectionsByPoller(*client), Each(kRounds));
  EXPECT_THAT(ConnectionsByPoller(*server), Each(kRounds));
}

// What the limit is: tests/transport/runtime_test.cc.
TEST(PollersTest, AServerStartsAPollerForEachConnectionUpToItsLimit) {
  const auto client = *transport::Runtime::Create(TestScheme());
  TestServer server;
  EXPECT_EQ(server.server.stats().pollers.size(), 1u);
  std::vector<std::shared_ptr<Channel>> channels;
  for (size_t count = 1; count <= client->poller_limit() + 2; ++count) {
    channels.push_back(server.Connect({.runtime = client}));
    EXPECT_THAT(SendAct(channels.back(), count).Wait(), IsOk());
    EXPECT_EQ(server.server.stats().pollers.size(), std::min(count, client->poller_limit()));
    EXPECT_EQ(client->poller_count(), std::min(count, client->poller_limit()));
  }
  EXPECT_EQ(TestServer({.pollers = 5}).server.stats().pollers.size(), 5u) << "these are asked for";
}

TEST(PollersTest, AConnectionThatIsRefusedStartsNoPoller) {
  TestServer server({.connections_max = 1});
  const auto first = server.Connect();
  EXPECT_THAT(SendAct(first, 1).Wait(), IsOk());
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(Channel::Connect(server.uri, TryingOnce()).status(),
                HasCode(absl::StatusCode::kResourceExhausted));
  }
  EXPECT_EQ(server.server.stats().pollers.size(), 1u);
}

TEST(PollersTest, AHandlerThatHoldsAPollerDoesNotKeepTheOthersFromDraining) {
  TestServer server({.pollers = 2});
  absl::Notification go_on;
  Box<bool> held;
  server.probe.on_act = [&](ServerContext&, uint64_t number) {
    if (number != 1) return absl::OkStatus();
    held.Put(true);
    go_on.WaitForNotification();
    return absl::OkStatus();
  };
  const auto first = server.Connect(), second = server.Connect();
  EXPECT_THAT(SendAct(first, 0).Wait(), IsOk());
  EXPECT_THAT(SendAct(second, 0).Wait(), IsOk());
  auto holding = SendAct(first, 1);
  held.Take();
  std::thread shutdown([&] { server.server.Shutdown(absl::Now()).IgnoreError(); });
  EXPECT_TRUE(Eventually([&] { return absl::IsUnavailable(SendAct(second, 2).Wait().status()); }));
  go_on.Notify();
  shutdown.join();
}

// The sum over both sides, which share this process. Each thread sleeps once a call: while it waits for its
// answer. The best of a few tries, because a thread that has lost its core to another program may find a lock
// taken, and sleep once more.
TEST(PollersTest, ThreadsThatWaitTogetherSleepOnceACall) {
  constexpr int kThreads = 32, kCalls = 500;
  TestServer server;
  const auto channel = server.Connect();
  const auto call_often = [&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int call = 0; call < kCalls; ++call) EXPECT_THAT(SendAct(channel, 0).Wait(), IsOk());
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  const auto sleeps = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw;
  };
  call_often();  // Until the poller has noticed that many wait.
  double least = 1e9;
  for (int i = 0; i < 5 && least > 1.3; ++i) {
    const long before = sleeps();
    call_often();
    least = std::min(least, static_cast<double>(sleeps() - before) / (kThreads * kCalls));
  }
  EXPECT_LE(least, 1.3);
}

}  // namespace
}  // namespace hawser
