#include "hawser/transport/connection/credits.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hoard.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kSlots = 32;
// The receives of an idle connection: for two requests, and for control messages.
constexpr int64_t kIdleReceives = 4;
constexpr size_t kReceiveBytes = 4096;

// ---- How the requester counts credits.

TEST(CreditTakerTest, StartsWithTwoOrWithItsOnlySlot) {
  EXPECT_EQ(CreditTaker(kSlots, true).limit(), 2u);
  EXPECT_EQ(CreditTaker(1, true).limit(), 1u);
  EXPECT_EQ(CreditTaker(kSlots, false).limit(), kSlots);
}

TEST(CreditTakerTest, ASumThatGrowsGivesTheDifference) {
  CreditTaker taker(kSlots, true);
  EXPECT_TRUE(taker.knows(2));
  EXPECT_FALSE(taker.knows(4));
  EXPECT_THAT(taker.Take(4), IsOk());
  EXPECT_EQ(taker.limit(), 4u);
  EXPECT_THAT(taker.Take(kSlots), IsOk());
  EXPECT_EQ(taker.limit(), kSlots);
}

TEST(CreditTakerTest, MoreCreditsThanSlotsAreRefusedWithTheValues) {
  CreditTaker taker(kSlots, true);
  const absl::Status refused = taker.Take(kSlots + 1);
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Text(refused), HasSubstr("gives 33 credits in all after 2"));
  EXPECT_EQ(taker.limit(), 2u);
}

TEST(CreditTakerTest, ASumThatGoesDownIsRefused) {
  CreditTaker taker(kSlots, true);
  ASSERT_THAT(taker.Take(8), IsOk());
  EXPECT_THAT(taker.Take(7), HasCode(absl::StatusCode::kDataLoss));
  EXPECT_THAT(taker.Take(0), HasCode(absl::StatusCode::kDataLoss));
  EXPECT_EQ(taker.limit(), 8u);
}

TEST(CreditTakerTest, WithoutAgreementAnySumIsRefused) {
  CreditTaker taker(kSlots, false);
  EXPECT_TRUE(taker.knows(0));
  EXPECT_THAT(taker.Take(2), HasCode(absl::StatusCode::kDataLoss));
  EXPECT_EQ(taker.OnRequest(1), 0);
}

// The responder sent the sum before the returns arrived. No credit is lost, and none is given twice.
TEST(CreditTakerTest, ASumThatCrossesReturnsMeansTheSameToBothSides) {
  CreditTaker taker(kSlots, true);
  ASSERT_THAT(taker.Take(16), IsOk());
  EXPECT_EQ(taker.TakeOffUnused(0), 14u);
  EXPECT_EQ(taker.limit(), 2u);
  EXPECT_TRUE(taker.knows(16));
  ASSERT_THAT(taker.Take(18), IsOk());
  EXPECT_EQ(taker.limit(), 4u);
}

TEST(CreditTakerTest, TheSumMayWrapAround) {
  CreditTaker taker(kSlots, true);
  uint16_t given = 2;
  for (int i = 0; i < 5000; ++i) {
    given = static_cast<uint16_t>(given + 30);
    ASSERT_THAT(taker.Take(given), IsOk()) << given;
    ASSERT_EQ(taker.limit(), kSlots);
    ASSERT_EQ(taker.TakeOffUnused(0), 30u);
  }
}

TEST(CreditTakerTest, WhatWasUsedSinceTheLastCallIsKeptTwice) {
  CreditTaker taker(kSlots, true);
  ASSERT_THAT(taker.Take(kSlots), IsOk());
  for (uint32_t in_flight = 1; in_flight <= 5; ++in_flight) taker.OnRequest(in_flight);
  EXPECT_EQ(taker.TakeOffUnused(0), kSlots - 10);
  EXPECT_EQ(taker.TakeOffUnused(0), 8u);
  EXPECT_EQ(taker.TakeOffUnused(0), 0u);
}

TEST(CreditTakerTest, WhatIsInFlightIsNotReturned) {
  CreditTaker taker(kSlots, true);
  ASSERT_THAT(taker.Take(kSlots), IsOk());
  EXPECT_EQ(taker.TakeOffUnused(12), 8u);
  EXPECT_EQ(taker.TakeOffUnused(20), 0u);
}

// ---- Both sides, on a fabric whose SENDs cannot wait.

RuntimeOptions SmallPool() {
  RuntimeOptions options;
  options.pool.limit_bytes = 8 * kMiB;
  return options;
}

class CreditsTest : public ::testing::Test {
 protected:
  explicit CreditsTest(const RuntimeOptions& server = {}) : world_({}, server) {
    world_.client.fabric->LetSendsWait(false);
    world_.server.fabric->LetSendsWait(false);
  }

  static ConnectionOptions Options() { return {.slots = kSlots, .keepalive_interval = absl::Seconds(1)}; }

  // Sends as many of `calls` as it may. `sent` counts the calls sent so far.
  void SendAll(Link& link, std::vector<PendingCall>& calls, size_t& sent) {
    while (sent < calls.size() && link.client_end->CanSend()) {
      ASSERT_THAT(link.Send(calls[sent++], 64), IsOk());
    }
    world_.Settle();
  }
  // Sends all of `calls`, as soon as each may be sent. The server answers none.
  void FillSlots(Link& link, std::vector<PendingCall>& calls, size_t sent = 0) {
    for (int i = 0; i < 10 && sent < calls.size(); ++i) SendAll(link, calls, sent);
    ASSERT_EQ(sent, calls.size());
    ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == calls.size(); }));
  }
  void AnswerAll(Link& link, std::vector<PendingCall>& calls) {
    world_.OnServer([&] {
      for (auto& request : link.server.requests) link.Echo(std::move(request));
      link.server.requests.clear();
    });
    ASSERT_TRUE(world_.RunUntil([&] {
      for (const PendingCall& call : calls) {
        if (!call.done()) return false;
      }
      return true;
    }));
    for (const PendingCall& call : calls) EXPECT_THAT(call.response, IsOk());
    world_.Settle();
  }
  static int Closings(const Link& link) {
    return link.client_observer.closings + link.server_observer.closings;
  }

  World world_;
};

TEST_F(CreditsTest, AFreshConnectionHoldsFourReceivesAndMaySendTwoRequests) {
  Link link(world_, Options());
  EXPECT_EQ(link.server_counts().receives_posted, kIdleReceives);
  // 1024: the memory of control messages.
  EXPECT_LE(World::LeasedBytes(world_.server), kIdleReceives * kReceiveBytes + 1024);
  std::vector<PendingCall> calls(3);
  EXPECT_THAT(link.Send(calls[0], 64), IsOk());
  EXPECT_THAT(link.Send(calls[1], 64), IsOk());
  world_.OnClient([&] {
    OutgoingMessagePtr request = NewMessage(world_.client.messages(), 64);
    EXPECT_THAT(link.client_end->SendRequest(request, kNever, calls[2]).status(),
                HasCode(absl::StatusCode::kResourceExhausted));
  });
  EXPECT_THAT(link.client_end->DescribeSlots(), HasSubstr("credits for 2"));
  EXPECT_EQ(link.server_end->slots_given(), 2u);
  EXPECT_EQ(link.server_end->slots_wanted(), 2u);
}

TEST_F(CreditsTest, HandlersThatDoNotAnswerDoNotKeepTheCreditsFromGrowing) {
  Link link(world_, Options());
  std::vector<PendingCall> calls(kSlots);
  size_t sent = 0;
  // The credits are 2, 4, 8, 16, 32.
  for (int i = 0; i < 5; ++i) SendAll(link, calls, sent);
  EXPECT_EQ(sent, kSlots);
  EXPECT_EQ(link.server.requests.size(), kSlots);
  EXPECT_GE(link.client_observer.slots_freed, 4);
  EXPECT_FALSE(link.client_end->CanSend());
  EXPECT_GE(link.server_counts().receives_posted, kSlots + 2);
  AnswerAll(link, calls);
  EXPECT_EQ(Closings(link), 0);
  EXPECT_GE(link.server_counts().receives_posted, kSlots + 2);
}

// If no answer is sent, each doubling needs a control exchange.
TEST_F(CreditsTest, AnAnswerOfTheSameTurnTellsTheCredits) {
  Link link(world_, Options());
  link.EchoAll();
  std::vector<PendingCall> calls(200);
  size_t sent = 0;
  while (sent < calls.size()) SendAll(link, calls, sent);
  ASSERT_TRUE(world_.RunUntil([&] { return calls.back().done(); }));
  EXPECT_EQ(Closings(link), 0);
  EXPECT_EQ(link.server_counts().sends, calls.size());
  EXPECT_GE(link.server_counts().receives_posted, kSlots);
}

TEST_F(CreditsTest, CallsOneByOneNeedNoMoreCreditsAndShareAPostOfReceives) {
  Link link(world_, Options());
  link.EchoAll();
  for (int i = 0; i < 150; ++i) {
    PendingCall call;
    link.Call(call, NewMessage(world_.client.messages(), 64));
    world_.Settle();
  }
  EXPECT_LE(link.server_counts().receives_posted, kIdleReceives + 4);
  EXPECT_LE(link.server_counts().receive_posts, 60u);
}

TEST_F(CreditsTest, AnIdleConnectionHoldsFourReceivesAgain) {
  Link link(world_, Options());
  for (int round = 0; round < 3; ++round) {
    {
      std::vector<PendingCall> calls(kSlots);
      FillSlots(link, calls);
      AnswerAll(link, calls);
    }
    ASSERT_GE(link.server_counts().receives_posted, kSlots);
    // One interval ends the burst, the next one returns the credits, and pings use up the spare receives.
    world_.Pass(absl::Seconds(12), absl::Milliseconds(50));
    EXPECT_EQ(link.server_counts().receives_posted, kIdleReceives);
    EXPECT_LE(World::LeasedBytes(world_.server), kIdleReceives * kReceiveBytes + 1024);
    EXPECT_EQ(Closings(link), 0);
  }
}

TEST_F(CreditsTest, PingsAloneChangeNothing) {
  Link link(world_, Options());
  for (int i = 0; i < 20; ++i) {
    world_.Pass(absl::Seconds(1), absl::Milliseconds(50));
    ASSERT_EQ(link.server_counts().receives_posted, kIdleReceives);
  }
  EXPECT_EQ(Closings(link), 0);
}

TEST_F(CreditsTest, APeerThatKnowsNoCreditsHasAReceiveForEachSlot) {
  world_.client.fabric->OfferNoCredits();
  Link link(world_, Options());
  EXPECT_GT(link.server_counts().receives_posted, kSlots);
  std::vector<PendingCall> calls(kSlots);
  for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 64), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == kSlots; }));
  AnswerAll(link, calls);
}

class CreditsWithoutMemoryTest : public CreditsTest {
 protected:
  CreditsWithoutMemoryTest() : CreditsTest(SmallPool()) {}
};

// The client cannot ask again, because it has no credit left.
TEST_F(CreditsWithoutMemoryTest, CreditsComeWithMemoryThoughNoHandlerAnswers) {
  Link link(world_, Options());
  std::vector<PendingCall> calls(2), more(2);
  {
    const Hoard hoard(world_.server.buffers(), kReceiveBytes);
    for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 64), IsOk());
    ASSERT_TRUE(world_.RunUntil([&] { return link.server.requests.size() == calls.size(); }));
    world_.Settle();
    EXPECT_FALSE(link.client_end->CanSend());
    EXPECT_EQ(link.server_end->slots_given(), 2u);
    EXPECT_EQ(link.server_end->slots_wanted(), 4u);
  }
  ASSERT_TRUE(world_.RunUntil([&] { return link.client_end->CanSend(); }));
  EXPECT_GE(link.server_counts().receives_posted, 4 + 2);
  EXPECT_EQ(link.server_end->slots_given(), 4u);
  AnswerAll(link, calls);
  size_t sent = 0;
  SendAll(link, more, sent);
  EXPECT_EQ(sent, 2u);
  EXPECT_TRUE(link.client_end->CanSend());
  AnswerAll(link, more);
  EXPECT_EQ(Closings(link), 0);
}

// A credit is a receive that is posted. The second time all credits are in use, too.
TEST_F(CreditsWithoutMemoryTest, CreditsComeWithTheLastOfTheirReceives) {
  Link link(world_, Options());
  Hoard hoard(world_.server.buffers(), kReceiveBytes);
  std::vector<PendingCall> calls(8);
  size_t sent = 0;
  for (const uint32_t credits : {2, 4}) {
    SendAll(link, calls, sent);
    ASSERT_EQ(sent, credits);
    ASSERT_TRUE(world_.RunUntil([&] { return link.server_end->slots_wanted() == 2 * credits; }));
    world_.Settle();
    const int64_t needed = 2 * credits + 2;
    ASSERT_LT(link.server_counts().receives_posted, needed - 1);
    while (link.server_counts().receives_posted < needed) {
      EXPECT_EQ(link.server_end->slots_given(), credits);
      EXPECT_FALSE(link.client_end->CanSend());
      hoard.Drop(1);
      world_.Settle();
    }
    EXPECT_EQ(link.server_end->slots_given(), 2 * credits);
    EXPECT_TRUE(link.client_end->CanSend());
  }
  hoard.DropAll();
  FillSlots(link, calls, sent);
  AnswerAll(link, calls);
  EXPECT_EQ(Closings(link), 0);
}

// ---- The side that dials may answer the requests.

class ReverseCreditsTest : public CreditsTest {
 protected:
  void Connect(uint32_t features) {
    listener_.on_peer = [&](PeerRequest request) {
      accepted_ =
          *Connection::Accept(world_.server.poller(), std::move(request), Options(), {}, accepting_, nullptr);
    };
    Handshake hello;
    hello.role = Role::kReverse;
    hello.features = features;
    world_.OnClient([&] {
      dialed_ = *Connection::Dial(world_.client.poller(), listener_.address(), Options(), hello,
                                  absl::Seconds(2), dialing_, &handler_);
    });
  }
  void End() {
    world_.OnServer([&] { accepted_->Close(); });
    ASSERT_TRUE(world_.RunUntil([&] { return dialing_.closings == 1 && accepting_.closings == 1; }));
  }
  SpyFabric::Counts& counts() { return world_.client.fabric->counts(0); }

  TestListener listener_{world_, world_.server};
  RecordingObserver dialing_, accepting_;
  RecordingServer handler_;
  Connection *dialed_ = nullptr, *accepted_ = nullptr;
};

TEST_F(ReverseCreditsTest, WithTheFeatureOfItsSessionItStartsWithTwo) {
  Connect(kFeatureCredits);
  ASSERT_TRUE(world_.RunUntil([&] { return accepting_.ready.has_value() && dialing_.ready.has_value(); }));
  EXPECT_EQ(counts().receives_posted, kIdleReceives);
  PendingCall calls[2];
  for (PendingCall& call : calls) {
    world_.OnServer([&] {
      OutgoingMessagePtr request = NewMessage(world_.server.messages(), 64);
      ASSERT_THAT(accepted_->SendRequest(request, kNever, call), IsOk());
    });
  }
  EXPECT_FALSE(accepted_->CanSend());
  ASSERT_TRUE(world_.RunUntil([&] { return accepted_->CanSend(); }));
  handler_.requests.clear();
  End();
}

TEST_F(ReverseCreditsTest, WithoutItThereIsAReceiveForEachSlot) {
  Connect(0);
  ASSERT_TRUE(world_.RunUntil([&] { return accepting_.ready.has_value() && dialing_.ready.has_value(); }));
  EXPECT_GT(counts().receives_posted, kSlots);
  End();
}

// The dialing side has not posted the receives that such a peer may use.
TEST_F(ReverseCreditsTest, AnAcceptWithoutTheOfferedFeatureIsRefused) {
  world_.server.fabric->OfferNoCredits();
  Connect(kFeatureCredits);
  ASSERT_TRUE(world_.RunUntil([&] { return dialing_.closings == 1 && accepting_.closings == 1; }));
  EXPECT_THAT(*dialing_.closed, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(Text(*dialing_.closed), HasSubstr("accepted with features 0, offered were 1"));
}

}  // namespace
}  // namespace hawser::transport
