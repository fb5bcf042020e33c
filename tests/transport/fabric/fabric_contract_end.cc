// How connections end, and how their ends and other news are waited for.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/contract_suites.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {
namespace {

using ::testing::ElementsAre;

HAWSER_SUITE(EndContractTest);
HAWSER_SUITE(CompletionQueueContractTest);

TEST_P(EndContractTest, DisconnectingBringsEverythingBackOnBothSides) {
  auto [a, b] = world_.Connect({.send_depth = 8, .receive_depth = 8});
  for (uint64_t i = 0; i < 8; ++i) {
    ASSERT_THAT(a.Receive(i, a.At(0, 10)), IsOk());
    if (i > 0) {
      ASSERT_THAT(b.Receive(i, b.At(0, 10)), IsOk());
    }
  }
  ASSERT_THAT(b.Send(1, b.At(0, 10)), IsOk());
  HAWSER_UNTIL(world_, b.sends.size() == 1 && a.receives.size() == 1);
  ASSERT_THAT(a.Send(1, a.At(0, 10)), IsOk());
  a.qp().Disconnect();
  a.qp().Disconnect();  // Once more does no harm.
  world_.ExpectEverythingComesBack(a);
  EXPECT_THAT(a.receives.back(), CompletionIs(7, kFlushed));
  for (size_t i = 1; i < a.receives.size(); ++i) EXPECT_THAT(a.receives[i], CompletionIs(i, kFlushed));
  EXPECT_THAT(a.news().told, ElementsAre("established"));  // Who disconnects hears nothing more.
  HAWSER_UNTIL(world_, b.news().ended());
  EXPECT_THAT(b.news().told, ElementsAre("established", "disconnected"));
  EXPECT_THAT(b.news().why, HasCode(absl::StatusCode::kUnavailable));
  world_.ExpectEverythingComesBack(b);
  EXPECT_THAT(b.receives.back(), CompletionIs(7, kFlushed));
}

TEST_P(EndContractTest, FlushedWorkComesBackHoweverFewArePolledAtOnce) {
  const bool sends_may_end_it = shortcomings().rnr_is_not_waited_for;
  auto [a, b] = world_.Connect({.send_depth = 64, .receive_depth = 64});
  for (uint64_t i = 0; i < 64; ++i) ASSERT_THAT(a.Receive(i, a.At(0, 10)), IsOk());
  size_t posted = 64;
  for (uint64_t i = 0; i < 64; ++i) {
    // Without RNR a SEND may succeed before the end, and then an unsignaled one never says so; and the end
    // may come before the last is posted.
    const absl::Status status = a.Send(i, a.At(0, 10), /*signaled=*/sends_may_end_it);
    ASSERT_TRUE(status.ok() || (sends_may_end_it && i > 0)) << status;
    if (status.ok()) ++posted;
  }
  a.qp().Disconnect();
  Completion one;
  size_t count = 0;
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (count < posted && absl::Now() < deadline) count += a.completion_queue().Poll({&one, 1});
  for (int i = 0; i < 1000; ++i) count += a.completion_queue().Poll({&one, 1});
  EXPECT_EQ(count, posted);
}

TEST_P(EndContractTest, HandlersAreCalledWhenNoCompletionIsAskedFor) {
  Endpoint& a = world_.NewEndpoint(0);
  ASSERT_THAT(a.qp().Connect(world_.listener().address(), ""), IsOk());
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (world_.requests().requests.empty() && absl::Now() < deadline) {
    world_.completion_queue(0).Poll({});
    world_.completion_queue(1).Poll({});
  }
  ASSERT_EQ(world_.requests().requests.size(), 1u);
  world_.requests().requests.clear();
  while (!a.news().ended() && absl::Now() < deadline) world_.completion_queue(0).Poll({});
  EXPECT_TRUE(a.news().ended());
}

TEST_P(EndContractTest, DisconnectEndsEveryStage) {
  // Before anything.
  Endpoint& idle = world_.NewEndpoint(0);
  ASSERT_THAT(idle.Receive(1, idle.At(0, 10)), IsOk());
  world_.ExpectEverythingComesBack(idle);
  EXPECT_TRUE(idle.news().told.empty());

  // Right after Connect().
  Endpoint& connecting = world_.NewEndpoint(0);
  ASSERT_THAT(connecting.Receive(1, connecting.At(0, 10)), IsOk());
  ASSERT_THAT(connecting.qp().Connect(world_.listener().address(), ""), IsOk());
  world_.ExpectEverythingComesBack(connecting);
  EXPECT_TRUE(connecting.news().told.empty());
  world_.PollSome();
  world_.requests().requests.clear();

  // When the peer has heard of it: then accepting may fail at once or later, but it ends.
  Endpoint& asking = world_.NewEndpoint(0);
  ASSERT_THAT(asking.qp().Connect(world_.listener().address(), ""), IsOk());
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
  asking.qp().Disconnect();
  world_.PollSome();
  Endpoint& accepting = world_.NewEndpoint(1);
  if (accepting.qp().Accept(*world_.requests().requests[0], "").ok()) {
    HAWSER_UNTIL(world_, accepting.news().ended());
  }
  EXPECT_TRUE(asking.news().told.empty());

  // After it was accepted, but before either side was notified.
  Endpoint& a = world_.NewEndpoint(0);
  Endpoint& b = world_.NewEndpoint(1);
  world_.requests().requests.clear();
  ASSERT_THAT(a.qp().Connect(world_.listener().address(), ""), IsOk());
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
  ASSERT_THAT(b.qp().Accept(*world_.requests().requests[0], ""), IsOk());
  b.qp().Disconnect();
  HAWSER_UNTIL(world_, a.news().ended());
  EXPECT_TRUE(b.news().told.empty());
}

TEST_P(EndContractTest, NoHandlerIsCalledAfterItsQueuePairIsGone) {
  for (int polls : {0, 1, 2, 5}) {
    auto handler = std::make_unique<NewsRecorder>();
    std::unique_ptr<QueuePair> qp =
        world_.fabric().CreateQueuePair(world_.completion_queue(0), {}, *handler).value();
    ASSERT_THAT(qp->Connect(world_.listener().address(), ""), IsOk());
    world_.PollSome(polls);
    qp->Disconnect();
    qp.reset();
    handler.reset();  // A late call would be seen by AddressSanitizer.
    world_.PollSome();
  }
  world_.requests().requests.clear();
}

TEST_P(EndContractTest, WhatArrivedBeforeTheEndIsStillReceived) {
  auto [a, b] = world_.Connect({.send_depth = 32, .receive_depth = 32});
  for (uint64_t i = 0; i < 32; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  for (uint64_t i = 0; i < 20; ++i) ASSERT_THAT(a.Send(i, a.At(0, 100)), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 20);  // So the peer's receive queue took them all.
  a.qp().Disconnect();
  HAWSER_UNTIL(world_, b.news().ended());
  world_.ExpectEverythingComesBack(b);
  for (uint64_t i = 0; i < 32; ++i) EXPECT_THAT(b.receives[i], CompletionIs(i, i < 20 ? kSuccess : kFlushed));
}

TEST_P(EndContractTest, TheEndIsToldAfterAllThatArrivedBeforeWasReturned) {
  for (int round = 0; round < 20; ++round) {
    auto [a, b] = world_.Connect({.send_depth = 8, .receive_depth = 8});
    for (uint64_t i = 0; i < 8; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
    const auto arrivals = [&b = b] {
      return std::count_if(b.receives.begin(), b.receives.end(),
                           [](const Completion& each) { return each.status == kSuccess; });
    };
    ptrdiff_t returned = 0;
    b.news().on_disconnected = [&] { returned = arrivals(); };
    for (uint64_t i = 0; i < 4; ++i) ASSERT_THAT(a.Send(i, a.At(0, 100)), IsOk());
    // The receiver does not look meanwhile, so that it finds all of it at once.
    Completion completion;
    for (int i = 0; i < 100; ++i) a.completion_queue().Poll({&completion, 1});
    a.qp().Disconnect();
    HAWSER_UNTIL(world_, b.news().ended());
    world_.ExpectEverythingComesBack(b);
    EXPECT_EQ(returned, arrivals()) << "when the end was told";
    a.Destroy();
    b.Destroy();
  }
}

// --- Completion queues
// ------------------------------------------------------------------------------------------

TEST_P(CompletionQueueContractTest, ManyConnectionsShareACompletionQueue) {
  const size_t connections = std::min<size_t>(shortcomings().connections_max, GetParam().emulated ? 50 : 200);
  std::vector<FabricWorld::Pair> pairs;
  for (size_t i = 0; i < connections; ++i) {
    pairs.push_back(world_.Connect({.send_depth = 4, .receive_depth = 4, .read_depth = 1}, 4096));
    ASSERT_THAT(pairs[i].b.Receive(i, pairs[i].b.At(0, 100)), IsOk());
    ASSERT_THAT(pairs[i].a.Receive(i, pairs[i].a.At(0, 100)), IsOk());
    pairs[i].a.Fill(200, absl::StrCat("to ", 1000 + i));
    pairs[i].b.Fill(200, absl::StrCat("of ", 1000 + i));
  }
  for (size_t i = 0; i < connections; ++i) {
    ASSERT_THAT(pairs[i].a.Send(i, pairs[i].a.At(200, 7)), IsOk());
    ASSERT_THAT(pairs[i].b.Send(i, pairs[i].b.At(200, 7)), IsOk());
  }
  for (size_t i = 0; i < connections; ++i) {
    HAWSER_UNTIL(world_, pairs[i].a.receives.size() == 1 && pairs[i].b.receives.size() == 1 &&
                             pairs[i].a.sends.size() == 1 && pairs[i].b.sends.size() == 1);
    EXPECT_EQ(pairs[i].b.Text(0, 7), absl::StrCat("to ", 1000 + i));
    EXPECT_EQ(pairs[i].a.Text(0, 7), absl::StrCat("of ", 1000 + i));
  }
}

TEST_P(CompletionQueueContractTest, WakeEndsTheNextWait) {
  world_.completion_queue().Wake();
  world_.completion_queue().Wake();
  world_.completion_queue().Wait(absl::InfiniteDuration());
}

TEST_P(CompletionQueueContractTest, WakeEndsAWaitThatSleeps) {
  std::atomic<int> rounds = 0;
  std::thread sleeper([&] {
    for (int i = 0; i < 100; ++i) {
      world_.completion_queue().Wait(absl::InfiniteDuration());
      rounds.fetch_add(1);
    }
  });
  while (rounds.load() < 100) world_.completion_queue().Wake();
  sleeper.join();
}

TEST_P(CompletionQueueContractTest, WaitEndsWhenItsTimeIsOver) {
  const absl::Time start = absl::Now();
  // May return early for no reason: hence the loop.
  while (absl::Now() - start < absl::Milliseconds(2)) world_.completion_queue().Wait(absl::Milliseconds(2));
}

// One thread for each side, which sleeps when there is nothing to do.
TEST_P(CompletionQueueContractTest, TwoThreadsPlayPingPongAsleepInBetween) {
  const uint64_t rounds = GetParam().emulated ? 500 : 2000;
  auto [a, b] = world_.Connect();
  const auto play = [rounds](Endpoint& me, bool starts) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    uint64_t sent = 0, received = 0;
    const auto send = [&] {
      ASSERT_THAT(me.Send(sent, me.At(0, 64), /*signaled=*/sent % 16 == 15), IsOk());
      ++sent;
    };
    if (starts) send();
    while (received < rounds) {
      ASSERT_LT(absl::Now(), deadline);
      Completion completions[8];
      const size_t count = me.completion_queue().Poll(absl::MakeSpan(completions));
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(completions[i].status, kSuccess);
        if (completions[i].opcode != Opcode::kReceive) continue;
        ++received;
        ASSERT_THAT(me.Receive(received, me.At(1000, 64)), IsOk());
        if (sent < rounds) send();
      }
      if (count == 0) me.completion_queue().Wait(absl::Seconds(1));
    }
  };
  for (Endpoint* side : {&a, &b}) {
    ASSERT_THAT(side->Receive(0, side->At(1000, 64)), IsOk());
    ASSERT_THAT(side->Receive(0, side->At(1000, 64)), IsOk());
  }
  std::thread other([&, &b = b] { play(b, /*starts=*/false); });
  play(a, /*starts=*/true);
  other.join();
}

// One thread polls while another sleeps on the same completion queue.
TEST_P(CompletionQueueContractTest, OneThreadPollsWhileAnotherWaits) {
  auto [a, b] = world_.Connect();
  std::atomic<bool> stop = false;
  std::thread sleeper([&, &b = b] {
    while (!stop.load()) b.completion_queue().Wait(absl::Milliseconds(100));
  });
  for (uint64_t i = 0; i < 500 && !HasFatalFailure(); ++i) {
    ASSERT_THAT(b.Receive(i, b.At(0, 100)), IsOk());
    ASSERT_THAT(a.Send(i, a.At(0, 100)), IsOk());
    HAWSER_UNTIL(world_, a.sends.size() == i + 1 && b.receives.size() == i + 1);
  }
  stop.store(true);
  b.completion_queue().Wake();
  sleeper.join();
}

TEST_P(CompletionQueueContractTest, AnArrivalWakesWhoeverSleepsWithoutLosingTheCompletion) {
  auto [a, b] = world_.Connect();
  // Several, because the first waits may end early, with news of the connection or of the arrival before.
  for (uint64_t round = 0; round < 5; ++round) {
    ASSERT_THAT(b.Receive(round, b.At(0, 100)), IsOk());
    ASSERT_THAT(a.Send(round, a.At(0, 100)), IsOk());
    Completion completion;
    // A device takes the message without Poll(): then the arrival is there before Wait() arms anything.
    const absl::Time patience = absl::Now() + absl::Milliseconds(100);
    while (a.completion_queue().Poll({&completion, 1}) == 0 && absl::Now() < patience) {
    }
    const absl::Time start = absl::Now();
    size_t count = 0;
    while (count == 0 && absl::Now() - start < absl::Seconds(20)) {
      b.completion_queue().Wait(absl::Seconds(20));
      count = b.completion_queue().Poll({&completion, 1});
    }
    ASSERT_EQ(count, 1u);
    EXPECT_EQ(completion.opcode, Opcode::kReceive);
    // Slept through, the arrival is found when the wait is over, too.
    ASSERT_LT(absl::Now() - start, absl::Seconds(10));
  }
}

TEST_P(CompletionQueueContractTest, FlushesWakeWhoeverSleeps) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
  world_.PollSome(10);
  std::thread sleeper([&, &b = b] { b.completion_queue().Wait(absl::InfiniteDuration()); });
  b.qp().Disconnect();
  sleeper.join();  // Now or later: it must not sleep over what only Poll() can bring.
  world_.ExpectEverythingComesBack(b);
}

// --- Memory
// -----------------------------------------------------------------------------------------------------

TEST_P(CompletionQueueContractTest, MemoryIsRegisteredFromAnyThreadMeanwhile) {
  auto [a, b] = world_.Connect();
  std::atomic<bool> stop = false;
  std::thread registrar([&] {
    std::vector<uint8_t> memory(4096);
    while (!stop.load()) {
      std::vector<std::unique_ptr<MemoryRegion>> regions;
      for (int i = 0; i < 20; ++i)
        regions.push_back(world_.fabric().Register(memory.data(), memory.size()).value());
    }
  });
  for (uint64_t i = 0; i < 500 && !HasFatalFailure(); ++i) {
    ASSERT_THAT(b.Receive(i, b.At(0, 100)), IsOk());
    ASSERT_THAT(a.Send(i, a.At(0, 100)), IsOk());
    HAWSER_UNTIL(world_, a.sends.size() == i + 1 && b.receives.size() == i + 1);
  }
  stop.store(true);
  registrar.join();
}

}  // namespace
}  // namespace hawser::fabric
