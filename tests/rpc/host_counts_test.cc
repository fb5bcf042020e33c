// A bound for the clients of one host, and one for those of all hosts.

#include "hawser/rpc/server/host_counts.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {
namespace {

using ::testing::HasSubstr;

PeerHost Host(const std::string& address) { return PeerHost(*transport::ParseNumericHost(address)); }
PeerHost Number(int number) { return Host(absl::StrCat("10.0.", number / 256, ".", number % 256)); }

// How many it gets.
uint64_t TakeAll(HostCounts& counts, const PeerHost& host) {
  uint64_t taken = 0;
  while (counts.Add(host).ok()) ++taken;
  return taken;
}

TEST(HostCountsTest, OneHostHasItsOwnBound) {
  HostCounts counts("tickets", 10, 1000);
  EXPECT_EQ(TakeAll(counts, Number(1)), 10u);
  const absl::Status refused = counts.Add(Number(1));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the clients of this host have 10 tickets"));
  EXPECT_THAT(counts.Add(Number(2)), IsOk());
  EXPECT_EQ(counts.total(), 11u);
}

TEST(HostCountsTest, AllHostsTogetherHaveOneAndTheTextSaysWhich) {
  HostCounts counts("tickets", 1000, 200);
  EXPECT_EQ(TakeAll(counts, Number(1)), 38u);  // (100 - 38)^2 / 100 = 38.4, and the next one would be more.
  const absl::Status refused = counts.Add(Number(1));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("the clients of all hosts have 38 of 200 tickets, and those of this host 38 of these"));
}

// Whatever others have taken before, and though they come and go.
TEST(HostCountsTest, EachHostFindsItsLeastBesideManyThatTakeAll) {
  constexpr uint64_t kTotal = 40'000;
  constexpr int kHosts = kTotal / (2 * HostCounts::kEachMin);
  HostCounts counts("tickets", kTotal, kTotal);
  for (int rounds = 0; rounds < 3; ++rounds) {
    for (int host = 0; host < kHosts - 1; ++host) {
      if (TakeAll(counts, Number(host)) > 0) counts.Remove(Number(host), 1);
    }
    for (int host = 0; host < kHosts - 1; ++host) TakeAll(counts, Number(host));
  }
  EXPECT_LE(counts.total(), kTotal);
  EXPECT_EQ(TakeAll(counts, Number(kHosts)), HostCounts::kEachMin);
}

// The tenth of hosts that take all they can still gets a hundredth.
TEST(HostCountsTest, TheFirstHostsDoNotTakeWhatIsForLaterOnes) {
  HostCounts counts("tickets", 1'000'000, 1'000'000);
  for (int host = 1; host < 10; ++host) TakeAll(counts, Number(host));
  EXPECT_GE(TakeAll(counts, Number(10)), 5'000u);
}

TEST(HostCountsTest, ThereIsNoMoreThanTheTotalForAnyNumberOfHosts) {
  HostCounts counts("tickets", 10, 30);
  for (int host = 0; host < 5000; ++host) TakeAll(counts, Number(host));
  EXPECT_EQ(counts.total(), 30u);
  EXPECT_LE(counts.hosts(), 30u);  // Nothing is kept of the others.
  EXPECT_THAT(std::string(counts.Add(Number(5000)).message()), HasSubstr("a host gets 0 at most"));
}

TEST(HostCountsTest, WhatIsGivenBackIsThereForOthers) {
  HostCounts counts("tickets", 100, 200);
  const uint64_t first = TakeAll(counts, Number(1));
  const uint64_t second = TakeAll(counts, Number(2));
  EXPECT_LT(second, first);
  counts.Remove(Number(1), first);
  EXPECT_GT(TakeAll(counts, Number(3)), second);
  counts.Remove(Number(2), second);
  counts.Remove(Number(3), counts.total());
  EXPECT_EQ(counts.total(), 0u);
  EXPECT_EQ(counts.hosts(), 0u);
}

}  // namespace
}  // namespace hawser::internal
