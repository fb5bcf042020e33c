// What is in a program's own metrics that Prometheus would drop a scrape for.

#include "hawser/observe/metrics_text.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hawser::observe {
namespace {

using ::testing::HasSubstr;

TEST(MetricsTextTest, WhatPrometheusReadsIsFine) {
  for (const char* text :
       {"", "\n\n", "a 1", "a 1\n", "a:b_c9 -1.5e3 1700000000000\n", "a{} 1\n", "a{b=\"c\"} NaN\n",
        "a{b=\"c\",} +Inf\n", "a{ b = \"c\" , d=\"\" } -Inf\n", "a {b=\"c\"}\t7\n", "a{b=\"c\"}7\n",
        " a 1 \n", "a{b=\"quote \\\" line end \\n backslash \\\\ brace } comma ,\"} 1\n",
        "a{b=\"k\xc3\xa4se\"} 1\n", "# HELP a What it is, in \"words\".\n# TYPE a counter\na 1\n",
        "#\n# any comment\r\n#TYPE 1 number\n# TYPES 1 2\n",
        "# TYPE a histogram\n# TYPE b summary\n# TYPE c untyped\n"}) {
    EXPECT_EQ(WhyNoMetrics(text), "") << text;
  }
}

TEST(MetricsTextTest, TheFirstLineThatIsWrongIsNamed) {
  EXPECT_EQ(WhyNoMetrics("a 1\n\n# b\nc{d=\"e\"f\"} 2\nalso wrong\n"),
            "line 4 is no metric: c{d=\"e\"f\"} 2");
  EXPECT_EQ(WhyNoMetrics("a{b=\"\x1b[2J\"} x"), "line 1 is no metric: a{b=\"\\x1b[2J\"} x");
  EXPECT_LT(WhyNoMetrics(std::string(10'000, 'a')).size(), 200u);
}

TEST(MetricsTextTest, WhatTheFormatForbidsIsFound) {
  for (const char* text : {"a\n",
                           "a \n",
                           "1a 1\n",
                           "a-b 1\n",
                           "a b\n",
                           "a 1 2 3\n",
                           "a 1 1.5\n",
                           "a 1x\n",
                           "a 1\r\n",
                           "a -nan\n",
                           "a +NaN\n",
                           "a 0x10\n",
                           "a 1e400\n",
                           "a -1e400\n",
                           "a 1 -5\n",
                           "a 1 +5\n",
                           "a{b=\"c\"}\n",
                           "a{b=c} 1\n",
                           "a{b=\"c} 1\n",
                           "a{b=\"c\\\"} 1\n",
                           "a{b=\"c\" d=\"e\"} 1\n",
                           "a{,} 1\n",
                           "a{b:c=\"d\"} 1\n",
                           "a{b} 1\n",
                           "a{b=\"c\"} 1 {\n",
                           "a{b=\"line\nend\"} 1\n",
                           "{b=\"c\"} 1\n",
                           "# TYPE a\n",
                           "# TYPE a number\n",
                           "# TYPE a  gauge\n",
                           "# TYPE 1a gauge\n",
                           "# TYPE a gauge\r\n",
                           "# HELP 1a What it is.\n",
                           "<html>\n",
                           "\"a\" 1\n"}) {
    EXPECT_THAT(WhyNoMetrics(text), HasSubstr("is no metric: ")) << text;
  }
}

}  // namespace
}  // namespace hawser::observe
