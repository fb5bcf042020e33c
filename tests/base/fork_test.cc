// A child detects which objects were made before fork().

#include "hawser/base/fork.h"

#include "gtest/gtest.h"
#include "hawser/tests/testing/child.h"

namespace hawser {
namespace {

TEST(ForkMarkTest, ChildSeesTheMarksOfItsParentAndNotItsOwn) {
  const ForkMark of_parent;
  EXPECT_FALSE(of_parent.in_child());
  EXPECT_TRUE(InChild([&] {
    const ForkMark own;
    const ForkMark copy = of_parent;
    return of_parent.in_child() && copy.in_child() && !own.in_child();
  }));
  EXPECT_FALSE(of_parent.in_child());
}

TEST(ForkMarkTest, OfNoProcessEveryProcessIsAChild) {
  const ForkMark mark = ForkMark::OfNoProcess();
  EXPECT_TRUE(mark.in_child());
  EXPECT_TRUE(InChild([&] { return mark.in_child(); }));
}

TEST(ForkMarkTest, ChildOfAChildSeesTheMarksOfBoth) {
  const ForkMark of_grandparent;
  EXPECT_TRUE(InChild([&] {
    const ForkMark of_parent;
    return InChild([&] { return of_grandparent.in_child() && of_parent.in_child(); });
  }));
}

struct Value {
  int value = 1;
};
PerProcess<Value> per_process;

TEST(PerProcessTest, ChildHasAValueOfItsOwn) {
  per_process.Get().value = 2;
  EXPECT_TRUE(InChild([] {
    if (per_process.Get().value != 1) return false;
    per_process.Get().value = 3;
    return per_process.Get().value == 3;
  }));
  EXPECT_EQ(per_process.Get().value, 2);
}

}  // namespace
}  // namespace hawser
