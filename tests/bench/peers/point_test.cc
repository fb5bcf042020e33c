#include "hawser/bench/peers/point.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::bench::peers {
namespace {

using testing::HasSubstr;

TEST(PointTest, FieldsAreInTheOrderOfTheFlag) {
  const absl::StatusOr<Point> point = ParsePoint("echo:2:1048576:64:8:0");
  ASSERT_THAT(point, IsOk());
  EXPECT_EQ(point->workload, "echo");
  EXPECT_EQ(point->place, "2");
  EXPECT_EQ(point->pin, Pin::kTwoCores);
  EXPECT_EQ(point->load.bytes, 1048576u);
  EXPECT_EQ(point->load.in_flight, 64);
  EXPECT_EQ(point->load.connections, 8);
  EXPECT_EQ(point->rate, 0);
}

TEST(PointTest, PacedHasARate) {
  const absl::StatusOr<Point> point = ParsePoint("paced:any:32:1:1:1000.5");
  ASSERT_THAT(point, IsOk());
  EXPECT_EQ(point->rate, 1000.5);
}

TEST(PointTest, ErrorNamesTheField) {
  const auto error = [](const char* text) { return std::string(ParsePoint(text).status().message()); };
  EXPECT_THAT(error(""), HasSubstr("WORKLOAD:PLACE:BYTES:IN_FLIGHT:CONNECTIONS:RATE"));
  EXPECT_THAT(error("put:2:32:1:1:0"), HasSubstr("WORKLOAD 'put' is not echo, paced or bulk"));
  EXPECT_THAT(error("echo:3:32:1:1:0"), HasSubstr("PLACE '3' is not 1, 2 or any"));
  EXPECT_THAT(error("echo:2:0:1:1:0"), HasSubstr("BYTES '0'"));
  EXPECT_THAT(error("echo:2:32:x:1:0"), HasSubstr("IN_FLIGHT 'x'"));
  EXPECT_THAT(error("echo:2:32:1:-1:0"), HasSubstr("CONNECTIONS '-1'"));
  EXPECT_THAT(error("paced:2:32:1:1:inf"), HasSubstr("RATE 'inf'"));
}

TEST(PointTest, FieldsHaveToFitEachOther) {
  EXPECT_THAT(ParsePoint("echo:2:32:1:2:0"), ::testing::Not(IsOk()));     // A connection without a call.
  EXPECT_THAT(ParsePoint("echo:2:32:1:1:100"), ::testing::Not(IsOk()));   // A rate without a pace.
  EXPECT_THAT(ParsePoint("paced:2:32:1:1:0"), ::testing::Not(IsOk()));    // A pace without a rate.
  EXPECT_THAT(ParsePoint("paced:2:32:2:1:100"), ::testing::Not(IsOk()));  // One call at a time only.
  EXPECT_THAT(ParsePoint("bulk:2:32:2:1:0"), ::testing::Not(IsOk()));
}

}  // namespace
}  // namespace hawser::bench::peers
