// A program that is compiled with -Wextra -Werror needs to name only the options that it sets.

#pragma GCC diagnostic error "-Wmissing-field-initializers"

#include <gtest/gtest.h>

#include "hawser/rpc/options.h"

namespace hawser {
namespace {

TEST(DesignatedOptionsTest, EachCanBeNamedAlone) {
  const CallOptions call = {.timeout = absl::Milliseconds(5)};
  const ChannelOptions channel = {.default_timeout = absl::Seconds(1)};
  const ServerOptions server = {.pollers = 2};
  const ConnectionOptions connection = {.slots = 8};
  const PollerOptions poller = {.mode = PollingMode::kSleep};
  const BufferPoolOptions pool = {.limit_bytes = 1 << 20};
  const ReadLimits read = {.traversal_factor = 1};
  EXPECT_EQ(call.timeout, absl::Milliseconds(5));
  EXPECT_EQ(channel.default_timeout, absl::Seconds(1));
  EXPECT_EQ(server.pollers, 2);
  EXPECT_EQ(connection.slots, 8u);
  EXPECT_EQ(poller.mode, PollingMode::kSleep);
  EXPECT_EQ(pool.limit_bytes, size_t{1} << 20);
  EXPECT_EQ(read.traversal_factor, 1u);
}

}  // namespace
}  // namespace hawser
