#ifndef HAWSER_TESTS_RPC_FAKE_SERVER_H_
#define HAWSER_TESTS_RPC_FAKE_SERVER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hawser/rpc/status.h"
#include "hawser/rpc/wire/envelope.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {

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
    // The same, and it stays.
    void Refuse(transport::ExchangeId id) { Respond(id, {absl::StatusCode::kUnavailable}, /*refused=*/true); }

    const int number;  // From 0, in the order of their arrival.
    transport::Connection* connection = nullptr;
    transport::SessionToken session;

   private:
    void Respond(transport::ExchangeId id, const internal::ResponseEnvelope& envelope, bool refused = false) {
      transport::OutgoingMessagePtr message = server_.poller().messages().NewOutgoing();
      if (envelope.code == absl::StatusCode::kOk) {
        message->builder().initRoot<probe::Probe::ActResults>().setNumber(42);
      } else {
        internal::EncodeStatus(absl::Status(envelope.code, "on purpose"), *message, refused);
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
  const std::shared_ptr<transport::Runtime>& runtime() const { return runtime_; }
  transport::Poller& poller() { return runtime_->poller(0); }
  Client& client(size_t number) { return *clients_.at(number); }

  void StopListening() { acceptor_.reset(); }

  void Accept(transport::PeerRequest request) {
    auto* const client = clients_.emplace_back(std::make_unique<Client>(*this, came)).get();
    auto made =
        transport::Connection::Accept(poller(), std::move(request), {},
                                      transport::NewSessionToken(poller().environment()), *client, client);
    ASSERT_THAT(made, IsOk());
    client->connection = *made;
    ++open;
    ++came;
  }

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
  std::function<void(transport::PeerRequest)> on_peer = [this](transport::PeerRequest request) {
    Accept(std::move(request));
  };
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
    on_peer(std::move(request));
  }

  std::shared_ptr<transport::Runtime> runtime_ =
      *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/true);
  std::unique_ptr<transport::Acceptor> acceptor_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::optional<transport::PeerRequest> reverse_;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_FAKE_SERVER_H_
