#include "hawser/transport/exchange.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

class EchoOfSizeTest : public ::testing::TestWithParam<size_t> {};

TEST_P(EchoOfSizeTest, RequestAndResponseArriveAsTheyWereBuilt) {
  World world;
  Link link(world);
  link.EchoAll();
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), GetParam(), seed));
    ASSERT_TRUE(call.response.ok()) << call.status();
    EXPECT_EQ((*call.response)->body_bytes(), GetParam());
    EXPECT_EQ(Content(**call.response), ContentOf(GetParam(), seed));
  }
}

// 3904 fill the first segment; above there are two, and 4048 is what fits one SEND of 4096 bytes beside the
// header and the table.
INSTANTIATE_TEST_SUITE_P(Bodies, EchoOfSizeTest,
                         ::testing::Values(0, 8, 16, 1024, 3896, 3904, 3920, 4040, 4048, 4056, 4096, 8192,
                                           64 << 10, 1 << 20, 16 << 20));

}  // namespace
}  // namespace hawser::transport
