// A SEND that ends a grant of the peer's (SEND_WITH_INV), on a device in memory that executes it.

#include <netinet/in.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/executing_verbs.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/tests/transport/fabric/grant_cycles.h"
#include "hawser/transport/fabric/verbs/fabric.h"

namespace hawser::fabric {
namespace {

ExecutingVerbs& Verbs() {
  static ExecutingVerbs* const verbs = new ExecutingVerbs({});
  return *verbs;
}

}  // namespace

std::vector<FabricUnderTest> FabricsUnderTest() {
  sockaddr_in loopback = {};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const SocketAddress address(reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback));
  const auto with = [](GrantKind grants) {
    return [grants] {
      return NewVerbsFabric({.device = "fake0", .grants = grants, .library = &Verbs().library()}).value();
    };
  };
  return {{.name = "Windows", .create = with(GrantKind::kWindows), .listen_address = address},
          {.name = "Registrations", .create = with(GrantKind::kRegistered), .listen_address = address}};
}

namespace {

class EndedGrantsTest : public ::testing::Test {
 protected:
  // A SEND of 8 bytes that ends `rkey`.
  absl::Status SendThatEnds(Endpoint& from, uint64_t wr_id, uint32_t rkey) {
    const Sge sge = from.At(0, 8);
    const SendWorkRequest request = {.wr_id = wr_id, .signaled = true, .sges = {&sge, 1}, .rkey = rkey};
    ++from.sends_posted;
    return from.qp().PostSend({&request, 1});
  }

  FabricWorld world_{FabricsUnderTest().front()};
};

TEST_F(EndedGrantsTest, AGrantThatThePeerHasEndedIsRevokedWithoutAWorkRequest) {
  auto [a, b] = world_.Connect();
  const Granted granted = b.Grant(b.At(0, 64), QueuePair::Access::kRead);
  ASSERT_THAT(b.Receive(1, b.At(100, 64)), IsOk());
  ASSERT_THAT(SendThatEnds(a, 2, granted.rkey), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 1 && a.sends.size() == 1);
  EXPECT_THAT(b.receives[0], CompletionIs(1, CompletionStatus::kSuccess));
  EXPECT_EQ(b.receives[0].byte_len, 8u);
  EXPECT_THAT(a.sends[0], CompletionIs(2, CompletionStatus::kSuccess));
  ExecutingVerbs::Counts counts;
  ExecutingVerbs::CountIn(&counts);
  b.Revoke(3, granted.rkey);
  HAWSER_UNTIL(world_, b.revocations.size() == 1);
  ExecutingVerbs::CountIn(nullptr);
  EXPECT_THAT(b.revocations[0], CompletionIs(3, CompletionStatus::kSuccess));
  EXPECT_EQ(counts.work_requests, 0u);
  // And is of no use to the peer.
  ASSERT_THAT(a.Read(4, a.At(0, 64), granted), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 2);
  EXPECT_THAT(a.sends[1], CompletionIs(4, CompletionStatus::kRemoteAccessError));
}

TEST_F(EndedGrantsTest, AGrantThatThePeerEndsEarlyIsNotFreeBeforeItIsRevoked) {
  auto [a, b] = world_.Connect({.send_depth = 8, .receive_depth = 8});
  const Granted granted = b.Grant(b.At(0, 64), QueuePair::Access::kRead);
  ASSERT_THAT(b.Receive(1, b.At(100, 64)), IsOk());
  ASSERT_THAT(SendThatEnds(a, 2, granted.rkey), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 1);
  // The upper bits of an rkey name the window.
  for (int i = 0; i < 50; ++i) {
    const Granted another = b.Grant(b.At(0, 64), QueuePair::Access::kRead);
    EXPECT_NE(another.rkey >> 8, granted.rkey >> 8);
    b.Revoke(static_cast<uint64_t>(10 + i), another.rkey);
    HAWSER_UNTIL(world_, b.revocations.size() == static_cast<size_t>(i) + 1);
  }
  b.Revoke(3, granted.rkey);
  HAWSER_UNTIL(world_, b.revocations.size() == 51);
  EXPECT_EQ(b.Grant(b.At(0, 64), QueuePair::Access::kRead).rkey >> 8, granted.rkey >> 8);
}

TEST_F(EndedGrantsTest, ASendThatEndsWhatWasNotGrantedOnItsQueuePairEndsThatQueuePair) {
  auto [a, b] = world_.Connect();
  auto [c, d] = world_.Connect();
  const Granted of_another = d.Grant(d.At(0, 64), QueuePair::Access::kRead);
  ASSERT_THAT(b.Receive(1, b.At(100, 64)), IsOk());
  ASSERT_THAT(SendThatEnds(a, 2, of_another.rkey), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 1);
  EXPECT_THAT(a.sends[0], CompletionIs(2, CompletionStatus::kRemoteAccessError));
  ASSERT_THAT(c.Read(4, c.At(0, 64), of_another), IsOk());
  HAWSER_UNTIL(world_, c.sends.size() == 1);
  EXPECT_THAT(c.sends[0], CompletionIs(4, CompletionStatus::kSuccess)) << "which the other one keeps";
}

// While a LOCAL_INV is under way the device refuses the later of the two.
TEST_F(EndedGrantsTest, APeerThatEndsAGrantWhileItIsRevokedLosesItsConnection) {
  auto [a, b] = world_.Connect();
  const Granted granted = b.Grant(b.At(0, 64), QueuePair::Access::kRead);
  ASSERT_THAT(b.Receive(1, b.At(100, 64)), IsOk());
  b.Revoke(3, granted.rkey);
  ASSERT_THAT(SendThatEnds(a, 2, granted.rkey), IsOk());
  HAWSER_UNTIL(world_, b.news().ended() && b.revocations.size() == 1);
}

// The run of grants that a new NIC is tested with.
TEST_F(EndedGrantsTest, EveryOtherGrantOfARunIsEndedByThePeer) {
  const GrantCycles done = CycleGrants(world_, 11);
  EXPECT_EQ(done.ended, 5);
  EXPECT_EQ(done.revoked, 6);
  EXPECT_EQ(done.ToString(),
            "11 grants were made, used and revoked; a SEND of the peer has ended 5 of them (SEND_WITH_INV)");
}

TEST(GrantCyclesTest, WithoutWindowsThePeerEndsNone) {
  FabricWorld world(FabricsUnderTest().back());
  const GrantCycles done = CycleGrants(world, 4);
  EXPECT_EQ(done.ended, 0);
  EXPECT_EQ(done.revoked, 4);
}

}  // namespace
}  // namespace hawser::fabric
