// The server calls its client.

#include <atomic>
#include <string>
#include <vector>

#include "hawser/tests/testing/proxy.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using Notify = absl::StatusOr<Reply<probe::Listener::NotifyResults>>;

class ListenerServiceImpl : public probe::ListenerService {
 public:
  std::function<absl::Status(ServerContext&, uint64_t)> on_notify = [](ServerContext&, uint64_t) {
    return absl::OkStatus();
  };

  absl::Status Notify(ServerContext& context, probe::Listener::NotifyParams::Reader request,
                      probe::Listener::NotifyResults::Builder reply) override {
    reply.setNumber(request.getNumber() + 1);
    return on_notify(context, request.getNumber());
  }
};

PendingCall<probe::Listener::NotifyResults> SendNotify(const std::shared_ptr<Channel>& to, uint64_t number) {
  auto call = probe::ListenerStub(to).Notify({.timeout = kLong});
  call.request().setNumber(number);
  return call.Send();
}

// Gives the test the channel to the client that calls act.
ProbeServiceImpl::Doing GivePeer(Box<std::shared_ptr<Channel>>& peers) {
  return [&peers](ServerContext& context, uint64_t) {
    peers.Put(context.peer());
    return absl::OkStatus();
  };
}

TEST(ReverseTest, TheFirstCallFindsThePeerEveryTime) {
  TestServer server;
  Box<std::shared_ptr<Channel>> peers;
  server.probe.on_act = GivePeer(peers);
  for (int i = 0; i < 50; ++i) {
    ListenerServiceImpl listener;
    const auto channel = *Channel::Create(server.uri, {.services = {&listener}});
    ASSERT_THAT(SendAct(channel, 1, {.timeout = kLong}).Wait().status(), IsOk()) << i;
    ASSERT_NE(peers.Take(), nullptr);
  }
}

TEST(ReverseTest, TheServerCallsTheClientsService) {
  TestServer server;
  Box<std::shared_ptr<Channel>> peers;
  server.probe.on_act = GivePeer(peers);
  ListenerServiceImpl listener;
  const auto channel = server.Connect({.services = {&listener}});
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  const std::shared_ptr<Channel> peer = peers.Take();
  for (uint64_t i = 0; i < 100; ++i) {
    const Notify reply = SendNotify(peer, i).Wait();
    ASSERT_THAT(reply.status(), IsOk());
    EXPECT_EQ((*reply)->getNumber(), i + 1);
  }
  EXPECT_EQ(server.server.stats().connections, 2u);
}

TEST(ReverseTest, EveryCallOfOneClientSeesTheSamePeer) {
  TestServer server({.pollers = 2});
  Box<std::shared_ptr<Channel>> peers;
  server.probe.on_act = GivePeer(peers);
  ListenerServiceImpl listener;
  const auto one = server.Connect({.services = {&listener}});
  const auto other = server.Connect({.services = {&listener}});
  EXPECT_TRUE(SendAct(one, 1).Wait().ok() && SendAct(one, 1).Wait().ok() && SendAct(other, 1).Wait().ok());
  const auto first = peers.Take();
  EXPECT_EQ(first, peers.Take());
  EXPECT_NE(first, peers.Take());
}

TEST(ReverseTest, AClientThatOffersNothingHasNoPeer) {
  TestServer server;
  Box<std::shared_ptr<Channel>> peers;
  server.probe.on_act = GivePeer(peers);
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait(), IsOk());
  EXPECT_EQ(peers.Take(), nullptr);
}

TEST(ReverseTest, TheServerHearsWhenTheClientIsGone) {
  TestServer server;
  Box<std::shared_ptr<Channel>> peers;
  server.probe.on_act = GivePeer(peers);
  Box<bool> gone;
  ListenerServiceImpl listener;
  auto channel = server.Connect({.services = {&listener}});
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  const auto peer = peers.Take();
  peer->OnClosed([&] { gone.Put(true); });
  channel.reset();
  EXPECT_TRUE(gone.Take());
  const absl::Status status = SendNotify(peer, 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(WasSent(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the client is gone"));
  EXPECT_TRUE(Eventually([&] { return server.server.stats().connections == 0; }));
}

TEST(ReverseTest, ACallToTheClientEndsWhenTheClientIsGone) {
  TestServer server;
  Box<std::shared_ptr<Channel>> peers;
  server.probe.on_act = GivePeer(peers);
  Box<DeferredCall> held;
  ListenerServiceImpl listener;
  listener.on_notify = [&](ServerContext& context, uint64_t) {
    held.Put(context.Defer());
    return absl::OkStatus();
  };
  auto channel = server.Connect({.services = {&listener}});
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  auto call = SendNotify(peers.Take(), 1);
  DeferredCall deferred = held.Take();
  channel.reset();
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(Eventually([&] { return deferred.context().cancelled(); }));
}

TEST(ReverseTest, BothConnectionsComeBackTogether) {
  TestServer server({}, "tcp://127.0.0.1:0");  // The proxy is one of sockets.
  Proxy proxy(server.uri);
  Box<std::shared_ptr<Channel>> peers;
  server.probe.on_act = GivePeer(peers);
  ListenerServiceImpl listener;
  Box<ChannelState> states;
  const auto channel = *Channel::Connect(
      proxy.uri(), {.services = {&listener},
                    .on_state_change = [&](ChannelState state, const absl::Status&) { states.Put(state); }});
  EXPECT_EQ(states.Take(), ChannelState::kReady);
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  const auto first = peers.Take();
  proxy.Cut();
  EXPECT_EQ(states.Take(), ChannelState::kConnecting);
  EXPECT_EQ(states.Take(), ChannelState::kReady);
  ASSERT_THAT(SendAct(channel, 1, {.wait_for_ready = true}).Wait(), IsOk());
  const auto second = peers.Take();
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, second);
  EXPECT_THAT(SendNotify(second, 1).Wait(), IsOk());
  EXPECT_TRUE(Eventually([&] { return first->state() == ChannelState::kClosed; }));
}

TEST(ReverseTest, ASlowListenerDoesNotSlowOthers) {
  TestServer server;
  Box<std::shared_ptr<Channel>> peers;
  server.probe.on_act = GivePeer(peers);
  Box<DeferredCall> held;
  ListenerServiceImpl slow, quick;
  slow.on_notify = [&](ServerContext& context, uint64_t) {
    held.Put(context.Defer());
    return absl::OkStatus();
  };
  const auto slow_channel = server.Connect({.services = {&slow}});
  const auto quick_channel = server.Connect({.services = {&quick}});
  ASSERT_TRUE(SendAct(slow_channel, 1).Wait().ok() && SendAct(quick_channel, 1).Wait().ok());
  const auto slow_peer = peers.Take();
  const auto quick_peer = peers.Take();
  std::vector<PendingCall<probe::Listener::NotifyResults>> waiting;
  for (int i = 0; i < 500; ++i) waiting.push_back(SendNotify(slow_peer, i));  // More than there are slots.
  for (int i = 0; i < 500; ++i) ASSERT_THAT(SendNotify(quick_peer, i).Wait(), IsOk());
  EXPECT_THAT(SendAct(slow_channel, 1).Wait(), IsOk()) << "calls the other way are slowed";
  for (int i = 0; i < 500; ++i) held.Take().Finish();
  for (auto& call : waiting) EXPECT_THAT(call.Wait(), IsOk());
}

TEST(ReverseTest, AHandlerMayCallBackBeforeItAnswers) {
  TestServer server;
  server.probe.on_act = [](ServerContext& context, uint64_t number) {
    auto deferred = std::make_shared<DeferredCall>(context.Defer());
    SendNotify(context.peer(), number).Then([deferred](Notify reply) {
      deferred->context().reply<probe::Probe::ActResults>().setNumber((*reply)->getNumber());
      deferred->Finish(reply.status());
    });
    return absl::OkStatus();
  };
  ListenerServiceImpl listener;
  const auto channel = server.Connect({.services = {&listener}});
  const auto reply = SendAct(channel, 41).Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->getNumber(), 42u);
}

TEST(ReverseTest, AMethodThatTheClientDoesNotOfferIsUnimplemented) {
  TestServer server;
  Box<std::shared_ptr<Channel>> peers;
  server.probe.on_act = GivePeer(peers);
  ListenerServiceImpl listener;
  const auto channel = server.Connect({.services = {&listener}});
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_THAT(SendAct(peers.Take(), 1).Wait().status(), HasCode(absl::StatusCode::kUnimplemented));
}

// A service that is destroyed right after its channel must not be called any more.
TEST(ReverseTest, AListenerMayGoRightAfterItsChannel) {
  TestServer server;
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    for (int i = 0; i < 20; ++i) SendNotify(context.peer(), i).Then([](Notify) {});
    return absl::OkStatus();
  };
  for (int i = 0; i < 50; ++i) {
    auto listener = std::make_unique<ListenerServiceImpl>();
    auto channel = server.Connect({.services = {listener.get()}});
    SendAct(channel, 1).Wait().status().IgnoreError();
    channel.reset();
    listener.reset();
  }
}

// 32 of them are in flight, the others wait. A turn of the poller runs 256 callbacks at most.
TEST(ReverseTest, CallbacksOfItsCallsHaveRunWhenTheServerHasShutDown) {
  constexpr int kCalls = 1000;
  Box<DeferredCall> held;
  ListenerServiceImpl listener;
  listener.on_notify = [&](ServerContext& context, uint64_t) {
    held.Put(context.Defer());
    return absl::OkStatus();
  };
  std::atomic<int> ended{0}, ended_before_closed{-1};
  TestServer server;
  server.probe.on_act = [&](ServerContext& context, uint64_t) {
    for (int i = 0; i < kCalls; ++i) SendNotify(context.peer(), i).Then([&](Notify) { ++ended; });
    context.peer()->OnClosed([&] { ended_before_closed = ended.load(); });
    return absl::OkStatus();
  };
  const auto channel = server.Connect({.services = {&listener}});
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  const DeferredCall first = held.Take();
  server.server.Shutdown(absl::InfinitePast()).IgnoreError();
  EXPECT_EQ(ended, kCalls);
  EXPECT_EQ(ended_before_closed, kCalls);
  held.Close();
}

TEST(ReverseTest, TwoServicesForOneMethodAreRefused) {
  ListenerServiceImpl one, other;
  EXPECT_THAT(Channel::Create("tcp://127.0.0.1:1", {.services = {&one, &other}}).status(),
              HasCode(absl::StatusCode::kAlreadyExists));
}

}  // namespace
}  // namespace hawser
