// The ledger of one pool: what hosts hold of it, and which pollers wait for that.
#include "hawser/transport/pull_ledger.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/testing/test_fabric.h"

namespace hawser::transport {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class RecordingMember final : public PullLedger::Member {
 public:
  int told = 0;

 private:
  void OnReleased() override { ++told; }
};

class PullLedgerTest : public ::testing::Test {
 protected:
  PullLedgerTest()
      : pool_(NewTestFabric(), {.limit_bytes = 64 * kMiB}, BufferPool::Threads::kNone), ledger_(pool_) {
    ledger_.Add(first_);
    ledger_.Add(second_);
  }
  ~PullLedgerTest() override {
    ledger_.Remove(second_);
    ledger_.Remove(first_);
  }

  BufferPool pool_;
  PullLedger ledger_;
  RecordingMember first_, second_;
  PullLedger::Refusal refusal_;
};

TEST_F(PullLedgerTest, AHostHoldsItsShareOfWhatIsFreeOrItsOwn) {
  PullLedger::Host& host = ledger_.Join(PeerHost());
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

TEST_F(PullLedgerTest, ReleasedMemoryIsToldToThoseThatMissSome) {
  PullLedger::Host& host = ledger_.Join(PeerHost());
  ASSERT_TRUE(ledger_.Lend(host, kMiB, 1, refusal_));
  ledger_.SetMissing(second_, kMiB, 0);
  EXPECT_TRUE(ledger_.Release(host, kMiB, first_));
  EXPECT_EQ(second_.told, 0) << "the memory is not back yet";
  ledger_.TellReleased(first_);
  ledger_.TellReleased(second_);
  EXPECT_EQ(first_.told, 0);
  EXPECT_EQ(second_.told, 1);
  ledger_.Part(host);
}

TEST_F(PullLedgerTest, AWaitCountsOnceItHasLasted) {
  ledger_.SetMissing(first_, 5 * kMiB, 100);
  EXPECT_EQ(ledger_.ClaimMissing(99), 0u);
  ledger_.SetMissing(first_, 7 * kMiB, 200);
  EXPECT_EQ(ledger_.ClaimMissing(100), 7 * kMiB) << "it has lasted since 100";
}

TEST_F(PullLedgerTest, AWaitThatHasEndedDoesNotCount) {
  ledger_.SetMissing(first_, 5 * kMiB, 100);
  ledger_.SetMissing(first_, 0, 200);
  EXPECT_EQ(ledger_.ClaimMissing(300), 0u);
  ledger_.SetMissing(first_, 5 * kMiB, 400);
  EXPECT_EQ(ledger_.ClaimMissing(300), 0u);
}

TEST_F(PullLedgerTest, WhatOneClaimsNoOtherClaims) {
  ledger_.SetMissing(first_, 5 * kMiB, 100);
  EXPECT_EQ(ledger_.ClaimMissing(100), 5 * kMiB);
  EXPECT_EQ(ledger_.ClaimMissing(100), 0u);
  ledger_.Unclaim(3 * kMiB);
  EXPECT_EQ(ledger_.ClaimMissing(100), 3 * kMiB);
}

// Its poller may be held by a handler, and the memory lie free.
TEST_F(PullLedgerTest, AMemberThatWasToldDoesNotCountUntilItHasTriedAgain) {
  ledger_.SetMissing(second_, 5 * kMiB, 100);
  ledger_.TellReleased(first_);
  EXPECT_EQ(ledger_.ClaimMissing(100), 0u);
  ledger_.StillMissing(second_);
  EXPECT_EQ(ledger_.ClaimMissing(100), 5 * kMiB);
}

}  // namespace
}  // namespace hawser::transport
