#include "hawser/transport/connection/receive_ring.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hoard.h"
#include "hawser/tests/transport/testing/world.h"
#include "hawser/transport/fabric/tcp/fabric.h"
#include "hawser/transport/fabric/tcp/options.h"

namespace hawser::transport {
namespace {

constexpr uint32_t kSlots = 32;
// The receives that one connection may hold beyond those for its exchanges in flight and its control
// exchanges.
constexpr int64_t kToSpare = 4;

std::shared_ptr<fabric::Fabric> Tcp() { return fabric::CreateTcpFabric(fabric::TcpFabricOptions()); }

// Longer than what a fabric offers without a receive (ConnectionHandler::TakeSend()).
constexpr size_t kReceivedBytes = 1000;

// Sends all calls at once.
void Burst(World& world, Link& link, std::vector<PendingCall>& calls, size_t bytes = 64) {
  world.OnClient([&] {
    for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, bytes), IsOk());
  });
  ASSERT_TRUE(world.RunUntil([&] {
    for (const PendingCall& call : calls) {
      if (!call.done()) return false;
    }
    return true;
  }));
  for (const PendingCall& call : calls) EXPECT_THAT(call.response, IsOk());
  world.Settle();
}

// ---- The side that sends requests, over any fabric.

TEST(ReceiveRingTest, EachRequestInFlightHasAReceiveForItsAnswer) {
  World world;
  Link link(world, {.slots = kSlots});
  EXPECT_LE(link.client_counts().receives_posted, 2);
  std::vector<PendingCall> calls(kSlots);
  for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 64), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == kSlots; }));
  EXPECT_GT(link.client_counts().receives_posted, kSlots);
  world.OnServer([&] {
    for (auto& request : link.server.requests) link.Echo(std::move(request));
  });
  ASSERT_TRUE(world.RunUntil([&] { return calls[0].done() && calls[kSlots - 1].done(); }));
}

TEST(ReceiveRingTest, AfterABurstAClientHoldsFewReceives) {
  World world;
  Link link(world, {.slots = kSlots});
  link.EchoAll();
  std::vector<PendingCall> calls(kSlots);
  Burst(world, link, calls);
  EXPECT_LE(link.client_counts().receives_posted, 2 + kToSpare);
}

TEST(ReceiveRingTest, CallsOneByOneShareAPostOfReceives) {
  World world;
  for (World::Side* side : {&world.client, &world.server}) side->fabric->OfferSends(false);
  Link link(world, {.slots = kSlots});
  link.EchoAll();
  for (int i = 0; i < 50; ++i) {
    std::vector<PendingCall> call(1);
    Burst(world, link, call);
  }
  const uint64_t client = link.client_counts().receive_posts, server = link.server_counts().receive_posts;
  for (int i = 0; i < 100; ++i) {
    std::vector<PendingCall> call(1);
    Burst(world, link, call);
  }
  EXPECT_GT(link.client_counts().receive_posts, client);
  EXPECT_GT(link.server_counts().receive_posts, server);
  EXPECT_LE(link.client_counts().receive_posts - client, 25u);
  EXPECT_LE(link.server_counts().receive_posts - server, 26u);
}

// Memory for what waits, but not for the receives to spare.
TEST(ReceiveRingTest, MemoryForAsManyAnswersAsThereAreRequestsIsEnough) {
  constexpr int kCalls = 3;
  RuntimeOptions small;
  small.pool.limit_bytes = 8 * kMiB;
  World world(small);
  Link link(world, {.slots = kSlots});
  link.EchoAll();
  for (int i = 0; i < 4; ++i) {  // From now on the ring has some to spare.
    std::vector<PendingCall> call(1);
    Burst(world, link, call);
  }
  link.server.answer = nullptr;
  std::vector<OutgoingMessagePtr> requests;
  for (int i = 0; i < kCalls; ++i) requests.push_back(NewMessage(world.client.messages(), 8));
  Hoard hoard(world.client.buffers(), 4096);
  PendingCall calls[kCalls];
  for (int i = 0; i < kCalls; ++i) ASSERT_THAT(link.Send(calls[i], std::move(requests[i])), IsOk());
  const auto all_arrived = [&] { return link.server.requests.size() == kCalls; };
  for (int buffers = 0; !all_arrived(); ++buffers) {
    ASSERT_LT(buffers, kCalls + 3);
    hoard.Drop(1);
    world.Pass(absl::Milliseconds(2));
  }
  // For each request, and two for control.
  EXPECT_EQ(link.client_counts().receives_posted, kCalls + 2);
  hoard.DropAll();
  for (auto& request : link.server.requests) link.RespondEmpty(request.id);
  ASSERT_TRUE(world.RunUntil([&] { return calls[kCalls - 1].done(); }));
}

// ---- The side that answers, over TCP.

class WaitingRingTest : public ::testing::Test {
 protected:
  static std::shared_ptr<fabric::Fabric> NewFabric(fabric::TcpFabricCounters& counters) {
    return fabric::CreateTcpFabric({.counters = &counters});
  }

  fabric::TcpFabricCounters counters_;
  World world_{{}, {}, [this] { return NewFabric(counters_); }};
};

TEST_F(WaitingRingTest, AFreshServerTakesABurstWithFewReceivesAndNoRnr) {
  Link link(world_, {.slots = kSlots});
  link.EchoAll();
  EXPECT_EQ(link.server_counts().receives_posted, 2);
  const uint64_t watches = counters_.watch_calls;
  std::vector<PendingCall> calls(kSlots);
  Burst(world_, link, calls, kReceivedBytes);
  EXPECT_EQ(link.client_observer.closings + link.server_observer.closings, 0);
  // The ring grows to 2, 4, 8, 16 and 32 receives; each doubling takes one turn.
  EXPECT_LE(link.server_counts().receive_posts, 8u);
  // A SEND that waits between two turns costs no system call.
  EXPECT_EQ(counters_.watch_calls, watches);
  EXPECT_GE(link.server_counts().receives_posted, kSlots / 2);
}

TEST_F(WaitingRingTest, ABurstThatTheFabricOffersTakesNoReceives) {
  Link link(world_, {.slots = kSlots});
  link.EchoAll();
  {
    std::vector<PendingCall> first(1);
    Burst(world_, link, first);
  }
  const uint64_t posts = link.server_counts().receive_posts;
  for (int round = 0; round < 5; ++round) {
    std::vector<PendingCall> calls(kSlots);
    Burst(world_, link, calls);
    EXPECT_EQ(link.server_counts().receives_posted, 2);
    // The client has posted one for each answer.
    EXPECT_LE(link.client_counts().receives_posted, 2 + kToSpare);
  }
  EXPECT_EQ(link.server_counts().receive_posts, posts);
  // The fabric does not free what the next burst needs.
  EXPECT_EQ(link.client_counts().trims, 0u);
}

TEST_F(WaitingRingTest, AnIdleServerHoldsFewReceivesAgain) {
  const ConnectionOptions options = {.slots = kSlots, .keepalive_interval = absl::Seconds(1)};
  Link link(world_, options);
  link.EchoAll();
  for (int round = 0; round < 2; ++round) {
    {
      std::vector<PendingCall> calls(kSlots);
      Burst(world_, link, calls, kReceivedBytes);
    }
    ASSERT_GT(link.server_counts().receives_posted, 8);
    world_.Pass(absl::Seconds(4), absl::Milliseconds(50));
    EXPECT_LE(link.server_counts().receives_posted, 2);
    EXPECT_LE(link.client_counts().receives_posted, 2);
    EXPECT_GT(link.client_counts().trims, 0u);
    EXPECT_GT(link.server_counts().trims, 0u);
    EXPECT_EQ(link.client_observer.closings + link.server_observer.closings, 0);
    // 1024: the memory of control messages. Pings have completed the last messages, so nothing else is
    // leased.
    EXPECT_LE(World::LeasedBytes(world_.server), 2u * 4096 + 1024);
    EXPECT_LE(World::LeasedBytes(world_.client), 2u * 4096 + 1024);
  }
}

TEST_F(WaitingRingTest, PingsAloneDoNotGrowTheRing) {
  const ConnectionOptions options = {.slots = kSlots, .keepalive_interval = absl::Seconds(1)};
  Link link(world_, options);
  for (int i = 0; i < 30; ++i) {
    world_.Pass(absl::Seconds(1), absl::Milliseconds(50));
    ASSERT_LE(link.server_counts().receives_posted, 2);
    ASSERT_LE(link.client_counts().receives_posted, 3);
  }
  EXPECT_EQ(link.client_observer.closings + link.server_observer.closings, 0);
}

// Otherwise the answers to READs could wait behind a request for which there is no memory, because the READs
// hold it.
TEST_F(WaitingRingTest, AServerThatReadsHasAReceiveForEachSlot) {
  Link link(world_, {.slots = kSlots});
  EXPECT_LE(link.server_counts().receives_posted, 2);
  PendingCall call;
  ASSERT_THAT(link.Send(call, kMiB), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server_counts().reads != 0; }));
  EXPECT_GT(link.server_counts().receives_posted, kSlots);
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 1; }));
}

TEST_F(WaitingRingTest, AServerThatWasReadHasAReceiveForEachSlot) {
  Link link(world_, {.slots = kSlots});
  PendingCall call;
  ASSERT_THAT(link.Send(call, 64), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 1; }));
  ASSERT_THAT(link.Respond(link.server.requests[0].id, kMiB), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.response, IsOk());
  EXPECT_GT(link.server_counts().receives_posted, kSlots);
}

// A pool that has no memory for receives beyond those that are posted.
class WaitingRingWithoutMemoryTest : public ::testing::Test {
 protected:
  static RuntimeOptions SmallPool() {
    RuntimeOptions options;
    options.pool.limit_bytes = 8 * kMiB;
    return options;
  }
  static constexpr size_t kReceiveBytes = 4096;
  // A request of so many bytes keeps the buffer that it was received into.
  static constexpr size_t kNotCopiedBytes = 1000;

  void TakeAll(BufferPool& buffers) { hoard_.Take(buffers, kReceiveBytes); }
  // Sends all `calls`, one for each slot. The server receives only those for which it has receives.
  void CallAll(Link& link, std::vector<PendingCall>& calls) {
    TakeAll(world_.server.buffers());
    for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, kNotCopiedBytes), IsOk());
    ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 2; }));
  }

  World world_{SmallPool(), SmallPool(), Tcp};
  Hoard hoard_;
};

TEST_F(WaitingRingWithoutMemoryTest, RequestsWaitForMemoryWithoutRnr) {
  Link link(world_, {.slots = 4});
  std::vector<PendingCall> calls(4);
  CallAll(link, calls);
  world_.Pass(absl::Seconds(2), absl::Milliseconds(50));
  EXPECT_EQ(link.client_observer.closings + link.server_observer.closings, 0);
  EXPECT_EQ(link.server.requests.size(), 2u);
  hoard_.DropAll();
  world_.Pass(absl::Milliseconds(2));
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 4; }));
  world_.OnServer([&] {
    for (auto& request : link.server.requests) link.Echo(std::move(request));
  });
  ASSERT_TRUE(world_.RunUntil([&] { return calls[3].done(); }));
  EXPECT_EQ(link.client_observer.closings + link.server_observer.closings, 0);
}

// Otherwise both sides would wait forever: a request holds the memory that the next one waits for.
TEST_F(WaitingRingWithoutMemoryTest, AServerAnswersWithoutAReceive) {
  Link link(world_, {.slots = 4});
  OutgoingMessagePtr answer = NewMessage(world_.server.messages(), 8);
  std::vector<PendingCall> calls(4);
  CallAll(link, calls);
  EXPECT_EQ(link.server_counts().receives_posted, 0);
  world_.OnServer([&] { EXPECT_THAT(link.server_end->Respond(link.server.requests[0].id, answer), IsOk()); });
  ASSERT_TRUE(world_.RunUntil([&] { return calls[0].done(); }));
  EXPECT_THAT(calls[0].response, IsOk());
}

// Its buffer is in hand. If it went back to the pool, another connection could get it.
TEST_F(WaitingRingWithoutMemoryTest, AReceiveThatWasCopiedIsPostedAgainBehindOneThatIsKept) {
  world_.server.fabric->OfferSends(false);
  Link link(world_, {.slots = 4});
  PendingCall first;  // The first message of a connection is not copied.
  ASSERT_THAT(link.Send(first, 64), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 1; }));
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world_.RunUntil([&] { return first.done(); }));
  link.server.requests.clear();
  world_.Settle();
  ASSERT_EQ(link.server_counts().receives_posted, 2);
  TakeAll(world_.server.buffers());
  std::vector<PendingCall> calls(3);
  world_.OnClient([&] {  // Both come in one turn.
    ASSERT_THAT(link.Send(calls[0], 64), IsOk());
    ASSERT_THAT(link.Send(calls[1], kNotCopiedBytes), IsOk());
  });
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 2; }));
  TakeAll(world_.server.buffers());
  EXPECT_EQ(link.server_counts().receives_posted, 1);
  ASSERT_THAT(link.Send(calls[2], 64), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 3; }));
}

// A large request needs receives first. Its READs must not wait for them.
TEST_F(WaitingRingWithoutMemoryTest, ALargeRequestWaitsForMemoryAndItsConnectionStays) {
  Link link(world_, {.slots = 32});
  absl::StatusOr<Lease> large = world_.server.buffers().Acquire(kMiB);
  ASSERT_THAT(large, IsOk());
  TakeAll(world_.server.buffers());
  *large = Lease();
  PendingCall call;
  ASSERT_THAT(link.Send(call, kMiB - 4096), IsOk());
  world_.Pass(absl::Seconds(6), absl::Milliseconds(50));
  EXPECT_EQ(link.client_observer.closings + link.server_observer.closings, 0);
  hoard_.DropAll();
  world_.Pass(absl::Milliseconds(2));
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 1; }));
}

TEST_F(WaitingRingWithoutMemoryTest, ALargeResponseIsSentWithoutMemoryForReceives) {
  Link link(world_, {.slots = 32});
  PendingCall call;
  ASSERT_THAT(link.Send(call, 64), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 1; }));
  OutgoingMessagePtr response = NewMessage(world_.server.messages(), kMiB);
  TakeAll(world_.server.buffers());
  world_.OnServer(
      [&] { EXPECT_THAT(link.server_end->Respond(link.server.requests[0].id, response), IsOk()); });
  ASSERT_TRUE(world_.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.response, IsOk());
}

// The response that the client READs holds the last memory.
TEST_F(WaitingRingWithoutMemoryTest, AClientThatReadsSendsSmallRequestsWithoutMemoryForReceives) {
  Link link(world_, {.slots = 8});
  PendingCall large, small;
  OutgoingMessagePtr request = NewMessage(world_.client.messages(), 64);
  ASSERT_THAT(link.Send(large, 64), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 1; }));
  ASSERT_THAT(link.Respond(link.server.requests[0].id, 4 * kMiB), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.client_counts().reads != 0; }));
  TakeAll(world_.client.buffers());
  ASSERT_THAT(link.Send(small, std::move(request)), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return large.done() && link.server.requests.size() == 2; }));
  EXPECT_THAT(large.response, IsOk());
  world_.Pass(absl::Seconds(6), absl::Milliseconds(50));
  EXPECT_EQ(link.client_observer.closings + link.server_observer.closings, 0);
}

TEST_F(WaitingRingWithoutMemoryTest, AnIdleConnectionGoesOnAnsweringPings) {
  Link link(world_, {.slots = 4, .keepalive_interval = absl::Seconds(1)});
  world_.Pass(absl::Seconds(5), absl::Milliseconds(50));
  TakeAll(world_.server.buffers());
  TakeAll(world_.client.buffers());
  world_.Pass(absl::Seconds(15), absl::Milliseconds(50));
  EXPECT_EQ(link.client_observer.closings + link.server_observer.closings, 0);
}

// The pool has been asked for notice of a larger buffer, and there may never be one.
TEST_F(WaitingRingWithoutMemoryTest, AConnectionThatEndsLetsTheNextOneTry) {
  constexpr size_t kLarger = 4 * kReceiveBytes;
  Link larger(world_, {.slots = 4, .receive_buffer_bytes = kLarger}), smaller(world_, {.slots = 4});
  hoard_.Take(world_.server.buffers(), kLarger);
  std::vector<PendingCall> first_calls(4), calls(4);
  CallAll(larger, first_calls);
  CallAll(smaller, calls);
  hoard_.Drop(4);
  world_.Settle();
  EXPECT_EQ(smaller.server.requests.size(), 2u);
  world_.OnServer([&] { larger.server_end->Close(); });
  world_.Pass(absl::Seconds(6), absl::Milliseconds(50));
  EXPECT_EQ(smaller.server.requests.size(), 4u);
  EXPECT_EQ(smaller.server_observer.closings, 0);
}

TEST_F(WaitingRingWithoutMemoryTest, AConnectionThatCannotReceiveForLongEndsWithTheReason) {
  Link link(world_, {.slots = 4});
  std::vector<PendingCall> calls(4);
  CallAll(link, calls);
  world_.Pass(absl::Seconds(4), absl::Milliseconds(50));
  EXPECT_EQ(link.server_observer.closings, 0);
  world_.Pass(absl::Seconds(2), absl::Milliseconds(50));
  ASSERT_TRUE(link.server_observer.lost.has_value());
  EXPECT_THAT(*link.server_observer.lost, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(calls[3].status(), HasCode(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace hawser::transport
