// Atomics on the memory of a peer, and grants of several rights.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/contract_suites.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {
namespace {

using Access = QueuePair::Access;

class AtomicContractTest : public FabricContract {};
HAWSER_INSTANTIATE(AtomicContractTest, Where(&FabricUnderTest::atomics));

class NoAtomicsTest : public FabricContract {};
HAWSER_INSTANTIATE(NoAtomicsTest, WhereNot(&FabricUnderTest::atomics));

HAWSER_SUITE(SeveralRightsTest);
HAWSER_SUITE_WITHOUT(WholeWordsTest, a_read_may_cut_a_word);

// One word of the endpoint's memory.
uint64_t Word(Endpoint& endpoint, size_t offset) {
  uint64_t word;
  std::memcpy(&word, endpoint.memory() + offset, sizeof(word));
  return word;
}
void SetWord(Endpoint& endpoint, size_t offset, uint64_t word) {
  std::memcpy(endpoint.memory() + offset, &word, sizeof(word));
}

TEST_P(AtomicContractTest, AFetchAndAddReturnsWhatWasThereAndAdds) {
  EXPECT_NE(world_.fabric().atomics(), Atomics::kNone);
  auto [a, b] = world_.Connect();
  EXPECT_TRUE(a.qp().takes_atomics());
  EXPECT_TRUE(b.qp().takes_atomics());
  FillPattern(b, 31);
  SetWord(b, 1024, 40);
  std::vector<uint8_t> expected = Snapshot(b);
  const Granted granted = b.Grant(b.At(1000, 1000), Access::kAtomic);
  ASSERT_THAT(a.FetchAdd(1, a.At(8, 8), granted, 24, 2), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 1);
  EXPECT_THAT(a.sends[0], CompletionIs(1, kSuccess));
  EXPECT_EQ(a.sends[0].opcode, Opcode::kFetchAdd);
  EXPECT_EQ(Word(a, 0), 0u);
  EXPECT_EQ(Word(a, 8), 40u);
  EXPECT_EQ(Word(a, 16), 0u);
  EXPECT_EQ(Word(b, 1024), 42u);
  // Modulo 2^64.
  ASSERT_THAT(a.FetchAdd(2, a.At(8, 8), granted, 24, std::numeric_limits<uint64_t>::max() - 1), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 2);
  EXPECT_EQ(Word(a, 8), 42u);
  EXPECT_EQ(Snapshot(b), expected);
}

TEST_P(AtomicContractTest, ACompareAndSwapSwapsOnlyWhatIsEqual) {
  constexpr uint64_t kOld = 0x0123456789abcdef, kNew = 0xfedcba9876543210;
  auto [a, b] = world_.Connect();
  SetWord(b, 0, kOld);
  SetWord(b, 8, kOld);
  const Granted granted = b.Grant(b.At(0, 16), Access::kAtomic);
  ASSERT_THAT(a.CompareSwap(1, a.At(0, 8), granted, 8, kOld + 1, kNew), IsOk()) << "the last word of it";
  HAWSER_UNTIL(world_, a.sends.size() == 1);
  EXPECT_EQ(Word(a, 0), kOld);
  EXPECT_EQ(Word(b, 8), kOld);
  ASSERT_THAT(a.CompareSwap(2, a.At(16, 8), granted, 8, kOld, kNew), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 2);
  EXPECT_THAT(a.sends[1], CompletionIs(2, kSuccess));
  EXPECT_EQ(a.sends[1].opcode, Opcode::kCompareSwap);
  EXPECT_EQ(Word(a, 16), kOld);
  EXPECT_EQ(Word(b, 0), kOld);
  EXPECT_EQ(Word(b, 8), kNew);
}

TEST_P(AtomicContractTest, AtomicsOfTwoPeersAndOfTheProcessorLoseNothing) {
  constexpr uint64_t kAdds = 300;
  auto [a, b] = world_.Connect({.send_depth = 16, .read_depth = 4});
  auto [c, d] = world_.Connect({.send_depth = 16, .read_depth = 4});
  const Granted of_a = b.Grant(b.At(0, 8), Access::kAtomic);
  const Granted of_c = d.Grant(b.At(0, 8), Access::kAtomic);
  const bool with_processor = world_.fabric().atomics() == Atomics::kWithProcessor;
  std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(b.memory()));
  std::vector<bool> seen(4 * kAdds);
  uint64_t own = 0;
  for (uint64_t i = 0; i < kAdds; ++i) {
    HAWSER_UNTIL(world_, a.sends.size() + 12 > i && c.sends.size() + 12 > i);
    ASSERT_THAT(a.FetchAdd(i, a.At(8 * i, 8), of_a, 0, 1), IsOk());
    ASSERT_THAT(c.FetchAdd(i, c.At(8 * i, 8), of_c, 0, 1), IsOk());
    if (!with_processor) continue;
    seen[word.fetch_add(1)] = true;
    ++own;
  }
  HAWSER_UNTIL(world_, a.sends.size() == kAdds && c.sends.size() == kAdds);
  EXPECT_EQ(word.load(), 2 * kAdds + own);
  for (uint64_t i = 0; i < kAdds; ++i) {
    seen[Word(a, 8 * i)] = true;
    seen[Word(c, 8 * i)] = true;
  }
  for (uint64_t i = 0; i < 2 * kAdds + own; ++i) EXPECT_TRUE(seen[i]) << "no answer was " << i;
  // The region is b's, and has to outlive the grant.
  d.Revoke(1, of_c.rkey);
  HAWSER_UNTIL(world_, d.revocations.size() == 1);
}

TEST_P(AtomicContractTest, AtomicsBeyondTheReadDepthWaitTheirTurn) {
  auto [a, b] = world_.Connect({.send_depth = 32, .receive_depth = 32, .read_depth = 2});
  const Granted granted = b.Grant(b.At(0, 64), Access::kAtomic | Access::kRead);
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_THAT(
        i % 3 == 0 ? a.Read(i, a.At(8 * i, 8), granted) : a.FetchAdd(i, a.At(8 * i, 8), granted, 8, 1),
        IsOk());
  }
  HAWSER_UNTIL(world_, a.sends.size() == 20);
  for (uint64_t i = 0; i < 20; ++i) ASSERT_THAT(a.sends[i], CompletionIs(i, kSuccess));
  EXPECT_EQ(Word(b, 8), 13u);
}

TEST_P(AtomicContractTest, AChainOfAllKindsIsDoneWhenItsLastIs) {
  auto [a, b] = world_.Connect({.send_depth = 64, .read_depth = 3});
  FillPattern(a, 131);
  FillPattern(b, 32);
  SetWord(b, 0, 0);
  const Granted granted = b.Grant(b.At(0, 8192), Access::kRead | Access::kWrite | Access::kAtomic);
  for (int round = 0; round < 3; ++round) {
    std::vector<Sge> sges(60);
    std::vector<SendWorkRequest> chain(60);
    for (uint32_t i = 0; i < 60; ++i) {
      chain[i] = {.wr_id = i,
                  .opcode = i % 3 == 0   ? Opcode::kRead
                            : i % 3 == 1 ? Opcode::kFetchAdd
                                         : Opcode::kWrite};
      const bool word = chain[i].opcode == Opcode::kFetchAdd;
      sges[i] = word ? a.At(8 * i, 8) : a.At(1024 + 100 * i, 100);
      chain[i].signaled = i == 59;
      chain[i].sges = {&sges[i], 1};
      chain[i].remote_address = granted.address + (word ? 0 : 1024 + 100 * i);
      chain[i].rkey = granted.rkey;
      chain[i].compare_add = 1;
    }
    ASSERT_THAT(a.qp().PostSend(chain), IsOk());
    HAWSER_UNTIL(world_, a.sends.size() == static_cast<size_t>(round) + 1);
    EXPECT_THAT(a.sends.back(), CompletionIs(59, kSuccess));
    for (uint32_t i = 0; i < 60; ++i) {
      const size_t at = 1024 + 100 * i;
      if (i % 3 == 1) {
        EXPECT_EQ(Word(a, 8 * i), 20u * round + i / 3);
      } else {
        EXPECT_EQ(std::memcmp(a.memory() + at, b.memory() + at, 100), 0);
      }
    }
  }
  EXPECT_EQ(Word(b, 0), 60u);
}

TEST_P(AtomicContractTest, AnAtomicOutsideItsGrantFailsTheRequesterAndChangesNothing) {
  constexpr int64_t kOffsets[] = {-8, 1000, 8192, std::numeric_limits<int64_t>::min()};
  for (const int64_t offset : kOffsets) {
    if (shortcomings().grants_are_not_confined && offset < 8192) continue;
    SCOPED_TRACE(offset);
    auto [a, b] = world_.Connect({}, 8192);
    FillPattern(a, 33);
    FillPattern(b, 34);
    const std::vector<uint8_t> before = Snapshot(b), sinks = Snapshot(a);
    const Granted granted = b.Grant(b.At(1000, 1000), Access::kAtomic);
    ASSERT_THAT(b.Receive(3, b.At(0, 100)), IsOk());
    ASSERT_THAT(a.FetchAdd(1, a.At(0, 8), granted, offset, 1), IsOk());
    ASSERT_THAT(a.Send(2, a.At(0, 1)), IsOk());
    ExpectRefused(a, 0, 1);
    HAWSER_UNTIL(world_, a.sends.size() == 2 && b.receives.size() == 1);
    EXPECT_THAT(a.sends[1], CompletionIs(2, kFlushed));
    EXPECT_EQ(Snapshot(b), before);
    EXPECT_EQ(Snapshot(a), sinks);
  }
}

TEST_P(AtomicContractTest, AnAtomicNeedsTheRightToItAndItsRightGivesNoOther) {
  {
    auto [a, b] = world_.Connect();
    const Granted granted = b.Grant(b.At(0, 64), Access::kReadRepeatedly | Access::kWrite);
    ASSERT_THAT(a.FetchAdd(1, a.At(0, 8), granted, 0, 1), IsOk());
    ExpectRefused(a, 0, 1);
    EXPECT_EQ(Word(b, 0), 0u);
  }
  for (const bool reads : {true, false}) {
    auto [a, b] = world_.Connect();
    FillPattern(a, 36);
    const Granted granted = b.Grant(b.At(0, 64), Access::kAtomic);
    ASSERT_THAT(reads ? a.Read(1, a.At(0, 8), granted) : a.Write(1, a.At(0, 8), granted), IsOk());
    ExpectRefused(a, 0, 1);
    EXPECT_EQ(Word(b, 0), 0u);
  }
}

TEST_P(AtomicContractTest, AnAtomicAfterItsRevocationIsRefused) {
  auto [a, b] = world_.Connect();
  const Granted granted = b.Grant(b.At(0, 64), Access::kAtomic);
  ASSERT_THAT(a.FetchAdd(1, a.At(0, 8), granted, 0, 1), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 1);
  b.Revoke(2, granted.rkey);
  HAWSER_UNTIL(world_, b.revocations.size() == 1);
  ASSERT_THAT(a.FetchAdd(3, a.At(0, 8), granted, 0, 1), IsOk());
  ExpectRefused(a, 1, 3);
  EXPECT_EQ(Word(b, 0), 1u);
}

TEST_P(AtomicContractTest, AtomicsComeBackOnceThoughTheConnectionEnds) {
  auto [a, b] = world_.Connect({.send_depth = 32, .read_depth = 4});
  const Granted granted = b.Grant(b.At(0, 8), Access::kAtomic);
  for (uint64_t i = 0; i < 20; ++i) ASSERT_THAT(a.FetchAdd(i, a.At(8 * i, 8), granted, 0, 1), IsOk());
  world_.PollOnce();
  world_.ExpectEverythingComesBack(a);
  uint64_t done = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(a.sends[i].wr_id, i);
    done += a.sends[i].status == kSuccess;
  }
  world_.ExpectEverythingComesBack(b);
  EXPECT_GE(Word(b, 0), done);
}

TEST_P(AtomicContractTest, AnImpossibleAtomicIsRefusedBeforeItIsPosted) {
  auto [a, b] = world_.Connect();
  const Granted granted = b.Grant(b.At(0, 64), Access::kAtomic);
  const Sge two[] = {a.At(0, 4), a.At(4, 4)};
  const SendWorkRequest request = {.wr_id = 1,
                                   .opcode = Opcode::kFetchAdd,
                                   .signaled = true,
                                   .sges = two,
                                   .remote_address = granted.address,
                                   .rkey = granted.rkey};
  EXPECT_THAT(a.qp().PostSend({&request, 1}), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(a.FetchAdd(2, a.At(0, 4), granted, 0, 1), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(a.CompareSwap(3, a.At(0, 16), granted, 0, 1, 1), HasCode(absl::StatusCode::kInvalidArgument));
  for (const int64_t offset : {1, 4, 7}) {
    EXPECT_THAT(a.FetchAdd(4, a.At(0, 8), granted, offset, 1), HasCode(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(b.qp().Grant(b.At(4, 64), Access::kAtomic).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
  world_.PollSome(20);
  EXPECT_TRUE(a.sends.empty());
  ASSERT_THAT(a.FetchAdd(5, a.At(0, 8), granted, 0, 1), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 1);
  EXPECT_THAT(a.sends[0], CompletionIs(5, kSuccess));
}

TEST_P(NoAtomicsTest, NoneIsPostedOrGranted) {
  EXPECT_EQ(world_.fabric().atomics(), Atomics::kNone);
  auto [a, b] = world_.Connect();
  EXPECT_FALSE(a.qp().takes_atomics());
  EXPECT_THAT(a.FetchAdd(1, a.At(0, 8), {8, 1}, 0, 1), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(a.CompareSwap(1, a.At(0, 8), {8, 1}, 0, 1, 2), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(b.qp().Grant(b.At(0, 64), Access::kRead | Access::kAtomic).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_P(SeveralRightsTest, AGrantToReadAndToWriteAllowsBothAndRepeatedReads) {
  auto [a, b] = world_.Connect();
  FillPattern(a, 37);
  const Granted granted = b.Grant(b.At(1000, 1000), Access::kReadRepeatedly | Access::kWrite);
  for (uint64_t i = 0; i < 12; ++i) {
    FillPattern(a, static_cast<uint32_t>(38 + i), 1000);
    ASSERT_THAT(a.Write(2 * i, a.At(0, 1000), granted), IsOk());
    HAWSER_UNTIL(world_, a.sends.size() == 2 * i + 1);
    ASSERT_THAT(a.sends.back(), CompletionIs(2 * i, kSuccess));
    ASSERT_THAT(a.Read(2 * i + 1, a.At(2000, 1000), granted), IsOk());
    HAWSER_UNTIL(world_, a.sends.size() == 2 * i + 2);
    ASSERT_THAT(a.sends.back(), CompletionIs(2 * i + 1, kSuccess));
    ASSERT_EQ(std::memcmp(a.memory(), a.memory() + 2000, 1000), 0);
  }
}

TEST_P(SeveralRightsTest, AGrantOfNoRightIsRefused) {
  auto [a, b] = world_.Connect();
  for (const uint8_t bits : {0, 8, 10, 16, 255}) {
    EXPECT_THAT(b.qp().Grant(b.At(0, 8), static_cast<Access>(bits)).status(),
                HasCode(absl::StatusCode::kInvalidArgument))
        << int{bits};
  }
}

TEST_P(SeveralRightsTest, AChainOfReadsIsDoneWhenItsLastIs) {
  auto [a, b] = world_.Connect({.send_depth = 64, .read_depth = 3});
  FillPattern(b, 39);
  const Granted granted = b.Grant(b.At(0, 32000), Access::kReadRepeatedly);
  for (int round = 0; round < 3; ++round) {
    std::memset(a.memory(), 0, a.memory_bytes());
    std::vector<Sge> sges(64);
    std::vector<SendWorkRequest> chain(64);
    for (uint32_t i = 0; i < 64; ++i) {
      sges[i] = a.At(500 * i, 500);
      chain[i] = {.wr_id = i,
                  .opcode = Opcode::kRead,
                  .signaled = i == 63,
                  .sges = {&sges[i], 1},
                  .remote_address = granted.address + 500 * i,
                  .rkey = granted.rkey};
    }
    ASSERT_THAT(a.qp().PostSend(chain), IsOk());
    HAWSER_UNTIL(world_, a.sends.size() == static_cast<size_t>(round) + 1);
    EXPECT_THAT(a.sends.back(), CompletionIs(63, kSuccess));
    EXPECT_EQ(std::memcmp(a.memory(), b.memory(), 32000), 0);
  }
  world_.PollSome(20);
  EXPECT_EQ(a.sends.size(), 3u);
}

// Its owner writes them again and again while they cross. Each word has the same byte eight times.
TEST_P(WholeWordsTest, AWordThatIsReadIsWholeThoughItsOwnerChangesIt) {
  const uint32_t kBytes = GetParam().emulated ? 40'000 : 400'000;
  auto [a, b] = world_.Connect({}, kBytes);
  const Granted granted = b.Grant(b.At(0, kBytes), Access::kReadRepeatedly);
  for (uint64_t round = 0; round < 4; ++round) {
    ASSERT_THAT(a.Read(round, a.At(0, kBytes - 3), granted), IsOk());
    const size_t before = a.sends.size();
    for (uint64_t turn = 0; a.sends.size() == before && turn < 100'000; ++turn) {
      const uint64_t value = 0x0101010101010101 * (turn % 251 + 1);
      for (size_t at = 0; at < kBytes; at += 8) SetWord(b, at, value);
      world_.PollOnce();
    }
    HAWSER_UNTIL(world_, a.sends.size() > before);
    ASSERT_THAT(a.sends.back(), CompletionIs(round, kSuccess));
    for (size_t at = 0; at + 8 < kBytes; at += 8) {
      ASSERT_EQ(Word(a, at), 0x0101010101010101 * a.memory()[at]) << at;
    }
  }
}

}  // namespace
}  // namespace hawser::fabric
