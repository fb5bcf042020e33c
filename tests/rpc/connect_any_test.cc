// Channels to several servers, of which one is enough (Channel::ConnectAny()); why a channel is not ready.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/peer_request.h"
#include "tests/rpc/connections.h"
#include "tests/rpc/fake_server.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

// Of a server that has ended.
std::string GoneUri() { return TestServer().uri; }

// A port of this machine whose connections the system accepts, and where nothing answers.
class SilentPort {
 public:
  SilentPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    uri = absl::StrCat("tcp://127.0.0.1:", ntohs(address.sin_port));
  }
  ~SilentPort() { close(socket_); }

  std::string uri;

 private:
  const int socket_;
};

TEST(ConnectAnyTest, OneThatIsDownDoesNotKeepFromTheOthers) {
  TestServer server;
  const auto channels = Channel::ConnectAny({GoneUri(), server.uri});
  ASSERT_THAT(channels.status(), IsOk());
  ASSERT_EQ(channels->size(), 2u);
  EXPECT_EQ((*channels)[1]->state(), ChannelState::kReady);
  EXPECT_THAT((*channels)[1]->why_not_ready(), IsOk());
  EXPECT_THAT(SendAct((*channels)[1], 1).Wait(), IsOk());
  ASSERT_TRUE(Eventually([&] { return !(*channels)[0]->why_not_ready().ok(); }));
  EXPECT_THAT((*channels)[0]->why_not_ready(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(TextOf((*channels)[0]->why_not_ready()),
              AllOf(HasSubstr(absl::StrCat("the channel to ", (*channels)[0]->peer_address())),
                    HasSubstr("refused")));
}

TEST(ConnectAnyTest, TheOthersAreDialedOn) {
  TestServer server;
  const std::string gone = GoneUri();
  const auto channels = Channel::ConnectAny({gone, server.uri});
  ASSERT_THAT(channels.status(), IsOk());
  ASSERT_TRUE(Eventually([&] { return !(*channels)[0]->why_not_ready().ok(); }));
  TestServer back({}, gone);
  EXPECT_TRUE(Eventually([&] { return (*channels)[0]->state() == ChannelState::kReady; }));
  EXPECT_THAT((*channels)[0]->why_not_ready(), IsOk());
}

TEST(ConnectAnyTest, OneThatDoesNotAnswerHoldsUpNothing) {
  TestServer server({}, "tcp://127.0.0.1:0");
  SilentPort silent;
  const auto channels =
      Channel::ConnectAny({silent.uri, server.uri}, {.connect_timeout = absl::InfiniteDuration()});
  ASSERT_THAT(channels.status(), IsOk());
  EXPECT_EQ((*channels)[0]->state(), ChannelState::kConnecting);
  EXPECT_THAT((*channels)[0]->why_not_ready(), IsOk());
  EXPECT_EQ((*channels)[1]->state(), ChannelState::kReady);
}

TEST(ConnectAnyTest, WithoutAnyEachReasonIsSaid) {
  std::vector<std::string> uris;
  {
    // All at a time: a port that is free again may be the next one's.
    std::vector<std::unique_ptr<TestServer>> servers;
    for (int i = 0; i < 6; ++i) {
      servers.push_back(std::make_unique<TestServer>());
      uris.push_back(servers.back()->uri);
    }
  }
  const absl::Status status = Channel::ConnectAny(uris).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(TextOf(status), AllOf(HasSubstr(absl::StrCat("connecting to ", uris[0], ": ")),
                                    HasSubstr(absl::StrCat("; connecting to ", uris[3], ": ")),
                                    Not(HasSubstr(uris[4])), HasSubstr("; and 2 servers more")));
}

TEST(ConnectAnyTest, SeveralConnectionsToEachFailTogether) {
  const absl::Status status = Channel::ConnectAny({GoneUri(), GoneUri()}, {.connections = 2}).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
}

TEST(ConnectAnyTest, WhatCannotBeIsRefusedAndNothingIsDialed) {
  FakeServer server;
  EXPECT_THAT(Channel::ConnectAny({}).status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Channel::ConnectAny({server.uri, "nonsense"}).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Channel::ConnectAny({server.uri}, {.connections = 17}).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
  // What was dialed before this would have come before its answer.
  const auto channels = Channel::ConnectAny({server.uri});
  ASSERT_THAT(channels.status(), IsOk());
  EXPECT_THAT(SendAct((*channels)[0], 1).Wait(), IsOk());
  EXPECT_EQ(server.came, 1);
}

TEST(WhyNotReadyTest, ALossSaysWhatHappened) {
  auto server = std::make_unique<TestServer>();
  const auto channel = server->Connect();
  EXPECT_THAT(channel->why_not_ready(), IsOk());
  server.reset();
  ASSERT_TRUE(Eventually([&] { return !channel->why_not_ready().ok(); }));
  EXPECT_THAT(channel->why_not_ready(), HasCode(absl::StatusCode::kUnavailable));
}

TEST(WhyNotReadyTest, OfSeveralConnectionsOneThatIsReadyIsEnough) {
  FakeServer server;
  FakeServer::Client* asked = nullptr;  // This and the next on the server's poller.
  transport::ExchangeId id = {};
  server.on_request = [&](FakeServer::Client& client, transport::ExchangeId exchange) {
    asked = &client;
    id = exchange;
  };
  const auto channel = *Channel::Connect(server.uri, TryingOnce({.connections = 2}));
  ASSERT_TRUE(Eventually([&] { return ReadyConnections(*channel) == 2; }));
  const std::shared_ptr<internal::ChannelCore> first = channel->core()->group()->Cores()[0];
  // Which of the server's is the first one: a call shows it.
  auto call = SendAct(channel, 1, {.timeout = kLong});
  ASSERT_TRUE(Eventually([&] { return server.requests == 1; }));
  const bool is_first = first->calls_in_use() == 1;
  server.Run([&] { asked->Answer(id); });
  EXPECT_THAT(call.Wait(), IsOk());
  server.Run([&] {
    server.on_peer = [](transport::PeerRequest request) {
      request.Reject(absl::ResourceExhaustedError("no room"));
    };
    server.client(static_cast<size_t>(is_first ? asked->number : 1 - asked->number)).connection->Close();
  });
  ASSERT_TRUE(Eventually([&] { return !first->why_not_ready().ok(); }));
  EXPECT_EQ(ReadyConnections(*channel), 1u);
  EXPECT_THAT(channel->why_not_ready(), IsOk());
}

TEST(WhyNotReadyTest, AChannelThatIsClosedSaysSo) {
  TestServer server;
  const auto channel = server.Connect();
  channel->Close();
  ASSERT_TRUE(Eventually([&] { return !channel->why_not_ready().ok(); }));
  EXPECT_THAT(channel->why_not_ready(), HasCode(absl::StatusCode::kCancelled));
  EXPECT_THAT(TextOf(channel->why_not_ready()), HasSubstr("the channel was closed"));
}

}  // namespace
}  // namespace hawser
