#include "hawser/base/check.h"

#include "gtest/gtest.h"

namespace hawser {
namespace {

TEST(CheckTest, FailureNamesPlaceConditionAndValues) {
  const int slot = 40;
  EXPECT_DEATH(HAWSER_CHECK(slot < 32, "slot ", slot, " of ", 32, ", connection to 10.0.0.2:7470"),
               "check_test.cc:[0-9]+: CHECK failed: slot < 32: slot 40 of 32, connection to 10.0.0.2:7470");
}

TEST(CheckTest, FailureWithoutValuesNamesTheCondition) {
  EXPECT_DEATH(HAWSER_CHECK(1 + 1 == 3), "CHECK failed: 1 \\+ 1 == 3");
}

TEST(CheckTest, SuccessEvaluatesTheConditionOnceAndNoValues) {
  int conditions = 0, values = 0;
  HAWSER_CHECK(++conditions == 1, "value ", ++values);
  EXPECT_EQ(conditions, 1);
  EXPECT_EQ(values, 0);
}

TEST(CheckTest, ACounterThatWouldGoBelowZeroIsNamedWithItsValue) {
  size_t held_bytes = 4096;
  HAWSER_SUBTRACT(held_bytes, 4000);
  EXPECT_EQ(held_bytes, 96u);
  EXPECT_DEATH(HAWSER_SUBTRACT(held_bytes, 100),
               "check_test.cc:[0-9]+: CHECK failed: held_bytes >= 100: 96 >= 100");
}

}  // namespace
}  // namespace hawser
