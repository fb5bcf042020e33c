// Peers that announce large messages and do not answer READs, beside peers that do.
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

constexpr int kStalled = 3;

// Clients that do not answer the READs of their large requests, and one honest client.
class StalledReadsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    honest_ = std::make_unique<Link>(world_, Patient());
    for (int i = 0; i < kStalled; ++i) {
      stalled_.push_back(std::make_unique<Link>(world_, Patient()));
      PutOnce(*stalled_[i]);
    }
    reads_before_ = stalled_[0]->server_counts().reads;
    for (auto& link : stalled_) {
      link->server_counts().hold_reads = true;
      calls_.push_back(std::make_unique<PendingCall>());
      ASSERT_THAT(link->Send(*calls_.back(), 16 * kMiB), IsOk());
    }
    world_.Settle();
  }

  // Disables the timeout for READs without progress, which these tests do not cover.
  static ConnectionOptions Patient() { return {.keepalive_interval = absl::InfiniteDuration()}; }

  // One large request gives the connection its share of the read budget.
  void PutOnce(Link& link) {
    PendingCall call;
    ASSERT_THAT(link.Send(call, 16 * kMiB), IsOk());
    ASSERT_TRUE(world_.RunUntil([&] { return !link.server.requests.empty(); }));
    link.RespondEmpty(link.server.requests[0].id);
    ASSERT_TRUE(world_.RunUntil([&] { return call.done(); }));
    link.server.requests.clear();
  }

  uint64_t taken_bytes() { return world_.server.poller().read_budget().taken_bytes(); }

  // Sends a large request; returns the time until it has arrived.
  absl::Duration PutOnHonest() {
    const size_t before = honest_->server.requests.size();
    const int64_t start_ns = world_.clock.NowNs();
    PendingCall call;
    EXPECT_THAT(honest_->Send(call, 2 * kMiB), IsOk());
    world_.Settle();
    for (int i = 0; i < 1000 && honest_->server.requests.size() == before; ++i) {
      world_.Pass(absl::Milliseconds(1));
    }
    EXPECT_GT(honest_->server.requests.size(), before);
    return absl::Nanoseconds(world_.clock.NowNs() - start_ns);
  }

  void LetThrough(uint64_t reads) {
    for (auto& link : stalled_) link->server_counts().reads_let_through = reads;
    world_.Settle();
  }

  World world_;
  uint64_t reads_before_ = 0;  // READs of the first stalled connection before it stalled.
  std::unique_ptr<Link> honest_;
  std::vector<std::unique_ptr<Link>> stalled_;
  std::vector<std::unique_ptr<PendingCall>> calls_;
};

TEST_F(StalledReadsTest, StalledPeersLoseTheirShareOfTheReadBudget) {
  EXPECT_EQ(taken_bytes(), 8 * kMiB) << "all of it";
  EXPECT_LE(PutOnHonest(), ReadBudget::kStallMin + absl::Milliseconds(1));
  EXPECT_EQ(PutOnHonest(), absl::ZeroDuration()) << "they have it again";
}

TEST_F(StalledReadsTest, NewPeersThatStallTakeNothingFromTheReadBudget) {
  PutOnHonest();
  const uint64_t before = taken_bytes();
  std::vector<std::unique_ptr<Link>> strangers;
  PendingCall calls[5];
  for (PendingCall& call : calls) {
    strangers.push_back(std::make_unique<Link>(world_, Patient()));
    strangers.back()->server_counts().hold_reads = true;
    ASSERT_THAT(strangers.back()->Send(call, 16 * kMiB), IsOk());
  }
  world_.Settle();
  EXPECT_EQ(taken_bytes(), before);
  EXPECT_EQ(PutOnHonest(), absl::ZeroDuration());
}

TEST_F(StalledReadsTest, AShareThatStandsIdleForLongIsLostAtOnce) {
  world_.Pass(absl::Seconds(1), absl::Milliseconds(100));
  EXPECT_EQ(PutOnHonest(), absl::ZeroDuration());
}

TEST_F(StalledReadsTest, PeersThatTrickleTakeNothingFromTheReadBudget) {
  PutOnHonest();
  for (int i = 0; i < 20; ++i) {
    world_.Pass(absl::Seconds(14), absl::Seconds(7));
    LetThrough(1);
    EXPECT_EQ(PutOnHonest(), absl::ZeroDuration()) << "after READ " << i;
  }
}

TEST_F(StalledReadsTest, AStalledPeerHasOneReadAtATimeUntilItMoves) {
  PutOnHonest();
  SpyFabric::Counts& counts = stalled_[0]->server_counts();
  const uint64_t posted = counts.reads;
  LetThrough(posted - reads_before_);  // One READ is late, the others complete at once after it.
  EXPECT_GT(counts.reads, posted);
  world_.Pass(absl::Seconds(1), absl::Milliseconds(100));
  PutOnHonest();
  const uint64_t posted_in_all = counts.reads;
  for (uint64_t i = 1; i < posted_in_all - posted; ++i) {
    world_.Pass(absl::Seconds(1), absl::Milliseconds(100));
    LetThrough(1);
    EXPECT_EQ(counts.reads, posted_in_all) << "READs were posted while others stood still";
  }
  world_.Pass(absl::Seconds(1), absl::Milliseconds(100));
  LetThrough(1);
  EXPECT_EQ(counts.reads, posted_in_all + 1);
}

TEST_F(StalledReadsTest, PeersThatMoveAgainHaveTheirLargeRequestsRead) {
  PutOnHonest();
  for (auto& link : stalled_) link->server_counts().hold_reads = false;
  ASSERT_TRUE(world_.RunUntil([&] {
    for (auto& link : stalled_) {
      if (link->server.requests.empty()) return false;
    }
    return true;
  }));
  for (auto& link : stalled_) EXPECT_EQ(Content(*link->server.requests[0].message), ContentOf(16 * kMiB));
  EXPECT_EQ(taken_bytes(), 0u);
}

}  // namespace
}  // namespace hawser::transport
