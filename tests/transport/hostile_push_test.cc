// A peer that pushes wrongly: other memory, other lengths, or for messages that the server refuses.
#include <string.h>

#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hostile_stage.h"

namespace hawser::transport {
namespace {

constexpr uint32_t kPage = 8192;

class HostilePushTest : public HostileTest {
 protected:
  HostilePushTest() {
    world.client.fabric->LetPush();
    world.server.fabric->LetPush();
    memset(peer.readable(), 'r', kPage + 64);
  }

  // The message with `entry` as its only segment.
  static std::string Tabled(RawMessage message, const TableEntry& entry) {
    message.header.entries = 1;
    message.table = {entry};
    return message.Encode();
  }
  SpyFabric::Counts& counts() {
    World::Side& side = is_server_ ? world.server : world.client;
    return side.fabric->counts(side.fabric->queue_pairs() - 1);
  }
  static std::string Fetched(const IncomingMessage& message) {
    return std::string(reinterpret_cast<const char*>(message.sink().data()), message.body_bytes());
  }
  // The peer's request names `told`, and it pushes `pushed`. Returns the content that the server receives.
  std::string Request(uint16_t slot, const TableEntry& told, const TableEntry& pushed) {
    const size_t before = server.request_count;
    peer.Send(Tabled(RawRequest(slot, 1), told));
    peer.Push(pushed);
    EXPECT_TRUE(world.RunUntil([&] { return server.request_count == before + 1; }));
    if (server.request_count != before + 1) return "";
    return Fetched(*server.requests.back().message);
  }

  bool is_server_ = true;
};

TEST_F(HostilePushTest, WhatTheTableSaysIsTaken) {
  AttackServer();
  if (!peer.can_push()) GTEST_SKIP() << "this fabric does not push";
  const TableEntry entry = peer.Grant(kPage);
  EXPECT_EQ(Request(0, entry, entry), std::string(kPage, 'r'));
  EXPECT_EQ(counts().taken_pushes, 1u);
  EXPECT_EQ(counts().reads, 0u);
}

// The peer pushes its own bytes, so it need not grant them.
TEST_F(HostilePushTest, WhatWasNeverGrantedIsTaken) {
  AttackServer();
  if (!peer.can_push()) GTEST_SKIP() << "this fabric does not push";
  const TableEntry entry = {0x1000, 0x12345, kPage};
  EXPECT_EQ(Request(0, entry, entry), std::string(kPage, 'r'));
  EXPECT_EQ(counts().reads, 0u);
}

TEST_F(HostilePushTest, WhatTheTableDoesNotSayIsDroppedAndTheTableIsRead) {
  AttackServer();
  if (!peer.can_push()) GTEST_SKIP() << "this fabric does not push";
  const TableEntry entry = peer.Grant(kPage);
  TableEntry others[4] = {entry, entry, entry, entry};
  others[0].address += 8;
  others[1].rkey += 1;
  others[2].length_bytes += 8;
  others[3].length_bytes -= 8;
  for (uint16_t slot = 0; slot < 4; ++slot) {
    EXPECT_EQ(Request(slot, entry, others[slot]), std::string(kPage, 'r')) << slot;
    EXPECT_EQ(counts().reads, slot + 1u);
  }
  EXPECT_EQ(counts().taken_pushes, 0u);
}

TEST_F(HostilePushTest, APushBehindARequestThatIsRefusedIsDropped) {
  AttackServer({.message_bytes_max = 4096});
  if (!peer.can_push()) GTEST_SKIP() << "this fabric does not push";
  const TableEntry entry = peer.Grant(kPage);
  const BufferPoolStats before = world.server.buffers().stats();
  peer.Send(Tabled(RawRequest(0, 1), entry));
  peer.Push(entry);
  ASSERT_TRUE(world.RunUntil([&] { return server.bad_requests.size() == 1; }));
  world.Settle();
  EXPECT_EQ(world.server.buffers().stats().mapped_bytes, before.mapped_bytes);
  EXPECT_EQ(counts().taken_pushes, 0u);
  Respond(server.bad_requests[0].first);
  ASSERT_TRUE(world.RunUntil([&] { return peer.received().size() == 1; }));
  ExpectOpen();
}

TEST_F(HostilePushTest, APushBehindAResponseToALostCallIsDropped) {
  is_server_ = false;
  AttackClient();
  if (!peer.can_push()) GTEST_SKIP() << "this fabric does not push";
  PendingCall call;
  SendRequest(call, 8, world.clock.NowNs() + absl::ToInt64Nanoseconds(absl::Milliseconds(1)));
  world.Pass(absl::Milliseconds(3));
  ASSERT_TRUE(call.done());
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  const size_t before = World::LeasedBytes(world.client);
  const TableEntry entry = peer.Grant(kPage);
  peer.Send(Tabled(RawResponse(0, 1), entry));
  peer.Push(entry);
  ExpectOpen();
  EXPECT_EQ(call.ends, 1);
  EXPECT_EQ(counts().taken_pushes, 0u);
  EXPECT_LE(World::LeasedBytes(world.client), before);
}

TEST_F(HostilePushTest, AMessageThatWasTakenDoesNotChange) {
  AttackServer();
  if (!peer.can_push()) GTEST_SKIP() << "this fabric does not push";
  const TableEntry entry = peer.Grant(kPage);
  EXPECT_EQ(Request(0, entry, entry), std::string(kPage, 'r'));
  const IncomingMessagePtr first = std::move(server.requests.back().message);
  memset(peer.readable(), 'l', kPage);
  EXPECT_EQ(Request(1, entry, entry), std::string(kPage, 'l'));
  EXPECT_EQ(Fetched(*first), std::string(kPage, 'r'));
}

}  // namespace
}  // namespace hawser::transport
