// The memory that a NIC pins for rings, by mlx5's formulas.

#include "hawser/transport/connection/pinned_rings.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "hawser/transport/fabric/verbs/rings.h"

namespace hawser::transport {
namespace {

namespace rings = fabric::rings;

constexpr uint64_t kKiB = 1024;

// (rdma-core, providers/mlx5/verbs.c) A BIND_MW has 192 bytes of segments, and room for 192 bytes inline
// makes a work request 448.
TEST(PinnedRingsTest, AQueuePairTakesBothQueuesRoundedUpInWholePages) {
  rings::QueuePairShape shape = {.sends = 146, .receives = 38, .send_sges = 6, .inline_bytes = 192};
  EXPECT_EQ(rings::PinnedBytes(shape), 68 * kKiB);  // 64 KiB and 1 KiB.
  shape.sends = 147;
  EXPECT_EQ(rings::PinnedBytes(shape), 132 * kKiB);
  shape.receives = 257;
  EXPECT_EQ(rings::PinnedBytes(shape), 136 * kKiB);
}

TEST(PinnedRingsTest, BytesInlineAndSgesShareAWorkRequest) {
  rings::QueuePairShape shape = {.sends = 1024, .receives = 1, .send_sges = 4, .inline_bytes = 0};
  EXPECT_EQ(rings::PinnedBytes(shape), 260 * kKiB);  // 256 bytes each.
  shape.inline_bytes = 60;
  EXPECT_EQ(rings::PinnedBytes(shape), 260 * kKiB);
  shape.inline_bytes = 61;
  EXPECT_EQ(rings::PinnedBytes(shape), 516 * kKiB);
  shape = {.sends = 1024, .receives = 1, .send_sges = 5, .inline_bytes = 0};
  EXPECT_EQ(rings::PinnedBytes(shape), 516 * kKiB);
}

TEST(PinnedRingsTest, ACompletionQueueHasOneEntryMoreAndAPowerOfTwo) {
  EXPECT_EQ(rings::PinnedBytesOfCompletionQueue(4095), 256 * kKiB);
  EXPECT_EQ(rings::PinnedBytesOfCompletionQueue(4096), 512 * kKiB);
}

// What the documents say: docs/guide.md, rpc/PROTOCOL.md.
TEST(PinnedRingsTest, APollerAndAConnectionPinWhatTheDocumentsSay) {
  EXPECT_EQ(PinnedRingBytes(1, 0, {}, true), 256 * kKiB);
  EXPECT_EQ(PinnedRingBytes(1, 1, {}, true), (256 + 68) * kKiB);
  EXPECT_EQ(PinnedRingBytes(1, 1, {.slots = 8}, true), (256 + 36) * kKiB);
  EXPECT_EQ(PinnedRingBytes(1, 1, {}, false), (256 + 36) * kKiB);
}

// 29 connections have places in the first, 59 in the second.
TEST(PinnedRingsTest, AFurtherCompletionQueueIsCountedWhenConnectionsNeedIt) {
  EXPECT_EQ(PinnedRingBytes(1, 29, {}, true), (256 + 29 * 68) * kKiB);
  EXPECT_EQ(PinnedRingBytes(1, 30, {}, true), (256 + 512 + 30 * 68) * kKiB);
  EXPECT_EQ(PinnedRingBytes(1, 89, {}, true), (256 + 512 + 1024 + 89 * 68) * kKiB);
  EXPECT_EQ(PinnedRingBytes(2, 30, {}, true), (2 * 256 + 30 * 68) * kKiB);
}

}  // namespace
}  // namespace hawser::transport
