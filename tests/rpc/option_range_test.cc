// Each duration, size, share and enumeration of the options at 0, below it, infinite, beyond what there is,
// and where a least is above a most: it is refused, with its name, or it means what the header says.

#include <atomic>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "hawser/rpc/otlp_trace_sink.h"
#include "hawser/rpc/trace.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::StartsWith;

constexpr absl::Duration kZero = absl::ZeroDuration();
constexpr absl::Duration kInfinite = absl::InfiniteDuration();
constexpr absl::Duration kNegative = -absl::Seconds(5);

void ExpectRefused(const absl::Status& status, const std::string& name) {
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument)) << name;
  EXPECT_THAT(std::string(status.message()), StartsWith(name + " is "));
}

// Of both sides.
std::vector<std::pair<std::string, ConnectionOptions>> WrongConnections() {
  return {
      {"ConnectionOptions::message_bytes_max", {.message_bytes_max = 0}},
      {"ConnectionOptions::message_bytes_max", {.message_bytes_max = std::numeric_limits<uint64_t>::max()}},
      {"ConnectionOptions::keepalive_interval", {.keepalive_interval = kZero}},
      {"ConnectionOptions::keepalive_interval", {.keepalive_interval = kNegative}},
      {"ConnectionOptions::keepalive_interval", {.keepalive_interval = -kInfinite}},
      {"ConnectionOptions::keepalive_timeout", {.keepalive_timeout = kZero}},
      {"ConnectionOptions::keepalive_timeout", {.keepalive_timeout = kNegative}},
      {"ConnectionOptions::keepalive_timeout", {.keepalive_timeout = kInfinite}},
      {"ConnectionOptions::busy_timeout", {.busy_timeout = kNegative}}};
}

// Of a server, and of a runtime that a program makes.
std::vector<std::pair<std::string, transport::RuntimeOptions>> WrongRuntimes() {
  return {{"PollerOptions::mode", {.poller = {.mode = static_cast<PollingMode>(3)}}},
          {"PollerOptions::mode", {.poller = {.mode = static_cast<PollingMode>(-1)}}},
          {"PollerOptions::spin", {.poller = {.spin = kNegative}}},
          {"PollerOptions::spin", {.poller = {.spin = kInfinite}}},
          {"PollerOptions::host_memory_share", {.poller = {.host_memory_share = -0.1}}},
          {"PollerOptions::host_memory_share", {.poller = {.host_memory_share = 1.1}}},
          {"PollerOptions::host_memory_share",
           {.poller = {.host_memory_share = std::numeric_limits<double>::quiet_NaN()}}},
          {"BufferPoolOptions::limit_bytes", {.pool = {.limit_bytes = 0}}},
          {"BufferPoolOptions::idle", {.pool = {.idle = kZero}}},
          {"BufferPoolOptions::idle", {.pool = {.idle = kNegative}}}};
}

TEST(OptionRangeTest, AServerRefusesWhatItCannotServeWith) {
  std::vector<std::pair<std::string, ServerOptions>> wrong = {
      {"ServerOptions::pollers", {.pollers = -1}},
      {"ServerOptions::pollers", {.pollers = std::numeric_limits<int>::max()}},
      {"ServerOptions::handler_grace", {.handler_grace = kNegative}},
      {"ServerOptions::connections_max", {.connections_max = 0}},
      {"ServerOptions::connections_per_host_max", {.connections_per_host_max = 0}},
      {"ServerOptions::introspection", {.introspection = static_cast<Introspection>(3)}},
      {"ServerOptions::introspection", {.introspection = static_cast<Introspection>(-1)}},
      {"ServerOptions::read.nesting_max", {.read = {.nesting_max = 0}}},
      {"ServerOptions::read.nesting_max", {.read = {.nesting_max = -1}}},
  };
  for (const auto& [name, connection] : WrongConnections())
    wrong.push_back({name, {.connection = connection}});
  for (const auto& [name, runtime] : WrongRuntimes()) {
    wrong.push_back({name, {.poller = runtime.poller, .pool = runtime.pool}});
  }
  for (const auto& [name, options] : wrong) {
    Server server(options);
    ExpectRefused(server.Listen(TestUri()).status(), name);
    EXPECT_EQ(server.addresses().size(), 0u);
  }
}

TEST(OptionRangeTest, AChannelRefusesWhatItCannotCallWith) {
  std::vector<std::pair<std::string, ChannelOptions>> wrong = {
      {"ChannelOptions::default_timeout", {.default_timeout = kZero}},
      {"ChannelOptions::default_timeout", {.default_timeout = kNegative}},
      {"ChannelOptions::connect_timeout", {.connect_timeout = kZero}},
      {"ChannelOptions::connect_timeout", {.connect_timeout = kNegative}},
      {"ChannelOptions::backoff_min", {.backoff_min = kZero}},
      {"ChannelOptions::backoff_min", {.backoff_min = kNegative}},
      {"ChannelOptions::backoff_min", {.backoff_min = kInfinite}},
      {"ChannelOptions::backoff_max", {.backoff_max = kZero}},
      {"ChannelOptions::backoff_max", {.backoff_max = kInfinite}},
      {"ChannelOptions::connections", {.connections = 0}},
      {"ChannelOptions::connections", {.connections = -1}},
      {"ChannelOptions::connections", {.connections = 17}},
      {"ChannelOptions::read.nesting_max", {.read = {.nesting_max = 0}}},
  };
  for (const auto& [name, connection] : WrongConnections())
    wrong.push_back({name, {.connection = connection}});
  for (const auto& [name, options] : wrong) {
    ExpectRefused(Channel::Create(TestUri(1), options).status(), name);
    ExpectRefused(Channel::Connect(TestUri(1), options).status(), name);
  }
}

TEST(OptionRangeTest, ARuntimeRefusesWhatItCannotRunWith) {
  std::vector<std::pair<std::string, transport::RuntimeOptions>> wrong = WrongRuntimes();
  wrong.push_back({"RuntimeOptions::pollers", {.pollers = -1}});
  wrong.push_back({"RuntimeOptions::pollers", {.pollers = std::numeric_limits<int>::max()}});
  wrong.push_back({"RuntimeOptions::rdma_grants", {.rdma_grants = static_cast<transport::RdmaGrants>(4)}});
  wrong.push_back({"RuntimeOptions::rdma_grants", {.rdma_grants = static_cast<transport::RdmaGrants>(-1)}});
  for (const auto& [name, options] : wrong) {
    ExpectRefused(transport::Runtime::Create(TestScheme(), options).status(), name);
  }
}

// "is -1", and not the largest number of 64 bits; and what there is.
TEST(OptionRangeTest, AnEnumerationIsRefusedWithItsValueAndThoseThatThereAre) {
  const transport::RuntimeOptions options = {.poller = {.mode = static_cast<PollingMode>(-1)}};
  EXPECT_EQ(transport::Runtime::Create(TestScheme(), options).status().message(),
            "PollerOptions::mode is -1: from 0 to 2 (kAdaptive, kSpin, kSleep)");
}

TEST(OptionRangeTest, TracesRefuseWhatIsNoRate) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  ExpectRefused(SetTraceSink(nullptr, {.sample_rate = -0.1}), "TraceOptions::sample_rate");
  ExpectRefused(SetTraceSink(nullptr, {.sample_rate = kNan}), "TraceOptions::sample_rate");
  ExpectRefused(SetTraceSink(nullptr, {.peers_spans_per_second = -1}),
                "TraceOptions::peers_spans_per_second");
  ExpectRefused(SetTraceSink(nullptr, {.peers_spans_per_second = kNan}),
                "TraceOptions::peers_spans_per_second");
  ExpectRefused(OtlpTraceSink::Open({.path = "/dev/null", .service_name = "a", .bytes_max = 0}).status(),
                "OtlpTraceSink::Options::bytes_max");
}

// What the headers allow works.
TEST(OptionRangeTest, TheEndsOfTheRangesServe) {
  for (const absl::Duration busy_timeout : {kZero, kInfinite}) {
    const ConnectionOptions no_pings = {
        .message_bytes_max = 4096, .keepalive_interval = kInfinite, .busy_timeout = busy_timeout};
    TestServer server({.poller = {.spin = kZero, .read_bytes_max = 0, .host_memory_share = 1},
                       .pool = {.idle = kInfinite},
                       .handler_grace = kInfinite,
                       .connection = no_pings,
                       .connections_max = 1,
                       .connections_per_host_max = std::numeric_limits<uint32_t>::max(),
                       .read = {.traversal_factor = 0, .nesting_max = 1}});
    const auto channel = server.Connect({.default_timeout = kInfinite,
                                         .connect_timeout = kInfinite,
                                         .connection = no_pings,
                                         .read = {.nesting_max = std::numeric_limits<int>::max()}});
    ASSERT_NE(channel, nullptr);
    EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  }
}

TEST(OptionRangeTest, ADeadlineInThePastEndsTheCallUnsent) {
  TestServer server;
  const auto channel = server.Connect();
  for (const CallOptions& options : std::vector<CallOptions>{{.timeout = kZero},
                                                             {.timeout = kNegative},
                                                             {.timeout = -kInfinite},
                                                             {.deadline = absl::InfinitePast()},
                                                             {.deadline = absl::UnixEpoch()}}) {
    const absl::Status status = SendAct(channel, 1, options).Wait().status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
    EXPECT_FALSE(WasSent(status));
  }
  EXPECT_EQ(server.probe.runs, 0);
}

TEST(OptionRangeTest, ABackoffMaxBelowItsMinCountsAsMin) {
  ClockedRuntime clients;
  std::atomic<int> attempts{0};
  ChannelOptions options = {.backoff_min = kLong, .backoff_max = kLong / 1000, .runtime = clients.get()};
  options.on_state_change = [&](ChannelState state, const absl::Status&) {
    if (state == ChannelState::kTransientFailure) ++attempts;
  };
  {
    const auto channel = *Channel::Create(TestUri(1), options);
    for (int wanted = 1; wanted < 4; ++wanted) {
      ASSERT_TRUE(Eventually([&] { return attempts == wanted; }));
      // The shortest wait is half of it.
      ASSERT_NO_FATAL_FAILURE(clients.Pass(kLong / 2 - absl::Seconds(2)));
      EXPECT_EQ(attempts, wanted);
      ASSERT_NO_FATAL_FAILURE(clients.Pass(kLong / 2 + absl::Seconds(2)));
    }
  }
}

}  // namespace
}  // namespace hawser
