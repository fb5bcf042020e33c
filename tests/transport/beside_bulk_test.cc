// Small calls beside large transfers of another connection, of the same client to the same server, one poller
// each.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

constexpr size_t kPut = 16 * kMiB;
constexpr int kPuts = 4;

// A time would depend on the machine. This counts what passes a small call: bytes that the server READs for
// the puts.
TEST(BesideBulkTest, ASmallCallIsPassedByFewOfTheBytesOfALargeTransfer) {
  World world;
  Link bulk(world), small(world);
  bulk.server.answer = [&](RecordingServer::Request request) { bulk.RespondEmpty(request.id); };
  small.EchoAll();
  std::deque<PendingCall> puts;
  for (int i = 0; i < kPuts; ++i) ASSERT_THAT(bulk.Send(puts.emplace_back(), kPut), IsOk());
  const auto read = [&] { return bulk.server_counts().read_bytes; };
  ASSERT_TRUE(world.RunUntil([&] { return read() >= kPut; }));
  const auto done = [&] {
    return std::all_of(puts.begin(), puts.end(), [](const PendingCall& put) { return put.done(); });
  };
  std::vector<uint64_t> passed_by;
  while (!done() && passed_by.size() < 100'000) {
    const uint64_t before = read();
    PendingCall call;
    ASSERT_THAT(small.Send(call, 32), IsOk());
    ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
    passed_by.push_back(read() - before);
  }
  EXPECT_TRUE(done());
  ASSERT_GE(passed_by.size(), 10u);
  // Not the maximum, because more may pass a call while another program has the core. Usually the most is 1
  // MiB.
  std::sort(passed_by.begin(), passed_by.end());
  EXPECT_LE(passed_by[passed_by.size() / 2], 2 * kMiB) << passed_by.size() << " calls";
  EXPECT_LE(passed_by[passed_by.size() * 9 / 10], 4 * kMiB) << passed_by.size() << " calls";
}

}  // namespace
}  // namespace hawser::transport
