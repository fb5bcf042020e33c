#include "hawser/base/cores.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/base/thread.h"
#include "hawser/tests/testing/temporary_folder.h"

namespace hawser {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Optional;

TEST(ParseCoresTest, TakesNumbersAndRanges) {
  EXPECT_THAT(ParseCores("0"), Optional(ElementsAre(0)));
  EXPECT_THAT(ParseCores("0-3,8"), Optional(ElementsAre(0, 1, 2, 3, 8)));
  EXPECT_THAT(ParseCores("7,5,5-6"), Optional(ElementsAre(5, 6, 7)));
}

TEST(ParseCoresTest, RefusesWhatIsNoSuchList) {
  for (const char* text : {"", ",", "1,", "a", "-1", "1-", "3-2", "0-99999999", "0-3\nx", "99999999999"}) {
    EXPECT_EQ(ParseCores(text), std::nullopt) << "'" << text << "'";
  }
}

TEST(CoresOfNodeTest, AreThoseOfTheKernelsList) {
  const TemporaryFolder sysfs;
  const std::string node = sysfs.path() + "/devices/system/node/node1";
  std::filesystem::create_directories(node);
  std::ofstream(node + "/cpulist") << "4-5,12\n";
  EXPECT_THAT(CoresOfNode(1, sysfs.path()), ElementsAre(4, 5, 12));
  EXPECT_THAT(CoresOfNode(0, sysfs.path()), IsEmpty()) << "there is no such node";
  EXPECT_THAT(CoresOfNode(-1, sysfs.path()), IsEmpty());
}

class CpuQuotaTest : public ::testing::Test {
 protected:
  // `files`: of control groups, under the folder where they are mounted.
  std::optional<double> QuotaOf(const std::string& groups, const std::map<std::string, std::string>& files) {
    const TemporaryFolder root;
    for (const auto& [name, text] : files) {
      const std::filesystem::path path = root.path() + "/" + name;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path) << text;
    }
    std::ofstream(root.path() + "/groups") << groups;
    return CpuQuota(root.path() + "/groups", root.path());
  }
};

TEST_F(CpuQuotaTest, IsTheLeastOnTheWayToTheRoot) {
  EXPECT_THAT(QuotaOf("0::/a/b\n", {{"a/b/cpu.max", "400000 100000\n"}, {"a/cpu.max", "150000 100000\n"}}),
              Optional(1.5));
  EXPECT_THAT(QuotaOf("0::/a/b\n", {{"a/b/cpu.max", "50000 100000\n"}, {"a/cpu.max", "max 100000\n"}}),
              Optional(0.5));
  EXPECT_THAT(QuotaOf("0::/\n", {{"cpu.max", "200000 100000\n"}}), Optional(2.0));
  EXPECT_THAT(QuotaOf("0::/not/mounted/here\n", {{"cpu.max", "200000 100000\n"}}), Optional(2.0))
      << "a container";
}

TEST_F(CpuQuotaTest, IsThatOfVersionOneWhereThereIsNoOther) {
  const std::string groups = "5:memory:/a\n4:cpu,cpuacct:/a\n0::/\n";
  EXPECT_THAT(QuotaOf(groups, {{"cpu,cpuacct/a/cpu.cfs_quota_us", "300000\n"},
                               {"cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"}}),
              Optional(3.0));
  EXPECT_EQ(QuotaOf(groups, {{"cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n"},
                             {"cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"}}),
            std::nullopt);
}

TEST_F(CpuQuotaTest, IsNoneWhereNoneIsWrittenOrReadable) {
  EXPECT_EQ(QuotaOf("0::/a\n", {{"a/cpu.max", "max 100000\n"}}), std::nullopt);
  EXPECT_EQ(QuotaOf("0::/a\n", {}), std::nullopt);
  EXPECT_EQ(QuotaOf("", {}), std::nullopt);
  for (const char* text :
       {"", "x", "1", "0 100000", "100000 0", "-5 100000", "1 2 3", "99999999999999999999 1"}) {
    EXPECT_EQ(QuotaOf("0::/\n", {{"cpu.max", text}}), std::nullopt) << "'" << text << "'";
  }
  EXPECT_EQ(CpuQuota("/nonexistent"), std::nullopt);
}

TEST(RunOnTest, BindsTheCallingThreadOnly) {
  const std::set<int> allowed = AllowedCores();
  ASSERT_THAT(allowed, Not(IsEmpty()));
  std::set<int> there;
  std::thread([&] {
    EXPECT_TRUE(RunOn({*allowed.begin()}));
    there = AllowedCores();
  }).join();
  EXPECT_THAT(there, ElementsAre(*allowed.begin()));
  EXPECT_EQ(AllowedCores(), allowed);
}

TEST(BindToTest, HelpersStartWhereTheThreadMightRunBefore) {
  const std::set<int> allowed = AllowedCores();
  std::set<int> bound, of_helper, of_its_helper;
  std::thread([&] {
    EXPECT_TRUE(BindTo({*allowed.begin()}));
    bound = AllowedCores();
    auto helper = StartThread("helper", [&] {
      of_helper = AllowedCores();
      auto inner = StartThread("inner", [&] { of_its_helper = AllowedCores(); });
      if (inner.ok()) inner->join();
    });
    if (helper.ok()) helper->join();
  }).join();
  EXPECT_THAT(bound, ElementsAre(*allowed.begin()));
  EXPECT_EQ(of_helper, allowed);
  EXPECT_EQ(of_its_helper, allowed);
}

TEST(RunOnTest, HelpersFollow) {
  const int first = *AllowedCores().begin();
  std::set<int> of_helper;
  std::thread([&] {
    EXPECT_TRUE(RunOn({first}));
    auto helper = StartThread("helper", [&] { of_helper = AllowedCores(); });
    if (helper.ok()) helper->join();
  }).join();
  EXPECT_THAT(of_helper, ElementsAre(first));
}

TEST(RunOnTest, CoresThatTheMachineLacksAreRefused) {
  EXPECT_FALSE(RunOn({16000}));
  EXPECT_FALSE(RunOn({}));
}

}  // namespace
}  // namespace hawser
