// A hostile peer can only end its own connection. The reason names the peer and what was wrong.
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hostile_peer.h"
#include "hawser/tests/transport/testing/hostile_stage.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

// ---- Requests.

TEST_F(HostileTest, AnHonestRequestIsAnsweredFirstOfAll) {
  AttackServer();
  peer.Send(RawRequest(0, 1, 8).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return !server.requests.empty(); }));
  Respond(server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return peer.received().size() == 1; }));
  EXPECT_EQ(peer.received()[0], RawResponse(0, 1, 8).Encode());
}

TEST_F(HostileTest, ASlotBeyondTheAgreedOnesClosesTheConnection) {
  AttackServer();
  peer.Send(RawRequest(4, 1).Encode());
  ExpectDataLoss("used slot 4 of 4");
}

TEST_F(HostileTest, TheLastSlotOfTheWireIsNotOurs) {
  AttackServer();
  peer.Send(RawRequest(kControlSlot, 1).Encode());
  ExpectDataLoss("used slot 65535 of 4");
}

TEST_F(HostileTest, ARequestInABusySlotClosesTheConnectionAndTheHandlerHears) {
  AttackServer();
  peer.Send(RawRequest(2, 1).Encode());
  peer.Send(RawRequest(2, 2).Encode());
  ExpectDataLoss("slot 2, which is busy");
  ASSERT_EQ(server.cancelled.size(), 1u);
  EXPECT_THAT(server.cancelled[0].second, HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(HostileTest, AGenerationThatIsNotTheNextClosesTheConnection) {
  AttackServer();
  peer.Send(RawRequest(1, 2).Encode());
  ExpectDataLoss("generation 2 of slot 1, expected was 1");
  EXPECT_EQ(server.request_count, 0u);
}

TEST_F(HostileTest, ARepeatedGenerationClosesTheConnection) {
  AttackServer();
  peer.Send(RawRequest(1, 1).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return server.request_count == 1; }));
  Respond(server.requests[0].id);
  peer.Send(RawRequest(1, 1).Encode());
  ExpectDataLoss("generation 1 of slot 1, expected was 2");
}

TEST_F(HostileTest, AResponseToASideThatAnswersClosesTheConnection) {
  AttackServer();
  peer.Send(RawResponse(0, 1).Encode());
  ExpectDataLoss("sent a response on a connection where it gets them");
}

TEST_F(HostileTest, WhatIsMalformedClosesTheConnectionWithTheValues) {
  AttackServer();
  RawMessage message = RawRequest(0, 1, 8);
  message.inline_bytes += "behind..";
  peer.Send(message.Encode());
  ExpectDataLoss("16 bytes of inline segments, but its table announces 8");
}

TEST_F(HostileTest, OneByteClosesTheConnection) {
  AttackServer();
  peer.Send("x");
  ExpectDataLoss("1 bytes, shorter than the header");
}

TEST_F(HostileTest, MoreSegmentsThanAllowedCloseTheConnection) {
  AttackServer();
  RawMessage message = RawRequest(0, 1);
  message.table.assign(121, {});
  message.header.entries = 121;
  peer.Send(message.Encode());
  ExpectDataLoss("121 segments");
}

TEST_F(HostileTest, AMessageLongerThanTheReceiveBufferClosesTheConnection) {
  AttackServer({.receive_buffer_bytes = 512});
  peer.Send(RawRequest(0, 1, 2000).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
  EXPECT_THAT(*observer.closed, ::testing::Not(IsOk()));
}

TEST_F(HostileTest, RequestsThatDoNotWaitForAcknowledgedAnswersAreBoundedByTheSendQueue) {
  AttackServer();
  server.answer = [&](RecordingServer::Request request) { Respond(request.id); };
  world.server.fabric->KeepBackSendCompletions(true);
  const size_t before = World::LeasedBytes(world.server);
  uint32_t generation = 0;
  // Until it is lost: what was posted may take longer to come back, over a device.
  while (observer.losses == 0 && generation < 1000) {
    peer.Send(RawRequest(0, ++generation, 8).Encode());
    world.Turn();
  }
  world.server.fabric->KeepBackSendCompletions(false);
  ExpectClosed(absl::StatusCode::kUnavailable, "never acknowledged");
  EXPECT_LT(generation, 200u);
  EXPECT_LE(World::LeasedBytes(world.server), before);
}

// The peer leaves "going away" unanswered, so that the connection does not end with the last exchange.
TEST_F(HostileTest, RequestsBehindGoingAwayBuyNoTimeToLeave) {
  AttackServer();
  server.answer = [&](RecordingServer::Request request) { Respond(request.id); };
  uint32_t generation = 1;
  peer.Send(RawRequest(0, generation, 8).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return peer.received().size() == 1; }));
  world.OnServer([&] { victim->Drain(); });
  for (int i = 0; i < 20 && observer.closings == 0; ++i) {
    peer.Send(RawRequest(0, ++generation, 8).Encode());
    world.Pass(absl::Milliseconds(100));
  }
  EXPECT_GE(generation, 5u);
  EXPECT_LE(generation, 8u);
  ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; })) << "it goes on";
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kCancelled));
}

// ---- Responses.

TEST_F(HostileTest, AResponseThatNobodyAskedForClosesTheConnection) {
  AttackClient();
  peer.Send(RawResponse(0, 1).Encode());
  ExpectDataLoss("answered exchange 1 of slot 0, which is not waiting");
}

TEST_F(HostileTest, AResponseInASlotThatIsNoneClosesTheConnection) {
  AttackClient();
  PendingCall call;
  SendRequest(call);
  peer.Send(RawResponse(77, 1).Encode());
  ExpectDataLoss("exchange 1 of slot 77");
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(HostileTest, AResponseToAFinishedExchangeClosesTheConnection) {
  AttackClient();
  PendingCall call;
  SendRequest(call);
  peer.Send(RawResponse(0, 1).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.response, IsOk());
  peer.Send(RawResponse(0, 1).Encode());
  ExpectDataLoss("exchange 1 of slot 0");
  EXPECT_EQ(call.ends, 1);
}

TEST_F(HostileTest, AResponseOfAnotherGenerationClosesTheConnection) {
  AttackClient();
  PendingCall call;
  SendRequest(call);
  peer.Send(RawResponse(0, 2).Encode());
  ExpectDataLoss("exchange 2 of slot 0");
}

TEST_F(HostileTest, ASecondResponseWhileTheFirstIsReadClosesTheConnection) {
  AttackClient();
  PendingCall call;
  SendRequest(call);
  RawMessage response = RawResponse(0, 1);
  response.header.entries = 1;
  response.table = {peer.Grant(4 * kMiB)};
  peer.Send(response.Encode());
  peer.Send(response.Encode());
  ExpectDataLoss("exchange 1 of slot 0");
  EXPECT_EQ(call.ends, 1);
}

TEST_F(HostileTest, ARequestToASideThatSendsThemClosesTheConnection) {
  AttackClient();
  peer.Send(RawRequest(0, 1).Encode());
  ExpectDataLoss("sent a request on a connection where it answers them");
}

// ---- Control.

TEST_F(HostileTest, AControlGenerationThatIsNotTheNextClosesTheConnection) {
  AttackServer();
  peer.Send(RawControl(2, {{ControlOp::Code::kPing}}));
  ExpectDataLoss("control request 2, expected was 1");
}

TEST_F(HostileTest, AnAnswerToNoControlRequestClosesTheConnection) {
  AttackServer();
  peer.Send(RawControlAck(1));
  ExpectDataLoss("answered control request 1, which was not under way");
}

class UnknownOperationTest : public HostileTest, public ::testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(Codes, UnknownOperationTest, ::testing::Values(0, 5, 255));

TEST_P(UnknownOperationTest, ClosesTheConnection) {
  AttackServer();
  peer.Send(RawControl(1, {{static_cast<ControlOp::Code>(GetParam())}}));
  ExpectDataLoss("control operation " + std::to_string(GetParam()));
}

TEST_F(HostileTest, AControlOperationForASlotThatIsNoneClosesTheConnection) {
  AttackServer();
  peer.Send(RawControl(1, {{ControlOp::Code::kCancel, 4, 1}}));
  ExpectDataLoss("named slot 4 of 4");
}

TEST_F(HostileTest, ControlOperationsOfTheWrongDirectionCloseTheConnection) {
  AttackServer();
  peer.Send(RawControl(1, {{ControlOp::Code::kGoingAway}}));
  ExpectDataLoss("control operation 4, which this side does not take");
}

TEST_F(HostileTest, ACancellationToASideThatSendsRequestsClosesTheConnection) {
  AttackClient();
  peer.Send(RawControl(1, {{ControlOp::Code::kCancel, 0, 0}}));
  ExpectDataLoss("control operation 2, which this side does not take");
}

TEST_F(HostileTest, CancellationsAndReleasesOfWhateverIsNotUnderWayAreLateAndIgnored) {
  AttackServer();
  peer.Send(RawRequest(0, 1).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return server.request_count == 1; }));
  peer.Send(RawControl(1, {{ControlOp::Code::kCancel, 0, 0},
                           {ControlOp::Code::kCancel, 0, 2},
                           {ControlOp::Code::kCancel, 1, 0},
                           {ControlOp::Code::kRelease, 0, 1},  // The slot has no answer yet.
                           {ControlOp::Code::kRelease, 2, 0}}));
  ASSERT_TRUE(world.RunUntil([&] { return peer.received().size() == 1; }));
  EXPECT_EQ(peer.received()[0], RawControlAck(1));
  EXPECT_TRUE(server.cancelled.empty());
  ExpectOpen();
}

TEST_F(HostileTest, AFloodOfControlRequestsIsAnsweredInBoundedMemory) {
  AttackServer();
  world.Settle();
  const size_t before = World::LeasedBytes(world.server);
  for (uint32_t generation = 1; generation <= 2000 && observer.closings == 0; ++generation) {
    peer.Send(RawControl(generation, std::vector<ControlOp>(32, {ControlOp::Code::kPing})));
    if (generation % 50 == 0) world.Turn();
  }
  world.Settle();
  EXPECT_LE(World::LeasedBytes(world.server), before + 16 * 4096);
}

TEST_F(HostileTest, TheSameResponseMemoryIsNotReadableAfterItsRelease) {
  AttackServer();
  peer.Send(RawRequest(0, 1, 8).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return server.request_count == 1; }));
  world.OnServer([&] {
    OutgoingMessagePtr response = NewMessage(world.server.messages(), kMiB);
    EXPECT_THAT(victim->Respond(server.requests[0].id, response), IsOk());
  });
  SpyFabric::Counts& counts = world.server.fabric->counts(world.server.fabric->queue_pairs() - 1);
  EXPECT_EQ(counts.grants, 1);
  peer.Send(RawControl(1, {{ControlOp::Code::kRelease, 0, 1}}));
  ASSERT_TRUE(world.RunUntil([&] { return counts.grants == 0; }));
}

// ---- Silent and absent peers.

TEST_F(HostileTest, APeerThatPostsNoReceivesIsRnrAndLosesTheConnection) {
  AttackClient();
  peer.StopReceiving();
  // The peer answers two hundred requests without receiving them.
  PendingCall calls[200];
  int sent = 0;
  for (PendingCall& call : calls) {
    world.OnClient([&] {
      OutgoingMessagePtr request = NewMessage(world.client.messages(), 8);
      absl::StatusOr<ExchangeId> id = victim->SendRequest(request, kNever, call);
      if (!id.ok()) return;
      ++sent;
      peer.Send(RawResponse(id->slot, id->generation).Encode());
    });
    world.Settle();
    if (observer.closings != 0) break;
  }
  ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_GT(sent, 100);
}

}  // namespace
}  // namespace hawser::transport
