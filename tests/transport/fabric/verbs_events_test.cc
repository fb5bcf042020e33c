// What verbs_fabric makes of events of the device and the connection manager that end no handshake: addresses
// and GIDs that change, stale connections, and what is another library's.

#include <cstring>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"
#include "hawser/transport/fabric/verbs_fabric.h"

namespace hawser::fabric {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SocketAddress Peer() {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = 0x2e1d;             // 7470
  v4.sin_addr.s_addr = 0x0200000a;  // 10.0.0.2
  return SocketAddress(reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// A bond went over to its other link: the queue pair would send on the old one till its retries are used up.
TEST(VerbsEventsTest, AddressThatMovesToAnotherLinkEndsTheConnectionAtOnce) {
  FakeWorld world;
  ASSERT_TRUE(world.Receive(1).ok());
  world.verbs.CmEvent(world.verbs.newest_id, RDMA_CM_EVENT_ADDR_CHANGE);
  world.Poll();
  EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
  EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Message(world.news.why), AllOf(HasSubstr("10.0.0.2"), HasSubstr("RDMA_CM_EVENT_ADDR_CHANGE")));
}

// Any address that comes to or goes from the port makes such an event; the next connection is resolved anew.
TEST(VerbsEventsTest, GidAndLidChangesLeaveLiveConnectionsAlone) {
  FakeWorld world;
  for (ibv_event_type event : {IBV_EVENT_GID_CHANGE, IBV_EVENT_LID_CHANGE, IBV_EVENT_SM_CHANGE,
                               IBV_EVENT_PKEY_CHANGE, IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE}) {
    world.verbs.AsyncEvent(event);
    world.Poll();
    EXPECT_THAT(world.news.told, ElementsAre("established")) << event;
    EXPECT_TRUE(world.Post(event).ok());
  }
}

TEST(VerbsEventsTest, StaleConnectionIsTriedAgainOnAnotherQueuePair) {
  FakeWorld world({}, {.send_depth = 8, .receive_depth = 8}, /*connect=*/false);
  world.verbs.reject = true;
  world.verbs.reject_status = 10;  // IB_CM_REJ_STALE_CONN
  ASSERT_TRUE(world.qp->Connect(Peer(), "hello").ok());
  world.Poll(1600);
  EXPECT_THAT(world.news.told, ElementsAre("failed"));
  EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable)) << "which is tried again";
  const uint32_t stale = world.qp->qp_num();
  world.verbs.reject = false;
  NewsRecorder news;
  auto again = world.fabric->CreateQueuePair(*world.completion_queue, {}, news).value();
  ASSERT_TRUE(again->Connect(Peer(), "hello").ok());
  world.Poll(1600);
  EXPECT_THAT(news.told, ElementsAre("established"));
  EXPECT_NE(again->qp_num(), stale);
  again->Disconnect();
  world.Poll();
}

// They cannot be put back: the other library would wait for them in vain, and the line at least says why.
TEST(VerbsEventsTest, EventOfAnotherLibraryIsNamedOnce) {
  FakeWorld world;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) world.verbs.ForeignAsyncEvent(IBV_EVENT_QP_FATAL, &world);
  world.Poll();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, AllOf(HasSubstr("fake0"), HasSubstr("IBV_EVENT_QP_FATAL")));
  EXPECT_EQ(said.find("hawser:"), said.rfind("hawser:"));
}

TEST(VerbsEventsTest, EventOfOurOwnIsNotTakenForAnothers) {
  FakeWorld world;
  testing::internal::CaptureStderr();
  world.verbs.AsyncEvent(IBV_EVENT_QP_FATAL);
  world.verbs.on_async_event_read = [&] {
    world.qp->Disconnect();
    world.qp.reset();
  };
  world.Poll();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
}

TEST(VerbsEventsTest, TrafficClassIsSetBeforeTheRouteIsResolved) {
  FakeVerbs verbs;
  const auto connect = [&](const VerbsFabricOptions& options, NewsRecorder& news) {
    const auto fabric = NewVerbsFabric(options).value();
    const auto queue = fabric->CreateCompletionQueue(64).value();
    const auto qp = fabric->CreateQueuePair(*queue, {}, news).value();
    EXPECT_TRUE(qp->Connect(Peer(), "hello").ok());
    Completion none[1];
    for (int i = 0; i < 1600; ++i) EXPECT_EQ(queue->Poll(none), 0u);
    qp->Disconnect();
  };
  NewsRecorder plain, marked, refused;
  connect({.device = "fake0", .library = &verbs.library()}, plain);
  EXPECT_FALSE(verbs.options_set.contains(RDMA_OPTION_ID_TOS));
  connect({.device = "fake0", .traffic_class = 106, .library = &verbs.library()}, marked);
  EXPECT_THAT(marked.told, ElementsAre("established"));
  EXPECT_EQ(verbs.options_set.at(RDMA_OPTION_ID_TOS), 106);

  verbs.option_refused = RDMA_OPTION_ID_TOS;
  connect({.device = "fake0", .traffic_class = 106, .library = &verbs.library()}, refused);
  EXPECT_THAT(refused.told, ElementsAre("failed"));
  EXPECT_THAT(Message(refused.why), AllOf(HasSubstr("RDMA_OPTION_ID_TOS"), HasSubstr("ENOSYS")));
}

}  // namespace
}  // namespace hawser::fabric
