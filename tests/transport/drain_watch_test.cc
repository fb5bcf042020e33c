// Peers of a server that drains: one that stands still is not waited for, and one that goes on is, however
// slow it is.
#include "hawser/transport/connection/drain_watch.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hoard.h"
#include "hawser/tests/transport/testing/hostile_stage.h"
#include "hawser/tests/transport/testing/memory_world.h"
#include "hawser/transport/sharing/watch_interval.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kStill = DrainWatch::kStill;
constexpr absl::Duration kStep = absl::Milliseconds(50);
// How much later a peer may be ended: when the watch looks again, and what a peer whose READs are not seen
// has for the few MiB of these tests.
constexpr absl::Duration kLater = absl::Milliseconds(700);

class StillPeerTest : public HostileTest {
 protected:
  // Without pings, which this peer does not answer.
  void Attack() { AttackServer({.keepalive_interval = absl::InfiniteDuration()}); }
  // The spy's counts of the victim.
  SpyFabric::Counts& counts() { return world.server.fabric->counts(world.server.fabric->queue_pairs() - 1); }
  void Drain() {
    world.OnServer([&] { victim->Drain(); });
    world.Settle();
  }
  ExchangeId Ask(uint16_t slot) {
    const size_t before = server.requests.size();
    peer.Send(RawRequest(slot, 1, 8).Encode());
    EXPECT_TRUE(world.RunUntil([&] { return server.requests.size() > before; }));
    return server.requests.back().id;
  }
  void RespondLarge(ExchangeId id, size_t bytes = kMiB) {
    world.OnServer([&] {
      OutgoingMessagePtr response = NewMessage(world.server.messages(), bytes);
      EXPECT_THAT(victim->Respond(id, response), IsOk());
    });
    world.Settle();
  }
  // The last segment of the victim's last message, which it has granted.
  TableEntry LastGrant() {
    const std::string& message = peer.received().back();
    ParsedMessage parsed;
    EXPECT_THAT(Parse(reinterpret_cast<const uint8_t*>(message.data()), message.size(), parsed), IsOk());
    return DecodeTableEntry(parsed.table + (parsed.header.entries - 1u) * kTableEntryBytes);
  }
  static std::string Announcement(uint16_t slot, const TableEntry& entry) {
    RawMessage message = RawRequest(slot, 1);
    message.header.entries = 1;
    message.table = {entry};
    return message.Encode();
  }
  // The time until the victim's connection is ended, 20 s at most.
  absl::Duration TimeToTheEnd() {
    absl::Duration time;
    for (; observer.closings == 0 && time < absl::Seconds(20); time += kStep) world.Pass(kStep, kStep);
    return time;
  }
  void ExpectEndedInTime(const std::string& why) {
    const absl::Duration time = TimeToTheEnd();
    EXPECT_GT(time, kStill - kStep);
    EXPECT_LE(time, kStill + kLater);
    ExpectClosed(absl::StatusCode::kUnavailable, why);
    EXPECT_EQ(world.server.poller().violations().stalled(), 1u);
  }
};

// Other connections can call slow handlers of another server of the process.
TEST_F(StillPeerTest, APollerThatIsHeldAgainAndAgainGivesItNoTimeWithoutEnd) {
  Attack();
  RespondLarge(Ask(0));
  Drain();
  int times = 0;
  for (; times < 60 && observer.closings == 0; ++times) {
    world.clock.Advance(kStill / 2);
    world.Settle();
  }
  EXPECT_EQ(times, WatchInterval::kNotCountedMax + 2) << "a poller that is held does give it time";
  ExpectClosed(absl::StatusCode::kUnavailable, "has not READ and released 1 large responses");
}

TEST_F(StillPeerTest, AnAnswerThatIsNeitherReadNorReleasedIsNotWaitedFor) {
  Attack();
  RespondLarge(Ask(0));
  Drain();
  ExpectEndedInTime("has not READ and released 1 large responses of 1048");
}

TEST_F(StillPeerTest, NorIsAnAnswerThatWasPushed) {
  world.client.fabric->LetPush();
  world.server.fabric->LetPush();
  Attack();
  if (!peer.can_push()) GTEST_SKIP() << "this fabric does not push";
  RespondLarge(Ask(0), 64 << 10);
  ASSERT_EQ(counts().pushes, 1u);
  Drain();
  ExpectEndedInTime("has not READ and released 1 large responses of 65");
}

// While it serves calls a server waits for such a peer as long as that answers pings.
TEST_F(StillPeerTest, ReadsThatItDoesNotAnswerAreNotWaitedForEither) {
  Attack();
  counts().hold_reads = true;
  peer.Send(Announcement(0, peer.Grant(16 * kMiB)));
  ASSERT_TRUE(world.RunUntil([&] { return counts().reads_held > 0; }));
  Drain();
  EXPECT_EQ(server.bad_requests.size(), 0u) << "refused while its READs may still write";
  ExpectEndedInTime("has not answered the READs of 1 large requests");
  EXPECT_EQ(server.request_count, 0u);
}

TEST_F(StillPeerTest, RequestsAndPingsBuyNoTime) {
  Attack();
  RespondLarge(Ask(0));
  server.answer = [&](RecordingServer::Request request) { Respond(request.id); };
  Drain();
  uint32_t generation = 0;
  absl::Duration time;
  for (; observer.closings == 0 && time < absl::Seconds(20); time += kStep) {
    ++generation;
    peer.Send(RawRequest(1, generation, 8).Encode());
    peer.Send(RawControl(generation, {{ControlOp::Code::kPing}}));
    world.Pass(kStep, kStep);
  }
  EXPECT_LE(time, kStill + kLater);
  ExpectClosed(absl::StatusCode::kUnavailable, "while this side drains");
}

TEST_F(StillPeerTest, EachByteThatTheFabricSeesGivesItItsTimeAgain) {
  Attack();
  RespondLarge(Ask(0));
  Drain();
  for (int i = 0; i < 6; ++i) {
    world.Pass(kStill - absl::Milliseconds(400), kStep);
    ExpectOpen();
    if (i % 2 == 0) ++counts().more_progress.arrived;
    if (i % 2 == 1) ++counts().more_progress.sent;
  }
  ExpectEndedInTime("has not READ and released");
}

// What this side sends besides is acknowledged, too.
TEST_F(StillPeerTest, WhatIsAcknowledgedBesidesIsNoProgress) {
  Attack();
  RespondLarge(Ask(0));
  Drain();
  absl::Duration time;
  for (; observer.closings == 0 && time < absl::Seconds(20); time += kStep) {
    counts().more_progress.sent = time / kStep % 2 == 0 ? -100 : 0;
    world.Pass(kStep, kStep);
  }
  EXPECT_LE(time, kStill + kLater);
}

// The bytes that it was granted are READ once, as an honest peer does, and then again.
TEST_F(StillPeerTest, BytesThatAreReadAgainAreNoProgress) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "READs are not seen";
  Attack();
  RespondLarge(Ask(0));
  const TableEntry all = LastGrant();
  Drain();
  const auto read = [&](TableEntry part) {
    const size_t before = peer.reads();
    peer.Read(part);
    EXPECT_TRUE(world.RunUntil([&] { return peer.reads() > before; }));
  };
  TableEntry part = all;
  part.length_bytes = all.length_bytes / 4;
  for (; part.address < all.address + all.length_bytes; part.address += part.length_bytes) {
    world.Pass(kStill - 2 * kStep, kStep);
    ExpectOpen();
    read(part);
  }
  absl::Duration time;
  for (part = all; observer.closings == 0 && time < absl::Seconds(20); time += kStill / 2) {
    world.Pass(kStill / 2, kStep);
    part.length_bytes = 1;
    if (observer.closings == 0) read(part);
  }
  EXPECT_LE(time, kStill + kStill / 2);
  ExpectClosed(absl::StatusCode::kUnavailable, "has not READ and released 1 large responses");
}

// One refusal is on its way, and the other follows when it is acknowledged.
TEST_F(StillPeerTest, AnErrorBehindOneThatItDoesNotAcknowledgeIsNotWaitedFor) {
  Attack();
  Drain();
  peer.Send(Announcement(0, peer.Grant(16 * kMiB)));
  ASSERT_TRUE(world.RunUntil([&] { return server.bad_requests.size() == 1; }));
  world.Pass(5 * kStill, kStep);
  ExpectOpen();  // The handler has not answered.
  server.behind_peer = 1;
  world.Pass(5 * kStill, kStep);
  ExpectOpen();  // The peer has acknowledged all that was posted.
  world.server.fabric->KeepBackSendCompletions(true);
  peer.Send(RawControl(1, {{ControlOp::Code::kPing}}));
  world.Settle();
  ExpectEndedInTime("has not acknowledged an error behind which 1 others wait");
  world.server.fabric->KeepBackSendCompletions(false);
}

TEST_F(StillPeerTest, EachErrorThatItAcknowledgesGivesItItsTimeAgain) {
  constexpr uint16_t kErrors = 4;
  Attack();
  world.server.fabric->KeepBackSendCompletions(true);
  Drain();
  const TableEntry entry = peer.Grant(16 * kMiB);
  for (uint16_t slot = 0; slot < kErrors; ++slot) peer.Send(Announcement(slot, entry));
  ASSERT_TRUE(world.RunUntil([&] { return server.bad_requests.size() == kErrors; }));
  server.behind_peer = kErrors;
  for (size_t i = 0; i + 1 < kErrors; ++i) {
    world.Pass(kStill - 2 * kStep, kStep);
    ExpectOpen();
    Respond(server.bad_requests[i].first);
    --server.behind_peer;
    world.Settle();
  }
  world.Pass(kStill - 2 * kStep, kStep);
  ExpectOpen();
  EXPECT_LE(TimeToTheEnd(), kLater);
  ExpectClosed(absl::StatusCode::kUnavailable, "behind which 1 others wait");
  world.server.fabric->KeepBackSendCompletions(false);
}

// A peer may announce another request in each slot whose error it has acknowledged.
TEST_F(StillPeerTest, MoreErrorsThanItHasSlotsGiveItNoTime) {
  constexpr uint32_t kSlots = 4;
  AttackServer({.slots = kSlots, .keepalive_interval = absl::InfiniteDuration()});
  world.server.fabric->KeepBackSendCompletions(true);
  Drain();
  const TableEntry entry = peer.Grant(16 * kMiB);
  const auto announce = [&](uint16_t slot, uint32_t generation) {
    RawMessage message = RawRequest(slot, generation);
    message.header.entries = 1;
    message.table = {entry};
    const size_t before = server.bad_requests.size();
    peer.Send(message.Encode());
    ASSERT_TRUE(world.RunUntil([&] { return server.bad_requests.size() > before; }));
    ++server.behind_peer;
  };
  announce(0, 1);
  announce(1, 1);
  uint32_t acknowledged = 0;
  for (; acknowledged < 3 * kSlots; ++acknowledged) {
    world.Pass(kStill - 10 * kStep, kStep);
    if (observer.closings != 0) break;
    Respond(server.bad_requests[acknowledged].first);
    --server.behind_peer;
    world.Pass(6 * kStep, kStep);  // The watch looks.
    if (observer.closings != 0) break;
    ASSERT_NO_FATAL_FAILURE(announce(acknowledged % 2, 2 + acknowledged / 2));
  }
  EXPECT_GE(acknowledged, kSlots);
  EXPECT_LE(acknowledged, kSlots + 1);
  ExpectClosed(absl::StatusCode::kUnavailable, "has not acknowledged an error");
  world.server.fabric->KeepBackSendCompletions(false);
}

TEST_F(StillPeerTest, TheTimeOfAHandlerIsNotThePeers) {
  Attack();
  const ExchangeId running = Ask(1);
  RespondLarge(Ask(0));
  Drain();
  world.Pass(5 * kStill, kStep);
  ExpectOpen();
  Respond(running);
  ExpectEndedInTime("has not READ and released 1 large responses");
}

TEST_F(StillPeerTest, NorIsTheTimeInWhichThePollerIsHeld) {
  Attack();
  RespondLarge(Ask(0));
  Drain();
  world.Pass(kStill / 2, kStep);
  world.OnServer([&] { world.clock.Advance(3 * kStill); });
  world.Settle();
  ExpectOpen();
  ExpectEndedInTime("has not READ and released");
}

TEST_F(StillPeerTest, EachReleaseGivesItItsTimeAgain) {
  Attack();
  for (uint16_t slot = 0; slot < 3; ++slot) RespondLarge(Ask(slot));
  Drain();
  for (uint16_t slot = 0; slot < 2; ++slot) {
    world.Pass(kStill - 2 * kStep, kStep);
    ExpectOpen();
    peer.Send(RawControl(slot + 1u, {{ControlOp::Code::kRelease, slot, 1}}));
    world.Settle();
  }
  world.Pass(kStill - 2 * kStep, kStep);
  ExpectOpen();
  EXPECT_LE(TimeToTheEnd(), kLater);
}

// A peer whose READs are not seen has a second for each 16 MiB besides: it may be READing.
TEST_F(StillPeerTest, APeerWhoseReadsAreNotSeenHasMoreTimeForMore) {
  Attack();
  counts().hides_reads = true;
  RespondLarge(Ask(0), 32 * kMiB);
  Drain();
  world.Pass(kStill + absl::Milliseconds(1900), kStep);
  ExpectOpen();
  EXPECT_LE(TimeToTheEnd(), kLater);
}

// ---- Requests that are not READ.

TEST_F(StillPeerTest, ALargeRequestThatComesDuringADrainIsRefusedUnread) {
  Attack();
  const ExchangeId running = Ask(1);
  Drain();
  peer.Send(Announcement(0, peer.Grant(16 * kMiB)));
  ASSERT_TRUE(world.RunUntil([&] { return server.bad_requests.size() == 1; }));
  EXPECT_THAT(server.bad_requests[0].second, HasCode(absl::StatusCode::kUnavailable));
  world.Settle();
  EXPECT_EQ(counts().reads, 0u);
  const size_t received = peer.received().size();
  Respond(server.bad_requests[0].first);
  ASSERT_TRUE(world.RunUntil([&] { return peer.received().size() > received; })) << "it hears of it";
  ExpectOpen();
  Respond(running);
  EXPECT_LE(TimeToTheEnd(), absl::Milliseconds(600)) << "it owes nothing";
}

TEST_F(StillPeerTest, APushedRequestThatComesDuringADrainIsNotTaken) {
  world.client.fabric->LetPush();
  world.server.fabric->LetPush();
  Attack();
  if (!peer.can_push()) GTEST_SKIP() << "this fabric does not push";
  Ask(1);
  Drain();
  const TableEntry entry = peer.Grant(8192);
  peer.Send(Announcement(0, entry));
  peer.Push(entry);
  ASSERT_TRUE(world.RunUntil([&] { return server.bad_requests.size() == 1; }));
  world.Settle();
  EXPECT_EQ(counts().taken_pushes, 0u);
  Respond(server.bad_requests[0].first);
  ExpectOpen();
}

TEST_F(StillPeerTest, ARequestThatIsBeingReadIsRefusedAfterTheReadsThatWerePosted) {
  Attack();
  counts().hold_reads = true;
  peer.Send(Announcement(0, peer.Grant(16 * kMiB)));
  ASSERT_TRUE(world.RunUntil([&] { return counts().reads_held > 0; }));
  world.Settle();
  const uint64_t reads = counts().reads;
  Drain();
  // An honest peer on a slow network: longer in all than one may stand still.
  for (uint64_t i = 0; i + 1 < reads; ++i) {
    world.Pass(kStill / 2, kStep);
    counts().reads_let_through = 1;
    world.Settle();
  }
  EXPECT_EQ(observer.closings, 0);
  EXPECT_EQ(server.bad_requests.size(), 0u);
  counts().hold_reads = false;
  ASSERT_TRUE(world.RunUntil([&] { return server.bad_requests.size() == 1; }));
  EXPECT_THAT(server.bad_requests[0].second, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(counts().reads, reads) << "more of it is READ";
  EXPECT_EQ(server.request_count, 0u);
  Respond(server.bad_requests[0].first);
  ExpectOpen();
}

TEST(DrainWatchTest, ARequestThatWaitsForMemoryIsRefusedAtOnce) {
  World world({}, PoolOf(32 * kMiB));
  Link link(world);
  Hoard hoard(world.server.buffers(), kMiB);
  PendingCall waits;
  ASSERT_THAT(link.Send(waits, 4 * kMiB), IsOk());
  world.Settle();
  ASSERT_EQ(link.server.request_count, 0u);
  world.OnServer([&] { link.server_end->Drain(); });
  ASSERT_TRUE(world.RunUntil([&] { return link.server.bad_requests.size() == 1; }));
  EXPECT_THAT(link.server.bad_requests[0].second, HasCode(absl::StatusCode::kUnavailable));
  hoard.DropAll();
  link.RespondEmpty(link.server.bad_requests[0].first);
  ASSERT_TRUE(world.RunUntil([&] { return waits.done(); }));
}

// ---- Honest peers.

// One READ a second: 8 MiB take longer than one may stand still, many times.
TEST(DrainWatchTest, ASlowReaderThatGoesOnGetsAllOfItsAnswer) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "READs are not seen";
  World world;
  Link link(world);
  link.client_counts().hold_reads = true;
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  ASSERT_THAT(link.Respond(link.server.requests[0].id, 8 * kMiB), IsOk());
  world.OnServer([&] { link.server_end->Drain(); });
  for (int seconds = 0; seconds < 16; ++seconds) {
    world.Pass(absl::Seconds(1), kStep);
    link.client_counts().reads_let_through = 1;
    world.Settle();
    ASSERT_EQ(link.server_observer.closings, 0) << seconds;
  }
  link.client_counts().hold_reads = false;
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  ASSERT_THAT(call.response, IsOk());
  EXPECT_EQ(Content(**call.response), ContentOf(8 * kMiB));
  world.Pass(absl::Milliseconds(2));
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  EXPECT_THAT(*link.server_observer.closed, HasCode(absl::StatusCode::kCancelled));
  EXPECT_EQ(world.server.poller().violations().stalled(), 0u);
}

// ---- A client that was accepted and does not connect: with verbs it need not finish the handshake.

TEST(DrainWatchTest, AClientThatWasAcceptedAndDoesNotConnectIsNotWaitedFor) {
  World world;
  world.server.fabric->LoseEstablished();
  RecordingServer handler;
  RecordingObserver observer;
  TestListener listener(world, world.server);
  Connection* accepted = nullptr;
  listener.on_peer = [&](PeerRequest request) {
    accepted = *Connection::Accept(world.server.poller(), std::move(request), {},
                                   NewSessionToken(Environment::Real()), observer, &handler);
  };
  HostilePeer peer(world);
  peer.Dial(listener.address(), Encode(HostilePeer::Hello()));
  ASSERT_TRUE(world.RunUntil([&] { return accepted != nullptr; }));
  world.Settle();
  ASSERT_FALSE(observer.ready.has_value());
  world.OnServer([&] { accepted->Drain(); });
  world.Pass(absl::Milliseconds(400), kStep);
  EXPECT_EQ(observer.closings, 0);
  world.Pass(absl::Milliseconds(200), kStep);
  ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace hawser::transport
