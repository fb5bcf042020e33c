// Calls that wait for an absent server expire in time, whatever their number.

#include <algorithm>
#include <memory>
#include <string>

#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/test_clock.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

class ExpiryTest : public testing::Test {
 protected:
  static std::string DeadUri() {
    TestServer gone;
    return gone.uri;
  }

  ExpiryTest() {
    EXPECT_TRUE(Eventually([&] {
      poller_.PollOnce();
      return channel_->state() == ChannelState::kTransientFailure;
    }));
  }

  ~ExpiryTest() override {
    channel_.reset();
    DriveToTheEnd(runtime_);
  }

  void Send(absl::Duration timeout) {
    SendAct(channel_, 1, {.timeout = timeout, .wait_for_ready = true}).Then([this](auto reply) {
      EXPECT_THAT(reply.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
      ++expired_;
    });
  }

  transport::TestClock clock_;
  std::shared_ptr<transport::Runtime> runtime_ =
      *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/false, clock_);
  transport::Poller& poller_ = runtime_->poller(0);
  std::shared_ptr<Channel> channel_ = *Channel::Create(
      DeadUri(), {.backoff_min = absl::Hours(24), .backoff_max = absl::Hours(24), .runtime = runtime_});
  int expired_ = 0;
};

TEST_F(ExpiryTest, CallsOfManyDeadlinesExpireInFewTurns) {
  constexpr int kCalls = 20'000, kCallsAStep = 100;
  for (int i = 0; i < kCalls; ++i) {
    // Sends them in another order than they expire.
    Send(absl::Seconds(1) + absl::Microseconds(10) * (i * 7919 % kCalls));
  }
  clock_.Advance(absl::Seconds(1) - absl::Microseconds(10));
  poller_.PollOnce();
  EXPECT_EQ(expired_, 0);
  for (int due = kCallsAStep; due <= kCalls; due += kCallsAStep) {
    clock_.Advance(absl::Microseconds(10) * kCallsAStep);
    for (int turn = 0; turn < 4; ++turn) poller_.PollOnce();
    ASSERT_EQ(expired_, due);
  }
}

TEST_F(ExpiryTest, CallsOfOneDeadlineExpireOverSeveralTurns) {
  constexpr int kCalls = 20'000;
  for (int i = 0; i < kCalls; ++i) Send(absl::Seconds(1));
  clock_.Advance(absl::Seconds(2));
  int turns = 0, in_one_turn = 0;
  for (int before = 0; expired_ < kCalls && turns < 1000; before = expired_, ++turns) {
    poller_.PollOnce();
    clock_.Advance(absl::Nanoseconds(1));
    in_one_turn = std::max(in_one_turn, expired_ - before);
  }
  EXPECT_EQ(expired_, kCalls);
  EXPECT_LE(in_one_turn, 1000) << "what else the poller has to do waits meanwhile";
}

}  // namespace
}  // namespace hawser
