// What verbs_fabric makes of what goes wrong, and says about it.

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"
#include "hawser/tests/transport/fabric/nic_profiles.h"
#include "hawser/transport/fabric/tcp/fabric.h"
#include "hawser/transport/fabric/verbs/device.h"
#include "hawser/transport/fabric/verbs/errors.h"
#include "hawser/transport/fabric/verbs/fabric.h"

namespace hawser::fabric {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr CompletionStatus kFlushed = CompletionStatus::kFlushed;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// What holds on each NIC.
class VerbsFailureOnNicTest : public OnEachNic {};
INSTANTIATE_ON_EACH_NIC(VerbsFailureOnNicTest);

TEST_P(VerbsFailureOnNicTest, CompletionCodesKeepTheirMeaning) {
  const std::pair<ibv_wc_status, CompletionStatus> codes[] = {
      {IBV_WC_LOC_LEN_ERR, CompletionStatus::kLocalError},
      {IBV_WC_LOC_QP_OP_ERR, CompletionStatus::kLocalError},
      {IBV_WC_LOC_PROT_ERR, CompletionStatus::kLocalError},
      {IBV_WC_LOC_ACCESS_ERR, CompletionStatus::kLocalError},
      {IBV_WC_MW_BIND_ERR, CompletionStatus::kLocalError},
      {IBV_WC_WR_FLUSH_ERR, CompletionStatus::kFlushed},
      {IBV_WC_REM_INV_REQ_ERR, CompletionStatus::kRemoteInvalidRequest},
      {IBV_WC_REM_ACCESS_ERR, CompletionStatus::kRemoteAccessError},
      {IBV_WC_REM_OP_ERR, CompletionStatus::kRemoteOperationError},
      {IBV_WC_RETRY_EXC_ERR, CompletionStatus::kTransportRetryExceeded},
      {IBV_WC_RNR_RETRY_EXC_ERR, CompletionStatus::kRnrRetryExceeded},
      {IBV_WC_GENERAL_ERR, CompletionStatus::kLocalError},
  };
  for (const auto& [verbs, expected] : codes) {
    FakeWorld world(nic());
    ASSERT_THAT(world.Post(1, /*signaled=*/false), IsOk());
    ASSERT_THAT(world.Post(2), IsOk());
    world.verbs.CompleteSends(1, verbs);
    world.verbs.CompleteSends(1, IBV_WC_WR_FLUSH_ERR);
    world.Poll();
    EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, expected), CompletionIs(2, kFlushed)));
    EXPECT_THAT(world.Post(3), HasCode(absl::StatusCode::kFailedPrecondition));
  }
}

// Neither flushes come: so the ibv_qp is destroyed, and everything is given back.
TEST(VerbsFailureTest, ADeviceOrCompletionQueueThatFailsGivesEverythingBack) {
  for (ibv_event_type event : {IBV_EVENT_DEVICE_FATAL, IBV_EVENT_CQ_ERR}) {
    FakeWorld world;
    ASSERT_THAT(world.Receive(1), IsOk());
    ASSERT_THAT(world.Post(2, /*signaled=*/false), IsOk());
    const uint32_t rkey = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).value().rkey;
    world.Poll(1);
    world.qp->Revoke(rkey, 3);
    world.Poll(1);
    world.verbs.AsyncEvent(event);
    world.Poll();
    EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
    EXPECT_THAT(Message(world.news.why),
                AllOf(HasSubstr(event == IBV_EVENT_CQ_ERR ? "CQ_ERR" : "DEVICE_FATAL"), HasSubstr("fake0"),
                      HasSubstr("10.0.0.2")));
    EXPECT_TRUE(world.completions.empty());
    world.qp->Disconnect();
    EXPECT_TRUE(world.verbs.queue_pairs.empty());  // Destroyed before anything is given back.
    world.Poll();
    EXPECT_THAT(world.completions, UnorderedElementsAre(CompletionIs(1, kFlushed), CompletionIs(2, kFlushed),
                                                        CompletionIs(3, kFlushed)));
    world.verbs.CompleteSends(1);  // Late news.
    world.Poll();
    EXPECT_EQ(world.completions.size(), 3u);
  }
}

TEST(VerbsFailureTest, ADeviceThatFailsAfterDisconnectGivesTheRestBack) {
  FakeWorld world;
  ASSERT_THAT(world.Receive(1), IsOk());
  world.qp->Disconnect();
  world.Poll();
  EXPECT_TRUE(world.completions.empty());
  world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kFlushed)));
}

TEST_P(VerbsFailureOnNicTest, AQueuePairThatTheDeviceGivesUpIsTold) {
  FakeWorld world(nic());
  world.verbs.AsyncEvent(IBV_EVENT_QP_ACCESS_ERR);
  world.Poll();
  EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Message(world.news.why), HasSubstr("IBV_EVENT_QP_ACCESS_ERR"));
}

TEST_P(VerbsFailureOnNicTest, NewsThatWasReadBeforeItsQueuePairWasDestroyedFindsNobody) {
  FakeWorld world(nic());
  world.verbs.AsyncEvent(IBV_EVENT_QP_FATAL);
  world.verbs.on_async_event_read = [&] {
    world.qp->Disconnect();
    world.qp.reset();
  };
  world.Poll();
  EXPECT_TRUE(world.verbs.queue_pairs.empty());
  EXPECT_THAT(world.news.told, ElementsAre("established"));
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
}

TEST(VerbsFailureTest, ARevocationThatWasPostedByAPostThatFailedHalfwayComesBackOnce) {
  FakeWorld world;
  const uint32_t rkey = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).value().rkey;
  const uint32_t another = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).value().rkey;
  world.Poll(1);
  world.qp->Revoke(rkey, 3);
  world.qp->Revoke(another, 4);
  world.verbs.fail_send_at = 1;
  EXPECT_THAT(world.Post(5), Not(IsOk()));
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(4, kFlushed))) << "the device has the other one";
  world.verbs.CompleteSends(3, IBV_WC_WR_FLUSH_ERR);  // Both BIND_MW, and it.
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(4, kFlushed), CompletionIs(3, kFlushed)));
}

TEST(VerbsFailureTest, ARevocationThatHadSucceededBeforeTheEndIsGivenBackAfterIt) {
  FakeWorld world;
  const uint32_t rkey = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).value().rkey;
  world.Poll(1);
  world.qp->Revoke(rkey, 3);
  world.Poll(1);
  world.verbs.AsyncEvent(IBV_EVENT_QP_FATAL);
  world.Poll();
  ASSERT_THAT(world.news.told, ElementsAre("established", "disconnected"));
  world.verbs.CompleteSends(2);
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(3, CompletionStatus::kSuccess)));
}

// Memory with a window bound to it cannot be.
TEST(VerbsFailureTest, MemoryCanBeDeregisteredOnceItsRevocationIsGivenBackFlushed) {
  FakeWorld world;
  const uint32_t rkey = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).value().rkey;
  ASSERT_THAT(world.Post(1), IsOk());
  world.verbs.CompleteSends(1);
  world.verbs.CompleteSends(1, IBV_WC_REM_ACCESS_ERR);
  world.Poll();
  world.qp->Revoke(rkey, 2);
  world.Poll(1);
  ASSERT_THAT(world.completions,
              ElementsAre(CompletionIs(1, CompletionStatus::kRemoteAccessError), CompletionIs(2, kFlushed)));
  EXPECT_EQ(world.verbs.queue_pairs.size(), 1u);  // It is flushing.
  world.region.reset();
  EXPECT_TRUE(world.verbs.memory_regions.empty());
}

TEST(VerbsFailureTest, AGrantThatTheDeviceDoesNotTakeBackEndsTheConnection) {
  FakeWorld world({.windows = false}, {});
  const uint32_t rkey = world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead).value().rkey;
  world.verbs.fail_once["ibv_dereg_mr"] = EBUSY;
  world.qp->Revoke(rkey, 1);
  world.Poll();
  EXPECT_EQ(world.verbs.modified.back().qp_state, IBV_QPS_ERR);
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kFlushed)));
  EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
  EXPECT_THAT(Message(world.news.why),
              AllOf(HasSubstr("10.0.0.2"), HasSubstr("ibv_dereg_mr()"), HasSubstr("EBUSY")));
  EXPECT_EQ(world.verbs.memory_regions.size(), 1u) << "it was tried again";
}

// As the connection manager delivers what is not about traffic, or comes twice.
constexpr rdma_cm_event_type kNothingFollowsFromThese[] = {
    RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_CONNECT_RESPONSE};

TEST_P(VerbsFailureOnNicTest, NewsThatSaysNothingOfALiveConnectionLeavesItAlone) {
  FakeWorld world(nic());
  for (rdma_cm_event_type event : kNothingFollowsFromThese) {
    world.verbs.CmEvent(world.verbs.newest_id, event);
    world.Poll();
    ASSERT_THAT(world.news.told, ElementsAre("established")) << event;
    ASSERT_THAT(world.Post(event), IsOk());
  }
  EXPECT_EQ(world.verbs.connects, 1);
  EXPECT_EQ(world.verbs.queue_pairs.size(), 1u);
}

TEST_P(VerbsFailureOnNicTest, ARejectionOfALiveConnectionEndsItOnce) {
  FakeWorld world(nic());
  for (int i = 0; i < 2; ++i) {
    world.verbs.CmEvent(world.verbs.newest_id, RDMA_CM_EVENT_REJECTED, 10);
    world.Poll();
  }
  EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
  EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable));
}

TEST_P(VerbsFailureOnNicTest, LateNewsOfAConnectionThatHasEndedIsIgnored) {
  FakeWorld world(nic());
  world.verbs.CmEvent(world.verbs.newest_id, RDMA_CM_EVENT_DISCONNECTED);
  world.Poll();
  for (rdma_cm_event_type event : kNothingFollowsFromThese) {
    world.verbs.CmEvent(world.verbs.newest_id, event);
  }
  world.verbs.CmEvent(world.verbs.newest_id, RDMA_CM_EVENT_REJECTED, 10);
  world.verbs.CmEvent(world.verbs.newest_id, RDMA_CM_EVENT_DISCONNECTED);
  world.Poll();
  EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
  EXPECT_THAT(world.Post(1), HasCode(absl::StatusCode::kFailedPrecondition));
}

// Of a completion that failed, before the connection manager knows.
TEST_P(VerbsFailureOnNicTest, AQueuePairInErrorIsNotEstablishedAnyMore) {
  FakeWorld world(nic(), {.receive_depth = 8}, /*connect=*/false);
  RequestRecorder requests;
  const auto listener = world.fabric->Listen(*world.completion_queue, FakePeer(), requests).value();
  rdma_cm_id* const id = world.verbs.ConnectRequest(world.verbs.newest_id);
  world.Poll();
  ASSERT_EQ(requests.requests.size(), 1u);
  ASSERT_THAT(world.Receive(1), IsOk());
  ASSERT_THAT(world.qp->Accept(*requests.requests[0], ""), IsOk());
  world.Poll();
  world.verbs.CompleteReceives(1, IBV_WC_LOC_LEN_ERR);
  world.Poll();
  world.verbs.CmEvent(id, RDMA_CM_EVENT_ESTABLISHED);
  world.Poll();
  EXPECT_TRUE(world.news.told.empty());
  world.verbs.CmEvent(id, RDMA_CM_EVENT_REJECTED, 4);  // What the peer's side makes of it.
  world.Poll();
  EXPECT_THAT(world.news.told, ElementsAre("failed"));
  EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable));
}

TEST_P(VerbsFailureOnNicTest, APostThatFailsHalfwayPostedNothingToItsCaller) {
  FakeWorld world(nic());
  const Sge sge = world.At(0, 10);
  const SendWorkRequest request = {.wr_id = 1, .signaled = true, .sges = {&sge, 1}};
  const SendWorkRequest chain[] = {request, request, request};
  world.verbs.fail_send_at = 2;
  EXPECT_THAT(world.qp->PostSend(chain), Not(IsOk()));
  world.verbs.CompleteSends(2, IBV_WC_WR_FLUSH_ERR);
  world.Poll();
  EXPECT_TRUE(world.completions.empty());
  EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
}

// The end gives back what is outstanding; nothing of a post that failed is.
TEST_P(VerbsFailureOnNicTest, WhatAPostThatFailedDidNotPostIsNotGivenBackAtTheEnd) {
  FakeWorld world(nic());
  const Sge sge = world.At(0, 10);
  const SendWorkRequest request = {.wr_id = 1, .signaled = true, .sges = {&sge, 1}};
  const SendWorkRequest chain[] = {request, request, request};
  world.verbs.fail_send_at = 1;
  EXPECT_THAT(world.qp->PostSend(chain), Not(IsOk()));
  world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
  world.Poll();
  world.qp->Disconnect();
  world.Poll();
  EXPECT_TRUE(world.completions.empty());
}

TEST_P(VerbsFailureOnNicTest, WhatWasNotPolledYetGoesWithItsQueuePair) {
  FakeWorld world(nic());
  world.qp->Revoke(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey,
                   5);  // Complete at once.
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
  world.Poll();
  EXPECT_TRUE(world.completions.empty());
}

TEST_P(VerbsFailureOnNicTest, AFlushedReceiveDoesNotHideThatThePeerDisconnected) {
  FakeWorld world(nic());
  ASSERT_THAT(world.Receive(1), IsOk());
  world.verbs.CompleteReceives(1, IBV_WC_WR_FLUSH_ERR);
  world.Poll();
  world.verbs.CmEvent(world.verbs.newest_id, RDMA_CM_EVENT_DISCONNECTED);
  world.Poll();
  EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
  EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable));
}

TEST_P(VerbsFailureOnNicTest, LateNewsOfTheConnectionManagerIsIgnored) {
  FakeWorld world(nic());
  for (rdma_cm_event_type event :
       {RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_REJECTED,
        RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_ADDR_CHANGE}) {
    world.verbs.CmEvent(world.verbs.newest_id, event);
  }
  world.qp->Disconnect();
  world.Poll();
  EXPECT_THAT(world.news.told, ElementsAre("established"));
}

// --- Errors that say why

void Connect(FakeWorld& world) {
  ASSERT_THAT(world.qp->Connect(FakePeer(), ""), IsOk());
  world.Poll(1600);
}

TEST(VerbsFailureTest, ARejectionSaysItsReason) {
  const struct {
    int status;
    absl::StatusCode code;
    const char* text;
  } reasons[] = {
      {8, absl::StatusCode::kUnavailable, "IB_CM_REJ_INVALID_SERVICE_ID: nothing listens there"},
      {28, absl::StatusCode::kPermissionDenied, "IB_CM_REJ_CONSUMER_DEFINED"},
      {10, absl::StatusCode::kUnavailable, "IB_CM_REJ_STALE_CONN"},
      {99, absl::StatusCode::kUnavailable, "rejected with 99"},
  };
  for (const auto& reason : reasons) {
    FakeWorld world({}, {}, /*connect=*/false);
    world.verbs.reject = true;
    world.verbs.reject_status = reason.status;
    Connect(world);
    EXPECT_THAT(world.news.told, ElementsAre("failed"));
    EXPECT_THAT(world.news.why, HasCode(reason.code));
    EXPECT_THAT(Message(world.news.why),
                AllOf(HasSubstr(reason.text), HasSubstr("connect to 10.0.0.2:7470")));
  }
}

TEST_P(VerbsFailureOnNicTest, PortThatIsClosedIsUnavailable) {
  for (const char* sent : {"", "a hello"}) {
    FakeWorld world(nic(), {}, /*connect=*/false);
    world.verbs.ClosePort();
    ASSERT_THAT(world.qp->Connect(FakePeer(), sent), IsOk());
    world.Poll(1600);
    EXPECT_THAT(world.news.told, ElementsAre("failed"));
    EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable));
    EXPECT_THAT(Message(world.news.why), HasSubstr("nothing listens there"));
    EXPECT_EQ(world.news.reject_data, "");
  }
}

// What the one side gives rdma_reject() is what the other one gets.
TEST_P(VerbsFailureOnNicTest, RejectionByThePeersProgramIsPermissionDenied) {
  for (const std::string reason : {"", "no", "a hello"}) {
    std::string data;
    {
      FakeWorld world(nic(), {}, /*connect=*/false);
      RequestRecorder requests;
      const auto listener = world.fabric->Listen(*world.completion_queue, FakePeer(), requests).value();
      world.verbs.ConnectRequest(world.verbs.newest_id);
      world.Poll();
      requests.requests.at(0)->Reject(reason);
      data = world.verbs.rejected.at(0);
    }
    FakeWorld world(nic(), {}, /*connect=*/false);
    world.verbs.RejectWith(data);
    ASSERT_THAT(world.qp->Connect(FakePeer(), "another hello"), IsOk());
    world.Poll(1600);
    EXPECT_THAT(world.news.told, ElementsAre("failed"));
    EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kPermissionDenied));
    EXPECT_EQ(world.news.reject_data.substr(0, reason.size()), reason);
    EXPECT_EQ(world.news.reject_data.find_first_not_of('\0', reason.size()), std::string::npos);
  }
}

// As of a connect request that nothing took, and of a queue pair that cannot answer and has nothing to say.
TEST(VerbsFailureTest, RejectionOverIwarpHasDataThatTellsItFromAClosedPort) {
  for (const bool iwarp : {false, true}) {
    FakeWorld world({.iwarp = iwarp, .windows = !iwarp}, {}, /*connect=*/false);
    RequestRecorder requests;
    const auto listener = world.fabric->Listen(*world.completion_queue, FakePeer(), requests).value();
    world.verbs.ConnectRequest(world.verbs.newest_id);
    world.Poll();
    requests.requests.clear();
    EXPECT_THAT(world.verbs.rejected, ElementsAre(iwarp ? std::string(1, '\0') : ""));
  }
}

// qedr puts a header before what it hands back.
TEST(VerbsFailureTest, WhatAClosedPortHandsBackIsNoReasonOfThePeer) {
  const std::string sent = "a hello";
  for (const std::string& back : {sent, "\1\2\3\4" + sent}) {
    FakeWorld world({.iwarp = true, .windows = false}, {}, /*connect=*/false);
    world.verbs.reject = true;
    world.verbs.reject_status = -ECONNRESET;
    world.verbs.reject_data = back;
    ASSERT_THAT(world.qp->Connect(FakePeer(), sent), IsOk());
    world.Poll(1600);
    EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable));
    EXPECT_EQ(world.news.reject_data, "");
  }
}

TEST(VerbsFailureTest, RejectionOverIwarpWithoutDataIsTakenForAClosedPort) {
  FakeWorld world({.iwarp = true, .windows = false}, {}, /*connect=*/false);
  world.verbs.reject = true;
  world.verbs.reject_status = -ECONNRESET;
  Connect(world);
  EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Message(world.news.why), HasSubstr("or the peer's program ended before it answered"));
}

TEST_P(VerbsFailureOnNicTest, ReceivesThatCannotBePostedEndTheConnectionBeforeItIsOne) {
  for (size_t posted : {0, 1, 2}) {
    FakeWorld world(nic(), {.receive_depth = 8}, /*connect=*/false);
    for (uint64_t i = 0; i < 3; ++i) ASSERT_THAT(world.Receive(i), IsOk());
    world.verbs.fail_receive_at = posted;
    Connect(world);
    EXPECT_EQ(world.verbs.connects, 0);
    EXPECT_THAT(world.news.told, ElementsAre("failed"));
    EXPECT_THAT(Message(world.news.why), HasSubstr("ibv_post_recv()"));
    world.verbs.CompleteReceives(posted, IBV_WC_WR_FLUSH_ERR);
    world.Poll();
    EXPECT_THAT(world.completions, UnorderedElementsAre(CompletionIs(0, kFlushed), CompletionIs(1, kFlushed),
                                                        CompletionIs(2, kFlushed)));
  }
}

TEST_P(VerbsFailureOnNicTest, ReceivesThatCannotBePostedFailAcceptingAndThePeerHearsWhy) {
  for (size_t posted : {0, 1}) {
    FakeWorld world(nic(), {.receive_depth = 8}, /*connect=*/false);
    RequestRecorder requests;
    const auto listener = world.fabric->Listen(*world.completion_queue, FakePeer(), requests).value();
    world.verbs.ConnectRequest(world.verbs.newest_id);
    world.Poll();
    for (uint64_t i = 0; i < 2; ++i) ASSERT_THAT(world.Receive(i), IsOk());
    world.verbs.fail_receive_at = posted;
    ASSERT_THAT(world.qp->Accept(*requests.requests.at(0), ""), IsOk());
    world.Poll();
    EXPECT_THAT(world.news.told, ElementsAre("failed"));
    EXPECT_THAT(Message(world.news.why), HasSubstr("ibv_post_recv()"));
    EXPECT_THAT(world.verbs.rejected, ElementsAre("no: " + Message(world.news.why)));
    EXPECT_EQ(world.verbs.accepted.retry_count, 0) << "rdma_accept() was called";
    world.verbs.CompleteReceives(posted, IBV_WC_WR_FLUSH_ERR);
    world.Poll();
    EXPECT_EQ(world.completions.size(), 2u);
  }
}

// The request of a peer that dials tcp:// must never be taken for one that came over RDMA, and its queue
// neither.
TEST_P(VerbsFailureOnNicTest, WhatTheTcpFabricHasMadeIsRefused) {
  class Foreign final : public ConnectRequest {
   public:
    absl::string_view private_data() const override { return ""; }
    SocketAddress peer_address() const override { return FakePeer(); }
    SocketAddress local_address() const override { return FakePeer(); }
    void Reject(absl::string_view) override {}
  };
  FakeWorld world(nic(), {}, /*connect=*/false);
  Foreign request;
  EXPECT_THAT(world.qp->Accept(request, ""), HasCode(absl::StatusCode::kInvalidArgument));
  const std::unique_ptr<Fabric> tcp = CreateTcpFabric();
  const auto queue = tcp->CreateCompletionQueue(1).value();
  RequestRecorder requests;
  EXPECT_THAT(world.fabric->CreateQueuePair(*queue, {}, world.news).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(world.fabric->Listen(*queue, FakePeer(), requests).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_P(VerbsFailureOnNicTest, AfterDisconnectWithNothingToTellTheLastOneByWhatHasCompletedKeepsItsStatus) {
  FakeWorld world(nic());
  ASSERT_THAT(world.Post(1), IsOk());
  ASSERT_THAT(world.Post(2, /*signaled=*/false), IsOk());
  world.verbs.CompleteSends(1);
  world.verbs.fail_send_at = 0;
  world.qp->Disconnect();
  world.Poll();
  EXPECT_TRUE(world.verbs.queue_pairs.empty());
  EXPECT_THAT(world.completions,
              ElementsAre(CompletionIs(1, CompletionStatus::kSuccess), CompletionIs(2, kFlushed)));
}

TEST(VerbsFailureTest, CreatingAQueuePairThatTheDeviceCannotMakeSaysSo) {
  FakeWorld world({.create_qp_error = EINVAL}, {}, /*connect=*/false);
  Connect(world);
  EXPECT_THAT(Message(world.news.why), AllOf(HasSubstr("ibv_create_qp()"), HasSubstr("EINVAL"),
                                             HasSubstr("the device cannot do this much")));
}

TEST(VerbsFailureTest, CreatingAQueuePairWithoutMemoryNamesTheLimit) {
  FakeWorld world({.create_qp_error = ENOMEM}, {}, /*connect=*/false);
  Connect(world);
  EXPECT_THAT(Message(world.news.why),
              AllOf(HasSubstr("ibv_create_qp()"), HasSubstr("ENOMEM"), HasSubstr("ulimit -l")));
}

TEST_P(VerbsFailureOnNicTest, ARouteOverAnotherDeviceNamesTheOption) {
  FakeWorld world(nic(), {}, /*connect=*/false);
  ibv_device device = {};
  std::strcpy(device.name, "other1");
  ibv_context other = {};
  other.device = &device;
  world.verbs.route_over = &other;
  Connect(world);
  EXPECT_THAT(Message(world.news.why),
              AllOf(HasSubstr("other1"), HasSubstr("fake0"), HasSubstr("HAWSER_RDMA_DEVICE")));
}

// A new connection of `world`, while its queue pair lives.
absl::Status ConnectAnother(FakeWorld& world, const QueuePairOptions& options = {}) {
  NewsRecorder news;
  const auto qp = world.fabric->CreateQueuePair(*world.completion_queue, options, news).value();
  if (absl::Status status = qp->Connect(FakePeer(), "hello"); !status.ok()) return status;
  world.Poll(1600);
  const absl::Status why = news.established() ? absl::OkStatus() : news.why;
  qp->Disconnect();
  return why;
}

TEST_P(VerbsFailureOnNicTest, ADeviceThatFailedIsOpenedAgainWhenItsConnectionsAreGone) {
  FakeWorld world(nic());
  const size_t registered = world.verbs.registrations.size();
  world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
  world.Poll();
  EXPECT_THAT(ConnectAnother(world), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(world.verbs.registrations.size(), registered);
  world.qp.reset();
  EXPECT_THAT(ConnectAnother(world), IsOk());
  EXPECT_EQ(world.verbs.registrations.size(), registered + 1) << "memory is registered again";
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
}

TEST_P(VerbsFailureOnNicTest, MemoryOfWhileTheDeviceWasGoneIsRegisteredWhenItIsBack) {
  FakeWorld world(nic());
  world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
  world.Poll();
  std::vector<uint8_t> memory(4096);
  const std::unique_ptr<MemoryRegion> region = world.fabric->Register(memory.data(), memory.size()).value();
  EXPECT_EQ(world.verbs.memory_regions.size(), 1u) << "the old one is open until its connections are gone";
  world.qp.reset();
  EXPECT_THAT(ConnectAnother(world), IsOk());
  EXPECT_EQ(world.verbs.memory_regions.size(), 2u);
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
}

TEST_P(VerbsFailureOnNicTest, AConnectThatFailedAtOnceDoesNotKeepItsDevice) {
  FakeWorld world(nic(), {}, /*connect=*/false);
  world.verbs.fail_once["rdma_create_id"] = EMFILE;
  EXPECT_THAT(world.qp->Connect(FakePeer(), ""), HasCode(absl::StatusCode::kResourceExhausted));
  Connect(world);
  ASSERT_THAT(world.news.told, ElementsAre("established"));
  world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
  world.Poll();
  world.qp.reset();
  EXPECT_THAT(ConnectAnother(world), IsOk());
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
}

TEST_P(VerbsFailureOnNicTest, ACompletionQueueThatFailedGetsNoNewQueuePairs) {
  const QueuePairOptions small = {.send_depth = 8, .receive_depth = 8};
  FakeWorld world(nic(), small);
  const ibv_cq* const failed = world.verbs.created.send_cq;
  world.verbs.AsyncEvent(IBV_EVENT_CQ_ERR);
  world.Poll();
  world.qp->Disconnect();
  world.Poll();
  EXPECT_THAT(ConnectAnother(world, small), IsOk());
  EXPECT_NE(world.verbs.created.send_cq, failed);
}

// Its asynchronous events are read once.
TEST_P(VerbsFailureOnNicTest, FabricsOfOneDeviceShareItHoweverItWasNamed) {
  FakeWorld world(nic());
  unsetenv("HAWSER_RDMA_DEVICE");
  const std::shared_ptr<Fabric> any = NewVerbsFabric({.library = &world.verbs.library()}).value();
  const auto completion_queue = any->CreateCompletionQueue(64).value();
  NewsRecorder news;
  const auto qp = any->CreateQueuePair(*completion_queue, {}, news).value();
  ASSERT_THAT(qp->Connect(FakePeer(), "hello"), IsOk());
  Completion none[1];
  for (int i = 0; i < 1600; ++i) ASSERT_EQ(completion_queue->Poll(none), 0u);
  world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
  world.Poll();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(completion_queue->Poll(none), 0u);
  EXPECT_THAT(news.told, ElementsAre("established", "disconnected"));
  EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
  qp->Disconnect();
}

// Or librdmacm 44 may lose sight of one.
TEST_P(VerbsFailureOnNicTest, DevicesAreListedOnOneThreadOnly) {
  FakeWorld world(nic());
  world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
  world.Poll();
  world.qp.reset();
  EXPECT_EQ(world.verbs.listed_by.size(), 1u);
  std::thread([&] { EXPECT_THAT(ConnectAnother(world), IsOk()); }).join();
  EXPECT_EQ(world.verbs.listed_by.size(), 1u);
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
}

// As librdmacm 44 does where others list the devices, too. The device is ours, and stays as it is.
TEST_P(VerbsFailureOnNicTest, ADeviceThatLibrdmacmOpenedASecondTimeIsStillTheSame) {
  FakeWorld world(nic());
  ibv_context second = world.verbs.cm_context;
  world.verbs.route_over = world.verbs.listed = &second;
  EXPECT_THAT(ConnectAnother(world), IsOk());
  EXPECT_THAT(world.news.told, ElementsAre("established"));
}

TEST_P(VerbsFailureOnNicTest, NoRouteFailsTheConnectionNotTheCall) {
  FakeWorld world(nic(), {}, /*connect=*/false);
  world.verbs.fail_once["rdma_resolve_addr"] = ENETUNREACH;
  Connect(world);
  EXPECT_THAT(world.news.told, ElementsAre("failed"));
  EXPECT_THAT(Message(world.news.why), AllOf(HasSubstr("ENETUNREACH"), HasSubstr("no route leads there")));
}

// The kernel has one errno for an interface without a device and for a device without a GID of its address.
TEST_P(VerbsFailureOnNicTest, ADeviceWithoutAGidOfTheAddressIsPossible) {
  FakeWorld world(nic(), {}, /*connect=*/false);
  world.verbs.fail_once["RDMA_CM_EVENT_ADDR_RESOLVED"] = ENODEV;
  Connect(world);
  EXPECT_THAT(world.news.told, ElementsAre("failed"));
  EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Message(world.news.why),
              AllOf(HasSubstr("connect to 10.0.0.2:7470"), HasSubstr("ENODEV"), HasSubstr("no GID of")));

  world.verbs.fail_once["rdma_bind_addr"] = ENODEV;
  class : public ListenHandler {
    void OnConnectRequest(std::unique_ptr<ConnectRequest>) override {}
  } nobody;
  const absl::Status listening = world.fabric->Listen(*world.completion_queue, FakePeer(), nobody).status();
  EXPECT_THAT(listening, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Message(listening),
              AllOf(HasSubstr("listen on 10.0.0.2:7470"), HasSubstr("ENODEV"), HasSubstr("no GID of")));
}

TEST_P(VerbsFailureOnNicTest, AMemlockLimitIsNamed) {
  FakeWorld world(nic());
  world.verbs.fail_once["ibv_reg_mr"] = ENOMEM;
  const absl::Status status = world.fabric->Register(world.memory.data(), 100).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Message(status), AllOf(HasSubstr("ibv_reg_mr() of 100 bytes"), HasSubstr("ulimit -l")));
}

// A text that names the errno of an earlier call, ENOMEM perhaps, sends its reader after the wrong limit.
TEST_P(VerbsFailureOnNicTest, ARegistrationThatFailsWithoutErrnoTellsNoOlderOne) {
  FakeVerbs::Options options = nic();
  options.grants = GrantKind::kRegistered;
  FakeWorld world(options);
  const auto expect_no_reason = [](const absl::Status& status) {
    EXPECT_THAT(Message(status), AllOf(HasSubstr("ibv_reg_mr()"), HasSubstr("errno is 0")));
    EXPECT_THAT(Message(status), Not(HasSubstr("memlock")));
  };
  world.verbs.fail_always["ibv_reg_mr"] = 0;
  errno = ENOMEM;
  expect_no_reason(world.fabric->Register(world.memory.data(), 100).status());
  errno = ENOMEM;
  expect_no_reason(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).status());
  if (!nic().iwarp) return;
  const Sge sink = world.At(0, 100);
  const SendWorkRequest read = {.wr_id = 1,
                                .opcode = Opcode::kRead,
                                .signaled = true,
                                .sges = {&sink, 1},
                                .remote_address = 0x1000,
                                .rkey = 77};
  errno = ENOMEM;
  expect_no_reason(world.qp->PostSend({&read, 1}));
}

// A pool then registers larger regions, and keeps them longer.
TEST_P(VerbsFailureOnNicTest, MemoryIsPinned) {
  FakeWorld world(nic());
  EXPECT_TRUE(world.fabric->pins_memory());
  EXPECT_FALSE(CreateTcpFabric()->pins_memory());
}

// A poller registers 2 MiB, and another thread 16 MiB, which takes a millisecond.
TEST(VerbsFailureTest, ARegistrationWaitsForNoOther) {
  FakeWorld world;
  absl::Notification done;
  std::thread other;
  world.verbs.during["ibv_reg_mr"] = [&] {
    other = std::thread([&] {
      EXPECT_THAT(world.fabric->Register(world.memory.data(), 100).status(), IsOk());  // And deregistered.
      done.Notify();
    });
    EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  };
  EXPECT_THAT(world.fabric->Register(world.memory.data(), 200).status(), IsOk());
  other.join();
}

TEST(VerbsFailureTest, AMemlockLimitIsNamedByWhateverPinsRings) {
  FakeWorld world;
  for (const char* call : {"ibv_create_cq", "ibv_create_comp_channel"}) {
    world.verbs.fail_once[call] = ENOMEM;
    const absl::Status status = world.fabric->CreateCompletionQueue(64).status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr(call), HasSubstr("ENOMEM"), HasSubstr("memlock limit (ulimit -l) is")));
  }
}

TEST(VerbsFailureTest, APostThatFailsAmongThoseThatWaitedGivesThoseBack) {
  constexpr size_t kGrantPlaces = 32;
  FakeWorld world({}, {.send_depth = 32, .receive_depth = 8});
  for (size_t i = 0; i < kGrantPlaces + 1; ++i) {
    ASSERT_THAT(world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead), IsOk());
  }
  ASSERT_THAT(world.Post(1), IsOk());
  ASSERT_THAT(world.Post(2), IsOk());
  world.verbs.CompleteSends(kGrantPlaces);
  world.verbs.fail_send_at = 2;  // Behind the last BIND_MW and the first SEND.
  world.Poll();
  EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
  world.qp->Disconnect();
  world.verbs.CompleteSends(world.verbs.sends.size(), IBV_WC_WR_FLUSH_ERR);
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kFlushed), CompletionIs(2, kFlushed)));
}

TEST(VerbsFailureTest, ADeviceThatFailsGivesSendsThatWaitBackLast) {
  constexpr size_t kGrantPlaces = 32;
  FakeWorld world({}, {.send_depth = 32, .receive_depth = 8});
  ASSERT_THAT(world.Post(1), IsOk());
  for (size_t i = 0; i < kGrantPlaces + 1; ++i) {
    ASSERT_THAT(world.qp->Grant(world.At(0, 10), QueuePair::Access::kRead), IsOk());
  }
  ASSERT_THAT(world.Post(2), IsOk());
  world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
  world.Poll();
  world.qp->Disconnect();
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kFlushed), CompletionIs(2, kFlushed)));
}

TEST_P(VerbsFailureOnNicTest, MemoryThatTheKernelRefusesToAChildSaysFork) {
  FakeWorld world(nic());
  world.verbs.fail_once["ibv_reg_mr"] = EACCES;
  const absl::Status status = world.fabric->Register(world.memory.data(), 100).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Message(status), HasSubstr("fork()"));
}

TEST_P(VerbsFailureOnNicTest, AChildAfterForkIsToldAtItsFirstUseAndTouchesNothing) {
  FakeWorld world(nic());
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status register_status = world.fabric->Register(world.memory.data(), 100).status();
    const absl::Status post_status = world.Post(1);
    const bool told = absl::StrContains(register_status.message(), "fork()") &&
                      absl::StrContains(post_status.message(), "fork()") &&
                      register_status.code() == absl::StatusCode::kFailedPrecondition;
    const size_t queue_pairs = world.verbs.queue_pairs.size();
    world.qp.reset();
    world.region.reset();
    _exit(told && world.verbs.queue_pairs.size() == queue_pairs ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// librdmacm keeps its devices open, and would hand the parent's to the child.
TEST(VerbsFailureTest, AChildOfAProcessThatHasClosedItsDeviceIsToldToo) {
  FakeVerbs verbs;
  ASSERT_THAT(NewVerbsFabric({.device = "fake0", .library = &verbs.library()}), IsOk());
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status status = NewVerbsFabric({.device = "fake0", .library = &verbs.library()}).status();
    const bool told = status.code() == absl::StatusCode::kFailedPrecondition &&
                      absl::StrContains(status.message(), "fork()") &&
                      absl::StrContains(status.message(), "fake0");
    _exit(told ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(NewVerbsFabric({.device = "fake0", .library = &verbs.library()}), IsOk())
      << "the parent was harmed";
}

TEST(VerbsFailureTest, AMissingLibraryNamesThePackage) {
  const absl::Status status = VerbsLibrary::LoadFrom("libibverbs-not-there.so.1", "librdmacm.so.1").status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("libibverbs-not-there.so.1"), HasSubstr("rdma-core"), HasSubstr("tcp://")));
}

TEST(VerbsFailureTest, ADeviceThatIsNotThereIsNamedBesideThoseThatAre) {
  FakeVerbs verbs;
  const absl::Status status = NewVerbsFabric({.device = "mlx9", .library = &verbs.library()}).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(Message(status), AllOf(HasSubstr("mlx9"), HasSubstr("fake0")));
}

TEST(VerbsFailureTest, ADeviceThatDoesNotAnswerIsNotSaidToBeMissing) {
  for (const char* name : {"fake0", ""}) {
    FakeVerbs verbs;
    unsetenv("HAWSER_RDMA_DEVICE");
    verbs.fail_once["ibv_query_device"] = EIO;
    const absl::Status status = NewVerbsFabric({.device = name, .library = &verbs.library()}).status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr("open RDMA device fake0: ibv_query_device()"), HasSubstr("EIO")));
  }
}

TEST(VerbsFailureTest, WithoutAnActivePortTheDevicesAreNamed) {
  FakeVerbs verbs;
  unsetenv("HAWSER_RDMA_DEVICE");
  verbs.port_state = IBV_PORT_DOWN;
  const absl::Status status = NewVerbsFabric({.library = &verbs.library()}).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Message(status), AllOf(HasSubstr("no port is active of fake0"), HasSubstr("rdma link")));
}

// A device beside that of FakeVerbs.
struct OtherDevice {
  OtherDevice(const char* name, ibv_transport_type transport) {
    std::strcpy(device.name, name);
    device.transport_type = transport;
    context.device = &device;
  }
  ibv_device device = {};
  ibv_context context = {};
};

// What `verbs` opens if no device is named.
std::string Chosen(FakeVerbs& verbs) {
  unsetenv("HAWSER_RDMA_DEVICE");
  const absl::StatusOr<std::shared_ptr<VerbsDevice>> device = VerbsDevice::Open(verbs.library(), "");
  return device.ok() ? (*device)->name() : Message(device.status());
}

// librdmacm lists it, and its port is active.
TEST(VerbsFailureTest, ADeviceWithoutReliableConnectionsIsNotChosen) {
  FakeVerbs verbs;
  OtherDevice efa("efa_0", IBV_TRANSPORT_UNSPECIFIED), usnic("usnic_0", IBV_TRANSPORT_USNIC_UDP);
  verbs.listed_before = {&efa.context, &usnic.context};
  EXPECT_EQ(Chosen(verbs), "fake0");
  const absl::Status named = NewVerbsFabric({.device = "efa_0", .library = &verbs.library()}).status();
  EXPECT_THAT(named, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Message(named),
              AllOf(HasSubstr("efa_0 has no reliable connections"), HasSubstr("another device")));
}

TEST(VerbsFailureTest, OnlyDevicesWithoutReliableConnectionsAreNone) {
  unsetenv("HAWSER_RDMA_DEVICE");
  FakeVerbs verbs({.reliable = false});
  const absl::Status none = NewVerbsFabric({.library = &verbs.library()}).status();
  EXPECT_THAT(none, HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(Message(none),
              AllOf(HasSubstr("fake0 has no reliable connections"), HasSubstr("efa"), HasSubstr("tcp://")));
}

// mana where it has raw queue pairs only: its transport says nothing of that.
TEST(VerbsFailureTest, ADeviceThatMakesNoReliableQueuePairsIsChosenLast) {
  OtherDevice raw("mana_0", IBV_TRANSPORT_IB);
  {
    FakeVerbs verbs;
    verbs.listed_before = {&raw.context};
    verbs.without_reliable = {&raw.context};
    EXPECT_EQ(Chosen(verbs), "fake0");
  }
  FakeVerbs verbs({.create_qp_error = ENOMEM});
  EXPECT_EQ(Chosen(verbs), "fake0") << "it may be short of memory";
}

TEST(VerbsFailureTest, ADeviceWithoutReadsIsNotChosen) {
  OtherDevice odd("odd_0", IBV_TRANSPORT_IB);
  FakeVerbs verbs;
  verbs.listed_before = {&odd.context};
  verbs.without_reads = {&odd.context};
  EXPECT_EQ(Chosen(verbs), "fake0");
  EXPECT_THAT(NewVerbsFabric({.device = "odd_0", .library = &verbs.library()}).status(),
              HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST(VerbsFailureTest, AProviderThatGivesNoReasonIsNotSaidToHaveSucceeded) {
  {
    FakeWorld world({.create_qp_error = EINVAL, .sets_errno = false}, {}, /*connect=*/false);
    Connect(world);
    EXPECT_THAT(Message(world.news.why),
                AllOf(HasSubstr("ibv_create_qp()"), HasSubstr("the device cannot do this much"),
                      Not(HasSubstr("uccess"))));
  }
  FakeWorld world;
  world.verbs.fail_once["ibv_create_cq"] = 0;
  const absl::Status status = world.fabric->CreateCompletionQueue(64).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("ibv_create_cq()"), HasSubstr("gives no reason"), Not(HasSubstr("uccess"))));
}

TEST(VerbsFailureTest, RetriesForEverAreRefused) {
  FakeVerbs verbs;
  EXPECT_THAT(NewVerbsFabric({.retry_count = 7, .library = &verbs.library()}).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace hawser::fabric
