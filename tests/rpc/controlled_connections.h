#ifndef HAWSER_TESTS_RPC_CONTROLLED_CONNECTIONS_H_
#define HAWSER_TESTS_RPC_CONTROLLED_CONNECTIONS_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/rpc/client/connection_group.h"
#include "hawser/transport/connection/connection.h"
#include "tests/rpc/connections.h"
#include "tests/rpc/fake_server.h"
#include "tests/rpc/probe.h"

namespace hawser {

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

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_CONTROLLED_CONNECTIONS_H_
