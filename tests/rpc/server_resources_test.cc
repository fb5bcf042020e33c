// The pollers, connections and memory of a server.

#include <capnp/message.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

TEST(ServerTest, SharesARuntimeWithChannels) {
  const auto runtime = transport::Runtime::Create(TestScheme());
  ASSERT_THAT(runtime, IsOk());
  ServerOptions server_options;
  server_options.runtime = *runtime;
  ChannelOptions channel_options;
  channel_options.runtime = *runtime;
  {
    TestServer server(server_options);
    EXPECT_THAT(SendAct(server.Connect(channel_options), 1).Wait(), IsOk());
  }
  TestServer another(server_options);
  EXPECT_THAT(SendAct(another.Connect(channel_options), 1).Wait(), IsOk());
}

TEST(ServerTest, ARuntimeOfAnotherFabricIsRefusedOnBothSides) {
  const auto runtime = transport::Runtime::Create(TestScheme());
  ASSERT_THAT(runtime, IsOk());
  const std::string uri = TestScheme() == "tcp" ? "rdma://127.0.0.1:1" : "tcp://127.0.0.1:1";
  ServerOptions options;
  options.runtime = *runtime;
  Server server(options);
  EXPECT_THAT(server.Listen(uri).status(), HasCode(absl::StatusCode::kInvalidArgument));
  ChannelOptions channel_options;
  channel_options.runtime = *runtime;
  EXPECT_THAT(Channel::Connect(uri, channel_options).status(), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST(ServerTest, ConnectionsAreDealtOutOverThePollers) {
  TestServer server({.pollers = 3});
  std::set<std::thread::id> ids;
  absl::Mutex mutex;
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    absl::MutexLock lock(&mutex);
    ids.insert(std::this_thread::get_id());
    return absl::OkStatus();
  };
  std::vector<std::shared_ptr<Channel>> channels;
  for (int i = 0; i < 6; ++i) channels.push_back(server.Connect());
  for (const auto& channel : channels) EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  absl::MutexLock lock(&mutex);
  EXPECT_EQ(ids.size(), 3u);
}

TEST(ServerTest, OneConnectionTooManyIsRejectedWithTheReason) {
  TestServer server({.connections_max = 2});
  const auto one = server.Connect();
  auto two = server.Connect();
  const absl::Status status = Channel::Connect(server.uri, TryingOnce()).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), HasSubstr("connections_max"));
  two.reset();
  EXPECT_TRUE(Eventually([&] { return Channel::Connect(server.uri).ok(); })) << "its place is not free again";
  EXPECT_THAT(SendAct(one, 1).Wait(), IsOk());
}

// How many connections the server has refused.
uint64_t Refused(TestServer& server) {
  capnp::MallocMessageBuilder message;
  server.server.FillIn(message.initRoot<observe::wire::Snapshot>());
  uint64_t count = 0;
  for (const auto refusal : message.getRoot<observe::wire::Snapshot>().asReader().getRefusals()) {
    count += refusal.getCount();
  }
  return count;
}

TEST(ServerTest, ConnectTriesAgainWhatAServerRefusesForLackOfRoom) {
  TestServer server({.connections_max = 1});
  auto first = server.Connect();
  absl::StatusOr<std::shared_ptr<Channel>> second;
  std::thread connects([&] {
    second = Channel::Connect(server.uri, {.connect_timeout = kLong, .backoff_max = absl::Milliseconds(20)});
  });
  EXPECT_TRUE(Eventually([&] { return Refused(server) >= 3; }));
  first.reset();
  connects.join();
  ASSERT_THAT(second.status(), IsOk());
  EXPECT_THAT(SendAct(*second, 1).Wait(), IsOk());
}

TEST(ServerTest, ConnectSaysInTimeThatAServerHasNoRoom) {
  TestServer server({.connections_max = 1});
  const auto first = server.Connect();
  const absl::Status status = Channel::Connect(server.uri, {.connect_timeout = absl::Seconds(2),
                                                            .backoff_max = absl::Milliseconds(20)})
                                  .status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), HasSubstr("connections_max"));
  EXPECT_GE(Refused(server), 2u);
  EXPECT_THAT(SendAct(first, 1).Wait(), IsOk());
}

TEST(ServerTest, ConnectionsLeaveMemoryForMessages) {
  const transport::ConnectionOptions large = {.receive_buffer_bytes = 65536};  // 38 receives: 2.4 MiB.
  TestServer server({.pool = {.limit_bytes = 64 << 20}, .connection = large});
  std::vector<std::shared_ptr<Channel>> channels;
  absl::Status refused;
  while (refused.ok() && channels.size() < 100) {
    absl::StatusOr<std::shared_ptr<Channel>> channel =
        Channel::Connect(server.uri, TryingOnce({.connection = large}));
    refused = channel.status();
    if (!channel.ok()) break;
    EXPECT_THAT(SendAct(*channel, 1).Wait(), IsOk());
    channels.push_back(*std::move(channel));
  }
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("limit_bytes"));
  EXPECT_EQ(channels.size(), 18u);  // From one host: 15 sixteenths of 48 MiB.
  for (const auto& channel : channels) {
    auto call = probe::ProbeStub(channel).Echo();
    call.request().initData(100'000);
    EXPECT_THAT(call.Send().Wait(), IsOk());
  }
}

TEST(ServerTest, StatsCountConnectionsAndCalls) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  auto call = SendAct(channel, 1);
  DeferredCall deferred = server.held.Take();
  EXPECT_EQ(server.server.stats().connections, 1u);
  EXPECT_EQ(server.server.stats().calls_running, 1u);
  EXPECT_GT(server.server.stats().leased_bytes, 0u);
  deferred.Finish();
  EXPECT_THAT(call.Wait(), IsOk());
  EXPECT_TRUE(Eventually([&] { return server.server.stats().calls_running == 0; }));
  EXPECT_EQ(server.server.stats().calls_total, 1u);
}

TEST(ServerTest, StatsSayWhatThePollersOfBothSidesDecided) {
  ServerOptions options;
  options.pollers = 2;
  TestServer server(options);
  const auto channel = server.Connect();
  const PollerStats before = channel->poller_stats();  // The runtime may have served other tests.
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_THAT(SendAct(channel, i).Wait().status(), IsOk());
  }
  const PollerStats client = channel->poller_stats();
  EXPECT_EQ(client.sent.whole - before.sent.whole, 10u) << ToString(client);
  EXPECT_EQ(client.received.whole - before.received.whole, 10u) << ToString(client);
  EXPECT_EQ(client.sent.pushed + client.sent.read, before.sent.pushed + before.sent.read) << ToString(client);
  EXPECT_GT(client.turns_of_waiting_threads + client.turns_of_own_thread,
            before.turns_of_waiting_threads + before.turns_of_own_thread)
      << ToString(client);
  const ServerStats stats = server.server.stats();
  ASSERT_EQ(stats.pollers.size(), 2u);
  EXPECT_EQ(stats.pollers[0].received.whole + stats.pollers[1].received.whole, 10u);
  EXPECT_EQ(stats.pollers[0].sent.whole + stats.pollers[1].sent.whole, 10u);
  EXPECT_EQ(stats.pollers[0].turns_of_waiting_threads + stats.pollers[1].turns_of_waiting_threads, 0u);
  EXPECT_GE(stats.pollers[0].turns_of_own_thread + stats.pollers[1].turns_of_own_thread, 1u);
}

TEST(ServerTest, AServiceOwnsMemoryBeforeItCanBeCalled) {
  Server server;
  const absl::StatusOr<Buffer> buffer = server.AllocateBuffer(100, TestUri());
  ASSERT_THAT(buffer, IsOk());
  EXPECT_EQ(buffer->size_bytes(), 100u);
  const uint64_t leased_bytes = server.stats().leased_bytes;
  EXPECT_GE(leased_bytes, 100u);
  ProbeServiceImpl probe;
  EXPECT_THAT(server.AddService(&probe), IsOk()) << "it has not listened yet";
  const absl::StatusOr<std::string> uri = server.Listen(TestUri());
  ASSERT_THAT(uri, IsOk());
  const absl::StatusOr<Buffer> later = server.AllocateBuffer(100);
  ASSERT_THAT(later, IsOk());
  EXPECT_EQ(server.stats().leased_bytes, 2 * leased_bytes) << "it is not of the same pool";
}

TEST(ServerTest, AHandlerTakesMemoryForItsReplyFromTheDeviceOfItsCaller) {
  struct Pages final : ProbeServiceImpl {
    absl::Status Echo(ServerContext& context, probe::Probe::EchoParams::Reader request,
                      probe::Probe::EchoResults::Builder reply) override {
      const uint64_t leased_bytes = server->stats().leased_bytes;
      absl::StatusOr<Buffer> page = context.AllocateBuffer(request.getData().size());
      if (!page.ok()) return page.status();
      EXPECT_EQ(page->size_bytes(), request.getData().size());
      EXPECT_GT(server->stats().leased_bytes, leased_bytes) << "it is of the pool of the server";
      std::copy(request.getData().begin(), request.getData().end(), page->data());
      const uint8_t* const at = page->data();
      capnp::Orphan<capnp::Data> value = context.Attach(*std::move(page));
      EXPECT_TRUE(request.getData().size() == 0 || value.getReader().begin() == at) << "it was copied";
      reply.adoptData(std::move(value));
      return absl::OkStatus();
    }
    Server* server = nullptr;
  };
  Server pages_server;
  Pages pages;
  pages.server = &pages_server;
  ASSERT_THAT(pages_server.AddService(&pages), IsOk());
  const auto channel = *Channel::Connect(*pages_server.Listen(TestUri()));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{1} << 20}) {
    auto call = probe::ProbeStub(channel).Echo();
    memset(call.request().initData(size).begin(), 'x', size);
    const auto reply = call.Send().Wait();
    ASSERT_THAT(reply, IsOk()) << size;
    const capnp::Data::Reader data = (*reply)->getData();
    EXPECT_EQ(data.size(), size);
    EXPECT_TRUE(std::all_of(data.begin(), data.end(), [](uint8_t byte) { return byte == 'x'; }));
  }
}

TEST(ServerTest, AHandlerGetsNoMemoryBeyondTheLimit) {
  TestServer server({.pool = {.limit_bytes = 16 << 20}});
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    return context.AllocateBuffer(size_t{64} << 20).status();
  };
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait().status(), HasCode(absl::StatusCode::kResourceExhausted));
}

TEST(ServerTest, MemoryBeforeTheFirstListenWantsToKnowOfWhatDevice) {
  Server server;
  EXPECT_THAT(server.AllocateBuffer(100).status(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(server.AllocateBuffer(100, "nonsense").status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(server.AllocateBuffer(100, "auto://127.0.0.1:0"), IsOk());
  ASSERT_THAT(server.Listen("tcp://127.0.0.1:0"), IsOk());
  const absl::StatusOr<Buffer> buffer = server.AllocateBuffer(100);
  ASSERT_THAT(buffer, IsOk());
  EXPECT_EQ(buffer->size_bytes(), 100u);
}

}  // namespace
}  // namespace hawser
