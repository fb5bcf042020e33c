// What a server counts, and what it says while it works.

#include <capnp/message.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "hawser/observe/histogram.h"
#include "hawser/observe/prometheus.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"
#include "tests/rpc/taken.h"

namespace hawser {
namespace {

using observe::wire::Snapshot;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAct[] = "probe.capnp:Probe.act";

using Statuses = std::map<std::string, uint64_t>;

TEST(MetricsTest, CallsAreCountedByMethodAndStatus) {
  TestServer server({.pollers = 2});
  server.probe.on_act = [](ServerContext&, uint64_t number) {
    return number % 3 == 0 ? absl::NotFoundError("no tow") : absl::OkStatus();
  };
  std::vector<std::shared_ptr<Channel>> channels;
  for (int client = 0; client < 3; ++client) {
    channels.push_back(server.Connect());
    for (int i = 0; i < 100; ++i) SendAct(channels.back(), i).Wait().status().IgnoreError();
  }
  Taken taken(server.server);
  EXPECT_EQ(taken.Statuses(kAct), (Statuses{{"OK", 198}, {"NOT_FOUND", 102}}));
  EXPECT_EQ(taken.Method(kAct).getCalls(), 300u);
  EXPECT_EQ(taken.Method("probe.capnp:Probe.echo").getCalls(), 0u);
  EXPECT_EQ(taken.Get().getServer().getCallsTotal(), 300u);
  EXPECT_EQ(taken.Get().getServer().getConnectionsOpen(), 3u);
}

TEST(MetricsTest, TheCountOfSuccessesDoesNotGoBackWhileCallsFail) {
  TestServer server;
  server.probe.on_act = [](ServerContext&, uint64_t number) {
    return number == 0 ? absl::OkStatus() : absl::NotFoundError("no tow");
  };
  const auto channel = server.Connect();
  ASSERT_THAT(SendAct(channel, 0).Wait(), IsOk());
  std::atomic<bool> stop = false;
  std::thread client([&] {
    while (!stop) {
      std::vector<PendingCall<probe::Probe::ActResults>> calls;
      for (int i = 0; i < 16; ++i) calls.push_back(SendAct(channel, 1));
      for (auto& call : calls) call.Wait().status().IgnoreError();
    }
  });
  for (int i = 0; i < 500; ++i) {
    Taken taken(server.server);
    EXPECT_EQ(taken.Statuses(kAct)["OK"], 1u);
  }
  stop = true;
  client.join();
}

TEST(MetricsTest, BytesInAndOutAreThoseOfTheMessages) {
  TestServer server;
  const auto channel = server.Connect();
  for (size_t size : {100, 20'000, 300'000}) {
    auto call = probe::ProbeStub(channel).Echo();
    call.request().initData(static_cast<unsigned>(size));
    ASSERT_THAT(call.Send().Wait(), IsOk());
  }
  Taken taken(server.server);
  const auto echo = taken.Method("probe.capnp:Probe.echo");
  // Beside the data each has a root pointer, a struct of one pointer, and perhaps a pointer to another
  // segment.
  const uint64_t bytes = 3 * 16 + 104 + 20'000 + 300'000;
  EXPECT_GE(echo.getRequestBytes(), bytes);
  EXPECT_LE(echo.getRequestBytes(), bytes + 3 * 16);
  EXPECT_EQ(echo.getResponseBytes(), echo.getRequestBytes());
}

TEST(MetricsTest, TheTimeOfACallIsFromItsArrivalToItsAnswer) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  auto call = SendAct(channel, 1);
  DeferredCall held = server.held.Take();
  // Answered by the same poller, so the handler above has returned, and what follows is the time after
  // Defer().
  ASSERT_THAT(probe::ProbeStub(channel).Echo().Send().Wait(), IsOk());
  const absl::Time seen = absl::Now();
  while (absl::Now() - seen < absl::Milliseconds(30)) std::this_thread::yield();
  held.Finish(absl::OkStatus());
  ASSERT_THAT(call.Wait(), IsOk());
  Taken taken(server.server);
  const auto latency = taken.Method(kAct).getLatency();
  EXPECT_GE(latency.getSumNs(), 30'000'000u);
  EXPECT_GE(observe::PercentileNs(latency.getBoundsNs(), latency.getCounts(), 50), 26'000'000);
  ASSERT_GE(taken.Get().getSlowest().size(), 1u);
  const auto slowest = taken.Get().getSlowest()[0];
  EXPECT_STREQ(slowest.getMethod().cStr(), kAct);
  EXPECT_STREQ(slowest.getStage().cStr(), "OK");
  EXPECT_GE(slowest.getDeferredNs(), 29'000'000);
  EXPECT_EQ(slowest.getQueuedNs() + slowest.getHandlerNs() + slowest.getDeferredNs(), slowest.getAgeNs());
}

// A call object is reused. Its next call may start in the same turn, at the same reading of the clock.
TEST(MetricsTest, ACallThatDidNotDeferHasNoTimesOfTheOneBeforeIt) {
  TestServer server({.pollers = 1});
  server.probe.on_act = [](ServerContext& context, uint64_t number) {
    if (number == 1) {
      context.Defer().Finish();
    } else {
      const absl::Time seen = absl::Now();
      while (absl::Now() - seen < absl::Milliseconds(2)) continue;
    }
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  for (int round = 0; round < 10; ++round) {
    std::vector<PendingCall<probe::Probe::ActResults>> calls;
    std::vector<PendingCall<probe::Probe::ActAgainResults>> deferred;
    for (int i = 0; i < 8; ++i) {
      deferred.push_back(SendActAgain(channel, 1));
      calls.push_back(SendAct(channel, 2));
    }
    for (auto& call : calls) ASSERT_THAT(call.Wait(), IsOk());
    for (auto& call : deferred) ASSERT_THAT(call.Wait(), IsOk());
  }
  int seen = 0;
  Taken taken(server.server);
  for (const auto call : taken.Get().getSlowest()) {
    if (absl::string_view(call.getMethod().cStr()) != kAct) continue;
    ++seen;
    EXPECT_EQ(call.getDeferredNs(), 0);
    EXPECT_GE(call.getHandlerNs(), 2'000'000);
  }
  EXPECT_GT(seen, 0);
}

TEST(MetricsTest, ManyShortCallsAreAsShortAsTheClientSees) {
  TestServer server({.pollers = 1});
  const auto channel = server.Connect();
  constexpr int kCalls = 2000;
  const absl::Time start = absl::Now();
  for (int i = 0; i < kCalls; ++i) ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  const absl::Duration each = (absl::Now() - start) / kCalls;
  Taken taken(server.server);
  const auto latency = taken.Method(kAct).getLatency();
  EXPECT_LT(absl::Nanoseconds(static_cast<int64_t>(latency.getSumNs() / kCalls)), each);
}

TEST(MetricsTest, ACallThatItsCallerGaveUpCountsWithThatStatusOnce) {
  ClockedRuntime clients, serving;
  TestServer server({.runtime = serving.get()});
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect({.runtime = clients.get()});
  auto call = SendAct(channel, 1, {.timeout = kLong});
  DeferredCall held = server.held.Take();
  clients.Pass(kLong);
  serving.Pass(kLong + absl::Milliseconds(1));  // On its way the time was rounded up.
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(Eventually([&] { return Taken(server.server).Method(kAct).getCalls() == 1; }));
  held.Finish(absl::OkStatus());
  server.probe.on_act = [](ServerContext&, uint64_t) { return absl::OkStatus(); };
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  const Statuses statuses = Taken(server.server).Statuses(kAct);
  EXPECT_EQ(statuses.at("OK"), 1u);
  EXPECT_EQ(statuses.size(), 2u) << "DEADLINE_EXCEEDED, or CANCELLED if the client was faster";
}

// The best of a few tries, because another program may have the core between the reading of the clock and of
// the poller's times.
TEST(MetricsTest, APollersTimeAddsUp) {
  TestServer server({.pollers = 1});
  const auto channel = server.Connect();
  const auto times = [&](Taken& taken) { return taken.Get().getPollers()[0]; };
  std::string last;
  bool adds_up = false;
  for (int i = 0; i < 5 && !adds_up; ++i) {
    Taken before(server.server);
    const absl::Time start = absl::Now();
    while (absl::Now() - start < absl::Milliseconds(200)) EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
    Taken after(server.server);
    const auto gone = static_cast<double>(after.Get().getTakenUnixNs() - before.Get().getTakenUnixNs());
    const auto busy = static_cast<double>(times(after).getBusyNs() - times(before).getBusyNs());
    const auto all = busy + static_cast<double>(times(after).getSpinNs() - times(before).getSpinNs()) +
                     static_cast<double>(times(after).getSleepNs() - times(before).getSleepNs());
    last = absl::StrCat("of ", gone, " ns ", all, ", ", busy, " of them busy");
    adds_up = busy > gone * 0.01 && all < gone * 1.5 && all > gone * 0.5;
  }
  EXPECT_TRUE(adds_up) << last;
}

TEST(MetricsTest, SnapshotsWhileManyCallsRunAddUpInTheEnd) {
  TestServer server({.pollers = 2});
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> made{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&] {
      const auto channel = server.Connect();
      while (!stop) {
        if (SendAct(channel, 1).Wait().ok()) ++made;
      }
    });
  }
  uint64_t before = 0;
  for (int i = 0; i < 50; ++i) {
    Taken taken(server.server);
    EXPECT_GE(taken.Method(kAct).getCalls(), before) << "a count went back";
    before = taken.Method(kAct).getCalls();
    observe::ToPrometheus(taken.Get());
  }
  stop = true;
  for (std::thread& client : clients) client.join();
  Taken taken(server.server);
  EXPECT_EQ(taken.Method(kAct).getCalls(), made);
  uint64_t in_buckets = 0;
  for (uint64_t count : taken.Method(kAct).getLatency().getCounts()) in_buckets += count;
  EXPECT_EQ(in_buckets, made);
}

// A service of many methods; only the first is called.
class Many final : public Service {
 public:
  explicit Many(size_t methods) : names_(methods), methods_(methods) {
    for (size_t i = 0; i < methods; ++i) {
      names_[i] = absl::StrCat("many.capnp:Many.method", i);
      methods_[i] = {.interface_id = 0x1234567890abcdef,
                     .ordinal = static_cast<uint16_t>(i),
                     .name = names_[i].c_str(),
                     .idempotent = false};
    }
  }
  void AddMethods(MethodTable& table) override {
    for (const Method& method : methods_) {
      table.Add(method, this, [](void*, ServerContext& context) {
        context.reply<probe::Probe::ActResults>();
        return absl::OkStatus();
      });
    }
  }
  const Method& method(size_t i) const { return methods_[i]; }

 private:
  std::vector<std::string> names_;
  std::vector<Method> methods_;
};

// A poller looks at 128 of them in a turn.
TEST(MetricsTest, ASnapshotOfManyConnectionsHasEachOnce) {
  TestServer server({.pollers = 1});
  std::vector<std::shared_ptr<Channel>> channels;
  for (int i = 0; i < 300; ++i) channels.push_back(server.Connect());
  const auto numbers = [&] {
    Taken taken(server.server);
    std::set<uint64_t> found;
    for (const auto connection : taken.Get().getConnections()) found.insert(connection.getNumber());
    EXPECT_EQ(taken.Get().getTotals()[0].getCount(), channels.size());
    EXPECT_EQ(taken.Get().getConnectionsLeftOut() + found.size(), channels.size());
    return found;
  };
  const std::set<uint64_t> before = numbers();
  channels.push_back(server.Connect());
  const std::set<uint64_t> after = numbers();
  EXPECT_EQ(before.size(), 200u);  // PollerReport::kConnectionsMax
  EXPECT_EQ(after.size(), 200u);
}

TEST(MetricsTest, CallsPassBetweenThePartsOfASnapshotOfManyConnections) {
  TestServer server({.pollers = 1});
  std::vector<std::shared_ptr<Channel>> channels;
  for (int i = 0; i < 450; ++i) channels.push_back(server.Connect());
  const auto turns = [&] { return server.server.stats().pollers[0].turns_of_own_thread; };
  uint64_t fewest = UINT64_MAX;
  for (int i = 0; i < 10; ++i) {
    const uint64_t before = turns();
    Taken taken(server.server);
    fewest = std::min(fewest, turns() - before);
  }
  EXPECT_GE(fewest, 2u) << "of four parts the first may be another thread's, and the last may not count yet";
}

TEST(MetricsTest, AThousandMethodsAndManyConnectionsAreShownSoon) {
  const char* const text = std::getenv("HAWSER_METRICS_CONNECTIONS");
  const int count = text != nullptr ? std::atoi(text) : 100;
  Many many(1000);
  Server server;
  ASSERT_THAT(server.AddService(&many), IsOk());
  const auto uri = server.Listen("tcp://127.0.0.1:0");
  ASSERT_THAT(uri, IsOk());
  std::vector<std::shared_ptr<Channel>> channels;
  for (int i = 0; i < count; ++i) {
    channels.push_back(*Channel::Connect(*uri));
    for (size_t m = 0; m < 10; ++m) {
      Call<probe::Probe::ActParams, probe::Probe::ActResults> call(
          channels.back(), many.method((static_cast<size_t>(i) * 10 + m) % 1000), {});
      ASSERT_THAT(call.Send().Wait(), IsOk());
    }
  }
  absl::Duration best = absl::InfiniteDuration();
  size_t bytes = 0;
  for (int i = 0; i < 5; ++i) {
    const absl::Time start = absl::Now();
    Taken taken(server);
    bytes = observe::ToPrometheus(taken.Get()).size();
    best = std::min(best, absl::Now() - start);
    EXPECT_EQ(taken.Get().getMethods().size(), 1005u);
    EXPECT_EQ(taken.Get().getConnections().size() + taken.Get().getConnectionsLeftOut(),
              static_cast<size_t>(count));
  }
  std::printf("%d connections, 1000 methods: %zu bytes of metrics in %s\n", count, bytes,
              absl::FormatDuration(best).c_str());
}

TEST(MetricsTest, TheStatusPageBeginsWithTheFirstListenAndItsPortIsTheServers) {
  ServerOptions options;
  options.status_address = "127.0.0.1:0";
  Server first(options);
  EXPECT_EQ(first.status_url(), "");
  ASSERT_THAT(first.Listen("tcp://127.0.0.1:0"), IsOk());
  const std::string url = first.status_url();
  EXPECT_THAT(url, ContainsRegex("^http://127.0.0.1:[0-9]+$"));
  ASSERT_THAT(first.Listen("tcp://127.0.0.1:0"), IsOk());
  EXPECT_EQ(first.status_url(), url);

  options.status_address = url.substr(std::string("http://").size());
  Server second(options);
  const absl::Status taken = second.Listen("tcp://127.0.0.1:0").status();
  EXPECT_THAT(taken, HasCode(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(std::string(taken.message()), HasSubstr("for the status page"));
}

TEST(MetricsTest, PrometheusReadsTheMetrics) {
  TestServer server;
  const auto channel = server.Connect();
  for (int i = 0; i < 10; ++i) ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  Taken taken(server.server);
  const std::string text = observe::ToPrometheus(taken.Get());
  EXPECT_THAT(text,
              HasSubstr("hawser_server_calls_total{method=\"probe.capnp:Probe.act\",code=\"OK\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("hawser_server_call_seconds_count{method=\"probe.capnp:Probe.act\"} 10\n"));
  EXPECT_THAT(
      text,
      HasSubstr("hawser_server_call_seconds_bucket{method=\"probe.capnp:Probe.act\",le=\"+Inf\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("hawser_server_connections{fabric=\"tcp\",state=\"ready\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hawser_pool_bytes{pool=\"tcp\",kind=\"limit\"}"));
  // No label for each peer: the process's own channels have their targets.
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "hawser_channel_call")) continue;
    EXPECT_THAT(line, Not(HasSubstr("127.0.0.1:")));
  }
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/metrics");
  std::ofstream(path) << text;
  // Prometheus's own tool: reads the text, and knows its rules for names.
  EXPECT_EQ(std::system(absl::StrCat("promtool check metrics < ", path).c_str()), 0);
}

}  // namespace
}  // namespace hawser
