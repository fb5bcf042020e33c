// Small calls beside large transfers of another connection, of the same client to the same server, one poller each.
#include <algorithm>
#include <cstdint>
#include <deque>

#include "gtest/gtest.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

constexpr size_t kPut = 16 * kMiB;
constexpr int kPuts = 4;

// A time would depend on the machine. This counts what passes a small call: bytes that the server READs for the puts.
TEST(BesideBulkTest, ASmallCallIsPassedByFewOfTheBytesOfALargeTransfer) {
  World world;
  Link bulk(world), small(world);
  bulk.server.answer = [&](RecordingServer::Request request) { bulk.RespondEmpty(request.id); };
  small.EchoAll();
  std::deque<PendingCall> puts;
  for (int i = 0; i < kPuts; ++i) ASSERT_TRUE(bulk.Send(puts.emplace_back(), kPut).ok());
  const auto read = [&] { return bulk.server_counts().read_bytes; };
  ASSERT_TRUE(world.RunUntil([&] { return read() >= kPut; }));
  const auto done = [&] {
    return std::all_of(puts.begin(), puts.end(), [](const PendingCall& put) { return put.done(); });
  };
  uint64_t most = 0;
  int calls = 0;
  for (; !done() && calls < 100'000; ++calls) {
    const uint64_t before = read();
    PendingCall call;
    ASSERT_TRUE(small.Send(call, 32).ok());
    ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
    most = std::max(most, read() - before);
  }
  EXPECT_TRUE(done());
  EXPECT_GE(calls, 10);
  // Usually 1 MiB. Up to 2.25 MiB were seen where other programs want the cores.
  EXPECT_LE(most, 4 * kMiB) << "of " << calls << " calls";
}

}  // namespace
}  // namespace hawser::transport
