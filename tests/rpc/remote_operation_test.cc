// One-sided operations: how they end, also by a deadline, a cancellation or the end of a lane, and to whom
// the result goes.

#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/tests/testing/detached.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/lane/lane_server.h"
#include "tests/rpc/memory_server.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(SharedMemoryTest, AnOperationWithoutTimeIsNotSent) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  const std::string before = Expected(0, 8), text(8, 'w');
  std::string bytes(8, '\0');
  constexpr absl::Duration kStep = absl::Nanoseconds(1);
  for (const absl::Duration timeout : {absl::ZeroDuration(), -kStep, -absl::Seconds(5),
                                       -absl::Hours(24 * 365 * 1000), -absl::InfiniteDuration()}) {
    EXPECT_THAT(remote.Write(0, SpanOf(text), {.timeout = timeout}).Wait(),
                HasCode(absl::StatusCode::kDeadlineExceeded))
        << timeout;
    EXPECT_THAT(remote.Read(0, SpanOf(bytes), {.timeout = timeout}).Wait(),
                HasCode(absl::StatusCode::kDeadlineExceeded))
        << timeout;
    EXPECT_FALSE(remote.capabilities().is_known) << "it has opened the lane";
  }
  EXPECT_THAT(remote.Read(0, SpanOf(bytes), {.timeout = absl::InfiniteDuration()}).Wait(), IsOk());
  EXPECT_EQ(bytes, before);
}

TEST_F(SharedMemoryTest, AnExceptionOfACallbackHarmsNoOtherOperation) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  Box<bool> thrown;
  remote.Read(0, SpanOf(bytes)).Then([&](const absl::Status&) {
    thrown.Put(true);
    throw std::runtime_error("the test's");
  });
  EXPECT_TRUE(thrown.Take());
  Box<absl::Status> next;
  remote.Read(8, SpanOf(bytes)).Then([&](const absl::Status& status) { next.Put(status); });
  EXPECT_THAT(next.Take(), IsOk());
  EXPECT_EQ(bytes, Expected(8, 8));
}

TEST_F(SharedMemoryTest, AWriteThatIsWaitedForInAHandlerMayHaveHappenedAndSaysSo) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes = Expected(0, 8);  // Not registered: then it would be a CHECK.
  act_.on_act = [&](ServerContext&, uint64_t number) {
    return (number == 0 ? remote.Read(0, SpanOf(bytes)) : remote.Write(0, SpanOf(std::as_const(bytes))))
        .Wait();
  };
  constexpr char kMayBe[] = "it may have been written, in whole or in part";
  const absl::Status read = SendAct(channel, 0).Wait().status(),
                     written = SendAct(channel, 1).Wait().status();
  EXPECT_THAT(read, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(read.message()), Not(HasSubstr(kMayBe)));
  EXPECT_THAT(written, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(written.message()), HasSubstr(kMayBe));
}

TEST_F(SharedMemoryTest, AfterCloseOperationsAreCancelled) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  channel->Close();
  EXPECT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), HasCode(absl::StatusCode::kCancelled));
}

TEST_F(SharedMemoryTest, AResultGoesToACallbackToo) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  Box<absl::Status> results;
  remote.Read(0, SpanOf(bytes)).Then([&](const absl::Status& status) { results.Put(status); });
  EXPECT_THAT(results.Take(), IsOk());
  EXPECT_EQ(bytes, Expected(0, 8));
  remote.Read(kBytes, SpanOf(bytes)).Then([&](const absl::Status& status) { results.Put(status); });
  EXPECT_THAT(results.Take(), HasCode(absl::StatusCode::kOutOfRange));
}

// The server's poller is held by a handler, so that over TCP nothing is answered.
class HeldServerTest : public SharedMemoryTest {
 protected:
  void SetUp() override {
    if (TestScheme() != "tcp") GTEST_SKIP() << "a NIC answers while a handler holds the poller";
    StartServer(TestUri(), {.pollers = 1});
    act_.on_act = [this](ServerContext&, uint64_t) {
      holds_ = true;
      Eventually([this] { return handler_ends_.load(); });
      holds_ = false;
      return absl::OkStatus();
    };
  }
  void TearDown() override { handler_ends_ = true; }

  void Hold(const std::shared_ptr<Channel>& channel) {
    SendAct(channel, 1).Forget();
    ASSERT_TRUE(Eventually([this] { return holds_.load(); }));
  }

  std::atomic<bool> holds_{false}, handler_ends_{false};
};

TEST_F(HeldServerTest, AtItsDeadlineAnOperationEndsAndNothingChangesAfterwards) {
  const auto channel = Connect({.default_timeout = absl::InfiniteDuration()});
  RemoteMemory remote = Reach(channel);
  absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(4096);
  ASSERT_THAT(buffer.status(), IsOk());
  ASSERT_THAT(remote.Read(0, {buffer->data(), 4096}).Wait(), IsOk());
  Hold(channel);
  memset(buffer->data(), 'x', 4096);
  const absl::Status status = remote.Read(0, {buffer->data(), 4096}, {.timeout = kExpires}).Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no completion came before the deadline; nothing has come from it for "));
  memset(buffer->data(), 'y', 4096);
  handler_ends_ = true;
  // The lane is opened anew; calls and the ticket go on.
  std::string bytes(8, '\0');
  EXPECT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  EXPECT_EQ(std::string(reinterpret_cast<char*>(buffer->data()), 4096), std::string(4096, 'y'));
}

TEST_F(HeldServerTest, ACancelledOperationEndsTheOthersOfItsLaneAndNoCall) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0'), others(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  Hold(channel);
  RemoteOperation cancelled = remote.Read(0, SpanOf(bytes), {.timeout = absl::InfiniteDuration()});
  RemoteOperation other = remote.Write(0, SpanOf(others), {.timeout = absl::InfiniteDuration()});
  // Both are posted once a turn has ended that began after them.
  for (int i = 0; i < 2; ++i) internal::RunAndWait(channel->sender()->poller(), [] {});
  cancelled.Cancel();
  EXPECT_THAT(cancelled.Wait(), HasCode(absl::StatusCode::kCancelled));
  const absl::Status status = other.Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(status.message()), HasSubstr("may have been written"));
  handler_ends_ = true;
  EXPECT_THAT(Ask(channel, 0, 8, Access::kRead).status(), IsOk());
  EXPECT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk()) << "the session has not gone on";
}

// The server has not answered for its ticket, so that nothing of it was posted.
TEST_F(HeldServerTest, AnOperationOfWhichNothingWasPostedGoesOnOverTheNextLane) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel), other = Reach(channel, 64, 64);
  std::string bytes(8, '\0'), others(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  Hold(channel);
  RemoteOperation cancelled = remote.Read(0, SpanOf(bytes), {.timeout = absl::InfiniteDuration()});
  RemoteOperation waits = other.Read(0, SpanOf(others), {.timeout = absl::InfiniteDuration()});
  for (int i = 0; i < 2; ++i) internal::RunAndWait(channel->sender()->poller(), [] {});
  cancelled.Cancel();
  EXPECT_THAT(cancelled.Wait(), HasCode(absl::StatusCode::kCancelled));
  handler_ends_ = true;
  EXPECT_THAT(waits.Wait(), IsOk());
  EXPECT_EQ(others, Expected(64, 8));
}

TEST_F(HeldServerTest, AnOperationThatIsDroppedLeavesItsMemoryAlone) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  Hold(channel);
  absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(4096);
  ASSERT_THAT(buffer.status(), IsOk());
  {
    RemoteOperation dropped = remote.Read(0, {buffer->data(), 4096}, {.timeout = absl::InfiniteDuration()});
    RemoteOperation copied = remote.Read(0, SpanOf(bytes), {.timeout = absl::InfiniteDuration()});
  }
  memset(buffer->data(), 'z', 4096);
  bytes = "untouchd";
  handler_ends_ = true;
  std::string later(8, '\0');
  EXPECT_THAT(remote.Read(0, SpanOf(later)).Wait(), IsOk());
  EXPECT_EQ(bytes, "untouchd");
  EXPECT_EQ(buffer->data()[0], 'z');
}

TEST_F(HeldServerTest, AnOperationWithACallbackCanBeCancelled) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  Hold(channel);
  Box<absl::Status> results;
  RemoteOperation read = remote.Read(0, SpanOf(bytes), {.timeout = absl::InfiniteDuration()});
  read.Then([&](const absl::Status& status) { results.Put(status); });
  read.Cancel();
  EXPECT_THAT(results.Take(), HasCode(absl::StatusCode::kCancelled));
}

TEST_F(SharedMemoryTest, CancelRacesWithCompletionAndTheResultIsOneOfBoth) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(64, '\0');
  for (int i = 0; i < 200; ++i) {
    RemoteOperation read = remote.Read(0, SpanOf(bytes));
    std::thread canceller([&read] { read.Cancel(); });
    const absl::Status status = read.Wait();
    canceller.join();
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  }
  EXPECT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
}

TEST_F(SharedMemoryTest, AnOperationThatIsKeptAfterItsCallbackHoldsNoMemoryOfThePool) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(kBytes, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes).subspan(0, 8)).Wait(), IsOk());
  const transport::BufferPool& pool = channel->sender()->runtime()->buffers();
  Box<size_t> leased;
  RemoteOperation kept = remote.Read(0, SpanOf(bytes));
  kept.Then([&](const absl::Status& status) {
    EXPECT_THAT(status, IsOk());
    leased.Put(pool.stats().leased_bytes);
  });
  const size_t in_callback = leased.Take();
  EXPECT_TRUE(Eventually([&] { return pool.stats().leased_bytes + kBytes / 2 < in_callback; }));
  EXPECT_TRUE(bytes == Expected(0, kBytes));
  kept.Cancel();
}

// So the lane has room for the ticket of another operation.
TEST_F(SharedMemoryTest, AnOperationThatIsKeptAfterItsCallbackHoldsNoTicket) {
  const auto channel = Connect();
  std::vector<RemoteMemory> remotes;
  std::string bytes(8, '\0');
  for (uint64_t i = 0; i <= transport::LaneServer::kHandlesMax; ++i) remotes.push_back(Reach(channel, i, 8));
  std::vector<RemoteOperation> kept;
  Box<absl::Status> results;
  for (size_t i = 0; i < transport::LaneServer::kHandlesMax; ++i) {
    kept.push_back(remotes[i].Read(0, SpanOf(bytes)));
    kept.back().Then([&](const absl::Status& status) { results.Put(status); });
    ASSERT_THAT(results.Take(), IsOk());
  }
  RemoteMemory last = std::move(remotes.back());
  EXPECT_THAT(last.Read(0, SpanOf(bytes)).Wait(), HasCode(absl::StatusCode::kResourceExhausted));
  remotes.clear();
  EXPECT_TRUE(Eventually([&] { return last.Read(0, SpanOf(bytes)).Wait().ok(); }));
}

Detached ReadIn(RemoteMemory& remote, uint64_t offset, absl::Span<uint8_t> into, Box<absl::Status>& results) {
  const absl::Status status = co_await remote.Read(offset, into);
  results.Put(status);
}

// With gcc 12 no list in braces is a part of a co_await expression.
Detached ReadTwo(RemoteMemory& remote, uint64_t first, uint64_t second, absl::Span<uint8_t> into,
                 Box<absl::Status>& results) {
  auto read = remote.Read({{first, 4}, {second, 4}}, into);
  const absl::Status status = co_await read;
  results.Put(status);
}

TEST_F(SharedMemoryTest, ACoroutineAwaitsAnOperation) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  Box<absl::Status> results;
  ReadIn(remote, 0, SpanOf(bytes), results);
  EXPECT_THAT(results.Take(), IsOk());
  EXPECT_EQ(bytes, Expected(0, 8));
  ReadTwo(remote, 64, 4096, SpanOf(bytes), results);
  EXPECT_THAT(results.Take(), IsOk());
  EXPECT_EQ(bytes, Expected(64, 4) + Expected(4096, 4));
  ReadIn(remote, kBytes, SpanOf(bytes), results);
  EXPECT_THAT(results.Take(), HasCode(absl::StatusCode::kOutOfRange));
}

}  // namespace
}  // namespace hawser
