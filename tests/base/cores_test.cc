#include "hawser/base/cores.h"

#include <filesystem>
#include <fstream>
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
