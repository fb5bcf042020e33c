// A client of servers that drain their connections ("going away").

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/rpc/status.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/connection/connection.h"
#include "tests/rpc/fake_server.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

const ChannelOptions kQuick = {.backoff_min = absl::Milliseconds(1), .backoff_max = absl::Milliseconds(4)};
const CallOptions kPatient = {.timeout = kLong, .wait_for_ready = true};

TEST(GoingAwayTest, TheClientClosesAConnectionThatWasCalledOff) {
  FakeServer server;
  server.on_request = [](FakeServer::Client& client, transport::ExchangeId id) {
    client.Answer(id);
    if (client.number == 0) client.CallOff();
  };
  const auto channel = *Channel::Connect(server.uri, kQuick);
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_TRUE(Eventually([&] { return server.came == 2 && server.open == 1; }));
  EXPECT_THAT(SendAct(channel, 2, kPatient).Wait(), IsOk());
}

TEST(GoingAwayTest, TheCallsOfAConnectionThatWasCalledOffGoOn) {
  FakeServer server;
  std::vector<transport::ExchangeId> held;
  server.on_request = [&](FakeServer::Client& client, transport::ExchangeId id) {
    if (client.number != 0) return client.Answer(id);
    held.push_back(id);
    client.CallOff();
  };
  const auto channel = *Channel::Connect(server.uri, kQuick);
  auto first = SendAct(channel, 1, kPatient);
  EXPECT_TRUE(Eventually([&] { return server.came == 2; }));
  EXPECT_THAT(SendAct(channel, 2, kPatient).Wait(), IsOk());
  server.Run([&] { server.client(0).Answer(held[0]); });
  EXPECT_THAT(first.Wait(), IsOk());
  EXPECT_TRUE(Eventually([&] { return server.open == 1; }));
}

TEST(GoingAwayTest, AServerThatCallsOffAgainAndAgainDoesNotGrowTheClient) {
  FakeServer server;
  server.on_request = [](FakeServer::Client& client, transport::ExchangeId) { client.CallOff(); };
  const auto channel = *Channel::Connect(server.uri, kQuick);
  std::vector<PendingCall<probe::Probe::ActResults>> calls;
  for (int i = 0; i < 20; ++i) {
    calls.push_back(SendAct(channel, i, kPatient));
    ASSERT_TRUE(Eventually([&] { return server.came == i + 2; })) << "the client did not connect again";
  }
  EXPECT_TRUE(Eventually([&] { return server.open <= 6; })) << server.open;
  const absl::Status oldest = calls[0].Wait().status();
  EXPECT_THAT(oldest, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(WasSent(oldest));
}

TEST(GoingAwayTest, ACallThatWasRefusedUnrunIsSentAgain) {
  for (const size_t size_bytes : {0, 3000, 1 << 20}) {
    FakeServer server;
    std::vector<transport::ExchangeId> held;
    server.on_request = [&](FakeServer::Client& client, transport::ExchangeId id) {
      if (client.number != 0) return client.Answer(id);
      held.push_back(id);
      if (held.size() == 1) return;
      client.CallOff();
      client.RefuseUnrun(id);
    };
    const auto channel = *Channel::Connect(server.uri, kQuick);
    auto running = SendAct(channel, 1, kPatient);
    auto call = probe::ProbeStub(channel).Echo(kPatient);  // Not idempotent.
    const std::vector<uint8_t> bytes(size_bytes, 7);
    call.request().setData({bytes.data(), bytes.size()});
    EXPECT_THAT(call.Send().Wait().status(), IsOk()) << size_bytes;
    EXPECT_EQ(server.requests, 3);
    server.Run([&] { server.client(0).Answer(held[0]); });
    EXPECT_THAT(running.Wait(), IsOk());
  }
}

// The refusal may overtake "going away", which waits while a ping is in flight.
TEST(GoingAwayTest, ARefusalAloneCallsTheConnectionOff) {
  FakeServer server;
  server.on_request = [&](FakeServer::Client& client, transport::ExchangeId id) {
    client.number == 0 ? client.RefuseUnrun(id) : client.Answer(id);
  };
  const auto channel = *Channel::Connect(server.uri, kQuick);
  EXPECT_THAT(SendAct(channel, 1, kPatient).Wait().status(), IsOk());
  EXPECT_TRUE(Eventually([&] { return server.open == 1; }));
}

TEST(GoingAwayTest, AServerThatRefusesForEverIsAskedWithBackoffUntilTheDeadline) {
  FakeServer server;
  server.on_request = [](FakeServer::Client& client, transport::ExchangeId id) { client.RefuseUnrun(id); };
  const auto channel = *Channel::Connect(
      server.uri, {.backoff_min = absl::Milliseconds(20), .backoff_max = absl::Milliseconds(20)});
  const absl::Status status =
      SendAct(channel, 1, {.timeout = absl::Seconds(2), .wait_for_ready = true}).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_GT(server.requests, 1);
  EXPECT_LE(server.requests, 202);  // They are at least 10 ms apart.
}

// A server admits only some clients that have not sent anything. If idle clients reconnected at once, they
// would displace each other forever.
TEST(GoingAwayTest, AClientThatNeverHeardFromTheServerComesBackEverMoreRarely) {
  constexpr absl::Duration kExpiresOnceReady = absl::Milliseconds(30);  // Longer than backoff_min.
  FakeServer server;
  std::vector<std::unique_ptr<transport::Timer>> timers;
  server.on_ready = [&](FakeServer::Client& client) {
    timers.push_back(std::make_unique<transport::Timer>([&client] {
      if (client.connection != nullptr) client.connection->Close();
    }));
    transport::Poller& poller = server.poller();
    poller.timers().Set(*timers.back(), transport::After(poller.now_ns(), kExpiresOnceReady));
  };
  const absl::Time start = absl::Now();
  const auto channel = *Channel::Create(server.uri, {});
  ASSERT_TRUE(Eventually([&] { return server.came == 5; }));
  // The client waits for at least half of its backoff: 10, 20, 40 and 80 ms.
  EXPECT_GE(absl::Now() - start, 4 * kExpiresOnceReady + absl::Milliseconds(150));
  server.Run([&] { timers.clear(); });
}

// The deadline expires while the client backs off before it connects again.
TEST(GoingAwayTest, ACallThatWasOnlyRefusedWasNotSent) {
  FakeServer server;
  server.on_request = [](FakeServer::Client& client, transport::ExchangeId id) { client.RefuseUnrun(id); };
  const auto channel =
      *Channel::Connect(server.uri, {.backoff_min = absl::Hours(1), .backoff_max = absl::Hours(1)});
  const absl::Status status =
      SendAct(channel, 1, {.timeout = absl::Seconds(2), .wait_for_ready = true}).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(WasSent(status)) << status;
  EXPECT_EQ(server.requests, 1);
}

TEST(GoingAwayTest, AServerThatRefusesACallAndStaysGetsTheNextOne) {
  FakeServer server;
  server.on_request = [&](FakeServer::Client& client, transport::ExchangeId id) {
    server.requests == 1 ? client.Refuse(id) : client.Answer(id);
  };
  const auto channel = *Channel::Connect(server.uri, kQuick);
  const absl::Status status = SendActAgain(channel, 1, kPatient).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(WasSent(status)) << status;
  EXPECT_THAT(SendActAgain(channel, 1, kPatient).Wait(), IsOk());
  EXPECT_EQ(server.came, 1);
  EXPECT_EQ(server.requests, 2);
}

TEST(GoingAwayTest, ACallThatIsRefusedForGoodWhenItIsSentAgainWasSent) {
  FakeServer server;
  server.on_request = [&](FakeServer::Client& client, transport::ExchangeId id) {
    client.number == 0 ? client.connection->Close() : client.Refuse(id);
  };
  const auto channel = *Channel::Connect(server.uri, kQuick);
  const absl::Status status = SendActAgain(channel, 1, kPatient).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(WasSent(status)) << status;
  EXPECT_EQ(server.requests, 2);
}

// The server of the first connection may have run it, whatever the second one says.
TEST(GoingAwayTest, ACallThatIsRefusedWhenItIsSentAgainWasSent) {
  FakeServer server;
  server.on_request = [&](FakeServer::Client& client, transport::ExchangeId id) {
    if (client.number == 0) return client.connection->Close();
    server.StopListening();
    client.RefuseUnrun(id);
  };
  const auto channel = *Channel::Connect(server.uri, kQuick);
  const absl::Status status = SendActAgain(channel, 1, {.timeout = kLong}).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(WasSent(status)) << status;
  EXPECT_EQ(server.requests, 2);
}

TEST(GoingAwayTest, ARefusedCallThatIsCancelledEndsOnce) {
  FakeServer server;
  server.on_request = [](FakeServer::Client& client, transport::ExchangeId id) { client.RefuseUnrun(id); };
  const auto channel = *Channel::Connect(server.uri, kQuick);
  std::atomic<int> ended{0};
  std::vector<PendingCall<probe::Probe::ActResults>> calls;
  for (int i = 0; i < 100; ++i) {
    calls.push_back(SendAct(channel, i, kPatient));
    calls.back().Then([&](auto reply) {
      EXPECT_THAT(reply.status(), HasCode(absl::StatusCode::kCancelled));
      ++ended;
    });
  }
  EXPECT_TRUE(Eventually([&] { return server.requests > 50; }));
  for (auto& call : calls) call.Cancel();
  EXPECT_TRUE(Eventually([&] { return ended == 100; }));
}

// The reverse connection is not established yet.
TEST(GoingAwayTest, AServerThatGoesAwayWhileAClientConnectsIsLeft) {
  class ListenerServiceImpl final : public probe::ListenerService {
   public:
    absl::Status Notify(ServerContext&, probe::Listener::NotifyParams::Reader,
                        probe::Listener::NotifyResults::Builder) override {
      return absl::OkStatus();
    }
  } listener;
  FakeServer server;
  std::atomic<int> of_first{0};
  server.on_ready = [](FakeServer::Client& client) {
    if (client.number == 0) client.CallOff();
  };
  server.on_request = [&](FakeServer::Client& client, transport::ExchangeId id) {
    if (client.number == 0) ++of_first;
    client.Answer(id);
  };
  ChannelOptions options = kQuick;
  options.services = {&listener};
  const auto channel = *Channel::Create(server.uri, std::move(options));
  auto call = SendAct(channel, 1, kPatient);
  ASSERT_TRUE(Eventually([&] { return server.reverse_came >= 1; }));  // The next one may have arrived, too.
  // The client has received "going away" when it has acknowledged it, or has disconnected.
  ASSERT_TRUE(Eventually([&] {
    bool heard = false;
    server.Run([&] {
      transport::Connection* const first = server.client(0).connection;
      heard = first == nullptr || first->control().waiting_since_ns() == transport::kNever;
      if (heard && server.reverse_came == 1) server.AcceptReverse();
    });
    return heard;
  }));
  EXPECT_TRUE(Eventually([&] {
    server.Run([&] {
      if (server.reverse_came == 2) server.AcceptReverse();
    });
    return server.requests == 1;
  }));
  EXPECT_THAT(call.Wait().status(), IsOk());
  EXPECT_EQ(of_first, 0);
}

}  // namespace
}  // namespace hawser
