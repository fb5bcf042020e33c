// A machine that loses its power, is frozen, or has its cable cut, and what the other one makes of it. Each
// test is one of two guests (dying_machine_test.sh), and says by files how far it is.

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/network/leases.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kPort = 7470;
constexpr uint64_t kHold = 1;    // act() with it is not answered.
constexpr uint64_t kAnswer = 2;  // It is.
constexpr int kHeld = 8;         // Calls of the client that dies.

// Connections that a machine that is slow may lose by itself.
constexpr int kTriesMax = 5;

// How soon a silent peer of an idle connection is known: after both.
constexpr absl::Duration kInterval = absl::Seconds(1);
constexpr absl::Duration kTimeout = absl::Seconds(1);
const transport::ConnectionOptions kImpatient = {.keepalive_interval = kInterval,
                                                 .keepalive_timeout = kTimeout};

// 7 tries of 67 ms, which are 4 times as long on some devices, and what two emulated machines need on top
// where other programs leave them little of the processors.
constexpr absl::Duration kSoon = absl::Seconds(20);

std::string Address(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) std::abort();
  return absl::StrCat("rdma://", value, ":", kPort);
}

// Tells the script that breaks the other machine how far this one is.
void Say(const std::string& word) {
  std::ofstream(absl::StrCat(std::getenv("HAWSER_RUN"), "/", word)) << word;
}

absl::Status Echo(const std::shared_ptr<Channel>& channel, size_t size, bool wait_for_ready) {
  auto call = probe::ProbeStub(channel).Echo({.timeout = kLong, .wait_for_ready = wait_for_ready});
  const std::string data(size, 'x');
  call.request().setData({reinterpret_cast<const uint8_t*>(data.data()), data.size()});
  const auto reply = call.Send().Wait();
  EXPECT_TRUE(!reply.ok() || (*reply)->getData().size() == size);
  return reply.status();
}

// The result of `call`, which is made again as long as its connection is lost.
absl::Status InTheEnd(const std::function<absl::Status()>& call) {
  absl::Status status = call();
  for (int tries = 1; absl::IsUnavailable(status) && tries < kTriesMax; ++tries) status = call();
  return status;
}

// ---- The machines that die

TEST(DyingMachine, Serves) {
  TestServer server({.connection = kImpatient}, Address("HAWSER_RDMA_ADDRESS"));
  server.probe.on_act = [&](ServerContext& context, uint64_t number) {
    return number == kHold ? server.held.Handler()(context, number) : absl::OkStatus();
  };
  EXPECT_THAT(server.server.Wait(), IsOk());  // Does not end.
}

TEST(DyingMachine, Calls) {
  const auto channel = *Channel::Create(
      Address("HAWSER_RDMA_PEER_ADDRESS"),
      {.backoff_max = kInterval, .on_state_change = [](ChannelState, const absl::Status& why) {
         if (!why.ok()) std::cerr << why << std::endl;
       }});
  // Eight are under way at any time, also if the first connection of a machine that is slow does not last.
  std::function<void()> hold = [&] {
    SendAct(channel, kHold, {.timeout = absl::Hours(1), .wait_for_ready = true}).Then([&](auto) { hold(); });
  };
  for (int i = 0; i < kHeld; ++i) hold();
  while (true) Echo(channel, 1 << 20, true).IgnoreError();
}

// ---- Those that see it

class Client {
 public:
  Client() {
    runtime = transport::Runtime::Create("rdma").value();
    channel = *Channel::Create(Address("HAWSER_RDMA_PEER_ADDRESS"), {.connect_timeout = absl::Seconds(1),
                                                                     .backoff_max = absl::Milliseconds(200),
                                                                     .connection = kImpatient,
                                                                     .runtime = runtime});
    ExpectThere();
  }

  // Waits until the server answers.
  void ExpectThere() {
    EXPECT_THAT(
        InTheEnd([&] {
          return SendAct(channel, kAnswer, {.timeout = kLong, .wait_for_ready = true}).Wait().status();
        }),
        IsOk());
    EXPECT_THAT(InTheEnd([&] { return Echo(channel, 1 << 20, true); }), IsOk());
  }

  // Calls with `size` bytes until one fails, while another one waits for an answer that does not come.
  void ExpectLossWhileCalling(size_t size, const std::string& word) {
    auto held = SendAct(channel, kHold, {.timeout = absl::Hours(1)});
    Say(word);
    absl::Status status;
    absl::Time start;
    for (status = absl::OkStatus(); status.ok(); status = Echo(channel, size, false)) start = absl::Now();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
    // The server may have taken the request, and be gone before its answer: then only the ping tells.
    EXPECT_LE(absl::Now() - start, kInterval + kTimeout + kSoon);
    EXPECT_THAT(std::string(status.message()), AnyOf(HasSubstr("IBV_WC_RETRY_EXC_ERR"), HasSubstr("a ping")));
    EXPECT_THAT(held.Wait().status(), HasCode(absl::StatusCode::kUnavailable));
    EXPECT_LE(absl::Now() - start, kInterval + kTimeout + kSoon) << "the other call was not told at once";
  }

  // Expects the loss of a connection that is not in use.
  void ExpectLossWhileIdle(const std::string& word) {
    ASSERT_EQ(channel->state(), ChannelState::kReady);
    Say(word);
    EXPECT_TRUE(Eventually([&] { return channel->state() != ChannelState::kReady; }));
  }

  std::shared_ptr<transport::Runtime> runtime;
  std::shared_ptr<Channel> channel;
};

TEST(DyingServerTest, IsNoticedAndMissedByNobodyOnceItIsBack) {
  Client client;
  client.ExpectLossWhileCalling(100, "calling");  // It is frozen,
  Say("lost");                                    // and goes on.
  client.ExpectThere();

  client.ExpectLossWhileIdle("idle");  // The link is cut,
  Say("lost_idle");                    // and mended.
  client.ExpectThere();

  client.ExpectLossWhileCalling(1 << 20, "calling_much");  // Likewise, with READs under way.
  Say("lost_much");
  client.ExpectThere();

  client.ExpectLossWhileCalling(100, "calling_for_the_last_time");  // Its power goes.
  const absl::Status late =
      SendAct(client.channel, kAnswer, {.timeout = absl::Seconds(1), .wait_for_ready = true}).Wait().status();
  EXPECT_THAT(late, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(WasSent(late));
  client.channel.reset();
  ExpectAllHome(*client.runtime);
}

TEST(DyingClientTest, LeavesNothingBehind) {
  const std::shared_ptr<transport::Runtime> runtime = transport::Runtime::Create("rdma").value();
  TestServer server({.runtime = runtime, .connection = kImpatient}, Address("HAWSER_RDMA_ADDRESS"));
  server.probe.on_act = server.held.Handler();
  std::vector<DeferredCall> held;
  while (std::count_if(held.begin(), held.end(), [](auto& call) { return !call.context().cancelled(); }) <
         kHeld) {
    held.push_back(server.held.Take());
  }
  EXPECT_GE(server.server.stats().connections, 1u);
  EXPECT_GE(server.server.stats().calls_running, static_cast<uint64_t>(kHeld));
  Say("calling");  // Its power goes.
  EXPECT_TRUE(Eventually([&] { return server.server.stats().connections == 0; }));
  for (const DeferredCall& call : held) EXPECT_TRUE(call.context().cancelled());
  held.clear();
  server.held.DropAll();
  EXPECT_TRUE(Eventually([&] { return server.server.stats().calls_running == 0; }));
  ExpectAllHome(*runtime);
}

}  // namespace
}  // namespace hawser
