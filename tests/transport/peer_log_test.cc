#include "hawser/transport/peer_log.h"

#include <netinet/in.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hawser::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

fabric::SocketAddress Peer(uint32_t host, uint16_t port = 1) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x0a000000 + host);
  address.sin_port = htons(port);
  return fabric::SocketAddress(reinterpret_cast<sockaddr*>(&address), sizeof(address));
}

class PeerLogTest : public ::testing::Test {
 protected:
  bool writable_ = true;
  std::vector<std::string> lines_;
  PeerLog log_{{.process = {5, kSecond}, .address = {2, 10 * kSecond}}, [this](absl::string_view line) {
                 if (writable_) lines_.emplace_back(line);
                 return writable_;
               }};
};

TEST_F(PeerLogTest, ALineIsEscapedAndEndsOnce) {
  log_.Line(0, Peer(1), "said \x1b[2J\nhawser: forged");
  EXPECT_THAT(lines_, ElementsAre("hawser: said \\x1b[2J\\nhawser: forged\n"));
}

TEST_F(PeerLogTest, ALongLineIsCut) {
  log_.Line(0, Peer(1), std::string(100'000, '\n'));
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_LT(lines_[0].size(), 4096u);  // PIPE_BUF: written as a whole, or not.
}

TEST_F(PeerLogTest, OneAddressIsLimitedWhateverItsPort) {
  for (uint16_t port = 1; port <= 100; ++port) log_.Line(0, Peer(1, port), "x");
  EXPECT_EQ(lines_.size(), 2u);
  log_.Line(0, Peer(2), "another");
  EXPECT_THAT(lines_.back(), HasSubstr("another (98 lines about peers before this were not written)"));
  log_.Line(10 * kSecond, Peer(1), "later");
  EXPECT_EQ(lines_.back(), "hawser: later\n");
}

TEST_F(PeerLogTest, ManyAddressesTogetherAreLimited) {
  for (uint32_t host = 1; host <= 200; ++host) log_.Line(0, Peer(host), "x");
  EXPECT_EQ(lines_.size(), 5u);
  for (uint32_t host = 1000; host <= 1200; ++host) log_.Line(3 * kSecond, Peer(host), "x");
  EXPECT_EQ(lines_.size(), 8u);  // One for each second that has passed.
}

TEST_F(PeerLogTest, WhatItsReaderDoesNotTakeIsCounted) {
  writable_ = false;
  log_.Line(0, Peer(1), "x");
  log_.Line(0, Peer(2), "x");
  writable_ = true;
  log_.Line(0, Peer(3), "at last");
  EXPECT_THAT(lines_, ElementsAre("hawser: at last (2 lines about peers before this were not written)\n"));
}

}  // namespace
}  // namespace hawser::transport
