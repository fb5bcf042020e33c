// A handler that waits where it must not gets an error. It may return that, or drop it, so the log has the
// handler and the rule, and the caller reads the rule.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "hawser/rpc/log.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

class MisplacedWaitTest : public ::testing::Test {
 protected:
  MisplacedWaitTest() {
    SetLogSink([this](LogSeverity severity, absl::string_view line) {
      lines_.Put({severity, std::string(line)});
    });
  }
  ~MisplacedWaitTest() override { SetLogSink(nullptr); }

  Box<std::pair<LogSeverity, std::string>> lines_;
};

// Two handlers: the log takes three lines of one method in ten seconds.
TEST_F(MisplacedWaitTest, TheHandlerIsNamedAndItsCallerReadsTheRule) {
  TestServer server;
  const auto channel = server.Connect();
  const std::vector<std::pair<std::string, std::function<absl::Status()>>> ways = {
      {"Wait()", [&] { return SendAct(channel, 0).Wait().status(); }},
      {"Channel::Connect()", [&] { return Channel::Connect(server.uri).status(); }},
      {"Channel::ConnectAny()", [&] { return Channel::ConnectAny({server.uri}).status(); }},
      {"Server::Listen()", [&] { return server.server.Listen(TestUri()).status(); }},
      {"Server::Wait()", [&] { return server.server.Wait(); }},
      {"Server::Shutdown()", [&] { return server.server.Shutdown(absl::InfiniteFuture()); }},
  };
  server.probe.on_act = [&](ServerContext&, uint64_t number) {
    return number > 0 ? ways[number - 1].second() : absl::OkStatus();
  };
  for (size_t i = 0; i < ways.size(); ++i) {
    const bool again = i % 2 == 1;
    const absl::Status status =
        again ? SendActAgain(channel, i + 1).Wait().status() : SendAct(channel, i + 1).Wait().status();
    const std::string rule =
        ways[i].first + " was called in the handler of probe.capnp:Probe." + (again ? "actAgain" : "act");
    EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition)) << rule;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(rule), Not(HasSubstr("://"))));
    EXPECT_THAT(lines_.Take(),
                Pair(LogSeverity::kWarning,
                     AllOf(HasSubstr(rule), ContainsRegex(", call [0-9]+:[0-9]+[.][0-9]+, "))));
  }
}

// A handler's poller is that of these channels, so what was sent is known.
TEST_F(MisplacedWaitTest, WhatWasNotSentIsNotSaidToBe) {
  const std::string gone = TestServer().uri;
  TestServer server({.pollers = 1});
  const auto dead = Channel::Create(gone, {.server = &server.server});
  const auto channel = server.Connect();
  Box<absl::Status> results;
  const std::vector<std::function<absl::Status()>> waits = {
      [&] { return SendAct(*dead, 1).Wait().status(); },  // Not connected.
      [&] {
        return SendAct(nullptr, 1).Wait().status();
      },  // No channel, of whose poller this may be another.
  };
  server.probe.on_act = [&](ServerContext& context, uint64_t number) {
    results.Put(number < waits.size() ? waits[number]()
                                      : probe::ListenerStub(context.peer()).Notify().Send().Wait().status());
    return absl::OkStatus();
  };
  for (uint64_t number = 0; number <= waits.size(); ++number) {
    EXPECT_THAT(SendAct(channel, number).Wait(), IsOk());
    const absl::Status status = results.Take();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
    EXPECT_FALSE(WasSent(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("use Then() or co_await there, or give the server an executor"));
    EXPECT_THAT(std::string(status.message()), EndsWith("; it was not sent"));
  }
}

TEST_F(MisplacedWaitTest, WhatAnotherPollerWasToSendMayHaveBeenSent) {
  TestServer server;
  const auto own = transport::Runtime::Create(TestScheme(), {.pollers = 1});
  ASSERT_THAT(own.status(), IsOk());
  const auto other = server.Connect({.runtime = *own});
  server.probe.on_act = [&](ServerContext&, uint64_t number) {
    return number == 0 ? absl::OkStatus() : SendAct(other, 0).Wait().status();
  };
  const absl::Status status = SendAct(server.Connect(), 1).Wait().status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("; it may have been sent, and the server may have run"));
}

TEST_F(MisplacedWaitTest, ACallbackIsNamedToo) {
  TestServer server;
  const auto channel = server.Connect();
  Box<absl::Status> results;
  probe::ProbeStub(channel).Echo().Send().Then(
      [&](auto) { results.Put(SendAct(channel, 1).Wait().status()); });
  const absl::Status status = results.Take();
  EXPECT_TRUE(WasSent(status));
  EXPECT_THAT(std::string(status.message()), EndsWith("; it was sent, so the server may have run it"));
  constexpr char kRule[] =
      "Wait() was called in the callback of probe.capnp:Probe.echo, on a poller's thread";
  EXPECT_THAT(std::string(status.message()), HasSubstr(kRule));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("use Then() or co_await there, or wait on another thread"));
  EXPECT_THAT(lines_.Take(), Pair(LogSeverity::kWarning, HasSubstr(kRule)));
}

}  // namespace
}  // namespace hawser
