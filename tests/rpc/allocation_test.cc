// A call in steady state allocates nothing on the heap, on either side.

#include <algorithm>

#include "hawser/tests/testing/heap.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

// Fewer over RDMA, because that is mostly an emulated machine.
const int kCalls = TestScheme() == "tcp" ? 1000 : 200;

// The allocations of all threads: client, server and pollers. Caches grow until they have met the worst case,
// which depends on chance. So it runs several rounds, and returns the smallest result: 0 if one round
// allocated nothing.
uint64_t AllocationsOf(const std::function<void()>& round) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 20 && least > 0; ++i) {
    const uint64_t before = HeapAllocations();
    round();
    least = std::min(least, HeapAllocations() - before);
  }
  return least;
}

TEST(AllocationTest, WaitTakesNothing) {
  TestServer server;
  const auto channel = server.Connect();
  EXPECT_EQ(AllocationsOf([&] {
              for (int i = 0; i < kCalls; ++i) EXPECT_THAT(SendAct(channel, i).Wait(), IsOk());
            }),
            0u);
}

TEST(AllocationTest, ThenTakesNothing) {
  TestServer server;
  const auto channel = server.Connect();
  struct State {
    std::shared_ptr<Channel> channel;
    std::atomic<int> left{0};

    void Next() {
      if (--left < 0) return;
      SendAct(channel, 1).Then([this](auto reply) {
        if (!reply.ok()) std::abort();
        Next();
      });
    }
  } state;
  state.channel = channel;
  EXPECT_EQ(AllocationsOf([&] {
              state.left = kCalls;
              for (int i = 0; i < 8; ++i) state.Next();
              while (state.left > -8) sched_yield();
            }),
            0u);
}

TEST(AllocationTest, WaitingForASlotTakesNothing) {
  TestServer server;
  const auto channel = server.Connect({.connection = {.slots = 2}});
  struct State {
    std::shared_ptr<Channel> channel;
    std::atomic<int> left{0};

    void Next() {
      if (--left < 0) return;
      SendAct(channel, 1).Then([this](auto reply) {
        if (!reply.ok()) std::abort();
        Next();
      });
    }
  } state;
  state.channel = channel;
  EXPECT_EQ(AllocationsOf([&] {
              state.left = kCalls;
              for (int i = 0; i < 16; ++i) state.Next();
              while (state.left > -16) sched_yield();
            }),
            0u);
}

}  // namespace
}  // namespace hawser
