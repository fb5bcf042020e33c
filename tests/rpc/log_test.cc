// What the log of a process reports about its calls and connections.

#include "hawser/rpc/log.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/cable.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

using Line = std::pair<LogSeverity, std::string>;

// The log takes three lines of one peer host in ten seconds, so the tests of this file may cause no more.
class RpcLogTest : public ::testing::Test {
 protected:
  RpcLogTest() {
    SetLogSink([this](LogSeverity severity, absl::string_view line) {
      lines_.Put({severity, std::string(line)});
    });
  }
  ~RpcLogTest() override { SetLogSink(nullptr); }

  Box<Line> lines_;
};

TEST_F(RpcLogTest, AConnectionThatIsRefusedIsTold) {
  TestServer server({.connections_max = 1});
  const auto first = server.Connect();
  // The server would soon ping a client that has sent nothing, which could cost a line.
  ASSERT_THAT(SendAct(first, 1).Wait(), IsOk());
  EXPECT_THAT(Channel::Connect(server.uri, TryingOnce()), Not(IsOk()));
  EXPECT_THAT(lines_.Take(),
              Pair(LogSeverity::kWarning, AllOf(HasSubstr("was refused"), HasSubstr("connections_max"))));
}

TEST_F(RpcLogTest, AConnectionThatIsLostIsToldByBothSides) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  Cable cable(server.uri);
  const auto channel = *cable.Connect();
  auto call = SendAct(channel, 1);
  const DeferredCall held = server.held.Take();
  cable.Cut();
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  const std::vector<Line> lines = {lines_.Take(), lines_.Take()};
  EXPECT_THAT(lines, Contains(Pair(LogSeverity::kWarning,
                                   AllOf(ContainsRegex("^connection [0-9]+ to " + TestScheme() + "://"),
                                         HasSubstr("was lost with 1 calls under way")))));
  EXPECT_THAT(lines, Contains(Pair(LogSeverity::kWarning,
                                   AllOf(ContainsRegex("^connection [0-9]+ of " + TestScheme() + "://"),
                                         HasSubstr("was lost with 1 calls under way")))));
}

TEST_F(RpcLogTest, AtTheLevelOfDebugConnectionsAndChannelsAreTold) {
  SetLogLevel(LogSeverity::kDebug);
  {
    TestServer server;
    const auto channel = server.Connect();
    ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
    channel->Close();
    ASSERT_TRUE(Eventually([&] { return server.server.stats().connections == 0; }));
  }
  SetLogLevel(LogSeverity::kInfo);
  SetLogSink(nullptr);
  std::vector<Line> lines;
  while (lines_.size() > 0) lines.push_back(lines_.Take());
  for (const char* const line :
       {"^connection [0-9]+ to .* is ready: 32 slots", "^connection [0-9]+ of .* is ready: 32 slots",
        "^connection [0-9]+ to .* ends: ", "^connection [0-9]+ of .* ends: ", "^the channel to .* is ready$",
        "^the channel to .* is closed"}) {
    EXPECT_THAT(lines, Contains(Pair(LogSeverity::kDebug, ContainsRegex(line))));
  }
}

TEST_F(RpcLogTest, ALineBelowTheLevelIsNotWritten) {
  SetLogLevel(LogSeverity::kError);
  TestServer server({.connections_max = 1});
  const auto first = server.Connect();
  ASSERT_THAT(SendAct(first, 1).Wait(), IsOk());
  EXPECT_THAT(Channel::Connect(server.uri, TryingOnce()), Not(IsOk()));  // A line of kWarning.
  SetLogLevel(LogSeverity::kInfo);
  SetLogSink(nullptr);
  EXPECT_EQ(lines_.size(), 0u);
}

TEST_F(RpcLogTest, AConnectionThatEndsInOrderIsNotTold) {
  TestServer server;
  server.Connect()->Close();
  ASSERT_TRUE(Eventually([&] { return server.server.stats().connections == 0; }));
  const auto channel = server.Connect();
  ASSERT_THAT(server.server.Shutdown(absl::Now() + kLong), IsOk());
  SetLogSink(nullptr);
  EXPECT_EQ(lines_.size(), 0u);
}

TEST_F(RpcLogTest, AHandlerKnowsTheIdThatTheLogHas) {
  TestServer server;
  Box<std::string> ids;
  server.probe.on_act = [&](ServerContext& context, uint64_t) -> absl::Status {
    ids.Put(context.call_id());
    throw std::runtime_error("on purpose");
  };
  EXPECT_THAT(SendActAgain(server.Connect(), 1).Wait(), Not(IsOk()));
  EXPECT_THAT(lines_.Take(), Pair(LogSeverity::kError, HasSubstr("call " + ids.Take() + " of ")));
}

TEST_F(RpcLogTest, AHandlerThatThrowsIsTold) {
  TestServer server;
  server.probe.on_act = [](ServerContext&, uint64_t) -> absl::Status {
    throw std::runtime_error("on purpose");
  };
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait(), Not(IsOk()));
  EXPECT_THAT(lines_.Take(),
              Pair(LogSeverity::kError,
                   AllOf(HasSubstr("Probe.act"), HasSubstr(TestScheme() + "://"), HasSubstr("on purpose"))));
}

TEST_F(RpcLogTest, ADeferredCallThatIsDestroyedUnansweredIsTold) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  auto call = SendAct(server.Connect(), 1);
  { DeferredCall dropped = server.held.Take(); }
  const absl::Status status = call.Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInternal));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the handler of probe.capnp:Probe.act destroyed its"));
  EXPECT_THAT(lines_.Take(), Pair(LogSeverity::kError,
                                  ContainsRegex("; call [0-9]+:[0-9]+[.][0-9]+ of " + TestScheme() + "://")));
}

TEST_F(RpcLogTest, AnExecutorThatDropsAHandlerIsTold) {
  TestServer server({.executor = [](absl::AnyInvocable<void()>) {}});
  const absl::Status status = SendActAgain(server.Connect(), 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(lines_.Take(), Pair(LogSeverity::kWarning, HasSubstr("did not run the handler of "
                                                                   "probe.capnp:Probe.actAgain")));
}

TEST_F(RpcLogTest, ACallbackThatThrowsIsTold) {
  TestServer server;
  const auto channel = server.Connect();
  SendAct(channel, 1).Then([](auto) { throw std::runtime_error("on purpose"); });
  EXPECT_THAT(lines_.Take(),
              Pair(LogSeverity::kError, AllOf(HasSubstr("the callback of"), HasSubstr("Probe.act"),
                                              HasSubstr("it threw: on purpose"))));
}

TEST_F(RpcLogTest, MemoryThatRunsOutIsToldOnce) {
  const auto runtime = *transport::Runtime::CreateOn(NewTestFabric(), {.pool = {.limit_bytes = 8 << 20}},
                                                     /*start_threads=*/true);
  std::vector<transport::Lease> leases;
  for (absl::StatusOr<transport::Lease> lease = runtime->buffers().Acquire(1 << 20); lease.ok();
       lease = runtime->buffers().Acquire(1 << 20)) {
    leases.push_back(*std::move(lease));
  }
  for (int i = 0; i < 100; ++i) EXPECT_THAT(runtime->buffers().Acquire(1 << 20), Not(IsOk()));
  SetLogSink(nullptr);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_.Take(), Pair(LogSeverity::kError, HasSubstr("limit_bytes")));
}

}  // namespace
}  // namespace hawser
