// A channel with several connections to its target: which of them gets a call, and what the channel does when
// one is lost.

#include "tests/rpc/connections.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
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
#include "hawser/tests/transport/testing/test_clock.h"
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

using Calls = std::vector<PendingCall<probe::Probe::ActResults>>;
const CallOptions kPatient = {.timeout = kLong, .wait_for_ready = true};

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

// A server whose connections the test controls, and clients that run on `Clients`.
template <typename Clients>
class FakeServerTest : public testing::Test {
 protected:
  // A request that is sent again may still come.
  ~FakeServerTest() override {
    server_.Run([&] {
      server_.on_request = [](FakeServer::Client&, transport::ExchangeId) {};
      held_.clear();
    });
  }

  // The server holds the requests that come from now on.
  void Hold() {
    server_.on_request = [this](FakeServer::Client& client, transport::ExchangeId id) {
      held_.emplace_back(&client, id);
    };
  }
  // It answers those whose connections are open.
  void AnswerHeld() {
    server_.Run([&] {
      for (auto& [client, id] : std::exchange(held_, {})) {
        if (client->connection != nullptr) client->Answer(id);
      }
    });
  }
  // It answers those, too, that come from now on.
  void AnswerAll() {
    server_.Run([&] {
      server_.on_request = [](FakeServer::Client& client, transport::ExchangeId id) { client.Answer(id); };
    });
    AnswerHeld();
  }
  void Cut(int number) {
    server_.Run([&] { server_.client(static_cast<size_t>(number)).connection->Close(); });
  }
  // The connection of the first request that is held. None is held afterwards.
  void CutFirstHeld() {
    server_.Run([&] { std::exchange(held_, {})[0].first->connection->Close(); });
  }
  // The number, at the server, of the connection that the last request came over.
  int LastNumber() {
    int number = -1;
    server_.Run([&] { number = held_.back().first->number; });
    return number;
  }
  std::shared_ptr<internal::ChannelCore> core(size_t number) {
    return channel_->core()->group()->Cores()[number];
  }

  Clients clients_;
  FakeServer server_;
  std::vector<std::pair<FakeServer::Client*, transport::ExchangeId>> held_;  // On the server's poller.
  std::shared_ptr<Channel> channel_;
};

// The clients' clock moves only when the test says so: what is lost is not dialed again before.
class LossTest : public FakeServerTest<ClockedRuntime> {
 protected:
  void Connect(int connections, ChannelOptions options = {}) {
    options.connections = connections;
    options.runtime = clients_.get();
    channel_ = *Channel::Connect(server_.uri, std::move(options));
    ASSERT_TRUE(Eventually([&] {
      return ReadyConnections(*channel_) == static_cast<size_t>(connections) && server_.came == connections;
    }));
  }
};

TEST_F(LossTest, OnlyTheCallsOfAConnectionThatIsLostEnd) {
  Hold();
  ASSERT_NO_FATAL_FAILURE(Connect(3));
  Calls calls;
  std::vector<int> of_call;  // The number of the connection.
  for (int i = 0; i < 3; ++i) {
    calls.push_back(SendAct(channel_, 1, kPatient));
    ASSERT_TRUE(Eventually([&] { return server_.requests == i + 1; }));
    server_.Run([&] { of_call.push_back(held_.back().first->number); });
  }
  EXPECT_THAT(std::set<int>(of_call.begin(), of_call.end()), ElementsAre(0, 1, 2));
  Cut(of_call[0]);
  const absl::Status lost = calls[0].Wait().status();
  EXPECT_THAT(lost, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(WasSent(lost));
  EXPECT_EQ(channel_->state(), ChannelState::kReady);
  server_.Run([&] {
    held_.erase(held_.begin());
    EXPECT_EQ(held_.size(), 2u);
  });
  for (int i = 0; i < 4; ++i) {
    calls.push_back(SendAct(channel_, 1));
    ASSERT_TRUE(Eventually([&] { return server_.requests == i + 4; }));
    server_.Run([&] { EXPECT_NE(held_.back().first->number, of_call[0]); });
  }
  AnswerHeld();
  for (size_t i = 1; i < calls.size(); ++i) EXPECT_THAT(calls[i].Wait(), IsOk());
  EXPECT_EQ(server_.came, 3);
  EXPECT_EQ(ReadyConnections(*channel_), 2u);
  clients_.Pass(absl::Milliseconds(100));
  EXPECT_TRUE(Eventually([&] { return ReadyConnections(*channel_) == 3; }));
  EXPECT_TRUE(Eventually([&] { return server_.came == 4; }));
}

TEST_F(LossTest, ACallThatIsIdempotentIsSentAgainOverAnotherAtOnce) {
  Hold();
  ASSERT_NO_FATAL_FAILURE(Connect(2));
  auto call = SendActAgain(channel_, 1, {.timeout = kLong});
  ASSERT_TRUE(Eventually([&] { return server_.requests == 1; }));
  CutFirstHeld();
  ASSERT_TRUE(Eventually([&] { return server_.requests == 2; }));
  AnswerHeld();
  EXPECT_THAT(call.Wait(), IsOk());
  EXPECT_EQ(server_.came, 2);
}

TEST_F(LossTest, ACallThatAnotherConnectionCarriesCanBeCancelled) {
  Hold();
  ASSERT_NO_FATAL_FAILURE(Connect(2));
  auto call = SendActAgain(channel_, 1, {.timeout = kLong});
  ASSERT_TRUE(Eventually([&] { return server_.requests == 1; }));
  CutFirstHeld();
  ASSERT_TRUE(Eventually([&] { return server_.requests == 2; }));
  call.Cancel();
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kCancelled));
  { const auto ended = std::move(call); }
  EXPECT_TRUE(Eventually([&] { return AreIdle(*channel_); }));
}

TEST_F(LossTest, ACallThatAnotherConnectionCarriesEndsAtItsDeadline) {
  Hold();
  ASSERT_NO_FATAL_FAILURE(Connect(2));
  auto call = SendActAgain(channel_, 1, {.timeout = absl::Seconds(3)});
  ASSERT_TRUE(Eventually([&] { return server_.requests == 1; }));
  server_.Run([&] {
    server_.StopListening();
    std::exchange(held_, {})[0].first->connection->Close();
  });
  ASSERT_TRUE(Eventually([&] { return server_.requests == 2; }));
  clients_.Pass(absl::Seconds(3));
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  { const auto ended = std::move(call); }
  EXPECT_TRUE(Eventually([&] { return AreIdle(*channel_); }));
}

// It goes back to its own connection, and from there to the third one.
TEST_F(LossTest, ACallThatAnotherConnectionCarriesIsSentAgainWhenThatIsLost) {
  Hold();
  ASSERT_NO_FATAL_FAILURE(Connect(3));
  auto call = SendActAgain(channel_, 1, {.timeout = kLong});
  for (int lost = 1; lost <= 2; ++lost) {
    ASSERT_TRUE(Eventually([&] { return server_.requests == lost; }));
    CutFirstHeld();
  }
  ASSERT_TRUE(Eventually([&] { return server_.requests == 3; }));
  AnswerHeld();
  EXPECT_THAT(call.Wait(), IsOk());
  EXPECT_EQ(server_.came, 3);
}

TEST_F(LossTest, ACallIsSentAgainTwiceAtMostOverWhicheverConnections) {
  server_.on_request = [](FakeServer::Client& client, transport::ExchangeId) { client.connection->Close(); };
  ASSERT_NO_FATAL_FAILURE(Connect(5));
  const absl::Status status = SendActAgain(channel_, 1, {.timeout = kLong}).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(WasSent(status));
  EXPECT_EQ(server_.requests, 3);
}

// It was not sent yet, so it need not be idempotent.
TEST_F(LossTest, ACallThatWaitsForASlotOfAConnectionThatIsLostGoesToAnotherAtOnce) {
  ChannelOptions options;
  options.connection.slots = 1;
  Hold();
  ASSERT_NO_FATAL_FAILURE(Connect(2, std::move(options)));
  Calls calls;  // In turn of the first and the second connection.
  for (int i = 0; i < 4; ++i) {
    calls.push_back(SendAct(channel_, 1, {.timeout = kLong}));
    ASSERT_TRUE(Eventually([&] { return server_.requests == std::min(i + 1, 2); }));
  }
  server_.Run([&] { held_[0].first->connection->Close(); });
  EXPECT_THAT(calls[0].Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  ASSERT_TRUE(Eventually([&] { return core(1)->calls_in_use() == 3; }));
  AnswerAll();
  for (size_t i = 1; i < calls.size(); ++i) EXPECT_THAT(calls[i].Wait(), IsOk()) << i;
  EXPECT_EQ(server_.came, 2);
}

// The rest after a turn in which the poller does other work.
TEST_F(LossTest, OfManyCallsThatWait256GoToAnotherInOneTurn) {
  ChannelOptions options;
  options.connection.slots = 1;
  Hold();
  ASSERT_NO_FATAL_FAILURE(Connect(2, std::move(options)));
  Calls calls;
  for (int i = 0; i < 2 * 301; ++i) {
    calls.push_back(SendAct(channel_, 1, {.timeout = kLong}));
    ASSERT_TRUE(Eventually([&] { return server_.requests == std::min(i + 1, 2); }));
  }
  ASSERT_EQ(core(0)->calls_in_use(), 301u);
  ASSERT_EQ(core(1)->calls_in_use(), 301u);
  // No time passes, so neither that turn comes nor a connection instead of the one that is lost.
  server_.Run([&] { held_[0].first->connection->Close(); });
  EXPECT_THAT(calls[0].Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(Eventually([&] { return core(1)->calls_in_use() == 301 + 256; }));
  clients_.Pass(absl::Microseconds(1));
  EXPECT_TRUE(Eventually([&] { return core(1)->calls_in_use() == 301 + 300; }));
  AnswerAll();
  for (size_t i = 1; i < calls.size(); ++i) EXPECT_THAT(calls[i].Wait(), IsOk()) << i;
}

TEST_F(LossTest, ACallThatWasRefusedUnrunGoesToAnotherAtOnce) {
  std::atomic<int> refusing{-1};
  server_.on_request = [&](FakeServer::Client& client, transport::ExchangeId id) {
    if (refusing == -1) refusing = client.number;
    client.number == refusing ? client.RefuseUnrun(id) : client.Answer(id);
  };
  ASSERT_NO_FATAL_FAILURE(Connect(2));
  EXPECT_THAT(SendAct(channel_, 1, {.timeout = kLong}).Wait(), IsOk());  // Not idempotent.
  EXPECT_EQ(server_.requests, 2);
  EXPECT_EQ(server_.came, 2);
}

TEST_F(LossTest, NewCallsDoNotGoToAConnectionThatWasCalledOff) {
  std::atomic<int> called_off{-1};
  Hold();
  ASSERT_NO_FATAL_FAILURE(Connect(3));
  auto running = SendAct(channel_, 1, kPatient);
  ASSERT_TRUE(Eventually([&] { return server_.requests == 1; }));
  server_.Run([&] {
    called_off = held_[0].first->number;
    held_[0].first->CallOff();
  });
  ASSERT_TRUE(Eventually([&] { return ReadyConnections(*channel_) == 2; }));
  server_.Run([&] {
    server_.on_request = [&](FakeServer::Client& client, transport::ExchangeId id) {
      EXPECT_NE(client.number, called_off);
      client.Answer(id);
    };
  });
  for (int i = 0; i < 6; ++i) EXPECT_THAT(SendAct(channel_, 1).Wait(), IsOk());
  AnswerHeld();
  EXPECT_THAT(running.Wait(), IsOk());
}

TEST_F(LossTest, TheChannelIsReadyWhileOneConnectionIs) {
  absl::Mutex mutex;
  std::vector<ChannelState> states;
  ChannelOptions options;
  options.on_state_change = [&](ChannelState state, const absl::Status&) {
    absl::MutexLock lock(&mutex);
    states.push_back(state);
  };
  const auto seen = [&] {
    absl::MutexLock lock(&mutex);
    return states;
  };
  ASSERT_NO_FATAL_FAILURE(Connect(2, std::move(options)));
  Cut(0);
  ASSERT_TRUE(Eventually([&] { return ReadyConnections(*channel_) == 1; }));
  EXPECT_EQ(channel_->state(), ChannelState::kReady);
  EXPECT_THAT(SendAct(channel_, 1).Wait(), IsOk());
  EXPECT_THAT(seen(), ElementsAre(ChannelState::kReady));
  Cut(1);
  ASSERT_TRUE(Eventually([&] { return channel_->state() == ChannelState::kConnecting; }));
  clients_.Pass(absl::Seconds(1));
  ASSERT_TRUE(Eventually([&] { return channel_->state() == ChannelState::kReady; }));
  Box<bool> closed;
  channel_->OnClosed([&] { closed.Put(true); });
  channel_->Close();
  closed.Take();
  EXPECT_TRUE(Eventually([&] { return seen().size() == 4; }));
  EXPECT_THAT(seen(), ElementsAre(ChannelState::kReady, ChannelState::kConnecting, ChannelState::kReady,
                                  ChannelState::kClosed));
  EXPECT_THAT(SendAct(channel_, 1).Wait().status(), HasCode(absl::StatusCode::kCancelled));
}

TEST_F(LossTest, CloseEndsTheCallsOfEach) {
  Hold();
  ASSERT_NO_FATAL_FAILURE(Connect(3));
  Calls calls;
  for (int i = 0; i < 6; ++i) calls.push_back(SendAct(channel_, 1, {.timeout = kLong}));
  ASSERT_TRUE(Eventually([&] { return server_.requests == 6; }));
  channel_->Close();
  for (auto& call : calls) EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kCancelled));
  EXPECT_TRUE(Eventually([&] { return server_.open == 0; }));
}

TEST_F(LossTest, TheLastCallThatEndsAfterTheChannelDisconnectsItsConnection) {
  Hold();
  ASSERT_NO_FATAL_FAILURE(Connect(3));
  auto call = SendAct(channel_, 1, {.timeout = kLong});
  ASSERT_TRUE(Eventually([&] { return server_.requests == 1; }));
  channel_.reset();
  EXPECT_TRUE(Eventually([&] { return server_.open == 1; }));
  AnswerHeld();
  EXPECT_THAT(call.Wait(), IsOk());
  { const auto ended = std::move(call); }
  EXPECT_TRUE(Eventually([&] { return server_.open == 0; }));
}

TEST_F(LossTest, ACallThatAnotherConnectionCarriesOutlivesTheChannel) {
  Hold();
  ASSERT_NO_FATAL_FAILURE(Connect(2));
  {
    auto call = SendActAgain(channel_, 1, {.timeout = kLong});
    ASSERT_TRUE(Eventually([&] { return server_.requests == 1; }));
    CutFirstHeld();
    ASSERT_TRUE(Eventually([&] { return server_.requests == 2; }));
    channel_.reset();
    AnswerHeld();
    EXPECT_THAT(call.Wait(), IsOk());
  }
  EXPECT_TRUE(Eventually([&] { return server_.open == 0; }));
  EXPECT_EQ(server_.came, 2);
}

// A connection that only carries a call of another one, and whose channel is destroyed.
class CarryingTest : public LossTest {
 protected:
  // Makes three connections with one slot each. When this returns, the first one has no call of its own, but
  // its slot is taken: the server has not answered a call that was cancelled. A call of the second one, which
  // was lost, waits for that slot. The third one has two calls. `heard`: what is lost now is dialed again at
  // once, without backoff.
  void Carry(bool heard) {
    ChannelOptions options;
    options.connection.slots = 1;
    ASSERT_NO_FATAL_FAILURE(Connect(3, std::move(options)));
    if (heard) {
      // The server has sent something over each, and each has been ready for longer than the backoff.
      for (int i = 0; i < 3; ++i) {
        EXPECT_THAT(SendAct(channel_, 1).Wait(), IsOk());
        ASSERT_TRUE(Eventually([&] { return AreIdle(*channel_); }));
      }
      ASSERT_NO_FATAL_FAILURE(clients_.Pass(absl::Seconds(1)));
    }
    const int before = server_.requests;
    server_.Run([&] { Hold(); });
    Calls calls;  // In turn of the first, the second and the third connection.
    for (int i = 0; i < 6; ++i) {
      calls.push_back(SendAct(channel_, 1, {.timeout = kLong}));
      // The last three wait for the slots.
      ASSERT_TRUE(Eventually([&] { return server_.requests == before + std::min(i + 1, 3); }));
    }
    std::vector<int> numbers;  // Those of the connections, at the server.
    server_.Run([&] {
      for (const auto& [client, id] : held_) numbers.push_back(client->number);
    });
    ASSERT_EQ(std::set<int>(numbers.begin(), numbers.end()).size(), 3u);
    number_ = numbers[0];
    core_ = core(0);
    for (const size_t i : {3u, 0u}) {
      auto call = std::move(calls[i]);
      call.Cancel();
      EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kCancelled));
    }
    ASSERT_TRUE(Eventually([&] { return core_->calls_in_use() == 0; }));
    Cut(numbers[1]);
    EXPECT_THAT(calls[1].Wait().status(), HasCode(absl::StatusCode::kUnavailable));
    ASSERT_TRUE(Eventually([&] { return core_->calls_in_use() == 1; }));
    ASSERT_TRUE(Eventually([&] { return ReadyConnections(*channel_) == (heard ? 3u : 2u); }));
    for (const size_t i : {2u, 4u, 5u}) calls_.push_back(std::move(calls[i]));
  }

  // The channel is destroyed, and then the first connection is lost.
  void LoseTheFirst() {
    int came = 0;
    server_.Run([&] { came = server_.came; });  // The client may be ready before the server has counted it.
    channel_.reset();
    Cut(number_);
    EXPECT_TRUE(Eventually([&] { return core_->closed(); }));
    AnswerAll();
    for (auto& call : std::exchange(calls_, {})) EXPECT_THAT(call.Wait(), IsOk());
    EXPECT_TRUE(Eventually([&] { return server_.open == 0; }));
    ASSERT_NO_FATAL_FAILURE(clients_.Pass(absl::Seconds(10)));
    EXPECT_TRUE(Eventually([&] { return !HasTimers(); }));  // No attempt is under way, and none is to come.
    EXPECT_EQ(server_.came, came);
  }

  bool HasTimers() {
    transport::Poller& poller = clients_.get()->poller(0);
    int64_t next_ns = 0;
    internal::RunAndWait(poller, [&] { next_ns = poller.timers().next_ns(); });
    return next_ns != transport::kNever;
  }

  std::shared_ptr<internal::ChannelCore> core_;  // The first one.
  int number_ = -1;                              // Its number at the server.
  Calls calls_;
};

// The call that it gives back is the last one that it has, so it closes in the midst of handling the loss.
TEST_F(CarryingTest, AConnectionThatClosesWhileItIsLostIsNotDialedAgain) {
  ASSERT_NO_FATAL_FAILURE(Carry(/*heard=*/true));
  ASSERT_NO_FATAL_FAILURE(LoseTheFirst());
}

TEST_F(CarryingTest, AConnectionThatClosesWhileItIsLostIsNotDialedAgainLater) {
  ASSERT_NO_FATAL_FAILURE(Carry(/*heard=*/false));
  ASSERT_NO_FATAL_FAILURE(LoseTheFirst());
}

// Two pollers that only the test drives, on a clock that only the test moves.
struct TwoPollers {
  transport::TestClock clock;
  std::shared_ptr<transport::Runtime> runtime =
      *transport::Runtime::CreateOn(NewTestFabric(), {.pollers = 2}, /*start_threads=*/false, clock);
};

// The first connection, and each second one after it, is on the first poller; the others are on the second
// one.
class TwoPollersTest : public FakeServerTest<TwoPollers> {
 protected:
  using Call = PendingCall<probe::Probe::ActResults>;

  void Connect(int connections) {
    ChannelOptions options;
    options.connections = connections;
    options.connection.slots = 1;
    options.runtime = clients_.runtime;
    channel_ = *Channel::Create(server_.uri, std::move(options));
    ASSERT_TRUE(Until([&] { return ReadyConnections(*channel_) == static_cast<size_t>(connections); }));
    for (size_t i = 0; i < static_cast<size_t>(connections); ++i) {
      ASSERT_EQ(&core(i)->poller(), &poller(i % 2));
    }
  }
  void TearDown() override {
    channel_.reset();
    EXPECT_TRUE(Until([&] { return clients_.runtime.use_count() == 1; }));
  }

  transport::Poller& poller(size_t number) { return clients_.runtime->poller(number); }
  // Drives both pollers, or one of them. False: `condition` did not come true.
  bool Until(const std::function<bool()>& condition) { return Drive({0, 1}, condition); }
  bool UntilOn(size_t number, const std::function<bool()>& condition) { return Drive({number}, condition); }

  // The status of `call` when it has ended.
  std::shared_ptr<std::optional<absl::Status>> StatusOf(Call& call) {
    auto status = std::make_shared<std::optional<absl::Status>>();
    call.Then([status](const auto& reply) { *status = reply.status(); });
    return status;
  }
  absl::Status End(Call call) {
    const auto status = StatusOf(call);
    return Until([&] { return status->has_value(); }) ? **status : absl::UnknownError("it has not ended");
  }

  absl::Status Cancelled(Call& call) {
    Call mine = std::move(call);
    mine.Cancel();
    return End(std::move(mine));
  }

  // Sends one call over each connection, in turn, and waits for its request. Then another one over each:
  // these wait for the slots. Returns the numbers of the connections at the server.
  std::vector<int> FillSlots(size_t connections, std::vector<Call>& calls) {
    std::vector<int> numbers;
    server_.Run([&] { Hold(); });
    const int before = server_.requests;
    for (size_t i = 0; i < 2 * connections; ++i) {
      calls.push_back(SendAct(channel_, 1, {.timeout = kLong}));
      const int sent = static_cast<int>(std::min(i + 1, connections));
      EXPECT_TRUE(Until([&] { return server_.requests == before + sent; }));
      if (i < connections) numbers.push_back(LastNumber());
    }
    EXPECT_EQ(std::set<int>(numbers.begin(), numbers.end()).size(), connections);
    return numbers;
  }

  // Makes two connections and calls. The first two have ended, and the second connection has no call any
  // more. The third one waited for the slot of the first connection, which was lost. `what` runs on the
  // second poller, while the second connection has the third call but has not begun to carry it.
  void BeforeItIsCarried(std::vector<Call>& calls, absl::Duration timeout,
                         const std::function<void()>& what) {
    ASSERT_NO_FATAL_FAILURE(Connect(2));
    server_.Run([&] { Hold(); });
    for (int i = 0; i < 3; ++i) {
      calls.push_back(SendAct(channel_, 1, {.timeout = i == 2 ? timeout : kLong}));
      ASSERT_TRUE(Until([&] { return server_.requests == std::min(i + 1, 2); }));
    }
    server_.Run([&] {
      server_.StopListening();
      held_[1].first->Answer(held_[1].second);
    });
    EXPECT_THAT(End(std::move(calls[1])), IsOk());
    ASSERT_TRUE(Until([&] { return core(1)->calls_in_use() == 0; }));
    server_.Run([&] {
      held_[0].first->connection->Close();
      held_.clear();
    });
    bool carries = false;
    poller(1).Run([&] {
      std::thread other([&] { carries = UntilOn(0, [&] { return core(1)->calls_in_use() == 1; }); });
      other.join();
      what();
    });
    ASSERT_TRUE(carries);
    // Before the first poller looks at its timers.
    ASSERT_TRUE(UntilOn(1, [&] { return core(1)->calls_in_use() == 0; }));
    EXPECT_THAT(End(std::move(calls[0])), HasCode(absl::StatusCode::kUnavailable));
  }

  // Another thread runs `post`. What it posts to the second poller does not run before a thread takes that
  // poller for something else: more items than one thread runs come first, and fewer than two threads run.
  void LeaveInMailbox(const std::function<void()>& post) {
    constexpr int kItems = 160;  // A thread that posts runs 128.
    const auto ran = std::make_shared<bool>(false);
    poller(1).Run([&] {
      std::thread other([&] {
        for (int i = 0; i < kItems; ++i) poller(1).Run([] {});
        poller(1).Run([ran] { *ran = true; });
        post();
      });
      other.join();
    });
    ASSERT_FALSE(*ran);
  }

 private:
  bool Drive(const std::vector<size_t>& numbers, const std::function<bool()>& condition) {
    return Eventually([&] {
      if (condition()) return true;
      for (const size_t number : numbers) poller(number).PollOnce();
      return false;
    });
  }
};

// The thread that handles the loss takes the poller of another connection, and so finds the cancel.
TEST_F(TwoPollersTest, ACallMayBeCancelledWhileThoseThatWaitGoToAnother) {
  ASSERT_NO_FATAL_FAILURE(Connect(4));
  std::vector<Call> calls;
  const std::vector<int> numbers = FillSlots(4, calls);
  EXPECT_THAT(Cancelled(calls[0]), HasCode(absl::StatusCode::kCancelled));  // The server keeps its slot.
  ASSERT_TRUE(Until([&] { return core(0)->calls_in_use() == 1; }));
  Cut(numbers[1]);
  EXPECT_THAT(End(std::move(calls[1])), HasCode(absl::StatusCode::kUnavailable));
  // Behind a call of its own the first connection has that of the second one.
  ASSERT_TRUE(Until([&] { return core(0)->calls_in_use() == 2; }));
  EXPECT_THAT(Cancelled(calls[3]), HasCode(absl::StatusCode::kCancelled));
  ASSERT_TRUE(Until([&] { return core(3)->calls_in_use() == 1; }));  // Fewer than the third one.
  ASSERT_NO_FATAL_FAILURE(LeaveInMailbox([&] { calls[5].Cancel(); }));
  Cut(numbers[0]);
  ASSERT_TRUE(UntilOn(0, [&] { return core(0)->state() != ChannelState::kReady; }));
  EXPECT_THAT(End(std::move(calls[5])), HasCode(absl::StatusCode::kCancelled));
  AnswerAll();
  for (const size_t i : {2u, 4u, 6u, 7u}) EXPECT_THAT(End(std::move(calls[i])), IsOk()) << i;
}

// The poller of the connection that carries it may be held.
TEST_F(TwoPollersTest, CloseEndsACallWithoutTheConnectionThatCarriesIt) {
  ASSERT_NO_FATAL_FAILURE(Connect(2));
  std::vector<Call> calls;
  const std::vector<int> numbers = FillSlots(2, calls);
  Cut(numbers[0]);
  ASSERT_TRUE(UntilOn(0, [&] { return core(1)->calls_in_use() == 3; }));
  const auto status = StatusOf(calls[2]);
  channel_->Close();
  ASSERT_TRUE(UntilOn(0, [&] { return status->has_value(); }));
  EXPECT_THAT(**status, HasCode(absl::StatusCode::kCancelled));
}

TEST_F(TwoPollersTest, ACallMayBeCancelledWhileTheChannelClosesAnotherThatIsCarried) {
  ASSERT_NO_FATAL_FAILURE(Connect(2));
  std::vector<Call> calls;
  const std::vector<int> numbers = FillSlots(2, calls);
  calls.push_back(SendAct(channel_, 1, {.timeout = kLong}));
  Cut(numbers[0]);
  ASSERT_TRUE(UntilOn(0, [&] { return core(0)->state() != ChannelState::kReady; }));
  ASSERT_TRUE(UntilOn(0, [&] { return core(1)->calls_in_use() == 4; }));  // It carries two.
  ASSERT_NO_FATAL_FAILURE(LeaveInMailbox([&] { poller(1).Run([&] { calls[4].Cancel(); }); }));
  channel_->Close();
  EXPECT_THAT(End(std::move(calls[0])), HasCode(absl::StatusCode::kUnavailable));
  const absl::Status closed = End(std::move(calls[2])), cancelled = End(std::move(calls[4]));
  EXPECT_THAT(closed, HasCode(absl::StatusCode::kCancelled));
  EXPECT_THAT(std::string(closed.message()), HasSubstr("the channel was closed"));
  EXPECT_THAT(cancelled, HasCode(absl::StatusCode::kCancelled));
  EXPECT_THAT(std::string(cancelled.message()), HasSubstr("cancelled by the caller"));
  for (const size_t i : {1u, 3u}) {
    EXPECT_THAT(End(std::move(calls[i])), HasCode(absl::StatusCode::kCancelled)) << i;
  }
}

// As by a callback of the second connection.
TEST_F(TwoPollersTest, ACallThatIsCancelledBeforeItIsCarriedIsNotSent) {
  std::vector<Call> calls;
  ASSERT_NO_FATAL_FAILURE(BeforeItIsCarried(calls, kLong, [&] { calls[2].Cancel(); }));
  EXPECT_THAT(End(std::move(calls[2])), HasCode(absl::StatusCode::kCancelled));
  AnswerAll();
  EXPECT_THAT(End(SendAct(channel_, 1)), IsOk());  // Behind what the second connection has sent.
  EXPECT_EQ(server_.requests, 3);
}

TEST_F(TwoPollersTest, ACallThatExpiresBeforeItIsCarriedIsNotSent) {
  constexpr absl::Duration kTimeout = absl::Seconds(3);
  std::vector<Call> calls;
  ASSERT_NO_FATAL_FAILURE(BeforeItIsCarried(calls, kTimeout, [&] { clients_.clock.Advance(kTimeout); }));
  const absl::Status status = End(std::move(calls[2]));
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(WasSent(status));
  AnswerAll();
  EXPECT_THAT(End(SendAct(channel_, 1)), IsOk());
  EXPECT_EQ(server_.requests, 3);
}

// The channel is destroyed while its second connection has no call. Before that closes, it carries the call
// of the first one.
TEST_F(TwoPollersTest, AConnectionThatWasIdleWhenTheChannelEndedCarriesACallThatIsHeld) {
  ASSERT_NO_FATAL_FAILURE(Connect(2));
  server_.Run([&] { Hold(); });
  auto call = SendActAgain(channel_, 1, {.timeout = kLong});
  ASSERT_TRUE(Until([&] { return server_.requests == 1; }));
  std::shared_ptr<internal::ChannelCore> second = core(1);
  poller(1).Run([&] {
    std::thread other([&] {
      channel_.reset();
      server_.Run([&] {
        server_.StopListening();
        std::exchange(held_, {})[0].first->connection->Close();
      });
    });
    other.join();
    EXPECT_TRUE(UntilOn(0, [&] { return second->calls_in_use() == 1; }));
  });
  second.reset();
  AnswerAll();
  std::optional<absl::Status> status;
  call.Then([&](const auto& reply) { status = reply.status(); });
  EXPECT_TRUE(Until([&] { return status.has_value(); }));
  EXPECT_THAT(status, testing::Optional(IsOk()));
}

TEST_F(TwoPollersTest, AConnectionThatIsMadeWhileTheChannelEndsCarriesACallThatIsHeld) {
  std::vector<transport::PeerRequest> requests;
  std::atomic<int> came{0};
  server_.on_peer = [&](transport::PeerRequest request) {
    requests.push_back(std::move(request));
    ++came;
  };
  channel_ = *Channel::Create(server_.uri, {.connections = 2, .runtime = clients_.runtime});
  Call call = SendAct(channel_, 1, {.timeout = kLong});
  ASSERT_TRUE(Until([&] { return came == 2; }));
  server_.Run([&] {
    for (transport::PeerRequest& request : std::exchange(requests, {})) server_.Accept(std::move(request));
  });
  std::shared_ptr<internal::ChannelCore> second = core(1);
  poller(1).Run([&] {
    std::thread other([&] { channel_.reset(); });
    other.join();
    EXPECT_TRUE(Eventually([&] {
      poller(1).PollOnce();
      return second->state() != ChannelState::kConnecting;
    }));
  });
  second.reset();
  EXPECT_THAT(End(std::move(call)), IsOk());
}

TEST_F(TwoPollersTest, ConnectEndsWhileThePollerOfTheOtherConnectionIsHeld) {
  const std::string uri = std::make_unique<TestServer>()->uri;  // Nothing listens there any more.
  Box<bool> holding;
  absl::Notification go_on;
  std::thread holder([&] {
    poller(1).Run([&] {
      static constexpr transport::CalledCode kCode{"the callback of"};
      const transport::Poller::CallOut out(poller(1), kCode, "a test");
      holding.Put(true);
      go_on.WaitForNotification();
    });
  });
  holding.Take();
  std::atomic<bool> over{false};
  std::thread time([&] {
    while (!over) {
      clients_.clock.Advance(absl::Milliseconds(100));
      sched_yield();
    }
  });
  const absl::Status late =
      Channel::Connect(uri,
                       {.connect_timeout = absl::Seconds(2), .connections = 2, .runtime = clients_.runtime})
          .status();
  over = true;
  go_on.Notify();
  time.join();
  holder.join();
  EXPECT_THAT(late, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(late.message()),
              AllOf(HasSubstr("not done within 2s"), HasSubstr("held by the callback of a test")));
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
