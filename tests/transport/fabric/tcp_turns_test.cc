// How the fabric over TCP deals out completions to a caller that takes a few at a time, as the poller does.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/tests/transport/fabric/tcp_stage.h"

namespace hawser::fabric {
namespace {

constexpr uint64_t kMessages = 64;
constexpr size_t kTaken = 16;  // By one Poll(), if not said otherwise.

// Receives for `kMessages` at b, and as many SENDs from a, in one chain, with the last one signaled.
void Fill(Endpoint& a, Endpoint& b) {
  for (uint64_t i = 0; i < kMessages; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  std::vector<Sge> sges(kMessages);
  std::vector<SendWorkRequest> chain;
  for (uint64_t i = 0; i < kMessages; ++i) {
    sges[i] = a.At(i * 100, 100);
    chain.push_back({.wr_id = i, .signaled = i + 1 == kMessages, .sges = {&sges[i], 1}});
  }
  ASSERT_THAT(a.qp().PostSend(chain), IsOk());
}

// One Poll() of the completion queue that both receivers are on: whose completions came.
std::vector<uint32_t> PollOnce(FabricWorld& world, size_t taken = kTaken) {
  std::vector<Completion> completions(taken);
  std::vector<uint32_t> qp_nums;
  const size_t count = world.completion_queue(1).Poll(absl::MakeSpan(completions));
  for (size_t i = 0; i < count; ++i) qp_nums.push_back(completions[i].qp_num);
  return qp_nums;
}

const QueuePairOptions kOptions = {.send_depth = 256, .receive_depth = 256};

TEST_F(TcpFabricTest, WhatOnePeerSentTogetherIsTakenTogether) {
  auto [a, b] = world_.Connect(kOptions);
  auto [c, d] = world_.Connect(kOptions);
  Fill(a, b);
  Fill(c, d);
  std::vector<uint32_t> qp_nums;
  int polls = 0;
  for (; qp_nums.size() < 2 * kMessages && polls < 1000; ++polls) {
    for (uint32_t qp_num : PollOnce(world_)) qp_nums.push_back(qp_num);
  }
  ASSERT_EQ(qp_nums.size(), 2 * kMessages);
  for (uint64_t i = 0; i < 2 * kMessages; ++i) {
    EXPECT_EQ(qp_nums[i], qp_nums[i / kMessages * kMessages]) << "at " << i;
  }
}

TEST_F(TcpFabricTest, WhatNoPollHasReturnedIsKnown) {
  auto [a, b] = world_.Connect(kOptions);
  EXPECT_FALSE(b.qp().HasUnpolled());
  Fill(a, b);
  EXPECT_TRUE(b.qp().HasUnpolled()) << "in the socket";
  while (PollOnce(world_).empty()) {
  }
  for (uint64_t polled = kTaken; polled < kMessages; polled += kTaken) {
    EXPECT_TRUE(b.qp().HasUnpolled()) << "received, and " << polled << " completions polled";
    ASSERT_EQ(PollOnce(world_).size(), kTaken);
  }
  EXPECT_FALSE(b.qp().HasUnpolled());
  a.qp().Disconnect();
  EXPECT_FALSE(b.qp().HasUnpolled()) << "the end is no message";
}

TEST_F(TcpFabricTest, WhatOneLookFoundIsTakenBeforeTheNextLook) {
  auto [a, b] = world_.Connect(kOptions);
  Fill(a, b);
  constexpr size_t kSome = 24;  // So that the last Poll() is not full.
  while (PollOnce(world_, kSome).empty()) {
  }
  const uint64_t looks = counters_.epoll_calls.load() + counters_.receive_calls.load();
  EXPECT_EQ(PollOnce(world_, kSome).size(), kSome);
  EXPECT_EQ(PollOnce(world_, kSome).size(), kMessages - 2 * kSome);
  EXPECT_EQ(counters_.epoll_calls.load() + counters_.receive_calls.load(), looks);
}

// However much it has, another one has its turn after eight Poll()s.
TEST_F(TcpFabricTest, ATurnEnds) {
  auto [a, b] = world_.Connect(kOptions);
  auto [c, d] = world_.Connect(kOptions);
  for (int i = 0; i < 3; ++i) Fill(a, b);
  Fill(c, d);
  std::vector<uint32_t> firsts;  // Of each Poll() that found something.
  for (int polls = 0; firsts.size() < 16 && polls < 1000; ++polls) {
    if (const std::vector<uint32_t> qp_nums = PollOnce(world_); !qp_nums.empty())
      firsts.push_back(qp_nums[0]);
  }
  ASSERT_EQ(firsts.size(), 16u);
  EXPECT_NE(
      std::find_if(firsts.begin(), firsts.begin() + 9, [&](uint32_t each) { return each != firsts[0]; }),
      firsts.begin() + 9);
}

// A lone connection of a host has every second turn beside eight of another one.
TEST_F(TcpFabricTest, HostsTakeTurns) {
  constexpr size_t kBusy = 8;
  constexpr size_t kTurn = 8 * kTaken;  // Completions.
  QueuePairOptions options = kOptions;
  std::vector<FabricWorld::Pair> pairs;
  for (size_t i = 0; i <= kBusy; ++i) {
    options.local_address = Loopback(/*port=*/0, /*host=*/i == kBusy ? 2 : 1);
    Endpoint& a = world_.NewEndpoint(0, options);
    Endpoint& b = world_.NewEndpoint(1, kOptions);
    world_.Connect(a, b);
    pairs.push_back({a, b});
  }
  for (auto& [a, b] : pairs) {
    for (int i = 0; i < 3; ++i) Fill(a, b);  // More than a turn.
  }
  // All of it has been read: completions are given out, and no socket is asked.
  for (int i = 0; i < 10; ++i) world_.completion_queue(1).Poll({});
  const uint32_t lone = pairs.back().b.qp().qp_num();
  size_t of_lone = 0, of_others = 0;
  for (int polls = 0; of_lone < 3 * kMessages && polls < 1000; ++polls) {
    for (uint32_t qp_num : PollOnce(world_)) ++(qp_num == lone ? of_lone : of_others);
  }
  EXPECT_EQ(of_lone, 3 * kMessages);
  EXPECT_LE(of_others, 2 * kTurn) << "a turn before each of its own two";
}

// With no room for completions a Poll() asks all for news. More of them than it asks.
TEST_F(TcpFabricTest, PollsForNewsLeaveSourcesInTheirOrder) {
  constexpr int kPairs = 70;
  std::vector<FabricWorld::Pair> pairs;
  for (int i = 0; i < kPairs; ++i) pairs.push_back(world_.Connect(kOptions));
  for (auto& [a, b] : pairs) Fill(a, b);
  std::vector<uint32_t> wanted, order;
  for (auto& [a, b] : pairs) wanted.push_back(b.qp().qp_num());
  for (int i = 0; i < 3; ++i) world_.completion_queue(1).Poll({});  // Each looks at 64 sockets.
  for (int polls = 0; order.size() < kPairs && polls < 10'000; ++polls) {
    for (uint32_t qp_num : PollOnce(world_)) {
      if (std::find(order.begin(), order.end(), qp_num) == order.end()) order.push_back(qp_num);
    }
    world_.completion_queue(1).Poll({});
  }
  EXPECT_EQ(order, wanted);
}

// A caller that is slow with each completion of one busy peer asks for news between them.
TEST_F(TcpFabricTest, APeerThatConnectsIsSeenByTheNextPollsForNews) {
  auto [a, b] = world_.Connect(kOptions);
  Fill(a, b);
  while (PollOnce(world_, 1).empty()) {
  }
  Endpoint& late = world_.NewEndpoint(0);
  ASSERT_THAT(late.qp().Connect(world_.listener().address(), ""), IsOk());
  Completion completions[kTaken];
  for (int i = 0; i < 200; ++i) world_.completion_queue(0).Poll(completions);  // So that it has greeted.
  for (int i = 0; i < 4; ++i) {
    world_.completion_queue(1).Poll({});
    EXPECT_EQ(PollOnce(world_, 1).size(), 1u);
  }
  EXPECT_EQ(world_.requests().requests.size(), 1u);
}

// Of one that received and has nothing to send, while others keep the caller busy without a pause.
TEST_F(TcpFabricTest, AnAcknowledgementLeavesHoweverBusyTheOthersAre) {
  auto [a, b] = world_.Connect({.send_depth = 4096, .receive_depth = 4096});
  auto [c, d] = world_.Connect(kOptions);
  ASSERT_THAT(d.Receive(1, d.At(0, 100)), IsOk());
  ASSERT_THAT(c.Send(1, c.At(0, 100)), IsOk());
  for (int i = 0; i < 3; ++i) Fill(a, b);  // So that there is always a rest.
  size_t acknowledged = 0;
  for (int polls = 0; acknowledged == 0; ++polls) {
    ASSERT_LT(polls, 200);
    if (polls % 4 == 0) Fill(a, b);
    PollOnce(world_);
    // a's SENDs complete there, too.
    Completion completions[kTaken];
    const size_t count = world_.completion_queue(0).Poll(completions);
    for (size_t i = 0; i < count; ++i) acknowledged += completions[i].qp_num == c.qp().qp_num();
  }
}

}  // namespace
}  // namespace hawser::fabric
