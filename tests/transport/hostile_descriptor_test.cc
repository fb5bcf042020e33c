// A peer that describes its memory wrongly: its address, its size, or whether the other side may READ it.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hostile_peer.h"
#include "hawser/tests/transport/testing/hostile_stage.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;

class DescriptorTest : public HostileTest {
 protected:
  // A request in slot 3, whose segments the server must READ.
  static std::string RequestOf(std::vector<TableEntry> table) {
    RawMessage message = RawRequest(3, 1);
    message.header.entries = static_cast<uint16_t>(table.size());
    message.table = std::move(table);
    return message.Encode();
  }
  void ExpectReadRefused() {
    ExpectClosed(absl::StatusCode::kUnavailable, "for slot 3 failed: " + RefusedRead());
    EXPECT_EQ(server.request_count, 0u);
  }
};

TEST_F(DescriptorTest, WhatWasGrantedIsRead) {
  AttackServer();
  peer.Send(RequestOf({peer.Grant(kMiB)}));
  ASSERT_TRUE(world.RunUntil([&] { return server.request_count == 1; }));
  EXPECT_EQ(server.requests[0].message->body_bytes(), kMiB);
}

TEST_F(DescriptorTest, AnRkeyThatNobodyGrantedEndsTheConnection) {
  AttackServer();
  TableEntry entry = peer.Grant(4096);
  entry.rkey += 1 << 16;
  peer.Send(RequestOf({entry}));
  ExpectReadRefused();
}

TEST_F(DescriptorTest, AnAddressBelowOrBeyondWhatWasGrantedEndsTheConnection) {
  AttackServer();
  TableEntry entry = peer.Grant(4096);
  entry.address -= 8;
  peer.Send(RequestOf({entry}));
  ExpectReadRefused();
}

TEST_F(DescriptorTest, ALengthBeyondWhatWasGrantedEndsTheConnection) {
  AttackServer();
  TableEntry entry = peer.Grant(4096);
  entry.length_bytes += 8;
  peer.Send(RequestOf({entry}));
  ExpectReadRefused();
}

TEST_F(DescriptorTest, AnAddressAtTheEndOfTheAddressSpaceEndsTheConnection) {
  AttackServer();
  TableEntry entry = peer.Grant(4096);
  entry.address = ~uint64_t{7};
  entry.length_bytes = kMiB;
  peer.Send(RequestOf({entry}));
  ExpectReadRefused();
}

TEST_F(DescriptorTest, AResponseWithAForeignRkeyEndsTheConnectionAndItsCalls) {
  AttackClient();
  PendingCall call;
  SendRequest(call);
  RawMessage response = RawResponse(0, 1);
  response.header.entries = 1;
  response.table = {{0x1000, 0x12345, 4096}};
  peer.Send(response.Encode());
  ExpectClosed(absl::StatusCode::kUnavailable, "for slot 0 failed: " + RefusedRead());
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(call.ends, 1);
}

TEST_F(DescriptorTest, ASegmentOfNoBytesOrOfABrokenWordClosesTheConnection) {
  AttackServer();
  TableEntry entry = peer.Grant(4096);
  entry.length_bytes = 0;
  peer.Send(RequestOf({entry}));
  ExpectDataLoss("length 0");
}

// Three segments of almost 4 GiB: more than any counter of 32 bits holds.
std::vector<TableEntry> TwelveGiB() {
  return {{0x1000, 1, 0xfffffff8}, {0x1000, 2, 0xfffffff8}, {0x1000, 3, 0xfffffff8}};
}

TEST_F(DescriptorTest, ARequestLargerThanTheLimitIsRefusedBeforeAnythingIsAllocatedOrRead) {
  AttackServer({.message_bytes_max = 16 * kMiB});
  const BufferPoolStats before = world.server.buffers().stats();
  peer.Send(RequestOf(TwelveGiB()));
  ASSERT_TRUE(world.RunUntil([&] { return server.bad_requests.size() == 1; }));
  EXPECT_THAT(server.bad_requests[0].second, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Text(server.bad_requests[0].second), HasSubstr("12884901864 bytes"));
  const BufferPoolStats after = world.server.buffers().stats();
  EXPECT_EQ(after.mapped_bytes, before.mapped_bytes);
  EXPECT_EQ(world.server.fabric->counts(world.server.fabric->queue_pairs() - 1).reads, 0u);
  // The peer gets an error, and the connection stays open.
  Respond(server.bad_requests[0].first);
  ASSERT_TRUE(world.RunUntil([&] { return peer.received().size() == 1; }));
  ExpectOpen();
}

TEST_F(DescriptorTest, AResponseLargerThanTheLimitIsRefusedBeforeAnythingIsAllocatedOrRead) {
  AttackClient({.message_bytes_max = 16 * kMiB});
  PendingCall call;
  SendRequest(call);
  const BufferPoolStats before = world.client.buffers().stats();
  RawMessage response = RawResponse(0, 1);
  response.header.entries = 3;
  response.table = TwelveGiB();
  peer.Send(response.Encode());
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Text(call.status()), HasSubstr("12884901864 bytes"));
  EXPECT_EQ(world.client.buffers().stats().mapped_bytes, before.mapped_bytes);
  ExpectOpen();
  // It is released like any other message.
  const size_t received = peer.received().size();
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(peer.received().size(), received + 1);
  EXPECT_EQ(peer.received().back(), RawControl(1, {{ControlOp::Code::kRelease, 0, 1}}));
}

TEST_F(DescriptorTest, ASessionCutInTheMiddleOfAMessageLeavesNothing) {
  AttackServer();
  const size_t before = World::LeasedBytes(world.server);
  peer.Send(RequestOf({peer.Grant(16 * kMiB)}));  // More than the server READs at once.
  ASSERT_TRUE(world.RunUntil(
      [&] { return world.server.fabric->counts(world.server.fabric->queue_pairs() - 1).reads > 0; }));
  peer.Disconnect();
  ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(server.request_count, 0u);
  EXPECT_LE(World::LeasedBytes(world.server), before);
}

}  // namespace
}  // namespace hawser::transport
