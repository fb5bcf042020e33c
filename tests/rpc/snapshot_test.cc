// What a snapshot shows of a server that works: its calls, pools, channels, and pollers that are held.

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "hawser/observe/prometheus.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"
#include "tests/rpc/taken.h"

namespace hawser {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAct[] = "probe.capnp:Probe.act";

TEST(SnapshotTest, ACallInFlightIsShownWithItsAgeAndStage) {
  ServerOptions options;
  Box<absl::AnyInvocable<void()>> queued;
  options.executor = [&](absl::AnyInvocable<void()> handler) { queued.Put(std::move(handler)); };
  TestServer server(std::move(options));
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  auto call = SendAct(channel, 1, {.timeout = absl::Seconds(30)});
  auto handler = queued.Take();
  const auto the_call = [](Taken& taken) {
    EXPECT_EQ(taken.Get().getCalls().size(), 1u);
    return taken.Get().getCalls()[0];
  };
  {
    Taken taken(server.server);
    EXPECT_STREQ(the_call(taken).getStage().cStr(), "waits for the executor");
    EXPECT_STREQ(the_call(taken).getMethod().cStr(), kAct);
    EXPECT_THAT(the_call(taken).getPeer().cStr(), HasSubstr("127.0.0.1"));
    EXPECT_GT(the_call(taken).getDeadlineInNs(), 0);
    EXPECT_EQ(taken.Method(kAct).getRunning(), 1u);
    EXPECT_EQ(taken.Get().getServer().getCallsQueued(), 1u);
    const auto slots = taken.Get().getTotals()[0];
    EXPECT_EQ(slots.getSlotsInUse(), 1u);
    EXPECT_EQ(slots.getSlotsGiven(), slots.getSlots()) << "over TCP a SEND may wait for its receive";
    EXPECT_EQ(slots.getSlotsWanted(), slots.getSlotsGiven());
    EXPECT_EQ(taken.Get().getConnections()[0].getSlotsInUse(), 1u);
  }
  handler();
  DeferredCall held = server.held.Take();
  {
    Taken taken(server.server);
    EXPECT_STREQ(the_call(taken).getStage().cStr(), "deferred");
    EXPECT_EQ(taken.Get().getServer().getCallsQueued(), 0u);
  }
  held.Finish(absl::OkStatus());
  EXPECT_THAT(call.Wait(), IsOk());
  EXPECT_EQ(Taken(server.server).Get().getCalls().size(), 0u);
}

// Also of a connection that the poller looks at last.
TEST(SnapshotTest, OfManyCallsInFlightTheOldestAreShownAndTheRestIsCounted) {
  TestServer server({.pollers = 1});
  server.probe.on_act = server.held.Handler();
  std::vector<std::shared_ptr<Channel>> channels;
  for (int i = 0; i < 8; ++i) channels.push_back(server.Connect());
  std::vector<PendingCall<probe::Probe::ActResults>> calls;
  std::string oldest;  // The peer that sends them.
  for (size_t channel : {7, 0, 1, 2, 3, 4, 5, 6}) {
    for (int i = 0; i < 32; ++i) calls.push_back(SendAct(channels[channel], 1, {.timeout = kLong}));
    ASSERT_TRUE(Eventually([&] { return server.server.stats().calls_running == calls.size(); }));
    Taken taken(server.server);
    const auto shown = taken.Get().getCalls();
    EXPECT_EQ(shown.size(), std::min<size_t>(calls.size(), 200));
    EXPECT_EQ(taken.Get().getCallsLeftOut(), calls.size() - shown.size());
    EXPECT_EQ(taken.Method(kAct).getRunning(), calls.size());
    if (channel == 7) oldest = shown[0].getPeer().cStr();
    for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(shown[i].getPeer().cStr(), oldest);
  }
}

TEST(SnapshotTest, ACallIsNamedAsInTheLog) {
  TestServer server;
  Box<std::string> ids;
  server.probe.on_act = [&](ServerContext& context, uint64_t number) {
    ids.Put(context.call_id());
    return server.held.Handler()(context, number);
  };
  const auto channel = server.Connect();
  auto call = SendAct(channel, 1);
  DeferredCall held = server.held.Take();
  const std::string id = ids.Take();
  {
    Taken taken(server.server);
    ASSERT_EQ(taken.Get().getCalls().size(), 1u);
    EXPECT_EQ(taken.Get().getCalls()[0].getId().cStr(), id);
    ASSERT_EQ(taken.Get().getConnections().size(), 1u);
    EXPECT_THAT(id, ::testing::StartsWith(absl::StrCat(taken.Get().getConnections()[0].getNumber(), ":")));
  }
  held.Finish(absl::OkStatus());
  ASSERT_THAT(call.Wait(), IsOk());
  Taken taken(server.server);
  ASSERT_GE(taken.Get().getSlowest().size(), 1u);
  EXPECT_EQ(taken.Get().getSlowest()[0].getId().cStr(), id);
}

TEST(SnapshotTest, APoolsBuffersAreShownBySize) {
  TestServer server;
  std::vector<Buffer> buffers;
  for (const size_t size : {60'000, 60'000, 60'000, 3'000'000}) {
    buffers.push_back(*server.server.AllocateBuffer(size));
  }
  Taken taken(server.server);
  std::map<uint64_t, uint64_t> leased;
  uint64_t leased_bytes = 0, registered_bytes = 0;
  const auto pool = taken.Get().getPools()[0];
  for (const auto of : pool.getClasses()) {
    leased[of.getBufferBytes()] = of.getLeased();
    leased_bytes += of.getLeased() * of.getBufferBytes();
    registered_bytes += of.getBuffers() * of.getBufferBytes();
    EXPECT_LE(of.getLeased(), of.getBuffers());
  }
  EXPECT_EQ(leased[64 << 10], 3u);
  EXPECT_EQ(leased[3 << 20], 1u);
  EXPECT_EQ(leased_bytes, pool.getLeasedBytes());
  EXPECT_EQ(registered_bytes, pool.getRegisteredBytes());
}

TEST(SnapshotTest, CallsThatWaitForASlotAreCounted) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect({.connection = {.slots = 1}});
  std::vector<PendingCall<probe::Probe::ActResults>> calls;
  for (uint64_t i = 0; i < 3; ++i) calls.push_back(SendAct(channel, i, {.timeout = absl::Seconds(30)}));
  const auto waiting = [&] {
    Taken taken(server.server);
    uint64_t of_it = 0;
    for (const auto each : taken.Get().getChannels()) of_it += each.getCallsWaiting();
    EXPECT_EQ(of_it, taken.Get().getChannelCallsWaiting());
    return of_it;
  };
  DeferredCall first = server.held.Take();
  EXPECT_TRUE(Eventually([&] { return waiting() == 2; }));
  first.Finish(absl::OkStatus());
  for (int i = 0; i < 2; ++i) server.held.Take().Finish(absl::OkStatus());
  for (auto& call : calls) EXPECT_THAT(call.Wait(), IsOk());
  EXPECT_EQ(waiting(), 0u);
}

TEST(SnapshotTest, TheChannelsOfTheProcessAreShownWithTheirReconnects) {
  TestServer server;
  auto other = std::make_unique<TestServer>();
  const std::string uri = other->uri;
  const auto channel = other->Connect({.backoff_min = absl::Milliseconds(1)});
  const auto counts_of_it = [&](Taken& taken) -> observe::wire::ChannelCounts::Reader {
    for (const auto each : taken.Get().getChannels()) {
      if (uri != each.getAddress().cStr()) continue;
      EXPECT_STREQ(each.getState().cStr(), "ready");
      return each.getCounts();
    }
    ADD_FAILURE() << "no channel to " << uri;
    return {};
  };
  Taken before(server.server);
  EXPECT_EQ(counts_of_it(before).getConnects(), 1u);
  EXPECT_EQ(counts_of_it(before).getLosses(), 0u);
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  other.reset();
  other = std::make_unique<TestServer>(ServerOptions(), uri);
  // A call may still be sent to the server that has ended.
  ASSERT_TRUE(Eventually(
      [&] { return SendAct(channel, 1, {.timeout = kLong, .wait_for_ready = true}).Wait().ok(); }));
  Taken after(server.server);
  EXPECT_EQ(counts_of_it(after).getConnects(), 2u);
  EXPECT_EQ(counts_of_it(after).getLosses(), 1u);
  EXPECT_GE(after.Get().getChannelTotals().getConnects(), before.Get().getChannelTotals().getConnects() + 1);
  channel->Close();
}

TEST(SnapshotTest, ASnapshotComesWhileAHandlerHoldsThePoller) {
  TestServer server({.pollers = 1});
  absl::Notification holds, go_on;
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    holds.Notify();
    go_on.WaitForNotification();
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  auto call = SendAct(channel, 1);
  holds.WaitForNotification();
  {
    Taken taken(server.server, Taken::Pollers::kMayBeHeld);
    EXPECT_LT(taken.took, absl::Seconds(10));
    const auto poller = taken.Get().getPollers()[0];
    EXPECT_FALSE(poller.getAnswered());
    EXPECT_THAT(poller.getHeldBy().cStr(), HasSubstr(kAct));
    EXPECT_EQ(taken.Get().getServer().getCallsRunning(), 1u);
    EXPECT_THAT(observe::ToPrometheus(taken.Get()), HasSubstr("hawser_poller_held{poller=\"tcp 0\"} 1"));
  }
  go_on.Notify();
  EXPECT_THAT(call.Wait(), IsOk());
  EXPECT_TRUE(Eventually(
      [&] { return Taken(server.server, Taken::Pollers::kMayBeHeld).Get().getPollers()[0].getAnswered(); }));
}

// The poller is held when it has looked at some connections.
TEST(SnapshotTest, OnlyOneSnapshotWaitsForAPollerThatIsHeldInBetween) {
  TestServer server({.pollers = 1});
  std::vector<std::shared_ptr<Channel>> channels;
  for (int i = 0; i < 450; ++i) channels.push_back(server.Connect());
  absl::Notification holds[2], go_on[2];
  server.probe.on_act = [&](ServerContext&, uint64_t number) {
    holds[number].Notify();
    go_on[number].WaitForNotification();
    return absl::OkStatus();
  };
  auto first = SendAct(channels[0], 0);
  holds[0].WaitForNotification();
  auto second = SendAct(channels[1], 1);
  Taken(server.server, Taken::Pollers::kMayBeHeld);  // The poller begins when the first handler returns.
  go_on[0].Notify();
  holds[1].WaitForNotification();
  Taken(server.server, Taken::Pollers::kMayBeHeld);
  // Most of a few, because another program may have the core during one. A snapshot that waits takes a
  // second.
  int quick = 0;
  for (int i = 0; i < 5; ++i) {
    if (Taken(server.server, Taken::Pollers::kMayBeHeld).took < absl::Milliseconds(500)) ++quick;
  }
  EXPECT_GE(quick, 3) << "of 5 snapshots";
  go_on[1].Notify();
  EXPECT_THAT(first.Wait(), IsOk());
  EXPECT_THAT(second.Wait(), IsOk());
}

}  // namespace
}  // namespace hawser
