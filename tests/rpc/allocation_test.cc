// A call in steady state takes nothing from the heap, at either side.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/rpc/probe.h"

namespace {

std::atomic<uint64_t> allocations{0};

void* Allocate(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* const memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace hawser {
namespace {

// Over RDMA fewer: that is mostly an emulated machine.
const int kCalls = TestScheme() == "tcp" ? 1000 : 200;

// Of all threads: client, server and pollers. What is kept for reuse grows until it has met the worst of the
// moments that chance brings, so several rounds are run; 0 if there was one that took nothing.
uint64_t AllocationsOf(const std::function<void()>& round) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 20 && least > 0; ++i) {
    const uint64_t before = allocations;
    round();
    least = std::min<uint64_t>(least, allocations - before);
  }
  return least;
}

TEST(AllocationTest, WaitTakesNothing) {
  TestServer server;
  const auto channel = server.Connect();
  EXPECT_EQ(AllocationsOf([&] {
              for (int i = 0; i < kCalls; ++i) EXPECT_TRUE(SendAct(channel, i).Wait().ok());
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
