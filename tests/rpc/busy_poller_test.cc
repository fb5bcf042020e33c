// A handler or callback holds its poller for long. The peer is told so, and nothing runs twice.

#include <capnp/message.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/client/session_probe.h"
#include "hawser/rpc/log.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/uri.h"
#include "tests/rpc/cable.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::shared_ptr<transport::Runtime> NewRuntime() {
  return *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/true);
}

class BusyPollerTest : public ::testing::Test {
 protected:
  BusyPollerTest() {
    server_.probe.on_act = [this](ServerContext&, uint64_t number) {
      if (number != kHold) return absl::OkStatus();
      holds_.Put(true);
      go_on_.WaitForNotificationWithTimeout(kLong / 2);
      return absl::OkStatus();
    };
  }
  ~BusyPollerTest() override {
    if (!go_on_.HasBeenNotified()) go_on_.Notify();
  }

  static constexpr uint64_t kHold = 1;  // act(kHold) holds its poller until go_on_.

  Box<bool> holds_;
  absl::Notification go_on_;
  TestServer server_{{.pollers = 2}};
  Cable cable_{server_.uri};
  ClockedRuntime clients_{cable_.NewFabric()};
};

// The server's answer to a probe of `session`.
absl::Status Probe(const SocketAddress& address, const transport::SessionToken& session) {
  struct Owner final : internal::SessionProbe::Owner {
    void OnProbeAnswer(const absl::Status& answer) override { answers.Put(answer); }
    void OnProbeEnded() override { gone.Put(true); }
    Box<absl::Status> answers;
    Box<bool> gone;
  } owner;
  const auto runtime = NewRuntime();
  transport::Poller& poller = runtime->poller(0);
  poller.AddAsyncInterest(1);
  internal::SessionProbe probe(poller, owner);
  poller.Run([&] { EXPECT_THAT(probe.Dial(address, {}, session, kLong, {}), IsOk()); });
  owner.gone.Take();
  return owner.answers.Take();
}

class NoListener final : public probe::ListenerService {
  absl::Status Notify(ServerContext&, probe::Listener::NotifyParams::Reader,
                      probe::Listener::NotifyResults::Builder) override {
    return absl::OkStatus();
  }
};

class BusyServerTest : public BusyPollerTest, public ::testing::WithParamInterface<bool> {};

// The silence is several times as long as the time in which a dead peer is detected. The client sends each
// probe on a connection of its own, which the cable counts. The server answers them.
TEST_P(BusyServerTest, ACallRunsOnceHoweverLongItsHandlerHolds) {
  NoListener listener;
  ChannelOptions options{.runtime = clients_.get()};
  if (GetParam()) options.services = {&listener};
  const auto channel = *cable_.Connect(std::move(options));
  const int before = cable_.connections();
  auto call = SendActAgain(channel, kHold, {.timeout = absl::Minutes(2)});
  holds_.Take();
  clients_.PassBesideABusyServer(absl::Minutes(1), GetParam() ? 2 : 1);
  EXPECT_GE(cable_.connections(), before + 2);
  go_on_.Notify();
  EXPECT_THAT(call.Wait().status(), IsOk());
  EXPECT_EQ(server_.probe.runs, 1);
  EXPECT_EQ(channel->state(), ChannelState::kReady);
}

INSTANTIATE_TEST_SUITE_P(OfferingServices, BusyServerTest, ::testing::Bool());

TEST_F(BusyPollerTest, AServerThatIsHeldRightAfterACancelIsAskedFirst) {
  // The client waits for the answer to the cancellation long before the first ping.
  const transport::ConnectionOptions pings_late = {.keepalive_interval = absl::Minutes(5),
                                                   .keepalive_timeout = absl::Seconds(2)};
  const auto channel = *cable_.Connect({.connection = pings_late, .runtime = clients_.get()});
  // Until it has heard of the server, the client waits for the interval, too.
  EXPECT_THAT(SendAct(channel, 2).Wait().status(), IsOk());
  const int before = cable_.connections();
  auto call = SendActAgain(channel, kHold, {.timeout = absl::Minutes(2)});
  holds_.Take();
  { auto dropped = SendAct(channel, 2); }
  clients_.PassBesideABusyServer(absl::Seconds(10), 1);
  EXPECT_GT(cable_.connections(), before);
  go_on_.Notify();
  EXPECT_THAT(call.Wait().status(), IsOk());
  EXPECT_EQ(holds_.size(), 0u) << "the connection was lost, and the call sent again";
  EXPECT_EQ(channel->state(), ChannelState::kReady);
}

TEST_F(BusyPollerTest, AServerThatIsBusyForTooLongIsTakenForDead) {
  Box<absl::Status> ended;  // Before the channel, which may end the call.
  const auto channel = server_.Connect({.backoff_min = absl::Hours(1),
                                        .backoff_max = absl::Hours(1),
                                        .connection = {.keepalive_interval = absl::Seconds(10),
                                                       .keepalive_timeout = absl::Seconds(5),
                                                       .busy_timeout = absl::Seconds(20)},
                                        .runtime = clients_.get()});
  auto call = SendAct(channel, kHold, {.timeout = absl::Minutes(2)});
  call.Then([&](const auto& reply) { ended.Put(reply.status()); });
  holds_.Take();
  for (absl::Duration passed; passed < absl::Minutes(1) && ended.size() == 0; passed += absl::Seconds(2)) {
    clients_.PassBesideABusyServer(absl::Seconds(2), 1);
  }
  ASSERT_EQ(ended.size(), 1u);
  const absl::Status status = ended.Take();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(status.message()), HasSubstr("ConnectionOptions::busy_timeout"));
}

TEST_F(BusyPollerTest, TheDeadlinesTextNamesTheHandlerThatHolds) {
  const auto channel = server_.Connect({.runtime = clients_.get()});
  auto call = SendAct(channel, kHold, {.timeout = kLong});
  holds_.Take();
  clients_.PassBesideABusyServer(kLong, 1);
  const absl::Status status = call.Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(status.message()), HasSubstr("held for"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("by the handler of probe.capnp:Probe.act"));
}

TEST(SharedPollerTest, AClientIsNotToldTheNamesOfOthersHandlers) {
  ClockedRuntime clients;
  const auto runtime = *transport::Runtime::Create(TestScheme(), {.pollers = 1});
  absl::Notification go_on;
  Box<bool> holds;
  TestServer holding({.runtime = runtime});
  holding.probe.on_act = [&](ServerContext&, uint64_t) {
    holds.Put(true);
    go_on.WaitForNotificationWithTimeout(kLong / 2);
    return absl::OkStatus();
  };
  NoListener listener;
  Server other({.runtime = runtime});
  ASSERT_THAT(other.AddService(&listener), IsOk());
  const auto channel = *Channel::Connect(*other.Listen(TestUri()), {.runtime = clients.get()});
  auto held = SendAct(holding.Connect(), 1, {.timeout = kLong});
  holds.Take();
  auto call = probe::ListenerStub(channel).Notify({.timeout = kLong}).Send();
  clients.PassBesideABusyServer(kLong, 1);
  const auto status = call.Wait().status();
  go_on.Notify();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(status.message()), HasSubstr("by other code of its process"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("Probe.act")));
}

TEST_F(BusyPollerTest, TheLogNamesAHandlerThatHoldsForSeconds) {
  Box<std::string> lines;
  SetLogSink([&](LogSeverity, absl::string_view line) { lines.Put(std::string(line)); });
  const auto channel = server_.Connect();
  auto call = SendAct(channel, kHold, {.timeout = kLong});
  const std::string line = lines.Take();
  SetLogSink(nullptr);
  EXPECT_THAT(line, AllOf(HasSubstr("the handler of probe.capnp:Probe.act, call "),
                          HasSubstr(", has held a poller for"), HasSubstr("ServerOptions::executor")));
}

TEST_F(BusyPollerTest, AProbeOfNoSessionIsToldSo) {
  const transport::Uri uri = *transport::ParseUri(server_.uri);
  const SocketAddress address = transport::Resolve(uri)->front();
  EXPECT_THAT(Probe(address, {1, 2, 3}), HasCode(absl::StatusCode::kNotFound));
  EXPECT_EQ(server_.server.stats().connections, 0u);
}

TEST_F(BusyPollerTest, ANewConnectionOfAnotherPollerIsServed) {
  const auto first = server_.Connect();
  auto call = SendAct(first, kHold, {.timeout = kLong});
  holds_.Take();
  const auto second = server_.Connect();
  ASSERT_NE(second, nullptr);
  EXPECT_THAT(SendAct(second, 2).Wait().status(), IsOk());
}

TEST(WaitOnAPollerTest, WaitInAHandlerFailsWhateverTheChannelsPoller) {
  TestServer other;
  const auto channel = other.Connect({.runtime = NewRuntime()});
  TestServer server;
  Box<absl::Status> waited;
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    waited.Put(SendAct(channel, 1).Wait().status());
    return absl::OkStatus();
  };
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait().status(), IsOk());
  const absl::Status status = waited.Take();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("Then()"), HasSubstr("executor")));
}

TEST(WaitOnAPollerTest, ConnectInAHandlerFailsWhateverTheChannelsPoller) {
  TestServer other;
  TestServer server;
  Box<absl::Status> connected;
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    connected.Put(Channel::Connect(other.uri).status());
    return absl::OkStatus();
  };
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait().status(), IsOk());
  EXPECT_THAT(connected.Take(), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST(WaitOnAPollerTest, WaitOnAnExecutorIsAllowed) {
  TestServer other;
  const auto channel = other.Connect();
  TestServer server(
      {.executor = [](absl::AnyInvocable<void()> handler) { std::thread(std::move(handler)).detach(); }});
  server.probe.on_act = [&](ServerContext&, uint64_t) { return SendAct(channel, 1).Wait().status(); };
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait().status(), IsOk());
}

// The handlers of one turn hold the poller together. The best of several tries: over a real network what was
// sent may arrive a moment later, and another program may have the core while a handler runs that takes no
// time itself.
TEST(BusyPollerSnapshotTest, ACallWaitsForTheHandlersBeforeItOnItsPoller) {
  constexpr int64_t kHoldNs = 30'000'000;
  const auto clients = *transport::Runtime::Create(TestScheme(), {.pollers = 1});
  TestServer server({.pollers = 1});
  const auto channel = server.Connect({.runtime = clients});
  std::string last = "the call is not among the slowest";
  EXPECT_TRUE(Eventually([&] {
    absl::Notification runs, others_are_sent;
    std::atomic<int> ended{0};
    Box<std::string> short_one;
    server.probe.on_act = [&](ServerContext& context, uint64_t number) {
      if (number == 0) {
        runs.Notify();
        others_are_sent.WaitForNotification();
      }
      const absl::Time start = absl::Now();
      while (number < 2 && absl::Now() - start < absl::Nanoseconds(kHoldNs)) std::this_thread::yield();
      // The second of the two that come in one turn.
      if (ended.fetch_add(1) == 2) short_one.Put(context.call_id());
      return absl::OkStatus();
    };
    auto first = SendAct(channel, 0, {.timeout = kLong});
    runs.WaitForNotification();
    const uint64_t sent = channel->poller_stats().sent.whole;
    auto slow = SendAct(channel, 1, {.timeout = kLong});
    auto quick = SendAct(channel, 2, {.timeout = kLong});
    EXPECT_TRUE(Eventually([&] { return channel->poller_stats().sent.whole >= sent + 2; }));
    // The turn that sent them is over, so the kernel has them.
    internal::RunAndWait(clients->poller(0), [] {});
    others_are_sent.Notify();
    for (auto* call : {&first, &slow, &quick}) EXPECT_THAT(call->Wait().status(), IsOk());
    const std::string id = short_one.Take();
    capnp::MallocMessageBuilder message;
    server.server.FillIn(message.initRoot<observe::wire::Snapshot>());
    for (const auto call : message.getRoot<observe::wire::Snapshot>().asReader().getSlowest()) {
      if (call.getId().cStr() != id) continue;
      EXPECT_EQ(call.getQueuedNs() + call.getHandlerNs(), call.getAgeNs());
      last = absl::StrCat("queued for ", call.getQueuedNs(), " ns, handled for ", call.getHandlerNs());
      return call.getQueuedNs() >= kHoldNs * 5 / 6 && call.getHandlerNs() < kHoldNs * 5 / 6;
    }
    return false;
  })) << last;
}

}  // namespace
}  // namespace hawser
