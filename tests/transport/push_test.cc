// Medium messages go ahead of the READ that would fetch them, where the fabric can do that.

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

struct PushingWorld : World {
  explicit PushingWorld(const RuntimeOptions& client_options = {}, const RuntimeOptions& server_options = {})
      : World(client_options, server_options) {
    client.fabric->LetPush();
    server.fabric->LetPush();
  }
};

class PushOfSizeTest : public ::testing::TestWithParam<size_t> {};

TEST_P(PushOfSizeTest, NoReadIsSent) {
  PushingWorld world;
  Link link(world);
  link.EchoAll();
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), GetParam(), seed));
    ASSERT_THAT(call.response, IsOk());
    EXPECT_EQ(Content(**call.response), ContentOf(GetParam(), seed));
  }
  EXPECT_EQ(link.client_counts().pushes, 3u);
  EXPECT_EQ(link.server_counts().taken_pushes, 3u);
  EXPECT_EQ(link.server_counts().pushes, 3u);
  EXPECT_EQ(link.client_counts().taken_pushes, 3u);
  EXPECT_EQ(link.client_counts().reads + link.server_counts().reads, 0u);
  const PollerStats stats = world.client.poller().stats();
  EXPECT_EQ(stats.sent.pushed, 3u) << ToString(stats);
  EXPECT_EQ(stats.received.pushed, 3u) << ToString(stats);
  EXPECT_EQ(stats.sent.read + stats.received.read, 0u) << ToString(stats);
}
INSTANTIATE_TEST_SUITE_P(Bodies, PushOfSizeTest,
                         ::testing::Values(8192, 16 << 10, 32 << 10, 64 << 10, 128 << 10));

TEST(PushTest, WhatIsLargerIsRead) {
  PushingWorld world;
  Link link(world);
  link.EchoAll();
  PendingCall call;
  link.Call(call, NewMessage(world.client.messages(), kMiB));
  ASSERT_THAT(call.response, IsOk());
  EXPECT_EQ(link.client_counts().pushes + link.server_counts().pushes, 0u);
  EXPECT_GT(link.client_counts().reads, 0u);
  const PollerStats stats = world.client.poller().stats();
  EXPECT_EQ(stats.sent.read, 1u) << ToString(stats);
  EXPECT_EQ(stats.received.read, 1u) << ToString(stats);
  EXPECT_EQ(stats.sent.pushed + stats.received.pushed, 0u) << ToString(stats);
}

TEST(PushTest, APeerThatPushesNotIsRead) {
  World world;
  world.server.fabric->LetPush();  // The client's queue pairs say that they have none.
  Link link(world);
  link.EchoAll();
  PendingCall call;
  link.Call(call, NewMessage(world.client.messages(), 16 << 10));
  ASSERT_THAT(call.response, IsOk());
  EXPECT_EQ(link.client_counts().pushes, 0u);
  EXPECT_EQ(link.server_counts().reads, 1u);
}

// The bytes are dropped, and READ when there is memory.
TEST(PushTest, ARequestThatFindsNoMemoryIsReadLater) {
  PushingWorld world({}, {.pool = {.limit_bytes = 8 * kMiB}});
  Link link(world);
  link.EchoAll();
  std::vector<Lease> hoard;
  Shortage why;
  for (size_t bytes = kMiB; bytes >= 8192; bytes /= 2) {
    while (Lease lease = world.server.buffers().TryAcquire(bytes, why)) hoard.push_back(std::move(lease));
  }
  PendingCall call;
  ASSERT_THAT(link.Send(call, NewMessage(world.client.messages(), 32 << 10, 5)), IsOk());
  world.Settle();
  EXPECT_FALSE(call.done());
  EXPECT_EQ(link.server_counts().taken_pushes, 0u);
  hoard.clear();
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  ASSERT_THAT(call.response, IsOk());
  EXPECT_EQ(Content(**call.response), ContentOf(32 << 10, 5));
  EXPECT_EQ(link.client_counts().pushes, 1u);
  EXPECT_EQ(link.server_counts().reads, 1u);
}

// As a READ that stands still does.
TEST(PushTest, APushThatDoesNotEndCostsThePeerItsConnection) {
  PushingWorld world;
  Link link(world, {.keepalive_interval = absl::Seconds(1), .keepalive_timeout = absl::Seconds(1)});
  link.EchoAll();
  link.server_counts().hold_reads = true;
  PendingCall call;
  ASSERT_THAT(link.Send(call, NewMessage(world.client.messages(), 32 << 10)), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().taken_pushes == 1; }));
  world.Pass(absl::Milliseconds(1900), absl::Milliseconds(100));
  EXPECT_FALSE(link.server_observer.closed.has_value());
  world.Pass(absl::Milliseconds(1200), absl::Milliseconds(100));
  ASSERT_TRUE(link.server_observer.closed.has_value());
  EXPECT_THAT(*link.server_observer.closed, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Text(*link.server_observer.closed), ::testing::HasSubstr("answers, but a push of 32"));
}

TEST(PushTest, ManyAtOnceArriveEachWithItsOwn) {
  PushingWorld world;
  Link link(world);
  link.EchoAll();
  std::deque<PendingCall> calls;
  for (uint32_t round = 0; round < 8; ++round) {
    calls.clear();
    for (uint32_t i = 0; i < 32; ++i) {
      const size_t bytes = 1000 + 2000 * i;
      calls.emplace_back();
      ASSERT_THAT(link.Send(calls.back(), NewMessage(world.client.messages(), bytes, i)), IsOk());
    }
    ASSERT_TRUE(world.RunUntil([&] {
      for (PendingCall& call : calls) {
        if (!call.done()) return false;
      }
      return true;
    }));
    for (uint32_t i = 0; i < 32; ++i) {
      ASSERT_THAT(calls[i].response, IsOk());
      EXPECT_EQ(Content(**calls[i].response), ContentOf(1000 + 2000 * i, i));
    }
  }
  EXPECT_GT(link.server_counts().taken_pushes, 0u);
}

// The bytes come in any case: they need no share of the READs that may be outstanding.
TEST(PushTest, APushBesideABulkRequestIsTaken) {
  PushingWorld world;
  Link link(world);
  link.EchoAll();
  link.server_counts().hold_reads = true;
  PendingCall bulk, medium;
  ASSERT_THAT(link.Send(bulk, 8 * kMiB), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().reads != 0; }));
  world.Settle();
  const uint64_t reads = link.server_counts().reads;
  ASSERT_THAT(link.Send(medium, NewMessage(world.client.messages(), 32 << 10, 5)), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().taken_pushes == 1; }));
  EXPECT_EQ(link.server_counts().reads, reads);
  link.server_counts().hold_reads = false;
  ASSERT_TRUE(world.RunUntil([&] { return medium.done() && bulk.done(); }));
  EXPECT_THAT(bulk.response, IsOk());
  ASSERT_THAT(medium.response, IsOk());
  EXPECT_EQ(Content(**medium.response), ContentOf(32 << 10, 5));
}

// What is sent next waits for them.
TEST(PushTest, AConnectionPushesFewBytesAtOnce) {
  PushingWorld world;
  Link link(world, {.slots = 32});
  link.EchoAll();
  for (int round = 0; round < 3; ++round) {
    const uint64_t before = link.client_counts().pushes;
    std::deque<PendingCall> calls(32);
    for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 100 << 10), IsOk());
    world.OnClient([] {});
    EXPECT_LE(link.client_counts().pushes - before, 5u);
    EXPECT_GT(link.client_counts().pushes, before);
    ASSERT_TRUE(world.RunUntil([&] {
      for (PendingCall& call : calls) {
        if (!call.done()) return false;
      }
      return true;
    }));
    for (const PendingCall& call : calls) EXPECT_THAT(call.response, IsOk());
  }
}

TEST(PushTest, AnIdleConnectionGoesOnPushing) {
  PushingWorld world;
  Link link(world, {.keepalive_interval = absl::Seconds(1)});
  link.EchoAll();
  for (uint64_t calls = 1; calls <= 3; ++calls) {
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), 16 << 10));
    ASSERT_THAT(call.response, IsOk());
    EXPECT_EQ(link.server_counts().taken_pushes, calls);
    EXPECT_EQ(link.client_counts().taken_pushes, calls);
    world.Pass(absl::Seconds(4), absl::Milliseconds(50));
  }
}

// A READ that is never answered is not hidden by pushes that are.
TEST(PushTest, AReadThatStandsStillBesidePushesEndsTheConnection) {
  PushingWorld world;
  Link link(world, {.keepalive_interval = absl::Seconds(1), .keepalive_timeout = absl::Seconds(1)});
  link.EchoAll();
  link.server_counts().hold_reads = true;
  link.server_counts().hold_taken_pushes = false;
  PendingCall bulk;
  ASSERT_THAT(link.Send(bulk, kMiB), IsOk());
  for (int i = 0; i < 40 && !link.server_observer.closed.has_value(); ++i) {
    PendingCall medium;
    link.Call(medium, NewMessage(world.client.messages(), 16 << 10));
    world.Pass(absl::Milliseconds(100), absl::Milliseconds(20));
  }
  EXPECT_GT(link.server_counts().taken_pushes, 5u);
  ASSERT_TRUE(link.server_observer.closed.has_value());
  EXPECT_THAT(Text(*link.server_observer.closed), ::testing::HasSubstr("answers, but a READ of "));
}

TEST(PushTest, ACallThatIsCancelledLeavesNothing) {
  PushingWorld world;
  Link link(world);
  link.server.answer = nullptr;
  for (int i = 0; i < 10; ++i) {
    PendingCall call;
    ASSERT_THAT(link.Send(call, 60 << 10, absl::Milliseconds(1)), IsOk());
    if (i % 2 == 0) world.Turn();
    world.Pass(absl::Milliseconds(2));
    ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
    for (const RecordingServer::Request& request : std::exchange(link.server.requests, {})) {
      link.RespondEmpty(request.id);
    }
    world.Settle();
  }
  link.server.requests.clear();
  world.Settle();
  EXPECT_EQ(link.client_counts().grants, 0);
}

TEST(PushTest, AConnectionThatEndsInTheMiddleGivesAllBack) {
  for (int turns = 0; turns < 12; ++turns) {
    PushingWorld world;
    Link link(world);
    link.EchoAll();
    PendingCall first, second;
    link.Call(first, NewMessage(world.client.messages(), 60 << 10));
    ASSERT_THAT(link.Send(second, 60 << 10), IsOk());
    for (int i = 0; i < turns; ++i) (i % 2 == 0 ? world.client : world.server).poller().PollOnce();
    world.OnServer([&] {
      if (link.server_end != nullptr) link.server_end->Close();
    });
    ASSERT_TRUE(world.RunUntil([&] { return second.done() && link.closed(); })) << turns;
  }
}

}  // namespace
}  // namespace hawser::transport
