// What takes long: silence, and giving up. In virtual time, where minutes pass at once. Setup rxe_pair of
// tests/softroce.

#include <arpa/inet.h>
#include <netinet/in.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/fabric/fabric.h"
#include "tests/rpc/network/two_devices.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

// What is beside the wait itself: starting `tc`, and what is emulated slowly. The guest does not wait for the
// host, so it is the same on a busy machine.
constexpr absl::Duration kSlack = absl::Seconds(2);

void ExpectAbout(absl::Duration took, absl::Duration expected) {
  EXPECT_GE(took, expected - absl::Milliseconds(100));
  EXPECT_LE(took, expected + kSlack);
}

TEST(LongWaitsTest, ConnectingWhereNobodyAnswersTakesTheConnectTimeout) {
  FarServer far;
  const auto runtime = far.NewRuntime();
  BadLink link("loss 100%");
  const absl::Time start = absl::Now();
  const absl::Status status =
      Channel::Connect(far.server->uri, far.From(runtime, {.connect_timeout = absl::Seconds(7)})).status();
  ExpectAbout(absl::Now() - start, absl::Seconds(7));  // The connection manager's own is 102 s.
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no answer in time"));
}

class NeverAccepts : public fabric::ListenHandler {
 public:
  void OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) override {
    kept.push_back(std::move(request));
  }
  std::vector<std::unique_ptr<fabric::ConnectRequest>> kept;
};

TEST(LongWaitsTest, AServerThatNeverAcceptsTakesTheConnectTimeout) {
  FarServer far;
  const auto peer = fabric::NewVerbsFabric({.device = Environment("HAWSER_RDMA_PEER_DEVICE")}).value();
  const auto queue = peer->CreateCompletionQueue(64).value();
  NeverAccepts handler;
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  inet_pton(AF_INET, Environment("HAWSER_RDMA_PEER_ADDRESS").c_str(), &v4.sin_addr);
  const auto listener =
      peer->Listen(*queue, SocketAddress(reinterpret_cast<sockaddr*>(&v4), sizeof(v4)), handler).value();
  const auto runtime = far.NewRuntime();
  const absl::Time start = absl::Now();
  const auto channel =
      *Channel::Create("rdma://" + listener->address().ToString(),
                       far.From(runtime, {.connect_timeout = absl::Seconds(20), .backoff_min = kLong}));
  while (channel->state() == ChannelState::kConnecting && absl::Now() < start + kLong) {
    fabric::Completion none[1];
    queue->Poll(absl::MakeSpan(none));
    queue->Wait(absl::Milliseconds(100));
  }
  ExpectAbout(absl::Now() - start, absl::Seconds(20));  // The connection manager's own is 1049 s.
  EXPECT_EQ(channel->state(), ChannelState::kTransientFailure);
  EXPECT_EQ(handler.kept.size(), 1u) << "the request did not get there, so nothing was tested";
}

// A call that the server has and does not answer, on a connection over which another was answered before.
struct UnansweredCall {
  UnansweredCall() {
    EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
    far.server->probe.on_act = far.server->held.Handler();
    waiting.emplace(SendAct(channel, 2, {.timeout = kLong}));
    held.emplace(far.server->held.Take());
  }

  FarServer far;
  const std::shared_ptr<transport::Runtime> runtime = far.NewRuntime();
  const std::shared_ptr<Channel> channel = *Channel::Connect(far.server->uri, far.From(runtime));
  std::optional<decltype(SendAct(channel, 2))> waiting;
  std::optional<DeferredCall> held;
};

// With a device that waits as long as it is told: 7 tries of 67 ms.
TEST(LongWaitsTest, ACallOverALinkThatIsCutEndsWithinASecond) {
  UnansweredCall call;  // Only the next one finds the link cut.
  BadLink link("loss 100%");
  const absl::Time start = absl::Now();
  const absl::Status sent = SendAct(call.channel, 3, {.timeout = kLong}).Wait().status();
  EXPECT_THAT(sent, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(sent.message()), HasSubstr("IBV_WC_RETRY_EXC_ERR"));
  EXPECT_THAT(call.waiting->Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  const absl::Duration took = absl::Now() - start;
  EXPECT_GE(took, absl::Milliseconds(400)) << "it was not tried again";
  EXPECT_LE(took, absl::Seconds(1));
}

// Nothing is sent while an answer is waited for, so it is as with a connection that is idle.
TEST(LongWaitsTest, ACallWhoseAnswerIsCutOffEndsAfterAPing) {
  UnansweredCall call;
  const absl::Time start = absl::Now();
  BadLink link("loss 100%");
  EXPECT_THAT(call.waiting->Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_GE(absl::Now() - start, absl::Seconds(9));
  EXPECT_LE(absl::Now() - start, absl::Seconds(10) + kSlack);
}

TEST(LongWaitsTest, AnIdleConnectionWhosePeerIsSilentEndsAfterAPing) {
  FarServer far;
  const auto runtime = far.NewRuntime();
  const auto channel = *Channel::Connect(far.server->uri, far.From(runtime));
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  BadLink link("loss 100%");
  const absl::Time start = absl::Now();
  EXPECT_TRUE(Eventually([&] {
    absl::SleepFor(absl::Milliseconds(10));  // Lets the virtual clock go on.
    return channel->state() != ChannelState::kReady;
  }));
  // 10 s until the ping, and its retries; not the 5 s that a peer has to answer one that arrived.
  EXPECT_GE(absl::Now() - start, absl::Seconds(9));
  EXPECT_LE(absl::Now() - start, absl::Seconds(10) + kSlack);
}

TEST(LongWaitsTest, ALongOutageIsTriedEverMoreRarelyAndEndsWithinOneBackoff) {
  FarServer far;
  const auto runtime = far.NewRuntime();
  std::atomic<int> failures = 0;
  const auto channel = *Channel::Connect(
      far.server->uri, far.From(runtime, {.on_state_change = [&](ChannelState state, const absl::Status&) {
                                  if (state == ChannelState::kTransientFailure) ++failures;
                                }}));
  BadLink link("loss 100%");
  EXPECT_THAT(SendAct(channel, 1, {.timeout = kLong}).Wait().status(),
              HasCode(absl::StatusCode::kUnavailable));
  absl::SleepFor(absl::Minutes(10));
  // An attempt takes 5 s, and so does the longest backoff: 60 to 80 of them, but for the first few.
  EXPECT_GE(failures, 50);
  EXPECT_LE(failures, 90);
  link.Heal();
  const absl::Time start = absl::Now();
  EXPECT_THAT(SendAct(channel, 2, {.timeout = kLong, .wait_for_ready = true}).Wait(), IsOk());
  EXPECT_LE(absl::Now() - start, absl::Seconds(10) + kSlack) << "what was left of an attempt, and a backoff";
}

}  // namespace
}  // namespace hawser
