// What verbs_fabric makes of events of the device and the connection manager that end no handshake: addresses
// and GIDs that change, stale connections, and what is another library's.

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"
#include "hawser/tests/transport/fabric/nic_profiles.h"
#include "hawser/transport/fabric/verbs/fabric.h"

namespace hawser::fabric {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// What holds on each NIC.
class VerbsEventsOnNicTest : public OnEachNic {};
INSTANTIATE_ON_EACH_NIC(VerbsEventsOnNicTest);

SocketAddress V6(const in6_addr& host) {
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = host;
  v6.sin6_port = htons(7470);
  return SocketAddress(reinterpret_cast<sockaddr*>(&v6), sizeof(v6));
}

// A bond went over to its other link: the queue pair would send on the old one till its retries are used up.
TEST_P(VerbsEventsOnNicTest, AddressThatMovesToAnotherLinkEndsTheConnectionAtOnce) {
  FakeWorld world(nic());
  ASSERT_THAT(world.Receive(1), IsOk());
  world.verbs.CmEvent(world.verbs.newest_id, RDMA_CM_EVENT_ADDR_CHANGE);
  world.Poll();
  EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
  EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Message(world.news.why), AllOf(HasSubstr("10.0.0.2"), HasSubstr("RDMA_CM_EVENT_ADDR_CHANGE")));
}

// Any address that comes to or goes from the port makes such an event; the next connection is resolved anew.
TEST_P(VerbsEventsOnNicTest, GidAndLidChangesLeaveLiveConnectionsAlone) {
  FakeWorld world(nic());
  for (ibv_event_type event : {IBV_EVENT_GID_CHANGE, IBV_EVENT_LID_CHANGE, IBV_EVENT_SM_CHANGE,
                               IBV_EVENT_PKEY_CHANGE, IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE}) {
    world.verbs.AsyncEvent(event);
    world.Poll();
    EXPECT_THAT(world.news.told, ElementsAre("established")) << event;
    EXPECT_THAT(world.Post(event), IsOk());
  }
}

TEST(VerbsEventsTest, StaleConnectionIsTriedAgainOnAnotherQueuePair) {
  FakeWorld world({}, {.send_depth = 8, .receive_depth = 8}, /*connect=*/false);
  world.verbs.reject = true;
  world.verbs.reject_status = 10;  // IB_CM_REJ_STALE_CONN
  ASSERT_THAT(world.qp->Connect(FakePeer(), "hello"), IsOk());
  world.Poll(1600);
  EXPECT_THAT(world.news.told, ElementsAre("failed"));
  EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable)) << "which is tried again";
  const uint32_t stale = world.qp->qp_num();
  world.verbs.reject = false;
  NewsRecorder news;
  auto again = world.fabric->CreateQueuePair(*world.completion_queue, {}, news).value();
  ASSERT_THAT(again->Connect(FakePeer(), "hello"), IsOk());
  world.Poll(1600);
  EXPECT_THAT(news.told, ElementsAre("established"));
  EXPECT_NE(again->qp_num(), stale);
  again->Disconnect();
  world.Poll();
}

// ibv_get_async_event() takes the next one, whichever library it is for: another one of the process that uses
// librdmacm would wait for its own in vain.
TEST_P(VerbsEventsOnNicTest, EventsOfTheContextThatLibrdmacmSharesAreLeftAlone) {
  FakeWorld world(nic());
  world.verbs.AsyncEvent(IBV_EVENT_QP_ACCESS_ERR);
  world.Poll();
  EXPECT_THAT(world.verbs.contexts_read, ElementsAre(world.verbs.context.async_fd));
  EXPECT_NE(world.verbs.context.async_fd, world.verbs.cm_context.async_fd);
}

TEST(VerbsEventsTest, QueuePairsAreMovedThroughTheirStatesAsTheConnectionManagerSays) {
  for (const bool iwarp : {false, true}) {
    FakeWorld world({.iwarp = iwarp}, {});
    std::vector<ibv_qp_state> wanted = {IBV_QPS_INIT};
    if (!iwarp) wanted.insert(wanted.end(), {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS});
    EXPECT_EQ(world.verbs.states, wanted) << iwarp;
    for (int mask : world.verbs.modified_masks) EXPECT_EQ(mask & ~(IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER), 0);
  }
}

void ConnectInVain(FakeWorld& world) {
  ASSERT_THAT(world.qp->Connect(FakePeer(), "hello"), IsOk());
  world.Poll(1600);
  EXPECT_THAT(world.news.told, ElementsAre("failed"));
}

TEST(VerbsEventsTest, AQueuePairThatCannotBeMovedFailsTheConnection) {
  for (const char* call : {"rdma_init_qp_attr", "ibv_modify_qp", "rdma_establish"}) {
    FakeWorld world({}, {}, /*connect=*/false);
    world.verbs.fail_once[call] = EINVAL;
    ConnectInVain(world);
    EXPECT_THAT(Message(world.news.why), AllOf(HasSubstr(call), HasSubstr("EINVAL"), HasSubstr("10.0.0.2")));
  }
  for (const auto& [state, name] : {std::pair(IBV_QPS_RTR, "RTR"), std::pair(IBV_QPS_RTS, "RTS")}) {
    FakeWorld world({}, {}, /*connect=*/false);
    world.verbs.refuse_state = state;
    ConnectInVain(world);
    EXPECT_THAT(Message(world.news.why), HasSubstr(name));
  }
}

TEST_P(VerbsEventsOnNicTest, APeerThatLeavesBehindItsAnswerEndsTheConnectionOnce) {
  for (rdma_cm_event_type type : {RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_DISCONNECTED}) {
    FakeWorld world(nic(), {}, /*connect=*/false);
    ASSERT_THAT(world.qp->Connect(FakePeer(), "hello"), IsOk());
    for (int i = 0; i < 1600 && world.verbs.connects == 0; ++i) world.Poll(1);
    world.verbs.CmEvent(world.verbs.newest_id, type);
    world.Poll(1600);
    EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
  }
}

// As librdmacm does for queue pairs that it makes.
TEST(VerbsEventsTest, WhatTwoNicsOfOneVendorCanDoIsAgreedOn) {
  for (const uint32_t vendor : {0x10u, 0x20u, 0u}) {
    FakeWorld world({}, {}, /*connect=*/false);
    world.verbs.ece = {.vendor_id = 0x10, .options = 3, .comp_mask = 0};
    world.verbs.peers_ece = {.vendor_id = vendor, .options = 1, .comp_mask = 0};
    ASSERT_THAT(world.qp->Connect(FakePeer(), "hello"), IsOk());
    world.Poll(1600);
    EXPECT_THAT(world.news.told, ElementsAre("established"));
    ASSERT_EQ(world.verbs.ece_offered.size(), 1u);
    EXPECT_EQ(world.verbs.ece_offered[0].options, 3u);
    ASSERT_EQ(world.verbs.ece_set.size(), 1u);
    EXPECT_EQ(world.verbs.ece_set[0].vendor_id, 0x10u);
    EXPECT_EQ(world.verbs.ece_set[0].options, vendor == 0x10 ? 1u : 0u);
  }
}

TEST(VerbsEventsTest, TrafficClassIsSetBeforeTheRouteIsResolved) {
  FakeVerbs verbs;
  const auto connect = [&](const VerbsFabricOptions& options, NewsRecorder& news) {
    const auto fabric = NewVerbsFabric(options).value();
    const auto queue = fabric->CreateCompletionQueue(64).value();
    const auto qp = fabric->CreateQueuePair(*queue, {}, news).value();
    EXPECT_THAT(qp->Connect(FakePeer(), "hello"), IsOk());
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

// The kernel's own default is a sysctl (net.ipv6.bindv6only).
TEST(VerbsEventsTest, AllAddressesOfIpv6AreThoseOfIpv4Too) {
  FakeWorld world;
  RequestRecorder requests;
  ASSERT_THAT(world.fabric->Listen(*world.completion_queue, V6(in6addr_any), requests), IsOk());
  EXPECT_EQ(world.verbs.options_set.at(RDMA_OPTION_ID_AFONLY), 0);
  ASSERT_THAT(world.fabric->Listen(*world.completion_queue, V6({{{0xfd, 1}}}), requests), IsOk());
  EXPECT_EQ(world.verbs.options_set.at(RDMA_OPTION_ID_AFONLY), 1);
}

// One device of the machine is enough (erdma), whichever this program uses.
TEST(VerbsEventsTest, AllAddressesAreThoseOfIpv4WhereADeviceHasNoIpv6) {
  FakeWorld world({.ipv6 = false});
  RequestRecorder requests;
  const auto listener = world.fabric->Listen(*world.completion_queue, V6(in6addr_any), requests).value();
  EXPECT_EQ(listener->address().ToString(), "0.0.0.0:7470");
  EXPECT_THAT(Message(listener->shortfall()), AllOf(HasSubstr("[::]:7470"), HasSubstr("EAFNOSUPPORT"),
                                                    HasSubstr("all addresses of IPv4 instead")));
  world.verbs.ConnectRequest(world.verbs.newest_id);
  world.Poll();
  EXPECT_EQ(requests.requests.size(), 1u);
  EXPECT_THAT(world.fabric->Listen(*world.completion_queue, FakePeer(), requests).value()->shortfall(),
              IsOk());
}

TEST(VerbsEventsTest, AnAddressOfIpv6IsRefusedWithAReasonWhereTheDeviceHasNone) {
  FakeWorld world({.ipv6 = false}, {.send_depth = 8}, /*connect=*/false);
  RequestRecorder requests;
  const SocketAddress six = V6({{{0xfd, 1}}});
  const absl::Status listening = world.fabric->Listen(*world.completion_queue, six, requests).status();
  EXPECT_THAT(listening, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Message(listening), AllOf(HasSubstr("EAFNOSUPPORT"), HasSubstr("no IPv6")));
  ASSERT_THAT(world.qp->Connect(six, "hello"), IsOk());
  world.Poll(1600);
  EXPECT_THAT(world.news.told, ElementsAre("failed"));
  EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Message(world.news.why), AllOf(HasSubstr("EAFNOSUPPORT"), HasSubstr("no IPv6")));
}

// What the connection manager says of a port that another listener has on one address.
TEST_P(VerbsEventsOnNicTest, AllAddressesThatAreNotAvailableAreInUse) {
  FakeWorld world(nic());
  RequestRecorder requests;
  world.verbs.fail_once["rdma_bind_addr"] = EADDRNOTAVAIL;
  const absl::Status all = world.fabric->Listen(*world.completion_queue, V6(in6addr_any), requests).status();
  EXPECT_THAT(all, HasCode(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Message(all), AllOf(HasSubstr("[::]:7470"), HasSubstr("another listener")));
  world.verbs.fail_once["rdma_bind_addr"] = EADDRNOTAVAIL;
  const absl::Status one = world.fabric->Listen(*world.completion_queue, FakePeer(), requests).status();
  EXPECT_THAT(Message(one), HasSubstr("no interface of this machine has that address, or another listener"));
}

// An iWARP device listens at the port of TCP that the connection manager has chosen, and which may be in use.
TEST_P(VerbsEventsOnNicTest, AnyPortIsChosenAgainIfItIsInUse) {
  FakeWorld world(nic());
  RequestRecorder requests;
  SocketAddress any_port = FakePeer();
  any_port.set_port(0);
  const auto listen = [&](const SocketAddress& address) {
    return world.fabric->Listen(*world.completion_queue, address, requests).status();
  };
  world.verbs.fail_once["rdma_listen"] = EADDRINUSE;
  EXPECT_THAT(listen(any_port), IsOk());
  world.verbs.fail_once["rdma_listen"] = EADDRINUSE;
  EXPECT_THAT(listen(FakePeer()), HasCode(absl::StatusCode::kAlreadyExists));
  world.verbs.fail_always["rdma_listen"] = EADDRINUSE;
  const size_t ids = world.verbs.ids.size();
  EXPECT_THAT(listen(any_port), HasCode(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(world.verbs.ids.size(), ids);
}

// An iWARP device connects from the port of TCP that the connection manager has chosen, and which may be in
// use, too.
TEST_P(VerbsEventsOnNicTest, AnyPortToConnectFromIsChosenAgainIfItIsInUse) {
  SocketAddress local = FakePeer();
  for (const uint16_t port : {0, 7471}) {
    local.set_port(port);
    for (const bool bound : {false, true}) {
      if (!bound && port != 0) continue;
      QueuePairOptions options = {.send_depth = 8, .receive_depth = 8};
      if (bound) options.local_address = local;
      FakeWorld world(nic(), options, /*connect=*/false);
      ASSERT_THAT(world.Receive(1), IsOk());
      const size_t ids = world.verbs.ids.size();
      world.verbs.fail_once["rdma_connect"] = EADDRINUSE;
      ASSERT_THAT(world.qp->Connect(FakePeer(), "hello"), IsOk());
      world.Poll(1600);
      if (nic().iwarp && port == 0) {
        EXPECT_THAT(world.news.told, ElementsAre("established"));
        EXPECT_EQ(world.verbs.ids.size(), ids + 1) << "the first id is destroyed";
        EXPECT_EQ(world.verbs.queue_pairs.size(), 1u);
        EXPECT_EQ(world.verbs.receives.size(), 1u) << "it was posted once";
      } else {
        EXPECT_THAT(world.news.told, ElementsAre("failed"));
        EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable));
        EXPECT_THAT(Message(world.news.why), AllOf(HasSubstr("rdma_connect()"), HasSubstr("EADDRINUSE")));
      }
    }
  }
}

// The first id is destroyed a little later.
TEST_P(VerbsEventsOnNicTest, LateNewsOfThePortThatWasInUseIsIgnored) {
  if (!nic().iwarp) GTEST_SKIP() << "the port is not one of TCP";
  FakeWorld world(nic(), {.send_depth = 8, .receive_depth = 8}, /*connect=*/false);
  world.verbs.fail_once["rdma_connect"] = EADDRNOTAVAIL;
  world.verbs.hold_commands = true;
  ASSERT_THAT(world.qp->Connect(FakePeer(), "hello"), IsOk());
  rdma_cm_id* const first = world.verbs.newest_id;
  for (int i = 0; i < 8 && world.verbs.newest_id == first; ++i) {
    world.verbs.RunCommands();
    world.Poll(1600);
  }
  ASSERT_NE(world.verbs.newest_id, first);
  ASSERT_EQ(world.verbs.ids.count(first), 1u);
  world.verbs.CmEvent(first, RDMA_CM_EVENT_ADDR_CHANGE);
  world.Poll(1600);
  EXPECT_THAT(world.news.told, IsEmpty());
  world.verbs.RunCommands();
  EXPECT_EQ(world.verbs.ids.count(first), 0u);
  world.Poll(1600);
  EXPECT_THAT(world.news.told, ElementsAre("established"));
}

// Else a machine without a free port would never hear of it.
TEST_P(VerbsEventsOnNicTest, PortsToConnectFromThatAreAllInUseEndTheAttempt) {
  FakeWorld world(nic(), {.send_depth = 8, .receive_depth = 8}, /*connect=*/false);
  int tries = 0;
  world.verbs.fail_always["rdma_connect"] = EADDRINUSE;
  std::function<void()> count = [&] {
    ++tries;
    world.verbs.during["rdma_connect"] = count;
  };
  world.verbs.during["rdma_connect"] = count;
  ASSERT_THAT(world.qp->Connect(FakePeer(), "hello"), IsOk());
  world.Poll(16000);
  EXPECT_THAT(world.news.told, ElementsAre("failed"));
  EXPECT_THAT(world.news.why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(tries, nic().iwarp ? 8 : 1);
}

// The caller gives up while another port is being tried.
TEST_P(VerbsEventsOnNicTest, GivingUpWhileAnotherPortIsTriedLeavesNothing) {
  for (const int polls : {0, 1, 300}) {
    FakeWorld world(nic(), {.send_depth = 8, .receive_depth = 8}, /*connect=*/false);
    const size_t ids = world.verbs.ids.size();
    world.verbs.fail_once["rdma_connect"] = EADDRINUSE;
    ASSERT_THAT(world.qp->Connect(FakePeer(), "hello"), IsOk());
    for (int i = 0; i < 1600 && world.verbs.fail_once.count("rdma_connect") != 0; ++i) world.Poll(1);
    ASSERT_EQ(world.verbs.fail_once.count("rdma_connect"), 0u);
    world.Poll(polls);
    world.qp->Disconnect();
    world.qp.reset();
    EXPECT_EQ(world.verbs.ids.size(), ids);
    EXPECT_EQ(world.verbs.queue_pairs.size(), 0u);
  }
}

}  // namespace
}  // namespace hawser::fabric
