// Memory of a server that its clients reach by themselves: what they READ, WRITE and add up there, and until
// when.

#include "hawser/rpc/shared_memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/testing/child.h"
#include "hawser/tests/testing/detached.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/fabric/fabric.h"
#include "tests/rpc/memory_server.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

TEST_F(SharedMemoryTest, AClientReadsIntoMemoryOfThePoolAndOfItsOwn) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel, 4096, 65536);
  EXPECT_EQ(remote.size_bytes(), 65536u);
  absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(8192);
  ASSERT_THAT(buffer.status(), IsOk());
  EXPECT_THAT(remote.Read(16, {buffer->data(), 8192}).Wait(), IsOk());
  EXPECT_EQ(std::string(reinterpret_cast<char*>(buffer->data()), 8192), Expected(4096 + 16, 8192));
  std::string own(1000, '\0');
  EXPECT_THAT(remote.Read(64000, SpanOf(own)).Wait(), IsOk());
  EXPECT_EQ(own, Expected(4096 + 64000, 1000));
}

TEST_F(SharedMemoryTest, AWriteIsInTheOwnersMemoryWhenItsResultIsThere) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel, 100, 1000);
  const std::string text(500, 'w');
  EXPECT_THAT(remote.Write(10, SpanOf(text)).Wait(), IsOk());
  EXPECT_EQ(Expected(110, 500), text);
}

TEST_F(SharedMemoryTest, ManyRangesAndAStrideAreOneOperation) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(24, '\0');
  EXPECT_THAT(remote.Read({{0, 8}, {1000, 12}, {500, 4}}, SpanOf(bytes)).Wait(), IsOk());
  EXPECT_EQ(bytes, Expected(0, 8) + Expected(1000, 12) + Expected(500, 4));
  std::string column(16 * 100, '\0');
  const RemoteStride stride{.offset = 32, .length = 16, .stride = 4096, .count = 100};
  EXPECT_THAT(remote.Read(stride, SpanOf(column)).Wait(), IsOk());
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(column.substr(16 * i, 16), Expected(32 + 4096 * i, 16)) << i;
}

TEST_F(SharedMemoryTest, AllOfALargeMemoryIsReadAtOnce) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string all(kBytes, '\0');
  for (int i = 0; i < 8; ++i) ASSERT_THAT(remote.Read(0, SpanOf(all)).Wait(), IsOk());
  EXPECT_TRUE(all == Expected(0, kBytes));
}

TEST_F(SharedMemoryTest, BeyondTheTicketByOneByteOrWithAnOffsetThatWrapsIsOutOfRange) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel, 0, 4096);
  std::string bytes(4096, '\0');
  EXPECT_THAT(remote.Read(1, SpanOf(bytes)).Wait(), HasCode(absl::StatusCode::kOutOfRange));
  std::string one(1, '\0');
  EXPECT_THAT(remote.Read(4096, SpanOf(one)).Wait(), HasCode(absl::StatusCode::kOutOfRange));
  std::string two(2, '\0');
  EXPECT_THAT(remote.Read(UINT64_MAX, SpanOf(two)).Wait(), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(remote.Write(UINT64_MAX - 1, SpanOf(two)).Wait(), HasCode(absl::StatusCode::kOutOfRange));
  const RemoteStride wraps{.offset = 0, .length = 1, .stride = UINT64_MAX, .count = 2};
  EXPECT_THAT(remote.Read(wraps, SpanOf(two)).Wait(), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(remote.Read({{0, 1}}, SpanOf(two)).Wait(), HasCode(absl::StatusCode::kInvalidArgument));
  // Neither the lane nor the calls have ended.
  EXPECT_THAT(remote.Read(4095, SpanOf(one)).Wait(), IsOk());
  EXPECT_THAT(Ask(channel, 0, 1, Access::kRead).status(), IsOk());
}

TEST_F(SharedMemoryTest, MemoryHereThatIsNullIsRefused) {
  RemoteMemory remote = Reach(Connect());
  const absl::Span<uint8_t> null(static_cast<uint8_t*>(nullptr), 8);
  const RemoteStride stride{.offset = 0, .length = 4, .stride = 64, .count = 2};
  EXPECT_THAT(remote.Read(0, null).Wait(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(remote.Read({{0, 4}, {64, 4}}, null).Wait(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(remote.Read(stride, null).Wait(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(remote.Write(0, null).Wait(), HasCode(absl::StatusCode::kInvalidArgument));
  std::string bytes(8, '\0');
  EXPECT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
}

TEST_F(SharedMemoryTest, RangesThatOverlapAreBoundedTogether) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  const RemoteStride same{.offset = 0, .length = kBytes, .stride = 0, .count = RemoteMemory::kRangesMax};
  ASSERT_GT(same.length * same.count, remote.capabilities().operation_bytes_max);
  std::string bytes(8, '\0');
  const absl::Status status = remote.Read(same, SpanOf(bytes)).Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()), HasSubstr("one operation at most 2147483648"));
}

TEST_F(SharedMemoryTest, NoClientReachesMemoryAfterItsRevocation) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  RemoteMemory unshown = Reach(channel, 0, 4096);
  EXPECT_THAT(memory_->Revoke(), IsOk());
  const absl::Status status = remote.Read(0, SpanOf(bytes)).Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), HasSubstr("revoked"));
  EXPECT_THAT(Ask(channel, 0, 8, Access::kRead).status(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(unshown.Read(0, SpanOf(bytes)).Wait(), HasCode(absl::StatusCode::kFailedPrecondition));
  // Other memory goes on.
  absl::StatusOr<SharedMemory> other = server_->Share(4096);
  ASSERT_THAT(other.status(), IsOk());
  Use(*std::move(other));
  EXPECT_THAT(Reach(channel).Read(0, SpanOf(bytes)).Wait(), IsOk());
}

TEST_F(SharedMemoryTest, MemoryOfTheProgramIsItsOwnAgainAfterRevokeWithOperationsInFlight) {
  std::string own(kBytes, 'a');
  absl::StatusOr<SharedMemory> shared = server_->Share(SpanOf(own));
  ASSERT_THAT(shared.status(), IsOk());
  Use(*std::move(shared));
  std::atomic<int> writing{0};
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([this, &writing] {
      const auto channel = Connect();
      RemoteMemory remote = Reach(channel);
      const std::string text(65536, 'b');
      for (int written = 0;; ++written) {
        if (written == 5) ++writing;
        const absl::Status status = remote.Write(0, SpanOf(text)).Wait();
        if (!status.ok()) {
          EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition)) << status;
          return;
        }
      }
    });
  }
  EXPECT_TRUE(Eventually([&] { return writing == 2; }));
  memory_.reset();  // Revokes, and waits.
  std::fill(own.begin(), own.end(), 'c');
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(own.find_first_not_of('c'), std::string::npos);
}

TEST_F(SharedMemoryTest, WhatWasMovedFromIsEmpty) {
  SharedMemory moved = *std::exchange(memory_, std::nullopt);
  SharedMemory other = std::move(moved);
  EXPECT_EQ(moved.data(), nullptr);
  EXPECT_EQ(moved.size_bytes(), 0u);
  EXPECT_THAT(moved.Revoke(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(other.size_bytes(), kBytes);
}

TEST_F(SharedMemoryTest, WhatTheClientHasMovedFromSaysSo) {
  RemoteMemory remote = Reach(Connect());
  std::string bytes(8, '\0');
  RemoteOperation operation = remote.Read(0, SpanOf(bytes));
  RemoteOperation moved = std::move(operation);
  const auto is_moved_from = [](const absl::Status& status, absl::string_view what) {
    EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
    EXPECT_EQ(status.message(), absl::StrCat("the ", what, " was moved from"));
  };
  is_moved_from(operation.Wait(), "RemoteOperation");
  Box<absl::Status> results;
  operation.Then([&](const absl::Status& status) { results.Put(status); });
  is_moved_from(results.Take(), "RemoteOperation");
  [&]() -> Detached { results.Put(co_await operation); }();
  is_moved_from(results.Take(), "RemoteOperation");
  EXPECT_THAT(moved.Wait(), IsOk());

  RemoteMemory other = std::move(remote);
  is_moved_from(remote.Read(0, SpanOf(bytes)).Wait(), "RemoteMemory");
  EXPECT_EQ(remote.size_bytes(), 0u);
  EXPECT_FALSE(remote.capabilities().is_known);
  EXPECT_EQ(remote.default_timeout(), absl::InfiniteDuration());
  remote = std::move(other);
  EXPECT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  is_moved_from(other.Read(0, SpanOf(bytes)).Wait(), "RemoteMemory");
}

TEST_F(SharedMemoryTest, AChildAfterForkLeavesTheMemoryToItsParent) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer has no threads after fork()";
#endif
  const auto channel = Connect();
  auto remote = std::make_unique<RemoteMemory>(Reach(channel));
  absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(4096);
  ASSERT_THAT(buffer.status(), IsOk());
  std::vector<std::unique_ptr<RemoteOperation>> reads;
  for (size_t i = 0; i < 4; ++i) {
    reads.push_back(
        std::make_unique<RemoteOperation>(remote->Read(1000 * i, {buffer->data() + 1000 * i, 1000})));
  }
  EXPECT_TRUE(InChild([&] {
    const auto says_why = [](const absl::Status& status) {
      return absl::IsFailedPrecondition(status) && absl::StrContains(status.message(), "fork()");
    };
    absl::Status called;
    reads[1]->Then([&](const absl::Status& status) { called = status; });
    reads[2]->Cancel();
    const bool ended = says_why(reads[0]->Wait()) && says_why(called) && says_why(memory_->Revoke());
    reads.clear();
    remote.reset();
    memory_.reset();
    return ended;
  }));
  for (const auto& read : reads) EXPECT_THAT(read->Wait(), IsOk()) << "the parent was harmed";
  EXPECT_EQ(std::string(reinterpret_cast<char*>(buffer->data()), 4000), Expected(0, 4000));
}

TEST_F(SharedMemoryTest, RevokeInAHandlerIsRefused) {
  act_.on_act = [&](ServerContext&, uint64_t) { return memory_->Revoke(); };
  const auto channel = Connect();
  EXPECT_THAT(SendAct(channel, 1).Wait().status(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(Ask(channel, 0, 8, Access::kRead).status(), IsOk()) << "it was not revoked";
}

TEST_F(SharedMemoryTest, AfterTheServerHasEndedOperationsFailAndTheMemoryStays) {
  auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  server_.reset();
  const absl::Status status = remote.Read(0, SpanOf(bytes)).Wait();
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(memory_->data()[1], 7);
  EXPECT_THAT(memory_->Revoke(), IsOk());
}

TEST_F(SharedMemoryTest, WhatCannotReachMemorySaysWhy) {
  const auto channel = Connect();
  const auto reply = Ask(channel, 0, 4096, Access::kRead);
  ASSERT_THAT(reply.status(), IsOk());
  std::string bytes(8, '\0');
  RemoteMemory none(nullptr, (*reply)->getTicket());
  EXPECT_THAT(none.Read(0, SpanOf(bytes)).Wait(), HasCode(absl::StatusCode::kFailedPrecondition));
  RemoteMemory several(Connect({.connections = 2}), (*reply)->getTicket());
  const absl::Status status = several.Read(0, SpanOf(bytes)).Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), HasSubstr("several connections"));
  absl::StatusOr<SharedMemory> nothing = server_->Share(0);
  EXPECT_THAT(nothing.status(), HasCode(absl::StatusCode::kInvalidArgument));
  nothing = server_->Share(absl::Span<uint8_t>(static_cast<uint8_t*>(nullptr), 4096));
  EXPECT_THAT(nothing.status(), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_F(SharedMemoryTest, AtomicsOfClientsAddUp) {
  const auto probe = Connect();
  std::string bytes(8, '\0');
  RemoteMemory first = Reach(probe);
  ASSERT_THAT(first.Read(0, SpanOf(bytes)).Wait(), IsOk());
  if (first.capabilities().atomics == RemoteAtomics::kNone) GTEST_SKIP() << "there are none";
  memset(memory_->data(), 0, 8);
  constexpr Access kAll = Access::kRead | Access::kWrite | Access::kAtomic;
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([this] {
      RemoteMemory remote = Reach(Connect(), 0, 0, kAll);
      uint64_t before = 0;
      for (int n = 0; n < 100; ++n) EXPECT_THAT(remote.FetchAdd(0, 3, before).Wait(), IsOk());
    });
  }
  for (std::thread& client : clients) client.join();
  RemoteMemory remote = Reach(probe, 0, 0, kAll);
  uint64_t before = 0;
  EXPECT_THAT(remote.CompareAndSwap(0, 900, 1, before).Wait(), IsOk());
  EXPECT_EQ(before, 900u);
  EXPECT_THAT(remote.CompareAndSwap(0, 900, 2, before).Wait(), IsOk());
  EXPECT_EQ(before, 1u);
  EXPECT_THAT(remote.FetchAdd(12, 1, before).Wait(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(remote.FetchAdd(kBytes - 4, 1, before).Wait(), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(first.FetchAdd(0, 1, before).Wait(), HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Ask(probe, 4, 64, kAll).status(), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_F(SharedMemoryTest, CapabilitiesSayWhoCarriesThemOut) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  EXPECT_EQ(remote.capabilities().by_nic, TestScheme() == "rdma");
  EXPECT_FALSE(remote.capabilities().is_known);
  EXPECT_EQ(remote.capabilities().depth, 0u);
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  const RemoteCapabilities known = remote.capabilities();
  EXPECT_TRUE(known.is_known);
  EXPECT_EQ(known.by_nic, TestScheme() == "rdma");
  EXPECT_GT(known.read_depth, 0u);
  EXPECT_GE(known.depth, known.read_depth);
  EXPECT_EQ(known.ranges_max, RemoteMemory::kRangesMax);
  EXPECT_GE(known.operation_bytes_max, remote.size_bytes());
}

TEST_F(SharedMemoryTest, CapabilitiesSayWhatAtomicsAreAtomicWith) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  EXPECT_EQ(remote.capabilities().atomics, RemoteAtomics::kNone) << "not known yet";
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  // Both ends are on one device.
  const fabric::Atomics expected = NewTestFabric()->atomics();
  EXPECT_EQ(remote.capabilities().atomics, expected == fabric::Atomics::kNone ? RemoteAtomics::kNone
                                           : expected == fabric::Atomics::kNic
                                               ? RemoteAtomics::kNic
                                               : RemoteAtomics::kWithProcessor);
}

}  // namespace
}  // namespace hawser
