// What peers may take of the status server: its time, connections, memory and files.

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/observe/status_service.h"
#include "hawser/tests/observe/busy_snapshot.h"
#include "hawser/tests/observe/status_client.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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
