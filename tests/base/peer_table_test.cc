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

TEST(PeerHostTest, AnIpv6HostIsAPartOfTwoNetworks) {
  const PeerHost host = Host("2001:db8:1:203::1");
  ASSERT_EQ(host.networks(), 3u);
  EXPECT_EQ(host.Network(0), Host("2001:db8:1:fff::1").Network(0));
  EXPECT_NE(host.Network(0), Host("2001:db8:2:203::1").Network(0));
  EXPECT_EQ(host.Network(1), Host("2001:db8:1:2ff::1").Network(1));
  EXPECT_NE(host.Network(1), Host("2001:db8:1:303::1").Network(1));
  EXPECT_EQ(host.Network(2), host);
  for (const PeerHost& alone : {Host("10.0.0.1"), Host("fe80::1", 2)}) {
    ASSERT_EQ(alone.networks(), 1u);
    EXPECT_EQ(alone.Network(0), alone);
  }
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

// Hosts of one network gain nothing by their number.
TEST(PeerTableTest, TheMostNumerousNetworkMakesRoom) {
  PeerTable table(6, 6);
  std::deque<Peer> twins(2), flood(4);
  for (Peer& peer : twins) table.Add(peer, Host("2001:db8:f::1"));
  for (size_t i = 0; i < flood.size(); ++i) {
    // The last three are in a /56 of their own.
    table.Add(flood[i], Host("2001:db8:0:" + std::to_string(i == 0 ? 0 : 100 + i) + "::1"));
  }
  EXPECT_EQ(table.WhichMakesRoom(Host("10.0.0.1")), &flood[1]) << "the /56 with three";
  table.Remove(flood[1]);
  EXPECT_EQ(table.WhichMakesRoom(Host("10.0.0.1")), nullptr);
  size_t count = 0;
  EXPECT_EQ(table.OldestOfTheMost(&count), &flood[2]);
  EXPECT_EQ(count, 3u) << "of the /48";
  for (size_t i : {0u, 2u, 3u}) table.Remove(flood[i]);
  EXPECT_EQ(table.OldestOfTheMost(&count), &twins[0]);
  for (Peer& peer : twins) table.Remove(peer);
  EXPECT_EQ(table.size(), 0u);
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
