// A server says whether it serves, to those that ask and those that watch.

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "hawser/health.rpc.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/cable.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using Status = health::ServingStatus;

// So a check is sent again when its connection is lost.
static_assert(health::HealthStub::kCheck.idempotent && health::HealthStub::kWatch.idempotent &&
              health::HealthWatcherStub::kChanged.idempotent);

constexpr char kProbe[] = "probe.capnp:Probe";

class Watcher final : public health::HealthWatcherService {
 public:
  absl::Status Changed(ServerContext& context, health::HealthWatcher::ChangedParams::Reader request,
                       health::HealthWatcher::ChangedResults::Builder) override {
    if (hold) {
      held.Put(context.Defer());
    }
    if (fails) return absl::InternalError("not now");
    changes.Put({request.getService().cStr(), request.getStatus()});
    return absl::OkStatus();
  }

  std::atomic<bool> hold{false};
  std::atomic<bool> fails{false};
  Box<DeferredCall> held;
  Box<std::pair<std::string, Status>> changes;
};

absl::StatusOr<Status> Check(const std::shared_ptr<Channel>& channel, const std::string& service) {
  auto call = health::HealthStub(channel).Check();
  call.request().setService(service);
  auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  return (*reply)->getStatus();
}

absl::Status Watch(const std::shared_ptr<Channel>& channel, const std::string& service) {
  auto call = health::HealthStub(channel).Watch();
  call.request().setService(service);
  return call.Send().Wait().status();
}

class HealthTest : public ::testing::Test {
 protected:
  std::shared_ptr<Channel> ConnectWatcher(TestServer& server) {
    ChannelOptions options;
    options.services = {&watcher};
    auto channel = server.Connect(std::move(options));
    // The reverse connection comes after the first.
    EXPECT_TRUE(Eventually([&] { return Watch(channel, "first").ok(); }));
    EXPECT_EQ(watcher.changes.Take(), std::make_pair(std::string("first"), Status::SERVICE_UNKNOWN));
    return channel;
  }

  Watcher watcher;  // Outlives the channels.
};

TEST_F(HealthTest, AServerAndItsServicesServeFromTheStart) {
  TestServer server;
  const auto channel = server.Connect();
  EXPECT_EQ(*Check(channel, ""), Status::SERVING);
  EXPECT_EQ(*Check(channel, kProbe), Status::SERVING);
  const auto unknown = Check(channel, "kv.capnp:KeyValue");
  EXPECT_THAT(unknown.status(), HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("kv.capnp:KeyValue"));
}

TEST_F(HealthTest, TheApplicationSaysWhatServes) {
  TestServer server;
  const auto channel = server.Connect();
  server.server.SetHealth(kProbe, false);
  EXPECT_EQ(*Check(channel, kProbe), Status::NOT_SERVING);
  EXPECT_EQ(*Check(channel, ""), Status::SERVING);
  server.server.SetHealth(kProbe, true);
  server.server.SetHealth("shard 7", false);
  EXPECT_EQ(*Check(channel, kProbe), Status::SERVING);
  EXPECT_EQ(*Check(channel, "shard 7"), Status::NOT_SERVING);
}

TEST_F(HealthTest, WhatIsSetBeforeTheFirstListenStays) {
  ProbeServiceImpl probe;
  Server server;
  ASSERT_THAT(server.AddService(&probe), IsOk());
  server.SetHealth(kProbe, false);
  const auto channel = Channel::Connect(*server.Listen(TestUri()));
  EXPECT_EQ(*Check(*channel, kProbe), Status::NOT_SERVING);
}

TEST_F(HealthTest, AWatchTellsThePresentStatusAndEachChange) {
  TestServer server;
  const auto channel = ConnectWatcher(server);
  ASSERT_THAT(Watch(channel, kProbe), IsOk());
  EXPECT_EQ(watcher.changes.Take(), std::make_pair(std::string(kProbe), Status::SERVING));
  server.server.SetHealth(kProbe, false);
  EXPECT_EQ(watcher.changes.Take().second, Status::NOT_SERVING);
  server.server.SetHealth(kProbe, false);
  server.server.SetHealth("other", false);
  server.server.SetHealth(kProbe, true);
  EXPECT_EQ(watcher.changes.Take(), std::make_pair(std::string(kProbe), Status::SERVING));
}

TEST_F(HealthTest, AServiceThatIsNotKnownYetCanBeWatched) {
  TestServer server;
  const auto channel = ConnectWatcher(server);
  server.server.SetHealth("first", true);
  EXPECT_EQ(watcher.changes.Take(), std::make_pair(std::string("first"), Status::SERVING));
}

TEST_F(HealthTest, ASecondWatchOfAServiceTellsItOnceMoreAndCountsOnce) {
  TestServer server;
  const auto channel = ConnectWatcher(server);
  for (int i = 0; i < 100; ++i) {
    ASSERT_THAT(Watch(channel, ""), IsOk());
    EXPECT_EQ(watcher.changes.Take(), std::make_pair(std::string(), Status::SERVING));
  }
}

TEST_F(HealthTest, ASlowWatcherGetsTheLatestAndNoQueue) {
  TestServer server;
  const auto channel = ConnectWatcher(server);
  watcher.hold = true;
  ASSERT_THAT(Watch(channel, kProbe), IsOk());
  DeferredCall first = watcher.held.Take();
  EXPECT_EQ(watcher.changes.Take().second, Status::SERVING);
  for (int i = 0; i < 1001; ++i) server.server.SetHealth(kProbe, i % 2 == 1);
  EXPECT_EQ(watcher.changes.size(), 0u);
  watcher.hold = false;
  first.Finish(absl::OkStatus());
  EXPECT_EQ(watcher.changes.Take().second, Status::NOT_SERVING);
  server.server.SetHealth(kProbe, true);
  EXPECT_EQ(watcher.changes.Take().second, Status::SERVING) << "nothing came in between";
}

TEST_F(HealthTest, ShutdownTellsTheWatchersBeforeItWaitsForCalls) {
  TestServer server;
  const auto channel = ConnectWatcher(server);
  ASSERT_THAT(Watch(channel, ""), IsOk());
  ASSERT_THAT(Watch(channel, kProbe), IsOk());
  watcher.changes.Take();
  watcher.changes.Take();
  server.probe.on_act = server.held.Handler();
  auto call = SendAct(channel, 1);
  DeferredCall held = server.held.Take();
  std::thread shutdown([&] { EXPECT_THAT(server.server.Shutdown(absl::Now() + kLong), IsOk()); });
  std::map<std::string, Status> last;
  for (int i = 0; i < 2; ++i) last.insert(watcher.changes.Take());
  EXPECT_EQ(last[""], Status::NOT_SERVING);
  EXPECT_EQ(last[kProbe], Status::NOT_SERVING);
  held.Finish(absl::OkStatus());
  EXPECT_THAT(call.Wait(), IsOk()) << "a call that was running is answered";
  shutdown.join();
}

TEST_F(HealthTest, AWatcherThatDoesNotAnswerHoldsTheEndForHalfASecondAtMost) {
  TestServer server;
  const auto channel = ConnectWatcher(server);
  ASSERT_THAT(Watch(channel, ""), IsOk());
  watcher.changes.Take();
  watcher.hold = true;
  const absl::Time start = absl::Now();
  server.server.Shutdown(absl::Now() + absl::Seconds(2)).IgnoreError();
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(400));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  watcher.held.Close();
}

TEST_F(HealthTest, AClientThatOffersNoServicesCannotWatch) {
  TestServer server;
  const absl::Status refused = Watch(server.Connect(), "");
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("ChannelOptions::services"));
}

TEST_F(HealthTest, WatchesOfAConnectionAreBounded) {
  TestServer server;
  const auto channel = ConnectWatcher(server);
  for (int i = 0; i < 63; ++i) ASSERT_THAT(Watch(channel, absl::StrCat("service ", i)), IsOk()) << i;
  EXPECT_THAT(Watch(channel, "one more"), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Watch(channel, "service 7"), IsOk()) << "it is watched already";
  EXPECT_THAT(Watch(channel, std::string(2000, 'a')), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_F(HealthTest, AWatcherThatCouldNotBeToldIsToldAgain) {
  TestServer server;
  const auto channel = ConnectWatcher(server);
  ASSERT_THAT(Watch(channel, kProbe), IsOk());
  EXPECT_EQ(watcher.changes.Take().second, Status::SERVING);
  watcher.fails = true;
  server.server.SetHealth(kProbe, false);
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());  // The connection lives.
  EXPECT_EQ(watcher.changes.size(), 0u);
  watcher.fails = false;
  EXPECT_EQ(watcher.changes.Take(), std::make_pair(std::string(kProbe), Status::NOT_SERVING));
}

TEST_F(HealthTest, OneHostHasAQuarterOfTheWatches) {
  TestServer server;
  std::vector<std::shared_ptr<Channel>> channels;
  size_t watches = 0;
  absl::Status refused;
  for (int c = 0; c < 17 && refused.ok(); ++c) {
    channels.push_back(ConnectWatcher(server));
    ++watches;
    for (int i = 1; i < 64 && refused.ok(); ++i) {
      refused = Watch(channels.back(), absl::StrCat("service ", i));
      if (refused.ok()) watcher.changes.Take();
      watches += refused.ok();
    }
    if (watches == 1024) {
      ChannelOptions options;
      options.services = {&watcher};
      channels.push_back(server.Connect(std::move(options)));
      EXPECT_TRUE(Eventually([&] {
        refused = Watch(channels.back(), "one more");
        return !absl::IsFailedPrecondition(refused);
      }));
    }
  }
  EXPECT_EQ(watches, 1024u);
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("1024 of this host"));
}

TEST_F(HealthTest, AWatcherThatIsGoneIsForgotten) {
  TestServer server;
  for (int i = 0; i < 10; ++i) {
    const auto channel = ConnectWatcher(server);
    ASSERT_THAT(Watch(channel, kProbe), IsOk());
    watcher.changes.Take();
    channel->Close();
  }
  server.server.SetHealth(kProbe, false);
  const auto channel = ConnectWatcher(server);
  ASSERT_THAT(Watch(channel, kProbe), IsOk());
  EXPECT_EQ(watcher.changes.Take().second, Status::NOT_SERVING);
}

TEST_F(HealthTest, WatchersThatAreGoneTakeNoPlaceOfTheirHost) {
  TestServer server;
  for (int c = 0; c < 16; ++c) {
    const auto channel = ConnectWatcher(server);
    for (int i = 1; i < 64; ++i) {
      ASSERT_THAT(Watch(channel, absl::StrCat("service ", i)), IsOk());
      watcher.changes.Take();
    }
    channel->Close();
  }
  ASSERT_TRUE(Eventually([&] { return server.server.stats().connections == 0; }));
  ChannelOptions options;
  options.services = {&watcher};
  const auto channel = server.Connect(std::move(options));
  absl::Status watched;
  EXPECT_TRUE(Eventually([&] {
    watched = Watch(channel, kProbe);
    return !absl::IsFailedPrecondition(watched);
  }));
  EXPECT_THAT(watched, IsOk());
}

TEST_F(HealthTest, AnAnswerComesWhileTheExecutorIsStuck) {
  Box<absl::AnyInvocable<void()>> stuck;
  ServerOptions options;
  options.executor = [&](absl::AnyInvocable<void()> handler) { stuck.Put(std::move(handler)); };
  TestServer server(std::move(options));
  const auto channel = server.Connect();
  auto call = SendAct(channel, 1);
  EXPECT_EQ(*Check(channel, ""), Status::SERVING);
  stuck.Take()();
  EXPECT_THAT(call.Wait(), IsOk());
}

// "On the thread of the handler": of a server with an executor, one that may block. A call of Health.check,
// which any client may make, has it block the poller, and with it all clients of that poller.
TEST_F(HealthTest, WithAnExecutorWhatTheApplicationIsAskedBlocksNoPoller) {
  ServerOptions options;
  options.pollers = 1;
  options.executor = [](absl::AnyInvocable<void()> handler) { std::thread(std::move(handler)).detach(); };
  absl::Notification asked, may_answer;
  options.authorize = [&](const ServerContext& context) {
    if (absl::string_view(context.method().name) == "health.capnp:Health.check") {
      asked.Notify();
      may_answer.WaitForNotificationWithTimeout(kLong / 2);
    }
    return absl::OkStatus();
  };
  TestServer server(std::move(options));
  const auto channel = server.Connect(), other = server.Connect();
  auto check = health::HealthStub(channel).Check().Send();
  asked.WaitForNotification();
  EXPECT_THAT(SendAct(other, 1, {.timeout = kLong / 4}).Wait().status(), IsOk());
  may_answer.Notify();
  EXPECT_THAT(check.Wait(), IsOk());
}

TEST_F(HealthTest, TheOptionTurnsItOff) {
  ServerOptions options;
  options.health = false;
  TestServer server(std::move(options));
  EXPECT_THAT(Check(server.Connect(), "").status(), HasCode(absl::StatusCode::kUnimplemented));
}

}  // namespace
}  // namespace hawser
