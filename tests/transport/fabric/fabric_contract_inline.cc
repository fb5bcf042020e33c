// SENDs that are copied when they are posted.
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/contract_suites.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

HAWSER_SUITE(SmallSendTest);
class InlineSendTest : public FabricContract {};
HAWSER_INSTANTIATE(InlineSendTest, Where(&FabricUnderTest::posts_inline));

// Where the side that posts hears what became of it.
class FailedInlineSendTest : public FabricContract {
 protected:
  // Some devices call it by another name.
  void ExpectWhy(Endpoint& endpoint, const char* status) const {
    const std::string why(endpoint.news().why.message());
    const char* const text = shortcomings().codes_are_not_exact ? "a SEND that was copied failed" : status;
    EXPECT_THAT(why, HasSubstr(text));
    // A NIC flushes before the handler is notified, so the reason can be asked for.
    if (GetParam().real_addresses) {
      EXPECT_THAT(std::string(endpoint.qp().why_ended().message()), HasSubstr(text));
    }
  }
  void ExpectRefused(const Completion& completion, uint64_t wr_id) const {
    EXPECT_EQ(completion.wr_id, wr_id);
    if (shortcomings().codes_are_not_exact) {
      EXPECT_NE(completion.status, kSuccess);
    } else {
      EXPECT_EQ(completion.status, CompletionStatus::kRemoteInvalidRequest);
    }
  }
};
HAWSER_INSTANTIATE(FailedInlineSendTest, Without(&FabricUnderTest::Shortcomings::requester_is_not_told,
                                                 Where(&FabricUnderTest::posts_inline)));

// From memory that is not registered, and that holds something else when this returns.
bool PostInline(Endpoint& endpoint, absl::string_view text) {
  std::string memory(text);
  const bool posted =
      endpoint.qp().PostInline({reinterpret_cast<const uint8_t*>(memory.data()), memory.size()});
  memory.assign(memory.size(), '?');
  return posted;
}

TEST_P(InlineSendTest, MemoryIsFreeAtOnceAndNothingCompletes) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(b.Receive(1, b.At(100, 100)), IsOk());
  ASSERT_TRUE(PostInline(a, "hello"));
  a.qp().RingDoorbell();
  HAWSER_UNTIL(world_, b.receives.size() == 1);
  EXPECT_THAT(b.receives[0], CompletionIs(1, kSuccess));
  EXPECT_EQ(b.receives[0].byte_len, 5u);
  EXPECT_EQ(b.Text(100, 5), "hello");
  world_.PollSome();
  EXPECT_TRUE(a.sends.empty());
  world_.ExpectEverythingComesBack(a);
}

TEST_P(InlineSendTest, TheAcceptingSidePostsInlineToo) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(a.Receive(1, a.At(0, 100)), IsOk());
  ASSERT_TRUE(PostInline(b, "back"));
  b.qp().RingDoorbell();
  HAWSER_UNTIL(world_, a.receives.size() == 1);
  EXPECT_EQ(a.Text(0, 4), "back");
}

TEST_P(InlineSendTest, WaitsForTheDoorbell) {
  auto [a, b] = world_.Connect();
  for (uint32_t i = 0; i < 2; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  ASSERT_TRUE(PostInline(a, "one"));
  ASSERT_TRUE(PostInline(a, "two"));
  world_.PollSome();
  EXPECT_TRUE(b.receives.empty());
  a.qp().RingDoorbell();
  HAWSER_UNTIL(world_, b.receives.size() == 2);
  EXPECT_EQ(b.Text(0, 3), "one");
  EXPECT_EQ(b.Text(100, 3), "two");
}

TEST_P(InlineSendTest, PostSendRingsTheDoorbell) {
  auto [a, b] = world_.Connect();
  for (uint32_t i = 0; i < 2; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  ASSERT_TRUE(PostInline(a, "one"));
  a.Fill(0, "two");
  ASSERT_THAT(a.Send(2, a.At(0, 3)), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 2 && a.sends.size() == 1);
  EXPECT_EQ(b.Text(0, 3), "one");
  EXPECT_EQ(b.Text(100, 3), "two");
  EXPECT_THAT(a.sends[0], CompletionIs(2, kSuccess));
}

TEST_P(InlineSendTest, TakesNoPlaceInTheSendQueue) {
  auto [a, b] = world_.Connect({.send_depth = 1, .receive_depth = 32});
  for (uint32_t i = 0; i < 32; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  for (uint32_t i = 0; i < 31;) {
    if (PostInline(a, absl::StrCat("message ", i))) ++i;
    a.qp().RingDoorbell();
    world_.PollSome(1);
  }
  a.Fill(0, "last");
  ASSERT_THAT(a.Send(1, a.At(0, 4)), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 32 && a.sends.size() == 1);
  EXPECT_EQ(b.Text(3000, 10), "message 30");
  EXPECT_EQ(b.Text(3100, 4), "last");
}

// Copied ones may be in the queue of the device when the caller wants all of it, and is told of the last
// only.
TEST_P(InlineSendTest, CopiedOnesLeaveAllPlacesToTheCaller) {
  for (uint32_t depth : {1u, 2u, 3u, 8u, 40u}) {
    auto [a, b] = world_.Connect({.send_depth = depth, .receive_depth = 2 * depth});
    for (uint32_t i = 0; i < 2 * depth; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 10, 10)), IsOk());
    uint32_t copied = 0;
    while (copied < depth && PostInline(a, "c")) ++copied;
    ASSERT_GT(copied, 0u);
    a.Fill(0, "p");
    for (uint32_t i = 0; i + 1 < depth; ++i) ASSERT_THAT(a.Send(i, a.At(0, 1), false), IsOk());
    ASSERT_THAT(a.Send(depth, a.At(0, 1)), IsOk());
    EXPECT_THAT(a.Send(99, a.At(0, 1)), HasCode(absl::StatusCode::kResourceExhausted));
    HAWSER_UNTIL(world_, a.sends.size() == 1 && b.receives.size() == copied + depth);
    EXPECT_THAT(a.sends[0], CompletionIs(depth, kSuccess));
    for (uint32_t i = 0; i < copied + depth; ++i) EXPECT_EQ(b.Text(i * 10, 1), i < copied ? "c" : "p") << i;
    EXPECT_THAT(a.news().told, ElementsAre("established"));
  }
}

TEST_P(InlineSendTest, WhatIsTooLongOrEmptyIsNotPosted) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
  EXPECT_FALSE(PostInline(a, std::string(64 * 1024, 'x')));
  EXPECT_FALSE(PostInline(a, ""));
  a.qp().RingDoorbell();
  world_.PollSome();
  EXPECT_TRUE(b.receives.empty());
  EXPECT_THAT(a.news().told, ElementsAre("established"));
}

TEST_P(InlineSendTest, WithoutAConnectionNothingIsPosted) {
  Endpoint& idle = world_.NewEndpoint(0);
  EXPECT_FALSE(PostInline(idle, "early"));
  idle.qp().RingDoorbell();
  auto [a, b] = world_.Connect();
  ASSERT_TRUE(PostInline(a, "never sent"));
  a.qp().Disconnect();
  EXPECT_FALSE(PostInline(a, "late"));
  a.qp().RingDoorbell();
  HAWSER_UNTIL(world_, b.news().ended());
  EXPECT_TRUE(b.receives.empty());
}

TEST_P(FailedInlineSendTest, ALongerOneThanItsReceiveEndsTheConnectionWithTheReason) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(a.Receive(7, a.At(0, 100)), IsOk());
  ASSERT_THAT(b.Receive(1, b.At(0, 10)), IsOk());
  ASSERT_TRUE(PostInline(a, "11 letters."));
  ASSERT_THAT(a.Send(2, a.At(200, 6)), IsOk());
  HAWSER_UNTIL(world_, a.news().ended() && a.sends.size() == 1 && a.receives.size() == 1);
  EXPECT_THAT(a.news().told, ElementsAre("established", "disconnected"));
  ExpectWhy(a, "IBV_WC_REM_INV_REQ_ERR");
  EXPECT_THAT(a.sends[0], CompletionIs(2, kFlushed));
  EXPECT_THAT(a.receives[0], CompletionIs(7, kFlushed));
  EXPECT_NE(b.receives[0].status, kSuccess);
}

TEST_P(FailedInlineSendTest, OneThatNeverFindsAReceiveEndsTheConnectionWithTheReason) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(a.Receive(7, a.At(0, 100)), IsOk());
  ASSERT_TRUE(PostInline(a, "for nobody"));
  a.qp().RingDoorbell();
  HAWSER_UNTIL(world_, a.news().ended() && a.receives.size() == 1);
  ExpectWhy(a, "IBV_WC_RNR_RETRY_EXC_ERR");
  EXPECT_THAT(a.receives[0], CompletionIs(7, kFlushed));
}

TEST_P(FailedInlineSendTest, OneBehindARefusedRequestIsLostWithIt) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(b.Receive(1, b.At(0, 10)), IsOk());
  ASSERT_THAT(b.Receive(2, b.At(100, 100)), IsOk());
  ASSERT_THAT(a.Send(1, a.At(0, 11)), IsOk());
  // A fabric that copies nothing behind a SEND that is not sent yet loses this one like any other.
  const bool posted = PostInline(a, "lost");
  if (!posted) {
    ASSERT_THAT(a.Send(2, a.At(100, 4)), IsOk());
  }
  a.qp().RingDoorbell();
  HAWSER_UNTIL(world_, a.sends.size() == (posted ? 1 : 2) && b.receives.size() == 2);
  ExpectRefused(a.sends[0], 1);
  if (!posted) {
    EXPECT_THAT(a.sends[1], CompletionIs(2, kFlushed));
  }
  EXPECT_THAT(b.receives[1], CompletionIs(2, kFlushed));
}

TEST_P(FailedInlineSendTest, OneBehindARefusedOneIsLostWithIt) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(b.Receive(1, b.At(0, 10)), IsOk());
  ASSERT_THAT(b.Receive(2, b.At(100, 100)), IsOk());
  ASSERT_TRUE(PostInline(a, "11 letters."));
  ASSERT_TRUE(PostInline(a, "lost"));
  a.qp().RingDoorbell();
  HAWSER_UNTIL(world_, a.news().ended() && b.receives.size() == 2);
  ExpectWhy(a, "IBV_WC_REM_INV_REQ_ERR");
  EXPECT_TRUE(a.sends.empty());
  EXPECT_THAT(b.receives[1], CompletionIs(2, kFlushed));
}

TEST_P(FailedInlineSendTest, ARefusedRequestBehindCopiedOnesCompletesWithTheReason) {
  auto [a, b] = world_.Connect();
  for (uint32_t i = 0; i < 3; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  ASSERT_THAT(b.Receive(3, b.At(300, 10)), IsOk());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(PostInline(a, "arrives"));
  ASSERT_THAT(a.Send(8, a.At(0, 11)), IsOk());
  ASSERT_THAT(a.Send(9, a.At(100, 6)), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 2 && b.receives.size() == 4);
  ExpectRefused(a.sends[0], 8);
  EXPECT_THAT(a.sends[1], CompletionIs(9, kFlushed));
  for (uint32_t i = 0; i < 3; ++i) EXPECT_THAT(b.receives[i], CompletionIs(i, kSuccess));
}

// A READ beyond the READ depth waits, and what was posted behind it waits with it.
TEST_P(InlineSendTest, OneBehindWorkRequestsThatWaitOvertakesNone) {
  auto [a, b] = world_.Connect({.read_depth = 1});
  const Granted granted = b.Grant(b.At(32 * 1024, 16 * 1024), QueuePair::Access::kRead);
  for (uint32_t i = 0; i < 2; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  for (uint64_t i = 0; i < 3; ++i) ASSERT_THAT(a.Read(i, a.At(32 * 1024, 16 * 1024), granted), IsOk());
  a.Fill(0, "onetwo");
  ASSERT_THAT(a.Send(3, a.At(0, 3)), IsOk());
  const bool posted = PostInline(a, "two");
  if (!posted) {
    ASSERT_THAT(a.Send(4, a.At(3, 3)), IsOk());
  }
  a.qp().RingDoorbell();
  HAWSER_UNTIL(world_, b.receives.size() == 2 && a.sends.size() == (posted ? 4 : 5));
  EXPECT_EQ(b.Text(0, 3), "one");
  EXPECT_EQ(b.Text(100, 3), "two");
}

// Each message acknowledges those before it. What one side has acknowledged it does not take back.
TEST_P(InlineSendTest, TwoSidesAnswerEachOther) {
  constexpr uint32_t kRounds = 40;
  auto [a, b] = world_.Connect({.send_depth = 4, .receive_depth = 2 * kRounds});
  for (uint32_t i = 0; i < 2 * kRounds; ++i) {
    ASSERT_THAT(a.Receive(i, a.At(1000 + i * 100, 100)), IsOk());
    ASSERT_THAT(b.Receive(i, b.At(1000 + i * 100, 100)), IsOk());
  }
  for (uint32_t round = 0; round < kRounds && !HasFatalFailure(); ++round) {
    // A NIC may have some that it has not acknowledged.
    HAWSER_UNTIL(world_, PostInline(a, absl::StrCat("question ", round)));
    a.qp().RingDoorbell();
    HAWSER_UNTIL(world_, b.receives.size() == 2 * round + 1);
    // Asks for an acknowledgement, which goes before the answer that was posted first.
    ASSERT_THAT(a.Send(round, a.At(0, 10)), IsOk());
    HAWSER_UNTIL(world_, PostInline(b, absl::StrCat("answer ", round)));
    HAWSER_UNTIL(world_, a.sends.size() == round + 1);
    b.qp().RingDoorbell();
    HAWSER_UNTIL(world_, a.receives.size() == round + 1);
  }
  EXPECT_EQ(a.Text(1000 + (kRounds - 1) * 100, 9), absl::StrCat("answer ", kRounds - 1));
  EXPECT_THAT(a.news().told, ElementsAre("established"));
  EXPECT_THAT(b.news().told, ElementsAre("established"));
}

// The doorbell may ring while a part of a longer frame is sent. That frame goes on to its end first.
TEST_P(InlineSendTest, WaitsForTheRestOfAnAnswerToARead) {
  constexpr uint32_t kBytes = 512 * 1024;
  auto [a, b] = world_.Connect({}, kBytes + 1024);
  std::memset(b.memory(), 'r', kBytes);
  const Granted granted = b.Grant(b.At(0, kBytes), QueuePair::Access::kRead);
  ASSERT_THAT(a.Receive(1, a.At(kBytes, 100)), IsOk());
  ASSERT_TRUE(PostInline(b, "between"));
  ASSERT_THAT(a.Read(2, a.At(0, kBytes), granted), IsOk());
  // `b` answers until the socket is full, because `a` takes nothing.
  Completion completion;
  for (int i = 0; i < 200; ++i) ASSERT_EQ(world_.completion_queue(1).Poll({&completion, 1}), 0u);
  b.qp().RingDoorbell();
  HAWSER_UNTIL(world_, a.receives.size() == 1 && a.sends.size() == 1);
  EXPECT_THAT(a.receives[0], CompletionIs(1, kSuccess));
  EXPECT_THAT(a.sends[0], CompletionIs(2, kSuccess));
  EXPECT_EQ(a.Text(kBytes, 7), "between");
  EXPECT_EQ(a.Text(0, kBytes), std::string(kBytes, 'r'));
}

// Every fabric does this. For one that never posts inline it shows that PostInline() has posted nothing.
TEST_P(SmallSendTest, GoInOrderWithReadsAndLongerSendsWhicheverWayTheyArePosted) {
  constexpr uint32_t kDepth = 32, kSlot = 2048;
  constexpr uint64_t kMessages = 3000;
  auto [a, b] = world_.Connect({.send_depth = kDepth, .receive_depth = kDepth}, (kDepth + 8) * kSlot);
  const Granted granted = b.Grant(b.At(kDepth * kSlot, 8 * kSlot), QueuePair::Access::kRead);
  const auto post_receive = [&, &b = b](uint64_t i) {
    ASSERT_THAT(b.Receive(i, b.At(i % kDepth * kSlot, kSlot)), IsOk());
  };
  for (uint64_t i = 0; i < kDepth; ++i) post_receive(i);
  uint64_t sent = 0, received = 0, posted = 0;
  while (received < kMessages && !HasFatalFailure()) {
    for (; sent < kMessages && sent - received < kDepth; ++sent) {
      const uint32_t length = sent % 7 == 3 ? 1500 : static_cast<uint32_t>(8 + sent * 13 % 500);
      std::string text(length, static_cast<char>(sent));
      std::memcpy(&text[0], &sent, sizeof(sent));
      if (PostInline(a, text)) {
        if (sent % 5 == 0) a.qp().RingDoorbell();
        continue;
      }
      if (posted - a.sends.size() + 2 > kDepth) break;
      if (sent % 770 == 3) {  // Four in all: no byte is READ more often.
        ASSERT_THAT(a.Read(posted++, a.At(kDepth * kSlot, 5 * kSlot), granted), IsOk());
      }
      const uint64_t place = sent % kDepth * kSlot;
      std::memcpy(a.memory() + place, text.data(), text.size());
      ASSERT_THAT(a.Send(posted++, a.At(place, length)), IsOk());
    }
    a.qp().RingDoorbell();
    const size_t before = b.receives.size(), sends_before = a.sends.size();
    HAWSER_UNTIL(world_, b.receives.size() > before || a.sends.size() > sends_before);
    for (; received < b.receives.size(); ++received) {
      ASSERT_THAT(b.receives[received], CompletionIs(received, kSuccess));
      const std::string text = b.Text(received % kDepth * kSlot, b.receives[received].byte_len);
      ASSERT_EQ(text.size(), received % 7 == 3 ? 1500 : 8 + received * 13 % 500);
      ASSERT_EQ(std::memcmp(text.data(), &received, sizeof(received)), 0);
      ASSERT_EQ(text.find_first_not_of(static_cast<char>(received), sizeof(received)), std::string::npos);
      post_receive(received + kDepth);
    }
  }
  HAWSER_UNTIL(world_, a.sends.size() == posted);
  for (uint64_t i = 0; i < posted; ++i) ASSERT_THAT(a.sends[i], CompletionIs(i, kSuccess));
}

}  // namespace
}  // namespace hawser::fabric
