// What the control thread of a device does for its pollers: commands that may take long hold no Poll(), and
// whatever happens while they are under way, nothing leaks (~FakeVerbs() counts) and no memory is used too
// long.

#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/base/unique_fd.h"
#include "hawser/tests/testing/child.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"
#include "hawser/transport/fabric/verbs/control_thread.h"
#include "hawser/transport/fabric/verbs/device.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/fabric/verbs/rings.h"

namespace hawser::fabric {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr CompletionStatus kSuccess = CompletionStatus::kSuccess;
constexpr CompletionStatus kFlushed = CompletionStatus::kFlushed;
const QueuePairOptions kSmall = {.send_depth = 8, .receive_depth = 8};

// A device, and a connection of it that is established while others come and go.
struct ControlWorld : FakeWorld {
  explicit ControlWorld(const FakeVerbs::Options& options = {}) : FakeWorld(options, kSmall) {}

  // Another queue pair.
  struct Side {
    NewsRecorder news;
    std::unique_ptr<QueuePair> qp;
  };
  std::unique_ptr<Side> NewSide() {
    auto side = std::make_unique<Side>();
    side->qp = fabric->CreateQueuePair(*completion_queue, kSmall, side->news).value();
    return side;
  }

  // A peer's request to connect.
  std::unique_ptr<ConnectRequest> Ask() {
    if (listener == nullptr) {
      listener = fabric->Listen(*completion_queue, FakePeer(), requests).value();
      listening = verbs.newest_id;
    }
    asking = verbs.ConnectRequest(listening);
    Poll();
    std::unique_ptr<ConnectRequest> request = std::move(requests.requests.at(0));
    requests.requests.clear();
    return request;
  }

  // Starts to connect or to accept. The commands are held.
  void Start(Side& side, bool accept) {
    if (accept) {
      ASSERT_THAT(side.qp->Accept(*Ask(), "yes"), IsOk());
    } else {
      ASSERT_THAT(side.qp->Connect(FakePeer(), "hello"), IsOk());
    }
  }

  // Carries out one command after the other, and lets the poller see each result.
  void Finish() {
    for (int i = 0; i < 8; ++i) {
      Poll(600);
      verbs.RunCommands();
    }
    Poll(600);
    if (verbs.accepted.retry_count != 0) {
      verbs.accepted = {};
      verbs.CmEvent(asking, RDMA_CM_EVENT_ESTABLISHED);
      Poll(600);
    }
  }

  // The first connection carries traffic.
  void ExpectTraffic() {
    completions.clear();
    ASSERT_THAT(Post(77), IsOk());
    verbs.CompleteSends(1);
    Poll(1);
    EXPECT_THAT(completions, ElementsAre(CompletionIs(77, kSuccess)));
    completions.clear();
  }

  absl::Status ReceiveOn(Side& side, uint64_t wr_id) {
    const ReceiveWorkRequest request = {wr_id, At(2000, 100)};
    return side.qp->PostReceive({&request, 1});
  }

  RequestRecorder requests;
  std::unique_ptr<Listener> listener;
  rdma_cm_id* listening = nullptr;
  rdma_cm_id* asking = nullptr;
};

class VerbsControlTest : public ::testing::TestWithParam<bool> {
 protected:
  bool accepts() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Sides, VerbsControlTest, ::testing::Bool(),
                         [](const auto& side) { return side.param ? "Accepting" : "Connecting"; });

TEST_P(VerbsControlTest, HeldCommandHoldsNoPoll) {
  ControlWorld world;
  world.verbs.hold_commands = true;
  const auto side = world.NewSide();
  ASSERT_THAT(world.ReceiveOn(*side, 1), IsOk());
  const size_t moves = world.verbs.states.size();
  ASSERT_NO_FATAL_FAILURE(world.Start(*side, accepts()));
  for (int step = 0; step < 2; ++step) {
    world.Poll(1600);
    EXPECT_EQ(world.verbs.commands(), 1u) << step;
    world.ExpectTraffic();
    if (step == 0) {
      EXPECT_EQ(world.verbs.queue_pairs.size(), 1u) << "the poller created one";
      EXPECT_EQ(world.verbs.states.size(), moves) << "the poller moved one";
    }
    world.verbs.RunCommands();
  }
  world.Finish();
  EXPECT_THAT(side->news.told, ElementsAre("established"));
  world.verbs.CompleteReceives(1);
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kSuccess)));
  side->qp->Disconnect();
}

TEST(VerbsControlTest, StormOfRequestsLeavesThePollerFree) {
  ControlWorld world;
  world.verbs.hold_commands = true;
  std::vector<std::unique_ptr<ControlWorld::Side>> sides;
  for (int i = 0; i < 50; ++i) {
    sides.push_back(world.NewSide());
    ASSERT_THAT(sides.back()->qp->Accept(*world.Ask(), ""), IsOk());
  }
  world.ExpectTraffic();
  EXPECT_EQ(world.verbs.commands(), 50u);
  EXPECT_EQ(world.verbs.queue_pairs.size(), 1u);
  world.verbs.RunCommands();
  EXPECT_EQ(world.verbs.queue_pairs.size(), 51u);
  // As many die at once.
  for (const auto& side : sides) side->qp->Disconnect();
  sides.clear();
  world.ExpectTraffic();
  EXPECT_EQ(world.verbs.queue_pairs.size(), 51u) << "the poller destroyed one";
  world.verbs.RunCommands();
  EXPECT_EQ(world.verbs.queue_pairs.size(), 1u);
}

// The peer may answer before the poller learns that rdma_accept() has returned.
TEST(VerbsControlTest, FirstMessageOfThePeerComesBeforeTheResult) {
  ControlWorld world;
  world.verbs.hold_commands = true;
  const auto side = world.NewSide();
  ASSERT_THAT(world.ReceiveOn(*side, 1), IsOk());
  ASSERT_NO_FATAL_FAILURE(world.Start(*side, /*accept=*/true));
  world.verbs.RunCommands();
  world.Poll();
  const Sge sge = world.At(0, 10);
  const SendWorkRequest answer = {.wr_id = 2, .signaled = true, .sges = {&sge, 1}};
  EXPECT_THAT(side->qp->PostSend({&answer, 1}), HasCode(absl::StatusCode::kFailedPrecondition));
  world.verbs.during["rdma_accept"] = [&] {
    world.verbs.CompleteReceives(1);
    world.Poll(1);
    EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kSuccess)));
    EXPECT_THAT(side->qp->PostSend({&answer, 1}), IsOk());
    world.verbs.CmEvent(world.asking, RDMA_CM_EVENT_ESTABLISHED);
    world.Poll();
    EXPECT_THAT(side->news.told, ElementsAre("established"));
  };
  world.verbs.RunCommands();
  world.Poll();
  EXPECT_THAT(side->news.told, ElementsAre("established"));
  side->qp->Disconnect();
}

TEST(VerbsControlTest, AnswerOfThePeerComesBeforeTheResult) {
  ControlWorld world;
  world.verbs.hold_commands = true;
  const auto side = world.NewSide();
  ASSERT_NO_FATAL_FAILURE(world.Start(*side, /*accept=*/false));
  world.Poll(1600);
  world.verbs.RunCommands();
  world.Poll();
  rdma_cm_id* const id = world.verbs.newest_id;
  world.verbs.during["rdma_connect"] = [&] {
    world.verbs.CmEvent(id, RDMA_CM_EVENT_CONNECT_RESPONSE);
    world.Poll();
  };
  world.verbs.RunCommands();  // And FakeVerbs answers a second time.
  world.Poll();
  EXPECT_THAT(side->news.told, ElementsAre("established"));
  side->qp->Disconnect();
}

// --- Failures

struct Fault {
  const char* call;  // That fails; null: moving the queue pair to `state`.
  ibv_qp_state state = IBV_QPS_RESET;
};

TEST_P(VerbsControlTest, FailureAtEachStepIsToldAndLeaksNothing) {
  const std::vector<Fault> faults = {{"ibv_create_cq"}, {"ibv_create_qp"},      {"rdma_init_qp_attr"},
                                     {"ibv_modify_qp"}, {nullptr, IBV_QPS_RTR}, {nullptr, IBV_QPS_RTS}};
  const std::vector<Fault> at_one_side = accepts() ? std::vector<Fault>{{"rdma_migrate_id"}, {"rdma_accept"}}
                                                   : std::vector<Fault>{{"rdma_connect"}, {"rdma_establish"}};
  for (const std::vector<Fault>& list : {faults, at_one_side}) {
    for (const Fault& fault : list) {
      const std::string call = fault.call != nullptr ? fault.call : "ibv_modify_qp";
      SCOPED_TRACE(call);
      ControlWorld world({.max_cqe = 64});
      // The listener's completion queue is another one.
      const auto queue = world.fabric->CreateCompletionQueue(64).value();
      auto side = std::make_unique<ControlWorld::Side>();
      side->qp = world.fabric->CreateQueuePair(*queue, kSmall, side->news).value();
      const auto another = world.NewSide();
      const auto poll = [&] {
        Completion some[4];
        for (int i = 0; i < 1600; ++i) queue->Poll(some);
      };
      ASSERT_THAT(world.ReceiveOn(*side, 1), IsOk());
      if (call == "ibv_create_cq") {  // The first one of the queue has no place left then.
        auto full = std::make_unique<ControlWorld::Side>();
        full->qp = world.fabric->CreateQueuePair(*queue, kSmall, full->news).value();
        ASSERT_THAT(full->qp->Connect(FakePeer(), ""), IsOk());
        poll();
        ASSERT_THAT(full->news.told, ElementsAre("established"));
        std::swap(full->qp, another->qp);
        full->qp.reset();
      }
      if (fault.call != nullptr) {
        world.verbs.fail_once[fault.call] = ENOSPC;
      } else {
        world.verbs.refuse_state = fault.state;
      }
      ASSERT_NO_FATAL_FAILURE(world.Start(*side, accepts()));
      poll();
      EXPECT_THAT(side->news.told, ElementsAre("failed"));
      EXPECT_THAT(std::string(side->news.why.message()), HasSubstr(call));
      // The peer gets the same text, unless rdma_accept() was called: then the kernel has rejected it.
      if (accepts() && call != "rdma_accept") {
        const std::string text = "no: " + std::string(side->news.why.message());
        EXPECT_THAT(world.verbs.rejected, ElementsAre(text.substr(0, kRejectPrivateDataMax)));
      } else {
        EXPECT_TRUE(world.verbs.rejected.empty());
      }
      side->qp->Disconnect();
      world.verbs.CompleteReceives(world.verbs.receives.size(), IBV_WC_WR_FLUSH_ERR);
      poll();
      side.reset();
      another->qp.reset();
      poll();
    }
  }
}

TEST_P(VerbsControlTest, QueuePairMayBeDestroyedBetweenAnyTwoCommands) {
  for (size_t before = 0; before < 8; ++before) {
    for (const bool disconnects : {false, true}) {
      ControlWorld world;
      world.verbs.hold_commands = true;
      auto side = world.NewSide();
      ASSERT_NO_FATAL_FAILURE(world.Start(*side, accepts()));
      for (size_t i = 0; i < before; ++i) {
        world.Poll(600);
        world.verbs.RunCommands(1);
      }
      const size_t moves = world.verbs.states.size();
      const std::vector<std::string> told = side->news.told;
      if (disconnects) side->qp->Disconnect();
      side->qp.reset();
      EXPECT_EQ(world.verbs.states.size(), moves) << "the poller moved it";
      world.Poll();
      world.ExpectTraffic();
      world.verbs.RunCommands();
      world.Poll();
      EXPECT_EQ(world.verbs.queue_pairs.size(), 1u) << before;
      EXPECT_EQ(side->news.told, told) << before;
    }
  }
}

// The contract of ~QueuePair(): the device may write to a receive until then.
TEST_P(VerbsControlTest, MemoryThatIsInUseIsFreeWhenTheDestructorReturns) {
  ControlWorld world;
  world.verbs.hold_commands = true;
  auto side = world.NewSide();
  ASSERT_THAT(world.ReceiveOn(*side, 1), IsOk());
  ASSERT_NO_FATAL_FAILURE(world.Start(*side, accepts()));
  world.Poll(1600);
  world.verbs.RunCommands();
  world.Poll();  // The receive is posted; the next command is held.
  ASSERT_EQ(world.verbs.queue_pairs.size(), 2u);
  ASSERT_EQ(world.verbs.commands(), 1u);
  side->qp.reset();
  EXPECT_EQ(world.verbs.queue_pairs.size(), 1u);
  const int connects = world.verbs.connects;
  world.verbs.RunCommands();
  EXPECT_EQ(world.verbs.connects, connects) << "the peer heard of it";
  EXPECT_EQ(world.verbs.accepted.retry_count, 0);
}

TEST(VerbsControlTest, IdleQueuePairIsLeftToTheControlThread) {
  ControlWorld world;
  auto side = world.NewSide();
  ASSERT_NO_FATAL_FAILURE(world.Start(*side, /*accept=*/false));
  world.Poll(1600);
  ASSERT_THAT(side->news.told, ElementsAre("established"));
  world.verbs.hold_commands = true;
  side->qp.reset();
  EXPECT_EQ(world.verbs.queue_pairs.size(), 2u);
  world.verbs.RunCommands();
  EXPECT_EQ(world.verbs.queue_pairs.size(), 1u);
}

// --- The end of a connection

TEST(VerbsControlTest, DrainFollowsTheMoveToError) {
  FakeWorld world({}, kSmall);
  ASSERT_THAT(world.Post(1, /*signaled=*/false), IsOk());
  world.verbs.hold_commands = true;
  world.qp->Disconnect();
  world.Poll();
  EXPECT_EQ(world.verbs.send_chains.size(), 1u) << "the peer would get it";
  world.verbs.RunCommands();
  EXPECT_EQ(world.verbs.states.back(), IBV_QPS_ERR);
  world.Poll();
  ASSERT_EQ(world.verbs.send_chains.size(), 2u);
  world.verbs.CompleteSends(2, IBV_WC_WR_FLUSH_ERR);
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kFlushed)));
}

// A failed request is reported with its reason, and receives complete, while the control thread still revokes
// grants.
TEST(VerbsControlTest, WhatTheEndFlushesDoesNotWaitForTheGrants) {
  for (const bool windows : {true, false}) {
    FakeWorld world({.windows = windows}, kSmall);
    const size_t regions = world.verbs.memory_regions.size(), stock = world.verbs.windows_alive;
    ASSERT_THAT(world.Receive(1), IsOk());
    const uint32_t rkey = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).value().rkey;
    ASSERT_THAT(world.Post(2), IsOk());
    world.verbs.hold_commands = true;
    if (windows) world.verbs.CompleteSends(1);  // BIND_MW.
    world.verbs.CompleteSends(1, IBV_WC_REM_ACCESS_ERR);
    world.verbs.CompleteReceives(1, IBV_WC_WR_FLUSH_ERR);
    world.Poll(1);
    EXPECT_THAT(world.completions,
                UnorderedElementsAre(CompletionIs(1, kFlushed),
                                     CompletionIs(2, CompletionStatus::kRemoteAccessError)));
    world.completions.clear();
    world.qp->Revoke(rkey, 3);
    world.Poll();
    EXPECT_TRUE(world.completions.empty()) << "the peer has access";
    world.verbs.RunCommands();
    EXPECT_EQ(world.verbs.memory_regions.size(), regions);
    EXPECT_EQ(world.verbs.windows_alive, stock - (windows ? 1 : 0));
    world.Poll();
    EXPECT_THAT(world.completions, ElementsAre(CompletionIs(3, kFlushed)));
  }
}

// siw completes a SEND before the READ that was posted before it. A success says that all before it has
// succeeded, too.
TEST(VerbsControlTest, OverIwarpNoSuccessComesBeforeTheFailureOfAnEarlierRequest) {
  FakeWorld world({.iwarp = true, .windows = false}, kSmall);
  ASSERT_THAT(world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead), IsOk());
  const Sge sink = world.At(1000, 100);
  const SendWorkRequest read = {.wr_id = 1,
                                .opcode = Opcode::kRead,
                                .signaled = true,
                                .sges = {&sink, 1},
                                .remote_address = 1,
                                .rkey = 1};
  ASSERT_THAT(world.qp->PostSend({&read, 1}), IsOk());
  ASSERT_THAT(world.Post(2), IsOk());
  world.verbs.hold_commands = true;
  world.verbs.CompleteSend(world.verbs.sends.at(1), IBV_WC_SUCCESS);
  world.Poll(1);
  EXPECT_TRUE(world.completions.empty());
  world.verbs.CompleteSends(1, IBV_WC_WR_FLUSH_ERR);
  world.Poll(2);
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kFlushed), CompletionIs(2, kSuccess)));
}

// A device that does not deregister a grant even at the end: its memory stays the fabric's until the ibv_qp
// is destroyed.
TEST(VerbsControlTest, RevocationThatTheDeviceRefusesAtTheEndCompletesWhenTheQueuePairIsDestroyed) {
  for (const bool disconnects_first : {false, true}) {
    FakeWorld world({.windows = false}, kSmall);
    ASSERT_THAT(world.Receive(1), IsOk());
    const uint32_t rkey = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).value().rkey;
    world.verbs.fail_always["ibv_dereg_mr"] = EIO;
    world.verbs.hold_commands = disconnects_first;
    world.verbs.CompleteReceives(1, IBV_WC_WR_FLUSH_ERR);
    world.Poll();
    world.completions.clear();
    world.qp->Revoke(rkey, 2);
    world.Poll();
    EXPECT_TRUE(world.completions.empty());
    world.verbs.hold_commands = true;
    world.qp->Disconnect();
    if (disconnects_first) world.verbs.RunCommands();  // The move to error, and rdma_disconnect().
    world.Poll();
    EXPECT_TRUE(world.completions.empty());
    world.verbs.fail_always.clear();
    world.verbs.RunCommands();
    EXPECT_TRUE(world.verbs.queue_pairs.empty());
    world.Poll();
    EXPECT_THAT(world.completions, ElementsAre(CompletionIs(2, kFlushed)));
  }
}

// Nor does one that deregisters many at once hold the poller, which would help it.
TEST(VerbsControlTest, PollerDoesNotWaitForTheControlThreadToDeregister) {
  FakeWorld world({.windows = false}, kSmall);
  const size_t regions = world.verbs.memory_regions.size();
  const auto cycle = [&](uint64_t wr_id) {
    const absl::StatusOr<Granted> granted = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead);
    ASSERT_THAT(granted, IsOk()) << wr_id;
    world.qp->Revoke(granted->rkey, wr_id);
  };
  world.verbs.hold_commands = true;
  cycle(0);
  // On the thread that holds its lock, so it would wait for ever.
  world.verbs.during["ibv_dereg_mr"] = [&] {
    for (uint64_t i = 1; i < 12; ++i) ASSERT_NO_FATAL_FAILURE(cycle(i));
  };
  while (world.verbs.commands() > 0) {
    world.verbs.RunCommands(1);
    world.Poll();
  }
  EXPECT_EQ(world.completions.size(), 12u);
  EXPECT_EQ(world.verbs.memory_regions.size(), regions);
}

TEST(VerbsControlTest, ForcedFlushCompletesEverythingWhenTheDeviceHasLetGo) {
  FakeWorld world({}, kSmall);
  ASSERT_THAT(world.Receive(1), IsOk());
  ASSERT_THAT(world.Post(2), IsOk());
  const uint32_t rkey = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).value().rkey;
  world.Poll(1);
  world.verbs.hold_commands = true;
  world.qp->Disconnect();
  world.qp->Revoke(rkey, 3);
  EXPECT_TRUE(world.qp->ForceFlush());
  EXPECT_TRUE(world.qp->ForceFlush());
  world.Poll();
  EXPECT_TRUE(world.completions.empty());
  world.verbs.RunCommands();
  EXPECT_TRUE(world.verbs.queue_pairs.empty());
  world.Poll();
  EXPECT_THAT(world.completions, UnorderedElementsAre(CompletionIs(1, kFlushed), CompletionIs(2, kFlushed),
                                                      CompletionIs(3, kFlushed)));
}

// The peer that waits for the answer gets a reason instead, also when the device fails meanwhile.
TEST(VerbsControlTest, PeerIsRejectedWhenTheQueuePairFailsBeforeTheAnswer) {
  for (const bool flushes : {true, false}) {
    for (const bool disconnects : {false, true}) {
      ControlWorld world;
      world.verbs.hold_commands = true;
      const auto side = world.NewSide();
      ASSERT_THAT(world.ReceiveOn(*side, 1), IsOk());
      ASSERT_NO_FATAL_FAILURE(world.Start(*side, /*accept=*/true));
      world.verbs.RunCommands();  // Creates it.
      world.Poll();
      ASSERT_EQ(world.verbs.commands(), 1u);  // To accept.
      if (flushes) {
        world.verbs.CompleteReceives(1, IBV_WC_WR_FLUSH_ERR);
      } else {
        world.verbs.AsyncEvent(IBV_EVENT_QP_FATAL);
      }
      if (disconnects) side->qp->Disconnect();
      world.Poll(600);
      world.verbs.RunCommands();
      world.Poll(600);
      EXPECT_EQ(world.verbs.accepted.retry_count, 0);
      if (disconnects) {
        EXPECT_TRUE(side->news.told.empty());
        EXPECT_TRUE(world.verbs.rejected.empty()) << "the handler was asked for a reason";
      } else {
        EXPECT_THAT(side->news.told, ElementsAre("failed"));
        EXPECT_EQ(world.verbs.rejected.size(), 1u);
        side->qp->Disconnect();
      }
      if (!flushes) world.verbs.CompleteReceives(world.verbs.receives.size(), IBV_WC_WR_FLUSH_ERR);
      world.Poll();
      world.verbs.RunCommands();
      world.Poll();
    }
  }
}

// Until then the peer may have access, and the region cannot be deregistered.
TEST(VerbsControlTest, RevocationAfterTheEndCompletesWhenTheGrantIsReleased) {
  for (const bool windows : {true, false}) {
    FakeWorld world({.windows = windows}, kSmall);
    const size_t regions = world.verbs.memory_regions.size(), stock = world.verbs.windows_alive;
    const auto grant = [&] {
      return world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).value().rkey;
    };
    const uint32_t queued = windows ? grant() : 0, late = grant();
    world.Poll(1);  // BIND_MW.
    if (windows) world.qp->Revoke(queued, 1);
    world.verbs.hold_commands = true;
    world.verbs.CmEvent(world.verbs.newest_id, RDMA_CM_EVENT_ADDR_CHANGE);
    world.Poll();
    world.verbs.CompleteSends(world.verbs.sends.size(), IBV_WC_WR_FLUSH_ERR);
    world.qp->Revoke(late, 2);
    world.Poll();
    EXPECT_TRUE(world.completions.empty());
    world.verbs.RunCommands();
    EXPECT_EQ(world.verbs.windows_alive, stock - (windows ? 2 : 0));
    EXPECT_EQ(world.verbs.memory_regions.size(), regions);
    world.Poll();
    if (windows) {
      EXPECT_THAT(world.completions,
                  UnorderedElementsAre(CompletionIs(1, kFlushed), CompletionIs(2, kFlushed)));
    } else {
      EXPECT_THAT(world.completions, ElementsAre(CompletionIs(2, kFlushed)));
    }
  }
}

// --- Memory windows

TEST(VerbsControlTest, GrantsTakeWindowsThatTheControlThreadHasAllocated) {
  FakeWorld world({}, {.send_depth = 64, .receive_depth = 8});
  const size_t stock = world.verbs.windows_alive;
  world.verbs.hold_commands = true;
  for (size_t i = 0; i < stock; ++i) {
    ASSERT_THAT(world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead), IsOk());
  }
  EXPECT_EQ(world.verbs.windows_alive, stock) << "the poller allocated one";
  EXPECT_EQ(world.verbs.commands(), 1u) << "one command fills the stock";
  // When the control thread is late, grants go on.
  ASSERT_THAT(world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead), IsOk());
  EXPECT_EQ(world.verbs.windows_alive, stock + 1);
  world.verbs.RunCommands();
  EXPECT_EQ(world.verbs.windows_alive, 2 * stock + 1);
  // Those that are bound, as many as have places in the send queue, are deallocated, but not by the poller.
  const size_t bound = rings::GrantSends(rings::GrantsMax(64));
  world.Poll(1);
  world.qp->Disconnect();
  world.Poll();
  EXPECT_EQ(world.verbs.windows_alive, 2 * stock + 1);
  world.verbs.RunCommands();
  EXPECT_EQ(world.verbs.windows_alive, 2 * stock + 1 - bound);
}

TEST(VerbsControlTest, DeviceWithoutMoreWindowsIsNotAskedForThemAgainAndAgain) {
  FakeWorld world({}, {.send_depth = 64, .receive_depth = 8}, /*connect=*/false);
  world.verbs.fail_once["ibv_alloc_mw"] = ENOMEM;
  ASSERT_THAT(world.qp->Connect(FakePeer(), ""), IsOk());
  world.Poll(1600);
  ASSERT_THAT(world.news.told, ElementsAre("established"));
  EXPECT_EQ(world.verbs.windows_alive, 0u);
  world.verbs.hold_commands = true;
  for (int i = 0; i < 3; ++i) {
    world.verbs.fail_once["ibv_alloc_mw"] = ENOMEM;
    const absl::Status refused = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).status();
    EXPECT_THAT(std::string(refused.message()), HasSubstr("ibv_alloc_mw()"));
  }
  EXPECT_EQ(world.verbs.commands(), 0u);
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead), IsOk());
  }
  EXPECT_EQ(world.verbs.commands(), 1u) << "it had some for these";
  // Others may have returned some.
  world.verbs.hold_commands = false;
  world.qp->Disconnect();
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, kSmall, world.news).value();
  world.news.told.clear();
  ASSERT_THAT(world.qp->Connect(FakePeer(), ""), IsOk());
  world.Poll(1600);
  ASSERT_THAT(world.news.told, ElementsAre("established"));
  EXPECT_GE(world.verbs.windows_alive, 32u);
}

TEST(VerbsControlTest, StockOfWindowsIsBounded) {
  constexpr uint32_t kDepth = 700;
  FakeWorld world({.max_cqe = 1 << 20}, {.send_depth = kDepth, .receive_depth = 8});
  // None of the binds is posted, so all windows could go to the stock.
  for (uint32_t i = 0; i < 2 * kDepth; ++i) {
    ASSERT_THAT(world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead), IsOk());
  }
  EXPECT_GE(world.verbs.windows_alive, 2 * kDepth);
  world.qp->Disconnect();
  EXPECT_EQ(world.verbs.windows_alive, 1024u);
}

// --- Grants by registration

TEST(VerbsControlTest, RegistrationIsRevokedByTheControlThread) {
  FakeWorld world({.windows = false}, kSmall);
  const size_t regions = world.verbs.memory_regions.size();
  std::vector<uint32_t> rkeys;
  while (true) {
    const absl::StatusOr<Granted> granted = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead);
    if (!granted.ok()) break;
    rkeys.push_back(granted->rkey);
  }
  ASSERT_EQ(rkeys.size(), 16u);
  world.verbs.hold_commands = true;
  world.qp->Revoke(rkeys[0], 1);
  world.qp->Revoke(rkeys[1], 2);
  world.Poll();
  EXPECT_EQ(world.verbs.memory_regions.size(), regions + 16) << "the poller deregistered one";
  EXPECT_EQ(world.verbs.commands(), 1u) << "one command for both";
  EXPECT_TRUE(world.completions.empty()) << "the peer has access";
  world.verbs.RunCommands();
  EXPECT_EQ(world.verbs.memory_regions.size(), regions + 14);
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kSuccess), CompletionIs(2, kSuccess)));
  EXPECT_THAT(world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead), IsOk());
  world.qp->Revoke(rkeys[2], 3);
  EXPECT_EQ(world.verbs.commands(), 1u);
}

TEST(VerbsControlTest, GrantsByRegistrationDoNotRunOutWhileTheControlThreadIsBehind) {
  FakeWorld world({.windows = false}, kSmall);
  const size_t regions = world.verbs.memory_regions.size();
  world.verbs.hold_commands = true;
  {  // Those that are being revoked count until they are.
    std::vector<uint32_t> rkeys;
    for (int i = 0; i < 16; ++i) {
      rkeys.push_back(world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).value().rkey);
    }
    EXPECT_THAT(world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).status(),
                HasCode(absl::StatusCode::kResourceExhausted));
    world.qp->Revoke(rkeys[0], 0);
    const absl::StatusOr<Granted> more = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead);
    ASSERT_THAT(more, IsOk()) << "the poller had one deregistered";
    rkeys[0] = more->rkey;
    for (uint32_t rkey : rkeys) world.qp->Revoke(rkey, 0);
    world.verbs.RunCommands();
    world.Poll();
    EXPECT_EQ(world.completions.size(), 17u);
    world.completions.clear();
  }
  constexpr uint64_t kCycles = 200;
  for (uint64_t i = 0; i < kCycles; ++i) {
    const absl::StatusOr<Granted> granted = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead);
    ASSERT_THAT(granted, IsOk()) << i;
    world.qp->Revoke(granted->rkey, i);
  }
  world.verbs.RunCommands();
  world.Poll();
  EXPECT_EQ(world.completions.size(), kCycles);
  EXPECT_EQ(world.verbs.memory_regions.size(), regions);
}

// The connection ends with a revocation under way: it completes once, and the memory is free then.
TEST(VerbsControlTest, ConnectionEndsWhileARegistrationIsRevoked) {
  for (const int error : {0, EBUSY}) {
    for (const bool destroys : {false, true}) {
      FakeWorld world({.windows = false}, kSmall);
      const size_t regions = world.verbs.memory_regions.size();
      const uint32_t rkey = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).value().rkey;
      world.verbs.hold_commands = true;
      world.qp->Revoke(rkey, 1);
      if (error != 0) world.verbs.fail_once["ibv_dereg_mr"] = error;
      world.qp->Disconnect();
      world.Poll();
      EXPECT_TRUE(world.completions.empty());
      if (destroys) {
        world.qp.reset();
        EXPECT_EQ(world.verbs.queue_pairs.size(), 0u);
        EXPECT_EQ(world.verbs.memory_regions.size(), regions) << "after an error it is tried again";
      }
      world.verbs.RunCommands();
      world.Poll();
      EXPECT_EQ(world.verbs.memory_regions.size(), regions);
      if (destroys) {
        EXPECT_TRUE(world.completions.empty());
      } else {
        EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, error == 0 ? kSuccess : kFlushed)));
      }
    }
  }
}

// Some providers free an ibv_qp without the lock under which they poll its ibv_cq, so no thread polls that
// meanwhile. What has arrived before the end of another connection on it waits, and so does that end. Nothing
// turns meanwhile.
TEST(VerbsControlTest, WhatArrivedBeforeTheEndOfAConnectionComesBeforeIt) {
  ControlWorld world({.iwarp = true, .windows = false});
  rdma_cm_id* const id = world.verbs.newest_id;
  auto side = world.NewSide();
  ASSERT_NO_FATAL_FAILURE(world.Start(*side, /*accept=*/false));
  world.Poll(1600);
  ASSERT_THAT(world.Receive(1), IsOk());
  world.verbs.during["ibv_destroy_qp"] = [&] {
    world.verbs.CompleteReceives(1);
    world.verbs.CmEvent(id, RDMA_CM_EVENT_DISCONNECTED);
    world.Poll();
    EXPECT_THAT(world.news.told, ElementsAre("established"));
    world.completion_queue->Wait(absl::ZeroDuration());  // It was woken before.
    const absl::Time before = absl::Now();
    world.completion_queue->Wait(absl::Milliseconds(1));
    EXPECT_GE(absl::Now() - before, absl::Milliseconds(1)) << "it did not sleep";
  };
  side->qp.reset();
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kSuccess)));
  EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
}

// The end of a connection waits for its own ibv_cq only.
TEST(VerbsControlTest, EndOfAConnectionIsToldWhileOneOfAnotherCompletionQueueIsDestroyed) {
  ControlWorld world({.iwarp = true, .windows = false, .max_cqe = 20});
  rdma_cm_id* const id = world.verbs.newest_id;
  auto side = world.NewSide();
  ASSERT_NO_FATAL_FAILURE(world.Start(*side, /*accept=*/false));
  world.Poll(1600);
  ASSERT_EQ(world.verbs.vectors.size(), 2u) << "completion queues";
  ASSERT_THAT(world.Receive(1), IsOk());
  world.verbs.during["ibv_destroy_qp"] = [&] {
    world.verbs.CompleteReceives(1);
    world.verbs.CmEvent(id, RDMA_CM_EVENT_DISCONNECTED);
    world.Poll();
    EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kSuccess)));
    EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
  };
  side->qp.reset();
}

TEST(VerbsControlTest, OnIwarpAndQedrNoThreadPollsTheCompletionQueueOfAQueuePairThatIsDestroyed) {
  struct Device {
    bool iwarp;
    uint32_t vendor_id;
    bool polls;
  };
  constexpr uint32_t kQlogic = 0x1077, kMellanox = 0x2c9;
  for (const Device& device :
       {Device{true, 0, false}, Device{false, kQlogic, false}, Device{false, kMellanox, true}}) {
    ControlWorld world({.iwarp = device.iwarp, .windows = false, .vendor_id = device.vendor_id});
    auto side = world.NewSide();
    ASSERT_NO_FATAL_FAILURE(world.Start(*side, /*accept=*/false));
    world.Poll(1600);
    ASSERT_THAT(world.Post(1), IsOk());
    world.verbs.during["ibv_destroy_qp"] = [&] {
      world.verbs.CompleteSends(1);
      world.Poll(3);
      world.completion_queue->Wait(absl::ZeroDuration());
      EXPECT_EQ(world.completions.size(), device.polls ? 1u : 0u);
    };
    side->qp.reset();
    world.completion_queue->Wait(absl::Seconds(10));
    world.Poll(1);
    EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kSuccess)));
  }
}

// --- The device, and the process

TEST_P(VerbsControlTest, DeviceIsRemovedWithCommandsHandedOver) {
  for (size_t before = 0; before < 5; ++before) {
    ControlWorld world;
    const size_t registered = world.verbs.registrations.size();
    auto side = world.NewSide();
    ASSERT_THAT(world.ReceiveOn(*side, 1), IsOk());
    world.verbs.hold_commands = true;
    ASSERT_NO_FATAL_FAILURE(world.Start(*side, accepts()));
    for (size_t i = 0; i < before; ++i) {
      world.Poll(600);
      world.verbs.RunCommands(1);
    }
    world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
    world.Poll();
    EXPECT_TRUE(side->news.ended());
    EXPECT_TRUE(world.news.ended());
    side->qp->Disconnect();
    world.qp->Disconnect();
    world.Poll();
    const bool posted = !world.verbs.receives.empty();
    EXPECT_EQ(world.completions.size(), posted ? 0u : 1u) << "the device may still write to it";
    world.verbs.RunCommands();
    world.Poll();
    EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kFlushed)));
    side->qp.reset();
    world.qp.reset();
    world.listener.reset();
    EXPECT_EQ(world.verbs.registrations.size(), registered);
    world.verbs.hold_commands = false;
    world.verbs.RunCommands();
    // The next user opens it again: the old one was closed.
    const auto again = world.NewSide();
    ASSERT_THAT(again->qp->Connect(FakePeer(), ""), IsOk());
    EXPECT_EQ(world.verbs.registrations.size(), registered + 1);
    EXPECT_EQ(world.verbs.opened, 1u);
  }
}

TEST_P(VerbsControlTest, ForkedChildLeavesCommandsToItsParent) {
  ControlWorld world;
  world.verbs.hold_commands = true;
  const auto side = world.NewSide();
  ASSERT_NO_FATAL_FAILURE(world.Start(*side, accepts()));
  world.Poll(1600);
  ASSERT_EQ(world.verbs.commands(), 1u);
  const pid_t child = fork();
  if (child == 0) {
    side->qp->Disconnect();
    side->qp.reset();
    world.qp.reset();
    world.listener.reset();
    world.completion_queue.reset();  // It does not wait for the command.
    _exit(world.verbs.commands() == 1 && world.verbs.queue_pairs.size() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  world.Finish();
  EXPECT_THAT(side->news.told, ElementsAre("established"));
  side->qp->Disconnect();
}

// --- The thread

TEST(VerbsThreadsTest, RunsCommandsInOrderOnOneOtherThread) {
  std::vector<int> ran;
  std::set<std::thread::id> threads;
  {
    VerbsControlThread control;
    for (int i = 0; i < 100; ++i) {
      control.Run([&, i] {
        ran.push_back(i);
        threads.insert(std::this_thread::get_id());
      });
    }
  }
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<size_t>(i)], i);
  EXPECT_EQ(threads.size(), 1u);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0u);
}

// A peer that does not answer holds the commands of its own connection only.
TEST(VerbsThreadsTest, CommandsOfOneConnectionThatWaitHoldNoOthers) {
  absl::Notification answers, others_done;
  std::vector<int> silent, other;
  {
    VerbsConnectThreads threads;
    const auto run = [&](const void* key, absl::AnyInvocable<void()> command) {
      EXPECT_TRUE(threads.Run(key, command));
    };
    run(&silent, [&] {
      answers.WaitForNotification();
      silent.push_back(1);
    });
    run(&silent, [&] { silent.push_back(2); });
    for (int i = 0; i < 3; ++i) {
      run(&other, [&, i] {
        other.push_back(i);
        if (i == 2) others_done.Notify();
      });
    }
    EXPECT_TRUE(others_done.WaitForNotificationWithTimeout(kPatience));
    EXPECT_TRUE(silent.empty());
    answers.Notify();
  }
  EXPECT_THAT(silent, ElementsAre(1, 2));
  EXPECT_THAT(other, ElementsAre(0, 1, 2));
}

// The threads of this process. One that was joined may be among them for a moment.
std::set<std::string> Threads() {
  std::set<std::string> ids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    ids.insert(entry.path().filename());
  }
  return ids;
}

// Of those the ones that were not there `before`.
std::set<std::string> ThreadsSince(const std::set<std::string>& before) {
  std::set<std::string> ids = Threads();
  for (const std::string& id : before) ids.erase(id);
  return ids;
}

TEST(VerbsThreadsTest, ControlThreadIsNotStartedWithoutACommand) {
  FakeVerbs verbs;
  VerbsLibrary library = verbs.library();
  library.executor = nullptr;  // The device has a control thread then, and nothing to do for it.
  const std::set<std::string> before = Threads();
  const auto fabric = NewVerbsFabric({.device = "fake0", .library = &library}).value();
  const auto device = VerbsDevice::Open(library, "fake0").value();
  EXPECT_THAT(ThreadsSince(before), IsEmpty());
  std::set<std::string> started;
  for (int i = 0; i < 3; ++i) {
    absl::Notification ran;
    device->RunCommand(nullptr, [&] { ran.Notify(); });
    ran.WaitForNotification();
    if (i == 0) started = ThreadsSince(before);
    EXPECT_EQ(started.size(), 1u);
    EXPECT_EQ(ThreadsSince(before), started) << "it stays";
  }
}

// FakeVerbs, for several threads: one of its calls at a time.
class LockedVerbs {
 public:
  explicit LockedVerbs(FakeVerbs& fake) : ops_(&fake.context.ops), real_ops_(fake.context.ops) {
    real = fake.library();
    library_ = fake.library();
    library_.executor = nullptr;
#define HAWSER_LOCK(name) library_.name = Locked<&VerbsLibrary::name, real>::Call;
    HAWSER_IBVERBS_FUNCTIONS(HAWSER_LOCK)
    HAWSER_RDMACM_FUNCTIONS(HAWSER_LOCK)
    HAWSER_IBVERBS_OPTIONAL_FUNCTIONS(HAWSER_LOCK)
    HAWSER_RDMACM_OPTIONAL_FUNCTIONS(HAWSER_LOCK)
#undef HAWSER_LOCK
    ops = real_ops_;
    ops_->poll_cq = Locked<&ibv_context_ops::poll_cq, ops>::Call;
    ops_->req_notify_cq = Locked<&ibv_context_ops::req_notify_cq, ops>::Call;
    ops_->post_send = Locked<&ibv_context_ops::post_send, ops>::Call;
    ops_->post_recv = Locked<&ibv_context_ops::post_recv, ops>::Call;
    ops_->alloc_mw = Locked<&ibv_context_ops::alloc_mw, ops>::Call;
    ops_->dealloc_mw = Locked<&ibv_context_ops::dealloc_mw, ops>::Call;
  }
  ~LockedVerbs() { *ops_ = real_ops_; }

  const VerbsLibrary* library() const { return &library_; }
  static std::recursive_mutex mutex;

 private:
  template <auto member, auto& table>
  struct Locked;
  template <typename Table, typename Result, typename... Arguments, Result (*Table::*member)(Arguments...),
            auto& table>
  struct Locked<member, table> {
    static Result Call(Arguments... arguments) {
      std::lock_guard<std::recursive_mutex> lock(mutex);
      return (table.*member)(arguments...);
    }
  };

  static VerbsLibrary real;
  static ibv_context_ops ops;
  ibv_context_ops* const ops_;
  const ibv_context_ops real_ops_;
  VerbsLibrary library_;
};

std::recursive_mutex LockedVerbs::mutex;
VerbsLibrary LockedVerbs::real;
ibv_context_ops LockedVerbs::ops;

// Where a thread waits while its process forks. It holds no lock of abseil's meanwhile, not even one inside
// of absl::Mutex: whether a child could take that would depend on the moment.
class Halt {
 public:
  // On the thread. Returns after End().
  void Enter() {
    Write(entered_);
    Read(ended_);
  }
  // On the other thread.
  void AwaitEntry() { Read(entered_); }
  void End() { Write(ended_); }

 private:
  static void Write(const UniqueFd& fd) {
    const uint64_t one = 1;
    EXPECT_EQ(write(fd.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
  }
  static void Read(const UniqueFd& fd) {
    uint64_t count;
    EXPECT_EQ(read(fd.get(), &count, sizeof(count)), ssize_t{sizeof(count)});
  }

  const UniqueFd entered_{eventfd(0, EFD_CLOEXEC)}, ended_{eventfd(0, EFD_CLOEXEC)};
};

class VerbsForkTest : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer has no threads after fork()";
#endif
  }

  FakeVerbs verbs_;
  const LockedVerbs locked_{verbs_};
  Halt halt_;
};

// The child has the parent's objects and none of its threads, and the parent's is in the middle of a command,
// with others behind it.
TEST_F(VerbsForkTest, ChildDestroysWhatTheControlThreadOfItsParentWorksOn) {
  auto fabric = NewVerbsFabric({.device = "fake0", .library = locked_.library()}).value();
  auto device = VerbsDevice::Open(*locked_.library(), "fake0").value();
  auto queue = fabric->CreateCompletionQueue(64).value();
  std::vector<uint8_t> memory(4096);
  auto region = fabric->Register(memory.data(), memory.size()).value();
  device->RunCommand(nullptr, [this] { halt_.Enter(); });
  halt_.AwaitEntry();
  NewsRecorder news;
  auto qp = fabric->CreateQueuePair(*queue, kSmall, news).value();
  ASSERT_THAT(qp->Connect(FakePeer(), "hello"), IsOk());
  for (int i = 0; i < 1600; ++i) {  // Until its first command is behind the one that is halted.
    Completion none;
    ASSERT_EQ(queue->Poll({&none, 1}), 0u);
  }
  const size_t ids = verbs_.ids.size();
  EXPECT_TRUE(InChild([&] {
    const ReceiveWorkRequest receive = {1, {memory.data(), 100, region->lkey()}};
    const bool refused = absl::IsFailedPrecondition(qp->PostReceive({&receive, 1})) &&
                         absl::IsFailedPrecondition(fabric->CreateCompletionQueue(64).status()) &&
                         absl::IsFailedPrecondition(
                             NewVerbsFabric({.device = "fake0", .library = locked_.library()}).status());
    qp->Disconnect();
    qp.reset();
    region.reset();
    queue.reset();
    device.reset();
    fabric.reset();  // The last owner of the device, which stays as it is.
    return refused && verbs_.opened == 1 && verbs_.memory_regions.size() == 1 && verbs_.ids.size() == ids;
  }));
  halt_.End();
  const absl::Time give_up = absl::Now() + kPatience;
  while (news.told.empty() && absl::Now() < give_up) {
    Completion none;
    if (queue->Poll({&none, 1}) == 0) queue->Wait(absl::Seconds(2));
  }
  EXPECT_THAT(news.told, ElementsAre("established")) << "the parent was harmed";
  qp->Disconnect();
}

// The child's copy of the lock under which that is done is held for good.
TEST_F(VerbsForkTest, ChildIsRefusedAlthoughAThreadOfItsParentOpensADevice) {
  const auto fabric = NewVerbsFabric({.device = "fake0", .library = locked_.library()}).value();
  verbs_.during["rdma_get_devices"] = [this] { halt_.Enter(); };
  absl::Status another;
  std::thread thread(
      [&] { another = NewVerbsFabric({.device = "fake1", .library = locked_.library()}).status(); });
  halt_.AwaitEntry();
  EXPECT_TRUE(InChild([&] {
    return absl::IsFailedPrecondition(
        NewVerbsFabric({.device = "fake0", .library = locked_.library()}).status());
  }));
  halt_.End();
  thread.join();
  EXPECT_THAT(another, HasCode(absl::StatusCode::kNotFound));
}

class VerbsControlThreadTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, VerbsControlThreadTest, ::testing::Bool(),
                         [](const auto& iwarp) { return iwarp.param ? "Iwarp" : "Infiniband"; });

TEST_P(VerbsControlThreadTest, CarriesOutTheCommandsOfConnections) {
  const bool iwarp = GetParam();
  FakeVerbs verbs({.iwarp = iwarp, .windows = false});
  const LockedVerbs locked(verbs);
  const auto fabric = NewVerbsFabric({.device = "fake0", .library = locked.library()}).value();
  auto queue = fabric->CreateCompletionQueue(64).value();
  std::map<std::string, std::thread::id> threads;
  std::vector<std::string> called;
  for (const char* call : {"ibv_create_qp", "rdma_connect", "rdma_establish", "ibv_destroy_qp"}) {
    verbs.during[call] = [&, call] {
      threads[call] = std::this_thread::get_id();
      called.push_back(call);
    };
  }
  NewsRecorder news;
  auto qp = fabric->CreateQueuePair(*queue, kSmall, news).value();
  std::vector<uint8_t> memory(4096);
  const auto region = fabric->Register(memory.data(), memory.size()).value();
  const ReceiveWorkRequest receive = {1, {memory.data(), 100, region->lkey()}};
  ASSERT_THAT(qp->PostReceive({&receive, 1}), IsOk());
  ASSERT_THAT(qp->Connect(FakePeer(), "hello"), IsOk());
  std::vector<Completion> completions;
  const auto until = [&](const auto& condition) {
    const absl::Time give_up = absl::Now() + kPatience;
    while (!condition() && absl::Now() < give_up) {
      Completion some[4];
      const size_t count = queue->Poll(some);
      completions.insert(completions.end(), some, some + count);
      if (count == 0) queue->Wait(absl::Seconds(2));
    }
    return condition();
  };
  ASSERT_TRUE(until([&] { return !news.told.empty(); }));
  EXPECT_THAT(news.told, ElementsAre("established"));
  qp->Disconnect();
  if (!iwarp) {  // There the ibv_qp is destroyed, and nothing flushes.
    std::lock_guard<std::recursive_mutex> lock(LockedVerbs::mutex);
    verbs.CompleteReceives(1, IBV_WC_WR_FLUSH_ERR);
  }
  EXPECT_TRUE(until([&] { return !completions.empty(); }));
  qp.reset();
  queue.reset();  // Waits for the last command.
  EXPECT_EQ(called.front(), "ibv_create_qp");
  EXPECT_EQ(called.back(), "ibv_destroy_qp");
  for (const auto& [call, thread] : threads) EXPECT_NE(thread, std::this_thread::get_id()) << call;
  if (!iwarp) {
    EXPECT_EQ(threads["ibv_create_qp"], threads["ibv_destroy_qp"]);
  }
  EXPECT_EQ(threads["rdma_connect"] == threads["ibv_create_qp"], !iwarp)
      << "there it may take as long as the peer";
}

// Over iWARP the kernel waits for the peer's answer when the id is destroyed (iw_destroy_cm_id()), though
// rdma_connect() has returned.
TEST(VerbsThreadsTest, OverIwarpASilentPeerHoldsOnlyTheThreadOfItsOwnConnection) {
  FakeVerbs verbs({.iwarp = true, .windows = false});
  verbs.silent = true;
  const LockedVerbs locked(verbs);
  const auto fabric = NewVerbsFabric({.device = "fake0", .library = locked.library()}).value();
  auto queue = fabric->CreateCompletionQueue(64).value();
  std::map<std::string, std::thread::id> threads;
  std::atomic<bool> connected = false;
  verbs.during["ibv_create_qp"] = [&] { threads["ibv_create_qp"] = std::this_thread::get_id(); };
  verbs.during["rdma_connect"] = [&] { connected = true; };
  NewsRecorder news;
  auto qp = fabric->CreateQueuePair(*queue, kSmall, news).value();
  ASSERT_THAT(qp->Connect(FakePeer(), "hello"), IsOk());
  const absl::Time give_up = absl::Now() + kPatience;
  const auto poll = [&] {
    Completion some[4];
    if (queue->Poll(some) == 0) queue->Wait(absl::Seconds(2));
  };
  while (!connected && absl::Now() < give_up) poll();
  ASSERT_TRUE(connected);
  {
    std::lock_guard<std::recursive_mutex> lock(LockedVerbs::mutex);
    verbs.during["rdma_destroy_id"] = [&] { threads["rdma_destroy_id"] = std::this_thread::get_id(); };
  }
  Completion some[4];
  for (int i = 0; i < 1600; ++i) queue->Poll(some);  // The result of rdma_connect().
  qp->Disconnect();
  qp.reset();
  queue.reset();  // Waits for the last command.
  EXPECT_NE(threads["rdma_destroy_id"], threads["ibv_create_qp"]);
  EXPECT_NE(threads["rdma_destroy_id"], std::thread::id());
}

}  // namespace
}  // namespace hawser::fabric
