// A client of servers that drain their connections ("going away").

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/rpc/internal/envelope.h"
#include "hawser/rpc/status.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/connection.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

// A server whose connections the test controls. It never closes one by itself. Call its methods on its
// poller, unless their comment allows any thread.
class FakeServer final : transport::Acceptor::Handler {
 public:
  class Client final : public transport::ConnectionObserver, public transport::RequestHandler {
   public:
    Client(FakeServer& server, int which) : number(which), server_(server) {}

    // Sends "going away", but keeps the connection open.
    void CallOff() { connection->control().GoingAway(); }
    void Answer(transport::ExchangeId id) { Respond(id, {}); }
    void RefuseUnrun(transport::ExchangeId id) { Respond(id, {absl::StatusCode::kUnavailable, true}); }

    const int number;  // From 0, in the order of their arrival.
    transport::Connection* connection = nullptr;
    transport::SessionToken session;

   private:
    void Respond(transport::ExchangeId id, const internal::ResponseEnvelope& envelope) {
      transport::OutgoingMessagePtr message = server_.poller().messages().NewOutgoing();
      if (envelope.code == absl::StatusCode::kOk) {
        message->builder().initRoot<probe::Probe::ActResults>().setNumber(42);
      } else {
        internal::EncodeStatus(absl::Status(envelope.code, "on purpose"), *message);
      }
      message->SetEnvelope(internal::Encode(envelope));
      EXPECT_THAT(connection->Respond(id, message), IsOk());
    }

    void OnReady(const transport::Handshake&) override { server_.on_ready(*this); }
    void OnClosed(const absl::Status&) override {
      connection = nullptr;
      --server_.open;
    }
    void OnRequest(transport::ExchangeId id, transport::IncomingMessagePtr, int64_t) override {
      ++server_.requests;
      server_.on_request(*this, id);
    }
    void OnBadRequest(transport::ExchangeId, const absl::Status&) override {}
    void OnCancel(transport::ExchangeId, const absl::Status&) override {}

    FakeServer& server_;
  };

  FakeServer() {
    Run([&] { acceptor_ = *transport::Acceptor::Listen(poller(), TestAddress(), *this); });
    uri = TestUri(acceptor_->address().port());
  }
  ~FakeServer() {
    Run([&] {
      acceptor_.reset();
      reverse_.reset();
      for (auto& client : clients_) {
        if (client->connection != nullptr) client->connection->Close();
      }
    });
    EXPECT_TRUE(Eventually([&] { return open == 0; }));
    Run([] {});
  }

  // Runs `code` on the poller, and waits. Any thread.
  void Run(const std::function<void()>& code) {
    const auto done = std::make_shared<transport::WaitEvent>();
    poller().Run([&code, done] {
      code();
      done->Set();
    });
    poller().WaitFor(*done);
  }
  transport::Poller& poller() { return runtime_->poller(0); }
  Client& client(size_t number) { return *clients_.at(number); }

  void StopListening() { acceptor_.reset(); }

  void AcceptReverse() {
    if (!reverse_.has_value()) return;
    auto* const client = clients_.emplace_back(std::make_unique<Client>(*this, -1)).get();
    auto made = transport::Connection::Accept(poller(), *std::exchange(reverse_, std::nullopt), {}, {},
                                              *client, nullptr);
    if (!made.ok()) return;
    client->connection = *made;
    ++open;
  }

  std::string uri;
  // Set these before a client connects.
  std::function<void(Client&)> on_ready = [](Client&) {};
  std::function<void(Client&, transport::ExchangeId)> on_request =
      [](Client& client, transport::ExchangeId id) { client.Answer(id); };
  // Any thread.
  std::atomic<int> open{0}, came{0}, requests{0}, reverse_came{0};

 private:
  void OnPeer(transport::PeerRequest request) override {
    if (request.hello().role == transport::Role::kReverse) {
      reverse_ = std::move(request);
      ++reverse_came;
      return;
    }
    auto* const client = clients_.emplace_back(std::make_unique<Client>(*this, came)).get();
    auto made =
        transport::Connection::Accept(poller(), std::move(request), {},
                                      transport::NewSessionToken(poller().environment()), *client, client);
    ASSERT_THAT(made, IsOk());
    client->connection = *made;
    ++open;
    ++came;
  }

  std::shared_ptr<transport::Runtime> runtime_ =
      *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/true);
  std::unique_ptr<transport::Acceptor> acceptor_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::optional<transport::PeerRequest> reverse_;
};

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
