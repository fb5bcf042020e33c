// One-sided operations over a lane, at both of its ends.

#include "hawser/transport/lane/lane.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/lane_ends.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/lane/lane_server.h"
#include "hawser/transport/lane/lent_memory.h"

namespace hawser::transport {
namespace {

TEST_P(LaneTest, ReadsAndWritesWhatTheTicketGives) {
  Dial();
  const uint32_t handle = Open(Ticket(4096, 8192));
  EXPECT_THAT(Read(handle, 16, 1000), IsOk());
  EXPECT_EQ(memcmp(local_.data(), remote() + 4096 + 16, 1000), 0);
  memset(local_.data(), 'w', 100);
  Operation write;
  Prepare(write, true, {{8092, 100}});
  EXPECT_THAT(Run(write, handle), IsOk());
  EXPECT_EQ(std::string(reinterpret_cast<char*>(remote()) + 4096 + 8092, 100), std::string(100, 'w'));
  EXPECT_EQ(lender_->tickets, 1);
}

TEST_P(LaneTest, SixtyFourRangesAreOnePostAndOneCompletion) {
  Dial();
  const uint32_t handle = Open(Ticket());
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  std::vector<std::pair<uint64_t, uint32_t>> ranges;
  for (uint64_t i = 0; i < 64; ++i) ranges.emplace_back(1000 * (i + 1), 16);
  Operation read;
  Prepare(read, false, ranges);
  const SpyFabric::Counts before = world_.client.fabric->counts(0);
  EXPECT_THAT(Run(read, handle), IsOk());
  const SpyFabric::Counts& after = world_.client.fabric->counts(0);
  EXPECT_EQ(after.send_posts - before.send_posts, 1u);
  EXPECT_EQ(after.reads - before.reads, 64u);
  EXPECT_EQ(after.signaled_reads - before.signaled_reads, 1u);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(memcmp(local_.data() + 16 * i, remote() + 1000 * (i + 1), 16), 0) << i;
  }
}

TEST_P(LaneTest, OperationsOfOneTurnAreOnePost) {
  Dial();
  const uint32_t handle = Open(Ticket()), other = Open(Ticket(4096, 4096));
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  ASSERT_THAT(Read(other, 0, 8), IsOk());
  constexpr size_t kReads = 16;
  std::vector<Operation> reads(kReads);
  for (size_t i = 0; i < kReads; ++i) Prepare(reads[i], false, {{100 * i, 16}, {100 * i + 50, 16}}, 32 * i);
  const SpyFabric::Counts before = world_.client.fabric->counts(0);
  world_.OnClient([&] {
    for (size_t i = 0; i < kReads; ++i) lane_->Start(reads[i], i % 2 == 0 ? handle : other);
  });
  ASSERT_TRUE(world_.RunUntil([&] {
    return std::all_of(reads.begin(), reads.end(), [](const Operation& read) { return read.done(); });
  }));
  const SpyFabric::Counts& after = world_.client.fabric->counts(0);
  EXPECT_EQ(after.send_posts - before.send_posts, 1u);
  EXPECT_EQ(after.reads - before.reads, 2 * kReads);
  EXPECT_EQ(after.signaled_reads - before.signaled_reads, kReads);
  for (size_t i = 0; i < kReads; ++i) {
    EXPECT_EQ(reads[i].ends, 1);
    EXPECT_THAT(reads[i].result, IsOk());
    const uint8_t* const from = remote() + (i % 2 == 0 ? 0 : 4096) + 100 * i;
    EXPECT_EQ(memcmp(local_.data() + 32 * i, from, 16), 0) << i;
    EXPECT_EQ(memcmp(local_.data() + 32 * i + 16, from + 50, 16), 0) << i;
  }
}

TEST_P(LaneTest, MoreRangesThanTheSendQueueHoldsComplete) {
  Dial();
  const uint32_t handle = Open(Ticket());
  std::vector<std::pair<uint64_t, uint32_t>> ranges;
  for (uint64_t i = 0; i < 1000; ++i) ranges.emplace_back(64 * i, 64);
  Operation read;
  Prepare(read, false, ranges);
  EXPECT_THAT(Run(read, handle), IsOk());
  EXPECT_EQ(memcmp(local_.data(), remote(), 64000), 0);
}

TEST_P(LaneTest, EachByteMayBeReadAnyNumberOfTimes) {
  Dial();
  const uint32_t handle = Open(Ticket(0, 4096));
  for (int i = 0; i < 20; ++i) ASSERT_THAT(Read(handle, 0, 4096), IsOk()) << i;
}

TEST_P(LaneTest, ARangeBeyondTheTicketFailsAloneAndPostsNothing) {
  Dial();
  const uint32_t handle = Open(Ticket(0, 4096));
  ASSERT_THAT(Read(handle, 0, 4096), IsOk());
  EXPECT_CODE(Read(handle, 1, 4096), kOutOfRange);
  EXPECT_CODE(Read(handle, 4096, 1), kOutOfRange);
  EXPECT_CODE(Read(handle, UINT64_MAX, 2), kOutOfRange);
  EXPECT_THAT(Read(handle, 4095, 1), IsOk());
  EXPECT_FALSE(owner_.gone.has_value());
}

TEST_P(LaneTest, AccessThatTheTicketDoesNotGiveFailsAlone) {
  Dial();
  const uint32_t reads = Open(Ticket(0, 4096, kLaneRead));
  const uint32_t writes = Open(Ticket(0, 4096, kLaneWrite));
  Operation write;
  Prepare(write, true, {{0, 8}});
  EXPECT_CODE(Run(write, reads), kPermissionDenied);
  EXPECT_CODE(Read(writes, 0, 8), kPermissionDenied);
  EXPECT_THAT(Read(reads, 0, 8), IsOk());
}

TEST_P(LaneTest, WithoutAGrantForItATicketIsRefusedAndMayBeShownAgain) {
  lender_->grants_max = 1;
  Dial();
  const uint32_t first = Open(Ticket()), second = Open(Ticket(8, 8));
  EXPECT_THAT(Read(first, 0, 8), IsOk());
  EXPECT_CODE(Read(second, 0, 8), kResourceExhausted);
  EXPECT_TRUE(lane_->LacksRoom(second));
  world_.OnClient([&] {
    lane_->Close(first);
    lane_->Close(second);
  });
  EXPECT_TRUE(world_.RunUntil([this] { return lender_->grants == 0; }));
  EXPECT_THAT(Read(Open(Ticket(8, 8)), 0, 8), IsOk());
}

TEST_P(LaneTest, ARefusedTicketFailsItsOperationsAndNoOthers) {
  Dial();
  LaneTicket bad = Ticket();
  bad.region = 2;
  const uint32_t refused = Open(bad), good = Open(Ticket());
  const absl::Status status = Read(refused, 0, 8);
  EXPECT_CODE(status, kFailedPrecondition);
  EXPECT_NE(Text(status).find("the test refuses this ticket"), std::string::npos);
  EXPECT_CODE(Read(refused, 0, 8), kFailedPrecondition);  // Also when it has the answer.
  EXPECT_THAT(Read(good, 0, 8), IsOk());
}

TEST_P(LaneTest, RevocationWaitsForNoOneAndLaterOperationsFail) {
  Dial();
  const uint32_t handle = Open(Ticket());
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  EXPECT_EQ(lender_->memory->lane_count(), 1u);
  EXPECT_TRUE(RevokeAndTurn());
  EXPECT_CODE(Read(handle, 0, 8), kFailedPrecondition);
  EXPECT_FALSE(owner_.gone.has_value());
}

TEST_P(LaneTest, ATicketBeyondTheMemoryByOneByteIsRefused) {
  Dial();
  EXPECT_CODE(Read(Open(Ticket(0, kBytes + 1)), 0, 8), kOutOfRange);
  EXPECT_CODE(Read(Open(Ticket(1, kBytes)), 0, 8), kOutOfRange);
  EXPECT_THAT(Read(Open(Ticket(8, kBytes - 8)), 0, 8), IsOk());
}

TEST_P(LaneTest, ALaneHasMemoryUntilItsLastGrantOnItHasEnded) {
  Dial();
  const uint32_t first = Open(Ticket(0, 64)), second = Open(Ticket(64, 64));
  ASSERT_THAT(Read(first, 0, 8), IsOk());
  ASSERT_THAT(Read(second, 0, 8), IsOk());
  world_.OnClient([&] { lane_->Close(first); });
  world_.Settle();
  EXPECT_EQ(lender_->memory->lane_count(), 1u);
  EXPECT_TRUE(RevokeAndTurn());
  EXPECT_CODE(Read(second, 0, 8), kFailedPrecondition);
}

TEST_P(LaneTest, MemoryThatWasRevokedIsLentToNoLane) {
  lender_->memory->Revoke();
  const auto lane =
      std::make_shared<LendingLane>(LendingLane{world_.server.runtime, world_.server.poller(), nullptr});
  EXPECT_CODE(lender_->memory->Enter(lane).status(), kFailedPrecondition);
  EXPECT_EQ(lender_->memory->lane_count(), 0u);
}

TEST_P(LaneTest, OperationsInFlightEndBeforeARevocation) {
  Dial();
  const uint32_t handle = Open(Ticket());
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  std::vector<Operation> reads(50);
  for (Operation& read : reads) Prepare(read, false, {{0, 4096}});
  for (Operation& read : reads) Start(read, handle);
  world_.client.poller().PollOnce();
  EXPECT_TRUE(RevokeAndTurn());
  EXPECT_TRUE(std::all_of(reads.begin(), reads.end(), [](Operation& each) { return each.done(); }));
  for (const Operation& read : reads) {
    EXPECT_EQ(read.ends, 1);
    EXPECT_TRUE(read.result.ok() || absl::IsFailedPrecondition(read.result)) << read.result;
  }
  EXPECT_FALSE(owner_.gone.has_value()) << *owner_.gone;
}

TEST_P(LaneTest, AWriteThatARevocationCutsShortSaysThatItMayBeThere) {
  Dial();
  const uint32_t handle = Open(Ticket());
  ExpectCutShort(handle, "may have been written");
}

// The peer's poller does not run, so it gives nothing back.
TEST_P(LaneTest, APeerThatDoesNotAnswerARevocationLosesItsLane) {
  Dial();
  const uint32_t handle = Open(Ticket());
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  lender_->memory->Revoke();
  for (int i = 0; i < 100; ++i) world_.server.poller().PollOnce();
  EXPECT_EQ(lender_->memory->lane_count(), 1u);
  world_.clock.Advance(absl::Seconds(2));
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  while (lender_->memory->lane_count() > 0 && absl::Now() < give_up) world_.server.poller().PollOnce();
  EXPECT_EQ(lender_->memory->lane_count(), 0u);
  EXPECT_TRUE(world_.RunUntilPastFirstPing([this] { return owner_.gone.has_value(); }));
}

TEST_P(LaneTest, AnAbortedOperationOfWhichNothingIsPostedCostsNoLane) {
  Dial();
  const uint32_t handle = Open(Ticket());
  Operation read;
  Prepare(read, false, {{0, 8}});
  Start(read, handle);  // Before the lane is up.
  world_.OnClient([&] { lane_->Abort(read, absl::DeadlineExceededError("late")); });
  EXPECT_EQ(read.ends, 1);
  EXPECT_CODE(read.result, kDeadlineExceeded);
  EXPECT_THAT(Read(handle, 0, 8), IsOk());
}

// The owner's poller does not run, so that the READs cannot complete.
TEST_P(LaneTest, AnAbortedOperationEndsOnlyOnceItsMemoryIsFree) {
  if (by_nic()) GTEST_SKIP() << "a NIC answers without a poller";
  Dial();
  const uint32_t handle = Open(Ticket());
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  Operation aborted, other, write;
  Prepare(aborted, false, {{0, 64}});
  Prepare(other, false, {{64, 64}}, 64);
  Prepare(write, true, {{128, 64}}, 128);
  for (Operation* each : {&aborted, &other, &write}) Start(*each, handle);
  world_.client.poller().PollOnce();
  EXPECT_FALSE(aborted.done());
  bool at_once = true;
  world_.OnClient([&] {
    lane_->Abort(aborted, absl::DeadlineExceededError("late"));
    at_once = aborted.done();
  });
  EXPECT_FALSE(at_once);
  EXPECT_TRUE(world_.RunUntilPastFirstPing([&] { return aborted.done() && other.done() && write.done(); }));
  EXPECT_CODE(aborted.result, kDeadlineExceeded);
  EXPECT_CODE(other.result, kUnavailable);
  EXPECT_CODE(write.result, kUnavailable);
  EXPECT_NE(Text(write.result).find("may have been written"), std::string::npos) << write.result;
  EXPECT_EQ(Text(other.result).find("may have been written"), std::string::npos) << other.result;
  EXPECT_TRUE(owner_.gone.has_value());
  // What came too late changes nothing here.
  memset(local_.data(), 'x', 256);
  world_.Settle();
  EXPECT_EQ(std::string(reinterpret_cast<char*>(local_.data()), 256), std::string(256, 'x'));
}

// A part of it is posted when the owner revokes, so that its result is there; and nothing completes.
TEST_P(LaneTest, AnOperationThatIsRefusedInPartEndsAtItsDeadlineIfThePeerStandsStill) {
  Dial();
  const uint32_t handle = Open(Ticket());
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  SpyFabric::Counts& counts = world_.client.fabric->counts(0);
  counts.hold_reads = true;
  Operation read, behind;
  Prepare(read, false, std::vector<std::pair<uint64_t, uint32_t>>(2 * Lane::kPostedMax, {0, 8}));
  Start(read, handle);
  ASSERT_TRUE(world_.RunUntilPastFirstPing([&] { return counts.reads_outstanding == Lane::kPostedMax; }));
  Prepare(behind, false, {{0, 8}});
  Start(behind, handle);
  lender_->memory->Revoke();
  ASSERT_TRUE(world_.RunUntilPastFirstPing([&] { return behind.done(); }));
  EXPECT_CODE(behind.result, kFailedPrecondition);
  world_.Settle();
  EXPECT_FALSE(read.done()) << "a NIC may write to its memory";
  EXPECT_FALSE(owner_.gone.has_value());
  world_.OnClient([&] { lane_->Abort(read, absl::DeadlineExceededError("late")); });
  ASSERT_TRUE(world_.RunUntilPastFirstPing([&] { return read.done() && owner_.gone.has_value(); }));
  EXPECT_EQ(read.ends, 1);
  EXPECT_CODE(read.result, kFailedPrecondition);
}

TEST_P(LaneTest, AnAbortAfterTheCompletionChangesNothing) {
  Dial();
  const uint32_t handle = Open(Ticket());
  Operation read;
  Prepare(read, false, {{0, 8}});
  ASSERT_THAT(Run(read, handle), IsOk());
  world_.OnClient([&] { lane_->Abort(read, absl::CancelledError("raced")); });
  EXPECT_EQ(read.ends, 1);
  EXPECT_THAT(Read(handle, 0, 8), IsOk());
}

TEST_P(LaneTest, ALaneThatIsNotAcceptedGivesItsOperationsBack) {
  listener_.on_peer = [](PeerRequest request) {
    request.Refuse(absl::ResourceExhaustedError("the test is full"));
  };
  Dial();
  const uint32_t handle = Open(Ticket());
  Operation read;
  Prepare(read, false, {{0, 8}});
  EXPECT_CODE(Run(read, handle), kResourceExhausted);
  EXPECT_EQ(owner_.unsent, 1);
  EXPECT_TRUE(world_.RunUntilPastFirstPing([this] { return owner_.gone.has_value(); }));
}

TEST_P(LaneTest, MoreTicketsThanTheLaneTakesAreRefusedUntilOneIsClosed) {
  Dial();
  std::vector<uint32_t> handles;
  for (size_t i = 0; i < LaneServer::kHandlesMax; ++i) handles.push_back(Open(Ticket()));
  ASSERT_THAT(Read(handles.back(), 0, 8), IsOk());
  EXPECT_CODE(Read(Open(Ticket()), 0, 8), kResourceExhausted);
  world_.OnClient([&] { lane_->Close(handles.front()); });
  EXPECT_THAT(Read(Open(Ticket()), 0, 8), IsOk());
}

TEST_P(LaneTest, AnOperationThatCannotBePostedEndsOnce) {
  Dial();
  const uint32_t handle = Open(Ticket());
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  std::vector<Operation> reads(2);
  for (Operation& read : reads) Prepare(read, false, {{0, 8}});
  // The fabric has not asked the device: nothing is posted.
  world_.client.fabric->FailPosts(true, absl::StatusCode::kFailedPrecondition);
  for (Operation& read : reads) Start(read, handle);
  EXPECT_TRUE(world_.RunUntilPastFirstPing([this] { return owner_.gone.has_value(); }));
  world_.client.fabric->FailPosts(false);
  EXPECT_EQ(owner_.unsent, 2);
  for (const Operation& read : reads) {
    EXPECT_EQ(read.ends, 1);
    EXPECT_CODE(read.result, kUnavailable);
  }
}

// Any other error may be that of a device that has taken a part of them.
TEST_P(LaneTest, OperationsThatADeviceDidNotTakeMayHaveHappened) {
  Dial();
  const uint32_t handle = Open(Ticket());
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  std::vector<Operation> writes(2);
  for (Operation& write : writes) Prepare(write, true, {{0, 8}});
  world_.client.fabric->FailPosts(true);
  world_.OnClient([&] {  // One turn, so that both are in one chain.
    for (Operation& write : writes) lane_->Start(write, handle);
  });
  EXPECT_TRUE(world_.RunUntilPastFirstPing([this] { return owner_.gone.has_value(); }));
  world_.client.fabric->FailPosts(false);
  EXPECT_EQ(owner_.unsent, 0);
  for (const Operation& write : writes) {
    EXPECT_EQ(write.ends, 1);
    EXPECT_CODE(write.result, kUnavailable);
    EXPECT_NE(Text(write.result).find("may have been written"), std::string::npos) << write.result;
  }
}

// The device executes the first ones of a chain, and fails. What it has taken is not started again, and its
// memory stays in use until the queue pair is gone.
TEST_P(LaneTest, AChainOfWhichADeviceTookAPartIsNotSentAgain) {
  if (GetParam() == Network::kTest) GTEST_SKIP() << "only the device in memory fails on demand";
  constexpr size_t kAdds = 5, kTaken = 2;
  Dial();
  const uint32_t handle = Open(Ticket());
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  memset(remote(), 0, 8 * kAdds);
  std::vector<Operation> adds(kAdds);
  for (size_t i = 0; i < kAdds; ++i) {
    Prepare(adds[i], false, {{8 * i, 8}}, 8 * i);
    adds[i].kind = LaneOperation::Kind::kFetchAdd;
    adds[i].compare_add = 1;
  }
  const auto ended = [&] {
    return std::count_if(adds.begin(), adds.end(), [](const Operation& add) { return add.ends != 0; });
  };
  world_.client.fabric->KeepBackFlushes(true);
  DeviceInMemory().FailOnePostAt(kTaken);
  world_.OnClient([&] {
    for (Operation& add : adds) lane_->Start(add, handle);
  });
  ASSERT_TRUE(world_.RunUntilPastFirstPing([this] { return lane_->ending(); }));
  EXPECT_EQ(ended(), 0) << "the queue pair is not flushed";
  EXPECT_FALSE(owner_.gone.has_value());
  world_.client.fabric->KeepBackFlushes(false);
  ASSERT_TRUE(world_.RunUntilPastFirstPing([this] { return owner_.gone.has_value(); }));
  EXPECT_EQ(owner_.unsent, 0);
  for (size_t i = 0; i < kAdds; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(adds[i].ends, 1);
    EXPECT_CODE(adds[i].result, kUnavailable);
    EXPECT_NE(Text(adds[i].result).find("may have been written"), std::string::npos) << adds[i].result;
    uint64_t value = 0;
    memcpy(&value, remote() + 8 * i, 8);
    EXPECT_EQ(value, i < kTaken ? 1u : 0u);
  }
}

// Its first part is outstanding when the next one cannot be posted.
TEST_P(LaneTest, AnOperationOfWhichAPartCannotBePostedEndsOnce) {
  Dial();
  const uint32_t handle = Open(Ticket());
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  Operation first, read;
  std::vector<std::pair<uint64_t, uint32_t>> ranges(Lane::kPostedMax / 2, {0, 8});
  Prepare(first, false, ranges);
  ranges.resize(2 * Lane::kPostedMax, {0, 8});
  Prepare(read, false, ranges);
  world_.client.fabric->counts(0).hold_reads = true;
  Start(first, handle);
  Start(read, handle);
  ASSERT_TRUE(world_.RunUntilPastFirstPing(
      [this] { return world_.client.fabric->counts(0).reads_outstanding == Lane::kPostedMax; }));
  world_.client.fabric->FailPosts(true);
  world_.client.fabric->counts(0).reads_let_through = Lane::kPostedMax / 2;
  EXPECT_TRUE(world_.RunUntilPastFirstPing([this] { return owner_.gone.has_value(); }));
  world_.client.fabric->FailPosts(false);
  EXPECT_EQ(owner_.unsent, 0);
  EXPECT_EQ(first.ends, 1);
  EXPECT_THAT(first.result, IsOk());
  EXPECT_EQ(read.ends, 1);
  EXPECT_CODE(read.result, kUnavailable);
}

TEST_P(LaneTest, AMessageTakesNoPlaceOfAnOperation) {
  Dial();
  const uint32_t handle = Open(Ticket());
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  SpyFabric::Counts& counts = world_.client.fabric->counts(0);
  counts.hold_reads = true;
  std::vector<Operation> reads(2 * Lane::kPostedMax);
  for (Operation& read : reads) {
    Prepare(read, false, {{0, 8}});
    Start(read, handle);
  }
  ASSERT_TRUE(world_.RunUntilPastFirstPing([&] { return counts.reads_outstanding == Lane::kPostedMax; }));
  const uint32_t another = Open(Ticket(0, 64));
  EXPECT_TRUE(world_.RunUntilPastFirstPing([this] { return lender_->tickets == 2; }));
  world_.Settle();
  EXPECT_EQ(counts.reads_outstanding_max, int64_t{Lane::kPostedMax});
  counts.hold_reads = false;
  EXPECT_TRUE(world_.RunUntilPastFirstPing(
      [&] { return std::all_of(reads.begin(), reads.end(), [](Operation& each) { return each.done(); }); }));
  for (const Operation& read : reads) EXPECT_THAT(read.result, IsOk());
  EXPECT_EQ(counts.reads_outstanding_max, int64_t{Lane::kPostedMax});
  EXPECT_THAT(Read(another, 0, 8), IsOk());
}

TEST_P(LaneTest, AReadNeedsNoReceiveAndNoSendAtTheOwner) {
  Dial();
  const uint32_t handle = Open(Ticket());
  ASSERT_THAT(Read(handle, 0, 8), IsOk());
  world_.Settle();
  const SpyFabric::Counts before = world_.server.fabric->counts(0);
  for (uint64_t i = 0; i < 10; ++i) ASSERT_THAT(Read(handle, 8 * i, 8), IsOk());
  const SpyFabric::Counts& after = world_.server.fabric->counts(0);
  EXPECT_EQ(after.receive_posts, before.receive_posts);
  EXPECT_EQ(after.sends, before.sends);
}

TEST_P(LaneTest, AtomicsReturnWhatWasThereBefore) {
  if (world_.server.fabric->atomics() == fabric::Atomics::kNone) GTEST_SKIP() << "there are none";
  Dial();
  const uint32_t handle = Open(Ticket());
  uint64_t value = 40;
  memcpy(remote() + 64, &value, 8);
  Operation add, swap, not_equal;
  for (Operation* each : {&add, &swap, &not_equal}) Prepare(*each, false, {{64, 8}});
  add.kind = LaneOperation::Kind::kFetchAdd;
  add.compare_add = 2;
  swap.kind = not_equal.kind = LaneOperation::Kind::kCompareSwap;
  swap.compare_add = 42;
  swap.swap = 7;
  not_equal.compare_add = 1;
  not_equal.swap = 8;
  for (const auto& [operation, before] :
       {std::pair(&add, uint64_t{40}), std::pair(&swap, uint64_t{42}), std::pair(&not_equal, uint64_t{7})}) {
    ASSERT_THAT(Run(*operation, handle), IsOk());
    memcpy(&value, local_.data(), 8);
    EXPECT_EQ(value, before);
  }
  memcpy(&value, remote() + 64, 8);
  EXPECT_EQ(value, 7u);
  Operation misaligned;
  Prepare(misaligned, false, {{4, 8}});
  misaligned.kind = LaneOperation::Kind::kFetchAdd;
  EXPECT_CODE(Run(misaligned, handle), kInvalidArgument);
  EXPECT_FALSE(owner_.gone.has_value());
}

// Each at another step: posted, queued behind what the send queue takes, and not open yet.
TEST_P(LaneTest, AtTheEndOfItsPollerEachOperationEndsOnce) {
  auto runtime = *Runtime::CreateOn(world_.client.fabric, {}, /*start_threads=*/false, world_.clock);
  Poller& poller = runtime->poller(0);
  const auto turn = [&] { return poller.PollOnce(); };
  world_.others.emplace_back(turn);
  Lane::Target target;
  target.address = listener_.address();
  Lane* lane = nullptr;
  uint32_t handle = 0;
  TestOwner owner;
  std::vector<uint8_t> local(4096);
  const std::unique_ptr<fabric::MemoryRegion> region =
      *world_.client.fabric->Register(local.data(), local.size());
  Operation first, posted, queued, unopened;
  poller.Run([&] {
    Lane::Owner& as_owner = owner;
    lane = *Lane::Dial(poller, target, absl::Seconds(5), as_owner);
    handle = lane->Open(Ticket());
  });
  const auto prepare = [&](Operation& operation, size_t ranges, LaneOperation::Kind kind) {
    operation.kind = kind;
    operation.pieces.assign(ranges, {0, {local.data(), 8, region->lkey()}});
  };
  prepare(first, 1, LaneOperation::Kind::kRead);
  prepare(posted, Lane::kPostedMax, LaneOperation::Kind::kWrite);
  prepare(queued, 2 * Lane::kPostedMax, LaneOperation::Kind::kRead);
  prepare(unopened, 1, LaneOperation::Kind::kRead);
  poller.Run([&] { lane->Start(first, handle); });
  ASSERT_TRUE(world_.RunUntilPastFirstPing([&] { return first.done(); }));
  ASSERT_THAT(first.result, IsOk());
  poller.Run([&] {
    lane->Start(posted, handle);
    lane->Start(queued, handle);
    lane->Start(unopened, lane->Open(Ticket(0, 64)));
  });
  poller.PollOnce();
  world_.others.clear();
  runtime.reset();
  for (Operation* each : {&queued, &unopened}) {
    EXPECT_EQ(each->ends, 1);
    EXPECT_CODE(each->result, kUnavailable);
  }
  EXPECT_EQ(posted.ends, 1);
  if (!by_nic()) {  // A NIC may have completed it.
    EXPECT_CODE(posted.result, kUnavailable);
    EXPECT_NE(Text(posted.result).find("may have been written"), std::string::npos) << posted.result;
  }
  EXPECT_EQ(Text(unopened.result).find("may have been written"), std::string::npos) << unopened.result;
  EXPECT_EQ(first.ends, 1);
  EXPECT_EQ(owner.unsent, 0);
}

INSTANTIATE_TEST_SUITE_P(Networks, LaneTest, ::testing::ValuesIn(Networks()));

// ---- Messages

TEST(LaneMessageTest, EachKindIsDecodedAsItWasEncoded) {
  for (int kind = 1; kind <= 9; ++kind) {
    LaneMessage message;
    message.kind = static_cast<LaneMessage::Kind>(kind);
    message.handle = 0x01020304;
    message.ticket = {1, 2, 3, 4, kLaneRead, {9, 8, 7}};
    message.address = 0x1000;
    message.length = 77;
    message.rkey = 5;
    message.access = kLaneWrite;
    message.count = kLaneArrivedMax;
    message.why = absl::OutOfRangeError(std::string(1000, 'y'));
    const std::string bytes = Encode(message);
    ASSERT_LE(bytes.size(), kLaneMessageMax);
    const absl::StatusOr<LaneMessage> back =
        DecodeLaneMessage({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    ASSERT_THAT(back.status(), IsOk());
    EXPECT_EQ(back->kind, message.kind);
    EXPECT_EQ(back->handle, message.handle);
    EXPECT_EQ(back->ticket == message.ticket, kind == 1);
    if (kind == 2) {
      EXPECT_EQ(back->address, message.address);
      EXPECT_EQ(back->length, message.length);
      EXPECT_EQ(back->rkey, message.rkey);
      EXPECT_EQ(back->access, message.access);
    }
    EXPECT_EQ(back->count, kind == 8 ? message.count : 0);
    if (kind == 3) {
      EXPECT_CODE(back->why, kOutOfRange);
      EXPECT_EQ(Text(back->why), std::string(248, 'y'));
    }
  }
}

TEST(LaneMessageTest, EveryOtherLengthAndKindIsRefused) {
  std::vector<uint8_t> bytes(kLaneMessageMax, 0);
  for (int kind = 0; kind < 256; ++kind) {
    for (size_t size = 0; size <= bytes.size(); ++size) {
      bytes[0] = static_cast<uint8_t>(kind);
      const bool fits =
          (kind == 1 && size == 56) || (kind >= 3 && kind <= 7 && size == 8) || (kind == 9 && size == 8);
      EXPECT_EQ(DecodeLaneMessage({bytes.data(), size}).ok(), fits) << kind << ", " << size;
    }
  }
}

TEST(LaneMessageTest, AnArrivalCountsOneAtLeastAndAFewAtMost) {
  LaneMessage message;
  message.kind = LaneMessage::Kind::kArrived;
  for (const uint32_t count : {0u, 1u, kLaneArrivedMax, kLaneArrivedMax + 1, UINT32_MAX}) {
    message.count = count;
    const std::string bytes = Encode(message);
    EXPECT_EQ(DecodeLaneMessage({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}).ok(),
              count >= 1 && count <= kLaneArrivedMax)
        << count;
  }
}

}  // namespace
}  // namespace hawser::transport
