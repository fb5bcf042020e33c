// What a process counts of the calls that it makes.
#include "hawser/rpc/client/outgoing_calls.h"

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser::internal {
namespace {

class OutgoingCallsTest : public testing::Test {
 protected:
  static transport::Poller& PollerOf(const std::shared_ptr<transport::Runtime>& runtime) {
    return runtime->poller(0);
  }
  static std::shared_ptr<transport::Runtime> MakeRuntime() {
    return *transport::Runtime::Create("tcp", {.pollers = 1});
  }
  std::vector<OutgoingCalls::Totals> Look() { return calls_.Look(1 << 20).totals; }

  static std::map<std::string, uint64_t> TargetsIn(const std::vector<OutgoingCalls::Totals>& all) {
    std::map<std::string, uint64_t> calls;
    for (const OutgoingCalls::Totals& each : all) calls[each.target] += each.ended.latency.count();
    return calls;
  }
  static Method MethodOf(uint64_t interface_id, uint16_t ordinal, const char* name) {
    return {.interface_id = interface_id, .ordinal = ordinal, .name = name, .idempotent = false};
  }

  const std::shared_ptr<transport::Runtime> here_ = MakeRuntime(), there_ = MakeRuntime();
  OutgoingCalls calls_;
  const Method get_ = MethodOf(1, 0, "kv.capnp:KeyValue.get"), put_ = MethodOf(1, 1, "kv.capnp:KeyValue.put");
};

TEST_F(OutgoingCallsTest, CountsOfPollersAddUpAndStayWithoutChannels) {
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

// Each is counted by one thread at a time: with the thread sanitizer this shows what a poller sees of the one
// before it.
TEST_F(OutgoingCallsTest, APollerGoesOnWithTheCountsOfOneWithoutChannels) {
  constexpr int kRounds = 200;
  const auto count = [&](transport::Poller& poller, int mine) {
    for (int round = 0; round < kRounds; ++round) {
      OutgoingCalls::Counting channel = calls_.To("tcp://kv1:1", poller);
      channel->Add(get_, absl::StatusCode::kOk, 1);
      channel->Add(MethodOf(2, static_cast<uint16_t>(2 * round + mine), "m"), absl::StatusCode::kOk, 1);
    }
  };
  std::thread there([&] { count(PollerOf(there_), 1); });
  count(PollerOf(here_), 0);
  there.join();
  const OutgoingCalls::View view = calls_.Look(1);
  EXPECT_EQ(view.calls, 4u * kRounds);
  EXPECT_EQ(view.left_out, 1u);
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

TEST_F(OutgoingCallsTest, ATargetWithoutChannelsMakesRoom) {
  std::vector<OutgoingCalls::Counting> channels;
  for (size_t i = 0; i < OutgoingCalls::kTargetsMax; ++i) {
    channels.push_back(calls_.To(absl::StrCat("tcp://kv", i, ":1"), PollerOf(here_)));
    channels.back()->Add(get_, absl::StatusCode::kOk, 1);
  }
  calls_.To("tcp://new:1", PollerOf(here_))->Add(get_, absl::StatusCode::kOk, 1);
  EXPECT_EQ(TargetsIn(Look()).count("tcp://new:1"), 0u) << "all have channels";
  EXPECT_EQ(TargetsIn(Look()).at(OutgoingCalls::kOther), 1u);
  channels[7] = OutgoingCalls::Counting();
  calls_.To("tcp://newer:1", PollerOf(here_))->Add(get_, absl::StatusCode::kOk, 1);
  const std::map<std::string, uint64_t> targets = TargetsIn(Look());
  EXPECT_EQ(targets.count("tcp://kv7:1"), 0u);
  EXPECT_EQ(targets.at("tcp://newer:1"), 1u);
  EXPECT_EQ(targets.at(OutgoingCalls::kOther), 2u);
  EXPECT_EQ(calls_.Look(10).calls, OutgoingCalls::kTargetsMax + 2);
  // Clients have a place of their own.
  calls_.To(OutgoingCalls::kClients, PollerOf(here_))->Add(get_, absl::StatusCode::kNotFound, 1);
  EXPECT_EQ(TargetsIn(Look()).at(OutgoingCalls::kClients), 1u);
  EXPECT_EQ(calls_.Look(10).failed, 1u);
}

TEST_F(OutgoingCallsTest, MethodsBeyondTheLimitAreOne) {
  const auto target = calls_.To("tcp://kv1:1", PollerOf(here_));
  for (int round = 0; round < 2; ++round) {
    for (uint64_t id = 0; id < OutgoingCalls::kMethodsMax + 5; ++id) {
      target->Add(MethodOf(id, 0, absl::StrCat("m", id).c_str()), absl::StatusCode::kOk, 1);
    }
  }
  const std::vector<OutgoingCalls::Totals> all = Look();
  EXPECT_EQ(all.size(), OutgoingCalls::kMethodsMax + 1);
  EXPECT_EQ(all[0].method, OutgoingCalls::kOther);
  EXPECT_EQ(all[0].ended.by_code[0], 10u);
  const OutgoingCalls::View view = calls_.Look(10);
  EXPECT_EQ(view.totals.size(), 10u);
  EXPECT_EQ(view.left_out, OutgoingCalls::kMethodsMax + 1 - 10);
}

// Servers that were replaced would keep new ones out.
TEST_F(OutgoingCallsTest, MethodsOfATargetWithoutChannelsMakeRoomToo) {
  calls_.To("tcp://without_methods:1", PollerOf(here_));
  for (const char* const target : {"tcp://b:1", "tcp://a:1"}) {
    const auto channel = calls_.To(target, PollerOf(here_));
    for (uint64_t id = 0; id < OutgoingCalls::kMethodsMax / 2; ++id) {
      channel->Add(MethodOf(id, 0, absl::StrCat("m", id).c_str()), absl::StatusCode::kOk, 1);
    }
  }
  calls_.To("tcp://c:1", PollerOf(here_))->Add(get_, absl::StatusCode::kOk, 1);
  const std::map<std::string, uint64_t> targets = TargetsIn(Look());
  EXPECT_EQ(targets.count("tcp://b:1"), 0u) << "it has been without channels for longest";
  EXPECT_EQ(targets.at("tcp://a:1"), OutgoingCalls::kMethodsMax / 2);
  const OutgoingCalls::View view = calls_.Look(1);
  ASSERT_EQ(view.totals.size(), 1u);
  EXPECT_EQ(view.totals[0].target, OutgoingCalls::kOther);
  EXPECT_EQ(view.totals[0].ended.by_code[0], OutgoingCalls::kMethodsMax / 2);
  EXPECT_EQ(view.left_out, OutgoingCalls::kMethodsMax / 2 + 1);
  for (const OutgoingCalls::Totals& each : Look()) {
    if (each.target != "tcp://c:1") continue;
    EXPECT_EQ(each.method, get_.name);
  }
}

TEST_F(OutgoingCallsTest, TargetsWithChannelsComeFirst) {
  calls_.To("tcp://a:1", PollerOf(here_))->Add(get_, absl::StatusCode::kOk, 1);
  const auto target = calls_.To("tcp://b:1", PollerOf(here_));
  target->Add(get_, absl::StatusCode::kOk, 1);
  EXPECT_EQ(Look()[0].target, "tcp://b:1");
}

}  // namespace
}  // namespace hawser::internal
