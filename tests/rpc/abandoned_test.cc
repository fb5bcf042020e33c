// Handlers that still run after their callers have stopped waiting.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using testing::HasSubstr;

constexpr uint64_t kAnswered = 1000;  // The number of a call whose handler answers at once.

// A server whose handlers are held, but for those of kAnswered.
struct HoldingServer {
  explicit HoldingServer(ServerOptions options = {}) : server(std::move(options)) {
    server.probe.on_act = [this, hold = server.held.Handler()](ServerContext& context, uint64_t number) {
      return number == kAnswered ? absl::OkStatus() : hold(context, number);
    };
  }

  TestServer server;
};

const ChannelOptions kTwoSlots = {.connection = {.slots = 2}};

TEST(AbandonedTest, ACallWhoseDeadlineHasPassedLeavesItsSlot) {
  ClockedRuntime clients, serving;
  HoldingServer holding({.runtime = serving.get()});
  const auto channel = holding.server.Connect({.connection = {.slots = 2}, .runtime = clients.get()});
  std::vector<DeferredCall> held;
  for (int i = 0; i < 3; ++i) {
    auto call = SendAct(channel, 1, {.timeout = kLong});
    held.push_back(holding.server.held.Take());
    clients.Pass(kLong);
    EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
    serving.Pass(kLong + absl::Milliseconds(1));  // On its way the time was rounded up.
  }
  EXPECT_THAT(SendAct(channel, kAnswered).Wait().status(), IsOk());
  EXPECT_TRUE(Eventually([&] { return holding.server.server.stats().calls_running == 3; }));
}

TEST(AbandonedTest, ACallThatIsCancelledLeavesItsSlot) {
  HoldingServer holding;
  const auto channel = holding.server.Connect(kTwoSlots);
  for (int i = 0; i < 4; ++i) {
    auto call = SendAct(channel, 1);
    DeferredCall deferred = holding.server.held.Take();
    call.Cancel();
    EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kCancelled));
    EXPECT_THAT(SendAct(channel, kAnswered).Wait().status(), IsOk());
    EXPECT_TRUE(Eventually([&] { return deferred.context().cancelled(); }));
  }
}

TEST(AbandonedTest, AClosedConnectionCountsUntilItsHandlersEnd) {
  ServerOptions options;
  options.connections_per_host_max = 2;
  HoldingServer holding(options);
  std::vector<DeferredCall> handlers;
  for (int i = 0; i < 2; ++i) {
    const auto channel = holding.server.Connect(kTwoSlots);
    auto call = SendAct(channel, 1);
    handlers.push_back(holding.server.held.Take());
    channel->Close();
    ASSERT_TRUE(Eventually([&] { return holding.server.server.stats().connections == 0; }));
  }
  EXPECT_THAT(Channel::Connect(holding.server.uri, TryingOnce(kTwoSlots)).status(),
              HasCode(absl::StatusCode::kResourceExhausted));
  handlers.clear();
  EXPECT_TRUE(Eventually([&] { return Channel::Connect(holding.server.uri, kTwoSlots).ok(); }));
}

TEST(AbandonedTest, WhatTheHandlerAnswersLaterReachesNoOtherCall) {
  HoldingServer holding;
  const auto channel = holding.server.Connect({.connection = {.slots = 1}});
  auto given_up = SendAct(channel, 1);
  DeferredCall late = holding.server.held.Take();
  given_up.Cancel();
  EXPECT_THAT(given_up.Wait().status(), HasCode(absl::StatusCode::kCancelled));
  auto next = SendAct(channel, 2);
  DeferredCall deferred = holding.server.held.Take();
  late.Finish(absl::AbortedError("too late"));
  ASSERT_TRUE(Eventually([&] { return holding.server.server.stats().calls_running == 1; }));
  deferred.Finish();
  const auto reply = next.Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->getNumber(), 2u);
}

TEST(AbandonedTest, TheHandlerMayReadItsLargeRequestUntilItAnswers) {
  Box<std::pair<DeferredCall, probe::Probe::EchoParams::Reader>> calls;
  struct Reading final : ProbeServiceImpl {
    absl::Status Echo(ServerContext& context, probe::Probe::EchoParams::Reader request,
                      probe::Probe::EchoResults::Builder) override {
      calls->Put({context.Defer(), request});
      return absl::OkStatus();
    }
    Box<std::pair<DeferredCall, probe::Probe::EchoParams::Reader>>* calls;
  } reading;
  reading.calls = &calls;
  Server server;
  ASSERT_THAT(server.AddService(&reading), IsOk());
  const auto channel = *Channel::Connect(*server.Listen(TestUri()));
  constexpr size_t kBytes = 1 << 20;
  auto call = probe::ProbeStub(channel).Echo();
  std::fill_n(call.request().initData(kBytes).begin(), kBytes, 0x5a);
  auto pending = call.Send();
  auto [deferred, request] = calls.Take();
  pending.Cancel();
  EXPECT_THAT(pending.Wait(), ::testing::Not(IsOk()));
  // Later requests in its slot do not reuse its memory.
  for (int i = 0; i < 40; ++i) {
    auto next = probe::ProbeStub(channel).Echo();
    std::fill_n(next.request().initData(kBytes).begin(), kBytes, 0x11);
    auto sent = next.Send();
    calls.Take().first.Finish();
    EXPECT_THAT(sent.Wait(), IsOk());
  }
  const capnp::Data::Reader data = request.getData();
  EXPECT_EQ(std::count(data.begin(), data.end(), 0x5a), static_cast<ptrdiff_t>(kBytes));
  deferred.Finish();
}

// Holds each request, with memory for two requests of kBytes of one host: 80 % of 64 MiB, so not for a third.
struct SmallServer {
  static constexpr size_t kBytes = 20 << 20;

  struct Holding final : ProbeServiceImpl {
    absl::Status Echo(ServerContext& context, probe::Probe::EchoParams::Reader,
                      probe::Probe::EchoResults::Builder) override {
      calls.Put(context.Defer());
      return absl::OkStatus();
    }
    Box<DeferredCall> calls;
  };

  static ServerOptions Options() {
    ServerOptions options;
    options.pool.limit_bytes = 64 << 20;
    return options;
  }

  SmallServer() {
    EXPECT_THAT(server.AddService(&holding), IsOk());
    uri = *server.Listen(TestUri());
  }
  static auto Send(const std::shared_ptr<Channel>& channel, absl::Duration timeout) {
    auto call = probe::ProbeStub(channel).Echo({.timeout = timeout});
    call.request().initData(kBytes);
    return call.Send();
  }
  DeferredCall Take() { return holding.calls.Take(); }

  // Expects that the server finds no memory for a call, and reports it 50 ms before the deadline. On a busy
  // machine the deadline may expire first, so it tries again.
  void ExpectNoMemory(const std::shared_ptr<Channel>& channel) {
    EXPECT_TRUE(Eventually([&] {
      const absl::Status status = Send(channel, absl::Seconds(2)).Wait().status();
      EXPECT_EQ(holding.calls.size(), 0u) << "it found memory";
      EXPECT_TRUE(absl::IsResourceExhausted(status) || absl::IsDeadlineExceeded(status)) << status;
      return absl::IsResourceExhausted(status);
    }));
  }

  Holding holding;
  Server server{Options()};
  std::string uri;
};

TEST(AbandonedTest, ARequestThatAHandlerHoldsCountsAgainstItsPeerUntilItAnswers) {
  SmallServer small;
  const auto channel = *Channel::Connect(small.uri);
  std::vector<DeferredCall> held;
  for (int i = 0; i < 2; ++i) {
    auto call = SmallServer::Send(channel, kLong);
    held.push_back(small.Take());
    call.Cancel();
    EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kCancelled));
  }
  small.ExpectNoMemory(channel);
  held.clear();
  auto call = SmallServer::Send(channel, kLong);
  small.Take().Finish();
  EXPECT_THAT(call.Wait().status(), IsOk());
}

TEST(AbandonedTest, ARequestOfALostConnectionCountsAgainstItsHostUntilItsHandlerAnswers) {
  SmallServer small;
  std::vector<DeferredCall> held;
  for (int i = 0; i < 2; ++i) {
    const auto channel = *Channel::Connect(small.uri);
    auto pending = SmallServer::Send(channel, kLong);
    held.push_back(small.Take());
    channel->Close();
    EXPECT_THAT(pending.Wait(), ::testing::Not(IsOk()));
  }
  const auto channel = *Channel::Connect(small.uri);
  small.ExpectNoMemory(channel);
}

TEST(AbandonedTest, TooManyOfThemRefuseFurtherCallsByTheirName) {
  HoldingServer holding;
  const auto channel = holding.server.Connect({.connection = {.slots = 1}});
  std::vector<DeferredCall> held;
  for (int i = 0; i < 2; ++i) {
    auto call = SendAct(channel, 1);
    held.push_back(holding.server.held.Take());
    call.Cancel();
    EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kCancelled));
  }
  const absl::Status refused = SendAct(channel, kAnswered).Wait().status();
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_FALSE(WasSent(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2 handlers of this connection"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("Probe.act"));
  held.pop_back();
  EXPECT_TRUE(Eventually([&] { return SendAct(channel, kAnswered).Wait().ok(); }));
}

TEST(AbandonedTest, ACallThatWaitsForASlotSaysWhatKeepsThem) {
  ClockedRuntime clients;
  HoldingServer holding;
  const auto channel = holding.server.Connect({.connection = {.slots = 2}, .runtime = clients.get()});
  auto first = SendAct(channel, 1, {.timeout = 2 * kLong});
  auto second = SendAct(channel, 1, {.timeout = 2 * kLong});
  auto third = SendAct(channel, kAnswered, {.timeout = kLong});
  clients.Pass(kLong);
  const absl::Status status = third.Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(status.message()), HasSubstr("all 2 slots are busy"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the oldest is"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Probe.act"));
}

}  // namespace
}  // namespace hawser
