// Whose turn it is among peers of many hosts.
#include "hawser/base/peer_turns.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/base/socket_address.h"

namespace hawser {
namespace {

using ::testing::ElementsAre;

PeerHost Host(const std::string& text) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    return PeerHost(SocketAddress(reinterpret_cast<sockaddr*>(&v4), sizeof(v4)));
  }
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr), 1) << text;
  return PeerHost(SocketAddress(reinterpret_cast<sockaddr*>(&v6), sizeof(v6)));
}

class PeerTurnsTest : public ::testing::Test {
 protected:
  struct Peer final : PeerTurns::Entry {
    ~Peer() { PeerTurns::Remove(*this); }
    std::string name;
  };
  std::unique_ptr<Peer> Wait(const std::string& host, const std::string& name) {
    auto peer = std::make_unique<Peer>();
    peer->name = name;
    turns_.Add(*peer, Host(host));
    return peer;
  }
  std::string Next() {
    PeerTurns::Entry* const next = turns_.TakeNext();
    return next == nullptr ? "" : static_cast<Peer*>(next)->name;
  }
  std::vector<std::string> All() {
    std::vector<std::string> names;
    for (std::string name = Next(); !name.empty(); name = Next()) names.push_back(name);
    return names;
  }

  PeerTurns turns_;
};

TEST_F(PeerTurnsTest, HostsTakeTurns) {
  const auto a1 = Wait("10.0.0.1", "a1"), a2 = Wait("10.0.0.1", "a2"), a3 = Wait("10.0.0.1", "a3");
  const auto b1 = Wait("10.0.0.2", "b1"), b2 = Wait("10.0.0.2", "b2");
  const auto c1 = Wait("10.0.0.3", "c1");
  EXPECT_THAT(All(), ElementsAre("a1", "b1", "c1", "a2", "b2", "a3"));
  EXPECT_TRUE(turns_.empty());
  EXPECT_FALSE(a1->waits());
}

// However many new ones come, a host that waits has its turn after those that wait already.
TEST_F(PeerTurnsTest, NewHostsGoBehindThoseThatWait) {
  const auto known = Wait("10.0.0.1", "known");
  const auto other = Wait("10.0.0.2", "other");
  EXPECT_EQ(Next(), "known");
  const auto again = Wait("10.0.0.1", "again");
  std::vector<std::unique_ptr<Peer>> flood;
  std::vector<std::string> order;
  for (int i = 0; i < 10; ++i) {
    flood.push_back(Wait("10.0.1." + std::to_string(i), "new"));
    order.push_back(Next());
  }
  EXPECT_EQ(order[0], "other");
  EXPECT_EQ(order[1], "again");
}

TEST_F(PeerTurnsTest, ManyHostsOfOneNetworkGainNothing) {
  std::vector<std::unique_ptr<Peer>> flood;
  for (int i = 0; i < 10; ++i) flood.push_back(Wait("2001:db8:0:" + std::to_string(i) + "00::1", "flood"));
  // A /56 of that /48 with ten hosts.
  for (int i = 0; i < 10; ++i)
    flood.push_back(Wait("2001:db8:0:f" + std::to_string(i + 10) + "::1", "dense"));
  const auto honest = Wait("2001:db8:1::1", "honest"), also = Wait("10.0.0.1", "also");
  const std::vector<std::string> order = All();
  ASSERT_EQ(order.size(), 22u);
  EXPECT_THAT(std::vector<std::string>(order.begin(), order.begin() + 3),
              ElementsAre("flood", "honest", "also"));
  size_t dense_in_first_half = 0;
  for (size_t i = 0; i < 13; ++i) dense_in_first_half += order[i] == "dense";
  EXPECT_EQ(dense_in_first_half, 1u) << "one /56 has one turn of eleven";
}

TEST_F(PeerTurnsTest, OneThatLeavesIsPassedOver) {
  auto a1 = Wait("2001:db8::1", "a1");
  const auto a2 = Wait("2001:db8::2", "a2"), b1 = Wait("10.0.0.1", "b1");
  a1.reset();
  EXPECT_THAT(All(), ElementsAre("a2", "b1"));
  PeerTurns::Remove(*a2);
  EXPECT_TRUE(turns_.empty());
}

}  // namespace
}  // namespace hawser
