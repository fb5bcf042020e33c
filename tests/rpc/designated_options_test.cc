// A program that is compiled with -Wextra -Wpedantic -Werror needs to name only the options that it sets.

#pragma GCC diagnostic error "-Wmissing-field-initializers"
#pragma GCC diagnostic error "-Wpedantic"

#include <gtest/gtest.h>

#include "hawser/observe/status_server.h"
#include "hawser/rpc/executor.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/otlp_trace_sink.h"
#include "hawser/rpc/runtime.h"
#include "hawser/rpc/trace.h"

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
  const RuntimeOptions runtime = {.pollers = 3};
  const TlsCredentials credentials = {.certificate = "c.pem", .key = "k.pem", .authorities = "a.pem"};
  const Executor::Options executor = {.threads = 4};
  const OtlpTraceSink::Options traces = {.path = "t.jsonl", .service_name = "kv"};
  const TraceOptions trace = {.sample_rate = 0.5};
  const observe::StatusServer::Options status = {.nice = 5};
  EXPECT_EQ(call.timeout, absl::Milliseconds(5));
  EXPECT_EQ(channel.default_timeout, absl::Seconds(1));
  EXPECT_EQ(server.pollers, 2);
  EXPECT_EQ(connection.slots, 8u);
  EXPECT_EQ(poller.mode, PollingMode::kSleep);
  EXPECT_EQ(pool.limit_bytes, size_t{1} << 20);
  EXPECT_EQ(read.traversal_factor, 1u);
  EXPECT_EQ(runtime.pollers, 3);
  EXPECT_EQ(credentials.key, "k.pem");
  EXPECT_EQ(executor.threads, 4);
  EXPECT_EQ(traces.service_name, "kv");
  EXPECT_EQ(trace.sample_rate, 0.5);
  EXPECT_EQ(status.nice, 5);
}

}  // namespace
}  // namespace hawser
