// What the status server answers.

#include "hawser/observe/status_server.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/observe/page.h"
#include "hawser/tests/observe/status_client.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::observe {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(StatusServerOptionsTest, OneOutOfItsRangeIsRefusedWithItsName) {
  constexpr absl::Duration kZero = absl::ZeroDuration(), kInfinite = absl::InfiniteDuration();
  constexpr absl::Duration kNegative = -absl::Seconds(5);
  constexpr absl::Duration kStep = absl::Nanoseconds(1);
  const absl::Duration above_a_day = absl::Hours(24) + kStep;
  const std::vector<std::pair<std::string, StatusServer::Options>> wrong = {
      {"connections_max", {.connections_max = 0}},
      {"connections_max", {.connections_max = 65537}},
      {"connection_time", {.connection_time = kZero}},
      {"connection_time", {.connection_time = kNegative}},
      {"connection_time", {.connection_time = kInfinite}},
      {"connection_time", {.connection_time = above_a_day}},
      {"idle_time", {.idle_time = kZero}},
      {"idle_time", {.idle_time = kNegative}},
      {"idle_time", {.idle_time = -kInfinite}},
      {"idle_time", {.idle_time = above_a_day}},
      {"snapshot_age", {.snapshot_age = kNegative}},
      {"snapshot_age", {.snapshot_age = kInfinite}},
      {"snapshot_age", {.snapshot_age = above_a_day}},
      {"history_interval", {.history_interval = kZero}},
      {"history_interval", {.history_interval = kNegative}},
      {"history_interval", {.history_interval = kInfinite}},
      {"history_interval", {.history_interval = above_a_day}},
  };
  for (const auto& [name, options] : wrong) {
    const absl::Status status = StatusServer::Start("127.0.0.1:0", FillIn, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << ": " << status;
    EXPECT_THAT(std::string(status.message()), StartsWith("StatusServer::Options::" + name + " is "));
  }
}

TEST_F(StatusServerTest, TheEndsOfTheRangesServe) {
  constexpr absl::Duration kDay = absl::Hours(24);
  constexpr absl::Duration kStep = absl::Milliseconds(1);
  const StatusServer::Options ends[] = {
      {.connections_max = 1,
       .connection_time = kDay,
       .snapshot_age = absl::ZeroDuration(),
       .history_interval = absl::Milliseconds(1)},
      {.connections_max = 65536, .connection_time = kDay, .snapshot_age = kDay, .history_interval = kDay}};
  for (const StatusServer::Options& options : ends) {
    for (const absl::Duration idle_time : {kStep, kDay}) {
      const auto server = Start(options, idle_time);
      Client client(*server);
      client.Send("GET /snapshot.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
      EXPECT_THAT(client.ReadUntil("\r\n"), StartsWith("HTTP/1.1 200 "));
    }
  }
}

TEST_F(StatusServerTest, EachPathHasItsAnswer) {
  const auto server = Start();
  EXPECT_THAT(server->url(), StartsWith("http://127.0.0.1:"));
  for (const Page& page : Pages()) {
    const std::string html = Ask(*server, Request("GET", page.path));
    EXPECT_THAT(html, StartsWith("HTTP/1.1 200 OK\r\n")) << page.path;
    EXPECT_THAT(html, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
    EXPECT_THAT(html, HasSubstr("default-src 'none'"));
    EXPECT_THAT(html, HasSubstr(absl::StrCat(" - ", page.title, " - Hawser</title>")));
    const std::string json = Ask(*server, Request("GET", page.json_path));
    EXPECT_THAT(json, StartsWith("HTTP/1.1 200 OK\r\n")) << page.json_path;
    EXPECT_THAT(json, HasSubstr("Content-Type: application/json\r\n"));
    EXPECT_THAT(json, HasSubstr("\"takenUnixNs\": \""));
  }
  const std::string metrics = Ask(*server, Request("GET", "/metrics"));
  EXPECT_THAT(metrics, HasSubstr("Content-Type: text/plain; version=0.0.4\r\n"));
  EXPECT_THAT(metrics,
              HasSubstr("hawser_server_calls_total{method=\"kv.capnp:KeyValue.method3\",code=\"OK\"} 2\n"));
  EXPECT_THAT(Ask(*server, Request("GET", "/snapshot.json")), HasSubstr("\"callsTotal\": \"12345\""));
  EXPECT_THAT(Ask(*server, Request("GET", "/healthz")), ::testing::EndsWith("\r\n\r\nserving\n"));
  EXPECT_THAT(Ask(*server, Request("GET", "/healthz?x=y")), StartsWith("HTTP/1.1 200"));
}

TEST_F(StatusServerTest, AnUnknownPathGetsTheListOfThoseThatThereAre) {
  const auto server = Start();
  for (const char* path :
       {"/nothing", "/methods/", "/METHODS", "/methods.json/x", "//", "/..", "/%6dethods"}) {
    const std::string answer = Ask(*server, Request("GET", path));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 404")) << path;
    EXPECT_THAT(answer, HasSubstr("\n/methods\n/methods.json\n"));
    EXPECT_THAT(answer, HasSubstr("\n/snapshot.json\n/metrics\n/healthz\n"));
  }
}

TEST_F(StatusServerTest, AListBeginsWhereTheQuerySays) {
  const auto server = Start();
  EXPECT_THAT(Ask(*server, Request("GET", "/methods")), Not(HasSubstr("Rows ")));
  for (const char* query : {"?from=99", "?x=1&from=99", "?x=1&from=99&y", "?from=1000"}) {
    EXPECT_THAT(Ask(*server, Request("GET", absl::StrCat("/methods", query))), HasSubstr("200 OK")) << query;
  }
  EXPECT_THAT(Ask(*server, Request("GET", "/methods?x=1&from=99")), HasSubstr("Rows 100 to 100 of 100."));
  for (const char* query :
       {"?from=", "?from=-1", "?from=1e9", "?from=18446744073709551616", "?from", "?&&", "?"}) {
    EXPECT_THAT(Ask(*server, Request("GET", absl::StrCat("/methods", query))), Not(HasSubstr("Rows ")))
        << query;
  }
}

TEST_F(StatusServerTest, AServerThatDrainsIsNotHealthy) {
  auto server = StatusServer::Start("0", [](wire::Snapshot::Builder snapshot) {
    snapshot.initServer().setState(wire::Server::State::DRAINING);
  });
  ASSERT_THAT(server, IsOk());
  const std::string answer = Ask(**server, Request("GET", "/healthz"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(answer, HasSubstr("draining"));
}

TEST_F(StatusServerTest, HeadHasTheHeadersAndNoBody) {
  const auto server = Start();
  const std::string answer = Ask(*server, Request("HEAD", "/healthz"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 8\r\n"));
  EXPECT_THAT(answer, ::testing::EndsWith("\r\n\r\n"));
}

TEST_F(StatusServerTest, OtherMethodsBodiesAndHostsAreRefused) {
  const auto server = Start();
  EXPECT_THAT(Ask(*server, Request("POST", "/")), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Ask(*server, Request("DELETE", "/")), HasSubstr("Allow: GET, HEAD\r\n"));
  EXPECT_THAT(Ask(*server, "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(
      Ask(*server, "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
      StartsWith("HTTP/1.1 413"));
  // A page of another site whose name leads to this machine.
  for (const char* host : {"evil.example", "localhost.evil.example", "127.evil.example", "[::2]",
                           "[::1].evil", "[::1]a", "[", ""}) {
    EXPECT_THAT(Ask(*server, Request("GET", "/", host)), StartsWith("HTTP/1.1 403")) << host;
  }
  for (const char* host : {"localhost", "LOCALHOST:80", "127.0.0.1:9090", "127.9.9.9", "[::1]:9090"}) {
    EXPECT_THAT(Ask(*server, Request("GET", "/healthz", host)), StartsWith("HTTP/1.1 200")) << host;
  }
}

TEST_F(StatusServerTest, NonsenseIsRefusedAndTheServerGoesOn) {
  const auto server = Start({.connection_time = kLong});
  const std::string whole = Request("GET", "/healthz");
  std::vector<std::string> requests = {
      "\r\n\r\n",
      "GET\r\n\r\n",
      "GET /\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      std::string(100'000, 'A'),
      absl::StrCat("GET / HTTP/1.1\r\nX: ", std::string(200'000, 'a'), "\r\n\r\n"),
      std::string("\0\xff\0", 3),
      "GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "GET / HTTP/1.1\r\nNo colon\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"};
  for (size_t length = 0; length < whole.size(); ++length) requests.push_back(whole.substr(0, length));
  for (const std::string& request : requests) {
    Client client(*server);
    client.Send(request);
    shutdown(client.fd(), SHUT_WR);
    client.ReadAll();
  }
  EXPECT_THAT(Ask(*server, whole), StartsWith("HTTP/1.1 200"));
}

TEST_F(StatusServerTest, RequestsOfOneConnectionAreAnsweredInOrder) {
  const auto server = Start();
  const std::string keep = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string answers = Ask(*server, absl::StrCat(keep, keep, Request("GET", "/healthz")));
  EXPECT_EQ(Count(answers, "serving\n"), 3u);
}

// The port of a server that drains, for the process that replaces it.
TEST_F(StatusServerTest, APortThatIsGivenUpIsFreeAndItsOpenConnectionsAreServedOn) {
  const auto server = StatusServer::Start("127.0.0.1:0", FillIn, {.idle_time = absl::Hours(1), .nice = 0});
  ASSERT_THAT(server, IsOk());
  const std::string address = (*server)->url().substr(std::string("http://").size());
  EXPECT_THAT(StatusServer::Start(address, FillIn), ::testing::Not(IsOk()));
  Client open(**server);
  open.Send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  open.WaitForAnswer();
  (*server)->StopListening();
  (*server)->StopListening();
  EXPECT_FALSE(Client(**server).connected);
  const auto next = StatusServer::Start(address, FillIn, {.nice = 0});
  ASSERT_THAT(next, IsOk());
  EXPECT_EQ((*next)->url(), (*server)->url());
  open.Send(Request("GET", "/configuration"));
  const std::string answers = open.ReadAll();
  EXPECT_THAT(answers, HasSubstr("serving\n"));
  EXPECT_THAT(answers, HasSubstr("Content-Type: text/html"));
  EXPECT_THAT(Ask(**next, Request("GET", "/healthz")), StartsWith("HTTP/1.1 200"));
}

TEST_F(StatusServerTest, ARequestToCloseIsObeyedAtOnce) {
  const auto server = Start({.connection_time = absl::Hours(1)}, /*idle_time=*/absl::Hours(1));
  for (const char* header : {"Connection: close", "connection: keep-alive, Close"}) {
    const std::string answer = Ask(*server, absl::StrCat("GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
                                                         header, "\r\n\r\n", Request("GET", "/healthz")));
    EXPECT_EQ(Count(answer, "serving\n"), 1u) << "what comes behind it is not read";
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  }
}

TEST_F(StatusServerTest, AUriIsServedLikeItsPath) {
  const auto server = Start();
  EXPECT_THAT(Ask(*server, Request("GET", "http://localhost:9090/healthz?x=y", "proxy.example")),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask(*server, Request("GET", "HTTP://127.0.0.1", "")), HasSubstr("<title>"));
  EXPECT_THAT(Ask(*server, Request("GET", "http://localhost/nothing")), StartsWith("HTTP/1.1 404"));
  // The host of the URI counts.
  EXPECT_THAT(Ask(*server, Request("GET", "http://evil.example/healthz")), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Ask(*server, Request("GET", "http:///healthz")), StartsWith("HTTP/1.1 403"));
}

TEST_F(StatusServerTest, HealthNeedsNoSnapshot) {
  std::atomic<wire::Server::State> state{wire::Server::State::SERVING};
  auto server = StatusServer::Start(
      "0", [](wire::Snapshot::Builder) { ADD_FAILURE() << "a snapshot"; },
      {.idle_time = kIdle, .history_interval = absl::Hours(1), .state = [&] { return state.load(); }});
  ASSERT_THAT(server, IsOk());
  EXPECT_THAT(Ask(**server, Request("GET", "/healthz")), EndsWith("\r\n\r\nserving\n"));
  state = wire::Server::State::DRAINING;
  EXPECT_THAT(Ask(**server, Request("GET", "/healthz")), StartsWith("HTTP/1.1 503"));
}

TEST_F(StatusServerTest, RequestsThatComeTogetherShareASnapshot) {
  std::atomic<int> taken{0};
  auto server = StatusServer::Start(
      "0",
      [&](wire::Snapshot::Builder snapshot) {
        ++taken;
        FillIn(snapshot);
      },
      {.idle_time = kIdle, .snapshot_age = absl::Hours(1), .history_interval = absl::Hours(1)});
  ASSERT_THAT(server, IsOk());
  for (int i = 0; i < 10; ++i) Ask(**server, Request("GET", "/metrics"));
  EXPECT_EQ(taken, 1);
}

TEST_F(StatusServerTest, TheThreadsOfTheProgramGoBeforePages) {
  const int nice = getpriority(PRIO_PROCESS, 0);
  for (const int wanted : {10, nice - 1}) {
    std::atomic<int> nice_there{0};
    auto server = StatusServer::Start("127.0.0.1:0",
                                      [&](wire::Snapshot::Builder snapshot) {
                                        nice_there = getpriority(PRIO_PROCESS, 0);
                                        FillIn(snapshot);
                                      },
                                      {.idle_time = kIdle, .nice = wanted});
    ASSERT_THAT(server, IsOk());
    EXPECT_THAT(Ask(**server, Request("GET", "/metrics")), StartsWith("HTTP/1.1 200"));
    EXPECT_EQ(nice_there, std::max(nice, wanted));
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
  }
}

TEST_F(StatusServerTest, TheCurvesFollowTheServer) {
  const auto server =
      Start({.snapshot_age = absl::ZeroDuration(), .history_interval = absl::Milliseconds(5)});
  const absl::Time give_up = absl::Now() + kLong;
  std::string page;
  while (page.find("<polyline") == std::string::npos && absl::Now() < give_up) {
    page = Ask(*server, Request("GET", "/"));
  }
  EXPECT_THAT(page, HasSubstr("Registered memory in use"));
}

TEST_F(StatusServerTest, WhatIsNotHttpIsToldSoAtOnce) {
  const auto server = Start({.connection_time = absl::Hours(1)});
  for (const char* bytes : {"\x89HAWSER\n\x01", "\x16\x03\x01"}) {
    const std::string answer = Ask(*server, bytes);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 Bad Request: this port is for HTTP, not for calls\r\n"));
  }
}

TEST_F(StatusServerTest, AnAddressThatCannotServeSaysWhy) {
  const auto code = [](const char* address) { return StatusServer::Start(address, FillIn).status(); };
  for (const char* text :
       {"", ":", "localhost", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1", "::1:80", "1.2.3.4:x"}) {
    EXPECT_THAT(code(text), HasCode(absl::StatusCode::kInvalidArgument)) << text;
    EXPECT_THAT(std::string(code(text).message()), HasSubstr("HOST:PORT")) << text;
  }
  EXPECT_THAT(code("no.such.host.invalid:80"), HasCode(absl::StatusCode::kNotFound));
  const auto first = Start();
  const std::string taken = first->url().substr(strlen("http://"));
  const absl::Status refused = code(taken.c_str());
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat("listen on ", taken)));
  const absl::Status elsewhere = code("192.0.2.200:0");  // In a network for documentation.
  EXPECT_THAT(elsewhere, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(elsewhere.message()), EndsWith("no interface of this machine has that address"));
}

TEST_F(StatusServerTest, ItEndsAtOnceWhileConnectionsAreOpen) {
  auto server = Start({.connection_time = absl::Hours(1)});
  Client client(*server);
  client.Send("GET / HTTP/1.1\r\n");
  Ask(*server, Request("GET", "/healthz"));
  server.reset();
  client.ReadAll();
}

}  // namespace
}  // namespace hawser::observe
