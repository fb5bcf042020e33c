// Which peer makes room for another.
#include "hawser/base/peer_table.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <deque>
#include <string>

#include "gtest/gtest.h"

namespace hawser {
namespace {

PeerHost Host(const std::string& text, uint32_t scope = 0) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(7470);
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    return PeerHost(SocketAddress(reinterpret_cast<sockaddr*>(&v4), sizeof(v4)));
  }
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_scope_id = scope;
  EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr), 1) << text;
  return PeerHost(SocketAddress(reinterpret_cast<sockaddr*>(&v6), sizeof(v6)));
}

struct Peer final : PeerTable::Entry {};

TEST(PeerHostTest, AnIpv6NetworkOf64BitsIsOneHost) {
  EXPECT_EQ(Host("2001:db8::1"), Host("2001:db8::ffff:2"));
  EXPECT_NE(Host("2001:db8::1"), Host("2001:db8:0:1::1"));
  EXPECT_NE(Host("10.0.0.1"), Host("10.0.0.2"));
}

TEST(PeerHostTest, ALinkLocalAddressIsAHostOfItsInterface) {
  EXPECT_NE(Host("fe80::1", 1), Host("fe80::2", 1));
  EXPECT_NE(Host("fe80::1", 1), Host("fe80::1", 2));
  EXPECT_EQ(Host("fe80::1", 1), Host("fe80::1", 1));
}

TEST(PeerHostTest, AnIpv4PeerOfASocketOfBothFamiliesIsItsIpv4Host) {
  EXPECT_EQ(Host("::ffff:10.0.0.1"), Host("10.0.0.1"));
  EXPECT_NE(Host("::ffff:10.0.0.1"), Host("::ffff:10.0.0.2"));
}

TEST(PeerTableTest, TheOldestOfTheMostNumerousHostMakesRoom) {
  PeerTable table(4, 4);
  Peer lone;
  std::deque<Peer> flood(3);
  table.Add(lone, Host("10.0.0.1"));
  EXPECT_EQ(table.WhichMakesRoom(Host("10.0.0.3")), nullptr);
  for (Peer& peer : flood) table.Add(peer, Host("10.0.0.2"));
  EXPECT_EQ(table.WhichMakesRoom(Host("10.0.0.3")), &flood[0]);
  table.Remove(flood[0]);
  EXPECT_EQ(table.WhichMakesRoom(Host("10.0.0.3")), nullptr);
}

TEST(PeerTableTest, AHostWithItsShareMakesRoomForItself) {
  PeerTable table(100, 2);
  std::deque<Peer> peers(3);
  for (Peer& peer : peers) table.Add(peer, Host(&peer == &peers[0] ? "10.0.0.1" : "10.0.0.2"));
  EXPECT_EQ(table.WhichMakesRoom(Host("10.0.0.2")), &peers[1]);
  EXPECT_EQ(table.WhichMakesRoom(Host("10.0.0.1")), nullptr);
}

TEST(PeerTableTest, OfHostsWithAsManyTheOldestEntryMakesRoom) {
  PeerTable table(3, 3);
  std::deque<Peer> peers(3);
  table.Add(peers[0], Host("10.0.0.9"));
  table.Add(peers[1], Host("10.0.0.1"));
  table.Add(peers[2], Host("10.0.0.5"));
  EXPECT_EQ(table.WhichMakesRoom(Host("10.0.0.7")), &peers[0]);
  table.Remove(peers[0]);
  table.Add(peers[0], Host("10.0.0.9"));  // Now it is the youngest.
  EXPECT_EQ(table.WhichMakesRoom(Host("10.0.0.7")), &peers[1]);
}

TEST(PeerTableTest, RemovingTwiceIsRemovingOnce) {
  PeerTable table(2, 2);
  Peer peer;
  table.Add(peer, Host("10.0.0.1"));
  table.Remove(peer);
  table.Remove(peer);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_FALSE(peer.in_table());
}

}  // namespace
}  // namespace hawser
