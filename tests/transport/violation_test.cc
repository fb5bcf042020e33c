// If a peer breaks the protocol, this side counts the violation, logs it, and tells the peer the reason.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/transport/testing/hostile_stage.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;

class ViolationTest : public HostileTest {
 protected:
  uint64_t Count(Violation violation) { return world.server.poller().violations().count(violation); }
  uint64_t CountAll() {
    uint64_t all = 0;
    for (size_t i = 0; i < kViolationCount; ++i) all += Count(static_cast<Violation>(i));
    return all;
  }

  // Expects that the victim has closed the connection for that reason, and that the peer has received the
  // reason.
  void ExpectViolation(Violation violation, const std::string& what) {
    ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; })) << "it goes on";
    EXPECT_THAT(Text(*observer.closed), HasSubstr(what));
    EXPECT_EQ(Count(violation), 1u) << NameOf(violation);
    EXPECT_EQ(CountAll(), 1u);
    ASSERT_TRUE(world.RunUntil([&] { return peer.ended(); }));
  }
  // Over other fabrics the peer does not receive the reason.
  void ExpectHeard(const std::string& what) {
    if (TestScheme() != "tcp") return;
    ASSERT_TRUE(world.RunUntil([&] { return !peer.why().ok(); }));
    EXPECT_THAT(Text(peer.why()), HasSubstr(what));
  }
};

// The first test of this file, because the log takes three lines of one address.
TEST_F(ViolationTest, ALineOnStderrNamesThePeerTheReasonAndWhatItDid) {
  AttackServer();
  ::testing::internal::CaptureStderr();
  peer.Send(RawRequest(4, 1).Encode());
  const bool closed = world.RunUntil([&] { return observer.closings == 1; });
  const std::string line = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(closed);
  EXPECT_THAT(line, HasSubstr("hawser: protocol violation (slot): peer " + TestScheme() + "://"));
  EXPECT_THAT(line, HasSubstr("used slot 4 of 4; connection "));
}

TEST_F(ViolationTest, ASlotThatIsNotAgreed) {
  AttackServer();
  peer.Send(RawRequest(4, 1).Encode());
  ExpectViolation(Violation::kSlot, "used slot 4 of 4");
  ExpectHeard("used slot 4 of 4");
}

TEST_F(ViolationTest, AMessageThatDoesNotAddUp) {
  AttackServer();
  peer.Send("x");
  ExpectViolation(Violation::kMessage, "shorter than the header");
  ExpectHeard("shorter than the header");
}

TEST_F(ViolationTest, AResponseFromTheSideThatAsks) {
  AttackServer();
  peer.Send(RawResponse(0, 1).Encode());
  ExpectViolation(Violation::kRole, "sent a response");
  ExpectHeard("sent a response");
}

TEST_F(ViolationTest, AControlRequestOutOfOrder) {
  AttackServer();
  peer.Send(RawControl(7, {{ControlOp::Code::kPing}}));
  ExpectViolation(Violation::kControl, "sent control request 7");
  ExpectHeard("sent control request 7");
}

TEST_F(ViolationTest, ASlotOfAControlMessageThatIsNotAgreed) {
  AttackServer();
  peer.Send(RawControl(1, {{ControlOp::Code::kCancel, 9, 1}}));
  ExpectViolation(Violation::kControl, "named slot 9 of 4");
}

TEST_F(ViolationTest, ASendLongerThanTheReceive) {
  AttackServer({.receive_buffer_bytes = 512});
  peer.Send(RawRequest(0, 1, 2000).Encode());
  ExpectViolation(Violation::kLimit, "receive");
}

TEST_F(ViolationTest, ATableThatOffersWhatIsNotGranted) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "what a device says of it is the device's";
  AttackServer();
  RawMessage message = RawRequest(0, 1);
  message.table = {{0x1000, 77, 4096}};
  message.header.entries = 1;
  peer.Send(message.Encode());
  ExpectViolation(Violation::kMemoryAccess, "a READ of 4096 bytes with rkey ");
}

// The error of the calls names the reason.
TEST_F(ViolationTest, AServerThatBreaksTheProtocolIsNotCounted) {
  AttackClient();
  peer.Send(RawResponse(0, 1).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
  EXPECT_EQ(CountAll(), 0u);
  EXPECT_EQ(world.client.poller().violations().count(Violation::kSlot), 0u);
  ASSERT_TRUE(world.RunUntil([&] { return peer.ended(); }));
  ExpectHeard("which is not waiting for an answer");
}

// A peer that does not read the reason does not delay the end of its connection.
TEST_F(ViolationTest, APeerThatReadsNothingHoldsNothingUp) {
  AttackServer();
  peer.StopReceiving();
  for (int i = 0; i < 100; ++i) peer.Send(RawRequest(4, 1).Encode());
  ExpectViolation(Violation::kSlot, "used slot 4 of 4");
}

}  // namespace
}  // namespace hawser::transport
