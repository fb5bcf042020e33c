// SENDs and receives, and what is refused before it is posted.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/contract_suites.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::Not;

HAWSER_SUITE(SendContractTest);
HAWSER_SUITE_WITHOUT(RnrTest, rnr_is_not_waited_for);
class WaitingSendTest : public FabricContract {};
HAWSER_INSTANTIATE(WaitingSendTest, Where(&FabricUnderTest::sends_can_wait));

TEST_P(SendContractTest, ASendFillsThePostedReceive) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(b.Receive(11, b.At(100, 4096)), IsOk());
  a.Fill(0, "hello");
  ASSERT_THAT(a.Send(22, a.At(0, 5)), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 1 && b.receives.size() == 1);
  EXPECT_THAT(a.sends[0], CompletionIs(22, kSuccess));
  EXPECT_EQ(a.sends[0].qp_num, a.qp().qp_num());
  EXPECT_EQ(a.sends[0].opcode, Opcode::kSend);
  EXPECT_THAT(b.receives[0], CompletionIs(11, kSuccess));
  EXPECT_EQ(b.receives[0].qp_num, b.qp().qp_num());
  EXPECT_EQ(b.receives[0].byte_len, 5u);
  EXPECT_EQ(b.Text(100, 5), "hello");
}

TEST_P(SendContractTest, TheAcceptingSideSendsToo) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(a.Receive(1, a.At(0, 100)), IsOk());
  b.Fill(0, "back");
  ASSERT_THAT(b.Send(2, b.At(0, 4)), IsOk());
  HAWSER_UNTIL(world_, b.sends.size() == 1 && a.receives.size() == 1);
  EXPECT_EQ(a.Text(0, 4), "back");
}

TEST_P(SendContractTest, ASendGathersItsSegmentsInOrder) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(b.Receive(1, b.At(0, 32 * 1024)), IsOk());
  FillPattern(a, 1);
  const Sge all[kSgeMax] = {a.At(9000, 1),   a.At(0, 3000),     a.At(5000, 17),
                            a.At(4000, 600), a.At(20000, 9000), a.At(3, 5)};
  const absl::Span<const Sge> sges = absl::MakeConstSpan(all).first(world_.fabric().sge_max());
  std::string expected;
  for (const Sge& sge : sges) expected.append(reinterpret_cast<char*>(sge.address), sge.length);
  const SendWorkRequest request = {.wr_id = 1, .signaled = true, .sges = sges};
  ASSERT_THAT(a.qp().PostSend({&request, 1}), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 1);
  EXPECT_EQ(b.receives[0].byte_len, expected.size());
  EXPECT_TRUE(b.Text(0, expected.size()) == expected);
  HAWSER_UNTIL(world_, a.sends.size() == 1);
}

TEST_P(SendContractTest, SendsArriveInPostingOrderWhole) {
  constexpr uint32_t kDepth = 16, kSlot = 2048;
  constexpr uint64_t kMessages = 2000;
  auto [a, b] = world_.Connect({.send_depth = kDepth, .receive_depth = kDepth});
  const auto post_receive = [&, &b = b](uint64_t i) {
    ASSERT_THAT(b.Receive(i, b.At(i % kDepth * kSlot, kSlot)), IsOk());
  };
  const auto length_of = [](uint64_t i) {
    return static_cast<uint32_t>(sizeof(i) + i * 7919 % (kSlot - sizeof(i)));
  };
  for (uint64_t i = 0; i < kDepth; ++i) post_receive(i);
  uint64_t sent = 0, received = 0;
  while (received < kMessages && !HasFatalFailure()) {
    // At most kDepth are under way that were not received, so that a receive is always posted.
    for (; sent < kMessages && sent - received < kDepth && sent - a.sends.size() * 4 < kDepth; ++sent) {
      const size_t offset = sent % kDepth * kSlot;
      std::memset(a.memory() + offset, static_cast<int>(sent), length_of(sent));
      std::memcpy(a.memory() + offset, &sent, sizeof(sent));
      ASSERT_THAT(a.Send(sent, a.At(offset, length_of(sent)), /*signaled=*/sent % 4 == 3), IsOk());
    }
    const size_t before = b.receives.size();
    HAWSER_UNTIL(world_, b.receives.size() > before || (sent < kMessages && received + kDepth > sent &&
                                                        a.sends.size() * 4 + kDepth > sent));
    for (; received < b.receives.size(); ++received) {
      ASSERT_THAT(b.receives[received], CompletionIs(received, kSuccess));
      ASSERT_EQ(b.receives[received].byte_len, length_of(received));
      const std::string text = b.Text(received % kDepth * kSlot, length_of(received));
      ASSERT_EQ(std::memcmp(text.data(), &received, sizeof(received)), 0);
      ASSERT_EQ(text.find_first_not_of(static_cast<char>(received), sizeof(received)), std::string::npos);
      post_receive(received + kDepth);
    }
  }
  HAWSER_UNTIL(world_, a.sends.size() == kMessages / 4);
  for (uint64_t i = 0; i < a.sends.size(); ++i) ASSERT_THAT(a.sends[i], CompletionIs(4 * i + 3, kSuccess));
}

TEST_P(SendContractTest, CompletionsOfOneSendQueueComeInPostingOrderWhateverTheyAre) {
  auto [a, b] = world_.Connect({.send_depth = 32, .receive_depth = 32}, 1 << 20);
  const Granted readable = b.Grant(b.At(0, 1 << 19), QueuePair::Access::kRead);
  const Granted writable = b.Grant(b.At(1 << 19, 1 << 18), QueuePair::Access::kWrite);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_THAT(b.Receive(i, b.At(900000 + i * 100, 100)), IsOk());
  for (uint64_t i = 0; i < 24; i += 3) {
    ASSERT_THAT(a.Read(i, a.At(0, 200000), readable), IsOk());
    ASSERT_THAT(a.Send(i + 1, a.At(500000, 100)), IsOk());
    ASSERT_THAT(a.Write(i + 2, a.At(600000, 70000), writable), IsOk());
  }
  HAWSER_UNTIL(world_, a.sends.size() == 24);
  for (uint64_t i = 0; i < 24; ++i) EXPECT_THAT(a.sends[i], CompletionIs(i, kSuccess));
}

TEST_P(SendContractTest, AnUnsignaledSendIsProvedByALaterSignaledOne) {
  auto [a, b] = world_.Connect({.send_depth = 4, .receive_depth = 16});
  for (uint64_t i = 0; i < 16; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  for (uint64_t round = 0; round < 4; ++round) {
    for (uint64_t i = 0; i < 4; ++i) {
      ASSERT_THAT(a.Send(round * 4 + i, a.At(0, 10), /*signaled=*/i == 3), IsOk());
    }
    EXPECT_THAT(a.Send(99, a.At(0, 10)), HasCode(absl::StatusCode::kResourceExhausted));
    HAWSER_UNTIL(world_, a.sends.size() == round + 1);
    EXPECT_THAT(a.sends.back(), CompletionIs(round * 4 + 3, kSuccess));
  }
}

TEST_P(SendContractTest, UnsignaledSendsAloneFillTheQueueForGood) {
  auto [a, b] = world_.Connect({.send_depth = 4, .receive_depth = 8});
  for (uint64_t i = 0; i < 8; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  for (uint64_t i = 0; i < 4; ++i) ASSERT_THAT(a.Send(i, a.At(0, 10), /*signaled=*/false), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 4);
  world_.PollSome();
  EXPECT_TRUE(a.sends.empty());
  EXPECT_THAT(a.Send(4, a.At(0, 10)), HasCode(absl::StatusCode::kResourceExhausted));
}

TEST_P(SendContractTest, AChainThatDoesNotFitPostsNothing) {
  auto [a, b] = world_.Connect({.send_depth = 4, .receive_depth = 4});
  for (uint64_t i = 0; i < 4; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  const Sge sge = a.At(0, 10);
  const SendWorkRequest request = {.wr_id = 1, .signaled = true, .sges = {&sge, 1}};
  const std::vector<SendWorkRequest> chain(5, request);
  EXPECT_THAT(a.qp().PostSend(chain), HasCode(absl::StatusCode::kResourceExhausted));
  world_.PollSome();
  EXPECT_TRUE(b.receives.empty());
  EXPECT_THAT(a.qp().PostSend(absl::MakeSpan(chain).subspan(1)), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 4 && a.sends.size() == 4);
}

TEST_P(SendContractTest, AFullReceiveQueueRefusesMore) {
  Endpoint& a = world_.NewEndpoint(0, {.receive_depth = 2});
  EXPECT_THAT(a.Receive(1, a.At(0, 10)), IsOk());
  EXPECT_THAT(a.Receive(2, a.At(0, 10)), IsOk());
  EXPECT_THAT(a.Receive(3, a.At(0, 10)), HasCode(absl::StatusCode::kResourceExhausted));
}

TEST_P(RnrTest, ASendWaitsALittleForAReceive) {
  // On a machine that stands still for long enough the retries pass.
  for (int left = 5; left > 0; --left) {
    auto [a, b] = world_.Connect();
    a.Fill(0, "early and late");
    ASSERT_THAT(a.Send(1, a.At(0, 5)), IsOk());
    ASSERT_THAT(a.Send(2, a.At(6, 8)), IsOk());
    world_.PollSome(20);
    if (!a.sends.empty() && left > 1) continue;
    EXPECT_TRUE(a.sends.empty());
    ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
    ASSERT_THAT(b.Receive(2, b.At(100, 100)), IsOk());
    HAWSER_UNTIL(world_, a.sends.size() == 2);
    if (a.sends[0].status == CompletionStatus::kRnrRetryExceeded && left > 1) continue;
    HAWSER_UNTIL(world_, b.receives.size() == 2);
    EXPECT_THAT(a.sends[1], CompletionIs(2, kSuccess));
    EXPECT_EQ(b.Text(0, 5), "early");
    EXPECT_EQ(b.Text(100, 8), "and late");
    return;
  }
}

TEST_P(RnrTest, ASendThatNeverFindsAReceiveExceedsItsRetries) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(a.Receive(5, a.At(0, 100)), IsOk());
  const absl::Time start = absl::Now();
  ASSERT_THAT(a.Send(1, a.At(0, 10)), IsOk());
  ASSERT_THAT(a.Send(2, a.At(0, 10)), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 2 && a.receives.size() == 1);
  // 7 tries, about 1 ms apart. With the connection manager's own RNR timer they are 655 ms apart: 3.9 s at
  // least.
  EXPECT_LT(absl::Now() - start, absl::Seconds(3));
  EXPECT_THAT(a.sends[0], CompletionIs(1, CompletionStatus::kRnrRetryExceeded));
  EXPECT_THAT(a.sends[1], CompletionIs(2, kFlushed));
  EXPECT_THAT(a.receives[0], CompletionIs(5, kFlushed));
  a.qp().Disconnect();
  HAWSER_UNTIL(world_, b.news().ended());
  EXPECT_THAT(b.news().told, ElementsAre("established", "disconnected"));
}

TEST_P(WaitingSendTest, TheFabricSaysThatSendsCanWait) { EXPECT_TRUE(world_.fabric().sends_can_wait()); }

TEST_P(WaitingSendTest, ASendWaitsForAReceiveLongerThanRnrWould) {
  auto [a, b] = world_.Connect({.sends_wait = true});
  a.Fill(0, "one and two");
  ASSERT_THAT(a.Send(1, a.At(0, 3)), IsOk());
  ASSERT_THAT(a.Send(2, a.At(8, 3)), IsOk());
  // Longer than the retries of any of these fabrics.
  const absl::Time start = absl::Now();
  while (absl::Now() - start < absl::Milliseconds(600)) world_.PollSome();
  EXPECT_TRUE(a.sends.empty());
  EXPECT_THAT(b.news().told, ElementsAre("established"));
  ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 1 && a.sends.size() == 1);
  ASSERT_THAT(b.Receive(2, b.At(100, 100)), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 2 && a.sends.size() == 2);
  EXPECT_EQ(b.Text(0, 3), "one");
  EXPECT_EQ(b.Text(100, 3), "two");
}

// One receive at a time: each arrival finds the sender's next one, or what was sent meanwhile, waiting.
TEST_P(WaitingSendTest, WhatIsSentWhileASendWaitsFollowsIt) {
  constexpr uint64_t kMessages = 300;
  constexpr uint32_t kBytes = 1000, kDepth = 16;
  auto [a, b] = world_.Connect({.send_depth = kDepth, .receive_depth = 2, .sends_wait = true});
  uint64_t sent = 0;
  const auto send_more = [&, &a = a] {
    for (; sent < kMessages && sent - a.sends.size() < kDepth; ++sent) {
      const Sge message = a.At(sent % kDepth * kBytes, kBytes);
      std::memcpy(message.address, &sent, sizeof(sent));
      ASSERT_THAT(a.Send(sent, message), IsOk());
    }
  };
  for (uint64_t received = 0; received < kMessages && !HasFatalFailure(); ++received) {
    send_more();
    world_.PollSome(static_cast<int>(received % 3));
    ASSERT_THAT(b.Receive(received, b.At(0, kBytes)), IsOk());
    HAWSER_UNTIL(world_, (send_more(), b.receives.size() == received + 1));
    EXPECT_EQ(std::memcmp(b.memory(), &received, sizeof(received)), 0) << received;
  }
}

TEST_P(WaitingSendTest, AnEndIsHeardBehindASendThatWaited) {
  auto [a, b] = world_.Connect({.sends_wait = true});
  ASSERT_THAT(a.Send(1, a.At(0, 10)), IsOk());
  world_.PollSome();
  ASSERT_THAT(b.Receive(1, b.At(0, 10)), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 1 && a.sends.size() == 1);
  a.qp().Disconnect();
  HAWSER_UNTIL(world_, b.news().ended());
}

TEST_P(WaitingSendTest, WithdrawnReceivesTakeNoSendAndDoNotComeBack) {
  auto [a, b] = world_.Connect({.sends_wait = true});
  for (uint32_t i = 0; i < 4; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  a.Fill(0, "onetwosix");
  ASSERT_THAT(a.Send(1, a.At(0, 3)), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 1);
  uint64_t withdrawn[2];
  ASSERT_EQ(b.qp().WithdrawReceives(absl::MakeSpan(withdrawn)), 2u);
  EXPECT_EQ(static_cast<uint32_t>(withdrawn[0]), 3u);  // The endpoint marks its receives above that.
  EXPECT_EQ(static_cast<uint32_t>(withdrawn[1]), 2u);
  b.receives_posted -= 2;
  ASSERT_THAT(b.Receive(9, b.At(900, 100)), IsOk());
  ASSERT_THAT(a.Send(2, a.At(3, 3)), IsOk());
  ASSERT_THAT(a.Send(3, a.At(6, 3)), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 3);
  EXPECT_EQ(b.Text(0, 3), "one");
  EXPECT_EQ(b.Text(100, 3), "two");
  EXPECT_EQ(b.Text(900, 3), "six");
  EXPECT_THAT(b.receives[1], CompletionIs(1, kSuccess));
  EXPECT_THAT(b.receives[2], CompletionIs(9, kSuccess));
  world_.ExpectEverythingComesBack(b);
}

TEST_P(WaitingSendTest, AReceiveThatASendHasReachedCannotBeWithdrawn) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
  ASSERT_THAT(a.Send(1, a.At(0, 3)), IsOk());
  // The sender hears that it was taken; the receiver has not polled that yet, or has.
  HAWSER_UNTIL(world_, a.sends.size() == 1);
  uint64_t withdrawn[2];
  EXPECT_EQ(b.qp().WithdrawReceives(absl::MakeSpan(withdrawn)), 0u);
  HAWSER_UNTIL(world_, b.receives.size() == 1);
}

TEST_P(WaitingSendTest, NothingCanBeWithdrawnAfterTheEnd) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
  b.qp().Disconnect();
  uint64_t withdrawn[2];
  EXPECT_EQ(b.qp().WithdrawReceives(absl::MakeSpan(withdrawn)), 0u);
  HAWSER_UNTIL(world_, b.receives.size() == 1);
  EXPECT_THAT(b.receives[0], CompletionIs(1, kFlushed));
}

TEST_P(SendContractTest, ASendLongerThanItsReceivePutsBothSidesInError) {
  auto [a, b] = world_.Connect();
  FillPattern(b, 2);
  const std::vector<uint8_t> before = Snapshot(b);
  ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
  ASSERT_THAT(b.Receive(2, b.At(1000, 100)), IsOk());
  ASSERT_THAT(a.Send(1, a.At(0, 101)), IsOk());
  ASSERT_THAT(a.Send(2, a.At(0, 10)), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 2);
  if (shortcomings().requester_is_not_told) a.qp().Disconnect();
  HAWSER_UNTIL(world_, a.sends.size() == 2);
  if (!shortcomings().codes_are_not_exact) {
    EXPECT_THAT(a.sends[0], CompletionIs(1, CompletionStatus::kRemoteInvalidRequest));
  } else if (!shortcomings().requester_is_not_told) {
    EXPECT_NE(a.sends[0].status, kSuccess);
  }
  if (!shortcomings().requester_is_not_told) {
    EXPECT_THAT(a.sends[1], CompletionIs(2, kFlushed));
  }
  EXPECT_NE(b.receives[0].status, kSuccess);
  EXPECT_THAT(b.receives[1], CompletionIs(2, kFlushed));
  EXPECT_EQ(std::memcmp(b.memory() + 100, before.data() + 100, before.size() - 100), 0);
}

// --- What is refused before posting
// -----------------------------------------------------------------------------

TEST_P(SendContractTest, AnSgeOutsideItsRegionIsRefusedBeforePosting) {
  auto [a, b] = world_.Connect();
  const Sge whole = a.At(0, static_cast<uint32_t>(a.memory_bytes()));
  const Sge bad[] = {
      {whole.address + 1, whole.length, whole.lkey},               // One byte too far.
      {whole.address - 1, 2, whole.lkey},                          // One byte too early.
      {whole.address + whole.length, 1, whole.lkey},               // Just behind it.
      {reinterpret_cast<uint8_t*>(~uintptr_t{0}), 2, whole.lkey},  // Wraps round the address space.
      {whole.address, 10, whole.lkey + 1},                         // Somebody else's lkey.
      {whole.address, 10, 0},
      {whole.address, 0, whole.lkey},
  };
  for (const Sge& sge : bad) {
    EXPECT_THAT(a.Send(1, sge), HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(a.Receive(1, sge), HasCode(absl::StatusCode::kInvalidArgument));
    const absl::Status refused = a.qp().Grant(sge, QueuePair::Access::kRead).status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
    // It may reach a peer: neither an address nor what shows one.
    EXPECT_THAT(std::string(refused.message()), Not(ContainsRegex("0x|[0-9]{12}")));
  }
  ASSERT_THAT(b.Receive(1, b.At(0, static_cast<uint32_t>(b.memory_bytes()))), IsOk());
  EXPECT_THAT(a.Send(1, whole), IsOk());  // None of them did any harm.
  HAWSER_UNTIL(world_, a.sends.size() == 1 && b.receives.size() == 1);
}

TEST_P(SendContractTest, TheLkeyOfADeregisteredRegionIsRefused) {
  Endpoint& a = world_.NewEndpoint(0);
  std::vector<uint8_t> memory(100);
  std::unique_ptr<MemoryRegion> region = world_.fabric().Register(memory.data(), memory.size()).value();
  const Sge sge = {memory.data(), 100, region->lkey()};
  EXPECT_THAT(a.Receive(1, sge), IsOk());
  world_.ExpectEverythingComesBack(a);
  region.reset();
  Endpoint& later = world_.NewEndpoint(0);
  EXPECT_THAT(later.Receive(1, sge), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_P(SendContractTest, AWorkRequestHasOneToSixSges) {
  auto [a, b] = world_.Connect();
  const std::vector<Sge> sges(kSgeMax + 1, a.At(0, 1));
  SendWorkRequest request = {.wr_id = 1, .signaled = true, .sges = sges};
  EXPECT_THAT(a.qp().PostSend({&request, 1}), HasCode(absl::StatusCode::kInvalidArgument));
  request.sges = {};
  EXPECT_THAT(a.qp().PostSend({&request, 1}), HasCode(absl::StatusCode::kInvalidArgument));
  world_.PollSome();
  EXPECT_TRUE(a.sends.empty());
}

TEST_P(SendContractTest, PostingNeedsAConnectionThatIsWell) {
  Endpoint& idle = world_.NewEndpoint(0);
  EXPECT_THAT(idle.Send(1, idle.At(0, 1)), HasCode(absl::StatusCode::kFailedPrecondition));
  auto [a, b] = world_.Connect();
  a.qp().Disconnect();
  EXPECT_THAT(a.Send(1, a.At(0, 1)), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(a.Receive(1, a.At(0, 1)), HasCode(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace hawser::fabric
