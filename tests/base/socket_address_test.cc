#include "hawser/base/socket_address.h"

#include <arpa/inet.h>

#include <cstring>

#include "gtest/gtest.h"

namespace hawser {
namespace {

SocketAddress V4(const char* host, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host, &address.sin_addr);
  return SocketAddress(reinterpret_cast<sockaddr*>(&address), sizeof(address));
}

SocketAddress V6(const char* host, uint16_t port, uint32_t scope = 0) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_scope_id = scope;
  inet_pton(AF_INET6, host, &address.sin6_addr);
  return SocketAddress(reinterpret_cast<sockaddr*>(&address), sizeof(address));
}

TEST(SocketAddressTest, PrintsHostAndPortAsAUserWouldTypeThem) {
  EXPECT_EQ(V4("10.0.0.1", 7470).ToString(), "10.0.0.1:7470");
  EXPECT_EQ(V6("::1", 7470).ToString(), "[::1]:7470");
  EXPECT_EQ(V6("fe80::1", 7470, 2).ToString(), "[fe80::1%2]:7470");
}

TEST(SocketAddressTest, IsNoAddressUntilItIsGivenOne) {
  const SocketAddress none;
  EXPECT_EQ(none.family(), AF_UNSPEC);
  EXPECT_EQ(none.length_bytes(), 0u);
  EXPECT_EQ(none.port(), 0);
  EXPECT_EQ(none.ToString(), "no address");
}

TEST(SocketAddressTest, ThePortCanBeSet) {
  SocketAddress v4 = V4("127.0.0.1", 0), v6 = V6("::1", 0);
  v4.set_port(65535);
  v6.set_port(1);
  EXPECT_EQ(v4.ToString(), "127.0.0.1:65535");
  EXPECT_EQ(v6.ToString(), "[::1]:1");
  EXPECT_EQ(v4.port(), 65535);
  EXPECT_EQ(v6.port(), 1);
}

TEST(SocketAddressTest, IsAsLongAsItsFamilyNeeds) {
  EXPECT_EQ(V4("127.0.0.1", 1).length_bytes(), sizeof(sockaddr_in));
  EXPECT_EQ(V6("::1", 1).length_bytes(), sizeof(sockaddr_in6));
}

TEST(SocketAddressTest, OtherFamiliesAndCutAddressesAreNoAddress) {
  sockaddr unix_domain = {};
  unix_domain.sa_family = AF_UNIX;
  EXPECT_EQ(SocketAddress(&unix_domain, sizeof(unix_domain)).family(), AF_UNSPEC);
  sockaddr_in6 cut = {};
  cut.sin6_family = AF_INET6;
  EXPECT_EQ(SocketAddress(reinterpret_cast<sockaddr*>(&cut), sizeof(sockaddr_in)).family(), AF_UNSPEC);
}

// A socket of both families names its IPv4 peers so.
TEST(SocketAddressTest, IPv4MappedAddressIsPlainIPv4) {
  EXPECT_EQ(V6("::ffff:10.0.0.1", 7470).family(), AF_INET);
  EXPECT_EQ(V6("::ffff:10.0.0.1", 7470).ToString(), "10.0.0.1:7470");
  EXPECT_EQ(V6("::10.0.0.1", 7470).family(), AF_INET6);
}

TEST(SocketAddressTest, UnspecifiedMeansAllInterfaces) {
  EXPECT_TRUE(V4("0.0.0.0", 7470).is_unspecified());
  EXPECT_TRUE(V6("::", 7470).is_unspecified());
  EXPECT_FALSE(V4("127.0.0.1", 7470).is_unspecified());
  EXPECT_FALSE(V6("::1", 7470).is_unspecified());
  EXPECT_FALSE(SocketAddress().is_unspecified());
}

TEST(SocketAddressTest, LoopbackIsWhatOnlyThisMachineReaches) {
  for (const char* host : {"127.0.0.1", "127.0.0.2", "127.255.255.255"}) {
    EXPECT_TRUE(V4(host, 7470).is_loopback()) << host;
  }
  EXPECT_TRUE(V6("::1", 7470).is_loopback());
  EXPECT_TRUE(V6("::ffff:127.0.0.1", 7470).is_loopback());
  for (const char* host : {"0.0.0.0", "10.0.0.127", "128.0.0.1"}) {
    EXPECT_FALSE(V4(host, 7470).is_loopback()) << host;
  }
  for (const char* host : {"::", "::2", "fe80::1"}) EXPECT_FALSE(V6(host, 7470).is_loopback()) << host;
  EXPECT_FALSE(SocketAddress().is_loopback());
}

}  // namespace
}  // namespace hawser
