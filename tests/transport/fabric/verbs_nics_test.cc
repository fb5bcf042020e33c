// What verbs_fabric makes of each family of NICs, as far as its driver and its provider say what they do.

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"
#include "hawser/tests/transport/fabric/nic_profiles.h"
#include "hawser/transport/fabric/verbs/device.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/fabric/verbs/suitability.h"
#include "hawser/transport/fabric/verbs/window_stock.h"

namespace hawser::fabric {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr CompletionStatus kSuccess = CompletionStatus::kSuccess;
constexpr CompletionStatus kFlushed = CompletionStatus::kFlushed;

SocketAddress All6() {
  const sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(7470), .sin6_addr = in6addr_any};
  return SocketAddress(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6));
}

class VerbsNicsTest : public OnEachNic {
 protected:
  static const NicProfile::Expected& expected() { return GetParam().expected; }
};
INSTANTIATE_ON_EACH_NIC(VerbsNicsTest);

TEST_P(VerbsNicsTest, LimitsAreThoseOfTheNic) {
  FakeWorld world(nic());
  ASSERT_THAT(world.news.told, ElementsAre("established"));
  EXPECT_EQ(world.fabric->sge_max(), expected().sge_max);
  EXPECT_EQ(world.qp->read_depth(), expected().read_depth);
  ASSERT_THAT(world.Post(1, true, expected().inline_bytes), IsOk());
  ASSERT_THAT(world.Post(2, true, expected().inline_bytes + 1), IsOk());
  EXPECT_NE(world.verbs.send_chains[0][0].wr.send_flags & IBV_SEND_INLINE, 0u);
  EXPECT_EQ(world.verbs.send_chains[1][0].wr.send_flags & IBV_SEND_INLINE, 0u);
}

// The doctor, which connects nothing, tells the user what the trial finds.
TEST_P(VerbsNicsTest, ATrialFindsWhatAQueuePairIsGranted) {
  FakeVerbs verbs(nic());
  const VerbsLibrary& library = verbs.library();
  const QueuePairTrialCalls calls = {.create_cq = library.ibv_create_cq,
                                     .destroy_cq = library.ibv_destroy_cq,
                                     .create_qp = library.ibv_create_qp,
                                     .destroy_qp = library.ibv_destroy_qp};
  ibv_pd* const pd = library.ibv_alloc_pd(&verbs.context);
  EXPECT_TRUE(HasReliableTransport(*verbs.context.device));
  EXPECT_THAT(CheckAttributes(verbs.attr), IsOk());
  EXPECT_EQ(SgeMax(verbs.attr), expected().sge_max);
  EXPECT_EQ(TryQueuePair(verbs.context, *pd, calls, SgeMax(verbs.attr), 192).value(),
            expected().inline_bytes);
  EXPECT_EQ(TryQueuePair(verbs.context, *pd, calls, 1, 32).value(), 32u) << "no more than it was asked for";
  verbs.fail_once["ibv_create_cq"] = ENOMEM;
  EXPECT_THAT(std::string(TryQueuePair(verbs.context, *pd, calls, 1, 0).status().message()),
              AllOf(HasSubstr("ibv_create_cq()"), HasSubstr("ENOMEM")));
  verbs.fail_once["ibv_create_qp"] = EOPNOTSUPP;
  EXPECT_THAT(std::string(TryQueuePair(verbs.context, *pd, calls, 1, 192).status().message()),
              AllOf(HasSubstr("ibv_create_qp()"), HasSubstr("EOPNOTSUPP")));
  library.ibv_dealloc_pd(pd);
}

// Or nothing above 4 KiB crosses.
TEST_P(VerbsNicsTest, EachSideReadsWhatTheOtherGrants) {
  FakeWorld world(nic());
  RequestRecorder requests;
  const auto listener = world.fabric->Listen(*world.completion_queue, All6(), requests).value();
  rdma_cm_id* const asked = world.verbs.ConnectRequest(world.verbs.newest_id);
  world.Poll();
  ASSERT_EQ(requests.requests.size(), 1u);
  EXPECT_GE(requests.requests[0]->read_depth(), expected().read_depth);
  NewsRecorder news;
  const auto accepting =
      world.fabric->CreateQueuePair(*world.completion_queue, {.send_depth = 8, .receive_depth = 8}, news)
          .value();
  ASSERT_THAT(accepting->Accept(*requests.requests[0], "yes"), IsOk());
  world.Poll();
  EXPECT_EQ(world.verbs.accepted.initiator_depth, expected().read_depth);
  EXPECT_EQ(world.verbs.accepted.responder_resources, expected().read_depth);
  world.verbs.CmEvent(asked, RDMA_CM_EVENT_ESTABLISHED);
  world.Poll();
  ASSERT_THAT(news.told, ElementsAre("established"));
  for (QueuePair* side : {world.qp.get(), accepting.get()}) {
    EXPECT_EQ(side->read_depth(), expected().read_depth);
    world.completions.clear();
    const Granted granted = side->Grant(world.At(0, 5000), QueuePair::Access::kRead).value();
    const std::vector<Sge> sges(world.fabric->sge_max(), world.At(0, 10));
    const Sge sink = world.At(8000, 4096);
    const SendWorkRequest chain[] = {{.wr_id = 1, .signaled = true, .sges = sges},
                                     {.wr_id = 2,
                                      .opcode = Opcode::kRead,
                                      .signaled = true,
                                      .sges = {&sink, 1},
                                      .remote_address = 1,
                                      .rkey = 1}};
    ASSERT_THAT(side->PostSend(chain), IsOk());
    // The window of the grant is bound before the SEND that names it.
    const std::vector<FakeVerbs::Send>& posted = world.verbs.send_chains.back();
    ASSERT_EQ(posted.size(), expected().windows ? 3u : 2u);
    EXPECT_EQ(posted[0].wr.opcode, expected().windows ? IBV_WR_BIND_MW : IBV_WR_SEND);
    world.verbs.CompleteSends(world.verbs.sends.size());
    side->Revoke(granted.rkey, 3);
    world.Poll();
    world.verbs.CompleteSends(world.verbs.sends.size());  // An invalidation.
    world.Poll();
    EXPECT_THAT(world.completions, UnorderedElementsAre(CompletionIs(1, kSuccess), CompletionIs(2, kSuccess),
                                                        CompletionIs(3, kSuccess)));
  }
  EXPECT_EQ(world.verbs.windows_alive, expected().windows ? VerbsWindowStock::kFull : 0);
  EXPECT_EQ(world.verbs.memory_regions.size(), 1u);
  accepting->Disconnect();
  world.Poll();
}

TEST_P(VerbsNicsTest, ItSaysWhetherItHasAtomics) {
  FakeWorld world(nic());
  EXPECT_EQ(world.fabric->atomics(), expected().atomics ? Atomics::kNic : Atomics::kNone);
  EXPECT_EQ(world.qp->takes_atomics(), expected().atomics);
}

TEST_P(VerbsNicsTest, AllAddressesAreListenedOn) {
  FakeWorld world(nic());
  RequestRecorder requests;
  const auto listener = world.fabric->Listen(*world.completion_queue, All6(), requests).value();
  EXPECT_EQ(listener->shortfall().ok(), nic().ipv6);
  EXPECT_EQ(listener->address().ToString(), nic().ipv6 ? "[::]:7470" : "0.0.0.0:7470");
}

TEST_P(VerbsNicsTest, WhatIsOutstandingIsGivenBackAtTheEnd) {
  FakeWorld world(nic());
  for (uint64_t i = 0; i < 4; ++i) ASSERT_THAT(world.Receive(i), IsOk());
  for (uint64_t i = 4; i < 8; ++i) ASSERT_THAT(world.Post(i, /*signaled=*/i == 5), IsOk());
  ASSERT_THAT(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead), IsOk());
  world.qp->Disconnect();
  // iWARP flushes nothing that is sure to come.
  if (!nic().iwarp) {
    world.verbs.CompleteSends(world.verbs.sends.size(), IBV_WC_WR_FLUSH_ERR);
    world.verbs.CompleteReceives(world.verbs.receives.size(), IBV_WC_WR_FLUSH_ERR);
  }
  world.Poll();
  EXPECT_EQ(world.completions.size(), 8u);
  EXPECT_THAT(world.completions, Each(Field(&Completion::status, kFlushed)));
}

TEST_P(VerbsNicsTest, ADeviceThatFailedIsUsedAgainWhenItIsBack) {
  FakeWorld world(nic());
  ASSERT_THAT(world.Receive(1), IsOk());
  ASSERT_THAT(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead), IsOk());
  world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
  world.Poll();
  EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
  world.qp->Disconnect();
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kFlushed)));
  NewsRecorder news;
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {.send_depth = 8}, news).value();
  const sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(7470), .sin_addr = {htonl(0x0a000002)}};
  ASSERT_THAT(world.qp->Connect(SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4)), ""),
              IsOk());
  world.Poll(1600);
  EXPECT_THAT(news.told, ElementsAre("established"));
  EXPECT_THAT(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead), IsOk());
  world.qp->Disconnect();
  world.Poll();
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
}

// As many queue pairs as a poller may have, of the size that Hawser makes: with the places that grants need.
TEST_P(VerbsNicsTest, TheUsualQueuePairFits) {
  FakeWorld world(nic(), {.send_depth = 66, .receive_depth = 38, .read_depth = 16});
  EXPECT_THAT(world.news.told, ElementsAre("established"));
}

TEST_P(VerbsNicsTest, IsChosenIfNoneIsNamed) {
  unsetenv("HAWSER_RDMA_DEVICE");
  FakeVerbs verbs(nic());
  EXPECT_EQ(VerbsDevice::Open(verbs.library(), "").value()->name(), "fake0");
}

// No queue pair and no completion queue is made of nonsense.
TEST(VerbsLiesTest, ADeviceThatSaysNonsenseOfItsEntriesIsUsedWithCare) {
  for (const int lie : {0, -1, INT32_MIN}) {
    SCOPED_TRACE(lie);
    FakeVerbs verbs;
    verbs.attr.max_sge = verbs.attr.max_sge_rd = lie;
    verbs.attr.phys_port_cnt = 0;
    const auto fabric = NewVerbsFabric({.device = "fake0", .library = &verbs.library()}).value();
    EXPECT_EQ(fabric->sge_max(), 1u);
    const auto queue = fabric->CreateCompletionQueue(64).value();
    NewsRecorder news;
    const auto qp = fabric->CreateQueuePair(*queue, {.send_depth = 8, .receive_depth = 8}, news).value();
    EXPECT_EQ(qp->read_depth(), 16u);
  }
}

// Later a READ depth of 0 would look like the peer's.
TEST(VerbsLiesTest, ADeviceWithoutReadsOrPlacesIsRefusedAndTheTextNamesTheAttribute) {
  unsetenv("HAWSER_RDMA_DEVICE");
  const struct {
    const char* name;
    int ibv_device_attr::*attribute;
  } needed[] = {{"max_qp_wr", &ibv_device_attr::max_qp_wr},
                {"max_cqe", &ibv_device_attr::max_cqe},
                {"max_qp_rd_atom", &ibv_device_attr::max_qp_rd_atom},
                {"max_qp_init_rd_atom", &ibv_device_attr::max_qp_init_rd_atom}};
  for (const bool iwarp : {false, true}) {
    for (const auto& [name, attribute] : needed) {
      for (const int lie : {0, -1, INT32_MIN}) {
        SCOPED_TRACE(absl::StrCat(iwarp ? "iWARP, " : "", name, " = ", lie));
        FakeVerbs verbs({.iwarp = iwarp});
        verbs.attr.*attribute = lie;
        for (const char* device : {"fake0", ""}) {
          const absl::Status status =
              NewVerbsFabric({.device = device, .library = &verbs.library()}).status();
          EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
          EXPECT_THAT(std::string(status.message()),
                      AllOf(HasSubstr("open RDMA device fake0"), HasSubstr(absl::StrCat(name, " = ", lie)),
                            HasSubstr("tcp://")));
        }
      }
    }
  }
}

TEST(EfaTest, IsNeverChosenAndTheTextSaysWhy) {
  unsetenv("HAWSER_RDMA_DEVICE");
  FakeVerbs verbs(EfaProfile());
  const absl::Status any = NewVerbsFabric({.library = &verbs.library()}).status();
  EXPECT_THAT(any, HasCode(absl::StatusCode::kNotFound));
  const absl::Status named = NewVerbsFabric({.device = "fake0", .library = &verbs.library()}).status();
  EXPECT_THAT(named, HasCode(absl::StatusCode::kInvalidArgument));
  for (const absl::Status& status : {any, named}) {
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("fake0 has no reliable connections"),
                                                     HasSubstr("efa of AWS"), HasSubstr("tcp://")));
  }
}

}  // namespace
}  // namespace hawser::fabric
