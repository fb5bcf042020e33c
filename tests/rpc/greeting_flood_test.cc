// A server in a flood of strangers that finish the handshake and then send nothing.
//
// HAWSER_GREETINGS and HAWSER_GREETING_SECONDS (--test_env) make it as large as a real one: 50000 in 30
// seconds.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "hawser/base/unique_fd.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/uri.h"
#include "hawser/transport/wire/handshake.h"
#include "tests/rpc/probe.h"
#include "tests/rpc/taken.h"

namespace hawser {
namespace {

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

// The greeting of the TCP fabric with the handshake of a client (PROTOCOL.md): 60 bytes.
std::string Greeting() {
  transport::Handshake hello;
  hello.slots = 32;
  hello.receive_buffer_bytes = 4096;
  hello.message_bytes_max = 1 << 20;
  const std::string private_data = transport::Encode(hello);
  std::string greeting("\x89HAWSER\n\x01\0\x01", 11);
  greeting.push_back(static_cast<char>(private_data.size()));
  greeting.append("\x10\0\0\0", 4);
  return greeting + private_data;
}

uint16_t PortOf(const std::string& uri) {
  return static_cast<uint16_t>(std::stoi(uri.substr(uri.rfind(':') + 1)));
}

// Connects and greets repeatedly from one address, and keeps its latest connections open.
class Flood {
 public:
  Flood(uint16_t port, int greetings, int seconds)
      : port_(port), greetings_(greetings), seconds_(seconds), thread_([this] { Run(); }) {}
  ~Flood() {
    thread_.join();
    while (!sockets_.empty()) CloseOldest();
  }

  bool over() const { return greeted_ >= greetings_; }
  int greeted() const { return greeted_; }

 private:
  static constexpr size_t kOpenMax = 4000;

  void Run() {
    const std::string greeting = Greeting();
    sockaddr_in server = {};
    server.sin_family = AF_INET;
    server.sin_port = htons(port_);
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const absl::Time start = absl::Now();
    for (int i = 0; i < greetings_; ++i) {
      if (seconds_ > 0) absl::SleepFor(start + absl::Seconds(seconds_) * i / greetings_ - absl::Now());
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      // A reset connection leaves no port in TIME_WAIT.
      const linger reset = {.l_onoff = 1, .l_linger = 0};
      setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
      sockets_.push_back(fd);
      if (connect(fd, reinterpret_cast<sockaddr*>(&server), sizeof(server)) == 0) {
        [[maybe_unused]] const ssize_t n = send(fd, greeting.data(), greeting.size(), MSG_NOSIGNAL);
      }
      if (sockets_.size() > kOpenMax) CloseOldest();
      ++greeted_;
    }
  }
  void CloseOldest() {
    close(sockets_.front());
    sockets_.pop_front();
  }

  const uint16_t port_;
  const int greetings_;
  const int seconds_;
  std::deque<int> sockets_;
  std::atomic<int> greeted_{0};
  std::thread thread_;  // The last member, because it uses the others.
};

TEST(GreetingFloodTest, HonestClientsConnectAndSendMeanwhile) {
  const int greetings = FromEnvironment("HAWSER_GREETINGS", 8000);
  const int seconds = FromEnvironment("HAWSER_GREETING_SECONDS", 0);
  TestServer server({.pollers = 2}, "tcp://127.0.0.1:0");
  const auto old_client = server.Connect();
  ASSERT_THAT(SendAct(old_client, 1).Wait(), IsOk());
  absl::Duration slowest_connect, slowest_call;
  int clients = 0;
  {
    Flood flood(PortOf(server.uri), greetings, seconds);
    do {
      const absl::Time start = absl::Now();
      // If no poller ran for 256 greetings, the server refuses, and the client tries again.
      const auto channel = Channel::Connect(server.uri, {.connect_timeout = kLong});
      ASSERT_THAT(channel, IsOk()) << "after " << flood.greeted() << " greetings";
      slowest_connect = std::max(slowest_connect, absl::Now() - start);
      auto call = probe::ProbeStub(*channel).Echo({.timeout = kLong});
      call.request().initData(16 << 20);
      const absl::Time sent = absl::Now();
      const auto reply = call.Send().Wait();
      ASSERT_THAT(reply, IsOk());
      slowest_call = std::max(slowest_call, absl::Now() - sent);
      ++clients;
    } while (!flood.over());
    EXPECT_THAT(SendAct(old_client, 1).Wait(), IsOk());
    const ServerStats stats = server.server.stats();
    std::printf(
        "%d greetings, %d clients: connected within %s, 16 MiB there and back within %s; %d connections\n",
        flood.greeted(), clients, absl::FormatDuration(slowest_connect).c_str(),
        absl::FormatDuration(slowest_call).c_str(), static_cast<int>(stats.connections));
    // Connections closed to make room take a turn or two to end.
    EXPECT_TRUE(Eventually([&] { return server.server.stats().connections < 1100; }))
        << "strangers of one host take more than their share: " << stats.connections;
    if (seconds > 0) {
      EXPECT_LT(slowest_connect, absl::Seconds(1));
    }
  }
  EXPECT_TRUE(Eventually([&] { return server.server.stats().connections == 1; }));
}

// Greets, and sends nothing more.
class Silent {
 public:
  // From an address of loopback.
  explicit Silent(const std::string& uri, const char* from = "127.0.0.1") {
    const SocketAddress server = TestAddress(PortOf(uri));
    const SocketAddress own = *transport::ParseNumericHost(from);
    const std::string greeting = Greeting();
    const timeval patience = {.tv_sec = absl::ToInt64Seconds(kLong), .tv_usec = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    EXPECT_EQ(bind(fd_.get(), own.get(), own.length_bytes()), 0);
    EXPECT_EQ(connect(fd_.get(), server.get(), server.length_bytes()), 0);
    EXPECT_EQ(send(fd_.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL), ssize_t(greeting.size()));
  }
  // Waits for the server's answer. 2: it has accepted, 3: rejected (PROTOCOL.md, "Over TCP").
  int KindOfAnswer() {
    char greeting[16] = "";
    EXPECT_EQ(recv(fd_.get(), greeting, sizeof(greeting), MSG_WAITALL), ssize_t(sizeof(greeting)));
    return greeting[10];
  }
  // All that the server sends until it closes the connection.
  std::string ReadAll() {
    std::string all;
    char bytes[4096];
    for (ssize_t n; (n = recv(fd_.get(), bytes, sizeof(bytes), 0)) > 0;) all.append(bytes, size_t(n));
    return all;
  }

 private:
  const UniqueFd fd_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

// The server's receives may have 6 MiB, and newcomers make room above 5.25 MiB; each has 152 KiB.
TEST(GreetingFloodTest, TheOldestThatSentNothingMakesRoomAndNoneThatSentSomething) {
  TestServer server({.pool = {.limit_bytes = 8 << 20}}, "tcp://127.0.0.1:0");
  std::vector<std::shared_ptr<Channel>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(server.Connect());
    ASSERT_THAT(SendAct(clients.back(), 1).Wait(), IsOk());
  }
  std::deque<Silent> strangers;
  for (int i = 0; i < 16; ++i) EXPECT_EQ(strangers.emplace_back(server.uri).KindOfAnswer(), 2);
  EXPECT_THAT(strangers.front().ReadAll(), ::testing::HasSubstr("makes room for newer ones"));
  for (const auto& client : clients) {
    EXPECT_EQ(client->state(), ChannelState::kReady);
    EXPECT_THAT(SendAct(client, 1).Wait(), IsOk());
  }
}

// 256 new connections may wait for a poller, 192 of one host.
TEST(GreetingFloodTest, AHostLeavesRoomForOthersAtAPollerThatIsHeld) {
  TestServer server({.pollers = 1}, "tcp://127.0.0.1:0");
  Box<bool> holds;
  absl::Notification go_on;
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    holds.Put(true);
    go_on.WaitForNotification();
    return absl::OkStatus();
  };
  const auto let_go = absl::MakeCleanup([&] {  // Also if the test gives up.
    if (!go_on.HasBeenNotified()) go_on.Notify();
  });
  const auto client = server.Connect();
  auto call = SendAct(client, 1, {.timeout = kLong});
  holds.Take();
  std::deque<Silent> strangers;
  for (uint64_t waiting = 1; waiting <= 192; ++waiting) {
    strangers.emplace_back(server.uri);
    ASSERT_TRUE(Eventually([&] { return server.server.stats().connections == 1 + waiting; })) << waiting;
  }
  Silent one_too_many(server.uri);
  EXPECT_EQ(one_too_many.KindOfAnswer(), 3);
  EXPECT_THAT(one_too_many.ReadAll(), ::testing::HasSubstr("192 new connections of this host"));
  Taken snapshot(server.server, Taken::Pollers::kMayBeHeld);
  const auto refusals = snapshot.Get().getRefusals();
  const auto no_room = refusals[refusals.size() - 1];
  EXPECT_EQ(std::string(no_room.getReason().cStr()), "no room");
  EXPECT_EQ(no_room.getCount(), 1u);
  Silent other(server.uri, "127.0.0.2");
  EXPECT_TRUE(Eventually([&] { return server.server.stats().connections == 1 + 192 + 1; }));
  go_on.Notify();
  EXPECT_THAT(call.Wait(), IsOk());
  EXPECT_EQ(strangers.front().KindOfAnswer(), 2);
  EXPECT_EQ(other.KindOfAnswer(), 2);
}

}  // namespace
}  // namespace hawser
