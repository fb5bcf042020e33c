#ifndef HAWSER_TESTS_TRANSPORT_FABRIC_TCP_STAGE_H_
#define HAWSER_TESTS_TRANSPORT_FABRIC_TCP_STAGE_H_

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/tcp/fabric.h"
#include "hawser/transport/fabric/tcp/frame.h"
#include "hawser/transport/fabric/tcp/greeting.h"
#include "hawser/transport/fabric/tcp/socket.h"

// What the tests of the TCP fabric alone have in common.
namespace hawser::fabric {

// 127.0.0.`host`.
inline SocketAddress Loopback(uint16_t port = 0, uint8_t host = 1) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
  return SocketAddress(reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
}

inline FabricUnderTest Tcp(const TcpFabricOptions& options) {
  return {"Tcp", [options] { return CreateTcpFabric(options); }, Loopback()};
}

class TcpFabricTest : public ::testing::Test {
 protected:
  TcpFabricCounters counters_;
  FabricWorld world_{Tcp({.rnr_timeout = absl::Milliseconds(20), .counters = &counters_})};
};

// A peer with a plain socket that sends any bytes it wants.
class Stranger {
 public:
  explicit Stranger(FabricWorld& world) : Stranger(world, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const SocketAddress address = world.listener().address();
    EXPECT_EQ(connect(socket_.get(), address.get(), address.length_bytes()), 0);
    const int on = 1;  // What is said behind something else leaves at once, too.
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  // With a socket that is connected already, or will be.
  Stranger(FabricWorld& world, int fd) : world_(world), socket_(fd) {}

  int fd() const { return socket_.get(); }
  void Close() { socket_.Reset(); }

  void Say(absl::string_view bytes) {
    // Refused if the other side has closed already.
    [[maybe_unused]] const ssize_t n = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void Say(const FrameHeader& header, absl::string_view payload = {}) {
    Say(absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&header), sizeof(header)), payload));
  }

  // Reads what has arrived, without waiting, and records the end.
  void Listen() {
    char buffer[65536];
    ssize_t n;
    while ((n = recv(socket_.get(), buffer, sizeof(buffer), MSG_DONTWAIT)) > 0) heard_.append(buffer, n);
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) closed_ = true;
  }
  const std::string& heard() const { return heard_; }
  void HearUntilClosed() { HAWSER_UNTIL(world_, (Listen(), closed_)); }
  void HearBytes(size_t bytes) { HAWSER_UNTIL(world_, (Listen(), heard_.size() >= bytes)); }
  bool closed() {
    Listen();
    return closed_;
  }
  FrameHeader FrameAt(size_t offset) const {
    FrameHeader header;
    std::memcpy(&header, heard_.data() + offset, sizeof(header));
    return header;
  }

  // Greets properly, and `endpoint` accepts. After that frames can be sent and received.
  void BecomePeerOf(Endpoint& endpoint, uint8_t flags = 0) {
    Say(EncodeGreeting(GreetingKind::kConnect, 16, "", flags));
    HAWSER_UNTIL(world_, !world_.requests().requests.empty());
    ASSERT_THAT(endpoint.qp().Accept(*world_.requests().requests[0], ""), IsOk());
    world_.requests().requests.clear();
    HearBytes(kGreetingHeaderBytes);
    heard_.clear();
    HAWSER_UNTIL(world_, endpoint.news().established());
  }

 private:
  FabricWorld& world_;
  UniqueFd socket_;
  std::string heard_;
  bool closed_ = false;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TESTS_TRANSPORT_FABRIC_TCP_STAGE_H_
