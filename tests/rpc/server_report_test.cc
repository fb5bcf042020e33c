// How much of what is on its pollers a server shows, and that it counts the rest.

#include "hawser/rpc/serving/server_report.h"

#include <capnp/message.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/client/channel_list.h"

namespace hawser::internal {
namespace {

using observe::wire::Snapshot;

constexpr char kGet[] = "kv.capnp:KeyValue.get", kPut[] = "kv.capnp:KeyValue.put";

// The report of a poller that has `open` connections.
PollerReport WithConnections(uint64_t open, const std::string& peer, const char* state = "ready") {
  PollerReport report;
  for (uint64_t i = 0; i < open; ++i) {
    const ConnectionReport connection = {
        .peer = peer, .state = state, .slots = 32, .slots_in_use = 1, .slots_given = 4, .slots_wanted = 5};
    report.Count(connection);
    if (report.connections.size() < PollerReport::kConnectionsMax) report.connections.push_back(connection);
  }
  return report;
}

PollerReport WithCalls(const std::vector<int64_t>& ages_ns) {
  PollerReport report;
  for (const int64_t age_ns : ages_ns) {
    ++report.running[kGet];
    if (report.WantsCall(age_ns)) report.AddCall({.method = kGet, .age_ns = age_ns});
  }
  return report;
}

template <typename... Report>
PollerReports Of(Report... report) {
  return {std::make_shared<const PollerReport>(std::move(report))...};
}

class ServerReportTest : public ::testing::Test {
 protected:
  ~ServerReportTest() noexcept override = default;  // That of the message has no such promise.

  std::vector<int64_t> Ages() const {
    std::vector<int64_t> ages;
    for (const auto call : snapshot_.asReader().getCalls()) ages.push_back(call.getAgeNs());
    return ages;
  }

  capnp::MallocMessageBuilder message_;
  Snapshot::Builder snapshot_ = message_.initRoot<Snapshot>();
};

TEST_F(ServerReportTest, APollerKeepsTheOldest200Calls) {
  for (const int step : {1, -1, 7}) {  // Whatever the order.
    std::vector<int64_t> ages;
    for (int64_t i = 0; i < 1000; ++i) ages.push_back(((i * step) % 1000 + 1000) % 1000);
    const PollerReport report = WithCalls(ages);
    ASSERT_EQ(report.calls.size(), 200u);
    for (const CallReport& call : report.calls) EXPECT_GE(call.age_ns, 800) << step;
    EXPECT_FALSE(report.WantsCall(800)) << "it is the youngest of them";
    EXPECT_TRUE(report.WantsCall(801));
  }
}

TEST_F(ServerReportTest, CallsAreTheOldestFirstAndTheRestIsCounted) {
  std::vector<int64_t> old, young;
  for (int64_t i = 0; i < 150; ++i) old.push_back(10'000 + i);
  for (int64_t i = 0; i < 300; ++i) young.push_back(i);
  PollerReport both = WithCalls(young);
  both.calls_queued = 3;
  both.running[kPut] = 7;  // Another method; those that it does not show count, too.
  FillInCalls(Of(both, WithCalls(old)), snapshot_);
  const std::vector<int64_t> ages = Ages();
  ASSERT_EQ(ages.size(), 200u);
  EXPECT_TRUE(std::is_sorted(ages.rbegin(), ages.rend()));
  EXPECT_EQ(ages.front(), 10'149);
  EXPECT_EQ(ages[149], 10'000);
  EXPECT_EQ(ages[150], 299);
  EXPECT_EQ(ages.back(), 250);
  EXPECT_EQ(snapshot_.getCallsLeftOut(), 150u + 300u + 7u - 200u);
  EXPECT_EQ(snapshot_.getServer().getCallsQueued(), 3u);
}

TEST_F(ServerReportTest, FewCallsAreAllShown) {
  FillInCalls({nullptr, std::make_shared<const PollerReport>(WithCalls({5, 9}))}, snapshot_);
  EXPECT_EQ(Ages(), (std::vector<int64_t>{9, 5}));
  EXPECT_EQ(snapshot_.getCallsLeftOut(), 0u);
}

TEST_F(ServerReportTest, AThousandConnectionsAreShownAndTheRestIsCounted) {
  std::vector<std::string> fabrics;
  PollerReports reports;
  for (int i = 0; i < 7; ++i) {
    fabrics.push_back(i < 6 ? "tcp" : "rdma");
    reports.push_back(
        i == 2 ? nullptr  // It is held by a handler.
               : std::make_shared<const PollerReport>(WithConnections(500, absl::StrCat("peer ", i))));
  }
  FillInConnections(fabrics, reports, snapshot_);
  const Snapshot::Reader snapshot = snapshot_.asReader();
  ASSERT_EQ(snapshot.getConnections().size(), 1000u);
  EXPECT_EQ(snapshot.getConnectionsLeftOut(), 6u * 500u - 1000u);
  for (const auto connection : snapshot.getConnections()) {
    EXPECT_EQ(std::string(connection.getPeer().cStr()), absl::StrCat("peer ", connection.getPoller()));
    EXPECT_EQ(std::string(connection.getFabric().cStr()), fabrics[connection.getPoller()]);
  }
  ASSERT_EQ(snapshot.getTotals().size(), 2u);
  for (const auto total : snapshot.getTotals()) {
    const bool is_rdma = total.getFabric() == "rdma";
    EXPECT_EQ(total.getCount(), is_rdma ? 500u : 2500u);
    EXPECT_EQ(total.getSlots(), total.getCount() * 32);
    EXPECT_EQ(total.getSlotsInUse(), total.getCount());
    EXPECT_EQ(total.getSlotsGiven(), total.getCount() * 4);
    EXPECT_EQ(total.getSlotsWanted(), total.getCount() * 5);
  }
}

TEST_F(ServerReportTest, FewConnectionsAreAllShownAndTotalsAreByState) {
  FillInConnections({"tcp", "tcp"}, Of(WithConnections(2, "a"), WithConnections(3, "b", "draining")),
                    snapshot_);
  EXPECT_EQ(snapshot_.getConnections().size(), 5u);
  EXPECT_EQ(snapshot_.getConnectionsLeftOut(), 0u);
  const auto totals = snapshot_.asReader().getTotals();
  ASSERT_EQ(totals.size(), 2u);
  EXPECT_STREQ(totals[0].getState().cStr(), "draining");
  EXPECT_EQ(totals[0].getCount(), 3u);
  EXPECT_EQ(totals[1].getCount(), 2u);
}

TEST_F(ServerReportTest, TheSixteenSlowestOfAllPollersAreShown) {
  std::vector<SlowCalls::Call> calls;
  for (int64_t i = 0; i < 40; ++i) calls.push_back({.method = kGet, .all_ns = (i * 7) % 40});
  FillInSlowest(calls, snapshot_);
  const auto slowest = snapshot_.asReader().getSlowest();
  ASSERT_EQ(slowest.size(), 16u);
  for (unsigned i = 0; i < 16; ++i) EXPECT_EQ(slowest[i].getAgeNs(), 39 - i);
}

TEST_F(ServerReportTest, ChannelsBeyondTheBoundAreCounted) {
  const Count waiting{};
  std::vector<std::unique_ptr<ChannelList::Entry>> entries;
  for (int i = 0; i < 5; ++i)
    entries.push_back(std::make_unique<ChannelList::Entry>(absl::StrCat("tcp://kv", i), waiting));
  uint64_t left_out = 99;
  EXPECT_EQ(ChannelList::Process().Look(3, left_out).channels.size(), 3u);
  EXPECT_EQ(left_out, 2u);
  EXPECT_EQ(ChannelList::Process().Look(5, left_out).channels.size(), 5u);
  EXPECT_EQ(left_out, 0u);
  entries.pop_back();
  EXPECT_EQ(ChannelList::Process().Look(5, left_out).channels.size(), 4u);
}

}  // namespace
}  // namespace hawser::internal
