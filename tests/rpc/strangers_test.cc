// Who else may be at the other end: another version, another protocol, nobody.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "hawser/transport/connection.h"
#include "hawser/transport/handshake.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

// Listens on loopback and says `answer` to whoever comes.
class Stranger {
 public:
  explicit Stranger(std::string answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener_, 8) != 0)
      abort();
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    uri_ = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] {
      while (true) {
        const int peer = accept(listener_, nullptr, nullptr);
        if (peer < 0) return;
        if (!answer_.empty() && send(peer, answer_.data(), answer_.size(), MSG_NOSIGNAL) < 0) abort();
        peers_.push_back(peer);
      }
    });
  }
  ~Stranger() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    for (int peer : peers_) close(peer);
  }
  const std::string& uri() const { return uri_; }

 private:
  const std::string answer_;
  int listener_ = -1;
  std::string uri_;
  std::vector<int> peers_;
  std::thread thread_;
};

TEST(StrangersTest, AServerOfAnotherProtocolIsNoServer) {
  Stranger web("HTTP/1.1 400 Bad Request\r\n\r\n");
  const absl::Status status = Channel::Connect(web.uri()).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(web.uri().substr(6)));
}

TEST(StrangersTest, AServerThatSaysNothingIsGivenUp) {
  Stranger mute("");
  const absl::Time before = absl::Now();
  const absl::Status status =
      Channel::Connect(mute.uri(), {.connect_timeout = absl::Milliseconds(50)}).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_LT(absl::Now() - before, kLong / 2);
}

// A peer that says a handshake of our making to the server.
class Dialer final : transport::ConnectionObserver {
 public:
  absl::Status Dial(const std::string& uri, const transport::Handshake& hello) {
    const uint16_t port = static_cast<uint16_t>(std::stoi(uri.substr(uri.rfind(':') + 1)));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    auto runtime = transport::Runtime::Default("tcp");
    transport::Poller& poller = (*runtime)->poller(0);
    poller.Run([&, address] {
      auto connection = transport::Connection::Dial(
          poller, fabric::SocketAddress(reinterpret_cast<const sockaddr*>(&address), sizeof(address)), {},
          hello, absl::Seconds(5), *this, nullptr);
      if (!connection.ok()) closed_.Put(connection.status());
    });
    return closed_.Take();
  }

 private:
  void OnReady(const transport::Handshake&) override { closed_.Put(absl::OkStatus()); }
  void OnClosed(const absl::Status& why) override { closed_.Put(why); }

  Box<absl::Status> closed_;
};

TEST(StrangersTest, AClientOfAnotherVersionIsToldBoth) {
  TestServer server;
  transport::Handshake hello;
  hello.version = 9;
  Dialer dialer;
  const absl::Status status = dialer.Dial(server.uri, hello);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 9"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 1"));
}

TEST(StrangersTest, AReverseConnectionOfNoSessionIsRejected) {
  TestServer server;
  transport::Handshake hello;
  hello.role = transport::Role::kReverse;
  hello.session = transport::NewSessionToken();
  Dialer dialer;
  const absl::Status status = dialer.Dial(server.uri, hello);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kNotFound));
  EXPECT_TRUE(SendAct(server.Connect(), 1).Wait().ok());
}

}  // namespace
}  // namespace hawser
