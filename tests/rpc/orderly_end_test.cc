// Connections that end in order leave no line in the log of either side: nothing was lost.

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "hawser/rpc/log.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

class OrderlyEndTest : public ::testing::Test {
 protected:
  OrderlyEndTest() {
    SetLogSink([this](LogSeverity, absl::string_view line) { lines_.Put(std::string(line)); });
  }
  ~OrderlyEndTest() override { SetLogSink(nullptr); }

  // Call it when both sides have ended their connections.
  void ExpectNoLine() {
    SetLogSink(nullptr);  // What was logged before has come.
    if (lines_.size() > 0) ADD_FAILURE() << lines_.Take();
  }
  static bool Ended(const TestServer& server) { return server.server.stats().connections == 0; }

  Box<std::string> lines_;
};

class ListenerServiceImpl final : public probe::ListenerService {
  absl::Status Notify(ServerContext&, probe::Listener::NotifyParams::Reader,
                      probe::Listener::NotifyResults::Builder) override {
    return absl::OkStatus();
  }
};

// It has READ the reply, and would tell the server so a millisecond later, in a turn of its poller.
TEST_F(OrderlyEndTest, AClientThatLeavesRightAfterALargeReply) {
  TestServer server;
  Driven client;
  auto channel = server.Connect({.runtime = client.runtime});
  auto call = probe::ProbeStub(channel).Echo();
  call.request().initData(1 << 20);
  ASSERT_THAT(call.Send().Wait(), IsOk());
  channel->Close();
  EXPECT_TRUE(client.Until([&] { return Ended(server); }));
  ExpectNoLine();
}

TEST_F(OrderlyEndTest, AClientThatLeavesWithAPingUnanswered) {
  ClockedRuntime servers;
  TestServer server({.runtime = servers.get()});
  Driven client;
  auto channel = server.Connect({.runtime = client.runtime});
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  ASSERT_NO_FATAL_FAILURE(servers.Pass(ConnectionOptions().keepalive_interval + absl::Seconds(2)));
  channel->Close();
  EXPECT_TRUE(client.Until([&] { return Ended(server); }));
  ExpectNoLine();
}

TEST_F(OrderlyEndTest, AClientWithServicesThatLeaves) {
  TestServer server;
  ListenerServiceImpl listener;
  auto channel = server.Connect({.services = {&listener}});
  const std::shared_ptr<Channel> back = WayBack(server, channel);
  ASSERT_THAT(probe::ListenerStub(back).Notify({.timeout = kLong}).Send().Wait(), IsOk());
  channel.reset();
  EXPECT_TRUE(Eventually([&] { return Ended(server); }));
  ExpectNoLine();
}

// A watcher that has seen enough.
TEST_F(OrderlyEndTest, AClientThatLeavesWhileTheServerPushesToIt) {
  class HoldingListener final : public probe::ListenerService {
   public:
    Box<DeferredCall> held;

   private:
    absl::Status Notify(ServerContext& context, probe::Listener::NotifyParams::Reader,
                        probe::Listener::NotifyResults::Builder) override {
      held.Put(context.Defer());
      return absl::OkStatus();
    }
  };
  TestServer server;
  HoldingListener listener;
  auto channel = server.Connect({.services = {&listener}});
  const std::shared_ptr<Channel> back = WayBack(server, channel);
  auto push = probe::ListenerStub(back).Notify({.timeout = kLong}).Send();
  std::optional<DeferredCall> held(listener.held.Take());
  channel->Close();
  EXPECT_THAT(push.Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(Eventually([&] { return Ended(server); }));
  // Its own connection may not have ended yet: to destroy it unfinished would then be a mistake that is
  // logged.
  held->Finish(absl::OkStatus());
  ExpectNoLine();
}

// The server ends the reverse connection after the forward one.
TEST_F(OrderlyEndTest, AServerThatDrainsAClientWithServices) {
  TestServer server;
  ListenerServiceImpl listener;
  Driven client;
  auto channel = server.Connect({.backoff_min = kLong, .services = {&listener}, .runtime = client.runtime});
  EXPECT_NE(WayBack(server, channel), nullptr);
  std::thread shutdown([&] { EXPECT_THAT(server.server.Shutdown(absl::Now() + kLong), IsOk()); });
  // Once nothing listens any more, the client's attempts to connect fail.
  EXPECT_TRUE(client.Until([&] { return Ended(server) && client.poller().connection_count() == 0; }));
  shutdown.join();
  channel.reset();
  ExpectNoLine();
}

TEST_F(OrderlyEndTest, AServerThatDrainsAClientWithALargeReply) {
  TestServer server;
  auto channel = server.Connect();
  auto call = probe::ProbeStub(channel).Echo();
  call.request().initData(1 << 20);
  ASSERT_THAT(call.Send().Wait(), IsOk());
  ASSERT_THAT(server.server.Shutdown(absl::Now() + kLong), IsOk());
  channel.reset();
  ExpectNoLine();
}

}  // namespace
}  // namespace hawser
