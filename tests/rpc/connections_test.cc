// A channel with several connections to its target: which of them gets a call, and what follows from the
// first attempts of each.

#include "tests/rpc/connections.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/status.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/fake_server.h"
#include "tests/rpc/probe.h"
#include "tests/rpc/taken.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::vector<size_t> ConnectionsByPoller(transport::Runtime& runtime) {
  std::vector<size_t> counts(runtime.poller_count());
  for (size_t i = 0; i < counts.size(); ++i) {
    internal::RunAndWait(runtime.poller(i), [&] { counts[i] = runtime.poller(i).connection_count(); });
  }
  return counts;
}

// A server whose handlers do not answer until told to, and say which connection their calls came over.
struct CountingServer {
  explicit CountingServer(ServerOptions options = {}) : server(std::move(options)) {
    server.probe.on_act = [this](ServerContext& context, uint64_t) {
      absl::MutexLock lock(&mutex);
      held[context.peer_address()].push_back(context.Defer());
      ++count;
      return absl::OkStatus();
    };
  }
  ~CountingServer() {
    for (auto& [peer, calls] : held) Answer(peer);
  }

  void Answer(const std::string& peer) {
    std::vector<DeferredCall> calls;
    {
      absl::MutexLock lock(&mutex);
      calls.swap(held[peer]);
    }
    for (DeferredCall& call : calls) call.Finish();
  }
  std::map<std::string, size_t> HeldByPeer() {
    std::map<std::string, size_t> counts;
    absl::MutexLock lock(&mutex);
    for (const auto& [peer, calls] : held) counts[peer] = calls.size();
    return counts;
  }

  absl::Mutex mutex;
  std::map<std::string, std::vector<DeferredCall>> held;  // Guarded by `mutex`.
  std::atomic<int> count{0};
  TestServer server;
};

std::shared_ptr<Channel> ConnectAll(TestServer& server, ChannelOptions options) {
  const auto wanted = static_cast<size_t>(options.connections);
  auto channel = server.Connect(std::move(options));
  EXPECT_TRUE(Eventually([&] { return ReadyConnections(*channel) == wanted; }));
  return channel;
}

TEST(ConnectionsTest, EachIsOnAPollerOfItsOwnAtBothSides) {
  const auto new_runtime = [] { return *transport::Runtime::Create(TestScheme(), {.pollers = 3}); };
  const auto client = new_runtime(), server = new_runtime();
  TestServer serving({.runtime = server});
  const auto channel = ConnectAll(serving, {.connections = 3, .runtime = client});
  EXPECT_THAT(ConnectionsByPoller(*client), Each(1u));
  EXPECT_TRUE(Eventually([&] { return ConnectionsByPoller(*server) == std::vector<size_t>{1, 1, 1}; }));
}

TEST(ConnectionsTest, ACallGoesToTheConnectionWithTheFewest) {
  CountingServer counting;
  const auto channel = ConnectAll(counting.server, {.connections = 3});
  Calls calls;
  for (int i = 0; i < 6; ++i) calls.push_back(SendAct(channel, 1, {.timeout = kLong}));
  ASSERT_TRUE(Eventually([&] { return counting.count == 6; }));
  // Each peer address has another port.
  EXPECT_THAT(counting.HeldByPeer(),
              ElementsAre(Pair(testing::_, 2u), Pair(testing::_, 2u), Pair(testing::_, 2u)));
  const std::string peer = counting.HeldByPeer().begin()->first;
  counting.Answer(peer);
  std::atomic<int> ended{0};
  for (auto& call : std::exchange(calls, {})) call.Then([&](auto) { ++ended; });
  ASSERT_TRUE(Eventually([&] {
    const auto& all = channel->core()->group()->Cores();
    return ended == 2 &&
           std::any_of(all.begin(), all.end(), [](const auto& each) { return each->calls_in_use() == 0; });
  }));
  for (int i = 0; i < 2; ++i) calls.push_back(SendAct(channel, 1, {.timeout = kLong}));
  ASSERT_TRUE(Eventually([&] { return counting.count == 8; }));
  for (const auto& [each, held] : counting.HeldByPeer()) EXPECT_EQ(held, 2u) << each;
  for (const auto& [each, held] : counting.HeldByPeer()) counting.Answer(each);
  for (auto& call : calls) EXPECT_THAT(call.Wait(), IsOk());
  EXPECT_TRUE(Eventually([&] { return ended == 6; }));
}

TEST(ConnectionsTest, ConnectionsThatAreAlikeTakeTurns) {
  TestServer server;
  Box<std::string> peers;
  server.probe.on_act = [&](ServerContext& context, uint64_t) {
    peers.Put(context.peer_address());
    return absl::OkStatus();
  };
  const auto channel = ConnectAll(server, {.connections = 3});
  std::set<std::string> seen;
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
    seen.insert(peers.Take());
    ASSERT_TRUE(Eventually([&] { return AreIdle(*channel); }));
  }
  EXPECT_EQ(seen.size(), 3u);
}

// Otherwise it would wait for the callback that holds the other connection's poller.
TEST(ConnectionsTest, AWaitEndsAtItsDeadlineWhileThePollerOfTheOtherConnectionIsHeld) {
  const auto clients = *transport::Runtime::Create(TestScheme(), {.pollers = 2});
  FakeServer server;
  std::vector<std::pair<FakeServer::Client*, transport::ExchangeId>> held;  // On the server's poller.
  server.on_request = [&](FakeServer::Client& client, transport::ExchangeId id) {
    held.emplace_back(&client, id);
  };
  const auto channel = *Channel::Connect(server.uri, {.connections = 2, .runtime = clients});
  ASSERT_TRUE(Eventually([&] { return ReadyConnections(*channel) == 2; }));
  auto call = SendActAgain(channel, 1, {.timeout = absl::Seconds(2)});
  ASSERT_TRUE(Eventually([&] { return server.requests == 1; }));
  absl::Notification go_on;
  Box<bool> holding, released;
  auto other = SendAct(channel, 1, {.timeout = kLong});  // Over the other connection.
  other.Then([&](auto) {
    holding.Put(true);
    go_on.WaitForNotification();
    released.Put(true);
  });
  ASSERT_TRUE(Eventually([&] { return server.requests == 2; }));
  server.Run([&] { held[1].first->Answer(held[1].second); });
  holding.Take();
  server.Run([&] { held[0].first->connection->Close(); });
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  go_on.Notify();
  released.Take();
  {
    const auto ended = std::move(call);
    const auto also = std::move(other);
  }
  EXPECT_TRUE(Eventually([&] { return AreIdle(*channel); }));
}

// What a server without room says is no reason for a call to fail while another connection has a place.
TEST(ConnectionsTest, OneConnectionThatTheServerAdmitsIsEnough) {
  ClockedRuntime clients;
  TestServer server({.connections_max = 1});
  const auto channel = *Channel::Create(server.uri, {.connections = 3, .runtime = clients.get()});
  Calls calls;
  for (int i = 0; i < 30; ++i) calls.push_back(SendAct(channel, 1, {.timeout = kLong}));
  for (auto& call : calls) EXPECT_THAT(call.Wait(), IsOk());
  EXPECT_EQ(channel->state(), ChannelState::kReady);
  EXPECT_EQ(ReadyConnections(*channel), 1u);
}

TEST(ConnectionsTest, ACallWaitsWhileTheFirstAttemptOfAnotherConnectionIsUnderWay) {
  ClockedRuntime clients;
  FakeServer server;
  std::vector<transport::PeerRequest> peers;  // On the server's poller.
  std::atomic<int> waiting{0};
  server.on_peer = [&](transport::PeerRequest request) {
    peers.push_back(std::move(request));
    ++waiting;
  };
  const auto channel = *Channel::Create(server.uri, {.connections = 2, .runtime = clients.get()});
  Calls calls;  // One for each connection.
  for (int i = 0; i < 2; ++i) calls.push_back(SendAct(channel, 1, {.timeout = kLong}));
  ASSERT_TRUE(Eventually([&] { return waiting == 2; }));
  server.Run([&] { peers[0].Reject(absl::ResourceExhaustedError("no room")); });
  const auto& all = channel->core()->group()->Cores();
  ASSERT_TRUE(Eventually([&] {
    return std::any_of(all.begin(), all.end(),
                       [](const auto& each) { return each->state() == ChannelState::kTransientFailure; });
  }));
  internal::RunAndWait(clients.get()->poller(0), [] {});  // It has done what follows from that.
  server.Run([&] {
    server.Accept(std::move(peers[1]));
    peers.clear();
  });
  for (auto& call : calls) EXPECT_THAT(call.Wait(), IsOk());
  EXPECT_EQ(ReadyConnections(*channel), 1u);
}

TEST(ConnectionsTest, CallsFailWhenTheFirstAttemptsOfAllHaveFailed) {
  ClockedRuntime clients;
  const std::string uri = std::make_unique<TestServer>()->uri;  // Nothing listens there any more.
  EXPECT_THAT(Channel::Connect(uri, {.connections = 3, .runtime = clients.get()}).status(),
              HasCode(absl::StatusCode::kUnavailable));
  const auto channel = *Channel::Create(uri, {.connections = 3, .runtime = clients.get()});
  Calls calls;
  for (int i = 0; i < 6; ++i) calls.push_back(SendAct(channel, 1, {.timeout = kLong}));
  for (auto& call : calls) {
    const absl::Status status = call.Wait().status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
    EXPECT_FALSE(WasSent(status));
  }
  EXPECT_TRUE(Eventually([&] { return channel->state() == ChannelState::kTransientFailure; }));
}

TEST(ConnectionsTest, ACallThatWaitsForReadyDoesSoWhenTheFirstAttemptsOfAllHaveFailed) {
  ClockedRuntime clients;
  const std::string uri = std::make_unique<TestServer>()->uri;  // Nothing listens there any more.
  const auto channel = *Channel::Create(uri, {.connections = 3, .runtime = clients.get()});
  Calls calls;
  for (int i = 0; i < 3; ++i) calls.push_back(SendAct(channel, 1, kPatient));
  const auto& all = channel->core()->group()->Cores();
  ASSERT_TRUE(Eventually([&] {
    return std::all_of(all.begin(), all.end(),
                       [](const auto& each) { return each->state() == ChannelState::kTransientFailure; });
  }));
  for (int i = 0; i < 3; ++i) calls.push_back(SendAct(channel, 1, kPatient));
  EXPECT_THAT(SendAct(channel, 1, {.timeout = kLong}).Wait().status(),
              HasCode(absl::StatusCode::kUnavailable));
  TestServer server({}, uri);
  ASSERT_NO_FATAL_FAILURE(clients.Pass(absl::Seconds(1)));
  for (auto& call : calls) EXPECT_THAT(call.Wait(), IsOk());
}

TEST(ConnectionsTest, ServicesAreForAChannelWithOneConnection) {
  class ListenerServiceImpl final : public probe::ListenerService {
   public:
    absl::Status Notify(ServerContext&, probe::Listener::NotifyParams::Reader,
                        probe::Listener::NotifyResults::Builder) override {
      return absl::OkStatus();
    }
  } listener;
  ChannelOptions options = {.connections = 2};
  options.services = {&listener};
  const absl::Status refused = Channel::Create(TestUri(1), options).status();
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("ChannelOptions::connections is 2"), HasSubstr("ChannelOptions::services")));
}

TEST(ConnectionsTest, ASnapshotShowsEach) {
  TestServer server;
  const auto channel = ConnectAll(server, {.connections = 2});
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  Taken taken(server.server);
  std::map<std::string, uint64_t> connects;
  for (const auto each : taken.Get().getChannels()) {
    if (absl::string_view(each.getAddress().cStr()).find(server.uri) == absl::string_view::npos) continue;
    EXPECT_STREQ(each.getState().cStr(), "ready");
    connects[each.getAddress().cStr()] = each.getCounts().getConnects();
  }
  EXPECT_THAT(connects, ElementsAre(Pair(absl::StrCat(server.uri, " (connection 1 of 2)"), 1u),
                                    Pair(absl::StrCat(server.uri, " (connection 2 of 2)"), 1u)));
}

}  // namespace
}  // namespace hawser
