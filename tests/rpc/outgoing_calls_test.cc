// What a process counts of the calls that it makes.
#include "hawser/rpc/internal/outgoing_calls.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser::internal {
namespace {

// Of two pollers.
class OutgoingCallsTest : public testing::Test {
 protected:
  static transport::Poller& PollerOf(const std::shared_ptr<transport::Runtime>& runtime) {
    return runtime->poller(0);
  }
  static std::shared_ptr<transport::Runtime> MakeRuntime() {
    return *transport::Runtime::Create("tcp", {.pollers = 1});
  }
  std::vector<OutgoingCalls::Totals> Look(size_t most = 1 << 20) { return calls_.Look(most, left_out_); }

  static Method MethodOf(uint64_t interface_id, uint16_t ordinal, const char* name) {
    return {.interface_id = interface_id, .ordinal = ordinal, .name = name, .idempotent = false};
  }

  const std::shared_ptr<transport::Runtime> here_ = MakeRuntime(), there_ = MakeRuntime();
  OutgoingCalls calls_;
  uint64_t left_out_ = 0;
  const Method get_ = MethodOf(1, 0, "kv.capnp:KeyValue.get"), put_ = MethodOf(1, 1, "kv.capnp:KeyValue.put");
};

TEST_F(OutgoingCallsTest, CallsOfAMethodAddUpOverPollersAndStayWhenTheirChannelsAreGone) {
  for (const auto& runtime : {here_, there_, here_}) {
    const auto target = calls_.To("tcp://kv1:1", PollerOf(runtime));
    target->Add(get_, absl::StatusCode::kOk, 5'000);
    target->Add(get_, absl::StatusCode::kNotFound, 7'000);
  }
  calls_.To("tcp://kv0:1", PollerOf(here_))->Add(put_, absl::StatusCode::kOk, 1'000);
  const std::vector<OutgoingCalls::Totals> all = Look();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].target, "tcp://kv0:1");
  EXPECT_EQ(all[0].method, "kv.capnp:KeyValue.put");
  EXPECT_EQ(all[1].target, "tcp://kv1:1");
  EXPECT_EQ(all[1].method, "kv.capnp:KeyValue.get");
  EXPECT_EQ(all[1].ended.by_code[0], 3u);
  EXPECT_EQ(all[1].ended.by_code[static_cast<size_t>(absl::StatusCode::kNotFound)], 3u);
  EXPECT_EQ(all[1].ended.latency.count(), 6u);
  EXPECT_EQ(all[1].ended.latency.sum_ns, 36'000u);
}

// Each is counted by one thread at a time.
TEST_F(OutgoingCallsTest, PollersThatHaveChannelsDoNotShareCountsAndOneThatHasNoneLeavesItsOwn) {
  auto here = calls_.To("tcp://kv1:1", PollerOf(here_));
  EXPECT_EQ(calls_.To("tcp://kv1:1", PollerOf(here_)), here);
  const auto there = calls_.To("tcp://kv1:1", PollerOf(there_));
  EXPECT_NE(there, here);
  const OutgoingCalls::Target* const left = here.get();
  here.reset();
  const auto third = MakeRuntime();
  EXPECT_EQ(calls_.To("tcp://kv1:1", PollerOf(third)).get(), left);
}

TEST_F(OutgoingCallsTest, MethodsThatShareAPlaceAreKeptApart) {
  const auto target = calls_.To("tcp://kv1:1", PollerOf(here_));
  for (int round = 0; round < 3; ++round) {
    for (uint16_t ordinal = 0; ordinal < 40; ++ordinal) {
      target->Add(MethodOf(1, ordinal, absl::StrCat("m", ordinal).c_str()), absl::StatusCode::kOk, 1);
    }
  }
  const std::vector<OutgoingCalls::Totals> all = Look();
  ASSERT_EQ(all.size(), 40u);
  for (const OutgoingCalls::Totals& each : all) EXPECT_EQ(each.ended.by_code[0], 3u);
}

// Prometheus would refuse the metrics.
TEST_F(OutgoingCallsTest, MethodsOfTheSameNameAreOne) {
  const auto target = calls_.To("tcp://kv1:1", PollerOf(here_));
  for (uint64_t id = 1; id < 3; ++id)
    target->Add(MethodOf(id, 0, "kv.capnp:KeyValue.get"), absl::StatusCode::kOk, 1);
  const std::vector<OutgoingCalls::Totals> all = Look();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].ended.by_code[0], 2u);
}

TEST_F(OutgoingCallsTest, TargetsAndMethodsBeyondTheLimitAreOne) {
  for (size_t i = 0; i < OutgoingCalls::kTargetsMax + 5; ++i) {
    calls_.To(absl::StrCat("tcp://kv", i, ":1"), PollerOf(here_))->Add(get_, absl::StatusCode::kOk, 1);
  }
  std::vector<OutgoingCalls::Totals> all = Look();
  ASSERT_EQ(all.size(), OutgoingCalls::kTargetsMax + 1);
  EXPECT_EQ(all[0].target, OutgoingCalls::kOther);
  EXPECT_EQ(all[0].ended.by_code[0], 5u);

  const auto target = calls_.To("tcp://kv0:1", PollerOf(here_));
  for (int round = 0; round < 2; ++round) {
    for (uint64_t id = 0; id < OutgoingCalls::kMethodsMax + 5; ++id) {
      target->Add(MethodOf(100 + id, 0, absl::StrCat("m", id).c_str()), absl::StatusCode::kOk, 1);
    }
  }
  uint64_t calls = 0, methods = 0, others = 0;
  for (const OutgoingCalls::Totals& each : Look()) {
    if (each.target != "tcp://kv0:1") continue;
    ++methods;
    calls += each.ended.by_code[0];
    if (each.method == OutgoingCalls::kOther) others = each.ended.by_code[0];
  }
  EXPECT_EQ(methods, OutgoingCalls::kMethodsMax + 1);
  EXPECT_EQ(calls, 1 + 2 * (OutgoingCalls::kMethodsMax + 5));
  EXPECT_EQ(others, 2 * 6);  // The first method is kv.capnp:KeyValue.get.

  EXPECT_EQ(Look(10).size(), 10u);
  EXPECT_EQ(left_out_, OutgoingCalls::kTargetsMax + 1 + OutgoingCalls::kMethodsMax - 10);
}

}  // namespace
}  // namespace hawser::internal
