// What fabric.h promises, of every fabric. Nothing below knows which one it runs on: that is in the file that
// defines FabricsUnderTest().

#include "hawser/tests/transport/fabric/fabric_contract.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr CompletionStatus kSuccess = CompletionStatus::kSuccess;
constexpr CompletionStatus kFlushed = CompletionStatus::kFlushed;

class FabricContractTest : public ::testing::TestWithParam<FabricUnderTest> {
 protected:
  const FabricUnderTest::Shortcomings& shortcomings() const { return GetParam().shortcomings; }

  // Waits until `wr_id`, a READ or WRITE, is refused: the `index`th of the sends that come back.
  void ExpectRefused(Endpoint& requester, size_t index, uint64_t wr_id) {
    if (shortcomings().requester_is_not_told) {
      HAWSER_UNTIL(world_, requester.news().ended());
      return;
    }
    HAWSER_UNTIL(world_, requester.sends.size() > index);
    EXPECT_THAT(requester.sends[index], CompletionIs(wr_id, CompletionStatus::kRemoteAccessError));
  }

  FabricWorld world_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Fabrics, FabricContractTest, ::testing::ValuesIn(FabricsUnderTest()),
                         [](const auto& fabric) { return fabric.param.name; });

// Those that have not the shortcoming.
std::vector<FabricUnderTest> Without(bool FabricUnderTest::Shortcomings::*shortcoming) {
  std::vector<FabricUnderTest> all = FabricsUnderTest();
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const FabricUnderTest& one) { return one.shortcomings.*shortcoming; }),
            all.end());
  return all;
}

// What some software devices cannot do is in suites of its own, so that nothing is ever said to have passed
// or to be skipped that was not tried.
#define HAWSER_SUITE_WITHOUT(suite, shortcoming)                                                      \
  class suite : public FabricContractTest {};                                                         \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite);                                               \
  INSTANTIATE_TEST_SUITE_P(Fabrics, suite,                                                            \
                           ::testing::ValuesIn(Without(&FabricUnderTest::Shortcomings::shortcoming)), \
                           [](const auto& fabric) { return fabric.param.name; })

HAWSER_SUITE_WITHOUT(ConfinedGrantTest, grants_are_not_confined);
HAWSER_SUITE_WITHOUT(BoundRkeyTest, rkeys_are_for_everybody);
HAWSER_SUITE_WITHOUT(RnrTest, rnr_is_not_waited_for);
HAWSER_SUITE_WITHOUT(ScatteringReadTest, read_has_one_sge);
HAWSER_SUITE_WITHOUT(RevocationTest, a_read_goes_on_when_revoked);

// Bytes that show where they come from.
void FillPattern(Endpoint& endpoint, uint32_t seed, size_t length = ~size_t{0}) {
  uint32_t state = seed;
  for (size_t i = 0; i < std::min(length, endpoint.memory_bytes()); ++i) {
    state = state * 1664525 + 1013904223;
    endpoint.memory()[i] = static_cast<uint8_t>(state >> 24);
  }
}

std::vector<uint8_t> Snapshot(Endpoint& endpoint) {
  return std::vector<uint8_t>(endpoint.memory(), endpoint.memory() + endpoint.memory_bytes());
}

// --- SEND
// ------------------------------------------------------------------------------------------------------------

TEST_P(FabricContractTest, ASendFillsThePostedReceive) {
  auto [a, b] = world_.Connect();
  ASSERT_TRUE(b.Receive(11, b.At(100, 4096)).ok());
  a.Fill(0, "hello");
  ASSERT_TRUE(a.Send(22, a.At(0, 5)).ok());
  HAWSER_UNTIL(world_, a.sends.size() == 1 && b.receives.size() == 1);
  EXPECT_THAT(a.sends[0], CompletionIs(22, kSuccess));
  EXPECT_EQ(a.sends[0].qp_num, a.qp().qp_num());
  EXPECT_EQ(a.sends[0].opcode, Opcode::kSend);
  EXPECT_THAT(b.receives[0], CompletionIs(11, kSuccess));
  EXPECT_EQ(b.receives[0].qp_num, b.qp().qp_num());
  EXPECT_EQ(b.receives[0].byte_len, 5u);
  EXPECT_EQ(b.Text(100, 5), "hello");
}

TEST_P(FabricContractTest, TheAcceptingSideSendsToo) {
  auto [a, b] = world_.Connect();
  ASSERT_TRUE(a.Receive(1, a.At(0, 100)).ok());
  b.Fill(0, "back");
  ASSERT_TRUE(b.Send(2, b.At(0, 4)).ok());
  HAWSER_UNTIL(world_, b.sends.size() == 1 && a.receives.size() == 1);
  EXPECT_EQ(a.Text(0, 4), "back");
}

TEST_P(FabricContractTest, ASendGathersItsSegmentsInOrder) {
  auto [a, b] = world_.Connect();
  ASSERT_TRUE(b.Receive(1, b.At(0, 32 * 1024)).ok());
  FillPattern(a, 1);
  const Sge sges[kSgeMax] = {a.At(9000, 1),   a.At(0, 3000),     a.At(5000, 17),
                             a.At(4000, 600), a.At(20000, 9000), a.At(3, 5)};
  std::string expected;
  for (const Sge& sge : sges) expected.append(reinterpret_cast<char*>(sge.address), sge.length);
  const SendWorkRequest request = {.wr_id = 1, .signaled = true, .sges = sges};
  ASSERT_TRUE(a.qp().PostSend({&request, 1}).ok());
  HAWSER_UNTIL(world_, b.receives.size() == 1);
  EXPECT_EQ(b.receives[0].byte_len, expected.size());
  EXPECT_TRUE(b.Text(0, expected.size()) == expected);
  HAWSER_UNTIL(world_, a.sends.size() == 1);
}

TEST_P(FabricContractTest, SendsArriveInPostingOrderWhole) {
  constexpr uint32_t kDepth = 16, kSlot = 2048;
  constexpr uint64_t kMessages = 2000;
  auto [a, b] = world_.Connect({.send_depth = kDepth, .receive_depth = kDepth});
  const auto post_receive = [&, &b = b](uint64_t i) {
    ASSERT_TRUE(b.Receive(i, b.At(i % kDepth * kSlot, kSlot)).ok());
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
      ASSERT_TRUE(a.Send(sent, a.At(offset, length_of(sent)), /*signaled=*/sent % 4 == 3).ok());
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

TEST_P(FabricContractTest, CompletionsOfOneSendQueueComeInPostingOrderWhateverTheyAre) {
  auto [a, b] = world_.Connect({.send_depth = 32, .receive_depth = 32}, 1 << 20);
  const uint32_t readable = b.Grant(b.At(0, 1 << 19), QueuePair::Access::kRead);
  const uint32_t writable = b.Grant(b.At(1 << 19, 1 << 18), QueuePair::Access::kWrite);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(b.Receive(i, b.At(900000 + i * 100, 100)).ok());
  for (uint64_t i = 0; i < 24; i += 3) {
    ASSERT_TRUE(a.Read(i, a.At(0, 200000), b.memory(), readable).ok());
    ASSERT_TRUE(a.Send(i + 1, a.At(500000, 100)).ok());
    ASSERT_TRUE(a.Write(i + 2, a.At(600000, 70000), b.memory() + (1 << 19), writable).ok());
  }
  HAWSER_UNTIL(world_, a.sends.size() == 24);
  for (uint64_t i = 0; i < 24; ++i) EXPECT_THAT(a.sends[i], CompletionIs(i, kSuccess));
}

TEST_P(FabricContractTest, AnUnsignaledSendIsProvedByALaterSignaledOne) {
  auto [a, b] = world_.Connect({.send_depth = 4, .receive_depth = 16});
  for (uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(b.Receive(i, b.At(i * 100, 100)).ok());
  for (uint64_t round = 0; round < 4; ++round) {
    for (uint64_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(a.Send(round * 4 + i, a.At(0, 10), /*signaled=*/i == 3).ok());
    }
    EXPECT_THAT(a.Send(99, a.At(0, 10)), HasCode(absl::StatusCode::kResourceExhausted));
    HAWSER_UNTIL(world_, a.sends.size() == round + 1);
    EXPECT_THAT(a.sends.back(), CompletionIs(round * 4 + 3, kSuccess));
  }
}

TEST_P(FabricContractTest, UnsignaledSendsAloneFillTheQueueForGood) {
  auto [a, b] = world_.Connect({.send_depth = 4, .receive_depth = 8});
  for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(b.Receive(i, b.At(i * 100, 100)).ok());
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(a.Send(i, a.At(0, 10), /*signaled=*/false).ok());
  HAWSER_UNTIL(world_, b.receives.size() == 4);
  world_.PollSome();
  EXPECT_TRUE(a.sends.empty());
  EXPECT_THAT(a.Send(4, a.At(0, 10)), HasCode(absl::StatusCode::kResourceExhausted));
}

TEST_P(FabricContractTest, AChainThatDoesNotFitPostsNothing) {
  auto [a, b] = world_.Connect({.send_depth = 4, .receive_depth = 4});
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(b.Receive(i, b.At(i * 100, 100)).ok());
  const Sge sge = a.At(0, 10);
  const SendWorkRequest request = {.wr_id = 1, .signaled = true, .sges = {&sge, 1}};
  const std::vector<SendWorkRequest> chain(5, request);
  EXPECT_THAT(a.qp().PostSend(chain), HasCode(absl::StatusCode::kResourceExhausted));
  world_.PollSome();
  EXPECT_TRUE(b.receives.empty());
  EXPECT_TRUE(a.qp().PostSend(absl::MakeSpan(chain).subspan(1)).ok());
  HAWSER_UNTIL(world_, b.receives.size() == 4 && a.sends.size() == 4);
}

TEST_P(FabricContractTest, AFullReceiveQueueRefusesMore) {
  Endpoint& a = world_.NewEndpoint(0, {.receive_depth = 2});
  EXPECT_TRUE(a.Receive(1, a.At(0, 10)).ok());
  EXPECT_TRUE(a.Receive(2, a.At(0, 10)).ok());
  EXPECT_THAT(a.Receive(3, a.At(0, 10)), HasCode(absl::StatusCode::kResourceExhausted));
}

TEST_P(RnrTest, ASendWaitsALittleForAReceive) {
  auto [a, b] = world_.Connect();
  a.Fill(0, "early and late");
  ASSERT_TRUE(a.Send(1, a.At(0, 5)).ok());
  ASSERT_TRUE(a.Send(2, a.At(6, 8)).ok());
  world_.PollSome(20);
  EXPECT_TRUE(a.sends.empty());
  ASSERT_TRUE(b.Receive(1, b.At(0, 100)).ok());
  ASSERT_TRUE(b.Receive(2, b.At(100, 100)).ok());
  HAWSER_UNTIL(world_, a.sends.size() == 2 && b.receives.size() == 2);
  EXPECT_THAT(a.sends[1], CompletionIs(2, kSuccess));
  EXPECT_EQ(b.Text(0, 5), "early");
  EXPECT_EQ(b.Text(100, 8), "and late");
}

TEST_P(RnrTest, ASendThatNeverFindsAReceiveExceedsItsRetries) {
  auto [a, b] = world_.Connect();
  ASSERT_TRUE(a.Receive(5, a.At(0, 100)).ok());
  ASSERT_TRUE(a.Send(1, a.At(0, 10)).ok());
  ASSERT_TRUE(a.Send(2, a.At(0, 10)).ok());
  HAWSER_UNTIL(world_, a.sends.size() == 2 && a.receives.size() == 1);
  EXPECT_THAT(a.sends[0], CompletionIs(1, CompletionStatus::kRnrRetryExceeded));
  EXPECT_THAT(a.sends[1], CompletionIs(2, kFlushed));
  EXPECT_THAT(a.receives[0], CompletionIs(5, kFlushed));
  a.qp().Disconnect();
  HAWSER_UNTIL(world_, b.news().ended());
  EXPECT_THAT(b.news().told, ElementsAre("established", "disconnected"));
}

TEST_P(FabricContractTest, ASendLongerThanItsReceivePutsBothSidesInError) {
  auto [a, b] = world_.Connect();
  FillPattern(b, 2);
  const std::vector<uint8_t> before = Snapshot(b);
  ASSERT_TRUE(b.Receive(1, b.At(0, 100)).ok());
  ASSERT_TRUE(b.Receive(2, b.At(1000, 100)).ok());
  ASSERT_TRUE(a.Send(1, a.At(0, 101)).ok());
  ASSERT_TRUE(a.Send(2, a.At(0, 10)).ok());
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
// ----------------------------------------------------------------------------------

TEST_P(FabricContractTest, AnSgeOutsideItsRegionIsRefusedBeforePosting) {
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
    EXPECT_THAT(a.qp().Grant(sge, QueuePair::Access::kRead).status(),
                HasCode(absl::StatusCode::kInvalidArgument));
  }
  ASSERT_TRUE(b.Receive(1, b.At(0, static_cast<uint32_t>(b.memory_bytes()))).ok());
  EXPECT_TRUE(a.Send(1, whole).ok());  // None of them did any harm.
  HAWSER_UNTIL(world_, a.sends.size() == 1 && b.receives.size() == 1);
}

TEST_P(FabricContractTest, TheLkeyOfADeregisteredRegionIsRefused) {
  Endpoint& a = world_.NewEndpoint(0);
  std::vector<uint8_t> memory(100);
  std::unique_ptr<MemoryRegion> region = world_.fabric().Register(memory.data(), memory.size()).value();
  const Sge sge = {memory.data(), 100, region->lkey()};
  EXPECT_TRUE(a.Receive(1, sge).ok());
  world_.ExpectEverythingComesBack(a);
  region.reset();
  Endpoint& later = world_.NewEndpoint(0);
  EXPECT_THAT(later.Receive(1, sge), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_P(FabricContractTest, AWorkRequestHasOneToSixSges) {
  auto [a, b] = world_.Connect();
  const std::vector<Sge> sges(kSgeMax + 1, a.At(0, 1));
  SendWorkRequest request = {.wr_id = 1, .signaled = true, .sges = sges};
  EXPECT_THAT(a.qp().PostSend({&request, 1}), HasCode(absl::StatusCode::kInvalidArgument));
  request.sges = {};
  EXPECT_THAT(a.qp().PostSend({&request, 1}), HasCode(absl::StatusCode::kInvalidArgument));
  world_.PollSome();
  EXPECT_TRUE(a.sends.empty());
}

TEST_P(FabricContractTest, PostingNeedsAConnectionThatIsWell) {
  Endpoint& idle = world_.NewEndpoint(0);
  EXPECT_THAT(idle.Send(1, idle.At(0, 1)), HasCode(absl::StatusCode::kFailedPrecondition));
  auto [a, b] = world_.Connect();
  a.qp().Disconnect();
  EXPECT_THAT(a.Send(1, a.At(0, 1)), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(a.Receive(1, a.At(0, 1)), HasCode(absl::StatusCode::kFailedPrecondition));
}

// --- READ and WRITE
// --------------------------------------------------------------------------------------------------

TEST_P(FabricContractTest, AReadBringsExactlyTheBytesAskedFor) {
  constexpr size_t kMax = 16 << 20;
  auto [a, b] = world_.Connect({}, kMax + 64);
  FillPattern(b, 3);
  const uint32_t rkey = b.Grant(b.At(0, static_cast<uint32_t>(b.memory_bytes())), QueuePair::Access::kRead);
  uint64_t wr_id = 0;
  for (uint32_t length : {1u, 2u, 23u, 24u, 25u, 511u, 512u, 513u, 4096u, 65535u, 65536u, 65537u, 131071u,
                          131072u, 131073u, 1u << 20, (3u << 20) + 1, uint32_t{kMax}}) {
    FillPattern(a, length, std::min(length + 64, 100000u));
    const uint8_t before = a.memory()[6], after = a.memory()[7 + length];
    ASSERT_TRUE(a.Read(++wr_id, a.At(7, length), b.memory() + 13, rkey).ok());
    HAWSER_UNTIL(world_, a.sends.size() == wr_id);
    ASSERT_THAT(a.sends.back(), CompletionIs(wr_id, kSuccess));
    ASSERT_EQ(std::memcmp(a.memory() + 7, b.memory() + 13, length), 0) << length;
    ASSERT_EQ(a.memory()[6], before);
    ASSERT_EQ(a.memory()[7 + length], after);
  }
}

TEST_P(ScatteringReadTest, AReadScattersOverItsSegments) {
  auto [a, b] = world_.Connect({}, 1 << 20);
  FillPattern(b, 4);
  const uint32_t rkey = b.Grant(b.At(0, 1 << 20), QueuePair::Access::kRead);
  const Sge sges[] = {a.At(500000, 3), a.At(0, 200000), a.At(300000, 1), a.At(600000, 131072)};
  const SendWorkRequest request = {.wr_id = 1,
                                   .opcode = Opcode::kRead,
                                   .signaled = true,
                                   .sges = sges,
                                   .remote_address = reinterpret_cast<uint64_t>(b.memory()),
                                   .rkey = rkey};
  ASSERT_TRUE(a.qp().PostSend({&request, 1}).ok());
  HAWSER_UNTIL(world_, a.sends.size() == 1);
  const uint8_t* source = b.memory();
  for (const Sge& sge : sges) {
    EXPECT_EQ(std::memcmp(sge.address, source, sge.length), 0);
    source += sge.length;
  }
}

TEST_P(FabricContractTest, ReadsBeyondTheReadDepthWaitTheirTurn) {
  auto [a, b] = world_.Connect({.send_depth = 32, .receive_depth = 32, .read_depth = 3}, 1 << 20);
  FillPattern(b, 5);
  const uint32_t rkey = b.Grant(b.At(0, 1 << 20), QueuePair::Access::kRead);
  constexpr uint32_t kLength = 50000;
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(a.Read(i, a.At(i * kLength, kLength), b.memory() + i * kLength, rkey).ok());
  }
  HAWSER_UNTIL(world_, a.sends.size() == 20);
  for (uint64_t i = 0; i < 20; ++i) ASSERT_THAT(a.sends[i], CompletionIs(i, kSuccess));
  EXPECT_EQ(std::memcmp(a.memory(), b.memory(), 20 * kLength), 0);
}

TEST_P(FabricContractTest, SendsBothWaysGoOnDuringOutstandingReads) {
  constexpr uint32_t kReads = 4, kBytes = 2 << 20;
  auto [a, b] =
      world_.Connect({.send_depth = 128, .receive_depth = 128, .read_depth = kReads}, (kReads + 1) * kBytes);
  FillPattern(b, 6);
  const uint32_t rkey = b.Grant(b.At(0, kReads * kBytes), QueuePair::Access::kRead);
  const uint8_t* const there = b.memory();
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(a.Receive(i, a.At(kReads * kBytes + i * 1000, 1000)).ok());
    ASSERT_TRUE(b.Receive(i, b.At(kReads * kBytes + i * 1000, 1000)).ok());
  }
  for (uint64_t i = 0; i < kReads; ++i) {
    ASSERT_TRUE(a.Read(i, a.At(i * kBytes, kBytes), there + i * kBytes, rkey).ok());
  }
  a.Fill(kReads * kBytes + 100000, "ping");
  b.Fill(kReads * kBytes + 100000, "pong");
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(a.Send(100 + i, a.At(kReads * kBytes + 100000, 4)).ok());
    ASSERT_TRUE(b.Send(100 + i, b.At(kReads * kBytes + 100000, 4)).ok());
    world_.PollOnce();
  }
  HAWSER_UNTIL(world_, a.sends.size() == kReads + 50 && b.sends.size() == 50 && a.receives.size() == 50 &&
                           b.receives.size() == 50);
  EXPECT_EQ(std::memcmp(a.memory(), b.memory(), kReads * kBytes), 0);
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(a.Text(kReads * kBytes + i * 1000, 4), "pong");
    EXPECT_EQ(b.Text(kReads * kBytes + i * 1000, 4), "ping");
  }
}

TEST_P(FabricContractTest, AWriteIsVisibleOnceALaterSendWasReceived) {
  auto [a, b] = world_.Connect({}, 4 << 20);
  FillPattern(a, 7);
  const uint32_t rkey = b.Grant(b.At(100, 3 << 20), QueuePair::Access::kWrite);
  size_t received = 0;
  for (uint32_t length : {1u, 100u, 512u, 513u, 70000u, 3u << 20}) {
    std::memset(b.memory(), 0, b.memory_bytes());
    ASSERT_TRUE(b.Receive(1, b.At(b.memory_bytes() - 10, 10)).ok());
    ASSERT_TRUE(a.Write(1, a.At(5, length), b.memory() + 100, rkey, /*signaled=*/false).ok());
    ASSERT_TRUE(a.Send(2, a.At(0, 1)).ok());
    ++received;
    HAWSER_UNTIL(world_, b.receives.size() == received);
    ASSERT_EQ(std::memcmp(b.memory() + 100, a.memory() + 5, length), 0) << length;
    ASSERT_EQ(b.memory()[99], 0);
    ASSERT_EQ(b.memory()[100 + length], 0);
    HAWSER_UNTIL(world_, a.sends.size() == received);
  }
}

// What is wrong with a READ or WRITE, as seen from what was granted: [1000, 2000) of the memory.
struct BadAccess {
  const char* name;
  int64_t offset;  // From the start of what was granted.
  uint32_t length;
};
constexpr BadAccess kBadAccesses[] = {
    {"one byte too far", 0, 1001},  {"one byte too early", -1, 10}, {"behind the end", 1000, 1},
    {"across the end", 999, 2},     {"before the start", -10, 10},  {"round the address space", -1001, 1000},
    {"in another page", 4096, 100},
};

TEST_P(ConfinedGrantTest, AReadOutsideItsGrantFailsTheRequesterAndChangesNothing) {
  for (const BadAccess& bad : kBadAccesses) {
    SCOPED_TRACE(bad.name);
    auto [a, b] = world_.Connect();
    FillPattern(a, 8);
    const std::vector<uint8_t> before = Snapshot(a);
    const uint32_t rkey = b.Grant(b.At(1000, 1000), QueuePair::Access::kRead);
    ASSERT_TRUE(b.Receive(3, b.At(0, 100)).ok());
    ASSERT_TRUE(a.Read(1, a.At(0, bad.length), b.memory() + 1000 + bad.offset, rkey).ok());
    ASSERT_TRUE(a.Send(2, a.At(0, 1)).ok());
    ExpectRefused(a, 0, 1);
    if (!shortcomings().requester_is_not_told) {
      HAWSER_UNTIL(world_, a.sends.size() == 2 && b.receives.size() == 1);
      EXPECT_THAT(a.sends[1], CompletionIs(2, kFlushed));
      EXPECT_THAT(b.receives[0], CompletionIs(3, kFlushed));
    }
    HAWSER_UNTIL(world_, b.receives.size() == 1);
    EXPECT_EQ(Snapshot(a), before);
    EXPECT_THAT(b.Send(9, b.At(0, 1)), HasCode(absl::StatusCode::kFailedPrecondition));
  }
}

TEST_P(ConfinedGrantTest, AWriteOutsideItsGrantFailsTheRequesterAndChangesNothing) {
  for (const BadAccess& bad : kBadAccesses) {
    SCOPED_TRACE(bad.name);
    auto [a, b] = world_.Connect();
    FillPattern(a, 9);
    FillPattern(b, 10);
    const std::vector<uint8_t> before = Snapshot(b);
    const uint32_t rkey = b.Grant(b.At(1000, 1000), QueuePair::Access::kWrite);
    ASSERT_TRUE(b.Receive(3, b.At(0, 100)).ok());
    ASSERT_TRUE(a.Write(1, a.At(0, bad.length), b.memory() + 1000 + bad.offset, rkey).ok());
    ExpectRefused(a, 0, 1);
    HAWSER_UNTIL(world_, b.receives.size() == 1);
    EXPECT_THAT(b.receives[0], CompletionIs(3, kFlushed));
    EXPECT_EQ(Snapshot(b), before);
  }
}

TEST_P(BoundRkeyTest, AnRkeyOfAnotherQueuePairIsRefused) {
  auto [a, b] = world_.Connect();
  auto [c, d] = world_.Connect();
  const uint32_t rkey = d.Grant(d.At(0, 1000), QueuePair::Access::kRead);  // For c, not for a.
  ASSERT_TRUE(a.Read(1, a.At(0, 10), d.memory(), rkey).ok());
  HAWSER_UNTIL(world_, a.sends.size() == 1);
  EXPECT_THAT(a.sends[0], CompletionIs(1, CompletionStatus::kRemoteAccessError));
  ASSERT_TRUE(c.Read(1, c.At(0, 10), d.memory(), rkey).ok());
  HAWSER_UNTIL(world_, c.sends.size() == 1);
  EXPECT_THAT(c.sends[0], CompletionIs(1, kSuccess));
}

TEST_P(FabricContractTest, ARevokedRkeyIsRefused) {
  auto [a, b] = world_.Connect();
  const uint32_t revoked = b.Grant(b.At(0, 1000), QueuePair::Access::kWrite);
  ASSERT_TRUE(a.Write(1, a.At(0, 10), b.memory(), revoked).ok());
  HAWSER_UNTIL(world_, a.sends.size() == 1);
  b.Revoke(1, revoked);
  HAWSER_UNTIL(world_, b.revocations.size() == 1);
  EXPECT_THAT(b.revocations[0], CompletionIs(1, kSuccess));
  const uint32_t granted = b.Grant(b.At(0, 1000), QueuePair::Access::kWrite);
  EXPECT_NE(granted, revoked);
  ASSERT_TRUE(a.Write(2, a.At(0, 10), b.memory(), granted).ok());
  HAWSER_UNTIL(world_, a.sends.size() == 2);
  EXPECT_THAT(a.sends[1], CompletionIs(2, kSuccess));
  FillPattern(b, 11);
  const std::vector<uint8_t> before = Snapshot(b);
  ASSERT_TRUE(a.Write(3, a.At(0, 10), b.memory(), revoked).ok());
  ExpectRefused(a, 2, 3);
  EXPECT_EQ(Snapshot(b), before);
}

TEST_P(FabricContractTest, AGrantIsForReadingOrForWritingNotForBoth) {
  {
    auto [a, b] = world_.Connect();
    const uint32_t rkey = b.Grant(b.At(0, 1000), QueuePair::Access::kRead);
    ASSERT_TRUE(a.Write(1, a.At(0, 10), b.memory(), rkey).ok());
    ExpectRefused(a, 0, 1);
  }
  auto [a, b] = world_.Connect();
  ASSERT_TRUE(a.Read(1, a.At(0, 10), b.memory(), 0).ok());  // 0 is never an rkey.
  ExpectRefused(a, 0, 1);
}

TEST_P(FabricContractTest, AsManyGrantsAsSendsArePossibleAtOnce) {
  auto [a, b] = world_.Connect({.send_depth = 24});
  std::vector<uint32_t> rkeys;
  for (uint32_t i = 0; i < 24; ++i) {
    rkeys.push_back(b.qp().Grant(b.At(i * 100, 100), QueuePair::Access::kRead).value());
  }
  EXPECT_THAT(rkeys, ::testing::Not(::testing::Contains(0u)));
  std::sort(rkeys.begin(), rkeys.end());
  EXPECT_EQ(std::unique(rkeys.begin(), rkeys.end()), rkeys.end());
  b.Revoke(1, rkeys[3]);
  HAWSER_UNTIL(world_, b.revocations.size() == 1);
  EXPECT_TRUE(b.qp().Grant(b.At(0, 10), QueuePair::Access::kWrite).ok());
}

TEST_P(FabricContractTest, WithoutAPeerNothingIsGranted) {
  Endpoint& idle = world_.NewEndpoint(0);
  EXPECT_THAT(idle.qp().Grant(idle.At(0, 10), QueuePair::Access::kRead).status(),
              HasCode(absl::StatusCode::kFailedPrecondition));
  auto [a, b] = world_.Connect();
  b.qp().Disconnect();
  EXPECT_THAT(b.qp().Grant(b.At(0, 10), QueuePair::Access::kRead).status(),
              HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_P(ConfinedGrantTest, AReadBeforeARefusedRequestSucceeds) {
  auto [a, b] = world_.Connect({}, 4 << 20);
  FillPattern(b, 12);
  const uint32_t rkey = b.Grant(b.At(0, 3 << 20), QueuePair::Access::kRead);
  ASSERT_TRUE(a.Read(1, a.At(0, 3 << 20), b.memory(), rkey).ok());
  ASSERT_TRUE(a.Read(2, a.At(0, 10), b.memory() + (3 << 20), rkey).ok());
  ASSERT_TRUE(a.Read(3, a.At(0, 10), b.memory(), rkey).ok());
  HAWSER_UNTIL(world_, !a.sends.empty());
  EXPECT_THAT(a.sends[0], CompletionIs(1, kSuccess));
  ExpectRefused(a, 1, 2);
  HAWSER_UNTIL(world_, a.sends.size() == 3);
  EXPECT_THAT(a.sends[2], CompletionIs(3, kFlushed));
  EXPECT_EQ(std::memcmp(a.memory(), b.memory(), 3 << 20), 0);
}

TEST_P(FabricContractTest, ARevocationTakesNoPlaceOfTheSendQueueAndComesBackAfterTheEndToo) {
  auto [a, b] = world_.Connect({.send_depth = 4});
  std::vector<uint32_t> rkeys;
  for (uint32_t i = 0; i < 4; ++i) {
    rkeys.push_back(b.qp().Grant(b.At(i * 100, 100), QueuePair::Access::kRead).value());
  }
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(a.Receive(i, a.At(1000 + 100 * i, 100)).ok());
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(b.Send(i, b.At(0, 100), /*signaled=*/i == 3).ok());
  b.Revoke(10, rkeys[0]);
  b.Revoke(11, rkeys[1]);
  HAWSER_UNTIL(world_, b.revocations.size() == 2 && b.sends.size() == 1);
  b.Revoke(12, rkeys[2]);
  b.qp().Disconnect();
  b.Revoke(13, rkeys[3]);
  b.sends_posted = 1;  // Those that were not signaled do not come back.
  world_.ExpectEverythingComesBack(b);
  std::vector<uint64_t> wr_ids;
  for (const Completion& completion : b.revocations) wr_ids.push_back(completion.wr_id);
  EXPECT_THAT(wr_ids, ::testing::UnorderedElementsAre(10, 11, 12, 13));
}

TEST_P(RevocationTest, WhatIsRevokedWhileItIsReadIsReadWholeOrNotAtAll) {
  auto [a, b] = world_.Connect({}, 16 << 20);
  FillPattern(b, 13);
  const std::vector<uint8_t> before = Snapshot(b);
  const uint32_t rkey = b.Grant(b.At(0, 16 << 20), QueuePair::Access::kRead);
  ASSERT_TRUE(a.Read(1, a.At(0, 16 << 20), b.memory(), rkey).ok());
  world_.PollOnce();
  b.Revoke(1, rkey);
  HAWSER_UNTIL(world_, b.revocations.size() == 1);
  std::memset(b.memory(), 0, b.memory_bytes());
  // Never a success with bytes from after the revocation.
  HAWSER_UNTIL(world_, a.sends.size() == 1 || a.news().ended());
  world_.ExpectEverythingComesBack(a);
  EXPECT_TRUE(a.sends[0].status != kSuccess || Snapshot(a) == before);
}

// --- Connecting
// ------------------------------------------------------------------------------------------------------

TEST_P(FabricContractTest, BothSidesAreEstablishedAndKnowEachOther) {
  auto [a, b] = world_.Connect();
  EXPECT_THAT(a.news().told, ElementsAre("established"));
  EXPECT_THAT(b.news().told, ElementsAre("established"));
  EXPECT_NE(a.qp().qp_num(), b.qp().qp_num());
  EXPECT_EQ(a.qp().peer_address().ToString(), world_.listener().address().ToString());
  EXPECT_EQ(b.qp().local_address().ToString(), world_.listener().address().ToString());
  EXPECT_EQ(a.qp().local_address().ToString(), b.qp().peer_address().ToString());
}

TEST_P(FabricContractTest, ConnectComesFromTheAddressThatItWasGiven) {
  SocketAddress local = world_.listener().address();  // Of this host, so a peer can come from it, too.
  local.set_port(0);
  Endpoint& a = world_.NewEndpoint(0, {.local_address = local});
  Endpoint& b = world_.NewEndpoint(1);
  world_.Connect(a, b);
  SocketAddress seen = b.qp().peer_address();
  EXPECT_NE(seen.port(), 0);
  EXPECT_EQ(a.qp().local_address().ToString(), seen.ToString());
  seen.set_port(0);
  EXPECT_EQ(seen.ToString(), local.ToString());
}

// One that no host has: 192.0.2.1 and 2001:db8::1 are for documentation (RFC 5737, 3849).
SocketAddress NobodysAddress(int family) {
  if (family == AF_INET) {
    sockaddr_in v4 = {};
    v4.sin_family = AF_INET;
    inet_pton(AF_INET, "192.0.2.1", &v4.sin_addr);
    return SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
  }
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  inet_pton(AF_INET6, "2001:db8::1", &v6.sin6_addr);
  return SocketAddress(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6));
}

TEST_P(FabricContractTest, ConnectFromAnAddressThatThisHostHasNotFails) {
  const SocketAddress local = NobodysAddress(world_.listener().address().family());
  Endpoint& a = world_.NewEndpoint(0, {.local_address = local});
  ASSERT_THAT(a.qp().Connect(world_.listener().address(), ""), HasCode(absl::StatusCode::kOk));
  HAWSER_UNTIL(world_, a.news().ended());
  EXPECT_THAT(a.news().told, ElementsAre("failed"));
  EXPECT_THAT(a.news().why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(a.news().why.message()),
              AllOf(HasSubstr(local.ToString()), HasSubstr("no interface of this machine")));
}

TEST_P(FabricContractTest, ConnectFromAnAddressOfTheOtherFamilyIsRefused) {
  const int family = world_.listener().address().family();
  Endpoint& a =
      world_.NewEndpoint(0, {.local_address = NobodysAddress(family == AF_INET ? AF_INET6 : AF_INET)});
  EXPECT_THAT(a.qp().Connect(world_.listener().address(), ""), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_P(FabricContractTest, TheReadDepthIsTheMinimumOfBoth) {
  Endpoint& a = world_.NewEndpoint(0, {.read_depth = 5});
  Endpoint& b = world_.NewEndpoint(1, {.read_depth = 3});
  world_.Connect(a, b);
  EXPECT_EQ(a.qp().read_depth(), 3u);
  EXPECT_EQ(b.qp().read_depth(), 3u);
}

TEST_P(FabricContractTest, PrivateDataOfEverySizeCrosses) {
  for (size_t size : {size_t{0}, size_t{1}, kConnectPrivateDataMax}) {
    for (size_t accept_size : {size_t{0}, size_t{1}, kAcceptPrivateDataMax}) {
      const std::string asked(size, 'c'), accepted(accept_size, 'a');
      Endpoint& a = world_.NewEndpoint(0);
      Endpoint& b = world_.NewEndpoint(1);
      ASSERT_TRUE(a.qp().Connect(world_.listener().address(), asked).ok());
      HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
      EXPECT_THAT(std::string(world_.requests().requests[0]->private_data()), StartsWith(asked));
      ASSERT_TRUE(b.qp().Accept(std::move(world_.requests().requests[0]), accepted).ok());
      world_.requests().requests.clear();
      HAWSER_UNTIL(world_, a.news().established() && b.news().established());
      EXPECT_THAT(a.news().accept_data, StartsWith(accepted));
      EXPECT_EQ(b.news().accept_data, "");
    }
  }
}

TEST_P(FabricContractTest, PrivateDataThatIsTooLongIsRefused) {
  Endpoint& a = world_.NewEndpoint(0);
  const std::string too_long(kConnectPrivateDataMax + 1, 'c');
  EXPECT_THAT(a.qp().Connect(world_.listener().address(), too_long),
              HasCode(absl::StatusCode::kInvalidArgument));
  ASSERT_TRUE(a.qp().Connect(world_.listener().address(), "").ok());
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
  Endpoint& b = world_.NewEndpoint(1);
  EXPECT_THAT(
      b.qp().Accept(std::move(world_.requests().requests[0]), std::string(kAcceptPrivateDataMax + 1, 'a')),
      HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_P(FabricContractTest, RejectingGivesTheReasonToTheRequester) {
  for (size_t size : {size_t{0}, size_t{1}, kRejectPrivateDataMax}) {
    const std::string reason(size, 'r');
    Endpoint& a = world_.NewEndpoint(0);
    ASSERT_TRUE(a.Receive(1, a.At(0, 10)).ok());
    ASSERT_TRUE(a.qp().Connect(world_.listener().address(), "").ok());
    HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
    world_.requests().requests[0]->Reject(reason);
    world_.requests().requests.clear();
    HAWSER_UNTIL(world_, a.news().ended());
    EXPECT_THAT(a.news().told, ElementsAre("failed"));
    EXPECT_THAT(a.news().why, HasCode(absl::StatusCode::kPermissionDenied));
    EXPECT_THAT(a.news().reject_data, StartsWith(shortcomings().rejections_say_nothing ? "" : reason));
    world_.ExpectEverythingComesBack(a);
    EXPECT_THAT(a.receives, ElementsAre(CompletionIs(1, kFlushed)));
  }
}

TEST_P(FabricContractTest, ARequestThatIsDroppedIsRejected) {
  Endpoint& a = world_.NewEndpoint(0);
  ASSERT_TRUE(a.qp().Connect(world_.listener().address(), "").ok());
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
  world_.requests().requests.clear();
  HAWSER_UNTIL(world_, a.news().ended());
  EXPECT_THAT(a.news().why, HasCode(absl::StatusCode::kPermissionDenied));
}

TEST_P(FabricContractTest, ConnectingWhereNobodyListensFails) {
  const SocketAddress nobody = world_.listener().address();
  world_.CloseListener();
  Endpoint& a = world_.NewEndpoint(0);
  ASSERT_TRUE(a.Receive(1, a.At(0, 10)).ok());
  ASSERT_TRUE(a.qp().Connect(nobody, "").ok());
  HAWSER_UNTIL(world_, a.news().ended());
  EXPECT_THAT(a.news().told, ElementsAre("failed"));
  EXPECT_THAT(a.news().why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(a.news().why.message()), HasSubstr(nobody.ToString()));
  world_.ExpectEverythingComesBack(a);
}

TEST_P(FabricContractTest, ReceivesPostedBeforeConnectingAreUsed) {
  Endpoint& a = world_.NewEndpoint(0);
  Endpoint& b = world_.NewEndpoint(1);
  ASSERT_TRUE(b.Receive(1, b.At(0, 10)).ok());
  world_.Connect(a, b);
  ASSERT_TRUE(a.Send(1, a.At(0, 10)).ok());
  HAWSER_UNTIL(world_, b.receives.size() == 1);
  EXPECT_THAT(b.receives[0], CompletionIs(1, kSuccess));
}

TEST_P(FabricContractTest, ARequestCanBeAcceptedOnAnotherCompletionQueue) {
  Endpoint& a = world_.NewEndpoint(0);
  Endpoint& b = world_.NewEndpoint(0);  // The listener is on 1.
  world_.Connect(a, b);
  ASSERT_TRUE(b.Receive(1, b.At(0, 10)).ok());
  ASSERT_TRUE(a.Send(1, a.At(0, 10)).ok());
  HAWSER_UNTIL(world_, a.sends.size() == 1 && b.receives.size() == 1);
}

TEST_P(FabricContractTest, APendingRequestOutlivesItsListener) {
  Endpoint& a = world_.NewEndpoint(0);
  Endpoint& b = world_.NewEndpoint(1);
  ASSERT_TRUE(a.qp().Connect(world_.listener().address(), "").ok());
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
  world_.CloseListener();
  ASSERT_TRUE(b.qp().Accept(std::move(world_.requests().requests[0]), "").ok());
  HAWSER_UNTIL(world_, a.news().established() && b.news().established());
}

TEST_P(FabricContractTest, AnAddressInUseCannotBeListenedOn) {
  RequestRecorder requests;
  EXPECT_NE(world_.listener().address().port(), 0);
  EXPECT_THAT(
      world_.fabric().Listen(world_.completion_queue(), world_.listener().address(), requests).status(),
      HasCode(absl::StatusCode::kAlreadyExists));
}

// --- Ending
// ----------------------------------------------------------------------------------------------------------

TEST_P(FabricContractTest, DisconnectingBringsEverythingBackOnBothSides) {
  auto [a, b] = world_.Connect({.send_depth = 8, .receive_depth = 8});
  for (uint64_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(a.Receive(i, a.At(0, 10)).ok());
    if (i > 0) {
      ASSERT_TRUE(b.Receive(i, b.At(0, 10)).ok());
    }
  }
  ASSERT_TRUE(b.Send(1, b.At(0, 10)).ok());
  HAWSER_UNTIL(world_, b.sends.size() == 1 && a.receives.size() == 1);
  ASSERT_TRUE(a.Send(1, a.At(0, 10)).ok());
  a.qp().Disconnect();
  a.qp().Disconnect();  // Once more does no harm.
  world_.ExpectEverythingComesBack(a);
  EXPECT_THAT(a.receives.back(), CompletionIs(7, kFlushed));
  for (size_t i = 1; i < a.receives.size(); ++i) EXPECT_THAT(a.receives[i], CompletionIs(i, kFlushed));
  EXPECT_THAT(a.news().told, ElementsAre("established"));  // Who disconnects hears nothing more.
  HAWSER_UNTIL(world_, b.news().ended());
  EXPECT_THAT(b.news().told, ElementsAre("established", "disconnected"));
  EXPECT_THAT(b.news().why, HasCode(absl::StatusCode::kUnavailable));
  world_.ExpectEverythingComesBack(b);
  EXPECT_THAT(b.receives.back(), CompletionIs(7, kFlushed));
}

TEST_P(FabricContractTest, FlushedWorkComesBackHoweverFewArePolledAtOnce) {
  const bool sends_may_end_it = shortcomings().rnr_is_not_waited_for;
  auto [a, b] = world_.Connect({.send_depth = 64, .receive_depth = 64});
  for (uint64_t i = 0; i < 64; ++i) ASSERT_TRUE(a.Receive(i, a.At(0, 10)).ok());
  size_t posted = 64;
  for (uint64_t i = 0; i < 64; ++i) {
    // Without RNR a SEND may succeed before the end, and then an unsignaled one never says so; and the end
    // may come before the last is posted.
    const absl::Status status = a.Send(i, a.At(0, 10), /*signaled=*/sends_may_end_it);
    ASSERT_TRUE(status.ok() || (sends_may_end_it && i > 0)) << status;
    if (status.ok()) ++posted;
  }
  a.qp().Disconnect();
  Completion one;
  size_t count = 0;
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (count < posted && absl::Now() < deadline) count += a.completion_queue().Poll({&one, 1});
  for (int i = 0; i < 1000; ++i) count += a.completion_queue().Poll({&one, 1});
  EXPECT_EQ(count, posted);
}

TEST_P(FabricContractTest, HandlersAreCalledWhenNoCompletionIsAskedFor) {
  Endpoint& a = world_.NewEndpoint(0);
  ASSERT_TRUE(a.qp().Connect(world_.listener().address(), "").ok());
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (world_.requests().requests.empty() && absl::Now() < deadline) {
    world_.completion_queue(0).Poll({});
    world_.completion_queue(1).Poll({});
  }
  ASSERT_EQ(world_.requests().requests.size(), 1u);
  world_.requests().requests.clear();
  while (!a.news().ended() && absl::Now() < deadline) world_.completion_queue(0).Poll({});
  EXPECT_TRUE(a.news().ended());
}

TEST_P(FabricContractTest, DisconnectEndsEveryStage) {
  // Before anything.
  Endpoint& idle = world_.NewEndpoint(0);
  ASSERT_TRUE(idle.Receive(1, idle.At(0, 10)).ok());
  world_.ExpectEverythingComesBack(idle);
  EXPECT_TRUE(idle.news().told.empty());

  // Right after Connect().
  Endpoint& connecting = world_.NewEndpoint(0);
  ASSERT_TRUE(connecting.Receive(1, connecting.At(0, 10)).ok());
  ASSERT_TRUE(connecting.qp().Connect(world_.listener().address(), "").ok());
  world_.ExpectEverythingComesBack(connecting);
  EXPECT_TRUE(connecting.news().told.empty());
  world_.PollSome();
  world_.requests().requests.clear();

  // When the peer has heard of it: then accepting may fail at once or later, but it ends.
  Endpoint& asking = world_.NewEndpoint(0);
  ASSERT_TRUE(asking.qp().Connect(world_.listener().address(), "").ok());
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
  asking.qp().Disconnect();
  world_.PollSome();
  Endpoint& accepting = world_.NewEndpoint(1);
  if (accepting.qp().Accept(std::move(world_.requests().requests[0]), "").ok()) {
    HAWSER_UNTIL(world_, accepting.news().ended());
  }
  EXPECT_TRUE(asking.news().told.empty());

  // When it is accepted, but nobody was told yet.
  Endpoint& a = world_.NewEndpoint(0);
  Endpoint& b = world_.NewEndpoint(1);
  world_.requests().requests.clear();
  ASSERT_TRUE(a.qp().Connect(world_.listener().address(), "").ok());
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
  ASSERT_TRUE(b.qp().Accept(std::move(world_.requests().requests[0]), "").ok());
  b.qp().Disconnect();
  HAWSER_UNTIL(world_, a.news().ended());
  EXPECT_TRUE(b.news().told.empty());
}

TEST_P(FabricContractTest, NoHandlerIsCalledAfterItsQueuePairIsGone) {
  for (int polls : {0, 1, 2, 5}) {
    auto handler = std::make_unique<NewsRecorder>();
    std::unique_ptr<QueuePair> qp =
        world_.fabric().CreateQueuePair(world_.completion_queue(0), {}, *handler).value();
    ASSERT_TRUE(qp->Connect(world_.listener().address(), "").ok());
    world_.PollSome(polls);
    qp->Disconnect();
    qp.reset();
    handler.reset();  // A late call would be seen by AddressSanitizer.
    world_.PollSome();
  }
  world_.requests().requests.clear();
}

TEST_P(FabricContractTest, WhatArrivedBeforeTheEndIsStillReceived) {
  auto [a, b] = world_.Connect({.send_depth = 32, .receive_depth = 32});
  for (uint64_t i = 0; i < 32; ++i) ASSERT_TRUE(b.Receive(i, b.At(i * 100, 100)).ok());
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(a.Send(i, a.At(0, 100)).ok());
  HAWSER_UNTIL(world_, a.sends.size() == 20);  // So the peer's receive queue took them all.
  a.qp().Disconnect();
  HAWSER_UNTIL(world_, b.news().ended());
  world_.ExpectEverythingComesBack(b);
  for (uint64_t i = 0; i < 32; ++i) EXPECT_THAT(b.receives[i], CompletionIs(i, i < 20 ? kSuccess : kFlushed));
}

// --- Completion queues
// -----------------------------------------------------------------------------------------------

TEST_P(FabricContractTest, ManyConnectionsShareACompletionQueue) {
  const size_t connections = shortcomings().connections_max;
  std::vector<FabricWorld::Pair> pairs;
  for (size_t i = 0; i < connections; ++i) {
    pairs.push_back(world_.Connect({.send_depth = 4, .receive_depth = 4, .read_depth = 1}, 4096));
    ASSERT_TRUE(pairs[i].b.Receive(i, pairs[i].b.At(0, 100)).ok());
    ASSERT_TRUE(pairs[i].a.Receive(i, pairs[i].a.At(0, 100)).ok());
    pairs[i].a.Fill(200, absl::StrCat("to ", 1000 + i));
    pairs[i].b.Fill(200, absl::StrCat("of ", 1000 + i));
  }
  for (size_t i = 0; i < connections; ++i) {
    ASSERT_TRUE(pairs[i].a.Send(i, pairs[i].a.At(200, 7)).ok());
    ASSERT_TRUE(pairs[i].b.Send(i, pairs[i].b.At(200, 7)).ok());
  }
  for (size_t i = 0; i < connections; ++i) {
    HAWSER_UNTIL(world_, pairs[i].a.receives.size() == 1 && pairs[i].b.receives.size() == 1 &&
                             pairs[i].a.sends.size() == 1 && pairs[i].b.sends.size() == 1);
    EXPECT_EQ(pairs[i].b.Text(0, 7), absl::StrCat("to ", 1000 + i));
    EXPECT_EQ(pairs[i].a.Text(0, 7), absl::StrCat("of ", 1000 + i));
  }
}

TEST_P(FabricContractTest, WakeEndsTheNextWait) {
  world_.completion_queue().Wake();
  world_.completion_queue().Wake();
  world_.completion_queue().Wait(absl::InfiniteDuration());
}

TEST_P(FabricContractTest, WakeEndsAWaitThatSleeps) {
  std::atomic<int> rounds = 0;
  std::thread sleeper([&] {
    for (int i = 0; i < 100; ++i) {
      world_.completion_queue().Wait(absl::InfiniteDuration());
      rounds.fetch_add(1);
    }
  });
  while (rounds.load() < 100) world_.completion_queue().Wake();
  sleeper.join();
}

TEST_P(FabricContractTest, WaitEndsWhenItsTimeIsOver) {
  const absl::Time start = absl::Now();
  // May return early for no reason: hence the loop.
  while (absl::Now() - start < absl::Milliseconds(2)) world_.completion_queue().Wait(absl::Milliseconds(2));
}

// One thread for each side, which sleeps when there is nothing to do.
TEST_P(FabricContractTest, TwoThreadsPlayPingPongAsleepInBetween) {
  constexpr uint64_t kRounds = 2000;
  auto [a, b] = world_.Connect();
  const auto play = [](Endpoint& me, bool starts) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    uint64_t sent = 0, received = 0;
    const auto send = [&] {
      ASSERT_TRUE(me.Send(sent, me.At(0, 64), /*signaled=*/sent % 16 == 15).ok());
      ++sent;
    };
    if (starts) send();
    while (received < kRounds) {
      ASSERT_LT(absl::Now(), deadline);
      Completion completions[8];
      const size_t count = me.completion_queue().Poll(absl::MakeSpan(completions));
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(completions[i].status, kSuccess);
        if (completions[i].opcode != Opcode::kReceive) continue;
        ++received;
        ASSERT_TRUE(me.Receive(received, me.At(1000, 64)).ok());
        if (sent < kRounds) send();
      }
      if (count == 0) me.completion_queue().Wait(absl::Seconds(1));
    }
  };
  for (Endpoint* side : {&a, &b}) {
    ASSERT_TRUE(side->Receive(0, side->At(1000, 64)).ok());
    ASSERT_TRUE(side->Receive(0, side->At(1000, 64)).ok());
  }
  std::thread other([&, &b = b] { play(b, /*starts=*/false); });
  play(a, /*starts=*/true);
  other.join();
}

// Whoever waits may drive: one thread polls while another sleeps on the same completion queue.
TEST_P(FabricContractTest, OneThreadPollsWhileAnotherWaits) {
  auto [a, b] = world_.Connect();
  std::atomic<bool> stop = false;
  std::thread sleeper([&, &b = b] {
    while (!stop.load()) b.completion_queue().Wait(absl::Milliseconds(100));
  });
  for (uint64_t i = 0; i < 500 && !HasFatalFailure(); ++i) {
    ASSERT_TRUE(b.Receive(i, b.At(0, 100)).ok());
    ASSERT_TRUE(a.Send(i, a.At(0, 100)).ok());
    HAWSER_UNTIL(world_, a.sends.size() == i + 1 && b.receives.size() == i + 1);
  }
  stop.store(true);
  b.completion_queue().Wake();
  sleeper.join();
}

TEST_P(FabricContractTest, AnArrivalWakesWhoeverSleepsWithoutLosingTheCompletion) {
  auto [a, b] = world_.Connect();
  ASSERT_TRUE(b.Receive(1, b.At(0, 100)).ok());
  ASSERT_TRUE(a.Send(1, a.At(0, 100)).ok());
  Completion completion;
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  size_t count = 0;
  while (count == 0 && absl::Now() < deadline) {
    b.completion_queue().Wait(absl::Seconds(20));
    count = b.completion_queue().Poll({&completion, 1});
  }
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(completion.opcode, Opcode::kReceive);
}

TEST_P(FabricContractTest, FlushesWakeWhoeverSleeps) {
  auto [a, b] = world_.Connect();
  ASSERT_TRUE(b.Receive(1, b.At(0, 100)).ok());
  world_.PollSome(10);
  std::thread sleeper([&, &b = b] { b.completion_queue().Wait(absl::InfiniteDuration()); });
  b.qp().Disconnect();
  sleeper.join();  // Now or later: it must not sleep over what only Poll() can bring.
  world_.ExpectEverythingComesBack(b);
}

// --- Memory
// ----------------------------------------------------------------------------------------------------------

TEST_P(FabricContractTest, MemoryIsRegisteredFromAnyThreadMeanwhile) {
  auto [a, b] = world_.Connect();
  std::atomic<bool> stop = false;
  std::thread registrar([&] {
    std::vector<uint8_t> memory(4096);
    while (!stop.load()) {
      std::vector<std::unique_ptr<MemoryRegion>> regions;
      for (int i = 0; i < 20; ++i)
        regions.push_back(world_.fabric().Register(memory.data(), memory.size()).value());
    }
  });
  for (uint64_t i = 0; i < 500 && !HasFatalFailure(); ++i) {
    ASSERT_TRUE(b.Receive(i, b.At(0, 100)).ok());
    ASSERT_TRUE(a.Send(i, a.At(0, 100)).ok());
    HAWSER_UNTIL(world_, a.sends.size() == i + 1 && b.receives.size() == i + 1);
  }
  stop.store(true);
  registrar.join();
}

}  // namespace
}  // namespace hawser::fabric
