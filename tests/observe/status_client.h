#ifndef HAWSER_TESTS_OBSERVE_STATUS_CLIENT_H_
#define HAWSER_TESTS_OBSERVE_STATUS_CLIENT_H_

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/observe/status_server.h"
#include "hawser/tests/observe/busy_snapshot.h"
#include "hawser/tests/testing/status_matchers.h"

// A client of the status server, which speaks HTTP as a test says.
namespace hawser::observe {

// Not met unless something is broken. Less than the test has, so that it can still say what.
constexpr absl::Duration kLong = absl::Seconds(45);
// A time that the test waits for, where nothing has to happen before it.
constexpr absl::Duration kExpires = absl::Milliseconds(200);
// What a client waits for the end of its connection after the answer to "Connection: close".
constexpr absl::Duration kIdle = absl::Milliseconds(5);

inline void FillIn(wire::Snapshot::Builder snapshot) {
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

inline std::string Request(absl::string_view method, absl::string_view path,
                           absl::string_view host = "localhost") {
  return absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: ", host, "\r\nConnection: close\r\n\r\n");
}

inline size_t Count(absl::string_view text, absl::string_view what) {
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

}  // namespace hawser::observe

#endif  // HAWSER_TESTS_OBSERVE_STATUS_CLIENT_H_
