// What the status server answers, to friends and to strangers.

#include "hawser/observe/status_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/observe/page.h"
#include "hawser/observe/status_service.h"
#include "hawser/tests/observe/busy_snapshot.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::observe {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Not met unless something is broken. Less than the test has, so that it can still say what.
constexpr absl::Duration kLong = absl::Seconds(45);
// A time that the test waits for, where nothing has to happen before it.
constexpr absl::Duration kExpires = absl::Milliseconds(200);
// What a client waits for the end of its connection after the answer to "Connection: close".
constexpr absl::Duration kIdle = absl::Milliseconds(5);

void FillIn(wire::Snapshot::Builder snapshot) {
  FillInBusy({.methods = 100, .taken_unix_ns = absl::ToUnixNanos(absl::Now())}, snapshot);
}

class Client {
 public:
  explicit Client(const StatusServer& server, bool connects = true)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (connects) Connect(server);
  }
  void Connect(const StatusServer& server, uint32_t from = INADDR_ANY) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(from);
    if (from != INADDR_ANY) bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port =
        htons(static_cast<uint16_t>(std::stoi(server.url().substr(server.url().rfind(':') + 1))));
    connected = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Send(const std::string& bytes) {
    [[maybe_unused]] const ssize_t n = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // What comes until the end of the connection.
  std::string ReadAll() {
    std::string all;
    char bytes[4096];
    for (ssize_t n; (n = recv(socket_, bytes, sizeof(bytes), 0)) > 0;)
      all.append(bytes, static_cast<size_t>(n));
    return all;
  }
  // What comes until `end`, or the end of the connection.
  std::string ReadUntil(absl::string_view end) {
    std::string all;
    char byte;
    while (!absl::EndsWith(all, end) && recv(socket_, &byte, 1, 0) == 1) all.push_back(byte);
    return all;
  }
  // Waits until the answer begins.
  void WaitForAnswer() {
    pollfd events = {.fd = socket_, .events = POLLIN, .revents = 0};
    poll(&events, 1, -1);
  }
  // Whether the other side's kernel has not taken all of it.
  bool is_unsent() {
    int bytes = 0;
    return ioctl(socket_, SIOCOUTQ, &bytes) == 0 && bytes > 0;
  }
  bool is_open() {
    pollfd events = {.fd = socket_, .events = POLLIN, .revents = 0};
    char byte;
    return poll(&events, 1, 0) == 0 || recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }
  int fd() const { return socket_; }

  bool connected = false;

 private:
  const int socket_;
};

std::string Request(absl::string_view method, absl::string_view path, absl::string_view host = "localhost") {
  return absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: ", host, "\r\nConnection: close\r\n\r\n");
}

size_t Count(absl::string_view text, absl::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

class StatusServerTest : public ::testing::Test {
 protected:
  std::unique_ptr<StatusServer> Start(StatusServer::Options options = {}, absl::Duration idle_time = kIdle) {
    options.idle_time = idle_time;
    // Beside other programs that never rest, a thread of less priority would take ten times as long.
    options.nice = 0;
    auto server = StatusServer::Start("127.0.0.1:0", FillIn, options);
    EXPECT_THAT(server, IsOk());
    return *std::move(server);
  }
  std::string Ask(const StatusServer& server, const std::string& request) {
    Client client(server);
    client.Send(request);
    return client.ReadAll();
  }
};

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

TEST_F(StatusServerTest, ASlowPeerIsCutOff) {
  const auto server = Start({.connection_time = kExpires});
  Client silent(*server), trickles(*server);
  trickles.Send("GET / HTTP/1.1\r\nHost:");
  const absl::Time start = absl::Now();
  EXPECT_THAT(silent.ReadAll(), Not(HasSubstr("200 OK")));
  EXPECT_THAT(trickles.ReadAll(), Not(HasSubstr("200 OK")));
  EXPECT_LT(absl::Now() - start, kLong);
}

// One that sends many requests at once does not make the others wait for all of its answers.
TEST_F(StatusServerTest, RequestsOfSeveralConnectionsTakeTurns) {
  std::atomic<int> pages{0}, pages_before{-1};
  std::atomic<bool> may_answer{false};
  auto server = StatusServer::Start("0",
                                    [&](wire::Snapshot::Builder snapshot) {
                                      ++pages;
                                      while (!may_answer) std::this_thread::yield();
                                      FillIn(snapshot);
                                    },
                                    {.idle_time = kIdle,
                                     .snapshot_age = absl::ZeroDuration(),
                                     .history_interval = absl::Hours(1),
                                     .nice = 0,
                                     .state = [&] {
                                       pages_before = pages.load();
                                       return wire::Server::State::SERVING;
                                     }});
  ASSERT_THAT(server, IsOk());
  Client many(**server), one(**server);
  std::string requests;
  for (int i = 0; i < 50; ++i) requests += "GET /methods HTTP/1.1\r\nHost: localhost\r\n\r\n";
  many.Send(requests);
  while (pages == 0) std::this_thread::yield();
  // The server is at the first of the many, and finds the other request behind it.
  one.Send(Request("GET", "/healthz"));
  while (one.is_unsent()) std::this_thread::yield();
  may_answer = true;
  EXPECT_THAT(one.ReadAll(), StartsWith("HTTP/1.1 200"));
  EXPECT_GE(pages_before, 1);
  EXPECT_LE(pages_before, 5);
}

TEST_F(StatusServerTest, AConnectionEndsWithItsLastRequest) {
  const auto server = Start({.connection_time = absl::Hours(1)}, /*idle_time=*/absl::Hours(1));
  const std::string keep = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
  std::string requests;
  for (int i = 0; i < 3 * StatusService::kRequestsMax; ++i) requests += keep;
  const std::string answers = Ask(*server, requests);
  EXPECT_EQ(Count(answers, "serving\n"), static_cast<size_t>(StatusService::kRequestsMax));
  EXPECT_EQ(Count(answers, "Connection: close\r\n"), 1u);
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

TEST_F(StatusServerTest, OneHostDoesNotTakeAllPlaces) {
  const auto server = Start({.connections_max = 8, .connection_time = absl::Hours(1)}, absl::Hours(1));
  const std::string keep = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
  Client other(*server, /*connects=*/false);
  other.Connect(*server, /*from=*/INADDR_LOOPBACK + 1);
  other.Send(keep);
  EXPECT_THAT(other.ReadUntil("serving\n"), StartsWith("HTTP/1.1 200"));
  std::vector<std::unique_ptr<Client>> many;
  for (int i = 0; i < 20; ++i) {
    many.push_back(std::make_unique<Client>(*server));
    many.back()->Send(keep);
    EXPECT_THAT(many.back()->ReadUntil("serving\n"), StartsWith("HTTP/1.1 200"));
  }
  const auto open = [&] {
    return std::count_if(many.begin(), many.end(), [](const auto& each) { return each->is_open(); });
  };
  const absl::Time give_up = absl::Now() + kLong;
  while (open() > 6 && absl::Now() < give_up) sched_yield();
  EXPECT_EQ(open(), 6);
  EXPECT_TRUE(other.is_open());
}

TEST_F(StatusServerTest, RequestsWithoutEndAreCutOff) {
  const auto server = Start({.connection_time = absl::Hours(1)});
  Client client(*server);
  // kj would keep them in a buffer that grows with them.
  std::thread sends([&] {
    const std::string request = "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n";
    std::string many;
    for (int i = 0; i < 1000; ++i) many += request;
    for (int i = 0; i < 100; ++i) client.Send(many);
  });
  const std::string answers = client.ReadAll();
  sends.join();
  EXPECT_THAT(answers, StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask(*server, Request("GET", "/healthz")), StartsWith("HTTP/1.1 200"));
}

TEST_F(StatusServerTest, AnswersThatWaitForSlowReadersAreBounded) {
  auto server = StatusServer::Start(
      "0", [](wire::Snapshot::Builder snapshot) { FillInBusy({.methods = 10'000}, snapshot); },
      {.connection_time = absl::Hours(1),
       .idle_time = kIdle,
       .snapshot_age = absl::Hours(1),
       .history_interval = absl::Hours(1),
       .nice = 0});
  ASSERT_THAT(server, IsOk());
  std::vector<std::unique_ptr<Client>> readers;
  std::string page;
  // Each keeps some 15 MiB waiting.
  for (int i = 0; i < 20 && page.find("503 Service Unavailable") == std::string::npos; ++i) {
    readers.push_back(std::make_unique<Client>(**server));
    readers.back()->Send("GET /snapshot.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
    readers.back()->WaitForAnswer();
    page = Ask(**server, Request("GET", "/configuration"));
  }
  EXPECT_THAT(page, HasSubstr("too many answers wait for clients that read slowly"));
  EXPECT_THAT(Ask(**server, Request("GET", "/healthz")), StartsWith("HTTP/1.1 200"));
  readers.clear();
  const absl::Time give_up = absl::Now() + kLong;
  while (page.find("200 OK") == std::string::npos && absl::Now() < give_up) {
    page = Ask(**server, Request("GET", "/configuration"));
  }
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200")) << "the readers are gone";
}

TEST_F(StatusServerTest, AThousandConnectionsDoNotKeepAGoodClientOut) {
  // Both ends are files of this process.
  rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
  setrlimit(RLIMIT_NOFILE, &files);
  const auto server = Start({.connections_max = 16, .connection_time = absl::Hours(1)});
  std::vector<std::unique_ptr<Client>> strangers;
  for (int i = 0; i < 1000; ++i) {
    strangers.push_back(std::make_unique<Client>(*server));
    strangers.back()->Send(i % 2 == 0 ? "GET / HTTP/1.1\r\n" : "");
    if (i % 100 == 99) {
      EXPECT_THAT(Ask(*server, Request("GET", "/healthz")), StartsWith("HTTP/1.1 200"));
    }
  }
  const auto open = [&] {
    size_t count = 0;
    for (const auto& each : strangers) count += each->is_open();
    return count;
  };
  const absl::Time give_up = absl::Now() + kLong;
  while (open() > 16 && absl::Now() < give_up) sched_yield();
  EXPECT_LE(open(), 16u);
}

// Takes every file descriptor that the process may have.
class NoFilesLeft {
 public:
  NoFilesLeft() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(0);
    close(next);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next);
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~NoFilesLeft() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

TEST_F(StatusServerTest, ItAcceptsAgainOnceThereAreFilesAgain) {
  const auto server = Start();
  Ask(*server, Request("GET", "/healthz"));
  {
    Client knocks(*server, /*connects=*/false);
    const NoFilesLeft none;
    knocks.Connect(*server);
    // Several of the server's pauses.
    const absl::Time start = absl::Now();
    while (absl::Now() - start < absl::Milliseconds(450)) sched_yield();
  }
  EXPECT_THAT(Ask(*server, Request("GET", "/healthz")), StartsWith("HTTP/1.1 200"));
}

TEST_F(StatusServerTest, WithoutFilesItSaysThatItCannotStart) {
  for (int left = 0; left < 12; ++left) {
    std::vector<int> spare;
    for (int i = 0; i < left; ++i) spare.push_back(dup(0));
    auto none = std::make_unique<NoFilesLeft>();
    for (int fd : spare) close(fd);
    const auto server = StatusServer::Start("0", FillIn);
    none.reset();
    if (server.ok()) {
      EXPECT_GT(left, 3) << "it takes a socket, and what its event loop needs";
      EXPECT_THAT(Ask(**server, Request("GET", "/healthz")), StartsWith("HTTP/1.1 200"));
      return;
    }
    EXPECT_THAT(std::string(server.status().message()), HasSubstr("status page")) << server.status();
  }
  FAIL() << "it does not start with twelve files";
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

// The descriptors that this process has open.
size_t OpenFiles() {
  size_t count = 0;
  for (int fd = 0; fd < 4'000; ++fd) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

TEST_F(StatusServerTest, AFloodOfConnectionsIsBoundedByConnectionsMax) {
  std::atomic<bool> asked{false}, may_answer{false};
  StatusServer::Options options;
  options.connections_max = 8;
  options.connection_time = absl::Hours(1);
  options.nice = 0;
  auto started = StatusServer::Start(
      "127.0.0.1:0",
      [&](wire::Snapshot::Builder snapshot) {
        asked = true;
        while (!may_answer) std::this_thread::yield();
        FillIn(snapshot);
      },
      options);
  ASSERT_THAT(started, IsOk());
  const auto server = *std::move(started);
  const size_t before = OpenFiles();
  // They come while the server is at a request, so that it finds many when it comes back.
  constexpr size_t kClients = 1000;
  std::vector<std::unique_ptr<Client>> clients;
  clients.push_back(std::make_unique<Client>(*server));
  clients.back()->Send(Request("GET", "/"));
  while (!asked) std::this_thread::yield();
  for (size_t i = 1; i < kClients; ++i) clients.push_back(std::make_unique<Client>(*server));
  may_answer = true;
  size_t most = 0, last = 0;
  // Goes on while the server accepts: then there is also the connection that ends for the next one. What is
  // seen before the server has come to them does not count: a busy machine may run it late.
  const absl::Time give_up = absl::Now() + kLong;
  for (int looks = 0; (looks < 100 || last > 8) && absl::Now() < give_up;) {
    last = OpenFiles() - before - kClients;
    most = std::max(most, last);
    if (last >= 4) ++looks;
  }
  EXPECT_GE(last, 4u);
  EXPECT_LE(most, 2 * 8u);
  EXPECT_LE(last, 8u);
}

}  // namespace
}  // namespace hawser::observe
