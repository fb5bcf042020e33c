// Calls over a link that delays, loses, doubles, reorders and corrupts what is sent over it, or is out for a
// while. Setup rxe_pair of tests/softroce.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/network/leases.h"
#include "tests/rpc/network/two_devices.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// `size` bytes, different for each seed and at each place.
std::string Pattern(size_t size, uint32_t seed) {
  std::string bytes(size, '\0');
  uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
  for (char& byte : bytes) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<char>(x >> 56);
  }
  return bytes;
}

PendingCall<probe::Probe::EchoResults> SendEcho(const std::shared_ptr<Channel>& channel,
                                                absl::string_view data, const CallOptions& options = {}) {
  auto call = probe::ProbeStub(channel).Echo(options);
  call.request().setData({reinterpret_cast<const uint8_t*>(data.data()), data.size()});
  return call.Send();
}

// Sends `data` and expects it back, as it was.
void ExpectEcho(const std::shared_ptr<Channel>& channel, const std::string& data) {
  const auto reply = SendEcho(channel, data, {.timeout = kLong}).Wait();
  ASSERT_THAT(reply.status(), IsOk());
  const auto back = (*reply)->getData();
  // Not EXPECT_EQ(), which would print all of it.
  EXPECT_TRUE(data == absl::string_view(reinterpret_cast<const char*>(back.begin()), back.size()))
      << "what came back of " << data.size() << " bytes is not what was sent";
}

constexpr int kTriesMax = 5;

// On a link that is bad, not cut, a machine that is slow uses up its 470 ms of retries now and then. Then the
// connection is lost, the call says so, and is good the next time.
void ExpectEchoInTheEnd(const std::shared_ptr<Channel>& channel, const std::string& data) {
  for (int tries = 1;; ++tries) {
    const auto reply = SendEcho(channel, data, {.timeout = kLong, .wait_for_ready = true}).Wait();
    if (absl::IsUnavailable(reply.status()) && tries < kTriesMax) continue;
    ASSERT_THAT(reply.status(), IsOk());
    const auto back = (*reply)->getData();
    EXPECT_TRUE(data == absl::string_view(reinterpret_cast<const char*>(back.begin()), back.size()))
        << "what came back of " << data.size() << " bytes is not what was sent";
    return;
  }
}

// The channel is gone.
void ExpectAllHomeAtBothEnds(transport::Runtime& client, FarServer& far, transport::Runtime& server) {
  EXPECT_TRUE(Eventually([&] { return far.server->server.stats().connections == 0; }));
  ExpectAllHome(client);
  ExpectAllHome(server);
}

// How often a channel lost its connection.
struct Losses {
  std::atomic<int> count = 0;
  absl::Mutex mutex;
  absl::Status last ABSL_GUARDED_BY(mutex);

  std::function<void(ChannelState, const absl::Status&)> Watch() {
    return [this](ChannelState state, const absl::Status& why) {
      if (state == ChannelState::kReady || state == ChannelState::kClosed) return;
      absl::MutexLock lock(&mutex);
      if (count++ == 0) last = why;
    };
  }
};

struct Badness {
  const char* name;
  const char* how;   // tc-netem(8)
  int large_rounds;  // 1 MiB each way; fewer where a round takes seconds.
};

class BadLinkTest : public ::testing::TestWithParam<Badness> {};

INSTANTIATE_TEST_SUITE_P(
    Badnesses, BadLinkTest,
    ::testing::Values(Badness{"Delay", "delay 2ms 1ms", 1}, Badness{"LossOf1Percent", "loss 1%", 2},
                      Badness{"LossOf10Percent", "loss 10%", 1}, Badness{"Duplicates", "duplicate 10%", 2},
                      Badness{"Reordering", "delay 1ms reorder 75% 50%", 2},
                      Badness{"Corruption", "corrupt 2%", 2},
                      Badness{"AllAtOnce", "delay 500us 200us loss 1% duplicate 1% corrupt 1%", 1}),
    [](const auto& each) { return std::string(each.param.name); });

// Many at once, in one SEND, or READ where they do not fit into it.
void ExpectManySmall(const std::shared_ptr<Channel>& channel, uint32_t seed) {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::string> data;
    std::vector<PendingCall<probe::Probe::EchoResults>> calls;
    for (size_t size : {1, 64, 1000, 3000, 5000, 20'000}) {
      for (int i = 0; i < 4; ++i) {
        data.push_back(Pattern(size, ++seed));
        calls.push_back(SendEcho(channel, data.back(), {.timeout = kLong}));
      }
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      const auto reply = calls[i].Wait();
      if (absl::IsUnavailable(reply.status())) {
        ExpectEchoInTheEnd(channel, data[i]);
        continue;
      }
      ASSERT_THAT(reply.status(), IsOk()) << "round " << round << ", call " << i;
      const auto back = (*reply)->getData();
      EXPECT_TRUE(data[i] == absl::string_view(reinterpret_cast<const char*>(back.begin()), back.size()))
          << "call " << i;
    }
  }
}

TEST_P(BadLinkTest, EveryReplyIsRight) {
  const auto far_runtime = FarServer::NewFarRuntime();
  FarServer far({.runtime = far_runtime});
  Losses losses;
  const auto runtime = far.NewRuntime();
  {
    auto channel = Channel::Connect(far.server->uri, far.From(runtime, {.on_state_change = losses.Watch()}));
    ASSERT_THAT(channel.status(), IsOk());
    BadLink link(GetParam().how);
    const uint64_t sent_before = Counter(far.near_device, "sent_pkts");
    ExpectManySmall(*channel, 100);
    for (int round = 0; round < GetParam().large_rounds; ++round) {
      ExpectEchoInTheEnd(*channel, Pattern(1 << 20, 200u + static_cast<uint32_t>(round)));
    }
    EXPECT_GT(Counter(far.near_device, "sent_pkts"), sent_before + 256)
        << "nothing crossed the link, so nothing was tested";
    EXPECT_LE(losses.count, 2 * kTriesMax);  // Each is told twice: lost, and connecting.
  }
  ExpectAllHomeAtBothEnds(*runtime, far, *far_runtime);
}

TEST(OutageTest, OneThatIsShorterThanTheRetriesIsOnlyADelay) {
  FarServer far;
  Losses losses;
  // So long that no slow machine uses them up: 7 times 268 ms.
  const auto runtime = far.NewRuntime({.ack_timeout = 16});
  auto channel = Channel::Connect(far.server->uri, far.From(runtime, {.on_state_change = losses.Watch()}));
  ASSERT_THAT(channel.status(), IsOk());
  ExpectEcho(*channel, Pattern(100, 1));
  const uint64_t retries = Counter(far.near_device, "completer_retry_err");
  BadLink link("loss 100%");
  const std::string data = Pattern(3000, 2);
  auto call = SendEcho(*channel, data, {.timeout = kLong});
  EXPECT_TRUE(Eventually([&] { return Counter(far.near_device, "completer_retry_err") > retries; }));
  link.Heal();
  EXPECT_THAT(call.Wait().status(), IsOk());
  ExpectEcho(*channel, Pattern(1 << 20, 3));
  EXPECT_EQ(losses.count, 0);
}

// `size`: of what is on its way when the link goes.
void OutageThatIsLongerThanTheRetries(size_t size) {
  // What the server holds for a client that is gone it gives back when the client does not answer a ping.
  const auto far_runtime = FarServer::NewFarRuntime();
  FarServer far(
      {.runtime = far_runtime,
       .connection = {.keepalive_interval = absl::Seconds(2), .keepalive_timeout = absl::Seconds(2)}});
  Losses losses;
  const auto runtime = far.NewRuntime();
  {
    auto channel = Channel::Connect(
        far.server->uri, far.From(runtime, {.connect_timeout = absl::Seconds(2),
                                            .backoff_max = absl::Milliseconds(100),
                                            .on_state_change = losses.Watch(),
                                            .connection = {.keepalive_interval = absl::Seconds(2),
                                                           .keepalive_timeout = absl::Seconds(2)}}));
    ASSERT_THAT(channel.status(), IsOk());
    ExpectEcho(*channel, Pattern(size, 1));
    BadLink link("loss 100%");
    const absl::Time start = absl::Now();
    const absl::Status lost = SendEcho(*channel, Pattern(size, 2), {.timeout = kLong}).Wait().status();
    const absl::Duration took = absl::Now() - start;
    EXPECT_THAT(lost, HasCode(absl::StatusCode::kUnavailable));
    EXPECT_TRUE(WasSent(lost));
    EXPECT_THAT(std::string(lost.message()),
                AllOf(HasSubstr(far.server->uri), HasSubstr("IBV_WC_RETRY_EXC_ERR"),
                      HasSubstr("the network is cut")));
    EXPECT_GE(took, absl::Milliseconds(200)) << "it was not tried again: 7 tries of 67 ms";
    EXPECT_LE(took, absl::Seconds(5));
    // While it is out: not sent, so it says so; nothing waits for longer than its deadline.
    EXPECT_TRUE(Eventually([&] { return (*channel)->state() == ChannelState::kTransientFailure; }));
    const absl::Status late =
        SendAct(*channel, 1, {.timeout = kExpires, .wait_for_ready = true}).Wait().status();
    EXPECT_THAT(late, HasCode(absl::StatusCode::kDeadlineExceeded));
    EXPECT_FALSE(WasSent(late));
    link.Heal();
    EXPECT_THAT(SendAct(*channel, 2, {.timeout = kLong, .wait_for_ready = true}).Wait().status(), IsOk())
        << "the channel did not come back";
    ExpectEchoInTheEnd(*channel, Pattern(1 << 20, 3));
    EXPECT_TRUE(Eventually([&] { return far.server->server.stats().connections == 1; }))
        << "the server keeps the connection that is no more";
  }
  ExpectAllHomeAtBothEnds(*runtime, far, *far_runtime);
}

TEST(OutageTest, OneThatIsLongerThanTheRetriesEndsSmallCallsWithUnavailable) {
  OutageThatIsLongerThanTheRetries(100);
}

TEST(OutageTest, OneThatIsLongerThanTheRetriesEndsLargeCallsWithUnavailable) {
  OutageThatIsLongerThanTheRetries(1 << 20);
}

// Both sides have the other's memory in use: the client's request is READ while its packets get lost.
TEST(OutageTest, OneInTheMiddleOfAReadEndsTheCallAndGivesEverythingBack) {
  const auto far_runtime = FarServer::NewFarRuntime();
  const ServerOptions impatient = {
      .runtime = far_runtime,
      .connection = {.keepalive_interval = absl::Seconds(2), .keepalive_timeout = absl::Seconds(2)}};
  FarServer far(impatient);
  const auto runtime = far.NewRuntime();
  {
    auto channel =
        Channel::Connect(far.server->uri, far.From(runtime, {.connect_timeout = absl::Seconds(2),
                                                             .backoff_max = absl::Milliseconds(100),
                                                             .connection = impatient.connection}));
    ASSERT_THAT(channel.status(), IsOk());
    BadLink link("rate 100mbit");  // 16 MiB take more than a second.
    const uint64_t before = Counter(far.near_device, "sent_pkts");
    auto call = SendEcho(*channel, Pattern(16 << 20, 1), {.timeout = kLong});
    EXPECT_TRUE(Eventually([&] { return Counter(far.near_device, "sent_pkts") > before + 100; }));
    link.Become("loss 100%");
    const absl::Status lost = call.Wait().status();
    EXPECT_THAT(lost, HasCode(absl::StatusCode::kUnavailable));
    EXPECT_TRUE(WasSent(lost));
    link.Heal();
    EXPECT_THAT(SendAct(*channel, 2, {.timeout = kLong, .wait_for_ready = true}).Wait().status(), IsOk());
    ExpectEchoInTheEnd(*channel, Pattern(1 << 20, 3));
    EXPECT_TRUE(Eventually([&] { return far.server->server.stats().connections == 1; }));
  }
  ExpectAllHomeAtBothEnds(*runtime, far, *far_runtime);
}

// The connection manager's messages get lost, too.
TEST(BadLinkConnectTest, AChannelConnectsOverALinkThatLosesATenth) {
  FarServer far;
  const auto runtime = far.NewRuntime();
  BadLink link("loss 10%");
  for (uint32_t i = 0; i < 3; ++i) {
    const auto channel = *Channel::Create(
        far.server->uri,
        far.From(runtime, {.connect_timeout = absl::Seconds(2), .backoff_max = absl::Milliseconds(50)}));
    ASSERT_THAT(SendAct(channel, i, {.timeout = kLong, .wait_for_ready = true}).Wait().status(), IsOk());
    ExpectEcho(channel, Pattern(20'000, i));
  }
}

}  // namespace
}  // namespace hawser
