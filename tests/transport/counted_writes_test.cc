// WRITEs over a lane that the owner counts once they are there.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/lane_ends.h"
#include "hawser/transport/lane/arrivals.h"
#include "hawser/transport/lane/lane.h"
#include "hawser/transport/lane/lane_message.h"

namespace hawser::transport {
namespace {

// Each WRITE fills a slot of its own.
class CountedWritesTest : public LaneTest {
 protected:
  static constexpr uint8_t kCounted = kLaneRead | kLaneWrite | kLaneCounted;
  static constexpr uint32_t kSlotBytes = 32;

  void StartAll(std::deque<Operation>& writes, uint32_t handle) {
    world_.OnClient([&] {
      for (Operation& each : writes) lane_->Start(each, handle);
    });
  }
  // `count` WRITEs, of the slots from 0 on.
  void PrepareSlots(std::deque<Operation>& writes, size_t count) {
    memset(remote(), 0, count * kSlotBytes);
    memset(local_.data(), 's', count * kSlotBytes);
    for (size_t i = 0; i < count; ++i) {
      Prepare(writes.emplace_back(), true, {{i * kSlotBytes, kSlotBytes}}, i * kSlotBytes);
    }
  }
  size_t SlotsThere(size_t count) {
    size_t there = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* const slot = remote() + i * kSlotBytes;
      if (std::all_of(slot, slot + kSlotBytes, [](uint8_t byte) { return byte == 's'; })) ++there;
    }
    return there;
  }
  static bool AllDone(const std::deque<Operation>& operations) {
    return std::all_of(operations.begin(), operations.end(),
                       [](const Operation& each) { return each.done(); });
  }
  uint64_t arrived() const { return lender_->arrivals->count(); }
};

TEST_P(CountedWritesTest, ACountedWriteIsThereWhenItIsCounted) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  EXPECT_EQ(arrived(), 0u);
  constexpr size_t kWrites = 300;
  std::deque<Operation> writes;
  PrepareSlots(writes, kWrites);
  StartAll(writes, handle);
  EXPECT_TRUE(world_.RunUntilPastFirstPing([&] {
    const uint64_t counted = arrived();
    EXPECT_GE(SlotsThere(kWrites), counted);
    return AllDone(writes);
  }));
  for (const Operation& each : writes) {
    EXPECT_EQ(each.ends, 1);
    EXPECT_THAT(each.result, IsOk());
  }
  EXPECT_EQ(arrived(), kWrites);
  EXPECT_EQ(SlotsThere(kWrites), kWrites);
}

TEST_P(CountedWritesTest, ASuccessSaysThatTheOwnerHasCounted) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  for (uint64_t i = 1; i <= 20; ++i) {
    Operation write;
    Prepare(write, true, {{0, 8}});
    ASSERT_THAT(Run(write, handle), IsOk());
    EXPECT_EQ(arrived(), i);
  }
}

// A client that has the answer may ask the owner's program, by other ways.
TEST_P(CountedWritesTest, NoAnswerLeavesBeforeItsWritesAreCounted) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  const uint64_t before = world_.server.fabric->counts(0).sends;
  const auto answers = [&] { return world_.server.fabric->counts(0).sends - before; };
  uint64_t seen = 0;  // By a callback.
  ASSERT_TRUE(lender_->arrivals->CallWhen(1, [&] { seen = arrived(); }));
  std::deque<Operation> writes;
  PrepareSlots(writes, 16);
  StartAll(writes, handle);
  world_.client.poller().PollOnce();
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  while (answers() == 0 && absl::Now() < give_up) world_.server.poller().PollOnce();
  EXPECT_EQ(answers(), 1u);
  EXPECT_EQ(arrived(), 16u);
  EXPECT_EQ(seen, 16u);
  EXPECT_TRUE(world_.RunUntilPastFirstPing([&] { return AllDone(writes); }));
}

TEST_P(CountedWritesTest, TheCountedWritesOfATurnAreOneMessageEachWay) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  std::deque<Operation> writes;
  PrepareSlots(writes, 16);
  const uint64_t asked = world_.client.fabric->counts(0).sends;
  const uint64_t answered = world_.server.fabric->counts(0).sends;
  StartAll(writes, handle);
  EXPECT_TRUE(world_.RunUntilPastFirstPing([&] { return AllDone(writes); }));
  EXPECT_EQ(arrived(), 16u);
  EXPECT_EQ(world_.client.fabric->counts(0).sends - asked, 16u + 1u) << "work requests: the WRITEs, and it";
  EXPECT_EQ(world_.server.fabric->counts(0).sends - answered, 1u);
}

TEST_P(CountedWritesTest, WithoutACounterNoMessageFollowsAWrite) {
  Dial();
  const uint32_t handle = Open(Ticket());
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  std::deque<Operation> writes;
  PrepareSlots(writes, 16);
  const uint64_t asked = world_.client.fabric->counts(0).sends;
  StartAll(writes, handle);
  EXPECT_TRUE(world_.RunUntilPastFirstPing([&] { return AllDone(writes); }));
  EXPECT_EQ(world_.client.fabric->counts(0).sends - asked, 16u) << "the WRITEs";
}

TEST_P(CountedWritesTest, AWriteOfManyRangesCountsOnce) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  std::vector<std::pair<uint64_t, uint32_t>> ranges;
  for (uint64_t i = 0; i < 1000; ++i) ranges.emplace_back(64 * i, 64);
  Operation write;
  memset(local_.data(), 's', 64000);
  Prepare(write, true, ranges);
  EXPECT_THAT(Run(write, handle), IsOk());
  EXPECT_EQ(arrived(), 1u);
  EXPECT_EQ(memcmp(local_.data(), remote(), 64000), 0);
}

TEST_P(CountedWritesTest, ReadsAndAtomicsAreNotCounted) {
  Dial();
  const bool has_atomics = world_.server.fabric->atomics() != fabric::Atomics::kNone;
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted | (has_atomics ? kLaneAtomic : 0)));
  EXPECT_THAT(Read(handle, 0, 8), IsOk());
  if (has_atomics) {
    Operation add;
    Prepare(add, false, {{8, 8}});
    add.kind = LaneOperation::Kind::kFetchAdd;
    add.compare_add = 1;
    EXPECT_THAT(Run(add, handle), IsOk());
  }
  EXPECT_EQ(arrived(), 0u);
}

TEST_P(CountedWritesTest, WhatIsNotPostedIsNotCounted) {
  Dial();
  const uint32_t handle = Open(Ticket(0, 64, kCounted));
  Operation good, beyond;
  Prepare(good, true, {{0, 64}});
  Prepare(beyond, true, {{1, 64}});
  EXPECT_THAT(Run(good, handle), IsOk());
  EXPECT_CODE(Run(beyond, handle), kOutOfRange);
  EXPECT_EQ(arrived(), 1u);
}

TEST_P(CountedWritesTest, WhatEndedWellBeforeARevocationIsCountedAndNothingAfterIt) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  std::deque<Operation> writes;
  PrepareSlots(writes, 400);
  StartAll(writes, handle);
  world_.client.poller().PollOnce();
  EXPECT_TRUE(RevokeAndTurn());
  const uint64_t counted = arrived();
  EXPECT_TRUE(AllDone(writes));
  uint64_t good = 0;
  for (const Operation& each : writes) {
    good += each.result.ok();
    EXPECT_TRUE(each.result.ok() || absl::IsFailedPrecondition(each.result)) << each.result;
  }
  EXPECT_EQ(counted, good);
  Operation late;
  Prepare(late, true, {{0, 8}});
  EXPECT_CODE(Run(late, handle), kFailedPrecondition);
  EXPECT_EQ(arrived(), counted);
  EXPECT_FALSE(owner_.gone.has_value()) << *owner_.gone;
}

TEST_P(CountedWritesTest, AWriteThatARevocationCutsShortIsNotCounted) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  ExpectCutShort(handle, "may have been written, in whole or in part, and was not counted");
  EXPECT_EQ(arrived(), 0u);
}

// The owner has counted, and the requester does not hear of it.
TEST_P(CountedWritesTest, AWriteWhoseLaneBreaksBeforeTheAnswerMayBeCounted) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  Operation write, unsent;
  Prepare(write, true, {{0, 8}});
  Prepare(unsent, true, {{8, 8}}, 8);
  Start(write, handle);
  world_.client.poller().PollOnce();
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  while (arrived() == 0 && absl::Now() < give_up) world_.server.poller().PollOnce();
  EXPECT_EQ(arrived(), 1u);
  world_.OnClient([&] {
    lane_->Start(unsent, handle);
    lane_->End(absl::UnavailableError("the test breaks the lane"));
  });
  EXPECT_TRUE(world_.RunUntil([&] { return write.done() && unsent.done(); }));
  EXPECT_EQ(write.ends, 1);
  EXPECT_CODE(write.result, kUnavailable);
  EXPECT_NE(Text(write.result).find("may have been counted"), std::string::npos) << write.result;
  EXPECT_EQ(owner_.unsent, 1);
  EXPECT_EQ(Text(unsent.result).find("counted"), std::string::npos) << unsent.result;
  world_.Settle();
  EXPECT_EQ(arrived(), 1u);
}

// On the device in memory, which executes a WRITE when it is posted, while the owner's poller does not run.
class AwaitsCountTest : public CountedWritesTest {
 protected:
  // All that the requester can do alone.
  void RunClient() {
    while (world_.client.poller().PollOnce() != 0) continue;
  }
};

TEST_P(AwaitsCountTest, AWriteThatIsGivenUpThenCostsNoLane) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  Operation announced, waiting;
  Prepare(announced, true, {{0, 8}});
  Prepare(waiting, true, {{8, 8}}, 8);
  Start(announced, handle);
  RunClient();
  Start(waiting, handle);
  RunClient();
  EXPECT_FALSE(announced.done() || waiting.done());
  world_.OnClient([&] {
    for (Operation* each : {&announced, &waiting}) lane_->Abort(*each, absl::DeadlineExceededError("late"));
    // Their memory is free.
    EXPECT_TRUE(announced.done() && waiting.done());
  });
  EXPECT_CODE(announced.result, kDeadlineExceeded);
  EXPECT_NE(Text(announced.result).find("may have been counted"), std::string::npos) << announced.result;
  EXPECT_CODE(waiting.result, kDeadlineExceeded);
  EXPECT_NE(Text(waiting.result).find("was not counted"), std::string::npos) << waiting.result;
  Operation last;
  Prepare(last, true, {{0, 8}});
  EXPECT_THAT(Run(last, handle), IsOk());
  EXPECT_EQ(arrived(), 2u) << "of the one that was announced, and the last";
  EXPECT_FALSE(owner_.gone.has_value());
}

TEST_P(AwaitsCountTest, AHandleIsClosedOnceItsWritesAreCounted) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  Operation write;
  Prepare(write, true, {{0, 8}});
  Start(write, handle);
  RunClient();
  world_.OnClient([&] {
    lane_->Abort(write, absl::DeadlineExceededError("late"));
    lane_->Close(handle);
  });
  EXPECT_TRUE(world_.RunUntil([this] { return lender_->grants == 0; }));
  EXPECT_EQ(arrived(), 1u);
  EXPECT_FALSE(owner_.gone.has_value()) << *owner_.gone;
  EXPECT_THAT(Read(Open(Ticket(0, 64, kCounted)), 0, 8), IsOk());
}

TEST_P(AwaitsCountTest, OneMessageCountsNoMoreThanItMay) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  constexpr size_t kWrites = kLaneArrivedMax + 500;
  std::deque<Operation> writes;
  PrepareSlots(writes, kWrites);
  StartAll(writes, handle);
  RunClient();
  EXPECT_EQ(SlotsThere(kWrites), kWrites) << "the test shows nothing";
  uint64_t before = 0, most = 0;
  EXPECT_TRUE(world_.RunUntil([&] {
    most = std::max(most, arrived() - std::exchange(before, arrived()));
    return AllDone(writes);
  }));
  EXPECT_EQ(arrived(), kWrites);
  EXPECT_EQ(most, kLaneArrivedMax);
}

TEST_P(AwaitsCountTest, TheEndOfTheLaneEndsWhatWaitsToBeCounted) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  std::deque<Operation> writes;
  PrepareSlots(writes, 300);
  StartAll(writes, handle);
  RunClient();
  EXPECT_FALSE(writes.front().done());
  world_.OnClient([&] { lane_->End(absl::UnavailableError("the test breaks the lane")); });
  EXPECT_TRUE(AllDone(writes)) << "their memory is free";
  size_t perhaps = 0;
  for (const Operation& each : writes) {
    EXPECT_EQ(each.ends, 1);
    EXPECT_CODE(each.result, kUnavailable);
    perhaps += Text(each.result).find("may have been counted") != std::string::npos;
  }
  EXPECT_TRUE(world_.RunUntil([this] { return owner_.gone.has_value(); }));
  world_.Settle();
  EXPECT_LE(arrived(), perhaps);
  EXPECT_GT(perhaps, 0u);
  EXPECT_LT(perhaps, writes.size());
}

std::vector<Network> DevicesInMemory() {
  if (TestScheme() == "rdma") return {};
  return {Network::kWindows, Network::kRegistered};
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AwaitsCountTest);
INSTANTIATE_TEST_SUITE_P(Networks, AwaitsCountTest, ::testing::ValuesIn(DevicesInMemory()));

TEST_P(CountedWritesTest, AfterTheEndOfTheCounterWritesGoOnAndItsTicketIsVoid) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  bool ran = false;
  EXPECT_TRUE(lender_->arrivals->CallWhen(1, [&ran] { ran = true; }));
  lender_->arrivals->End();
  std::deque<Operation> writes;
  PrepareSlots(writes, 1);
  EXPECT_THAT(Run(writes.front(), handle), IsOk());
  EXPECT_EQ(SlotsThere(1), 1u);
  EXPECT_FALSE(ran);
  EXPECT_CODE(Read(Open(Ticket(0, 64, kCounted)), 0, 8), kFailedPrecondition);
  EXPECT_FALSE(owner_.gone.has_value());
}

TEST_P(CountedWritesTest, CallbacksRunOnceTheirNumberIsReached) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  std::vector<int> ran;
  Arrivals& arrivals = *lender_->arrivals;
  EXPECT_FALSE(arrivals.CallWhen(0, [&ran] { ran.push_back(0); }));
  EXPECT_TRUE(arrivals.CallWhen(3, [&ran] { ran.push_back(3); }));
  EXPECT_TRUE(arrivals.CallWhen(2, [&] {
    ran.push_back(2);
    EXPECT_TRUE(world_.server.poller().Held());
    EXPECT_FALSE(arrivals.CallWhen(2, [&ran] { ran.push_back(-2); }));
    EXPECT_TRUE(arrivals.CallWhen(4, [&ran] { ran.push_back(4); }));
  }));
  EXPECT_TRUE(arrivals.CallWhen(5, [&ran] { ran.push_back(5); }));
  const std::vector<std::vector<int>> expected = {{}, {2}, {2, 3}, {2, 3, 4}};
  for (const std::vector<int>& each : expected) {
    Operation write;
    Prepare(write, true, {{0, 8}});
    ASSERT_THAT(Run(write, handle), IsOk());
    EXPECT_EQ(ran, each);
  }
  EXPECT_FALSE(arrivals.CallWhen(4, [&ran] { ran.push_back(-4); }));
  EXPECT_EQ(ran.size(), 3u);
}

TEST_P(CountedWritesTest, ACallbackMayEndItsCounter) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  int ran = 0;
  EXPECT_TRUE(lender_->arrivals->CallWhen(1, [&] {
    ++ran;
    lender_->arrivals->End();
  }));
  EXPECT_TRUE(lender_->arrivals->CallWhen(1, [&] { ++ran; }));
  Operation write;
  Prepare(write, true, {{0, 8}});
  EXPECT_THAT(Run(write, handle), IsOk());
  EXPECT_EQ(ran, 1);
}

TEST_P(CountedWritesTest, TheEndOfACounterWaitsForACallbackThatRuns) {
  Dial();
  const uint32_t handle = Open(Ticket(0, kBytes, kCounted));
  std::atomic<bool> finished{false}, ended{false};
  std::thread other;
  EXPECT_TRUE(lender_->arrivals->CallWhen(1, [&] {
    std::atomic<bool> begins{false};
    other = std::thread([&] {
      begins = true;
      begins.notify_one();
      lender_->arrivals->End();
      EXPECT_TRUE(finished);
      ended = true;
    });
    begins.wait(false);
    while (!lender_->arrivals->ended()) std::this_thread::yield();
    EXPECT_FALSE(ended);
    EXPECT_TRUE(lender_->arrivals->CallWhen(2, [] { ADD_FAILURE() << "it ran after the end"; }));
    finished = true;
  }));
  Operation write, late;
  Prepare(write, true, {{0, 8}});
  EXPECT_THAT(Run(write, handle), IsOk());
  other.join();
  EXPECT_TRUE(ended);
  Prepare(late, true, {{0, 8}});
  EXPECT_THAT(Run(late, handle), IsOk());
  EXPECT_EQ(arrived(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Networks, CountedWritesTest, ::testing::ValuesIn(Networks()));

}  // namespace
}  // namespace hawser::transport
