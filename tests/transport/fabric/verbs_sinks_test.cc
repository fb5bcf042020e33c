// What the device may write on behalf of a peer, and for how long: the sinks of READs, on a device that needs
// them registered for that.

#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/fabric/verbs/sinks.h"

namespace hawser::fabric {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr CompletionStatus kSuccess = CompletionStatus::kSuccess;
constexpr CompletionStatus kFlushed = CompletionStatus::kFlushed;
constexpr int kRegionAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
constexpr int kSinkAccess = kRegionAccess | IBV_ACCESS_REMOTE_WRITE;

SendWorkRequest ReadInto(uint64_t wr_id, const Sge& sink) {
  return {.wr_id = wr_id,
          .opcode = Opcode::kRead,
          .signaled = true,
          .sges = {&sink, 1},
          .remote_address = 0x1000,
          .rkey = 77};
}

// A connection over iWARP.
struct IwarpWorld : FakeWorld {
  IwarpWorld() : FakeWorld({.iwarp = true, .windows = false}, {.send_depth = 8, .receive_depth = 8}) {}

  absl::Status Read(uint64_t wr_id, const Sge& sink) {
    const SendWorkRequest request = ReadInto(wr_id, sink);
    return qp->PostSend({&request, 1});
  }
  absl::Status Read(uint64_t wr_id, size_t offset, uint32_t length) {
    return Read(wr_id, At(offset, length));
  }

  // Beside the region.
  size_t sinks() const { return verbs.memory_regions.size() - 1; }
  // The one of those that contains `address`. Null: there is none.
  const ibv_mr* SinkAt(const uint8_t* address) const {
    for (const ibv_mr* mr : verbs.memory_regions) {
      const auto* const begin = static_cast<const uint8_t*>(mr->addr);
      if (begin == memory.data() && mr->length == memory.size()) continue;
      if (address >= begin && address < begin + mr->length) return mr;
    }
    return nullptr;
  }
};

TEST(VerbsSinksTest, OverIwarpExactlyWhatIsReadIntoIsWritableUntilTheReadHasCompleted) {
  IwarpWorld world;
  ASSERT_THAT(world.verbs.registrations, ElementsAre(kRegionAccess)) << "the region is not";
  ASSERT_THAT(world.Read(1, 1234, 567), IsOk());
  ASSERT_EQ(world.sinks(), 1u);
  EXPECT_EQ(world.verbs.registrations.back(), kSinkAccess);
  const ibv_mr* const sink = world.SinkAt(world.memory.data() + 1234);
  ASSERT_NE(sink, nullptr);
  EXPECT_EQ(sink->addr, world.memory.data() + 1234);
  EXPECT_EQ(sink->length, 567u);
  ASSERT_EQ(world.verbs.send_chains.size(), 1u);
  const FakeVerbs::Send& read = world.verbs.send_chains[0][0];
  EXPECT_EQ(read.wr.opcode, IBV_WR_RDMA_READ);
  ASSERT_EQ(read.sges.size(), 1u);
  EXPECT_EQ(read.sges[0].lkey, sink->lkey);
  EXPECT_EQ(read.sges[0].addr, reinterpret_cast<uint64_t>(sink->addr));
  world.Poll();
  EXPECT_EQ(world.sinks(), 1u);
  world.verbs.CompleteSends(1);
  world.Poll(1);
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kSuccess)));
  EXPECT_EQ(world.sinks(), 0u);
}

TEST(VerbsSinksTest, NothingElseIsRegisteredForTheDeviceToWrite) {
  IwarpWorld world;
  ASSERT_THAT(world.Post(1), IsOk());
  ASSERT_THAT(world.Receive(2), IsOk());
  EXPECT_EQ(world.sinks(), 0u);
  FakeVerbs::Send posted = world.verbs.send_chains.at(0).at(0);
  EXPECT_EQ(posted.sges.at(0).lkey, (*world.verbs.memory_regions.begin())->lkey);
}

TEST(VerbsSinksTest, OverInfinibandAReadNeedsNoRegistration) {
  FakeWorld world;
  world.qp->OpenSink(world.memory.data(), 1000);
  const Sge sink = world.At(0, 100);
  const SendWorkRequest request = ReadInto(1, sink);
  ASSERT_THAT(world.qp->PostSend({&request, 1}), IsOk());
  world.qp->CloseSink(world.memory.data());
  EXPECT_THAT(world.verbs.registrations, ElementsAre(kRegionAccess | IBV_ACCESS_MW_BIND));
}

TEST(VerbsSinksTest, AReadThatFailsLeavesNothingWritable) {
  for (ibv_wc_status status : {IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_LOC_PROT_ERR}) {
    IwarpWorld world;
    world.qp->OpenSink(world.memory.data(), 1000);
    for (uint64_t i = 0; i < 3; ++i) ASSERT_THAT(world.Read(i, i * 500, 100), IsOk());
    EXPECT_EQ(world.sinks(), 2u) << "the first two share one";
    for (const auto& [with, left] :
         {std::pair{status, 2u}, {IBV_WC_WR_FLUSH_ERR, 1u}, {IBV_WC_WR_FLUSH_ERR, 0u}}) {
      world.verbs.CompleteSends(1, with);
      world.Poll(1);
      EXPECT_EQ(world.sinks(), left);
    }
    EXPECT_EQ(world.completions.size(), 3u);
  }
}

TEST(VerbsSinksTest, WhatIsOutstandingAtTheEndIsNotWritableWhenItIsGivenBack) {
  IwarpWorld world;
  world.qp->OpenSink(world.memory.data(), 1000);
  ASSERT_THAT(world.Read(1, 0, 100), IsOk());
  ASSERT_THAT(world.Read(2, 5000, 100), IsOk());
  world.qp->Disconnect();
  EXPECT_TRUE(world.verbs.queue_pairs.empty()) << "first, since the device writes until then";
  EXPECT_TRUE(world.completions.empty());
  world.Poll();
  EXPECT_EQ(world.sinks(), 0u);
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kFlushed), CompletionIs(2, kFlushed)));
}

TEST(VerbsSinksTest, AQueuePairThatIsDestroyedTakesItsSinksWithIt) {
  IwarpWorld world;
  world.qp->OpenSink(world.memory.data(), 1000);
  ASSERT_THAT(world.Read(1, 0, 100), IsOk());
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
  EXPECT_EQ(world.sinks(), 0u);
}

TEST(VerbsSinksTest, ADeviceThatIsRemovedLeavesNothingRegistered) {
  IwarpWorld world;
  world.qp->OpenSink(world.memory.data(), 1000);
  ASSERT_THAT(world.Read(1, 0, 100), IsOk());
  ASSERT_THAT(world.Read(2, 5000, 100), IsOk());
  world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
  world.Poll();
  ASSERT_TRUE(world.news.ended());
  world.qp->Disconnect();
  world.Poll();
  EXPECT_EQ(world.sinks(), 0u);
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kFlushed), CompletionIs(2, kFlushed)));
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
  world.Poll();
  EXPECT_TRUE(world.verbs.memory_regions.empty()) << "its user has left, so it is closed";
}

TEST(VerbsSinksTest, AChildAfterForkDeregistersNothing) {
  IwarpWorld world;
  world.qp->OpenSink(world.memory.data(), 1000);
  ASSERT_THAT(world.Read(1, 0, 100), IsOk());
  ASSERT_THAT(world.Read(2, 5000, 100), IsOk());
  const pid_t child = fork();
  if (child == 0) {
    const size_t registered = world.verbs.memory_regions.size();
    world.qp->OpenSink(world.memory.data() + 2000, 1000);
    world.qp->CloseSink(world.memory.data());
    world.qp->Disconnect();
    world.qp.reset();
    _exit(world.verbs.memory_regions.size() == registered ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  world.verbs.CompleteSends(2);
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kSuccess), CompletionIs(2, kSuccess)));
}

TEST(VerbsSinksTest, AReadThatCannotBeRegisteredIsNotPostedNorIsAnythingWithIt) {
  IwarpWorld world;
  world.qp->OpenSink(world.memory.data(), 1000);
  ASSERT_THAT(world.Read(1, 0, 100), IsOk());
  const Sge in_sink = world.At(100, 100), elsewhere = world.At(5000, 200);
  const SendWorkRequest chain[] = {ReadInto(2, in_sink), ReadInto(3, elsewhere)};
  world.verbs.fail_once["ibv_reg_mr"] = ENOMEM;
  const absl::Status status = world.qp->PostSend(chain);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("10.0.0.2"), HasSubstr("200 bytes"), HasSubstr("ulimit -l")));
  EXPECT_EQ(world.verbs.send_chains.size(), 1u);
  EXPECT_EQ(world.sinks(), 1u);
  world.verbs.CompleteSends(1);
  world.Poll();
  EXPECT_EQ(world.sinks(), 1u);
  world.qp->CloseSink(world.memory.data());
  EXPECT_EQ(world.sinks(), 0u) << "a READ that was not posted does not keep it";
  ASSERT_THAT(world.qp->PostSend(chain), IsOk()) << "the connection has not ended";
  EXPECT_EQ(world.sinks(), 2u);
}

TEST(VerbsSinksTest, OfAPostThatFailsHalfwayOnlyWhatTheDeviceHasStaysWritable) {
  IwarpWorld world;
  const Sge first = world.At(0, 100), second = world.At(5000, 200);
  const SendWorkRequest chain[] = {ReadInto(1, first), ReadInto(2, second)};
  world.verbs.fail_send_at = 1;
  EXPECT_THAT(world.qp->PostSend(chain), HasCode(absl::StatusCode::kInternal));
  EXPECT_NE(world.SinkAt(world.memory.data()), nullptr);
  EXPECT_EQ(world.SinkAt(world.memory.data() + 5000), nullptr);
  world.verbs.CompleteSends(1, IBV_WC_WR_FLUSH_ERR);
  world.Poll();
  EXPECT_EQ(world.sinks(), 0u);
}

// The caller does not get its memory back before the ibv_qp is destroyed.
TEST(VerbsSinksTest, ASinkThatTheDeviceKeepsWritableEndsTheConnection) {
  for (const bool always : {false, true}) {
    IwarpWorld world;
    ASSERT_THAT(world.Read(1, 0, 100), IsOk());
    ASSERT_THAT(world.Read(2, 5000, 100), IsOk());
    (always ? world.verbs.fail_always : world.verbs.fail_once)["ibv_dereg_mr"] = EBUSY;
    world.verbs.CompleteSends(2);
    world.Poll();
    EXPECT_TRUE(world.completions.empty());
    EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
    EXPECT_THAT(std::string(world.news.why.message()),
                ::testing::AllOf(HasSubstr("10.0.0.2"), HasSubstr("ibv_dereg_mr()"), HasSubstr("EBUSY")));
    EXPECT_EQ(world.sinks(), always ? 2u : 1u) << "it was tried again; the second READ has not ended";
    world.verbs.hold_commands = true;
    world.qp->Disconnect();
    world.Poll();
    EXPECT_TRUE(world.completions.empty());
    world.verbs.fail_always.clear();
    world.verbs.RunCommands();
    EXPECT_TRUE(world.verbs.queue_pairs.empty());
    world.Poll();
    EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kFlushed), CompletionIs(2, kSuccess)));
    EXPECT_EQ(world.sinks(), 0u);
  }
}

TEST(VerbsSinksTest, AnOpenSinkThatTheDeviceKeepsWritableIsNotGivenBack) {
  IwarpWorld world;
  world.qp->OpenSink(world.memory.data(), 1000);
  ASSERT_THAT(world.Read(1, 0, 100), IsOk());
  world.verbs.CompleteSends(1);
  world.Poll();
  ASSERT_THAT(world.completions, ElementsAre(CompletionIs(1, kSuccess)));
  world.verbs.fail_always["ibv_dereg_mr"] = EBUSY;
  EXPECT_FALSE(world.qp->CloseSink(world.memory.data()));
  EXPECT_FALSE(world.qp->CloseSink(world.memory.data()));
  world.Poll();
  EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
  // Its memory is the caller's when the queue pair is destroyed, so the ibv_qp goes first, although nothing
  // is posted.
  world.verbs.hold_commands = true;
  world.qp.reset();
  EXPECT_TRUE(world.verbs.queue_pairs.empty());
  EXPECT_EQ(world.sinks(), 1u);
  world.verbs.fail_always.clear();
  world.verbs.RunCommands();
  EXPECT_EQ(world.sinks(), 0u) << "it was tried again";
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
}

TEST(VerbsSinksTest, WhereAPortionCannotBePinnedTheReadAloneIs) {
  IwarpWorld world;
  world.qp->OpenSink(world.memory.data(), 10000);
  world.verbs.fail_once["ibv_reg_mr"] = ENOMEM;
  ASSERT_THAT(world.Read(1, 0, 500), IsOk());
  ASSERT_NE(world.SinkAt(world.memory.data()), nullptr);
  EXPECT_EQ(world.SinkAt(world.memory.data())->length, 500u);
  ASSERT_THAT(world.Read(2, 500, 500), IsOk());
  EXPECT_EQ(world.SinkAt(world.memory.data() + 500)->length, 9500u) << "there is memory again";
  world.verbs.CompleteSends(2);
  world.Poll();
  EXPECT_TRUE(world.qp->CloseSink(world.memory.data()));
  EXPECT_EQ(world.sinks(), 0u);
}

TEST(VerbsSinksTest, ReadsIntoAnOpenSinkShareOneRegistrationOfAllOfIt) {
  IwarpWorld world;
  world.qp->OpenSink(world.memory.data() + 1000, 10000);
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_THAT(world.Read(i, 1000 + 500 * i, 500), IsOk());
    ASSERT_EQ(world.sinks(), 1u);
    const ibv_mr* const sink = world.SinkAt(world.memory.data() + 1000);
    ASSERT_NE(sink, nullptr);
    EXPECT_EQ(sink->addr, world.memory.data() + 1000);
    EXPECT_EQ(sink->length, 10000u);
    EXPECT_EQ(world.verbs.send_chains.back()[0].sges[0].lkey, sink->lkey);
    world.verbs.CompleteSends(1);  // Sometimes none is outstanding.
    world.Poll(1);
  }
  EXPECT_EQ(world.verbs.registrations.size(), 2u);
  ASSERT_THAT(world.Read(20, 10999, 2), IsOk());  // Beyond its end.
  EXPECT_EQ(world.sinks(), 2u);
  world.verbs.CompleteSends(1);
  world.Poll(1);
  EXPECT_EQ(world.sinks(), 1u);
  world.qp->CloseSink(world.memory.data() + 1000);
  EXPECT_EQ(world.sinks(), 0u);
  world.qp->CloseSink(world.memory.data() + 1000);
  ASSERT_THAT(world.Read(21, 1000, 500), IsOk());
  EXPECT_EQ(world.SinkAt(world.memory.data() + 1000)->length, 500u);
}

TEST(VerbsSinksTest, ASinkThatIsClosedEarlyStaysUntilItsLastRead) {
  IwarpWorld world;
  world.qp->OpenSink(world.memory.data(), 1000);
  ASSERT_THAT(world.Read(1, 0, 500), IsOk());
  ASSERT_THAT(world.Read(2, 500, 500), IsOk());
  world.qp->CloseSink(world.memory.data());
  world.verbs.CompleteSends(1);
  world.Poll();
  EXPECT_EQ(world.sinks(), 1u);
  world.verbs.CompleteSends(1);
  world.Poll();
  EXPECT_EQ(world.sinks(), 0u);
  EXPECT_EQ(world.news.told.size(), 1u);
}

// Or a large message would hold the poller for long, and be writable as a whole.
TEST(VerbsSinksTest, ALargeSinkIsRegisteredInPortions) {
  constexpr uint64_t kPortion = VerbsSinks::kPortionBytes;
  constexpr uint32_t kPiece = 3 << 20;  // Some cross the end of a portion.
  IwarpWorld world;
  const std::unique_ptr<uint8_t[]> large(new uint8_t[3 * kPortion]);
  auto region = world.fabric->Register(large.get(), 3 * kPortion).value();
  const size_t registered = world.verbs.registrations.size();
  const size_t others = world.sinks();
  constexpr uint64_t kBytes = 2 * kPortion + 5;
  world.qp->OpenSink(large.get(), kBytes);
  for (uint64_t at = 0; at < kBytes; at += kPiece) {
    const Sge piece = {large.get() + at, static_cast<uint32_t>(std::min<uint64_t>(kPiece, kBytes - at)),
                       region->lkey()};
    ASSERT_THAT(world.Read(at, piece), IsOk());
    EXPECT_LE(world.sinks(), others + 2) << "this portion, and perhaps the one before";
    world.verbs.CompleteSends(1);
    world.Poll(1);
    EXPECT_EQ(world.sinks(), others + 1);
    for (const ibv_mr* mr : world.verbs.memory_regions) {
      const auto* const begin = static_cast<const uint8_t*>(mr->addr);
      if (begin < large.get() || begin >= large.get() + kBytes || mr->length == 3 * kPortion) continue;
      EXPECT_LE(mr->length, kPortion);
      EXPECT_LE(begin + mr->length, large.get() + kBytes);
    }
  }
  EXPECT_EQ(world.verbs.registrations.size() - registered, 3u);
  world.qp->CloseSink(large.get());
  EXPECT_EQ(world.sinks(), others);
  region.reset();
}

// It would register memory that is none of the fabric's.
TEST(VerbsSinksTest, ASinkThatIsSaidToReachBeyondItsRegionIsRegisteredForEachRead) {
  IwarpWorld world;
  world.qp->OpenSink(world.memory.data(), world.memory.size() + 1);
  ASSERT_THAT(world.Read(1, 100, 50), IsOk());
  EXPECT_EQ(world.SinkAt(world.memory.data() + 100)->length, 50u);
}

}  // namespace
}  // namespace hawser::fabric
