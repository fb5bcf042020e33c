// What verbs_fabric asks of a device, call by call.

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/base/violation.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"
#include "hawser/tests/transport/fabric/nic_profiles.h"
#include "hawser/transport/fabric/verbs/device.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/fabric/verbs/library.h"
#include "hawser/transport/fabric/verbs/windows.h"

namespace hawser::fabric {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr CompletionStatus kSuccess = CompletionStatus::kSuccess;
constexpr CompletionStatus kFlushed = CompletionStatus::kFlushed;
// What a device may fill has it beside.
constexpr int kRelaxed = IBV_ACCESS_RELAXED_ORDERING;

sockaddr_in Somebody() {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  return v4;
}

// What holds on each NIC.
class VerbsPostingOnNicTest : public OnEachNic {};
INSTANTIATE_ON_EACH_NIC(VerbsPostingOnNicTest);

TEST(VerbsPostingTest, AChainIsOnePostOfAsManyWorkRequests) {
  FakeWorld world;
  std::vector<SendWorkRequest> chain;
  const Sge sges[] = {world.At(0, 300), world.At(500, 7)};
  for (uint64_t i = 0; i < 5; ++i) chain.push_back({.wr_id = i, .signaled = i == 4, .sges = sges});
  ASSERT_THAT(world.qp->PostSend(chain), IsOk());
  ASSERT_EQ(world.verbs.send_chains.size(), 1u);
  ASSERT_EQ(world.verbs.send_chains[0].size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    const FakeVerbs::Send& send = world.verbs.send_chains[0][i];
    EXPECT_EQ(send.wr.opcode, IBV_WR_SEND);
    EXPECT_EQ(send.wr.send_flags, i == 4 ? unsigned{IBV_SEND_SIGNALED} : 0u);
    ASSERT_EQ(send.sges.size(), 2u);
    EXPECT_EQ(send.sges[1].addr, reinterpret_cast<uint64_t>(world.memory.data() + 500));
    EXPECT_EQ(send.sges[1].length, 7u);
  }
}

// ibv_poll_cq(3): of a failed completion only wr_id, status and qp_num are set.
TEST_P(VerbsPostingOnNicTest, AFailedReceiveHasNoLength) {
  FakeWorld world(nic());
  ASSERT_THAT(world.Receive(3), IsOk());
  world.verbs.CompleteReceives(1, IBV_WC_WR_FLUSH_ERR, 0xdbdbdbdb);
  world.Poll();
  ASSERT_THAT(world.completions, ElementsAre(CompletionIs(3, kFlushed)));
  EXPECT_EQ(world.completions[0].byte_len, 0u);
}

// Which fields a work request has depends on its opcode. No provider is given others, whatever the caller
// left there. (The rkey of a SEND is a grant that it ends; see below.)
TEST_P(VerbsPostingOnNicTest, ASendNamesNoMemory) {
  FakeWorld world(nic());
  const Sge sges[] = {world.At(0, 300)};
  std::vector<SendWorkRequest> chain(
      2, {.signaled = true, .sges = sges, .remote_address = 0xa5a5a5a5a5a5, .rkey = 0xa5a5});
  chain[0].rkey = 0;
  chain[1].opcode = Opcode::kRead;
  ASSERT_THAT(world.qp->PostSend(chain), IsOk());
  const std::vector<FakeVerbs::Send>& posted = world.verbs.send_chains.at(0);
  ASSERT_EQ(posted.size(), 2u);
  EXPECT_EQ(posted[0].wr.wr.rdma.remote_addr, 0u);
  EXPECT_EQ(posted[0].wr.wr.rdma.rkey, 0u);
  EXPECT_EQ(posted[0].wr.imm_data, 0u);
  EXPECT_EQ(posted[1].wr.wr.rdma.remote_addr, 0xa5a5a5a5a5a5u);
  EXPECT_EQ(posted[1].wr.wr.rdma.rkey, 0xa5a5u);
}

TEST_P(VerbsPostingOnNicTest, ReceivesPostedBeforeConnectingGoInOnePostBeforeTheConnectionIs) {
  FakeWorld world(nic(), {.receive_depth = 8}, /*connect=*/false);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_THAT(world.Receive(i), IsOk());
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  ASSERT_THAT(world.qp->Connect(SocketAddress(reinterpret_cast<sockaddr*>(&v4), sizeof(v4)), ""), IsOk());
  world.verbs.fail_once["rdma_connect"] = ECONNREFUSED;  // So what was posted by then was posted before.
  world.Poll(1600);
  EXPECT_THAT(world.verbs.receive_chains, ElementsAre(8));
}

TEST(VerbsPostingTest, AGrantBindsAWindowToExactlyItsRangeInFrontOfTheNextPost) {
  FakeWorld world;
  const Granted granted = world.qp->Grant(world.At(1234, 567), QueuePair::Access::kRead).value();
  EXPECT_EQ(granted.address, reinterpret_cast<uint64_t>(world.memory.data() + 1234));  // As the NIC needs it.
  EXPECT_TRUE(world.verbs.send_chains.empty());
  ASSERT_THAT(world.Post(1), IsOk());
  ASSERT_EQ(world.verbs.send_chains.size(), 1u);
  ASSERT_EQ(world.verbs.send_chains[0].size(), 2u);
  const ibv_send_wr& bind = world.verbs.send_chains[0][0].wr;
  EXPECT_EQ(bind.opcode, IBV_WR_BIND_MW);
  EXPECT_EQ(bind.send_flags, 0u);
  EXPECT_EQ(bind.bind_mw.rkey, granted.rkey);
  EXPECT_EQ(bind.bind_mw.mw->type, IBV_MW_TYPE_2);
  EXPECT_EQ(bind.bind_mw.bind_info.addr, reinterpret_cast<uint64_t>(world.memory.data() + 1234));
  EXPECT_EQ(bind.bind_mw.bind_info.length, 567u);
  EXPECT_EQ(bind.bind_mw.bind_info.mw_access_flags, unsigned{IBV_ACCESS_REMOTE_READ});
  EXPECT_EQ(bind.bind_mw.bind_info.mr->addr, world.memory.data());
  EXPECT_EQ(world.verbs.send_chains[0][1].wr.opcode, IBV_WR_SEND);
}

// An atomic is a READ to the depth that the device keeps, and its operands are its own.
TEST(VerbsPostingTest, AnAtomicHasItsOperandsAndIsNeverInline) {
  FakeWorld world;
  EXPECT_EQ(world.fabric->atomics(), Atomics::kNic);
  const Sge word = world.At(64, 8);
  SendWorkRequest chain[2] = {{.wr_id = 1,
                               .opcode = Opcode::kCompareSwap,
                               .sges = {&word, 1},
                               .remote_address = 0xa5a5a5a5a5a8,
                               .rkey = 0xa5a5,
                               .compare_add = 3,
                               .swap = 4},
                              {.wr_id = 2,
                               .opcode = Opcode::kFetchAdd,
                               .signaled = true,
                               .sges = {&word, 1},
                               .remote_address = 0xa5a5a5a5a5b0,
                               .rkey = 0xa5a6,
                               .compare_add = 5,
                               .swap = 6}};
  ASSERT_THAT(world.qp->PostSend(chain), IsOk());
  const std::vector<FakeVerbs::Send>& posted = world.verbs.send_chains.at(0);
  ASSERT_EQ(posted.size(), 2u);
  EXPECT_EQ(posted[0].wr.opcode, IBV_WR_ATOMIC_CMP_AND_SWP);
  EXPECT_EQ(posted[0].wr.wr.atomic.remote_addr, 0xa5a5a5a5a5a8u);
  EXPECT_EQ(posted[0].wr.wr.atomic.rkey, 0xa5a5u);
  EXPECT_EQ(posted[0].wr.wr.atomic.compare_add, 3u);
  EXPECT_EQ(posted[0].wr.wr.atomic.swap, 4u);
  EXPECT_EQ(posted[0].wr.send_flags, 0u);
  EXPECT_EQ(posted[1].wr.opcode, IBV_WR_ATOMIC_FETCH_AND_ADD);
  EXPECT_EQ(posted[1].wr.wr.atomic.remote_addr, 0xa5a5a5a5a5b0u);
  EXPECT_EQ(posted[1].wr.wr.atomic.rkey, 0xa5a6u);
  EXPECT_EQ(posted[1].wr.wr.atomic.compare_add, 5u);
  EXPECT_EQ(posted[1].wr.wr.atomic.swap, 0u);
  EXPECT_EQ(posted[1].wr.send_flags, unsigned{IBV_SEND_SIGNALED});
  world.verbs.CompleteSends(2);
  world.Poll();
  ASSERT_THAT(world.completions, ElementsAre(CompletionIs(2, kSuccess)));
  EXPECT_EQ(world.completions[0].opcode, Opcode::kFetchAdd);
}

TEST(VerbsPostingTest, AGrantOfSeveralRightsHasTheFlagOfEach) {
  using Access = QueuePair::Access;
  constexpr unsigned kAll = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  {
    FakeWorld world;
    ASSERT_THAT(world.qp->Grant(world.At(0, 64), Access::kReadRepeatedly | Access::kWrite | Access::kAtomic),
                IsOk());
    ASSERT_THAT(world.qp->Grant(world.At(0, 64), Access::kAtomic), IsOk());
    ASSERT_THAT(world.Post(1), IsOk());
    const std::vector<FakeVerbs::Send>& posted = world.verbs.send_chains.at(0);
    ASSERT_EQ(posted.size(), 3u);
    EXPECT_EQ(posted[0].wr.bind_mw.bind_info.mw_access_flags, kAll);
    EXPECT_EQ(posted[1].wr.bind_mw.bind_info.mw_access_flags, unsigned{IBV_ACCESS_REMOTE_ATOMIC});
  }
  FakeWorld world({.windows = false}, {});
  ASSERT_THAT(world.qp->Grant(world.At(0, 64), Access::kRead | Access::kWrite | Access::kAtomic), IsOk());
  EXPECT_EQ(world.verbs.registrations.back(), static_cast<int>(kAll) | IBV_ACCESS_LOCAL_WRITE);
}

TEST(VerbsPostingTest, ADeviceWithoutAtomicsIsAskedForNone) {
  for (const bool iwarp : {false, true}) {
    FakeWorld world(
        {.iwarp = iwarp, .windows = !iwarp, .atomic_cap = iwarp ? IBV_ATOMIC_GLOB : IBV_ATOMIC_NONE}, {});
    EXPECT_EQ(world.fabric->atomics(), Atomics::kNone);
    EXPECT_FALSE(world.qp->takes_atomics());
    const Sge word = world.At(64, 8);
    const SendWorkRequest add = {
        .opcode = Opcode::kFetchAdd, .sges = {&word, 1}, .remote_address = 8, .rkey = 1, .compare_add = 1};
    EXPECT_THAT(std::string(world.qp->PostSend({&add, 1}).message()),
                HasSubstr("an atomic, which RDMA device fake0 does not have"));
    EXPECT_THAT(world.qp->Grant(world.At(0, 64), QueuePair::Access::kAtomic).status(),
                HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_TRUE(world.verbs.send_chains.empty());
  }
}

TEST(VerbsPostingTest, MemoryIsRegisteredForLocalUseAndForWindows) {
  {
    FakeWorld world;
    EXPECT_THAT(world.verbs.registrations,
                ElementsAre(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | kRelaxed));
  }
  FakeWorld iwarp({.iwarp = true, .windows = false}, {});
  EXPECT_THAT(iwarp.verbs.registrations, ElementsAre(IBV_ACCESS_LOCAL_WRITE | kRelaxed));
}

TEST(VerbsPostingTest, WhereADeviceShallWriteInOrderNothingIsRegisteredOtherwise) {
  FakeVerbs verbs({.iwarp = true, .windows = false});
  std::vector<uint8_t> memory(100);
  const auto fabric =
      NewVerbsFabric({.device = "fake0", .relaxed_ordering = false, .library = &verbs.library()}).value();
  const auto region = fabric->Register(memory.data(), memory.size()).value();
  EXPECT_THAT(verbs.registrations, ElementsAre(IBV_ACCESS_LOCAL_WRITE));
}

// What the stand-ins for ibv_reg_mr() and ibv_reg_mr_iova2() below were called with.
struct Registering {
  int plain_access = -1, extended_access = -1;
  uint64_t iova = 0;
};
Registering registering;

ibv_mr* RegMr(ibv_pd*, void*, size_t, int access) {
  registering.plain_access = access;
  return nullptr;
}

ibv_mr* RegMrIova2(ibv_pd*, void*, size_t, uint64_t iova, unsigned int access) {
  registering.extended_access = static_cast<int>(access);
  registering.iova = iova;
  return nullptr;
}

TEST(VerbsPostingTest, OptionalAccessIsForTheFunctionThatKnowsItOrDropped) {
  char memory[8];
  constexpr int kPlain = IBV_ACCESS_LOCAL_WRITE;
  const auto call = [&](bool has_extended, int access) {
    registering = {};
    RegisterWithOptionalAccess(RegMr, has_extended ? RegMrIova2 : nullptr, nullptr, memory, 8, access);
    return registering;
  };
  EXPECT_EQ(call(true, kPlain).plain_access, kPlain);
  EXPECT_EQ(call(true, kPlain).extended_access, -1);
  EXPECT_EQ(call(true, kPlain | kRelaxed).plain_access, -1);
  EXPECT_EQ(call(true, kPlain | kRelaxed).extended_access, kPlain | kRelaxed);
  EXPECT_EQ(call(true, kPlain | kRelaxed).iova, reinterpret_cast<uint64_t>(memory));
  EXPECT_EQ(call(false, kPlain | kRelaxed).plain_access, kPlain);
}

TEST(VerbsPostingTest, ARevocationIsASignaledInvalidationAndItsWindowIsBoundAnewWithAnotherRkey) {
  FakeWorld world;
  const size_t windows = world.verbs.windows_alive;
  const uint32_t rkey = world.qp->Grant(world.At(0, 100), QueuePair::Access::kWrite).value().rkey;
  world.Poll(1);
  world.qp->Revoke(rkey, 77);
  world.Poll(1);
  ASSERT_EQ(world.verbs.send_chains.size(), 2u);
  const ibv_send_wr& invalidation = world.verbs.send_chains[1][0].wr;
  EXPECT_EQ(invalidation.opcode, IBV_WR_LOCAL_INV);
  EXPECT_EQ(invalidation.invalidate_rkey, rkey);
  EXPECT_EQ(invalidation.send_flags, unsigned{IBV_SEND_SIGNALED});
  world.Poll();
  EXPECT_TRUE(world.completions.empty());  // Only the device can say.
  world.verbs.CompleteSends(2);
  world.Poll();
  ASSERT_EQ(world.completions.size(), 1u);
  EXPECT_THAT(world.completions[0], CompletionIs(77, kSuccess));
  EXPECT_EQ(world.completions[0].opcode, Opcode::kRevoke);
  const uint32_t another = world.qp->Grant(world.At(0, 100), QueuePair::Access::kWrite).value().rkey;
  EXPECT_NE(another, rkey);
  EXPECT_EQ(another >> 8, rkey >> 8) << "its low byte is another, the window is the same";
  EXPECT_EQ(world.verbs.windows_alive, windows);
  world.Poll(1);
  world.qp->Revoke(rkey, 78);
  world.Poll();
  EXPECT_EQ(world.verbs.send_chains.size(), 3u) << "the new grant stays";
  ASSERT_EQ(world.completions.size(), 2u);
  EXPECT_THAT(world.completions[1], CompletionIs(78, kSuccess));
}

// Of a queue pair that ends: what was invalidated serves any other, what may still be bound does not.
TEST(VerbsPostingTest, WindowsReturnToTheStockUnlessTheyMayBeBound) {
  FakeWorld world;
  const size_t windows = world.verbs.windows_alive;
  EXPECT_GE(windows, 32u);
  const uint32_t rkey = world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey;
  ASSERT_THAT(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead), IsOk());
  world.Poll(1);
  world.qp->Revoke(rkey, 77);
  world.Poll(1);
  world.verbs.CompleteSends(3);
  world.Poll();
  ASSERT_THAT(world.completions, ElementsAre(CompletionIs(77, kSuccess)));
  const uint32_t ended = world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey;
  world.Poll(1);
  ASSERT_THAT(world.Receive(9), IsOk());
  world.verbs.CompleteReceiveThatInvalidates(ended);
  world.Poll();
  // One is bound, one was invalidated by the peer, and the binds of two were not posted.
  ASSERT_THAT(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead), IsOk());
  ASSERT_THAT(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead), IsOk());
  EXPECT_EQ(world.verbs.windows_alive, windows);
  world.qp->Disconnect();
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
  EXPECT_EQ(world.verbs.windows_alive, windows - 1);
}

TEST(VerbsPostingTest, ASendThatEndsAGrantIsASendWithInvalidate) {
  FakeWorld world;
  const Sge sge = world.At(0, 100);
  const SendWorkRequest request = {.wr_id = 1, .signaled = true, .sges = {&sge, 1}, .rkey = 0x1234};
  ASSERT_THAT(world.qp->PostSend({&request, 1}), IsOk());
  ASSERT_THAT(world.Post(2), IsOk());
  ASSERT_EQ(world.verbs.send_chains.size(), 2u);
  const ibv_send_wr& ending = world.verbs.send_chains[0][0].wr;
  EXPECT_EQ(ending.opcode, IBV_WR_SEND_WITH_INV);
  EXPECT_EQ(ending.invalidate_rkey, 0x1234u);
  EXPECT_EQ(ending.num_sge, 1);
  EXPECT_EQ(world.verbs.send_chains[1][0].wr.opcode, IBV_WR_SEND);
}

TEST(VerbsPostingTest, SendsEndGrantsOnlyWhereThoseAreWindowsThatThePeerMayInvalidate) {
  const auto ends = [](const FakeVerbs::Options& options, std::optional<GrantKind> grants, bool may = true) {
    FakeVerbs verbs(options);
    if (!may) verbs.attr.device_cap_flags &= ~unsigned{IBV_DEVICE_MEM_MGT_EXTENSIONS};
    return NewVerbsFabric({.device = "fake0", .grants = grants, .library = &verbs.library()})
        .value()
        ->sends_end_grants();
  };
  EXPECT_TRUE(ends({}, std::nullopt));
  EXPECT_TRUE(ends({}, GrantKind::kWindows));
  EXPECT_FALSE(ends({}, std::nullopt, /*may=*/false));
  EXPECT_FALSE(ends({}, GrantKind::kRegistered));
  EXPECT_FALSE(ends({}, GrantKind::kShared));
  EXPECT_FALSE(ends({.windows = false}, std::nullopt));
  EXPECT_FALSE(ends({.iwarp = true}, std::nullopt));
  // Its completions do not say so (see InvalidatesForPeers()).
  EXPECT_FALSE(ends({.vendor_id = 0xffffff}, GrantKind::kWindows));
}

// Only the device knows whether a window is invalid, and it names the key.
TEST(VerbsPostingTest, ARevocationIsSparedOnlyIfTheDeviceHasInvalidatedExactlyThisGrant) {
  FakeWorld world;
  const auto grant = [&] { return world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey; };
  const auto receive_with = [&](uint32_t invalidated) {
    ASSERT_THAT(world.Receive(9), IsOk());
    world.verbs.CompleteReceiveThatInvalidates(invalidated);
    world.Poll();
    ASSERT_THAT(world.completions, ElementsAre(CompletionIs(9, kSuccess)));
    world.completions.clear();
  };
  const uint32_t rkey = grant();
  world.Poll(1);
  receive_with(0x7fffff00);  // Of nothing that was granted here.
  receive_with(rkey - 1);    // The same window, an earlier grant.
  receive_with(rkey + 1);    // A later one.
  world.qp->Revoke(rkey, 77);
  world.Poll(1);
  ASSERT_EQ(world.verbs.send_chains.size(), 2u);
  EXPECT_EQ(world.verbs.send_chains[1][0].wr.opcode, IBV_WR_LOCAL_INV);
  world.Poll();
  EXPECT_TRUE(world.completions.empty());
  world.verbs.CompleteSends(2);
  world.Poll();
  ASSERT_THAT(world.completions, ElementsAre(CompletionIs(77, kSuccess)));
  world.completions.clear();

  const uint32_t ended = grant();
  EXPECT_EQ(ended >> 8, rkey >> 8);
  world.Poll(1);
  receive_with(rkey);  // Revoked before.
  receive_with(ended);
  receive_with(ended);  // No device does this.
  EXPECT_NE(grant() >> 8, ended >> 8) << "its window is free only when it is revoked";
  const size_t chains = world.verbs.send_chains.size();
  world.qp->Revoke(ended, 78);
  world.Poll(1);
  ASSERT_THAT(world.completions, ElementsAre(CompletionIs(78, kSuccess)));
  EXPECT_EQ(world.completions[0].opcode, Opcode::kRevoke);
  world.qp->Revoke(ended, 79);  // There is no such grant any more.
  world.Poll(1);
  for (size_t i = chains; i < world.verbs.send_chains.size(); ++i) {
    for (const FakeVerbs::Send& send : world.verbs.send_chains[i]) EXPECT_EQ(send.wr.opcode, IBV_WR_BIND_MW);
  }
  EXPECT_EQ(grant() >> 8, ended >> 8);
}

// A peer that is too early with it, or hostile. The device refuses the later of the two.
TEST(VerbsPostingTest, WhatThePeerInvalidatesWhileItIsRevokedComesBackOnceAndEndsTheQueuePair) {
  for (bool posted : {false, true}) {
    FakeWorld world;
    const uint32_t rkey = world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey;
    world.Poll(1);
    world.qp->Revoke(rkey, 77);
    if (posted) world.Poll(1);
    ASSERT_THAT(world.Receive(9), IsOk());
    world.verbs.CompleteReceiveThatInvalidates(rkey);
    world.Poll();
    ASSERT_EQ(world.verbs.sends.size(), 2u);
    world.verbs.CompleteSends(1);
    world.verbs.CompleteSends(1, IBV_WC_MW_BIND_ERR);
    world.Poll();
    EXPECT_THAT(world.completions,
                testing::UnorderedElementsAre(CompletionIs(9, kSuccess),
                                              CompletionIs(77, CompletionStatus::kFlushed)));
    EXPECT_THAT(world.news.told, ElementsAre("established", "disconnected"));
    EXPECT_EQ(ViolationOf(world.news.why), Violation::kMemoryAccess) << "no honest peer does this";
  }
}

// The kernel ends a killed process from the newest object to the oldest, and one that rxe waits for must not
// be older.
TEST(VerbsPostingTest, OnRxeAQueuePairTakesItsWindowsWithItAndLeavesNoneForAnother) {
  FakeVerbs verbs;
  verbs.attr.vendor_id = 0xffffff;
  const auto fabric =
      NewVerbsFabric({.device = "fake0", .grants = GrantKind::kWindows, .library = &verbs.library()}).value();
  const auto queue = fabric->CreateCompletionQueue(64).value();
  std::vector<uint8_t> memory(4096);
  const auto region = fabric->Register(memory.data(), memory.size()).value();
  NewsRecorder news;
  auto qp = fabric->CreateQueuePair(*queue, {.send_depth = 8, .receive_depth = 8}, news).value();
  const sockaddr_in v4 = Somebody();
  ASSERT_THAT(qp->Connect(SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4)), ""), IsOk());
  Completion some[1];
  for (int i = 0; i < 1600; ++i) queue->Poll(some);
  ASSERT_THAT(news.told, ElementsAre("established"));
  EXPECT_EQ(verbs.windows_alive, 0u);
  const Sge range = {memory.data(), 100, region->lkey()};
  const uint32_t rkey = qp->Grant(range, QueuePair::Access::kRead).value().rkey;
  queue->Poll(some);
  qp->Revoke(rkey, 77);
  queue->Poll(some);
  verbs.CompleteSends(2);
  for (int i = 0; i < 3 && queue->Poll(some) == 0; ++i) {
  }
  EXPECT_THAT(some[0], CompletionIs(77, kSuccess));
  EXPECT_EQ(verbs.windows_alive, 1u);  // Free, for the next grant.
  qp->Disconnect();
  qp.reset();
  EXPECT_EQ(verbs.windows_alive, 0u);
}

TEST(VerbsPostingTest, ARevocationBeforeTheBindIsPostedDropsIt) {
  FakeWorld world;
  const size_t windows = world.verbs.windows_alive;
  world.qp->Revoke(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey, 5);
  world.Poll();
  EXPECT_TRUE(world.verbs.send_chains.empty());
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(5, kSuccess)));
  ASSERT_THAT(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead), IsOk());
  for (int i = 0; i < 100; ++i) {
    world.qp->Revoke(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey, 6);
  }
  EXPECT_EQ(world.verbs.windows_alive, windows) << "its window is used again";
}

// A NIC pins memory for each place of a send queue, so it has not as many as all grants could need.
const QueuePairOptions kManyGrants = {.send_depth = 32, .receive_depth = 8};
constexpr size_t kGrantPlaces = 32;

std::vector<uint32_t> GrantAll(FakeWorld& world) {
  std::vector<uint32_t> rkeys;
  while (true) {
    absl::StatusOr<Granted> granted = world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead);
    if (!granted.ok()) break;
    rkeys.push_back(granted->rkey);
  }
  return rkeys;
}

// The work requests of grants in the order in which they were posted, by their rkeys.
std::vector<uint32_t> Posted(const FakeWorld& world, ibv_wr_opcode opcode) {
  std::vector<uint32_t> rkeys;
  for (const std::vector<FakeVerbs::Send>& chain : world.verbs.send_chains) {
    for (const FakeVerbs::Send& send : chain) {
      if (send.wr.opcode != opcode) continue;
      rkeys.push_back(opcode == IBV_WR_BIND_MW ? send.wr.bind_mw.rkey : send.wr.invalidate_rkey);
    }
  }
  return rkeys;
}

TEST(VerbsPostingTest, GrantsWithoutAPlaceInTheSendQueueWaitForOneInOrder) {
  FakeWorld world({}, kManyGrants);
  const std::vector<uint32_t> rkeys = GrantAll(world);
  ASSERT_EQ(rkeys.size(), 2 * kManyGrants.send_depth);
  for (uint64_t i = 0; i < kManyGrants.send_depth; ++i) {
    ASSERT_THAT(world.Post(1000 + i, /*signaled=*/false), IsOk());
  }
  for (uint32_t rkey : rkeys) world.qp->Revoke(rkey, rkey);
  // Half of them were never bound. The others are revoked as places become free.
  while (world.completions.size() < rkeys.size()) {
    world.Poll();
    ASSERT_FALSE(world.verbs.sends.empty()) << world.completions.size();
    EXPECT_LT(world.verbs.sends.size(), world.verbs.created.cap.max_send_wr);  // One more: the last of all.
    world.verbs.CompleteSends(world.verbs.sends.size());
    world.Poll();
  }
  EXPECT_LE(world.verbs.created.cap.max_send_wr, kManyGrants.send_depth + kGrantPlaces + 1);
  const std::vector<uint32_t> bound(rkeys.begin(), rkeys.begin() + kGrantPlaces);
  EXPECT_EQ(Posted(world, IBV_WR_BIND_MW), bound);
  EXPECT_EQ(Posted(world, IBV_WR_LOCAL_INV), bound);
}

// Nothing else is signaled here, and unsignaled requests free no place.
TEST(VerbsPostingTest, GrantsSignalARequestOfTheirOwnBeforeTheirPlacesAreUsedUp) {
  FakeWorld world({}, kManyGrants);
  const std::vector<uint32_t> rkeys = GrantAll(world);
  for (size_t posted = kGrantPlaces; posted <= rkeys.size(); posted += kGrantPlaces) {
    world.Poll();
    EXPECT_EQ(Posted(world, IBV_WR_BIND_MW).size(), posted);
    world.verbs.CompleteSends(world.verbs.sends.size());
  }
  world.Poll();
  EXPECT_TRUE(world.completions.empty()) << "of which the caller hears nothing";
}

TEST(VerbsPostingTest, AGrantWithASignaledSendBehindItIsNotSignaled) {
  FakeWorld world({}, kManyGrants);
  for (uint64_t i = 0; i < 100; ++i) {
    const uint32_t rkey = world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey;
    ASSERT_THAT(world.Post(i), IsOk());
    EXPECT_EQ(world.verbs.send_chains.back()[0].wr.send_flags, 0u);
    world.qp->Revoke(rkey, i);
    world.Poll(1);
    world.verbs.CompleteSends(3);
    world.Poll(1);
  }
}

TEST(VerbsPostingTest, ASendStaysBehindABindThatWaits) {
  FakeWorld world({}, kManyGrants);
  for (size_t i = 0; i < kGrantPlaces + 1; ++i) {
    ASSERT_THAT(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead), IsOk());
  }
  ASSERT_THAT(world.Post(1), IsOk());
  ASSERT_THAT(world.Post(2), IsOk());
  world.Poll();
  ASSERT_EQ(world.verbs.send_chains.size(), 1u);
  EXPECT_EQ(world.verbs.send_chains[0].size(), kGrantPlaces);
  for (uint64_t i = 2; i < kManyGrants.send_depth; ++i) ASSERT_THAT(world.Post(1 + i), IsOk());
  EXPECT_THAT(world.Post(99), HasCode(absl::StatusCode::kResourceExhausted)) << "what waits has a place";
  world.verbs.CompleteSends(kGrantPlaces);
  world.Poll();
  ASSERT_EQ(world.verbs.send_chains.size(), 2u);
  const std::vector<FakeVerbs::Send>& chain = world.verbs.send_chains[1];
  ASSERT_EQ(chain.size(), 1 + kManyGrants.send_depth);
  EXPECT_EQ(chain[0].wr.opcode, IBV_WR_BIND_MW);
  for (size_t i = 1; i < chain.size(); ++i) {
    EXPECT_EQ(chain[i].wr.opcode, IBV_WR_SEND);
    ASSERT_EQ(chain[i].sges.size(), 1u);
    EXPECT_EQ(chain[i].sges[0].addr, reinterpret_cast<uint64_t>(world.memory.data()));
  }
  world.verbs.CompleteSends(chain.size());
  world.Poll();
  ASSERT_EQ(world.completions.size(), kManyGrants.send_depth);
  for (uint64_t i = 0; i < kManyGrants.send_depth; ++i) {
    EXPECT_THAT(world.completions[i], CompletionIs(1 + i, kSuccess));
  }
}

// The memory of one that was posted must not be taken for free because one behind it has ended.
TEST(VerbsPostingTest, SendsThatWaitAtTheEndAreFlushedAfterThoseThatDoNot) {
  for (const bool signaled : {true, false}) {
    FakeWorld world({}, kManyGrants);
    ASSERT_THAT(world.Post(1, signaled), IsOk());
    for (size_t i = 0; i < kGrantPlaces + 1; ++i) {
      ASSERT_THAT(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead), IsOk());
    }
    ASSERT_THAT(world.Post(2), IsOk());
    ASSERT_THAT(world.Post(3, /*signaled=*/false), IsOk());
    world.qp->Disconnect();
    world.Poll();
    EXPECT_TRUE(world.completions.empty()) << "the device has the first one";
    world.verbs.CompleteSends(world.verbs.sends.size(), IBV_WC_WR_FLUSH_ERR);
    world.Poll();
    EXPECT_THAT(world.completions,
                ElementsAre(CompletionIs(1, kFlushed), CompletionIs(2, kFlushed), CompletionIs(3, kFlushed)));
  }
}

// Send 1 is not signaled. Behind it a grant is made and revoked (7), and all three requests complete.
void SendThatOnlyGrantsProve(FakeWorld& world) {
  ASSERT_THAT(world.Post(1, /*signaled=*/false), IsOk());
  const uint32_t rkey = world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey;
  world.Poll(1);
  world.qp->Revoke(rkey, 7);
  world.Poll(1);
  world.verbs.CompleteSends(3);
  world.Poll();
}

TEST(VerbsPostingTest, ASendThatOnlyTheRequestsOfGrantsProveIsFlushedAtTheEnd) {
  FakeWorld world;
  ASSERT_NO_FATAL_FAILURE(SendThatOnlyGrantsProve(world));
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(7, kSuccess)));
  world.completions.clear();
  world.qp->Disconnect();
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kFlushed)));
}

TEST(VerbsPostingTest, ASendThatOnlyTheRequestsOfGrantsProveKeepsItsPlace) {
  FakeWorld world;
  ASSERT_NO_FATAL_FAILURE(SendThatOnlyGrantsProve(world));
  for (uint64_t i = 2; i <= 8; ++i) ASSERT_THAT(world.Post(i, /*signaled=*/false), IsOk());
  EXPECT_THAT(world.Post(9), HasCode(absl::StatusCode::kResourceExhausted));
}

TEST(VerbsPostingTest, ASignaledSendProvesThoseThatRequestsOfGrantsHaveProved) {
  FakeWorld world;
  ASSERT_THAT(world.Post(1, /*signaled=*/false), IsOk());
  const uint32_t rkey = world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey;
  world.Poll(1);
  world.qp->Revoke(rkey, 7);
  ASSERT_THAT(world.Post(2), IsOk());
  world.verbs.CompleteSends(4);
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(7, kSuccess), CompletionIs(2, kSuccess)));
  for (uint64_t i = 3; i < 3 + 8; ++i) EXPECT_THAT(world.Post(i), IsOk());
}

TEST(VerbsPostingTest, ASendDoesNotWaitForABindThatIsRevokedBefore) {
  FakeWorld world({}, kManyGrants);
  uint32_t rkey = 0;
  for (size_t i = 0; i < kGrantPlaces + 1; ++i) {
    rkey = world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey;
  }
  ASSERT_THAT(world.Post(1), IsOk());
  world.Poll();
  world.qp->Revoke(rkey, 7);
  world.Poll();
  ASSERT_EQ(world.verbs.send_chains.size(), 2u);
  EXPECT_EQ(world.verbs.send_chains[1].size(), 1u);
}

TEST_P(VerbsPostingOnNicTest, WithoutSignalingTheSendQueueIsFullAndNothingMoreIsPosted) {
  FakeWorld world(nic());
  for (uint64_t i = 0; i < 8; ++i) ASSERT_THAT(world.Post(i, /*signaled=*/false), IsOk());
  world.verbs.CompleteSends(8);  // Silently.
  world.Poll();
  const absl::Status status = world.Post(9);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("send queue of 8 has room for 0"));
  EXPECT_EQ(world.verbs.send_chains.size(), 8u);
}

TEST_P(VerbsPostingOnNicTest, ASignaledCompletionProvesThoseBeforeIt) {
  FakeWorld world(nic());
  for (uint64_t i = 0; i < 8; ++i) ASSERT_THAT(world.Post(i, /*signaled=*/i == 5), IsOk());
  world.verbs.CompleteSends(8);
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(5, kSuccess)));
  for (uint64_t i = 0; i < 6; ++i) EXPECT_THAT(world.Post(10 + i), IsOk());
  EXPECT_THAT(world.Post(20), HasCode(absl::StatusCode::kResourceExhausted));
}

TEST(VerbsPostingTest, AfterDisconnectASignaledRequestTellsWhenSendsThatWereNotAreBack) {
  FakeWorld world;
  ASSERT_THAT(world.Post(1, /*signaled=*/false), IsOk());
  ASSERT_THAT(world.Post(2, /*signaled=*/false), IsOk());
  world.verbs.CompleteSends(2);
  world.qp->Disconnect();
  world.Poll();
  ASSERT_EQ(world.verbs.send_chains.size(), 3u);
  EXPECT_EQ(world.verbs.modified.back().qp_state, IBV_QPS_ERR);
  world.Poll();
  EXPECT_TRUE(world.completions.empty());
  world.verbs.CompleteSends(1, IBV_WC_WR_FLUSH_ERR);
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kFlushed), CompletionIs(2, kFlushed)));
}

// And a SEND that is longer by a byte is not.
void ExpectInlineUpTo(uint32_t length, const FakeVerbs::Options& options) {
  FakeWorld world(options, {.send_depth = 8});
  ASSERT_THAT(world.Post(1, true, length), IsOk());
  ASSERT_THAT(world.Post(2, true, length + 1), IsOk());
  EXPECT_EQ(world.verbs.send_chains[0][0].wr.send_flags, unsigned{IBV_SEND_SIGNALED | IBV_SEND_INLINE});
  EXPECT_EQ(world.verbs.send_chains[1][0].wr.send_flags, unsigned{IBV_SEND_SIGNALED});
}

// It refuses more, and does not say how many it can do.
TEST(VerbsPostingTest, ShortSendsAreInlineAsFarAsTheDeviceGrants) {
  for (const bool sets_errno : {true, false}) {
    for (const auto& [device, granted] : {std::pair(191u, 128u), std::pair(128u, 128u), std::pair(127u, 96u),
                                          std::pair(101u, 96u), std::pair(95u, 64u), std::pair(48u, 48u)}) {
      SCOPED_TRACE(device);
      ExpectInlineUpTo(granted, {.inline_max = device, .sets_errno = sets_errno});
    }
  }
  FakeWorld none({.inline_max = 47});
  ASSERT_THAT(none.Post(1, true, 1), IsOk());
  EXPECT_EQ(none.verbs.send_chains[0][0].wr.send_flags, unsigned{IBV_SEND_SIGNALED});
}

TEST(VerbsPostingTest, WhatTheDeviceSaysItGrantsCountsNotWhatItWasAskedFor) {
  ExpectInlineUpTo(60, {.inline_max = 100, .inline_granted = 60});
}

TEST(VerbsPostingTest, ADeviceThatGrantsMoreIsNotAskedToCopyMoreThanTheOptionsSay) {
  ExpectInlineUpTo(192, {.inline_granted = 500});
}

bool PostInline(FakeWorld& world) {
  const std::string message = "small";
  return world.qp->PostInline({reinterpret_cast<const uint8_t*>(message.data()), message.size()});
}

// Half of the eight places of the send queue. mana's provider ignores the flag.
TEST_P(VerbsPostingOnNicTest, SmallSendsAreCopiedUnlessTheProviderReadsThemLater) {
  FakeWorld world(nic());
  if (GetParam().name == "mana" || nic().iwarp) {
    EXPECT_FALSE(PostInline(world));
    return;
  }
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(PostInline(world)) << i;
  EXPECT_FALSE(PostInline(world));
  EXPECT_TRUE(world.verbs.send_chains.empty()) << "before the doorbell";
  world.qp->RingDoorbell();
  ASSERT_EQ(world.verbs.send_chains.size(), 1u);
  ASSERT_EQ(world.verbs.send_chains[0].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const unsigned int flags = world.verbs.send_chains[0][i].wr.send_flags;
    EXPECT_TRUE(flags & IBV_SEND_INLINE) << i;
    EXPECT_EQ((flags & IBV_SEND_SIGNALED) != 0, i % 2 == 1) << i;
  }
  EXPECT_FALSE(PostInline(world)) << "the device has them still";
  world.verbs.CompleteSends(4);
  world.Poll();
  EXPECT_TRUE(world.completions.empty());
  EXPECT_TRUE(PostInline(world));
}

TEST(VerbsPostingTest, ACopiedSendStaysBehindABindThatWaits) {
  FakeWorld world({}, kManyGrants);
  for (size_t i = 0; i < kGrantPlaces + 1; ++i) {
    ASSERT_THAT(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead), IsOk());
  }
  EXPECT_FALSE(PostInline(world)) << "it may name a grant that is queued";
  ASSERT_THAT(world.Post(1), IsOk());
  EXPECT_FALSE(PostInline(world)) << "it would overtake one that waits";
}

// Another queue pair of `world`.
struct Another {
  Another(FakeWorld& world, CompletionQueue& queue,
          const QueuePairOptions& options = {.send_depth = 8, .receive_depth = 8})
      : qp(world.fabric->CreateQueuePair(queue, options, news).value()) {}

  NewsRecorder news;
  std::unique_ptr<QueuePair> qp;
};

void Connect(FakeWorld& world, Another& another) {
  const sockaddr_in v4 = Somebody();
  ASSERT_THAT(another.qp->Connect(SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4)), ""),
              IsOk());
  world.Poll(1600);
  ASSERT_THAT(another.news.told, ElementsAre("established"));
}

// That none of them overflows, FakeVerbs sees to.
TEST(VerbsPostingTest, WhereOneCompletionQueueHasNoPlaceForAllWorkRequestsThereAreMore) {
  FakeWorld world({.max_cqe = 64}, {.send_depth = 8, .receive_depth = 8});  // 41 sends, with those of grants.
  ibv_cq* const first = world.verbs.created.send_cq;
  ibv_cq* second;
  {
    Another another(world, *world.completion_queue);
    Connect(world, another);
    second = world.verbs.created.send_cq;
    EXPECT_NE(second, first);
    const Sge sge = world.At(0, 10);
    const SendWorkRequest request = {.wr_id = 2, .signaled = true, .sges = {&sge, 1}};
    ASSERT_THAT(world.Post(1), IsOk());
    ASSERT_THAT(another.qp->PostSend({&request, 1}), IsOk());
    world.verbs.CompleteSends(2);
    world.Poll();
    EXPECT_THAT(world.completions,
                ::testing::UnorderedElementsAre(CompletionIs(1, kSuccess), CompletionIs(2, kSuccess)));
  }
  Another third(world, *world.completion_queue);
  Connect(world, third);
  EXPECT_EQ(world.verbs.created.send_cq, second) << "whose places are free again";
}

// Each of them is polled, so there are to be few; and a NIC pins the memory of each, so the first is small.
TEST(VerbsPostingTest, EachFurtherCompletionQueueIsTwiceAsLarge) {
  FakeWorld world({.max_cqe = 300}, {.send_depth = 8, .receive_depth = 8});
  const auto queue = world.fabric->CreateCompletionQueue(63).value();
  std::vector<std::unique_ptr<Another>> others;
  std::vector<int> sizes;
  while (sizes.size() < 4) {
    others.push_back(std::make_unique<Another>(world, *queue));
    const sockaddr_in v4 = Somebody();
    ASSERT_THAT(
        others.back()->qp->Connect(SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4)), ""),
        IsOk());
    Completion none[1];
    for (int i = 0; i < 1600; ++i) queue->Poll(none);
    const int entries = world.verbs.created.send_cq->cqe;
    if (sizes.empty() || entries != sizes.back()) sizes.push_back(entries);
  }
  EXPECT_THAT(sizes, ElementsAre(63, 127, 255, 300)) << "max_cqe bounds the last one";
}

// Nothing tells of it any more, so a wait that did not look would be one of 10 s.
TEST_P(VerbsPostingOnNicTest, ACompletionThatArrivesJustBeforeItsQueueIsArmedIsNotSleptOn) {
  FakeWorld world(nic());
  ASSERT_THAT(world.Post(1), IsOk());
  world.completion_queue->Wait(absl::ZeroDuration());  // Arms, and forgets what woke it before.
  world.verbs.CompleteSends(1);
  world.completion_queue->Wait(absl::Seconds(10));
  ASSERT_EQ(world.verbs.cq_events_read, 1u);
  world.Poll();
  ASSERT_THAT(world.Post(2), IsOk());
  bool armed = false;
  world.verbs.on_arm = [&] {
    armed = true;
    world.verbs.CompleteSends(1);
  };
  const int64_t start_ns = MonotonicNs();
  world.completion_queue->Wait(absl::Seconds(10));
  EXPECT_LT(MonotonicNs() - start_ns, 5'000'000'000);
  EXPECT_TRUE(armed);
  EXPECT_EQ(world.verbs.cq_events_read, 1u);
  world.Poll(1);
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kSuccess), CompletionIs(2, kSuccess)));
}

// A look before sleeping takes some tens of completions. What it leaves in the queue makes no event either.
TEST_P(VerbsPostingOnNicTest, ManyCompletionsThatArriveJustBeforeTheirQueueIsArmedAreNotSleptOn) {
  constexpr uint32_t kCount = 100;
  FakeWorld world(nic(), {.send_depth = 8, .receive_depth = kCount});
  for (uint64_t i = 0; i < kCount; ++i) ASSERT_THAT(world.Receive(i), IsOk());
  world.verbs.on_arm = [&] { world.verbs.CompleteReceives(kCount); };
  while (world.completions.size() < kCount) {
    const size_t before = world.completions.size();
    const int64_t start_ns = MonotonicNs();
    world.completion_queue->Wait(absl::Seconds(10));
    ASSERT_LT(MonotonicNs() - start_ns, 5'000'000'000) << before << " of " << kCount;
    world.Poll(1);
    ASSERT_GT(world.completions.size(), before);
  }
}

// ibv_destroy_cq() waits until they are; FakeVerbs looks.
TEST_P(VerbsPostingOnNicTest, TheEventsOfACompletionQueueAreAcknowledgedBeforeItIsDestroyed) {
  FakeWorld world(nic());
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_THAT(world.Post(i), IsOk());
    world.completion_queue->Wait(absl::ZeroDuration());  // Arms.
    world.verbs.CompleteSends(1);
    world.completion_queue->Wait(absl::Seconds(10));
    ASSERT_EQ(world.verbs.cq_events_read, i + 1);
    world.Poll(1);
    ASSERT_EQ(world.completions.size(), i + 1);
  }
}

// One that listens, and a peer that asks to connect.
struct AskedWorld : FakeWorld {
  explicit AskedWorld(const FakeVerbs::Options& options = {})
      : FakeWorld(options, {.send_depth = 8, .receive_depth = 8}, /*connect=*/false) {
    const sockaddr_in v4 = Somebody();
    listener = fabric
                   ->Listen(*completion_queue,
                            SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4)), requests)
                   .value();
    id = verbs.ConnectRequest(verbs.newest_id);
    Poll();
    EXPECT_EQ(requests.requests.size(), 1u);
  }
  std::unique_ptr<ConnectRequest> TakeRequest() { return std::move(requests.requests.at(0)); }

  RequestRecorder requests;
  std::unique_ptr<Listener> listener;
  rdma_cm_id* id = nullptr;
};

TEST(VerbsPostingTest, TheSideThatAcceptsHasFiniteRetriesAndShortTimersToo) {
  AskedWorld world;
  world.verbs.options_set.clear();
  ASSERT_THAT(world.qp->Accept(*world.TakeRequest(), "yes"), IsOk());
  world.Poll();
  EXPECT_EQ(world.verbs.options_set[RDMA_OPTION_ID_ACK_TIMEOUT], 14);
  EXPECT_EQ(world.verbs.accepted.rnr_retry_count, 6);
  EXPECT_EQ(world.verbs.accepted.initiator_depth, 4);
  EXPECT_EQ(world.verbs.accepted.responder_resources, 4);
  // Ready before the peer can hear of it.
  EXPECT_EQ(world.verbs.modified_before_accept, 4u);
  EXPECT_THAT(world.verbs.states, ElementsAre(IBV_QPS_INIT, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS));
  EXPECT_EQ(world.verbs.modified_masks[2], IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);
  EXPECT_EQ(world.verbs.modified[2].min_rnr_timer, 13);
  EXPECT_EQ(world.verbs.modified[2].max_dest_rd_atomic, 4);
  EXPECT_EQ(world.verbs.modified[3].max_rd_atomic, 4);
  EXPECT_TRUE(world.verbs.migrated.empty());  // It was there already.
  world.verbs.CmEvent(world.id, RDMA_CM_EVENT_ESTABLISHED);
  world.Poll();
  EXPECT_THAT(world.news.told, ElementsAre("established"));
}

// Whatever fails before rdma_accept(): the peer hears why.
TEST_P(VerbsPostingOnNicTest, ARequestThatCannotBeAcceptedIsRejectedWithAReason) {
  for (ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    AskedWorld world(nic());
    world.verbs.refuse_state = state;
    ASSERT_THAT(world.qp->Accept(*world.TakeRequest(), "yes"), IsOk());
    world.Poll();
    ASSERT_THAT(world.news.told, ElementsAre("failed"));
    EXPECT_THAT(world.verbs.rejected, ElementsAre("no: " + std::string(world.news.why.message())));
  }
}

TEST_P(VerbsPostingOnNicTest, TheSideThatAcceptsAdoptsWhatThePeersNicOffers) {
  AskedWorld world(nic());
  world.verbs.ece = {.vendor_id = 0x10, .options = 3, .comp_mask = 0};
  world.verbs.peers_ece = {.vendor_id = 0x10, .options = 1, .comp_mask = 0};
  ASSERT_THAT(world.qp->Accept(*world.TakeRequest(), "yes"), IsOk());
  ASSERT_EQ(world.verbs.ece_set.size(), 1u);
  EXPECT_EQ(world.verbs.ece_set[0].options, 1u);
  EXPECT_EQ(world.verbs.ece_offered.size(), 1u);
}

TEST_P(VerbsPostingOnNicTest, APeerThatSpeaksFirstIsTakenForAHandshakeThatIsDone) {
  AskedWorld world(nic());
  ASSERT_THAT(world.qp->Accept(*world.TakeRequest(), ""), IsOk());
  world.verbs.AsyncEvent(IBV_EVENT_COMM_EST);
  world.Poll();
  EXPECT_THAT(world.verbs.notified, ElementsAre(std::pair(world.id, IBV_EVENT_COMM_EST)));
  world.verbs.CmEvent(world.id, RDMA_CM_EVENT_ESTABLISHED);
  world.Poll();
  world.verbs.AsyncEvent(IBV_EVENT_COMM_EST);  // The connection manager knows.
  world.Poll();
  EXPECT_EQ(world.verbs.notified.size(), 1u);
  EXPECT_THAT(world.news.told, ElementsAre("established"));
}

TEST_P(VerbsPostingOnNicTest, AConnectionThatAnotherCompletionQueueAcceptsHasItsEventsThere) {
  AskedWorld world(nic());
  const auto queue = world.fabric->CreateCompletionQueue(64).value();
  Another another(world, *queue);
  ASSERT_THAT(another.qp->Accept(*world.TakeRequest(), ""), IsOk());
  ASSERT_EQ(world.verbs.channels.size(), 2u);
  EXPECT_THAT(world.verbs.migrated, ElementsAre(std::pair(world.id, world.verbs.channels[1])));
  world.verbs.CmEvent(world.id, RDMA_CM_EVENT_ESTABLISHED);
  world.Poll();
  EXPECT_TRUE(another.news.told.empty());
  Completion none[1];
  for (int i = 0; i < 300; ++i) ASSERT_EQ(queue->Poll(none), 0u);
  EXPECT_THAT(another.news.told, ElementsAre("established"));
}

TEST(VerbsPostingTest, RetriesAreFiniteAndTimersShort) {
  FakeWorld world;
  EXPECT_EQ(world.verbs.connected.retry_count, 6);
  EXPECT_EQ(world.verbs.connected.rnr_retry_count, 6);
  EXPECT_EQ(world.verbs.options_set[RDMA_OPTION_ID_ACK_TIMEOUT], 14);
  ASSERT_EQ(world.verbs.modified.size(), 4u);
  EXPECT_EQ(world.verbs.modified[2].qp_state, IBV_QPS_RTR);
  EXPECT_EQ(world.verbs.modified_masks[2], IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);
  EXPECT_EQ(world.verbs.modified[2].min_rnr_timer, 13);
}

TEST(VerbsPostingTest, TheReadDepthIsBoundedByTheDeviceAndThenByThePeer) {
  FakeWorld world({}, {.read_depth = 100});
  EXPECT_EQ(world.verbs.connected.initiator_depth, 16);
  EXPECT_EQ(world.verbs.connected.responder_resources, 16);
  EXPECT_EQ(world.qp->read_depth(), 4u);
}

// erdma leaves both depths out of the answer, irdma one out of the request. Of 0 no large message could pass,
// ever.
TEST(VerbsPostingTest, OnIwarpAReadDepthOf0IsNotSaid) {
  for (const auto& [depths, agreed] :
       {std::pair(FakeVerbs::Depths{0, 0}, 16), std::pair(FakeVerbs::Depths{5, 0}, 5),
        std::pair(FakeVerbs::Depths{0, 7}, 7)}) {
    {
      FakeWorld world({.iwarp = true, .windows = false, .answer = depths},
                      {.send_depth = 8, .read_depth = 100});
      EXPECT_EQ(world.qp->read_depth(), static_cast<uint32_t>(agreed));
      const Sge sge = world.At(0, 10);
      const SendWorkRequest read = {
          .opcode = Opcode::kRead, .sges = {&sge, 1}, .remote_address = 1, .rkey = 1};
      EXPECT_THAT(world.qp->PostSend({&read, 1}), IsOk());
    }
    AskedWorld world({.iwarp = true, .windows = false, .request = depths});
    const std::unique_ptr<ConnectRequest> request = world.TakeRequest();
    EXPECT_EQ(request->read_depth(), static_cast<uint32_t>(agreed));
    ASSERT_THAT(world.qp->Accept(*request, "yes"), IsOk());
    world.Poll();
    EXPECT_EQ(world.verbs.accepted.initiator_depth, agreed);
    EXPECT_EQ(world.verbs.accepted.responder_resources, agreed);
  }
}

// There the peer itself has said so, and Acceptor refuses it.
TEST(VerbsPostingTest, OverInfiniBandAReadDepthOf0IsNone) {
  EXPECT_EQ(FakeWorld({.answer = {0, 4}}).qp->read_depth(), 0u);
  AskedWorld world({.request = {4, 0}});
  EXPECT_EQ(world.TakeRequest()->read_depth(), 0u);
}

TEST(VerbsPostingTest, AReadHasAsManySgesAsTheDeviceFillsAndOneOnIwarp) {
  for (const FakeVerbs::Options& options :
       {FakeVerbs::Options{.max_sge_rd = 1}, FakeVerbs::Options{.iwarp = true, .windows = false}}) {
    FakeWorld world(options, {});
    const Sge sges[] = {world.At(0, 10), world.At(20, 10)};
    SendWorkRequest read = {.opcode = Opcode::kRead, .sges = sges, .remote_address = 1, .rkey = 1};
    EXPECT_THAT(world.qp->PostSend({&read, 1}), HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_TRUE(world.verbs.send_chains.empty());
    read.sges = {sges, 1};
    EXPECT_THAT(world.qp->PostSend({&read, 1}), IsOk());
  }
}

// The kernel reports the smaller one of sends and receives: 1 for erdma, 3 for X722.
TEST(VerbsPostingTest, TheFabricSaysHowManySgesASendHas) {
  for (const auto& [device, sges] :
       {std::pair(1, 1u), std::pair(3, 3u), std::pair(30, 6u), std::pair(0, 1u), std::pair(-7, 1u)}) {
    FakeWorld world({.max_sge = device}, {.send_depth = 8}, /*connect=*/false);
    EXPECT_EQ(world.fabric->sge_max(), sges) << device;
  }
  FakeWorld world({.max_sge = 1});
  EXPECT_EQ(world.verbs.created.cap.max_send_sge, 1u);
  const Sge sges[] = {world.At(0, 10), world.At(20, 10)};
  const SendWorkRequest two = {.sges = sges}, one = {.sges = {sges, 1}};
  EXPECT_THAT(world.qp->PostSend({&two, 1}), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(world.qp->PostSend({&one, 1}), IsOk());
}

TEST(VerbsPostingTest, OnIwarpCompletionsArePutInPostingOrder) {
  FakeWorld world({.iwarp = true, .windows = false}, {.send_depth = 8});
  for (uint64_t i = 0; i < 4; ++i) ASSERT_THAT(world.Post(i, /*signaled=*/i != 2), IsOk());
  const std::vector<uint64_t> posted(world.verbs.sends.begin(), world.verbs.sends.end());
  world.verbs.CompleteSend(posted[1], IBV_WC_SUCCESS);
  world.verbs.CompleteSend(posted[3], IBV_WC_SUCCESS);
  world.Poll();
  EXPECT_TRUE(world.completions.empty());
  world.verbs.CompleteSend(posted[0], IBV_WC_SUCCESS);
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(0, kSuccess), CompletionIs(1, kSuccess)));
  world.verbs.CompleteSend(posted[2], IBV_WC_SUCCESS);
  world.Poll();
  ASSERT_EQ(world.completions.size(), 3u);
  EXPECT_THAT(world.completions[2], CompletionIs(3, kSuccess));
}

// It would say that there is nothing to READ: the message's wire format has it so.
TEST(VerbsPostingTest, NoGrantHasTheRkey0) {
  FakeWorld world({.windows = false}, {.send_depth = 8});
  world.verbs.next_key = 0;
  const uint32_t rkey = world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey;
  EXPECT_NE(rkey, 0u);
  world.qp->Revoke(rkey, 1);
  world.qp->Disconnect();
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(1, kSuccess)));
  EXPECT_EQ(world.verbs.memory_regions.size(), 1u) << "of the region";
}

// A window has another key each time; the keys of the first one begin with 0 here.
TEST(VerbsPostingTest, NoGrantHasTheRkey0HoweverOftenItsWindowIsBound) {
  FakeWorld world({}, {.send_depth = 8, .receive_depth = 8}, /*connect=*/false);
  world.verbs.next_key = 0;
  const sockaddr_in v4 = Somebody();
  ASSERT_THAT(world.qp->Connect(SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4)), ""),
              IsOk());
  world.Poll(1600);
  const size_t windows = world.verbs.windows_alive;
  for (uint64_t i = 0; i < 2 * 256; ++i) {
    const uint32_t rkey = world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey;
    ASSERT_NE(rkey, 0u) << i;
    ASSERT_LE(rkey, 0xffu) << "another window";
    world.qp->Revoke(rkey, i);
    world.Poll(1);
    ASSERT_THAT(world.completions, ElementsAre(CompletionIs(i, kSuccess)));
    world.completions.clear();
  }
  EXPECT_EQ(world.verbs.windows_alive, windows);
}

TEST(VerbsPostingTest, OnIwarpGrantsAreRegistrationsWhateverWindowsTheDeviceHas) {
  FakeWorld world({.iwarp = true, .windows = true}, {.send_depth = 8});
  EXPECT_EQ(world.verbs.registrations.back() & IBV_ACCESS_MW_BIND, 0);
  const uint32_t rkey = world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead).value().rkey;
  EXPECT_EQ(world.verbs.registrations.back(), int{IBV_ACCESS_REMOTE_READ});
  ASSERT_THAT(world.Post(1), IsOk());
  world.qp->Revoke(rkey, 77);
  ASSERT_EQ(world.verbs.send_chains.size(), 1u);
  EXPECT_EQ(world.verbs.send_chains[0].size(), 1u);
  world.Poll();
  EXPECT_THAT(world.completions, ElementsAre(CompletionIs(77, kSuccess)));
}

// bnxt_re: the kernel advertises windows, its provider has none. mana: it allocates them, and refuses to bind
// them.
TEST(VerbsPostingTest, WindowsThatTheProviderDoesNotHaveAreNotUsed) {
  const FakeVerbs::Options providers[] = {
      {.allocates_windows = false},
      {.bind_error = -EINVAL},
      {.bind_error = EOPNOTSUPP},
      {.posts_only_in_rts = true},
  };
  for (const FakeVerbs::Options& options : providers) {
    FakeWorld world(options);
    EXPECT_EQ(world.verbs.trials, options.allocates_windows ? 1u : 0u);
    EXPECT_THAT(world.verbs.registrations, ElementsAre(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING));
    ASSERT_THAT(world.qp->Grant(world.At(0, 100), QueuePair::Access::kRead), IsOk());
    EXPECT_EQ(world.verbs.registrations.back(), int{IBV_ACCESS_REMOTE_READ});
    ASSERT_THAT(world.Post(1), IsOk());
    EXPECT_EQ(world.verbs.send_chains.size(), 1u);
    EXPECT_EQ(world.verbs.windows_alive, 0u);
  }
}

TEST(VerbsPostingTest, WindowsAreTriedOnceWithoutATrace) {
  FakeWorld world({}, {.send_depth = 8}, /*connect=*/false);
  EXPECT_EQ(world.verbs.trials, 1u);
  EXPECT_EQ(world.verbs.windows_alive, 0u);
  EXPECT_EQ(world.verbs.memory_regions.size(), 1u);
  EXPECT_EQ(world.verbs.queue_pairs.size(), 0u);
  const sockaddr_in v4 = {.sin_family = AF_INET};
  const SocketAddress peer(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
  ASSERT_THAT(world.qp->Connect(peer, ""), IsOk());
  world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
  world.Poll();
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
  ASSERT_THAT(world.qp->Connect(peer, ""), IsOk());
  EXPECT_EQ(world.verbs.trials, 1u) << "its fabrics keep their kind of grants";
}

TEST(VerbsPostingTest, ATrialThatCannotBeMadeLeavesTheKernelsWord) {
  FakeWorld world({.create_qp_error = ENOMEM}, {.send_depth = 8}, /*connect=*/false);
  EXPECT_THAT(world.verbs.registrations,
              ElementsAre(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | IBV_ACCESS_RELAXED_ORDERING));
}

TEST(VerbsPostingTest, ATrialThatCannotBeMadeIsLoggedOnceForTheDevice) {
  const auto warnings_of = [](const FakeVerbs::Options& options, int error,
                              std::optional<GrantKind> grants = std::nullopt) {
    FakeVerbs verbs(options);
    if (error != 0) verbs.fail_once["ibv_create_qp"] = error;
    std::vector<std::string> lines;
    std::vector<std::shared_ptr<Fabric>> fabrics;
    for (int i = 0; i < 2; ++i) {
      fabrics.push_back(NewVerbsFabric({.device = "fake0",
                                        .grants = grants,
                                        .warn = [&](absl::string_view line) { lines.emplace_back(line); },
                                        .library = &verbs.library()})
                            .value());
    }
    return lines;
  };
  EXPECT_THAT(warnings_of({}, 0), IsEmpty());
  EXPECT_THAT(warnings_of({.windows = false}, ENOMEM), IsEmpty()) << "there is nothing to try";
  EXPECT_THAT(warnings_of({.allocates_windows = false}, 0), IsEmpty())
      << "the trial says that there are none";
  EXPECT_THAT(warnings_of({}, ENOMEM, GrantKind::kRegistered), IsEmpty()) << "none is used";
  EXPECT_THAT(warnings_of({}, ENOMEM),
              ElementsAre(AllOf(HasSubstr("RDMA device fake0: windows could not be tried: ibv_create_qp()"),
                                HasSubstr("ENOMEM"), HasSubstr("kRegistered"))));
}

TEST(VerbsPostingTest, ATrialThatCouldNotBeMadeIsMadeWhenTheDeviceIsOpenedAgain) {
  FakeVerbs verbs;
  verbs.fail_once["ibv_create_qp"] = ENOMEM;
  const auto fabric = NewVerbsFabric({.device = "fake0", .library = &verbs.library()}).value();
  EXPECT_EQ(verbs.trials, 0u);
  const auto device = VerbsDevice::Open(verbs.library(), "fake0").value();
  verbs.fail_once["ibv_alloc_mw"] = ENOMEM;
  EXPECT_THAT(std::string(device->TakeWindow().status().message()),
              AllOf(HasSubstr("ibv_alloc_mw()"), HasSubstr("windows could not be tried: ibv_create_qp()")));
  for (int opened_again = 0; opened_again < 2; ++opened_again) {
    device->MarkGone();
    ASSERT_THAT(fabric->CreateCompletionQueue(64), IsOk());
    EXPECT_EQ(verbs.trials, 1u) << "none follows one that was made";
  }
  EXPECT_TRUE(device->has_windows());
  verbs.fail_once["ibv_alloc_mw"] = ENOMEM;
  EXPECT_THAT(std::string(device->TakeWindow().status().message()), Not(HasSubstr("tried")));
}

TEST(VerbsPostingTest, ATrialOfWindowsSaysWhatRefusedThem) {
  const auto trial = [](const FakeVerbs::Options& options) {
    FakeVerbs verbs(options);
    const VerbsLibrary& library = verbs.library();
    return TryWindows(
        verbs.context, *library.ibv_alloc_pd(&verbs.context),
        {library.ibv_reg_mr, library.ibv_dereg_mr, library.ibv_create_cq, library.ibv_destroy_cq,
         library.ibv_create_qp, library.ibv_modify_qp, library.ibv_destroy_qp});
  };
  EXPECT_THAT(trial({}), IsOk());
  const absl::Status none = trial({.allocates_windows = false});
  EXPECT_THAT(none, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(std::string(none.message()), AllOf(HasSubstr("ibv_alloc_mw()"), HasSubstr("EOPNOTSUPP")));
  const absl::Status not_bound = trial({.bind_error = -EINVAL});
  EXPECT_THAT(not_bound, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(std::string(not_bound.message()), AllOf(HasSubstr("BIND_MW"), HasSubstr("EINVAL")));
  const absl::Status full = trial({.bind_error = ENOMEM});
  EXPECT_THAT(full, HasCode(absl::StatusCode::kUnavailable));
  const absl::Status unnamed = trial({.create_qp_error = EIO, .sets_errno = false});
  EXPECT_THAT(unnamed, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(unnamed.message()), AllOf(HasSubstr("ibv_create_qp()"), HasSubstr("EINVAL")));
}

TEST(VerbsPostingTest, WhereGrantsAreSharedTheyAreTheKeyOfTheirRegionAndNothingElse) {
  for (bool iwarp : {false, true}) {
    FakeWorld world({.iwarp = iwarp, .windows = !iwarp, .grants = GrantKind::kShared},
                    {.send_depth = 8, .receive_depth = 8});
    ASSERT_THAT(world.verbs.registrations,
                ElementsAre(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | kRelaxed));
    const uint32_t key = (*world.verbs.memory_regions.begin())->rkey;
    for (uint64_t i = 0; i < 1000; ++i) {  // As many as there are.
      const Granted granted = world.qp->Grant(world.At(i, 100), QueuePair::Access::kRead).value();
      ASSERT_EQ(granted.rkey, key);
      ASSERT_EQ(granted.address, reinterpret_cast<uint64_t>(world.memory.data() + i));
    }
    world.qp->Revoke(key, 77);
    world.Poll(1);
    EXPECT_THAT(world.completions, ElementsAre(CompletionIs(77, kSuccess)));
    EXPECT_EQ(world.completions[0].opcode, Opcode::kRevoke);
    EXPECT_TRUE(world.verbs.send_chains.empty());
    EXPECT_EQ(world.verbs.windows_alive, 0u);
    EXPECT_EQ(world.verbs.registrations.size(), 1u);
    EXPECT_EQ(world.verbs.created.cap.max_send_wr, 8u + 1);
    world.verbs.AsyncEvent(IBV_EVENT_QP_FATAL);
    world.Poll();
    world.qp->Revoke(key, 78);
    world.Poll(1);
    EXPECT_THAT(world.completions, ElementsAre(CompletionIs(77, kSuccess), CompletionIs(78, kFlushed)));
  }
}

TEST(VerbsPostingTest, WhereGrantsAreSharedNoPeerMayWriteForAllThat) {
  FakeWorld world({.grants = GrantKind::kShared}, {.send_depth = 8});
  const uint32_t rkey = world.qp->Grant(world.At(100, 200), QueuePair::Access::kWrite).value().rkey;
  EXPECT_EQ(world.verbs.registrations.back(), int{IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE});
  EXPECT_EQ(world.verbs.memory_regions.size(), 2u);
  world.qp->Revoke(rkey, 1);
  EXPECT_EQ(world.verbs.memory_regions.size(), 1u);
}

TEST(VerbsPostingTest, NoRegionThatIsSharedHasTheRkey0) {
  FakeWorld world({.grants = GrantKind::kShared}, {.send_depth = 8});
  world.verbs.next_key = 0;
  std::vector<uint8_t> memory(100);
  const std::unique_ptr<MemoryRegion> region = world.fabric->Register(memory.data(), memory.size()).value();
  EXPECT_EQ(world.verbs.memory_regions.size(), 2u);
  EXPECT_NE(world.qp->Grant({memory.data(), 100, region->lkey()}, QueuePair::Access::kRead).value().rkey, 0u);
}

TEST(VerbsPostingTest, ADeviceWithoutWindowsIsNotUsedByAProgramThatWantsThem) {
  FakeVerbs verbs({.windows = false});
  const absl::Status status =
      NewVerbsFabric({.device = "fake0", .grants = GrantKind::kWindows, .library = &verbs.library()})
          .status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("fake0"), HasSubstr("rdma_grants")));
}

TEST(VerbsPostingTest, TheDeviceSaysOnWhichNumaNodeItIs) {
  const std::string folder = ::testing::TempDir() + "/fake0";
  std::filesystem::create_directories(folder + "/device");
  const std::pair<const char*, int> written[] = {
      {"1\n", 1}, {"0\n", 0}, {"-1\n", -1}, {"-7\n", -1}, {"", -1}};
  for (const auto& [text, node] : written) {
    std::ofstream(folder + "/device/numa_node") << text;
    EXPECT_EQ(FakeWorld({.folder = folder}, {}).fabric->numa_node(), node) << text;
  }
  EXPECT_EQ(FakeWorld({.folder = "/nowhere"}, {}).fabric->numa_node(), -1);
}

// One for each poller. With one for all, the interrupts of all pollers that sleep would go to one core.
TEST(VerbsPostingTest, CompletionQueuesAreSpreadOverTheVectorsOfTheDevice) {
  for (const auto& [count, vectors] :
       {std::pair(2, std::vector<int>{0, 1, 0}), std::pair(1, std::vector<int>{0, 0, 0}),
        std::pair(0, std::vector<int>{0, 0, 0}), std::pair(-3, std::vector<int>{0, 0, 0})}) {
    FakeWorld world({.num_comp_vectors = count});
    const auto second = world.fabric->CreateCompletionQueue(64).value();
    const auto third = world.fabric->CreateCompletionQueue(64).value();
    EXPECT_EQ(world.verbs.vectors, vectors);
  }
}

// mlx5 refuses to bind it, which would end the connection.
TEST(VerbsPostingTest, MoreThanAWindowHoldsIsRefusedBeforeItIsPosted) {
  constexpr uint32_t kMost = uint32_t{1} << 31;
  constexpr size_t kBytes = size_t{3} << 30;
  void* const memory = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  for (const bool windows : {true, false}) {
    FakeWorld world({.windows = windows});
    auto* const address = static_cast<uint8_t*>(memory);
    const auto region = world.fabric->Register(address, kBytes).value();
    EXPECT_THAT(world.qp->Grant({address, kMost, region->lkey()}, QueuePair::Access::kRead), IsOk());
    const absl::Status more =
        world.qp->Grant({address, kMost + 1, region->lkey()}, QueuePair::Access::kRead).status();
    world.Poll();
    EXPECT_THAT(world.news.told, ElementsAre("established"));
    if (!windows) {
      EXPECT_THAT(more, IsOk());
      world.qp->Disconnect();
      world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
      continue;
    }
    EXPECT_THAT(more, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(more.message()),
                AllOf(HasSubstr("2147483649 bytes"), HasSubstr("at most 2147483648")));
    world.qp->Disconnect();
    world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
  }
  munmap(memory, kBytes);
}

TEST_P(VerbsPostingOnNicTest, SteadyStateRegistersNothing) {
  FakeWorld world(nic());
  for (uint64_t i = 0; i < 1000; ++i) {
    ASSERT_THAT(world.Receive(i), IsOk());
    ASSERT_THAT(world.Post(i, /*signaled=*/i % 4 == 3), IsOk());
    world.verbs.CompleteReceives(1);
    world.verbs.CompleteSends(1);
    world.Poll(1);
  }
  EXPECT_EQ(world.verbs.registrations.size(), 1u);
  EXPECT_EQ(world.verbs.send_chains.size(), 1000u);
  EXPECT_EQ(world.verbs.receive_chains.size(), 1000u);
  EXPECT_EQ(world.completions.size(), 1000u + 250u);
}

}  // namespace
}  // namespace hawser::fabric
