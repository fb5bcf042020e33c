// The status page of a program that only calls, and what a server's page says of the calls that its program
// makes.
#include "hawser/rpc/status_page.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "hawser/rpc/client/outgoing_calls.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"
#include "tests/rpc/taken.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A connection to a status page.
class HttpClient {
 public:
  explicit HttpClient(const std::string& url) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(url.substr(url.rfind(':') + 1), &port));
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~HttpClient() { close(fd_); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void Send(absl::string_view bytes) {
    [[maybe_unused]] const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // What comes until `end`, or the end of the connection.
  std::string ReadUntil(absl::string_view end) {
    std::string all;
    char byte;
    while (!absl::EndsWith(all, end) && recv(fd_, &byte, 1, 0) == 1) all.push_back(byte);
    return all;
  }
  std::string ReadAll() {
    std::string all;
    char some[4096];
    for (ssize_t got; (got = read(fd_, some, sizeof(some))) > 0;) all.append(some, static_cast<size_t>(got));
    return all;
  }

 private:
  const int fd_;
};

// The whole answer to GET `path`.
std::string Get(const std::string& url, const std::string& path) {
  HttpClient client(url);
  client.Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
  return client.ReadAll();
}

// The value of a metric, whose name and labels are `series`. -1: there is none.
double Value(absl::string_view metrics, absl::string_view series) {
  const std::string line = absl::StrCat("\n", series, " ");
  const size_t at = metrics.find(line);
  double value = -1;
  if (at == absl::string_view::npos) return value;
  const absl::string_view rest = metrics.substr(at + line.size());
  EXPECT_TRUE(absl::SimpleAtod(rest.substr(0, rest.find('\n')), &value));
  return value;
}

std::unique_ptr<observe::StatusServer> Start(OwnMetrics metrics = {}) {
  absl::StatusOr<std::unique_ptr<observe::StatusServer>> page =
      StartStatusPage("127.0.0.1:0", std::move(metrics));
  EXPECT_THAT(page.status(), IsOk());
  return *std::move(page);
}

std::string CallsTo(const TestServer& server, absl::string_view code) {
  return absl::StrCat("hawser_channel_calls_total{target=\"", server.uri,
                      "\",method=\"probe.capnp:Probe.act\",code=\"", code, "\"}");
}

TEST(StatusPageTest, AClientShowsItsCallsByTargetMethodAndStatus) {
  TestServer server;
  server.probe.on_act = [](ServerContext&, uint64_t number) {
    return number == 0 ? absl::NotFoundError("no tow") : absl::OkStatus();
  };
  const auto channel = server.Connect();
  for (int i = 0; i < 5; ++i) SendAct(channel, i % 3).Wait().status().IgnoreError();
  // Not before: a page may show what was a moment ago.
  const auto page = Start();
  const std::string metrics = Get(page->url(), "/metrics");
  EXPECT_EQ(Value(metrics, CallsTo(server, "OK")), 3);
  EXPECT_EQ(Value(metrics, CallsTo(server, "NOT_FOUND")), 2);
  EXPECT_EQ(Value(metrics, absl::StrCat("hawser_channel_call_seconds_count{target=\"", server.uri,
                                        "\",method=\"probe.capnp:Probe.act\"}")),
            5);
  EXPECT_EQ(Value(metrics, "hawser_channel_calls_left_out"), 0);
  // The program has a server here, too, but the page is not that server's.
  EXPECT_THAT(metrics, Not(HasSubstr("hawser_server_")));
  EXPECT_THAT(Get(page->url(), "/"), HasSubstr("which serves nothing"));
  EXPECT_THAT(Get(page->url(), "/methods"), HasSubstr(server.uri));
  for (const char* path :
       {"/calls", "/connections", "/pollers", "/configuration", "/snapshot.json", "/healthz"}) {
    EXPECT_THAT(Get(page->url(), path), StartsWith("HTTP/1.1 200 "));
  }
}

TEST(StatusPageTest, CallsThatWereNotSentAreCountedToo) {
  TestServer server;
  auto channel = server.Connect();
  channel->Close();
  EXPECT_FALSE(SendAct(channel, 1).Wait().ok());
  const auto never = *Channel::Create(server.uri);
  EXPECT_THAT(SendAct(never, 1, {.timeout = absl::ZeroDuration()}).Wait().status(),
              HasCode(absl::StatusCode::kDeadlineExceeded));
  const auto page = Start();
  const std::string metrics = Get(page->url(), "/metrics");
  EXPECT_EQ(Value(metrics, CallsTo(server, "CANCELLED")), 1);
  EXPECT_EQ(Value(metrics, CallsTo(server, "DEADLINE_EXCEEDED")), 1);
}

TEST(StatusPageTest, TheProcessSaysWhatItUses) {
  const auto page = Start();
  const std::string metrics = Get(page->url(), "/metrics");
  EXPECT_GT(Value(metrics, "process_cpu_seconds_total"), 0);
  const double resident = Value(metrics, "process_resident_memory_bytes");
  EXPECT_GT(resident, 1e6);
  EXPECT_GE(Value(metrics, "process_virtual_memory_bytes"), resident);
  const double open = Value(metrics, "process_open_fds");
  EXPECT_GE(open, 3);
  EXPECT_GE(Value(metrics, "process_max_fds"), open);
  const double began = Value(metrics, "process_start_time_seconds");
  const double now = static_cast<double>(absl::ToUnixMicros(absl::Now())) / 1e6;
  EXPECT_GT(began, now - 3600);
  // To the length of the kernel's tick.
  EXPECT_LT(began, now + 0.1);
}

TEST(StatusPageTest, OwnMetricsFollowTheLibrarys) {
  const auto own = [] { return std::string("# TYPE kv_keys gauge\nkv_keys 12"); };
  const auto page = Start(own);
  EXPECT_EQ(Value(Get(page->url(), "/metrics"), "kv_keys"), 12);
  TestServer server({.status_address = "127.0.0.1:0", .metrics = own});
  EXPECT_EQ(Value(Get(server.server.status_url(), "/metrics"), "kv_keys"), 12);
}

TEST(StatusPageTest, OwnMetricsThatFailCostNoOthers) {
  const auto page = Start([]() -> std::string { throw std::runtime_error("no\nmetrics"); });
  const std::string metrics = Get(page->url(), "/metrics");
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 "));
  EXPECT_GT(Value(metrics, "process_cpu_seconds_total"), 0);
  EXPECT_THAT(metrics,
              ContainsRegex("\n# The program's own metrics are not here: it threw .*no\\\\nmetrics"));
  const auto other = Start([] { return std::string("kv_keys{of=\"\xff\"} 1\n"); });
  EXPECT_THAT(Get(other->url(), "/metrics"), AllOf(HasSubstr("process_cpu_seconds_total"),
                                                   HasSubstr("not UTF-8"), Not(HasSubstr("kv_keys"))));
  const auto broken = Start([] { return std::string("kv_keys 1\nkv_keys{of=\"a\nb\"} 1\n"); });
  EXPECT_THAT(
      Get(broken->url(), "/metrics"),
      AllOf(HasSubstr("process_cpu_seconds_total"), Not(HasSubstr("\nkv_keys")),
            HasSubstr("# The program's own metrics are not here: line 2 is no metric: kv_keys{of=\"a\n")));
}

// A gateway: its server is slow when another one is.
TEST(StatusPageTest, AServersPageHasTheCallsThatItsProgramMakes) {
  TestServer behind;
  TestServer gateway({.status_address = "127.0.0.1:0"});
  const auto channel = behind.Connect();
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  // A page may show what was a moment ago.
  std::string metrics;
  EXPECT_TRUE(Eventually([&] {
    metrics = Get(gateway.server.status_url(), "/metrics");
    return Value(metrics, CallsTo(behind, "OK")) == 1;
  }));
  EXPECT_THAT(metrics, HasSubstr("hawser_server_serving 1"));
  EXPECT_THAT(Get(gateway.server.status_url(), "/methods"), HasSubstr(behind.uri));
}

// A handler that is slow before it calls another server does not make that one look slow.
TEST(StatusPageTest, WhatAHandlerTakesBeforeItCallsIsNotTheTargets) {
  TestServer behind;
  const auto channel = behind.Connect();
  ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  TestServer gateway({.pollers = 1});
  ChannelOptions options;
  options.server = &gateway.server;
  const auto onward = *Channel::Connect(behind.uri, options);
  Box<absl::Status> ended;
  gateway.probe.on_act = [&](ServerContext&, uint64_t) {
    const absl::Time seen = absl::Now();
    while (absl::Now() - seen < absl::Milliseconds(40)) std::this_thread::yield();
    SendAct(onward, 2).Then([&](auto result) { ended.Put(result.status()); });
    return absl::OkStatus();
  };
  const auto sum_ns = [&] {
    uint64_t sum = 0;
    for (const auto& each : internal::OutgoingCalls::Process().Look(1 << 20).totals) {
      if (each.target == behind.uri) sum += each.ended.latency.sum_ns;
    }
    return sum;
  };
  const auto client = gateway.Connect();
  // A machine that is busy may hold up one call, but not all of them.
  EXPECT_TRUE(Eventually([&] {
    const uint64_t before = sum_ns();
    EXPECT_THAT(SendAct(client, 1).Wait(), IsOk());
    EXPECT_THAT(ended.Take(), IsOk());
    return sum_ns() - before < 40'000'000;
  }));
}

// ---- /healthz of a server

// What a server that drains says to a request that began before, since it gives up its port then. "": the
// page has ended the connection, whose ten seconds were over.
std::string HealthOfOneThatDrains() {
  constexpr char kRequest[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n";
  TestServer server({.status_address = "127.0.0.1:0"});
  server.probe.on_act = server.held.Handler();
  auto call = SendAct(server.Connect(), 1, {.timeout = kLong});
  DeferredCall held = server.held.Take();
  HttpClient client(server.server.status_url());
  // One request, and all but the last line of another one.
  client.Send(absl::StrCat(kRequest, "\r\n", kRequest, "Connection: close\r\n"));
  EXPECT_THAT(client.ReadUntil("\nserving\n"), StartsWith("HTTP/1.1 200 "));
  std::thread draining([&] { EXPECT_THAT(server.server.Shutdown(absl::InfiniteFuture()), IsOk()); });
  EXPECT_TRUE(Eventually([&] {
    return Taken(server.server).Get().getServer().getState() == observe::wire::Server::State::DRAINING;
  }));
  client.Send("\r\n");
  const std::string answer = client.ReadAll();
  held.Finish();
  draining.join();
  EXPECT_THAT(call.Wait(), IsOk());
  return answer;
}

TEST(ServersHealthPageTest, AServerThatDrainsIsUnavailable) {
  std::string answer;
  EXPECT_TRUE(Eventually([&] { return !(answer = HealthOfOneThatDrains()).empty(); }));
  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 503 "), EndsWith("\ndraining\n")));
}

// What checks a server's health asks often, also while handlers hold the pollers.
TEST(ServersHealthPageTest, ItWaitsForNoPoller) {
  TestServer server({.pollers = 1, .status_address = "127.0.0.1:0"});
  absl::Notification go_on;
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    go_on.WaitForNotification();
    return absl::OkStatus();
  };
  auto call = SendAct(server.Connect(), 1, {.timeout = absl::InfiniteDuration()});
  ASSERT_TRUE(Eventually([&] { return server.probe.runs == 1; }));
  constexpr absl::Duration kExpiresUnanswered = absl::Milliseconds(20);  // A snapshot's wait for pollers.
  constexpr absl::Duration kPeriod = absl::Milliseconds(250);            // Requests in it share a snapshot.
  absl::Time last = absl::InfinitePast();
  EXPECT_TRUE(Eventually([&] {
    if (absl::Now() < last + kPeriod) return false;
    const absl::Time start = absl::Now();
    EXPECT_THAT(Get(server.server.status_url(), "/healthz"), StartsWith("HTTP/1.1 200 "));
    last = absl::Now();
    return last - start < kExpiresUnanswered;
  }));
  go_on.Notify();
  EXPECT_THAT(call.Wait(), IsOk());
}

}  // namespace
}  // namespace hawser
