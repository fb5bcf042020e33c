// What a completion queue over TCP tells a thread that waits while another one polls.
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "hawser/base/unique_fd.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/tcp/completion_queue.h"
#include "hawser/transport/fabric/tcp/options.h"

namespace hawser::fabric {
namespace {

template <typename Condition>
bool Eventually(const Condition& condition) {
  const absl::Time give_up = absl::Now() + kPatience;
  while (!condition()) {
    if (absl::Now() > give_up) return false;
    sched_yield();
  }
  return true;
}

// A source whose file is an eventfd, and that has no completions.
class EventSourceOfTest : public CompletionSource {
 public:
  EventSourceOfTest(TcpCompletionQueue& queue, unsigned count, uint32_t events)
      : queue_(queue), file_(eventfd(count, EFD_CLOEXEC)) {
    queue_.Register(*this);
    queue_.Watch(*this, file_.get(), events);
  }
  ~EventSourceOfTest() override {
    queue_.Unwatch(file_.get());
    queue_.UnregisterQueuePair(*this);
  }

  void Deliver(CompletionSpan&, bool) override {}
  void OnEndDue() override {}
  void Acknowledge() override {}

 protected:
  TcpCompletionQueue& queue_;
  const UniqueFd file_;
};

// Owes an acknowledgement from its first event on, and still owes it after Acknowledge(), as if its socket
// were full. During that event another thread falls asleep in Wait().
class FullSource final : public EventSourceOfTest {
 public:
  FullSource(TcpCompletionQueue& queue, const TcpFabricCounters& counters)
      : EventSourceOfTest(queue, 1, EPOLLIN), counters_(counters) {}
  ~FullSource() override {
    queue_.Wake();
    if (waiter_.joinable()) waiter_.join();
  }

  void OnEvents(uint32_t) override {
    uint64_t count;
    ASSERT_EQ(read(file_.get(), &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
    queue_.OweAcknowledgement(*this);
    const uint64_t epoll_calls = counters_.epoll_calls.load();
    waiter_ = std::thread([this] {
      queue_.Wait(absl::InfiniteDuration());
      woken = true;
    });
    EXPECT_TRUE(Eventually([&] { return counters_.epoll_calls.load() > epoll_calls; }));
  }
  void Acknowledge() override {
    ++asked;
    queue_.OweAcknowledgement(*this);
  }

  int asked = 0;
  std::atomic<bool> woken{false};

 private:
  const TcpFabricCounters& counters_;
  std::thread waiter_;
};

// The thread that polled may never poll again. The one that waited polls next, and sends the acknowledgement.
TEST(TcpCompletionQueueTest, AnAcknowledgementThatIsOwedAfterAPollWakesTheThreadThatWaits) {
  TcpFabricCounters counters;
  const TcpFabricOptions options = {.counters = &counters};
  const std::unique_ptr<TcpCompletionQueue> queue = *TcpCompletionQueue::Create(options);
  FullSource source(*queue, counters);
  Completion completions[1];
  EXPECT_EQ(queue->Poll(absl::MakeSpan(completions)), 0u);
  EXPECT_EQ(source.asked, 1);
  EXPECT_TRUE(Eventually([&] { return source.woken.load(); }));
}

// Is told once of each thing that happens to its file, and leaves it there.
class EdgeSource final : public EventSourceOfTest {
 public:
  explicit EdgeSource(TcpCompletionQueue& queue) : EventSourceOfTest(queue, 0, EPOLLIN | EPOLLET) {}
  void Happen() {
    const uint64_t one = 1;
    ASSERT_EQ(write(file_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  void OnEvents(uint32_t) override { ++told; }

  int told = 0;
};

// The event that ends a Wait() may be for this Wait() alone, and those behind it are told only once.
TEST(TcpCompletionQueueTest, WhatHappensAfterAWakeIsToldByThePollAfterTheWait) {
  const TcpFabricOptions options;
  const std::unique_ptr<TcpCompletionQueue> queue = *TcpCompletionQueue::Create(options);
  EdgeSource first(*queue), second(*queue);
  Completion completions[1];
  for (int round = 1; round <= 3; ++round) {
    queue->Wake();
    first.Happen();
    second.Happen();
    queue->Wait(kPatience);
    queue->Poll(absl::MakeSpan(completions));
    EXPECT_EQ(first.told, round);
    EXPECT_EQ(second.told, round);
  }
}

}  // namespace
}  // namespace hawser::fabric
