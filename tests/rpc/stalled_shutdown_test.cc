// Clients with a large call that do not go on while their server shuts down, and slow ones that do.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "hawser/rpc/log.h"
#include "hawser/rpc/status.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/connection/drain_watch.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"
#include "tests/rpc/taken.h"

namespace hawser {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kStep = absl::Milliseconds(100);
constexpr absl::Duration kStill = transport::DrainWatch::kStill;
constexpr size_t kLarge = 8 << 20;
// What a client has besides whose READs are not seen, and until the watch looks again.
const absl::Duration kLater = 9 * kStep;

// The client's poller takes nothing but when the test drives it. The server's clock is the test's.
class StalledShutdownTest : public ::testing::Test {
 protected:
  using Echo = PendingCall<probe::Probe::EchoResults>;

  ~StalledShutdownTest() override {
    if (!shutdown_.joinable()) return;  // Else the test has failed.
    Pass(absl::Minutes(1));
    shutdown_.join();
  }

  Echo SendEcho(const std::shared_ptr<Channel>& channel, size_t size_bytes) {
    auto call = probe::ProbeStub(channel).Echo({.timeout = 10 * kLong});
    const std::vector<uint8_t> bytes(size_bytes, 7);
    call.request().setData({bytes.data(), bytes.size()});
    return call.Send();
  }
  transport::SpyFabric::Counts& counts() { return client_.fabric->counts(0); }
  // All that the client READs at once has come, and is held back; more than `reads` were posted by then.
  bool HoldsAllReads(uint64_t reads) {
    return counts().reads > reads && counts().reads_held > 0 && counts().reads_outstanding == 0;
  }
  // Returns once the connection drains.
  void BeginShutdown() {
    shutdown_ = std::thread([this] {
      EXPECT_THAT(server_.server.Shutdown(absl::InfiniteFuture()), IsOk());
      done_ = true;
    });
    ASSERT_TRUE(Eventually([&] {
      Taken taken(server_.server);
      const auto connections = taken.Get().getConnections();
      return connections.size() == 1 && connections[0].getState() == "draining";
    }));
  }
  void Pass(absl::Duration time) {
    for (absl::Duration passed; passed < time; passed += kStep) {
      ASSERT_NO_FATAL_FAILURE(servers_.Pass(kStep));
    }
  }
  void ExpectDone() {
    // What is in the kernel may come late on a busy machine, and begins the time anew.
    EXPECT_TRUE(Eventually([&] {
      if (!done_) Pass(kStep);
      return done_.load();
    }));
    shutdown_.join();
  }
  bool done() const { return done_; }

  explicit StalledShutdownTest(const BufferPoolOptions& pool = {}) : servers_(NewTestFabric(), pool) {}

  ClockedRuntime servers_;
  TestServer server_{{.runtime = servers_.get()}};
  Driven client_;
  std::shared_ptr<Channel> channel_ = server_.Connect({.backoff_min = absl::Milliseconds(1),
                                                       .backoff_max = absl::Milliseconds(1),
                                                       .runtime = client_.runtime});

 private:
  std::thread shutdown_;
  std::atomic<bool> done_{false};
};

TEST_F(StalledShutdownTest, AnAnswerThatAClientDoesNotTakeIsNotWaitedForAndTheLogSaysSo) {
  Box<std::string> lines;
  SetLogSink([&](LogSeverity, absl::string_view line) {
    if (absl::StrContains(line, "was lost with")) lines.Put(std::string(line));
  });
  const auto no_sink = absl::MakeCleanup([] { SetLogSink(nullptr); });
  counts().hold_reads = true;
  Echo call = SendEcho(channel_, kLarge);
  ASSERT_TRUE(client_.Until([&] { return HoldsAllReads(0); }));
  ASSERT_NO_FATAL_FAILURE(BeginShutdown());
  Pass(kStill - 2 * kStep);
  EXPECT_FALSE(done());
  Pass(kLater + 2 * kStep);
  ExpectDone();
  EXPECT_EQ(server_.server.stats().stalled_in_shutdown, 1u);
  EXPECT_THAT(lines.Take(), HasSubstr("has not READ and released 1 large responses of 8388"));
  const absl::Status status = call.Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(WasSent(status));
  if (TestScheme() == "tcp") {
    EXPECT_THAT(std::string(status.message()), HasSubstr("while this side drains"));
  }
}

TEST_F(StalledShutdownTest, ASlowClientGetsAllOfItsAnswerAndTheShutdownIsOk) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "READs are not seen";
  counts().hold_reads = true;
  Echo call = SendEcho(channel_, 4 * kLarge);
  ASSERT_TRUE(client_.Until([&] { return HoldsAllReads(0); }));
  ASSERT_NO_FATAL_FAILURE(BeginShutdown());
  for (int i = 0; i < 6; ++i) {
    Pass(kStill - 2 * kStep);
    EXPECT_FALSE(done()) << i;
    const uint64_t reads = counts().reads;
    counts().reads_let_through = counts().reads_held;  // The more were held, the more are posted next.
    ASSERT_TRUE(client_.Until([&] { return HoldsAllReads(reads); })) << i;
  }
  counts().hold_reads = false;
  const auto reply = call.Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->getData().size(), 4 * kLarge);
  ASSERT_TRUE(client_.Until([&] { return done(); }));
  ExpectDone();
  EXPECT_EQ(server_.server.stats().stalled_in_shutdown, 0u);
}

TEST_F(StalledShutdownTest, ALargeRequestThatCrossesItIsRefusedUnreadAndWasNotSent) {
  std::atomic<int> echoes{0};
  server_.probe.on_echo = [&](probe::Probe::EchoParams::Reader) { ++echoes; };
  server_.probe.on_act = server_.held.Handler();
  auto running = SendAct(channel_, 1, {.timeout = 10 * kLong});
  DeferredCall held = server_.held.Take();
  ASSERT_NO_FATAL_FAILURE(BeginShutdown());
  Echo crosses = SendEcho(channel_, kLarge);  // The client has not heard of the shutdown.
  const absl::Status status = crosses.Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(WasSent(status)) << status;
  EXPECT_EQ(echoes, 0);
  held.Finish();
  EXPECT_THAT(running.Wait(), IsOk());
  ASSERT_TRUE(client_.Until([&] { return done(); }));
  ExpectDone();
}

// What the client announced before, and does not let the server READ.
TEST_F(StalledShutdownTest, ARequestThatAClientDoesNotLetItReadIsNotWaitedFor) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "a NIC answers READs";
  Echo call = SendEcho(channel_, kLarge);  // Its READs are not answered: nothing drives the client.
  ASSERT_TRUE(Eventually([&] { return server_.server.stats().leased_bytes >= kLarge; }));
  ASSERT_NO_FATAL_FAILURE(BeginShutdown());
  Pass(kStill - 2 * kStep);
  EXPECT_FALSE(done());
  Pass(kLater + 2 * kStep);
  ExpectDone();
  EXPECT_EQ(server_.server.stats().stalled_in_shutdown, 1u);
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kUnavailable));
}

// ---- A server without memory.

class StalledShutdownAtTheLimitTest : public StalledShutdownTest {
 protected:
  StalledShutdownAtTheLimitTest() : StalledShutdownTest({.limit_bytes = 16 << 20}) {}

  // All but what some small messages take.
  void TakeMemory() {
    for (auto buffer = server_.server.AllocateBuffer(256 << 10); buffer.ok();
         buffer = server_.server.AllocateBuffer(256 << 10)) {
      hoard_.push_back(*std::move(buffer));
    }
    hoard_.pop_back();  // A large request keeps the receive that it came in.
  }
  // Two that find no memory. They are on the wire when this returns.
  void SendTwo() {
    for (int i = 0; i < 2; ++i) calls_.push_back(SendEcho(channel_, kLarge));
    ASSERT_TRUE(client_.Until([&] { return counts().grants == 2; }));
    client_.poller().PollOnce();
  }

  std::vector<Echo> calls_;

 private:
  std::vector<Buffer> hoard_;
};

// Errors go out one at a time, out of the reserve: the second waits until the client acknowledges the first.
TEST_F(StalledShutdownAtTheLimitTest, RefusalsThatAClientDoesNotTakeAreNotWaitedFor) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "a NIC acknowledges them";
  TakeMemory();
  ASSERT_NO_FATAL_FAILURE(SendTwo());
  const uint64_t before = server_.server.stats().calls_total;
  ASSERT_NO_FATAL_FAILURE(BeginShutdown());
  ASSERT_TRUE(Eventually([&] { return server_.server.stats().calls_total == before + 2; })) << "refused";
  Pass(kStill - 2 * kStep);
  EXPECT_FALSE(done());
  Pass(kLater + 2 * kStep);
  ExpectDone();
  EXPECT_EQ(server_.server.stats().stalled_in_shutdown, 1u);
  for (Echo& call : calls_) EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kUnavailable));
}

// One that takes them gets all of them.
TEST_F(StalledShutdownAtTheLimitTest, RefusalsThatAClientTakesReachIt) {
  TakeMemory();
  ASSERT_NO_FATAL_FAILURE(SendTwo());
  ASSERT_NO_FATAL_FAILURE(BeginShutdown());
  for (Echo& call : calls_) {
    const absl::Status status = call.Wait().status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
    EXPECT_FALSE(WasSent(status)) << status;
  }
  ASSERT_TRUE(client_.Until([&] { return done(); }));
  ExpectDone();
  EXPECT_EQ(server_.server.stats().stalled_in_shutdown, 0u);
}

}  // namespace
}  // namespace hawser
