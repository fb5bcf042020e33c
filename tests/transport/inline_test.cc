// Small messages that the fabric copies when they are posted, and those that are queued.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

class InlineTest : public ::testing::Test {
 protected:
  InlineTest() {
    for (World::Side* side : {&world_.client, &world_.server}) side->fabric->LetPostInline();
  }

  World world_;
};

TEST_F(InlineTest, SmallMessagesNeedNoWorkRequest) {
  Link link(world_);
  link.EchoAll();
  for (int i = 0; i < 100; ++i) {
    PendingCall call;
    link.Call(call, NewMessage(world_.client.messages(), 64));
    ASSERT_THAT(call.status(), IsOk());
  }
  for (const SpyFabric::Counts* counts : {&link.client_counts(), &link.server_counts()}) {
    EXPECT_EQ(counts->inline_sends, 100u);
    EXPECT_EQ(counts->sends, 0u);
  }
}

TEST_F(InlineTest, WhatOneTurnGivesRiseToRingsOneDoorbell) {
  Link link(world_);
  link.EchoAll();
  std::vector<PendingCall> calls(20);
  world_.OnClient([&] {
    for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 64), IsOk());
    EXPECT_EQ(link.client_counts().doorbells, 0u);
  });
  EXPECT_EQ(link.client_counts().inline_sends, 20u);
  EXPECT_EQ(link.client_counts().doorbells, 1u);
  ASSERT_TRUE(world_.RunUntil([&] { return calls[19].done(); }));
}

// The memory of a small response is free for the next one although the peer has not acknowledged anything.
TEST_F(InlineTest, MemoryIsFreeWithoutACompletion) {
  Link link(world_);
  world_.server.fabric->KeepBackSendCompletions(true);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 64), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 1; }));
  OutgoingMessagePtr response = NewMessage(world_.server.messages(), 64);
  const OutgoingMessage* const first = response.get();
  world_.OnServer([&] {
    ASSERT_THAT(link.server_end->Respond(link.server.requests[0].id, response), IsOk());
    EXPECT_EQ(response, nullptr);
    EXPECT_EQ(world_.server.messages().NewOutgoing().get(), first);
  });
  ASSERT_TRUE(world_.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.status(), IsOk());
}

TEST_F(InlineTest, NoMessageOvertakesAQueuedOne) {
  Link link(world_);
  PendingCall calls[3];
  world_.OnClient([&] {
    ASSERT_THAT(link.Send(calls[0], 64), IsOk());
    ASSERT_THAT(link.Send(calls[1], 2000), IsOk());
    ASSERT_THAT(link.Send(calls[2], 64), IsOk());
  });
  EXPECT_EQ(link.client_counts().inline_sends, 1u);
  EXPECT_EQ(link.client_counts().sends, 2u);
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 3; }));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(link.server.requests[i].id, calls[i].id);
}

// Otherwise one message that had to be queued would keep a connection under load from copying any other,
// since in each batch it is some message's turn to ask for a completion.
TEST_F(InlineTest, ABatchBehindAQueuedMessageIsFollowedByCopiedOnes) {
  Link link(world_);
  link.EchoAll();
  const auto call_at_once = [&](std::vector<size_t> bodies) {
    std::vector<PendingCall> calls(bodies.size());
    world_.OnClient([&] {
      for (size_t i = 0; i < bodies.size(); ++i) ASSERT_THAT(link.Send(calls[i], bodies[i]), IsOk());
    });
    ASSERT_TRUE(world_.RunUntil([&] {
      return std::all_of(calls.begin(), calls.end(), [](const PendingCall& call) { return call.done(); });
    }));
    world_.Settle();
  };
  call_at_once({64});
  std::vector<size_t> bodies(20, 64);
  bodies[0] = 2000;
  call_at_once(bodies);
  EXPECT_EQ(link.client_counts().sends, 20u);
  bodies[0] = 64;
  call_at_once(bodies);
  EXPECT_EQ(link.client_counts().sends, 20u);
  EXPECT_EQ(link.client_counts().inline_sends, 21u);
}

// Otherwise a connection with small calls only would hold it for as long as these go on.
TEST_F(InlineTest, TheMemoryOfLongerMessagesIsFreeWhileOnlySmallOnesFollow) {
  Link link(world_);
  link.EchoAll();
  const auto call_each = [&](int count, size_t body_bytes) {
    for (int i = 0; i < count; ++i) {
      PendingCall call;
      link.Call(call, NewMessage(world_.client.messages(), body_bytes));
      ASSERT_THAT(call.status(), IsOk());
    }
  };
  const auto leased_beside_receives = [&] {
    return World::LeasedBytes(world_.client) + World::LeasedBytes(world_.server) -
           (link.client_end->receives_posted() + link.server_end->receives_posted()) *
               BufferPool::CapacityOf(ConnectionOptions().receive_buffer_bytes);
  };
  call_each(1, 64);
  const size_t before = leased_beside_receives();
  call_each(8, 1000);
  EXPECT_GT(leased_beside_receives(), before);
  call_each(40, 64);
  EXPECT_EQ(leased_beside_receives(), before);
  EXPECT_GT(link.client_counts().inline_sends, 30u);
}

// What is attached is released by the completion, and this runs code of the application.
TEST_F(InlineTest, AMessageThatOwnsAValueIsQueued) {
  Link link(world_);
  link.EchoAll();
  OutgoingMessagePtr request = NewMessage(world_.client.messages(), 64);
  request->Own(std::make_shared<int>(1));
  PendingCall call;
  link.Call(call, std::move(request));
  EXPECT_EQ(link.client_counts().inline_sends, 0u);
  EXPECT_EQ(link.client_counts().sends, 1u);
  EXPECT_EQ(link.client_counts().signaled_sends, 1u);
}

// The server disconnects only when completions show that its last answers have arrived.
TEST_F(InlineTest, TheAnswersOfAServerThatDrainsAreQueuedAndSignaled) {
  Link link(world_);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 64), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 1; }));
  world_.OnServer([&] { link.server_end->Drain(); });
  world_.Settle();  // Nothing is queued before the answer.
  ASSERT_THAT(link.Respond(link.server.requests[0].id, 64), IsOk());
  EXPECT_EQ(link.server_counts().inline_sends, 0u);
  EXPECT_EQ(link.server_counts().signaled_sends, link.server_counts().sends);
  ASSERT_TRUE(world_.RunUntil([&] { return call.done() && link.closed(); }));
  EXPECT_THAT(call.status(), IsOk());
}

// What was copied before has no completion. The peer's answer to "going away" shows that it has arrived.
TEST_F(InlineTest, AnAnswerThatIsCopiedBeforeADrainArrives) {
  for (int i = 0; i < 20; ++i) {
    Link link(world_);
    PendingCall call;
    ASSERT_THAT(link.Send(call, 64), IsOk());
    ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 1; }));
    const uint64_t before = link.server_counts().inline_sends;
    world_.OnServer([&] {
      OutgoingMessagePtr response = NewMessage(world_.server.messages(), 64);
      ASSERT_THAT(link.server_end->Respond(link.server.requests[0].id, response), IsOk());
      link.server_end->Drain();
    });
    EXPECT_EQ(link.server_counts().inline_sends, before + 1);
    // Only the server runs: it does not disconnect, because the client has not answered.
    for (int turn = 0; turn < 100; ++turn) world_.server.poller().PollOnce();
    EXPECT_EQ(link.server_observer.closings, 0);
    ASSERT_TRUE(world_.RunUntil([&] { return call.done() && link.closed(); }));
    EXPECT_THAT(call.status(), IsOk());
  }
}

TEST_F(InlineTest, ACopiedRequestComesBackWhenTheConnectionIsLost) {
  Link link(world_);
  PendingCall call, other;
  call.wants_request_back = true;
  ASSERT_THAT(link.Send(call, 64), IsOk());
  ASSERT_THAT(link.Send(other, 64), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 2; }));
  world_.OnServer([&] { link.server_end->Close(absl::UnavailableError("the test ends it")); });
  ASSERT_TRUE(world_.RunUntil([&] { return call.done() && other.done() && link.closed(); }));
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(link.client_counts().inline_sends, 2u);
  EXPECT_NE(call.request_back, nullptr);
  EXPECT_EQ(other.request_back, nullptr);
}

// ---- Received

TEST_F(InlineTest, SmallMessagesThatAreKeptHoldNoMemoryOfThePool) {
  Link link(world_);
  const auto receives_bytes = [&] {
    return link.server_end->receives_posted() *
           BufferPool::CapacityOf(ConnectionOptions().receive_buffer_bytes);
  };
  PendingCall first, calls[8];
  ASSERT_THAT(link.Send(first, 64), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 1; }));
  link.server.requests.clear();
  world_.Settle();
  const size_t others = World::LeasedBytes(world_.server) - receives_bytes();
  for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 64), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 8; }));
  world_.Settle();
  EXPECT_EQ(World::LeasedBytes(world_.server), others + receives_bytes());
}

// So that a program can keep to a limit.
TEST_F(InlineTest, SmallMessagesThatAreKeptCountAsTheirObjects) {
  constexpr size_t kCalls = 8;
  Link link(world_);
  PendingCall first, calls[kCalls];  // The first message of a connection is not copied.
  ASSERT_THAT(link.Send(first, 64), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 1; }));
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world_.RunUntil([&] { return first.done(); }));
  link.server.requests.clear();
  for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 64), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == kCalls; }));
  uint64_t requests_bytes = 0, responses_bytes = 0;
  for (const RecordingServer::Request& request : link.server.requests) {
    ASSERT_THAT(link.Respond(request.id, 64), IsOk());
    requests_bytes += request.message->memory_bytes();
  }
  for (PendingCall& call : calls) {
    ASSERT_TRUE(world_.RunUntil([&] { return call.done(); }));
    ASSERT_THAT(call.status(), IsOk());
    responses_bytes += (*call.response)->memory_bytes();
  }
  EXPECT_EQ(requests_bytes, kCalls * sizeof(IncomingMessage));
  EXPECT_EQ(responses_bytes, kCalls * sizeof(IncomingMessage));
}

TEST_F(InlineTest, TheReceiveOfASmallMessageIsUsedAgainAndTheMessageStays) {
  world_.server.fabric->OfferSends(false);
  Link link(world_);
  constexpr size_t kCalls = 200;
  for (size_t i = 0; i < kCalls; ++i) {
    PendingCall call;
    OutgoingMessagePtr request = NewMessage(world_.client.messages(), 8 + i, static_cast<uint32_t>(i));
    ASSERT_THAT(link.Send(call, std::move(request)), IsOk());
    ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == i + 1; }));
    link.RespondEmpty(link.server.requests[i].id);
    ASSERT_TRUE(world_.RunUntil([&] { return call.done(); }));
  }
  for (size_t i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(Content(*link.server.requests[i].message) == ContentOf(8 + i, static_cast<uint32_t>(i))) << i;
  }
}

TEST_F(InlineTest, ALargerMessageIsReadWhereItWasReceived) {
  Link link(world_);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 1000), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == 1; }));
  EXPECT_GE(link.server.requests[0].message->memory_bytes(), 1000u);
}

}  // namespace
}  // namespace hawser::transport
