// The ledger of one pool: what hosts hold of it, and which pollers wait for that.
#include "hawser/transport/sharing/read_ledger.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/testing/test_fabric.h"

namespace hawser::transport {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class RecordingMember final : public ReadLedger::Member {
 public:
  int told = 0;

 private:
  void OnReleased() override { ++told; }
};

class ReadLedgerTest : public ::testing::Test {
 protected:
  ReadLedgerTest()
      : pool_(NewTestFabric(), {.limit_bytes = 64 * kMiB}, BufferPool::Threads::kNone), ledger_(pool_) {
    ledger_.Add(first_);
    ledger_.Add(second_);
  }
  ~ReadLedgerTest() override {
    ledger_.Remove(second_);
    ledger_.Remove(first_);
  }

  BufferPool pool_;
  ReadLedger ledger_;
  RecordingMember first_, second_;
  ReadLedger::Refusal refusal_;
};

using ReadLedgerDeathTest = ReadLedgerTest;

TEST_F(ReadLedgerDeathTest, MoreIsReleasedThanWasLent) {
  ReadLedger::Host& host = ledger_.Join(PeerHost());
  const Lease lease = ledger_.Lend(host, kMiB, 0.5, refusal_);
  ASSERT_TRUE(lease);
  EXPECT_DEATH(ledger_.Release(host, kMiB + 1, first_), "host.held_bytes >= bytes: 1048576 >= 1048577");
  ledger_.Release(host, kMiB, first_);
  ledger_.Part(host);
}

TEST_F(ReadLedgerTest, AHostHoldsItsShareOfWhatIsFreeOrItsOwn) {
  ReadLedger::Host& host = ledger_.Join(PeerHost());
  ASSERT_EQ(&ledger_.Join(PeerHost()), &host) << "two pollers, one host";
  std::vector<Lease> leases;
  leases.push_back(ledger_.Lend(host, 16 * kMiB, 0.5, refusal_));
  ASSERT_TRUE(leases.back());
  leases.push_back(ledger_.Lend(host, 16 * kMiB, 0.5, refusal_));
  ASSERT_TRUE(leases.back());
  EXPECT_FALSE(ledger_.Lend(host, 16 * kMiB, 0.5, refusal_));
  EXPECT_FALSE(refusal_.by_pool);
  leases.push_back(ledger_.Lend(host, 16 * kMiB, 1, refusal_));
  ASSERT_TRUE(leases.back()) << "of the pool's 64 MiB";
  EXPECT_FALSE(ledger_.Release(host, 48 * kMiB, first_)) << "nobody misses any";
  leases.clear();
  EXPECT_TRUE(ledger_.Lend(host, 60 * kMiB, 0.5, refusal_)) << "no host holds any";
  ledger_.Release(host, 60 * kMiB, first_);
  ledger_.Part(host);
  ledger_.Part(host);
}

TEST_F(ReadLedgerTest, ReleasedMemoryIsToldToThoseThatMissSome) {
  ReadLedger::Host& host = ledger_.Join(PeerHost());
  ASSERT_TRUE(ledger_.Lend(host, kMiB, 1, refusal_));
  ledger_.SetMissing(second_, kMiB, 0);
  EXPECT_TRUE(ledger_.Release(host, kMiB, first_));
  EXPECT_EQ(second_.told, 0) << "the memory is not back yet";
  ledger_.NotifyReleased(first_);
  ledger_.NotifyReleased(second_);
  EXPECT_EQ(first_.told, 0);
  EXPECT_EQ(second_.told, 1);
  ledger_.Part(host);
}

TEST_F(ReadLedgerTest, AWaitCountsOnceItHasLasted) {
  ledger_.SetMissing(first_, 5 * kMiB, 100);
  EXPECT_EQ(ledger_.ClaimMissing(99), 0u);
  ledger_.SetMissing(first_, 7 * kMiB, 200);
  EXPECT_EQ(ledger_.ClaimMissing(100), 7 * kMiB) << "it has lasted since 100";
}

TEST_F(ReadLedgerTest, AWaitThatHasEndedDoesNotCount) {
  ledger_.SetMissing(first_, 5 * kMiB, 100);
  ledger_.SetMissing(first_, 0, 200);
  EXPECT_EQ(ledger_.ClaimMissing(300), 0u);
  ledger_.SetMissing(first_, 5 * kMiB, 400);
  EXPECT_EQ(ledger_.ClaimMissing(300), 0u);
}

TEST_F(ReadLedgerTest, WhatOneClaimsNoOtherClaims) {
  ledger_.SetMissing(first_, 5 * kMiB, 100);
  EXPECT_EQ(ledger_.ClaimMissing(100), 5 * kMiB);
  EXPECT_EQ(ledger_.ClaimMissing(100), 0u);
  ledger_.Unclaim(3 * kMiB);
  EXPECT_EQ(ledger_.ClaimMissing(100), 3 * kMiB);
}

TEST_F(ReadLedgerTest, WhileOneMemberMissesSomeAnotherMayStop) {
  ledger_.SetMissing(first_, 5 * kMiB, 100);
  EXPECT_TRUE(ledger_.SetMissing(second_, kMiB, 200)) << "the first one does, too";
  EXPECT_TRUE(ledger_.any_misses());
  EXPECT_TRUE(ledger_.SetMissing(second_, 0, 300));
  EXPECT_TRUE(ledger_.any_misses());
  EXPECT_EQ(ledger_.ClaimMissing(300), 5 * kMiB);
  EXPECT_FALSE(ledger_.SetMissing(first_, 0, 400));
  EXPECT_FALSE(ledger_.any_misses());
}

TEST_F(ReadLedgerTest, OfTwoThatMissSomeTheOneThatTriedAgainCounts) {
  ledger_.SetMissing(first_, 5 * kMiB, 100);
  ledger_.SetMissing(second_, 3 * kMiB, 100);
  ledger_.NotifyReleased(first_);
  EXPECT_EQ(ledger_.ClaimMissing(100), 5 * kMiB);
  ledger_.Unclaim(5 * kMiB);
  ledger_.SetMissing(second_, 2 * kMiB, 200);
  EXPECT_EQ(ledger_.ClaimMissing(100), 7 * kMiB) << "it has missed some since 100";
}

TEST_F(ReadLedgerTest, AMemberIsToldOfEachRelease) {
  ledger_.SetMissing(second_, kMiB, 0);
  ledger_.NotifyReleased(first_);
  ledger_.NotifyReleased(first_);
  EXPECT_EQ(second_.told, 2) << "the first may have been too little";
}

TEST_F(ReadLedgerTest, AClaimForAShortageTakesOffWhatIsClaimed) {
  EXPECT_EQ(ledger_.ClaimMissing(100, /*is_short=*/true, 8 * kMiB), 8 * kMiB);
  EXPECT_EQ(ledger_.ClaimMissing(100, /*is_short=*/true, 8 * kMiB), 0u);
  ledger_.Unclaim(2 * kMiB);
  EXPECT_EQ(ledger_.ClaimMissing(100, /*is_short=*/true, 8 * kMiB), 2 * kMiB);
  ledger_.Unclaim(8 * kMiB);
  EXPECT_EQ(ledger_.ClaimMissing(100, /*is_short=*/false, 8 * kMiB), 0u);
}

TEST_F(ReadLedgerTest, AHostThatReturnsAResponseHoldsTheOthers) {
  ReadLedger::Host& host = ledger_.Join(PeerHost());
  ledger_.AddResponse(host, 30 * kMiB);
  ledger_.AddResponse(host, 10 * kMiB);
  const Lease taken = *pool_.Acquire(40 * kMiB);
  EXPECT_FALSE(ledger_.MayHoldResponse(host, 20 * kMiB, 0.5));
  EXPECT_EQ(ledger_.refused_responses(), 1u);
  ledger_.ReleaseResponse(host, 10 * kMiB);
  EXPECT_EQ(ledger_.HeldBy(host), 30 * kMiB);
  EXPECT_FALSE(ledger_.MayHoldResponse(host, 20 * kMiB, 0.5));
  EXPECT_EQ(ledger_.refused_responses(), 2u);
  ledger_.ReleaseResponse(host, 30 * kMiB);
  EXPECT_TRUE(ledger_.MayHoldResponse(host, 20 * kMiB, 0.5)) << "its only one";
  ledger_.Part(host);
}

// Its poller may be held by a handler, and the memory lie free.
TEST_F(ReadLedgerTest, AMemberThatWasToldDoesNotCountUntilItHasTriedAgain) {
  ledger_.SetMissing(second_, 5 * kMiB, 100);
  ledger_.NotifyReleased(first_);
  EXPECT_EQ(ledger_.ClaimMissing(100), 0u);
  ledger_.StillMissing(second_);
  EXPECT_EQ(ledger_.ClaimMissing(100), 5 * kMiB);
}

}  // namespace
}  // namespace hawser::transport
