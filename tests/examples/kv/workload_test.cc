#include "examples/kv/client/workload.h"

#include <map>
#include <random>
#include <set>
#include <vector>

#include "examples/kv/client/zipfian.h"
#include "gtest/gtest.h"

namespace kv {
namespace {

TEST(ZipfianTest, RanksComeUpAsOftenAsTheyShould) {
  constexpr int kRanks = 1000, kSamples = 1000000;
  Zipfian zipfian(kRanks);
  std::mt19937_64 random(1);
  std::vector<double> share(kRanks);
  for (int i = 0; i < kSamples; ++i) share[zipfian.Sample(random)] += 1.0 / kSamples;
  // 1 / (the sum of r^-0.99 for r from 1 to 1000) is 0.1292.
  EXPECT_NEAR(share[0], 0.1292, 0.002);
  EXPECT_NEAR(share[1], 0.1292 * std::pow(2, -0.99), 0.002);
  // The method is exact for the first two and close for the rest (within a third at its worst, rank 3).
  EXPECT_NEAR(share[9], 0.1292 * std::pow(10, -0.99), 0.003);
  EXPECT_GT(share[999], 0);
}

TEST(ZipfianTest, FewRanksAreRanks) {
  std::mt19937_64 random(1);
  for (uint64_t ranks : {1, 2, 3}) {
    Zipfian zipfian(ranks);
    std::set<uint64_t> seen;
    for (int i = 0; i < 1000; ++i) seen.insert(zipfian.Sample(random));
    EXPECT_EQ(seen.size(), ranks);
    EXPECT_LT(*seen.rbegin(), ranks);
  }
}

TEST(WorkloadTest, OperationsAreMixedAsYcsbMixesThem) {
  const std::map<std::string, std::map<Operation, double>> kExpected = {
      {"a", {{Operation::kRead, 50}, {Operation::kUpdate, 50}}},
      {"b", {{Operation::kRead, 95}, {Operation::kUpdate, 5}}},
      {"c", {{Operation::kRead, 100}}},
      {"d", {{Operation::kRead, 95}, {Operation::kInsert, 5}}},
      {"e", {{Operation::kScan, 95}, {Operation::kInsert, 5}}},
      {"f", {{Operation::kRead, 50}, {Operation::kReadModifyWrite, 50}}},
  };
  for (const auto& [name, expected] : kExpected) {
    ASSERT_NE(FindMix(name), nullptr);
    Workload workload(*FindMix(name), 10);
    std::mt19937_64 random(1);
    std::map<Operation, double> percent;
    for (int i = 0; i < 100000; ++i) percent[workload.NextOperation(random)] += 0.001;
    ASSERT_EQ(percent.size(), expected.size()) << name;
    for (const auto& [operation, share] : expected) EXPECT_NEAR(percent[operation], share, 1) << name;
  }
  EXPECT_EQ(FindMix("g"), nullptr);
  EXPECT_EQ(FindMix("ab"), nullptr);
  EXPECT_EQ(FindMix(""), nullptr);
}

TEST(WorkloadTest, RecordsThatWereInsertedLastArePopularInD) {
  Workload workload(*FindMix("d"), 100);
  std::mt19937_64 random(1);
  const auto newest = [&] {
    uint64_t record = 0;
    for (int i = 0; i < 1000; ++i) record = std::max(record, workload.NextRecord(random));
    return record;
  };
  EXPECT_EQ(newest(), 99u);
  EXPECT_EQ(workload.Reserve(), 100u);
  EXPECT_EQ(workload.Reserve(), 101u);
  workload.Inserted(101);
  EXPECT_EQ(newest(), 99u);  // 100 is not there yet.
  workload.Inserted(100);
  EXPECT_EQ(newest(), 101u);
}

TEST(WorkloadTest, OtherwisePopularRecordsLieApart) {
  Workload workload(*FindMix("c"), 100000);
  std::mt19937_64 random(1);
  std::map<uint64_t, int> times;
  for (int i = 0; i < 10000; ++i) ++times[workload.NextRecord(random)];
  std::set<uint64_t> popular;
  for (const auto& [record, count] : times) {
    EXPECT_LT(record, 100000u);
    if (count > 100) popular.insert(record);
  }
  EXPECT_GT(popular.size(), 3u);
  EXPECT_GT(*popular.rbegin() - *popular.begin(), 1000u);
}

TEST(WorkloadTest, KeysAreTheSameEachTimeAndDiffer) {
  EXPECT_EQ(Workload::Key("p/", 7), Workload::Key("p/", 7));
  std::set<std::string> keys;
  for (uint64_t record = 0; record < 10000; ++record) keys.insert(Workload::Key("p/", record));
  EXPECT_EQ(keys.size(), 10000u);
  EXPECT_EQ(keys.begin()->substr(0, 6), "p/user");
}

}  // namespace
}  // namespace kv
