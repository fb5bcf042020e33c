// A peer that misuses credits: it sends more requests than it has credits for, gives an impossible number, or
// returns credits that it does not have.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/base/endian.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hostile_stage.h"

namespace hawser::transport {
namespace {

class HostileCreditTest : public HostileTest {
 protected:
  HostileCreditTest() {
    features = kFeatureCredits;
    world.client.fabric->LetSendsWait(false);
    world.server.fabric->LetSendsWait(false);
  }

  static std::string With(std::string bytes, uint16_t credits) {
    StoreLittle16(reinterpret_cast<uint8_t*>(&bytes[14]), credits);
    return bytes;
  }
  static std::string With(const RawMessage& message, uint16_t credits) {
    return With(message.Encode(), credits);
  }
  static std::string Return() {
    RawMessage message;
    message.header.kind = Kind::kReturn;
    message.header.slot = kControlSlot;
    return message.Encode();
  }
  int64_t receives_posted() { return counts().receives_posted; }
  SpyFabric::Counts& counts() { return world.server.fabric->counts(world.server.fabric->queue_pairs() - 1); }
};

// ---- Attacks on the side that answers.

TEST_F(HostileCreditTest, AnHonestRequestIsTaken) {
  AttackServer();
  peer.Send(With(RawRequest(0, 1, 8), 1));
  ASSERT_TRUE(world.RunUntil([&] { return server.request_count == 1; }));
  ExpectOpen();
}

TEST_F(HostileCreditTest, ARequestThatSaysMoreInFlightThanItHasCreditsEndsTheConnection) {
  AttackServer();
  peer.Send(With(RawRequest(0, 1), 3));
  ExpectDataLoss("says that 3 are in flight, and has 1 unanswered, with 2 credits");
  EXPECT_EQ(server.request_count, 0u);
}

TEST_F(HostileCreditTest, ARequestThatSaysNoneInFlightEndsTheConnection) {
  AttackServer();
  peer.Send(RawRequest(0, 1).Encode());
  ExpectDataLoss("says that none is in flight");
}

TEST_F(HostileCreditTest, RequestsBeyondTheCreditsEndTheConnectionWhateverTheySay) {
  AttackServer();
  peer.Send(With(RawRequest(0, 1), 1));
  peer.Send(With(RawRequest(1, 1), 1));
  peer.Send(With(RawRequest(2, 1), 1));
  ExpectDataLoss("has 3 unanswered, with 2 credits");
}

TEST_F(HostileCreditTest, AReturnOfTheFirstCreditsEndsTheConnection) {
  AttackServer();
  peer.Send(Return());
  ExpectDataLoss("returned a credit of 2");
}

TEST_F(HostileCreditTest, AReturnOfACreditInUseEndsTheConnection) {
  AttackServer();
  for (uint16_t slot = 0; slot < 2; ++slot) {
    peer.Send(With(RawRequest(slot, 1), static_cast<uint16_t>(slot + 1)));
  }
  ASSERT_TRUE(world.RunUntil([&] { return server.request_count == 2; }));
  for (uint16_t slot = 2; slot < 4; ++slot) {
    peer.Send(With(RawRequest(slot, 1), static_cast<uint16_t>(slot + 1)));
  }
  ASSERT_TRUE(world.RunUntil([&] { return server.request_count == 4; }));
  peer.Send(Return());
  ExpectDataLoss("returned a credit of 4 with 4 requests unanswered");
}

// A callback may hold an honest peer at that moment. It has the interval and the timeout, as always.
TEST_F(HostileCreditTest, TellingCreditsDoesNotShortenThePatienceWithASilentPeer) {
  AttackServer({.slots = 4, .keepalive_interval = absl::Seconds(4), .keepalive_timeout = absl::Seconds(2)});
  for (uint16_t slot = 0; slot < 2; ++slot) {
    peer.Send(With(RawRequest(slot, 1), static_cast<uint16_t>(slot + 1)));
  }
  ASSERT_TRUE(world.RunUntil([&] { return server.request_count == 2; }));
  world.Pass(absl::Milliseconds(5500), absl::Milliseconds(20));
  ExpectOpen();
  world.Pass(absl::Seconds(2), absl::Milliseconds(20));
  EXPECT_EQ(observer.closings, 1);
}

// Two receives for requests, two for control, and one spare: each return uses up its receive.
TEST_F(HostileCreditTest, CreditsThatGoUpAndDownForEverHoldNoMoreThanAtFirst) {
  constexpr int64_t kMost = 5;
  AttackServer();
  server.answer = [&](RecordingServer::Request request) { Respond(request.id); };
  for (uint32_t generation = 1; generation <= 50; ++generation) {
    const size_t before = peer.received().size();
    peer.Send(With(RawRequest(0, generation, 8), 2));
    ASSERT_TRUE(world.RunUntil([&] { return peer.received().size() > before; }));
    peer.Send(Return());
    peer.Send(Return());
    world.Settle();
    ASSERT_LE(receives_posted(), kMost);
  }
  ExpectOpen();
}

TEST_F(HostileCreditTest, AMessageOfTheAskingSideThatGivesCreditsEndsTheConnection) {
  AttackServer();
  peer.Send(With(RawControl(1, {}), 4));
  ExpectDataLoss("sent a control message that gives 4 credits");
}

TEST_F(HostileCreditTest, WithoutAgreementARequestWithCreditsEndsTheConnection) {
  features = 0;
  AttackServer();
  peer.Send(With(RawRequest(0, 1), 1));
  ExpectDataLoss("reserved bits 1: credits were not agreed");
}

TEST_F(HostileCreditTest, WithoutAgreementAReturnEndsTheConnection) {
  features = 0;
  AttackServer();
  peer.Send(Return());
  ExpectDataLoss("credits were not agreed");
}

// ---- Attacks on the side that sends requests.

TEST_F(HostileCreditTest, MoreCreditsThanSlotsEndTheConnectionAndItsCalls) {
  AttackClient();
  PendingCall call;
  SendRequest(call);
  peer.Send(With(RawResponse(0, 1), 5));
  ExpectDataLoss("gives 5 credits in all after 2, with 2 of 4");
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(HostileCreditTest, CreditsThatGoDownEndTheConnection) {
  AttackClient();
  PendingCall call;
  SendRequest(call);
  peer.Send(With(RawResponse(0, 1), 1));
  ExpectDataLoss("gives 1 credits in all after 2");
}

TEST_F(HostileCreditTest, CreditsOfAControlAnswerAreCheckedToo) {
  AttackClient();
  peer.Send(With(RawControl(1, {}), 0xffff));
  ExpectDataLoss("gives 65535 credits");
}

TEST_F(HostileCreditTest, AReturnToTheSideThatAsksEndsTheConnection) {
  AttackClient();
  peer.Send(Return());
  ExpectDataLoss("returned a credit on a connection where it gives them");
}

TEST_F(HostileCreditTest, WithoutAgreementAnAnswerWithCreditsEndsTheConnection) {
  features = 0;
  AttackClient();
  PendingCall call;
  SendRequest(call);
  peer.Send(With(RawResponse(0, 1), 4));
  ExpectDataLoss("reserved bits 4: credits were not agreed");
}

}  // namespace
}  // namespace hawser::transport
