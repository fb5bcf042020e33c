// What a program must not do with a call: the process ends, and says what it was.

#include <memory>
#include <utility>

#include "tests/rpc/probe.h"

namespace hawser {
namespace {

class MisuseDeathTest : public testing::Test {
 protected:
  MisuseDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  TestServer server_;
  std::shared_ptr<Channel> channel_ = server_.Connect();
};

constexpr char kSent[] = "Send\\(\\) or Attach\\(\\) on a Call that was sent";
constexpr char kTaken[] = "twice on one PendingCall.*Probe.act";

TEST_F(MisuseDeathTest, ACallIsSentOnce) {
  auto call = probe::ProbeStub(channel_).Act();
  auto pending = call.Send();
  EXPECT_DEATH(call.Send(), kSent);
  EXPECT_DEATH(call.Attach(Buffer()), kSent);
}

TEST_F(MisuseDeathTest, ACallThatWasMovedFromIsNotSent) {
  auto call = probe::ProbeStub(channel_).Act();
  auto moved = std::move(call);
  EXPECT_DEATH(call.Send(), kSent);
}

TEST_F(MisuseDeathTest, AResultIsTakenOnce) {
  auto pending = SendAct(channel_, 1);
  EXPECT_TRUE(pending.Wait().ok());
  EXPECT_DEATH((void)pending.Wait(), kTaken);
  EXPECT_DEATH(pending.Then([](auto) {}), kTaken);
}

TEST_F(MisuseDeathTest, AResultThatACallbackTakesIsNotWaitedFor) {
  auto pending = SendAct(channel_, 1);
  pending.Then([](auto) {});
  EXPECT_DEATH((void)pending.Wait(), kTaken);
}

TEST_F(MisuseDeathTest, APendingCallThatWasMovedFromIsNotWaitedFor) {
  auto pending = SendAct(channel_, 1);
  auto moved = std::move(pending);
  EXPECT_DEATH((void)pending.Wait(), "twice on one PendingCall, or on one that was moved from");
}

TEST_F(MisuseDeathTest, AStubNeedsAChannel) {
  probe::ProbeStub stub(nullptr);
  EXPECT_DEATH(stub.Act(), "a stub without a channel was called.*Probe.act");
}

}  // namespace
}  // namespace hawser
