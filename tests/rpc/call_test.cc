// One call, three ways to get its result, from any thread, of any size.

#include <string>
#include <thread>
#include <vector>

#include "hawser/tests/testing/detached.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using Act = absl::StatusOr<Reply<probe::Probe::ActResults>>;
using Echo = absl::StatusOr<Reply<probe::Probe::EchoResults>>;

std::vector<uint8_t> Pattern(size_t size_bytes) {
  std::vector<uint8_t> bytes(size_bytes);
  uint32_t state = 12345;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

TEST(CallTest, WaitReturnsTheReply) {
  TestServer server;
  const auto channel = server.Connect();
  const Act reply = SendAct(channel, 7).Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->getNumber(), 7);
}

TEST(CallTest, ThenRunsTheCallbackOnceWithTheReply) {
  TestServer server;
  const auto channel = server.Connect();
  Box<uint64_t> numbers;
  SendAct(channel, 7).Then([&](Act reply) { numbers.Put((*reply)->getNumber()); });
  EXPECT_EQ(numbers.Take(), 7);
  EXPECT_EQ(numbers.size(), 0);
}

TEST(CallTest, ACoroutineGetsTheReply) {
  TestServer server;
  const auto channel = server.Connect();
  Box<uint64_t> numbers;
  [](std::shared_ptr<Channel> to, Box<uint64_t>& into) -> Detached {
    for (uint64_t i = 0; i < 100; ++i) {
      Act reply = co_await SendAct(to, i);
      into.Put((*reply)->getNumber());
    }
  }(channel, numbers);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(numbers.Take(), i);
}

TEST(CallTest, ACallbackMaySendTheNextCall) {
  TestServer server;
  const auto channel = server.Connect();
  Box<bool> done;
  std::function<void(uint64_t)> next = [&](uint64_t left) {
    if (left == 0) return done.Put(true);
    SendAct(channel, left).Then([&next, left](Act reply) {
      EXPECT_EQ((*reply)->getNumber(), left);
      next(left - 1);
    });
  };
  next(TestScheme() == "tcp" ? 1000 : 200);  // Fewer over RDMA, because that is mostly an emulated machine.
  EXPECT_TRUE(done.Take());
}

TEST(CallTest, MoreCallsThanSlotsWaitForASlot) {
  TestServer server;
  const auto channel = server.Connect({.connection = {.slots = 2}});
  std::vector<PendingCall<probe::Probe::ActResults>> calls;
  for (uint64_t i = 0; i < 100; ++i) calls.push_back(SendAct(channel, i));
  for (uint64_t i = 0; i < 100; ++i) {
    const Act reply = calls[i].Wait();
    ASSERT_THAT(reply.status(), IsOk());
    EXPECT_EQ((*reply)->getNumber(), i);
  }
}

TEST(CallTest, ManyThreadsCallOverOneChannel) {
  TestServer server({.pollers = 2});
  const auto channel = server.Connect();
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const uint64_t number = t * 1000 + i;
        const Act reply = SendAct(channel, number).Wait();
        if (reply.ok() && (*reply)->getNumber() == number) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 8 * 200);
}

TEST(CallTest, WaitersAndCallbacksShareAChannel) {
  TestServer server;
  const auto channel = server.Connect();
  std::atomic<int> called{0};
  std::thread waiter([&] {
    for (int i = 0; i < 300; ++i) EXPECT_THAT(SendAct(channel, i).Wait(), IsOk());
  });
  for (int i = 0; i < 300; ++i) SendAct(channel, i).Then([&](Act reply) { called += reply.ok(); });
  waiter.join();
  EXPECT_TRUE(Eventually([&] { return called == 300; }));
}

TEST(CallTest, WaitInACallbackIsRefusedWithTheReason) {
  TestServer server;
  const auto channel = server.Connect();
  Box<absl::Status> statuses;
  SendAct(channel, 1).Then([&](Act) { statuses.Put(SendAct(channel, 2).Wait().status()); });
  const absl::Status status = statuses.Take();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Then()"));
}

TEST(CallTest, AThrowingCallbackEndsNothingElse) {
  TestServer server;
  const auto channel = server.Connect();
  Box<bool> threw;
  SendAct(channel, 1).Then([&](Act) {
    threw.Put(true);
    throw std::runtime_error("on purpose");
  });
  EXPECT_TRUE(threw.Take());
  EXPECT_THAT(SendAct(channel, 2).Wait(), IsOk());
}

TEST(CallTest, AReplyOutlivesCallAndChannel) {
  TestServer server;
  auto channel = server.Connect();
  auto call = probe::ProbeStub(channel).Echo();
  const std::vector<uint8_t> bytes = Pattern(100);
  call.request().setData({bytes.data(), bytes.size()});
  Echo reply = call.Send().Wait();
  ASSERT_THAT(reply, IsOk());
  const capnp::Data::Reader data = (*reply)->getData();
  const std::shared_ptr<const void> kept = std::move(*reply).Keep();
  channel.reset();
  EXPECT_EQ(std::vector<uint8_t>(data.begin(), data.end()), bytes);
}

TEST(CallTest, ACallInFlightKeepsItsChannelConnected) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  auto channel = server.Connect();
  Box<absl::Status> result;
  SendAct(channel, 7).Then([&](Act reply) { result.Put(reply.status()); });
  DeferredCall deferred = server.held.Take();
  channel.reset();
  deferred.Finish();
  EXPECT_THAT(result.Take(), IsOk());
  EXPECT_TRUE(Eventually([&] { return server.server.stats().connections == 0; })) << "and no longer";
}

class ContentsTest : public testing::TestWithParam<size_t> {};

TEST_P(ContentsTest, ArriveIntactBothWays) {
  TestServer server;
  const auto channel = server.Connect();
  const std::vector<uint8_t> bytes = Pattern(GetParam());
  auto call = probe::ProbeStub(channel).Echo();
  call.request().setData({bytes.data(), bytes.size()});
  const Echo reply = call.Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  const capnp::Data::Reader data = (*reply)->getData();
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), data.begin(), data.end()));
}

INSTANTIATE_TEST_SUITE_P(Sizes, ContentsTest,
                         testing::Values(0, 1, 3000, 3500, 3700, 4000, 4095, 4096, 4097, 5000, 64 << 10,
                                         1 << 20, (1 << 20) + 1, 16 << 20));

// The last word of a message is sent as a whole, and the memory may have been another peer's.
TEST(ContentsTest, WhatIsBehindABufferInItsLastWordIsZero) {
  TestServer server;
  const auto channel = server.Connect();
  for (const size_t size : {size_t{1}, size_t{4097}, size_t{8191}}) {
    {
      const absl::StatusOr<Buffer> before = channel->AllocateBuffer(size + 7);
      ASSERT_THAT(before, IsOk());
      std::fill_n(before->data(), size + 7, uint8_t{0xff});
    }
    const absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(size);
    ASSERT_THAT(buffer, IsOk());
    // What was written before, or what a build with a sanitizer writes over returned memory.
    EXPECT_NE(buffer->data()[0], 0) << "memory that nobody used before: this shows nothing";
    for (size_t i = size; i % 8 != 0; ++i) EXPECT_EQ(buffer->data()[i], 0) << i;
  }
}

TEST(ContentsTest, ABufferThatWasMovedFromIsEmpty) {
  TestServer server;
  const auto channel = server.Connect();
  Buffer small = *channel->AllocateBuffer(8);
  Buffer large = *channel->AllocateBuffer(5000);
  uint8_t* const memory = large.data();
  small = std::move(large);
  EXPECT_EQ(small.data(), memory);
  EXPECT_EQ(small.size_bytes(), 5000u);
  EXPECT_EQ(large.data(), nullptr);
  EXPECT_EQ(large.size_bytes(), 0u);
  const Buffer taken = std::move(small);
  EXPECT_EQ(taken.size_bytes(), 5000u);
  EXPECT_EQ(small.data(), nullptr);
  EXPECT_EQ(small.size_bytes(), 0u);
}

TEST(ContentsTest, AnAttachedBufferIsSentFromWhereItLies) {
  TestServer server;
  const auto channel = server.Connect();
  absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(1 << 20);
  ASSERT_THAT(buffer, IsOk());
  const std::vector<uint8_t> bytes = Pattern(1 << 20);
  std::copy(bytes.begin(), bytes.end(), buffer->data());
  auto call = probe::ProbeStub(channel).Echo();
  call.request().adoptData(call.Attach(*std::move(buffer)));
  const Echo reply = call.Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  const capnp::Data::Reader data = (*reply)->getData();
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), data.begin(), data.end()));
}

}  // namespace
}  // namespace hawser
