// The work requests that connections post: how they are signaled and chained, and how many are outstanding.
#include <string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "capnp/message.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

TEST(WorkRequestTest, OneSmallSendInSixteenIsSignaled) {
  World world;
  Link link(world);
  link.EchoAll();
  for (int i = 0; i < 320; ++i) {
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), 64));
  }
  EXPECT_EQ(link.client_counts().sends, 320u);
  EXPECT_EQ(link.client_counts().signaled_sends, 20u);
  EXPECT_EQ(link.server_counts().signaled_sends, 20u);
}

// READs and pushes leave both in places of the send queue that SENDs get next.
TEST(WorkRequestTest, SendsNameNoMemory) {
  World world;
  world.client.fabric->LetPush();
  world.server.fabric->LetPush();
  Link link(world);
  link.EchoAll();
  for (int i = 0; i < 60; ++i) {
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), i % 3 == 0 ? kMiB : i % 3 == 1 ? 64 << 10 : 64));
  }
  for (const SpyFabric::Counts* counts : {&link.client_counts(), &link.server_counts()}) {
    EXPECT_GE(counts->sends, 60u);
    EXPECT_GE(counts->reads, 20u);
    EXPECT_GE(counts->reads + counts->pushes, 40u);  // Verbs have no pushes.
    EXPECT_EQ(counts->sends_that_name_memory, 0u);
  }
}

TEST(WorkRequestTest, WhatOneTurnGivesRiseToIsPostedAsOneChain) {
  World world;
  world.client.fabric->OfferNoCredits();
  Link link(world);
  link.EchoAll();
  std::vector<PendingCall> calls(20);
  world.OnClient([&] {
    for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 64), IsOk());
  });
  EXPECT_EQ(link.client_counts().send_posts, 1u);
  ASSERT_TRUE(world.RunUntil([&] { return calls[19].done(); }));
}

// Those that the fabric copies wait for the doorbell, which is rung early.
TEST(WorkRequestTest, AnswersInALongTurnArePostedEarlyUnlessThePeerWaitsForThisCore) {
  for (const bool copied : {false, true}) {
    if (copied && TestScheme() == "rdma") continue;  // Over verbs no SEND is copied.
    for (const bool share : {false, true}) {
      SCOPED_TRACE(absl::StrCat(copied ? "copied" : "queued", share ? ", the peer waits for this core" : ""));
      World world;
      world.client.fabric->OfferNoCredits();
      world.server.fabric->LetSendsWait(false);  // All requests are there in the first turn.
      if (copied) world.server.fabric->LetPostInline();
      Link link(world, {.slots = 64});
      link.EchoAll();
      world.server.fabric->SetPeersShareCore(share);
      std::vector<PendingCall> calls(64);
      world.OnClient([&] {
        for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 8), IsOk());
      });
      ASSERT_TRUE(world.RunUntil([&] { return calls[63].done(); }));
      const SpyFabric::Counts& counts = link.server_counts();
      EXPECT_EQ(copied ? counts.inline_sends : counts.sends, 64u);
      EXPECT_EQ(copied ? counts.doorbells : counts.send_posts, share ? 1u : 2u);
    }
  }
}

// A list of payloads of these sizes (multiples of 8), each in registered memory of its own, and so a segment.
OutgoingMessagePtr NewMessageOfPayloads(World::Side& side, const std::vector<size_t>& sizes) {
  OutgoingMessagePtr message = side.messages().NewOutgoing();
  auto list = message->builder().getRoot<capnp::AnyPointer>().initAs<capnp::List<capnp::Data>>(
      static_cast<unsigned>(sizes.size()));
  for (unsigned i = 0; i < sizes.size(); ++i) {
    auto lease = std::make_shared<Lease>(*side.buffers().Acquire(sizes[i]));
    const std::string content = PartOf(i, sizes[i]);
    memcpy(lease->data(), content.data(), content.size());
    list.adopt(i, message->Attach({lease->data(), sizes[i]}, lease));
  }
  return message;
}

// A device may gather less than a message has parts: erdma has one sge for a SEND, X722 three.
TEST(WorkRequestTest, PartsThatTheDeviceCannotGatherAreCopiedTogether) {
  // Small payloads only; and a large one among them, which is granted, while the others go along with its
  // table.
  const std::vector<size_t> messages[] = {{104}, {104, 304}, {104, 304, 208}, {104, 300'000, 208, 8}};
  for (const size_t sge_max : {1, 2, 3, 6}) {
    SCOPED_TRACE(sge_max);
    World world;
    for (World::Side* side : {&world.client, &world.server}) side->fabric->SetSgeMax(sge_max);
    Link link(world);
    for (const std::vector<size_t>& sizes : messages) {
      std::vector<std::string> arrived;
      link.server.answer = [&](RecordingServer::Request request) {
        arrived = Parts(*request.message);
        OutgoingMessagePtr response = NewMessageOfPayloads(world.server, sizes);
        EXPECT_THAT(link.server_end->Respond(request.id, response), IsOk());
      };
      PendingCall call;
      link.Call(call, NewMessageOfPayloads(world.client, sizes));
      ASSERT_THAT(call.status(), IsOk());
      std::vector<std::string> sent;
      for (size_t i = 0; i < sizes.size(); ++i) sent.push_back(PartOf(i, sizes[i]));
      EXPECT_EQ(arrived, sent);
      EXPECT_EQ(Parts(**call.response), sent);
    }
    // As many as are possible, and none more: what can be gathered is not copied.
    EXPECT_EQ(link.client_counts().send_sges_most, std::min<size_t>(sge_max, 4));
    EXPECT_EQ(link.server_counts().send_sges_most, link.client_counts().send_sges_most);
  }
}

TEST(WorkRequestTest, APostedReceiveWaitsForEverythingThatThePeerMaySend) {
  World world;
  world.client.fabric->OfferNoCredits();
  world.server.fabric->LetSendsWait(false);
  Link link(world, {.slots = 8});
  link.EchoAll();
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (int i = 0; i < 200; ++i) {
    calls.push_back(std::make_unique<PendingCall>());
    ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
    ASSERT_THAT(link.Send(*calls.back(), i % 10 == 0 ? kMiB : 64), IsOk());
  }
  ASSERT_TRUE(world.RunUntil([&] { return calls.back()->done(); }));
  // When all eight arrive in one turn, the server still has its receives for control and the spare one, and
  // the client has at least the one for a control request.
  EXPECT_GE(link.server_counts().receives_posted_min, 3);
  EXPECT_GE(link.client_counts().receives_posted_min, 1);
  world.Settle();
  EXPECT_EQ(link.server_counts().receives_posted, link.server_counts().receive_depth);
}

TEST(WorkRequestTest, ReadsStayWithinTheDepthOfTheQueuePairAndTheBudgetOfThePoller) {
  RuntimeOptions options;
  options.poller.read_bytes_max = 1 << 20;  // Four READs of 256 KiB.
  World world({}, options);
  Link one(world), two(world);
  PendingCall first, second;
  ASSERT_THAT(one.Send(first, 32 * kMiB), IsOk());
  ASSERT_THAT(two.Send(second, 32 * kMiB), IsOk());
  uint64_t most = 0;
  ASSERT_TRUE(world.RunUntil([&] {
    most = std::max(most, world.server.poller().read_budget().taken_bytes());
    return !one.server.requests.empty() && !two.server.requests.empty();
  }));
  EXPECT_LE(most, uint64_t{1 << 20});
  EXPECT_LE(one.server_counts().reads_outstanding_max, 4);
  EXPECT_EQ(world.server.poller().read_budget().taken_bytes(), 0u);
}

TEST(WorkRequestTest, LargeMessagesOfTwoConnectionsShareTheBudget) {
  RuntimeOptions options;
  options.poller.read_bytes_max = 1 << 20;
  World world({}, options);
  Link one(world), two(world);
  PendingCall first, second;
  ASSERT_THAT(one.Send(first, 64 * kMiB), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return one.server_counts().reads > 20; }));
  ASSERT_THAT(two.Send(second, 16 * kMiB), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !two.server.requests.empty(); }));
  EXPECT_TRUE(one.server.requests.empty()) << "the second waited for all of the first";
}

// A SEND may overtake the READ that was posted before it. When the peer receives the SEND, it revokes its
// grant, which would fail the READ.
TEST(WorkRequestTest, SendThatFollowsFromAReadWaitsForItsCompletion) {
  World world;
  Link link(world);
  link.EchoAll();
  world.server.fabric->KeepBackReadCompletions(true);
  PendingCall call;
  ASSERT_THAT(link.Send(call, kMiB), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().reads > 0; }));
  const uint64_t answers = link.server_counts().sends;
  world.Settle();
  EXPECT_EQ(link.server_counts().sends, answers) << "it answered before it had the request";

  world.client.fabric->KeepBackReadCompletions(true);
  world.server.fabric->KeepBackReadCompletions(false);
  ASSERT_TRUE(world.RunUntil([&] { return link.client_counts().reads > 0; }));
  const uint64_t sends = link.client_counts().sends;
  world.Settle();
  EXPECT_EQ(link.client_counts().sends, sends) << "it released the response before it had it";
  EXPECT_FALSE(call.done());

  world.client.fabric->KeepBackReadCompletions(false);
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.response, IsOk());
}

TEST(WorkRequestTest, SmallCallsPassWhileALargeOneIsRead) {
  World world;
  Link link(world);
  link.EchoAll();
  PendingCall bulk;
  ASSERT_THAT(link.Send(bulk, 64 * kMiB), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().reads > 0; }));
  int passed = 0;
  while (!bulk.done() && passed < 5) {
    PendingCall small;
    link.Call(small, NewMessage(world.client.messages(), 64));
    ASSERT_THAT(small.response, IsOk());
    ++passed;
  }
  EXPECT_EQ(passed, 5) << "small calls waited behind the large one";
  ASSERT_TRUE(world.RunUntil([&] { return bulk.done(); }));
  EXPECT_THAT(bulk.response, IsOk());
}

TEST(WorkRequestTest, APeerWhoseNicAcknowledgesNothingIsSentNoMoreThanTheSendQueueHolds) {
  World world;
  Link link(world, {.slots = 2});
  link.EchoAll();
  world.client.fabric->KeepBackSendCompletions(true);
  PendingCall calls[100];
  int sent = 0;
  for (PendingCall& call : calls) {
    if (!link.Send(call, 64, absl::Milliseconds(1)).ok()) break;
    ++sent;
    world.Pass(absl::Milliseconds(2));
  }
  EXPECT_LT(sent, 40);
  EXPECT_EQ(link.client_counts().sends, link.client_end->send_depth());
  // When the peer acknowledges again, the waiting messages continue.
  world.client.fabric->KeepBackSendCompletions(false);
  ASSERT_TRUE(world.RunUntil([&] { return link.client_end->exchanges_in_flight() == 0; }));
  PendingCall after;
  link.Call(after, NewMessage(world.client.messages(), 64));
  EXPECT_THAT(after.response, IsOk());
}

}  // namespace
}  // namespace hawser::transport
