// Which large messages get memory, when peers announce more than there is memory for.
#include "hawser/transport/sharing/read_admission.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hoard.h"
#include "hawser/tests/transport/testing/memory_world.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLong = 8 * kMiB;

// A client with large requests in flight.
class Announcer {
 public:
  explicit Announcer(World& world, const std::string& address = "") : link(world, From(address), From()) {}

  void Announce(int count = 1, size_t bytes = kLong, absl::Duration timeout = absl::InfiniteDuration()) {
    for (; count > 0; --count) {
      calls_.push_back(std::make_unique<PendingCall>());
      ASSERT_THAT(link.Send(*calls_.back(), bytes, timeout), IsOk());
    }
    link.world.Settle();
  }
  // From now on it behaves like a stopped client.
  void AnswerNoReads() { link.server_counts().hold_reads = true; }
  size_t arrived() const { return link.server.requests.size(); }
  bool is_closed() const { return link.server_observer.closings != 0; }

  Link link;

 private:
  std::vector<std::unique_ptr<PendingCall>> calls_;
};

using Announcers = std::vector<std::unique_ptr<Announcer>>;

Announcers Stopped(World& world, int count) {
  Announcers all;
  for (int i = 0; i < count; ++i) {
    all.push_back(std::make_unique<Announcer>(world));
    all.back()->AnswerNoReads();
  }
  return all;
}

// Much less than a stalled peer has until it loses its memory (1 s), and more than the clock of the world
// passes by while a busy machine brings bytes over the loopback late.
constexpr absl::Duration kSoon = absl::Milliseconds(500);

// The time until `condition` holds.
template <typename Condition>
absl::Duration TimeUntil(World& world, const Condition& condition) {
  const int64_t start_ns = world.clock.NowNs();
  world.Settle();
  for (int i = 0; i < 500 && !condition(); ++i) world.Pass(absl::Milliseconds(10), absl::Milliseconds(10));
  EXPECT_TRUE(condition());
  return absl::Nanoseconds(world.clock.NowNs() - start_ns);
}

TEST(ReadAdmissionTest, AConnectionHoldsMemoryForOneLongMessageAtATime) {
  World world({}, PoolOf(128 * kMiB));
  Announcer stopped(world);
  stopped.AnswerNoReads();
  const size_t before = World::LeasedBytes(world.server);
  stopped.Announce(8, 12 * kMiB);
  EXPECT_LE(World::LeasedBytes(world.server), before + 13 * kMiB);
  stopped.link.server_counts().hold_reads = false;
  EXPECT_TRUE(world.RunUntil([&] { return stopped.arrived() == 8; }));
}

TEST(ReadAdmissionTest, AConnectionHoldsMemoryForOneLongAnswerAtATime) {
  World world(PoolOf(128 * kMiB), {});
  Announcer pushes(world);
  pushes.link.client_counts().hold_reads = true;
  pushes.Announce(8, 8);
  ASSERT_EQ(pushes.arrived(), 8u);
  const size_t before = World::LeasedBytes(world.client);
  for (auto& request : pushes.link.server.requests) {
    ASSERT_THAT(pushes.link.Respond(request.id, 12 * kMiB), IsOk());
  }
  world.Settle();
  EXPECT_LE(World::LeasedBytes(world.client), before + 13 * kMiB);
}

TEST(ReadAdmissionTest, AShortMessagePassesALongOneOfItsConnection) {
  World world({}, PoolOf(128 * kMiB));
  Announcer client(world);
  client.link.server_counts().hold_reads = true;
  client.Announce(4);
  client.Announce(1, kMiB);
  client.link.server_counts().hold_reads = false;
  ASSERT_TRUE(world.RunUntil([&] { return client.arrived() > 0; }));
  EXPECT_EQ(client.link.server.requests[0].message->body_bytes(), kMiB);
}

TEST(ReadAdmissionTest, HoardersLeaveMemoryForShortMessagesOfTheirHost) {
  World world({}, PoolOf(64 * kMiB));
  Announcer honest(world);
  Announcers hoarders = Stopped(world, 10);
  for (auto& hoarder : hoarders) hoarder->Announce(2);
  honest.Announce(1, 2 * kMiB);
  EXPECT_LE(TimeUntil(world, [&] { return honest.arrived() == 1; }), kSoon);
}

TEST(ReadAdmissionTest, AHostThatHoardsLeavesMemoryForOthers) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "another host is an address of the loopback";
  for (const int pollers : {1, 4}) {
    SCOPED_TRACE(pollers);
    World world({}, PoolOf(64 * kMiB, pollers));
    Announcers hoarders = Stopped(world, 10);
    for (auto& hoarder : hoarders) hoarder->Announce(2);
    Announcer honest(world, "127.0.0.2");
    honest.Announce();
    EXPECT_LE(TimeUntil(world, [&] { return honest.arrived() == 1; }), kSoon);
  }
}

TEST(ReadAdmissionTest, AMessageOfAlmostTheWholePoolIsAdmittedWhenNoOtherHoldsMemory) {
  World world({}, PoolOf(64 * kMiB));
  Announcer client(world);
  client.Announce(2, 56 * kMiB);
  client.link.server.answer = [&](RecordingServer::Request request) {
    const ExchangeId id = request.id;
    request.message.reset();
    client.link.RespondEmpty(id);
  };
  for (auto& request : client.link.server.requests) {
    request.message.reset();
    client.link.RespondEmpty(request.id);
  }
  EXPECT_TRUE(world.RunUntil([&] { return client.link.server.request_count == 2; }));
}

TEST(ReadAdmissionTest, MessagesThatWaitForMemoryCostNoTurns) {
  World world({}, PoolOf(64 * kMiB));
  Announcers clients;
  for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<Announcer>(world));
  Hoard hoard(world.server.buffers(), kLong);
  for (auto& client : clients) client->Announce(4);
  size_t work = 0;
  for (int ms = 0; ms < 3000; ++ms) {
    world.clock.Advance(absl::Milliseconds(1));
    work += world.Turn();
  }
  EXPECT_LE(work, 10u);
  for (auto& client : clients) EXPECT_EQ(client->arrived(), 0u);
  hoard.Drop(4);
  EXPECT_TRUE(world.RunUntil([&] { return clients[0]->arrived() > 0; })) << "without any time";
}

TEST(ReadAdmissionTest, AnAnnouncementBehindOthersAsksForNoMemory) {
  World world({}, PoolOf(64 * kMiB));
  Announcers clients;
  for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<Announcer>(world));
  Hoard hoard(world.server.buffers(), kLong);
  clients[0]->Announce(1);
  const uint64_t before = world.server.poller().read_admission().attempts();
  for (auto& client : clients) client->Announce(4);
  EXPECT_EQ(world.server.poller().read_admission().attempts(), before);
}

TEST(ReadAdmissionTest, ConnectionsOfAHostAreServedInTheOrderOfTheirAnnouncements) {
  World world({}, PoolOf(64 * kMiB));
  Announcers clients;
  for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<Announcer>(world));
  Hoard hoard(world.server.buffers(), kLong);
  for (int i : {2, 0, 3, 1}) clients[i]->Announce();
  for (int i : {2, 0, 3, 1}) {
    EXPECT_EQ(clients[i]->arrived(), 0u);
    hoard.Drop(1);
    EXPECT_TRUE(world.RunUntil([&] { return clients[i]->arrived() == 1; })) << i;
    clients[i]->link.RespondEmpty(clients[i]->link.server.requests[0].id);
  }
}

TEST(ReadAdmissionTest, ConnectionsOfAHostTakeTurns) {
  World world({}, PoolOf(64 * kMiB));
  Announcer busy(world), other(world);
  Hoard hoard(world.server.buffers(), 2 * kMiB);
  busy.Announce(3, 2 * kMiB);
  other.Announce(1, 2 * kMiB);
  hoard.Drop(1);
  EXPECT_TRUE(world.RunUntil([&] { return busy.arrived() == 1; }));
  hoard.Drop(1);
  EXPECT_TRUE(world.RunUntil([&] { return other.arrived() == 1; }));
  EXPECT_EQ(busy.arrived(), 1u);
}

TEST(ReadAdmissionTest, HostsTakeTurns) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "another host is an address of the loopback";
  World world({}, PoolOf(64 * kMiB));
  Announcers many;
  for (int i = 0; i < 4; ++i) many.push_back(std::make_unique<Announcer>(world));
  Announcer other(world, "127.0.0.2");
  Hoard hoard(world.server.buffers(), kLong);
  for (auto& client : many) client->Announce(2);
  other.Announce();
  size_t served = 0;
  for (; other.arrived() == 0 && served < 5; ++served) {
    hoard.Drop(1);
    world.Settle();
  }
  EXPECT_LE(served, 2u) << "it waited behind all messages of another host";
}

TEST(ReadAdmissionTest, AMessageThatFindsNoMemoryBeforeItsDeadlineLeavesTheLine) {
  World world({}, PoolOf(64 * kMiB));
  Announcer first(world), second(world);
  Hoard hoard(world.server.buffers(), kLong);
  first.Announce(2, kLong, absl::Milliseconds(10));
  second.Announce();
  world.Pass(absl::Milliseconds(12));
  ASSERT_EQ(first.link.server.bad_requests.size(), 2u);
  EXPECT_THAT(first.link.server.bad_requests[0].second, HasCode(absl::StatusCode::kResourceExhausted));
  hoard.Drop(1);
  EXPECT_TRUE(world.RunUntil([&] { return second.arrived() == 1; }));
  EXPECT_EQ(first.arrived(), 0u);
}

TEST(ReadAdmissionTest, WhenAMessageLeavesTheLineASmallerOneBehindItGoesOn) {
  World world({}, PoolOf(64 * kMiB));
  Announcer client(world);
  const absl::StatusOr<Lease> elsewhere = world.server.buffers().Acquire(28 * kMiB);
  ASSERT_THAT(elsewhere, IsOk());
  client.Announce(1, 40 * kMiB, absl::Milliseconds(100));
  client.Announce(1, 20 * kMiB);
  world.Pass(absl::Milliseconds(20));
  ASSERT_EQ(client.arrived(), 0u) << "they keep their order";
  world.Pass(absl::Milliseconds(100));
  ASSERT_EQ(client.link.server.bad_requests.size(), 1u);
  EXPECT_TRUE(world.RunUntil([&] { return client.arrived() == 1; }));
}

// ---- Memory that waits for bytes that do not arrive.

// The parameter is the number of pollers: all connections share one, or each has its own.
class WatchTest : public ::testing::TestWithParam<int> {
 protected:
  WatchTest() : world_({}, PoolOf(32 * kMiB, GetParam())), waits_(world_) {
    hoarders_ = Stopped(world_, 2);
    for (auto& hoarder : hoarders_) hoarder->Announce(2, 11 * kMiB);
  }

  size_t closed() const {
    size_t count = 0;
    for (auto& hoarder : hoarders_) count += hoarder->is_closed() ? 1 : 0;
    return count;
  }
  // Lets each hoarder answer `reads` READs each `interval`.
  void Trickle(uint64_t reads, absl::Duration interval, absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= interval) {
      for (auto& hoarder : hoarders_) {
        if (!hoarder->is_closed()) hoarder->link.server_counts().reads_let_through = reads;
      }
      world_.Pass(interval, std::min(interval, absl::Milliseconds(100)));
    }
  }

  World world_;
  Announcer waits_;
  Announcers hoarders_;
};

TEST_P(WatchTest, AStalledPeerLosesTheMemoryThatAnotherWaitsFor) {
  waits_.Announce(1, 11 * kMiB);
  EXPECT_EQ(waits_.arrived(), 0u);
  // Another poller looks at its peers each second, whenever the wait began.
  const absl::Duration longest = GetParam() == 1 ? absl::Milliseconds(1100) : absl::Milliseconds(2100);
  EXPECT_LE(TimeUntil(world_, [&] { return waits_.arrived() == 1; }), longest);
  ASSERT_GE(closed(), 1u);
  const Announcer& ended = *hoarders_[hoarders_[0]->is_closed() ? 0 : 1];
  EXPECT_THAT(*ended.link.server_observer.closed, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Text(*ended.link.server_observer.closed), HasSubstr("while others wait for memory"));
}

// What was claimed of the first one is not claimed any more once that one is gone.
TEST_P(WatchTest, EachWaitEndsAnotherStalledPeer) {
  waits_.Announce(1, 11 * kMiB);
  TimeUntil(world_, [&] { return waits_.arrived() == 1; });
  ASSERT_EQ(closed(), 1u);
  RecordingServer::Request& first = waits_.link.server.requests[0];
  first.message.reset();
  waits_.link.RespondEmpty(first.id);
  const absl::StatusOr<Lease> elsewhere = world_.server.buffers().Acquire(12 * kMiB);
  ASSERT_THAT(elsewhere, IsOk());
  waits_.Announce(1, 11 * kMiB);
  EXPECT_EQ(waits_.arrived(), 1u) << "the other one holds 11 MiB of the rest";
  TimeUntil(world_, [&] { return waits_.arrived() == 2; });
  EXPECT_EQ(closed(), 2u);
}

TEST_P(WatchTest, AStalledPeerKeepsWhatNoOtherWaitsFor) {
  for (auto& hoarder : hoarders_) hoarder->link.server.answer = nullptr;
  world_.Pass(absl::Seconds(10), absl::Milliseconds(100));
  EXPECT_EQ(closed(), 0u);
}

TEST_P(WatchTest, AStalledPeerKeepsWhatAnotherWaitedForTooShortly) {
  for (int i = 0; i < 5; ++i) {
    waits_.Announce(1, 11 * kMiB, absl::Milliseconds(500));
    world_.Pass(absl::Seconds(2), absl::Milliseconds(20));
    ASSERT_EQ(waits_.arrived(), 0u);
  }
  EXPECT_EQ(closed(), 0u);
}

TEST_P(WatchTest, AStalledPeerKeepsWhatAnotherWaitedForThatHasGone) {
  waits_.Announce(1, 11 * kMiB);
  world_.OnClient([&] { waits_.link.client_end->Close(absl::CancelledError("gone")); });
  world_.Pass(absl::Seconds(5), absl::Milliseconds(20));
  EXPECT_EQ(closed(), 0u);
}

TEST_P(WatchTest, APeerThatTricklesLosesTheMemoryThatAnotherWaitsFor) {
  waits_.Announce(1, 11 * kMiB);
  Trickle(1, absl::Milliseconds(400), absl::Seconds(3));
  EXPECT_EQ(waits_.arrived(), 1u);
  EXPECT_GE(closed(), 1u);
}

TEST_P(WatchTest, APeerThatMovesKeepsItsMemory) {
  waits_.Announce(1, 11 * kMiB);
  Trickle(1, absl::Milliseconds(100), absl::Seconds(4));
  EXPECT_EQ(closed(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Pollers, WatchTest, ::testing::Values(1, 3), ::testing::PrintToStringParamName());

TEST(ReadAdmissionTest, AStalledPeerThatHasSentOneMessageLosesTheMemoryOfTheNext) {
  World world({}, PoolOf(32 * kMiB));
  Announcer waits(world), hoarder(world);
  hoarder.AnswerNoReads();
  hoarder.Announce(2, 4 * kMiB);
  // READs of both messages in turn. These are all 16 of the first, and 15 of the second.
  hoarder.link.server_counts().reads_let_through = 31;
  ASSERT_TRUE(world.RunUntil([&] { return hoarder.arrived() == 1; }));
  hoarder.Announce(1, 16 * kMiB);
  waits.Announce(1, 24 * kMiB);
  ASSERT_EQ(waits.arrived(), 0u);
  TimeUntil(world, [&] { return hoarder.is_closed(); });
}

TEST(ReadAdmissionTest, AStalledPeerThatHasGivenUpOneMessageLosesTheMemoryOfTheOther) {
  World world({}, PoolOf(32 * kMiB));
  Announcer waits(world), hoarder(world);
  hoarder.AnswerNoReads();
  hoarder.Announce(1, 4 * kMiB, absl::Milliseconds(100));
  hoarder.Announce(1, 16 * kMiB);
  world.Pass(absl::Milliseconds(150), absl::Milliseconds(10));
  waits.Announce(1, 24 * kMiB);
  ASSERT_EQ(waits.arrived(), 0u);
  TimeUntil(world, [&] { return hoarder.is_closed(); });
  EXPECT_TRUE(world.RunUntil([&] { return waits.arrived() == 1; }));
}

// ---- Memory that pollers share. Connections are dealt out to them in turn.

TEST(ReadAdmissionTest, APullBeyondItsShareNoticesMemoryThatAnotherPollerReleases) {
  World world({}, PoolOf(64 * kMiB, /*pollers=*/2));
  Announcer waits(world), other(world);
  waits.Announce(1, 8 * kMiB);
  other.Announce(1, 30 * kMiB);
  ASSERT_TRUE(world.RunUntil([&] { return waits.arrived() == 1 && other.arrived() == 1; }));
  waits.Announce(1, 40 * kMiB);
  ASSERT_EQ(waits.arrived(), 1u) << "there is no room";
  auto& request = other.link.server.requests[0];
  request.message.reset();
  world.Settle();
  ASSERT_EQ(waits.arrived(), 1u) << "the memory is back, and still counts until the answer";
  other.link.RespondEmpty(request.id);
  EXPECT_LE(TimeUntil(world, [&] { return waits.arrived() == 2; }), kSoon);
}

}  // namespace
}  // namespace hawser::transport
