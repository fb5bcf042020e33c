// What a poller remembers of the code of the application that it has called.

#include "hawser/transport/poller/called_out.h"

#include "gtest/gtest.h"

namespace hawser::transport {
namespace {

constexpr CalledCode kHandler{"the handler of", "give the server an executor"};
constexpr CalledCode kCallback{"the callback of"};

TEST(CalledOutTest, LastIsThatOfThisTurnElseThatOfTheTurnBefore) {
  CalledOut called;
  called.StartTurn(10);
  EXPECT_EQ(called.Last().what, nullptr);
  called.Leave(called.Enter(kHandler, "get", {.connection = 1, .slot = 2, .generation = 3}));

  called.StartTurn(20);
  const CalledOut::Call before = called.Last();
  EXPECT_EQ(before.what, &kHandler);
  EXPECT_EQ(DescribeWithId(before), "the handler of get, call 1:2.3");
  EXPECT_EQ(before.since_ns, 10);

  called.Leave(called.Enter(kCallback, "put"));
  const CalledOut::Call now = called.Last();
  EXPECT_EQ(DescribeWithId(now), "the callback of put");
  EXPECT_EQ(now.since_ns, 20);

  called.StartTurn(30);
  EXPECT_EQ(called.Last().what, &kCallback);
  called.StartTurn(40);
  EXPECT_EQ(called.Last().what, nullptr);
}

TEST(CalledOutTest, WhatRunsNowIsOfThisTurn) {
  CalledOut called;
  called.StartTurn(10);
  called.Leave(called.Enter(kHandler, "get"));
  called.StartTurn(20);
  EXPECT_EQ(called.Now(), std::nullopt);
  const bool outer = called.Enter(kCallback, "put");
  ASSERT_NE(called.Now(), std::nullopt);
  EXPECT_EQ(Describe(*called.Now()), "the callback of put");
  EXPECT_EQ(called.Now()->since_ns, 20);
  called.Leave(outer);
  EXPECT_EQ(called.Now(), std::nullopt);
}

}  // namespace
}  // namespace hawser::transport
