#include "hawser/tests/sim/history.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::sim {
namespace {

using ::testing::HasSubstr;

TEST(ChartHistoryTest, DrawsHostsWhatHappensAndMessages) {
  ChartHistory history;
  history.Happened(1'000'000, 1, "is switched on");
  history.Arrived(1'000'500, 2, 1'002'000, 1, "SEND of <64> B");
  history.Happened(1'002'000, 0, "the clock jumps");
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/chart.svg";
  ASSERT_THAT(history.Write(path), IsOk());

  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string svg = text.str();
  EXPECT_THAT(svg, HasSubstr("host 1</text>"));
  EXPECT_THAT(svg, HasSubstr("host 2</text>"));
  EXPECT_THAT(svg, HasSubstr("is switched on"));
  EXPECT_THAT(svg, HasSubstr("SEND of &lt;64&gt; B"));
  EXPECT_THAT(svg, HasSubstr("1.000500 ms"));
  EXPECT_THAT(svg, HasSubstr("1.002000 ms"));
  EXPECT_THAT(svg, HasSubstr("the clock jumps"));
  // One arrow, downwards from host 2 to host 1: the second row to the third.
  EXPECT_THAT(svg, HasSubstr("x1='530' y1='72' x2='170' y2='88'"));
}

TEST(ChartHistoryTest, AFileThatCannotBeWrittenIsSaid) {
  EXPECT_THAT(std::string(ChartHistory().Write("/no/such/folder/chart.svg").message()),
              HasSubstr("/no/such/folder/chart.svg: No such file or directory"));
}

TEST(TextHistoryTest, IsALineEach) {
  testing::internal::CaptureStdout();
  TextHistory history;
  history.Happened(1'500'000, 2, "is switched off");
  history.Happened(1'500'000, 0, "the clock jumps");
  history.Arrived(1'499'000, 1, 1'500'000, 2, "SEND of 64 B");
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "       1.500000 ms  host 2: is switched off\n"
            "       1.500000 ms  the clock jumps\n"
            "       1.500000 ms  host 1 -> host 2: SEND of 64 B, after 1000 ns\n");
}

}  // namespace
}  // namespace hawser::sim
