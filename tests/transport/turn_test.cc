// How long a turn of a poller delays other work when handlers are slow.
#include <deque>
#include <memory>
#include <tuple>
#include <utility>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

// Before the poller knows that handlers are slow, it runs this many in one turn: kChunkMax of poller.cc.
constexpr int kForeseenFast = 16;

constexpr absl::Duration kHandlerTime = absl::Milliseconds(1);

// Four clients whose requests wait at the server, each of which takes a millisecond of the poller's thread.
// The parameters: whether the fabric copies their answers; and whether it offers their requests inside
// Poll(), which a connection takes from its second message on.
class SlowHandlersTest : public ::testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  SlowHandlersTest() {
    const auto [copies, offers] = GetParam();
    if (copies) world_.server.fabric->LetPostInline();
    world_.server.fabric->OfferSends(offers);
    world_.server.fabric->LetSendsWait(false);  // All requests are there in the first turn.
    for (int i = 0; i < 4; ++i) {
      Link& link = *links_.emplace_back(std::make_unique<Link>(world_));
      link.EchoAll();
      PendingCall first;
      link.Call(first, NewMessage(world_.client.messages(), 8));
      link.server.answer = [this, &link](RecordingServer::Request request) {
        ++handled_;
        world_.clock.Advance(kHandlerTime);
        link.Echo(std::move(request));
      };
    }
  }

  // Sends a request in each slot.
  void SendAll() {
    for (auto& link : links_) {
      while (link->client_end->CanSend()) ASSERT_THAT(link->Send(calls_.emplace_back(), 8), IsOk());
    }
    world_.client.poller().PollOnce();
  }
  uint64_t Answered() {
    uint64_t sends = 0;
    for (auto& link : links_) sends += link->server_counts().sends + link->server_counts().inline_sends;
    return sends;
  }
  // Requests that were taken inside Poll().
  uint64_t Taken() {
    uint64_t sends = 0;
    for (auto& link : links_) sends += link->server_counts().taken_sends;
    return sends;
  }
  // Runs one turn of the server. Returns the number of handlers that it ran.
  int HandledInATurn() {
    const int before = handled_;
    world_.server.poller().PollOnce();
    return handled_ - before;
  }

  World world_;
  std::deque<PendingCall> calls_;
  std::deque<std::unique_ptr<Link>> links_;
  int handled_ = 0;
};

INSTANTIATE_TEST_SUITE_P(WithAndWithoutCopies, SlowHandlersTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()));

TEST_P(SlowHandlersTest, RepliesLeaveWhileOtherHandlersWait) {
  SendAll();
  const uint64_t before = Answered();
  EXPECT_LE(HandledInATurn(), kForeseenFast);
  EXPECT_EQ(Taken() > 0, std::get<1>(GetParam()) && TestScheme() == "tcp");
  EXPECT_EQ(Answered() - before, static_cast<uint64_t>(handled_));
  while (handled_ < 100) {
    EXPECT_EQ(HandledInATurn(), 1);
    EXPECT_EQ(Answered() - before, static_cast<uint64_t>(handled_));
  }
  ASSERT_TRUE(world_.RunUntil([&] { return calls_.back().done(); }));
}

TEST_P(SlowHandlersTest, TurnsAreLongAgainWhenHandlersAreFast) {
  SendAll();
  while (handled_ < 50) HandledInATurn();
  for (auto& link : links_) link->EchoAll();
  const uint64_t before = Answered();
  world_.server.poller().PollOnce();
  EXPECT_GE(Answered() - before, 48u);  // A poll of the spy returns at most 64.
  ASSERT_TRUE(world_.RunUntil([&] { return calls_.back().done(); }));
}

TEST_P(SlowHandlersTest, AClientThatConnectsMeanwhileIsAcceptedWithinAFewHandlers) {
  SendAll();
  HandledInATurn();
  const int before = handled_;
  Link late(world_);
  EXPECT_TRUE(late.ready());
  EXPECT_LE(handled_ - before, 20);
  ASSERT_TRUE(world_.RunUntil([&] { return calls_.back().done(); }));
}

// The handlers are so slow that few completions are taken at a time, and so fast that a turn takes many.
TEST(LongQueueTest, LongQueuesLeaveInTheMiddleOfATurnWhateverItsChunks) {
  for (const bool offers : {false, true}) {
    constexpr int kCalls = 48;
    World world;
    world.server.fabric->OfferSends(offers);
    // All requests are there in the turn.
    world.client.fabric->OfferNoCredits();
    world.server.fabric->LetSendsWait(false);
    Link link(world, {.slots = kCalls});
    link.EchoAll();
    PendingCall first, calls[kCalls];
    link.Call(first, NewMessage(world.client.messages(), 8));
    world.Settle();
    const uint64_t before = link.server_counts().send_posts;
    int handled = 0, handled_before_a_post = 0;
    link.server.answer = [&](RecordingServer::Request request) {
      ++handled;
      if (link.server_counts().send_posts == before) handled_before_a_post = handled;
      world.clock.Advance(absl::Microseconds(10));
      link.Echo(std::move(request));
    };
    world.OnClient([&] {
      for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 8), IsOk());
    });
    world.server.poller().PollOnce();
    EXPECT_EQ(handled, kCalls);
    EXPECT_GE(handled_before_a_post, 32);
    EXPECT_LT(handled_before_a_post, kCalls);
    ASSERT_TRUE(world.RunUntil([&] { return calls[kCalls - 1].done(); }));
  }
}

}  // namespace
}  // namespace hawser::transport
