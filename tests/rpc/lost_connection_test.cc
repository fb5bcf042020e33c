// What a channel with several connections does when one of them is lost.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "hawser/rpc/status.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/poller/poller.h"
#include "tests/rpc/connections.h"
#include "tests/rpc/controlled_connections.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/fake_server.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::ElementsAre;

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
  // There is one call, which the server holds. When this returns, it has it again, over another connection.
  void LoseTheConnectionOfTheCall() {
    ASSERT_TRUE(Eventually([&] { return server_.requests == 1; }));
    CutFirstHeld();
    ASSERT_TRUE(Eventually([&] { return server_.requests == 2; }));
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
  ASSERT_NO_FATAL_FAILURE(LoseTheConnectionOfTheCall());
  AnswerHeld();
  EXPECT_THAT(call.Wait(), IsOk());
  EXPECT_EQ(server_.came, 2);
}

TEST_F(LossTest, ACallThatAnotherConnectionCarriesCanBeCancelled) {
  Hold();
  ASSERT_NO_FATAL_FAILURE(Connect(2));
  auto call = SendActAgain(channel_, 1, {.timeout = kLong});
  ASSERT_NO_FATAL_FAILURE(LoseTheConnectionOfTheCall());
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
    ASSERT_NO_FATAL_FAILURE(LoseTheConnectionOfTheCall());
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

}  // namespace
}  // namespace hawser
