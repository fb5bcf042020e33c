// A server tells those that may know what it is doing.

#include "hawser/rpc/services/introspection.h"

#include <capnp/message.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "hawser/introspection.rpc.h"
#include "hawser/tests/testing/forbid.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using introspection::IntrospectionStub;
using observe::wire::Snapshot;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Results = introspection::Introspection::SnapshotResults;

constexpr char kAct[] = "probe.capnp:Probe.act";
constexpr uint64_t kPlenty = 64 << 20;

absl::StatusOr<Reply<Results>> Ask(const std::shared_ptr<Channel>& channel) {
  return IntrospectionStub(channel).Snapshot().Send().Wait();
}

ServerOptions For(Introspection who) {
  ServerOptions options;
  options.introspection = who;
  return options;
}

TEST(IntrospectionTest, TheAnswerIsTheServersSnapshot) {
  TestServer server;
  const auto channel = server.Connect();
  for (uint64_t i = 0; i < 7; ++i) ASSERT_THAT(SendAct(channel, i).Wait(), IsOk());
  absl::StatusOr<Reply<Results>> reply;
  // Again if a busy machine ran the poller too late for the first snapshot.
  ASSERT_TRUE(Eventually([&] {
    reply = Ask(channel);
    return !reply.ok() || (*reply)->getSnapshot().getPollers()[0].getAnswered();
  }));
  ASSERT_THAT(reply, IsOk());
  const Snapshot::Reader snapshot = (*reply)->getSnapshot();
  EXPECT_EQ(snapshot.getProcess().getPid(), static_cast<uint32_t>(getpid()));
  EXPECT_EQ(snapshot.getServer().getAddresses()[0], server.uri.c_str());
  EXPECT_EQ(snapshot.getConnections().size(), 1u);
  EXPECT_EQ(snapshot.getServer().getCallsRunning(), 1u) << "the call that asks";
  uint64_t calls = 0;
  for (const auto method : snapshot.getMethods()) {
    if (method.getName() == kAct) calls = method.getCalls();
  }
  EXPECT_EQ(calls, 7u);
}

TEST(IntrospectionTest, AnAnswerComesWhileAHandlerHoldsAnotherPoller) {
  TestServer server({.pollers = 2});
  absl::Notification holds, go_on;
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    holds.Notify();
    go_on.WaitForNotification();
    return absl::OkStatus();
  };
  const auto holder = server.Connect(), channel = server.Connect();
  ASSERT_THAT(Ask(channel), IsOk()) << "on the other poller";
  auto call = SendAct(holder, 1);
  holds.WaitForNotification();
  std::string held_by;
  EXPECT_TRUE(Eventually([&] {
    const auto reply = Ask(channel);
    EXPECT_THAT(reply, IsOk());
    for (const auto poller : (*reply)->getSnapshot().getPollers()) {
      if (poller.getHeldBy().size() > 0) held_by = poller.getHeldBy().cStr();
    }
    return !held_by.empty();
  }));
  EXPECT_THAT(held_by, MatchesRegex(absl::StrCat("the handler of ", kAct,
                                                 ", call [0-9]+:[0-9]+\\.[0-9]+, for [0-9.]+ m?s")));
  go_on.Notify();
  EXPECT_THAT(call.Wait(), IsOk());
}

TEST(IntrospectionTest, AnAnswerComesWhileTheExecutorIsStuck) {
  Box<absl::AnyInvocable<void()>> stuck;
  ServerOptions options;
  options.executor = [&](absl::AnyInvocable<void()> handler) { stuck.Put(std::move(handler)); };
  TestServer server(std::move(options));
  const auto channel = server.Connect();
  auto call = SendAct(channel, 1);
  EXPECT_THAT(Ask(channel), IsOk());
  stuck.Take()();
  EXPECT_THAT(call.Wait(), IsOk());
}

TEST(IntrospectionTest, CallsOfAQuarterOfASecondShareASnapshot) {
  TestServer server;
  const auto channel = server.Connect();
  std::set<int64_t> taken;
  const absl::Time start = absl::Now();
  for (int i = 0; i < 100; ++i) {
    const auto reply = Ask(channel);
    ASSERT_THAT(reply, IsOk());
    taken.insert((*reply)->getSnapshot().getTakenUnixNs());
  }
  EXPECT_LE(static_cast<double>(taken.size()), 1 + absl::ToDoubleSeconds(absl::Now() - start) / 0.25);
  EXPECT_TRUE(Eventually([&] {  // And a new one afterwards.
    const auto reply = Ask(channel);
    return reply.ok() && taken.count((*reply)->getSnapshot().getTakenUnixNs()) == 0;
  }));
}

TEST(IntrospectionTest, NeverIsAsIfThereWereNoSuchService) {
  TestServer server(For(Introspection::kNever));
  EXPECT_THAT(Ask(server.Connect()).status(), HasCode(absl::StatusCode::kUnimplemented));
}

TEST(IntrospectionTest, AuthorizeIsAskedLikeForAnyMethod) {
  ServerOptions options = For(Introspection::kEveryone);
  options.authorize = [](const ServerContext& context) {
    return absl::PermissionDeniedError(absl::StrCat("not ", context.method().name));
  };
  TestServer server(std::move(options));
  const absl::Status status = Ask(server.Connect()).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(std::string(status.message()), HasSubstr("not introspection.capnp:Introspection.snapshot"));
}

TEST(IntrospectionTest, AServiceOfTheApplicationTakesItsPlace) {
  struct Own final : introspection::IntrospectionService {
    absl::Status Snapshot(ServerContext&, introspection::Introspection::SnapshotParams::Reader,
                          introspection::Introspection::SnapshotResults::Builder) override {
      return absl::DataLossError("mine");
    }
  };
  Own own;
  Server server;
  ASSERT_THAT(server.AddService(&own), IsOk());
  const auto channel = Channel::Connect(*server.Listen(TestUri()));
  EXPECT_THAT(Ask(*channel).status(), HasCode(absl::StatusCode::kDataLoss));
}

// ---- With a source that the test holds

class IntrospectorTest : public ::testing::Test {
 protected:
  // A server of an Introspector whose source waits for each value in `go_on`.
  struct Slow {
    explicit Slow(uint64_t bytes_max = kPlenty)
        : introspector(Introspection::kEveryone, bytes_max, transport::Environment::Real(),
                       [this](Snapshot::Builder snapshot) {
                         began.Put(true);
                         go_on.Take();
                         nice = getpriority(PRIO_PROCESS, 0);
                         if (throws) throw std::bad_alloc();
                         snapshot.setTakenUnixNs(++runs);
                       }) {
      EXPECT_THAT(server.AddService(&introspector), IsOk());
      uri = *server.Listen("tcp://127.0.0.1:0");
    }
    std::shared_ptr<Channel> Connect(const std::string& from = "") {
      ChannelOptions options;
      options.connection.local_address = from;
      options.connection.slots = 64;
      return *Channel::Connect(uri, std::move(options));
    }
    Box<bool> began, go_on;
    std::atomic<int> runs{0};
    std::atomic<bool> throws{false};
    std::atomic<int> nice{0};  // That of the thread that runs the source.
    internal::Introspector introspector;
    Server server;
    std::string uri;
  };

  static PendingCall<Results> Send(const std::shared_ptr<Channel>& channel) {
    return IntrospectionStub(channel).Snapshot({.timeout = kLong}).Send();
  }
  // The server has begun with all calls of this channel that were sent before: it takes those of one
  // connection in their order, and refuses this one at once.
  static void AwaitThoseBefore(const std::shared_ptr<Channel>& channel) {
    EXPECT_THAT(SendAct(channel, 0).Wait().status(), HasCode(absl::StatusCode::kUnimplemented));
  }
};

TEST_F(IntrospectorTest, CallsThatWaitShareASnapshot) {
  Slow slow;
  const auto channel = slow.Connect();
  auto first = Send(channel);
  slow.began.Take();
  std::vector<PendingCall<Results>> rest;
  for (int i = 0; i < 5; ++i) rest.push_back(Send(channel));
  AwaitThoseBefore(channel);
  slow.go_on.Put(true);
  ASSERT_THAT(first.Wait(), IsOk());
  // They came while the first one was being taken, which took longer than 250 ms perhaps.
  slow.go_on.Put(true);
  int64_t taken = 0;
  for (PendingCall<Results>& call : rest) {
    const auto reply = call.Wait();
    ASSERT_THAT(reply, IsOk());
    if (taken == 0) taken = (*reply)->getSnapshot().getTakenUnixNs();
    EXPECT_EQ((*reply)->getSnapshot().getTakenUnixNs(), taken);
  }
}

// The thread that takes snapshots lets the others go first; no other thread of the process does.
TEST_F(IntrospectorTest, PollersGoBeforeSnapshots) {
  const int nice = getpriority(PRIO_PROCESS, 0);
  Slow slow;
  const auto channel = slow.Connect();
  auto call = Send(channel);
  slow.began.Take();
  slow.go_on.Put(true);
  ASSERT_THAT(call.Wait(), IsOk());
  EXPECT_EQ(slow.nice, std::max(nice, 10));
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
}

TEST_F(IntrospectorTest, CallsThatWaitAreBoundedInAllAndByHost) {
  Slow slow;
  const std::shared_ptr<Channel> channels[] = {slow.Connect(), slow.Connect("127.0.0.2"), slow.Connect(),
                                               slow.Connect("127.0.0.2"), slow.Connect("127.0.0.3")};
  auto first = Send(channels[0]);
  slow.began.Take();  // It does not wait any more: its snapshot is being taken.
  std::vector<PendingCall<Results>> waiting;
  for (int host = 0; host < 2; ++host) {
    for (int i = 0; i < 32; ++i) waiting.push_back(Send(channels[host + (i < 16 ? 0 : 2)]));
    AwaitThoseBefore(channels[host]);
    AwaitThoseBefore(channels[host + 2]);
    const absl::Status status = Send(channels[host]).Wait().status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(std::string(status.message()), HasSubstr("32 of this host"));
  }
  const absl::Status status = Send(channels[4]).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), HasSubstr("64 calls wait for a snapshot"));
  slow.go_on.Put(true);
  slow.go_on.Put(true);
  EXPECT_THAT(first.Wait(), IsOk());
  for (PendingCall<Results>& call : waiting) EXPECT_THAT(call.Wait(), IsOk());
  EXPECT_LE(slow.runs, 2);
}

TEST_F(IntrospectorTest, ShutdownCancelsCallsThatWait) {
  Slow slow;
  const auto channel = slow.Connect();
  auto taken = Send(channel);
  slow.began.Take();
  auto waits = Send(channel);
  EXPECT_TRUE(Eventually([&] { return slow.server.stats().calls_running == 2; }));
  EXPECT_THAT(slow.server.Shutdown(absl::Now()), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(taken.Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(waits.Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  slow.go_on.Put(true);
}

TEST_F(IntrospectorTest, AfterEndACallIsUnavailable) {
  Slow slow;
  const auto channel = slow.Connect();
  auto taken = Send(channel);
  slow.began.Take();
  auto waits = Send(channel);
  EXPECT_TRUE(Eventually([&] { return slow.server.stats().calls_running == 2; }));
  std::thread close([&] { slow.introspector.End(); });
  EXPECT_THAT(waits.Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  slow.go_on.Put(true);
  EXPECT_THAT(taken.Wait(), IsOk());
  close.join();
  EXPECT_THAT(Send(channel).Wait().status(), HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(IntrospectorTest, ServersEndWhileClientsAsk) {
  for (int i = 0; i < 10; ++i) {
    auto server = std::make_unique<TestServer>();
    std::atomic<int> answers{0};
    std::vector<std::thread> clients;
    for (int c = 0; c < 2; ++c) {
      clients.emplace_back([&answers, channel = server->Connect()] {
        absl::Status status;
        while (status.ok()) {
          status = Ask(channel).status();
          answers += status.ok();
        }
        EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
      });
    }
    EXPECT_TRUE(Eventually([&] { return answers > 3; }));
    server.reset();
    for (std::thread& client : clients) client.join();
  }
}

TEST_F(IntrospectorTest, ASourceThatThrowsFailsTheCallsThatWait) {
  Slow slow;
  slow.throws = true;
  const auto channel = slow.Connect();
  auto call = Send(channel);
  slow.began.Take();
  slow.go_on.Put(true);
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kResourceExhausted));
  slow.throws = false;
  auto next = Send(channel);
  slow.began.Take();
  slow.go_on.Put(true);
  EXPECT_THAT(next.Wait().status(), IsOk());
}

TEST_F(IntrospectorTest, WithoutAThreadACallSaysSo) {
  TestServer server({.pollers = 1});
  server.probe.on_act = [](ServerContext&, uint64_t) {
    constexpr uint32_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                                 CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    // For the poller's thread, which starts the one for snapshots.
    return Forbid(SYS_clone3, ENOSYS) && Forbid(SYS_clone, EAGAIN, kThread) ? absl::OkStatus()
                                                                            : absl::InternalError("seccomp");
  };
  const auto channel = server.Connect();
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_THAT(Ask(channel).status(), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Ask(channel).status(), HasCode(absl::StatusCode::kResourceExhausted));
}

// ---- What fits a message

TEST(CutSnapshotTest, WhatIsLargestGoesFirstAndTheCountsStay) {
  capnp::MallocMessageBuilder message;
  auto builder = message.initRoot<Snapshot>();
  const Snapshot::Reader snapshot = builder.asReader();
  const auto bytes = [&] { return snapshot.totalSize().wordCount * sizeof(capnp::word); };
  builder.setConnectionsLeftOut(5);
  for (auto each : builder.initConnections(1000)) each.setPeer("tcp://10.0.0.7:51234");
  for (auto each : builder.initCalls(200)) each.setMethod(kAct);
  for (auto each : builder.initMethods(1000)) each.initLatency().initCounts(103);
  builder.setChannelsLeftOut(7);
  for (auto each : builder.initChannels(200)) each.setAddress("tcp://kv1:7470");
  builder.setOutgoingLeftOut(3);
  for (auto each : builder.initOutgoing(500)) each.initMethod().initLatency().initCounts(103);
  internal::CutSnapshot(builder, bytes());
  EXPECT_EQ(snapshot.getConnections().size(), 1000u) << "it fits";

  struct Left {
    unsigned connections, calls, channels, outgoing, methods;
    bool has_latency;
  };
  for (const Left& left :
       {Left{1000, 200, 200, 500, 1000, true}, Left{0, 200, 200, 500, 1000, true},
        Left{0, 0, 200, 500, 1000, true}, Left{0, 0, 0, 500, 1000, true}, Left{0, 0, 0, 0, 1000, true},
        Left{0, 0, 0, 0, 1000, false}, Left{0, 0, 0, 0, 0, false}}) {
    const uint64_t bytes_max = bytes() - 1;
    internal::CutSnapshot(builder, bytes_max);
    EXPECT_LE(bytes(), bytes_max);
    EXPECT_EQ(snapshot.getConnections().size(), left.connections);
    EXPECT_EQ(snapshot.getConnectionsLeftOut(), 1005 - left.connections);
    EXPECT_EQ(snapshot.getOutgoing().size(), left.outgoing);
    EXPECT_EQ(snapshot.getOutgoingLeftOut(), 503 - left.outgoing);
    if (left.outgoing != 0) {
      EXPECT_FALSE(snapshot.getOutgoing()[0].getMethod().hasLatency());
    }
    EXPECT_EQ(snapshot.getCalls().size(), left.calls);
    EXPECT_EQ(snapshot.getCallsLeftOut(), 200 - left.calls);
    EXPECT_EQ(snapshot.getChannels().size(), left.channels);
    EXPECT_EQ(snapshot.getChannelsLeftOut(), 207 - left.channels);
    EXPECT_EQ(snapshot.getMethods().size(), left.methods);
    if (left.methods != 0) {
      EXPECT_EQ(snapshot.getMethods()[0].hasLatency(), left.has_latency);
    }
  }
}

}  // namespace
}  // namespace hawser
