// Channels to several servers, of which one is enough (Channel::ConnectAny()); why a channel is not ready.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/tests/testing/status_matchers.h"
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
  for (int i = 0; i < 6; ++i) uris.push_back(GoneUri());
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
  TestServer server;
  EXPECT_THAT(Channel::ConnectAny({}).status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Channel::ConnectAny({server.uri, "nonsense"}).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Channel::ConnectAny({server.uri}, {.connections = 17}).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(server.server.stats().connections, 0u);
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
  TestServer server({.connections_max = 1});
  const auto channel = Channel::Connect(server.uri, TryingOnce({.connections = 2}));
  ASSERT_THAT(channel.status(), IsOk());
  EXPECT_THAT((*channel)->why_not_ready(), IsOk());
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
