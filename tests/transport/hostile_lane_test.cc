// A peer that breaks the rules of lanes: as the requester, and as the owner.

#include <time.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/base/violation.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hostile_peer.h"
#include "hawser/tests/transport/testing/test_lender.h"
#include "hawser/tests/transport/testing/world.h"
#include "hawser/transport/lane/arrivals.h"
#include "hawser/transport/lane/lane.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/lane/lane_requests.h"
#include "hawser/transport/lane/lane_server.h"
#include "hawser/transport/lane/lent_memory.h"

namespace hawser::transport {
namespace {

using Kind = LaneMessage::Kind;

constexpr size_t kBytes = 4096;

LaneMessage Message(Kind kind, uint32_t handle) {
  LaneMessage message;
  message.kind = kind;
  message.handle = handle;
  message.ticket = {7, 1, 0, kBytes, kLaneRead, {}};
  message.address = 0x1000;
  message.length = kBytes;
  message.rkey = 99;
  message.access = kLaneRead;
  message.why = absl::PermissionDeniedError("no");
  return message;
}

// The honest side is the owner.
class HostileRequesterTest : public ::testing::Test {
 protected:
  static Handshake Connecting(uint32_t features) {
    Handshake hello = HostilePeer::Hello(Role::kLane);
    hello.features = features;
    return hello;
  }

  explicit HostileRequesterTest(uint32_t features = kFeatureArrivals)
      : listener_(world_, world_.server), peer_(world_) {
    lender_->memory = *LentMemory::Map({7, 1}, 2 * kBytes, world_.clock);
    EXPECT_THAT(lender_->memory->RegisterWith(world_.server.runtime), IsOk());
    memset(lender_->memory->address(), 's', 2 * kBytes);
    listener_.on_peer = [this](PeerRequest request) {
      EXPECT_THAT(
          LaneServer::Accept(world_.server.runtime, world_.server.poller(), std::move(request), lender_)
              .status(),
          IsOk());
    };
    peer_.Dial(listener_.address(), Encode(Connecting(features)));
    EXPECT_TRUE(world_.RunUntil([this] { return peer_.established(); }));
    // siw may hold back the first message until the second.
    if (OverSiw()) peer_.Send(Encode(Message(Kind::kPing, 0)));
  }
  ~HostileRequesterTest() override {
    peer_.Disconnect();
    EXPECT_TRUE(world_.RunUntil([this] { return lender_->gone == 1; }));
    EXPECT_EQ(lender_->memory->lane_count(), 0u);
  }

  bool LaneEnds() {
    return world_.RunUntil([this] { return lender_->gone == 1; });
  }
  // A device need not tell the owner of it (rxe does not), but always refuses it.
  bool ReadIsRefused() {
    return world_.RunUntil([this] { return TestScheme() == "tcp" ? lender_->gone == 1 : peer_.ended(); });
  }
  uint64_t Counted(Violation violation) { return world_.server.poller().violations().count(violation); }
  // The answer to what is sent.
  LaneMessage Ask(const LaneMessage& message) {
    const size_t before = peer_.received().size();
    peer_.Send(Encode(message));
    EXPECT_TRUE(world_.RunUntil([&] { return peer_.received().size() > before; }));
    const std::string& answer = peer_.received().back();
    return *DecodeLaneMessage({reinterpret_cast<const uint8_t*>(answer.data()), answer.size()});
  }

  World world_;
  TestListener listener_;
  const std::shared_ptr<TestLender> lender_ = std::make_shared<TestLender>();
  HostilePeer peer_;
};

TEST_F(HostileRequesterTest, WhatIsNoMessageEndsItsLane) {
  peer_.Send("x");
  EXPECT_TRUE(LaneEnds());
  EXPECT_EQ(Counted(Violation::kMessage), 1u);
}

TEST_F(HostileRequesterTest, OnePingIsNotAnsweredAndASecondEndsItsLane) {
  if (!OverSiw()) peer_.Send(Encode(Message(Kind::kPing, 5)));
  EXPECT_EQ(Ask(Message(Kind::kOpen, 5)).kind, Kind::kOpened);
  EXPECT_EQ(peer_.received().size(), 1u);
  peer_.Send(Encode(Message(Kind::kPing, 5)));
  EXPECT_TRUE(LaneEnds());
  EXPECT_EQ(Counted(Violation::kMessage), 1u);
}

TEST_F(HostileRequesterTest, AHandleThatIsOpenIsNotOpenedAgain) {
  EXPECT_EQ(Ask(Message(Kind::kOpen, 5)).kind, Kind::kOpened);
  peer_.Send(Encode(Message(Kind::kOpen, 5)));
  EXPECT_TRUE(LaneEnds());
  EXPECT_EQ(Counted(Violation::kMessage), 1u);
}

TEST_F(HostileRequesterTest, AHandleThatIsNotOpenIsNotClosed) {
  peer_.Send(Encode(Message(Kind::kClose, 5)));
  EXPECT_TRUE(LaneEnds());
  EXPECT_EQ(Counted(Violation::kMessage), 1u);
}

TEST_F(HostileRequesterTest, WhatOnlyAnOwnerSaysEndsItsLane) {
  peer_.Send(Encode(Message(Kind::kOpened, 5)));
  EXPECT_TRUE(LaneEnds());
  EXPECT_EQ(Counted(Violation::kMessage), 1u);
}

TEST_F(HostileRequesterTest, AReadBeyondTheGrantEndsItsLaneAndReadsNothing) {
  const LaneMessage opened = Ask(Message(Kind::kOpen, 5));
  ASSERT_EQ(opened.kind, Kind::kOpened);
  TableEntry entry;
  entry.address = opened.address + 1;
  entry.rkey = opened.rkey;
  entry.length_bytes = kBytes;
  memset(peer_.readable(), 0, kBytes);
  peer_.Read(entry);
  EXPECT_TRUE(ReadIsRefused());
  EXPECT_EQ(std::string(reinterpret_cast<char*>(peer_.readable()), kBytes), std::string(kBytes, '\0'));
  // A device may say so, too.
  EXPECT_GE(Counted(Violation::kMemoryAccess), TestScheme() == "tcp" ? 1u : 0u);
}

TEST_F(HostileRequesterTest, AReadAfterTheCloseReadsNothing) {
  const LaneMessage opened = Ask(Message(Kind::kOpen, 5));
  EXPECT_EQ(Ask(Message(Kind::kClose, 5)).kind, Kind::kClosed);
  TableEntry entry;
  entry.address = opened.address;
  entry.rkey = opened.rkey;
  entry.length_bytes = 8;
  memset(peer_.readable(), 0, 8);
  peer_.Read(entry);
  EXPECT_TRUE(ReadIsRefused());
  EXPECT_EQ(peer_.readable()[0], 0);
}

TEST_F(HostileRequesterTest, WhatItGivesBackBuysNoTimeForTheRest) {
  EXPECT_EQ(Ask(Message(Kind::kOpen, 1)).kind, Kind::kOpened);
  EXPECT_EQ(Ask(Message(Kind::kOpen, 2)).kind, Kind::kOpened);
  const size_t before = peer_.received().size();
  lender_->memory->Revoke();
  EXPECT_TRUE(world_.RunUntil([&] { return peer_.received().size() == before + 2; }));
  world_.clock.Advance(absl::Milliseconds(1900));
  EXPECT_EQ(Ask(Message(Kind::kClose, 1)).kind, Kind::kClosed);
  EXPECT_EQ(lender_->gone, 0);
  world_.clock.Advance(absl::Milliseconds(200));
  EXPECT_TRUE(LaneEnds());
}

TEST_F(HostileRequesterTest, AFloodOfRequestsIsBounded) {
  for (uint32_t handle = 0; handle < 300; ++handle) peer_.Send(Encode(Message(Kind::kOpen, handle)));
  world_.Settle();
  // The lane has ended, or what is granted is bounded.
  EXPECT_GT(world_.server.fabric->counts(0).grants_max, 0);
  EXPECT_LE(world_.server.fabric->counts(0).grants_max, static_cast<int64_t>(LaneServer::kHandlesMax));
}

// ---- What it says of its WRITEs

LaneMessage OpenCounted(uint32_t handle) {
  LaneMessage open = Message(Kind::kOpen, handle);
  open.ticket.access = kLaneWrite | kLaneCounted;
  return open;
}

LaneMessage Arrived(uint32_t handle, uint32_t count) {
  LaneMessage arrived = Message(Kind::kArrived, handle);
  arrived.count = count;
  return arrived;
}

TEST_F(HostileRequesterTest, OneMessageAddsNoMoreThanItMay) {
  ASSERT_EQ(Ask(OpenCounted(5)).kind, Kind::kOpened);
  EXPECT_EQ(Ask(Arrived(5, kLaneArrivedMax)).kind, Kind::kCounted);
  EXPECT_EQ(lender_->arrivals->count(), kLaneArrivedMax);
  peer_.Send(Encode(Arrived(5, kLaneArrivedMax + 1)));
  EXPECT_TRUE(LaneEnds());
  EXPECT_EQ(Counted(Violation::kMessage), 1u);
  EXPECT_EQ(lender_->arrivals->count(), kLaneArrivedMax);
}

TEST_F(HostileRequesterTest, AnArrivalOfNothingEndsItsLane) {
  ASSERT_EQ(Ask(OpenCounted(5)).kind, Kind::kOpened);
  peer_.Send(Encode(Arrived(5, 0)));
  EXPECT_TRUE(LaneEnds());
  EXPECT_EQ(Counted(Violation::kMessage), 1u);
}

TEST_F(HostileRequesterTest, AnArrivalOnAForgedHandleEndsItsLaneAndCountsNothing) {
  ASSERT_EQ(Ask(OpenCounted(5)).kind, Kind::kOpened);
  peer_.Send(Encode(Arrived(6, 1)));
  EXPECT_TRUE(LaneEnds());
  EXPECT_EQ(Counted(Violation::kMessage), 1u);
  EXPECT_EQ(lender_->arrivals->count(), 0u);
}

TEST_F(HostileRequesterTest, AnArrivalOnAHandleWithoutACounterEndsItsLane) {
  ASSERT_EQ(Ask(Message(Kind::kOpen, 5)).kind, Kind::kOpened);
  peer_.Send(Encode(Arrived(5, 1)));
  EXPECT_TRUE(LaneEnds());
  EXPECT_EQ(Counted(Violation::kMessage), 1u);
}

TEST_F(HostileRequesterTest, AnArrivalAfterTheCloseEndsItsLaneAndCountsNothing) {
  ASSERT_EQ(Ask(OpenCounted(5)).kind, Kind::kOpened);
  EXPECT_EQ(Ask(Message(Kind::kClose, 5)).kind, Kind::kClosed);
  peer_.Send(Encode(Arrived(5, 1)));
  EXPECT_TRUE(LaneEnds());
  EXPECT_EQ(Counted(Violation::kMessage), 1u);
  EXPECT_EQ(lender_->arrivals->count(), 0u);
}

TEST_F(HostileRequesterTest, ATicketForCountedReadsIsRefused) {
  LaneMessage open = OpenCounted(5);
  open.ticket.access = kLaneRead | kLaneCounted;
  // The owner gives no such ticket, but the lane does not rely on that.
  EXPECT_EQ(Ask(open).kind, Kind::kRefused);
}

// It waits for no answer, and takes none.
TEST_F(HostileRequesterTest, AFloodOfArrivalsEndsItsLane) {
  ASSERT_EQ(Ask(OpenCounted(5)).kind, Kind::kOpened);
  peer_.StopReceiving();
  uint32_t sent = 0;
  while (lender_->gone == 0 && sent < 300) {
    peer_.Send(Encode(Arrived(5, 1)));
    ++sent;
    world_.Turn();
  }
  EXPECT_TRUE(LaneEnds());
  EXPECT_GE(lender_->arrivals->count(), 1u);
  EXPECT_LE(lender_->arrivals->count(), sent);
}

// A requester of before there were counters.
class OldRequesterTest : public HostileRequesterTest {
 protected:
  OldRequesterTest() : HostileRequesterTest(0) {}
};

TEST_F(OldRequesterTest, ATicketWithACounterIsRefusedWithTheReason) {
  const LaneMessage answer = Ask(OpenCounted(5));
  ASSERT_EQ(answer.kind, Kind::kRefused);
  EXPECT_CODE(answer.why, kUnimplemented);
  EXPECT_NE(Text(answer.why).find("older version"), std::string::npos) << answer.why;
  EXPECT_EQ(Ask(Message(Kind::kOpen, 6)).kind, Kind::kOpened);
}

// The honest side dials.
class HostileOwnerTest : public ::testing::Test, Lane::Owner {
 protected:
  class Operation final : public LaneOperation {
   public:
    void OnEnd(const absl::Status& status) override { result = status; }
    std::optional<absl::Status> result;
  };

  static Handshake Accepting(uint32_t features) {
    Handshake answer = HostilePeer::Hello(Role::kLane);
    answer.features = features;
    return answer;
  }

  explicit HostileOwnerTest(uint32_t features = kFeatureLanePing)
      : peer_(world_), local_(*world_.client.buffers().Acquire(kBytes)) {
    Lane::Target target;
    target.address = peer_.Listen(Encode(Accepting(features)));
    world_.OnClient([&] {
      Lane::Owner& owner = *this;
      lane_ = *Lane::Dial(world_.client.poller(), target, absl::Seconds(5), owner);
      handle_ = lane_->Open({7, 1, 0, kBytes, kLaneRead, {}});
      read_.pieces.push_back({0, {local_.data(), 8, local_.lkey()}});
      lane_->Start(read_, handle_);
    });
    EXPECT_TRUE(world_.RunUntilPastFirstPing([this] { return !peer_.received().empty(); }));
  }
  ~HostileOwnerTest() override {
    if (!gone_.has_value()) world_.OnClient([this] { lane_->End(absl::CancelledError("the test ends")); });
    EXPECT_TRUE(world_.RunUntil([this] { return gone_.has_value(); }));
    EXPECT_TRUE(read_.result.has_value());
  }

  void OnLaneReady() override {}
  void OnUnsent(LaneOperation& operation, bool, const absl::Status& why) override {
    static_cast<Operation&>(operation).OnEnd(why);
  }
  void OnLaneGone(Lane&, bool, const absl::Status& why) override { gone_ = why; }

  bool LaneEnds() {
    return world_.RunUntil([this] { return gone_.has_value(); });
  }

  World world_;
  HostilePeer peer_;
  Lease local_;
  Lane* lane_ = nullptr;
  uint32_t handle_ = 0;
  Operation read_;
  std::optional<absl::Status> gone_;
};

TEST_F(HostileOwnerTest, OneThatLiesAboutTheLengthLosesTheLane) {
  LaneMessage opened = Message(Kind::kOpened, handle_);
  opened.length = 2 * kBytes;
  peer_.Send(Encode(opened));
  EXPECT_TRUE(LaneEnds());
  EXPECT_CODE(*read_.result, kUnavailable);
}

TEST_F(HostileOwnerTest, AnAnswerForAnotherHandleEndsTheLane) {
  peer_.Send(Encode(Message(Kind::kOpened, handle_ + 1)));
  EXPECT_TRUE(LaneEnds());
}

TEST_F(HostileOwnerTest, OneThatAnswersNothingLosesTheLane) {
  world_.clock.Advance(absl::Seconds(9));
  world_.Settle();
  EXPECT_FALSE(gone_.has_value());
  world_.clock.Advance(absl::Seconds(2));
  EXPECT_TRUE(LaneEnds());
  EXPECT_CODE(*read_.result, kUnavailable);
}

// Linux's siw may hold back the first message of a connection until the second arrives.
TEST_F(HostileOwnerTest, OneThatIsLateWithItsFirstAnswerGetsOnePing) {
  const auto after = [this](absl::Duration time) {
    world_.clock.Advance(time);
    world_.Settle();
    return peer_.received().size();
  };
  if (peer_.received().size() == 1) {  // Else siw did so here.
    EXPECT_EQ(after(LaneRequests::kFirstAnswer - absl::Milliseconds(1)), 1u);
    EXPECT_EQ(after(absl::Milliseconds(1)), 2u);
  }
  const std::string& ping = peer_.received().back();
  EXPECT_EQ(DecodeLaneMessage({reinterpret_cast<const uint8_t*>(ping.data()), ping.size()})->kind,
            Kind::kPing);
  EXPECT_EQ(after(absl::Seconds(8)), 2u);
  // Nor later, when it has answered.
  peer_.Send(Encode(Message(Kind::kRefused, handle_)));
  world_.OnClient([this] { lane_->Open({7, 1, 0, kBytes, kLaneRead, {}}); });
  EXPECT_TRUE(world_.RunUntil([this] { return peer_.received().size() == 3; }));
  EXPECT_EQ(after(absl::Seconds(8)), 3u);
  EXPECT_FALSE(gone_.has_value());
}

TEST_F(HostileOwnerTest, OneThatHasAnsweredGetsNoPing) {
  peer_.Send(Encode(Message(Kind::kRefused, handle_)));
  EXPECT_TRUE(world_.RunUntil([this] { return read_.result.has_value(); }));
  const size_t before = peer_.received().size();
  world_.OnClient([this] { lane_->Open({7, 1, 0, kBytes, kLaneRead, {}}); });
  EXPECT_TRUE(world_.RunUntil([&] { return peer_.received().size() == before + 1; }));
  world_.clock.Advance(absl::Seconds(8));
  world_.Settle();
  EXPECT_EQ(peer_.received().size(), before + 1);
}

// An owner of before there were pings takes one for a mistake.
class OldOwnerTest : public HostileOwnerTest {
 protected:
  OldOwnerTest() : HostileOwnerTest(OverSiw() ? kFeatureLanePing : 0) {}
};

TEST_F(OldOwnerTest, OneThatKnowsNoPingGetsNone) {
  if (OverSiw()) GTEST_SKIP() << "without one, its first message may never arrive";
  world_.clock.Advance(LaneRequests::kAnswerTimeout / 2);
  world_.Settle();
  EXPECT_EQ(peer_.received().size(), 1u);
}

// Eight are sent. One of the others is dropped here, and the next one goes in its place.
TEST_F(HostileOwnerTest, AnOpenThatWasNotSentIsDropped) {
  std::vector<uint32_t> handles;
  world_.OnClient([&] {
    for (uint32_t i = 0; i < kLaneRequestsMax + 1; ++i) {
      handles.push_back(lane_->Open({7, 1, 0, kBytes, kLaneRead, {}}));
    }
    lane_->Close(handles[kLaneRequestsMax - 1]);
  });
  // Besides a ping over siw.
  const auto opens = [this] {
    return static_cast<size_t>(
        std::count_if(peer_.received().begin(), peer_.received().end(),
                      [](const std::string& each) { return each[0] == static_cast<char>(Kind::kOpen); }));
  };
  EXPECT_TRUE(world_.RunUntil([&] { return opens() == kLaneRequestsMax; }));
  peer_.Send(Encode(Message(Kind::kRefused, handle_)));
  EXPECT_TRUE(world_.RunUntil([&] { return opens() == kLaneRequestsMax + 1; }));
  const std::string& last = peer_.received().back();
  EXPECT_EQ(DecodeLaneMessage({reinterpret_cast<const uint8_t*>(last.data()), last.size()})->handle,
            handles[kLaneRequestsMax]);
}

// An owner that holds up, or revokes, what many operations wait for holds up the requester's other work no
// longer than their number asks for.
class ManyOperationsTest : public HostileOwnerTest {
 protected:
  // The processor time of this thread that `code` takes.
  static int64_t CostNs(const std::function<void()>& code) {
    timespec start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    code();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return (end.tv_sec - start.tv_sec) * 1'000'000'000 + end.tv_nsec - start.tv_nsec;
  }
  // That of ending so many operations that wait for a handle. The least of several times.
  int64_t EndingNs(size_t count, const std::function<void(uint32_t handle, std::deque<Operation>&)>& end) {
    int64_t least_ns = INT64_MAX;
    for (int round = 0; round < 3; ++round) {
      std::deque<Operation> operations(count);
      uint32_t handle = 0;
      const size_t before = peer_.received().size();
      world_.OnClient([&] {
        handle = lane_->Open({7, 1, 0, kBytes, kLaneRead, {}});
        for (Operation& each : operations) {
          each.pieces.push_back({0, {local_.data(), 8, local_.lkey()}});
          lane_->Start(each, handle);
        }
      });
      EXPECT_TRUE(world_.RunUntil([&] { return peer_.received().size() > before; }));
      least_ns = std::min(least_ns, CostNs([&] { end(handle, operations); }));
      EXPECT_TRUE(world_.RunUntil([&] {  // Those that are posted.
        return std::all_of(operations.begin(), operations.end(),
                           [](const Operation& each) { return each.result.has_value(); });
      }));
    }
    return least_ns;
  }

  static constexpr size_t kFew = 1000, kMany = 16 * kFew;
};

TEST_F(ManyOperationsTest, TheirDeadlinesTakeTimeInProportion) {
  const auto abort = [this](uint32_t, std::deque<Operation>& operations) {
    world_.OnClient([&] {
      for (Operation& each : operations) lane_->Abort(each, absl::DeadlineExceededError("late"));
    });
  };
  const int64_t few_ns = EndingNs(kFew, abort);
  peer_.Send(Encode(Message(Kind::kRefused, handle_)));  // So that there is room for more opens.
  EXPECT_LT(EndingNs(kMany, abort), 64 * few_ns);
}

TEST_F(ManyOperationsTest, ARevocationTakesTimeInProportion) {
  const auto revoke = [this](uint32_t handle, std::deque<Operation>& operations) {
    const TableEntry entry = peer_.Grant(kBytes);
    LaneMessage opened = Message(Kind::kOpened, handle);
    opened.address = entry.address;
    opened.rkey = entry.rkey;
    peer_.Send(Encode(opened));
    peer_.Send(Encode(Message(Kind::kRevoke, handle)));
    EXPECT_TRUE(world_.RunUntil([&] { return operations.back().result.has_value(); }));
  };
  const int64_t few_ns = EndingNs(kFew, revoke);
  EXPECT_LT(EndingNs(kMany, revoke), 64 * few_ns);
}

TEST_F(HostileOwnerTest, ASecondAnswerEndsTheLane) {
  for (int i = 0; i < 2; ++i) peer_.Send(Encode(Message(Kind::kRefused, handle_)));
  EXPECT_TRUE(LaneEnds());
  EXPECT_CODE(*read_.result, kFailedPrecondition);
}

// An owner that counts what the requester WRITEs. Its memory is that of the peer.
class CountingOwnerTest : public HostileOwnerTest {
 protected:
  explicit CountingOwnerTest(uint32_t features = kFeatureLanePing | kFeatureArrivals)
      : HostileOwnerTest(features) {
    peer_.Send(Encode(Message(Kind::kRefused, handle_)));
    EXPECT_TRUE(world_.RunUntil([this] { return read_.result.has_value(); }));
    write_.kind = LaneOperation::Kind::kWrite;
    write_.pieces.push_back({0, {local_.data(), 8, local_.lkey()}});
  }
  ~CountingOwnerTest() override {
    if (!gone_.has_value()) world_.OnClient([this] { lane_->End(absl::CancelledError("the test ends")); });
    EXPECT_TRUE(world_.RunUntil([this] { return gone_.has_value(); }));
    EXPECT_TRUE(write_.result.has_value());
  }

  void Write() {
    const size_t before = peer_.received().size();
    world_.OnClient([&] {
      counted_ = lane_->Open({7, 1, 0, kBytes, kLaneWrite | kLaneCounted, {}});
      lane_->Start(write_, counted_);
    });
    EXPECT_TRUE(world_.RunUntil([&] { return peer_.received().size() > before; }));
  }

  uint32_t counted_ = 0;
  Operation write_;
};

TEST_F(CountingOwnerTest, OneThatCountsWhatWasNotAnnouncedLosesTheLane) {
  Write();  // Its handle is not open yet.
  peer_.Send(Encode(Message(Kind::kCounted, counted_)));
  EXPECT_TRUE(LaneEnds());
  EXPECT_CODE(*write_.result, kUnavailable);
}

TEST_F(CountingOwnerTest, OneThatOpensNothingForAWriteEndsItWithTheReason) {
  Write();
  peer_.Send(Encode(Message(Kind::kRefused, counted_)));
  EXPECT_TRUE(world_.RunUntil([this] { return write_.result.has_value(); }));
  EXPECT_CODE(*write_.result, kFailedPrecondition);
}

TEST_F(CountingOwnerTest, AWriteThatItRefusesIsNotCounted) {
  Write();
  LaneMessage opened = Message(Kind::kOpened, counted_);
  opened.access = kLaneWrite | kLaneCounted;
  peer_.Send(Encode(opened));
  EXPECT_TRUE(LaneEnds());
  if (OverSiw()) GTEST_SKIP() << "siw reports a WRITE that the peer refuses as flushed";
  EXPECT_CODE(*write_.result, kFailedPrecondition);
  EXPECT_NE(Text(*write_.result).find("and was not counted"), std::string::npos) << *write_.result;
}

// An owner of before there were counters gives no such ticket.
class UncountingOwnerTest : public CountingOwnerTest {
 protected:
  UncountingOwnerTest() : CountingOwnerTest(kFeatureLanePing) {}
};

TEST_F(UncountingOwnerTest, AWriteThatItCannotCountIsNotPosted) {
  Write();
  LaneMessage opened = Message(Kind::kOpened, counted_);
  opened.access = kLaneWrite | kLaneCounted;
  peer_.Send(Encode(opened));
  EXPECT_TRUE(world_.RunUntil([this] { return write_.result.has_value(); }));
  EXPECT_CODE(*write_.result, kUnimplemented);
  EXPECT_FALSE(gone_.has_value());
}

TEST_F(HostileOwnerTest, WhatOnlyARequesterSaysEndsTheLane) {
  peer_.Send(Encode(Message(Kind::kClose, handle_)));
  EXPECT_TRUE(LaneEnds());
}

TEST_F(HostileOwnerTest, AnRkeyThatIsNoneFailsTheOperationWithAReason) {
  peer_.Send(Encode(Message(Kind::kOpened, handle_)));
  EXPECT_TRUE(LaneEnds());
  if (OverSiw()) GTEST_SKIP() << "siw reports a READ that the peer refuses as flushed";
  EXPECT_CODE(*read_.result, kFailedPrecondition);
  EXPECT_NE(Text(*read_.result).find("the owner refuses the memory"), std::string::npos) << *read_.result;
}

}  // namespace
}  // namespace hawser::transport
