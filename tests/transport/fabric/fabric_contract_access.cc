// READs and WRITEs, and the grants that they need.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/contract_suites.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {
namespace {

using ::testing::HasSubstr;

class AccessContractTest : public FabricContract {};
HAWSER_INSTANTIATE(AccessContractTest, FabricsUnderTest());
class SharedGrantTest : public FabricContract {};
HAWSER_INSTANTIATE(SharedGrantTest, Where(&FabricUnderTest::grants_are_shared));
HAWSER_SUITE_WITHOUT(ConfinedGrantTest, grants_are_not_confined);
HAWSER_SUITE_WITHOUT(BoundRkeyTest, rkeys_are_for_everybody);
HAWSER_SUITE_WITHOUT(ScatteringReadTest, read_has_one_sge);
HAWSER_SUITE_WITHOUT(RevocationTest, a_read_goes_on_when_revoked);

TEST_P(AccessContractTest, AReadBringsExactlyTheBytesAskedFor) {
  const uint32_t max = (GetParam().emulated ? 5 : 16) << 20;
  auto [a, b] = world_.Connect({}, max + 64);
  FillPattern(b, 3);
  const Granted granted = b.Grant(b.At(0, static_cast<uint32_t>(b.memory_bytes())), QueuePair::Access::kRead);
  uint64_t wr_id = 0;
  for (uint32_t length : {1u, 2u, 23u, 24u, 25u, 511u, 512u, 513u, 4096u, 65535u, 65536u, 65537u, 131071u,
                          131072u, 131073u, 1u << 20, (3u << 20) + 1, max}) {
    FillPattern(a, length, std::min(length + 64, 100000u));
    const uint8_t before = a.memory()[6], after = a.memory()[7 + length];
    ASSERT_THAT(a.Read(++wr_id, a.At(7, length), granted, 13), IsOk());
    HAWSER_UNTIL(world_, a.sends.size() == wr_id);
    ASSERT_THAT(a.sends.back(), CompletionIs(wr_id, kSuccess));
    ASSERT_EQ(std::memcmp(a.memory() + 7, b.memory() + 13, length), 0) << length;
    ASSERT_EQ(a.memory()[6], before);
    ASSERT_EQ(a.memory()[7 + length], after);
  }
}

TEST_P(AccessContractTest, MemoryOfAnyKindIsARegionOrRefusedWithTheReason) {
  using Kind = MemoryRange::Kind;
  auto [a, b] = world_.Connect();
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<uint8_t> memory(2 * page_bytes);
  for (const Kind kind : {Kind::kHost, Kind::kOnDemand}) {
    const absl::StatusOr<std::unique_ptr<MemoryRegion>> region = world_.fabric().RegisterRange(
        {.kind = kind, .address = memory.data(), .length_bytes = memory.size()});
    if (kind == Kind::kOnDemand && absl::IsUnimplemented(region.status())) {
      EXPECT_THAT(std::string(region.status().message()), HasSubstr("register memory on demand"));
      continue;
    }
    ASSERT_THAT(region.status(), IsOk());
    FillPattern(b, 5, 100);
    std::fill(memory.begin(), memory.end(), 'k');
    const Granted granted = b.Grant(b.At(0, 100), QueuePair::Access::kRead);
    ASSERT_THAT(a.Read(7, {memory.data() + 10, 100, (*region)->lkey()}, granted), IsOk());
    const size_t done = a.sends.size();
    HAWSER_UNTIL(world_, a.sends.size() == done + 1);
    EXPECT_THAT(a.sends.back(), CompletionIs(7, kSuccess));
    EXPECT_TRUE(std::equal(memory.begin() + 10, memory.begin() + 110, b.At(0, 100).address));
    EXPECT_EQ(memory[9], 'k');
    EXPECT_EQ(memory[110], 'k');
    EXPECT_THAT(a.Send(8, {memory.data() + 1, static_cast<uint32_t>(memory.size()), (*region)->lkey()}),
                HasCode(absl::StatusCode::kInvalidArgument));
  }
  // A file that is no dma-buf: the fabric knows none, or the kernel does not take it.
  const int fd = memfd_create("no dma-buf", MFD_CLOEXEC);
  const absl::Status dmabuf = world_.fabric()
                                  .RegisterRange({.kind = Kind::kDmabuf,
                                                  .address = memory.data(),
                                                  .length_bytes = 1,
                                                  .dmabuf_fd = fd,
                                                  .dmabuf_offset = page_bytes + 1})
                                  .status();
  close(fd);
  EXPECT_FALSE(dmabuf.ok());
  EXPECT_FALSE(dmabuf.message().empty());
  EXPECT_THAT(world_.fabric().RegisterRange({.address = memory.data()}).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_P(ScatteringReadTest, AReadScattersOverItsSegments) {
  auto [a, b] = world_.Connect({}, 1 << 20);
  FillPattern(b, 4);
  const Granted granted = b.Grant(b.At(0, 1 << 20), QueuePair::Access::kRead);
  const Sge sges[] = {a.At(500000, 3), a.At(0, 200000), a.At(300000, 1), a.At(600000, 131072)};
  const SendWorkRequest request = {.wr_id = 1,
                                   .opcode = Opcode::kRead,
                                   .signaled = true,
                                   .sges = sges,
                                   .remote_address = granted.address,
                                   .rkey = granted.rkey};
  ASSERT_THAT(a.qp().PostSend({&request, 1}), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 1);
  const uint8_t* source = b.memory();
  for (const Sge& sge : sges) {
    EXPECT_EQ(std::memcmp(sge.address, source, sge.length), 0);
    source += sge.length;
  }
}

TEST_P(AccessContractTest, ReadsBeyondTheReadDepthWaitTheirTurn) {
  auto [a, b] = world_.Connect({.send_depth = 32, .receive_depth = 32, .read_depth = 3}, 1 << 20);
  FillPattern(b, 5);
  const Granted granted = b.Grant(b.At(0, 1 << 20), QueuePair::Access::kRead);
  constexpr uint32_t kLength = 50000;
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_THAT(a.Read(i, a.At(i * kLength, kLength), granted, i * kLength), IsOk());
  }
  HAWSER_UNTIL(world_, a.sends.size() == 20);
  for (uint64_t i = 0; i < 20; ++i) ASSERT_THAT(a.sends[i], CompletionIs(i, kSuccess));
  EXPECT_EQ(std::memcmp(a.memory(), b.memory(), 20 * kLength), 0);
}

TEST_P(AccessContractTest, SendsBothWaysGoOnDuringOutstandingReads) {
  constexpr uint32_t kReads = 4, kBytes = 2 << 20;
  auto [a, b] =
      world_.Connect({.send_depth = 128, .receive_depth = 128, .read_depth = kReads}, (kReads + 1) * kBytes);
  FillPattern(b, 6);
  const Granted granted = b.Grant(b.At(0, kReads * kBytes), QueuePair::Access::kRead);
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_THAT(a.Receive(i, a.At(kReads * kBytes + i * 1000, 1000)), IsOk());
    ASSERT_THAT(b.Receive(i, b.At(kReads * kBytes + i * 1000, 1000)), IsOk());
  }
  for (uint64_t i = 0; i < kReads; ++i) {
    ASSERT_THAT(a.Read(i, a.At(i * kBytes, kBytes), granted, i * kBytes), IsOk());
  }
  a.Fill(kReads * kBytes + 100000, "ping");
  b.Fill(kReads * kBytes + 100000, "pong");
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_THAT(a.Send(100 + i, a.At(kReads * kBytes + 100000, 4)), IsOk());
    ASSERT_THAT(b.Send(100 + i, b.At(kReads * kBytes + 100000, 4)), IsOk());
    world_.PollOnce();
  }
  HAWSER_UNTIL(world_, a.sends.size() == kReads + 50 && b.sends.size() == 50 && a.receives.size() == 50 &&
                           b.receives.size() == 50);
  EXPECT_EQ(std::memcmp(a.memory(), b.memory(), kReads * kBytes), 0);
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(a.Text(kReads * kBytes + i * 1000, 4), "pong");
    EXPECT_EQ(b.Text(kReads * kBytes + i * 1000, 4), "ping");
  }
}

TEST_P(AccessContractTest, AWriteIsVisibleOnceALaterSendWasReceived) {
  auto [a, b] = world_.Connect({}, 4 << 20);
  FillPattern(a, 7);
  const Granted granted = b.Grant(b.At(100, 3 << 20), QueuePair::Access::kWrite);
  size_t received = 0;
  for (uint32_t length : {1u, 100u, 512u, 513u, 70000u, 3u << 20}) {
    std::memset(b.memory(), 0, b.memory_bytes());
    ASSERT_THAT(b.Receive(1, b.At(b.memory_bytes() - 10, 10)), IsOk());
    ASSERT_THAT(a.Write(1, a.At(5, length), granted, 0, /*signaled=*/false), IsOk());
    ASSERT_THAT(a.Send(2, a.At(0, 1)), IsOk());
    ++received;
    HAWSER_UNTIL(world_, b.receives.size() == received);
    ASSERT_EQ(std::memcmp(b.memory() + 100, a.memory() + 5, length), 0) << length;
    ASSERT_EQ(b.memory()[99], 0);
    ASSERT_EQ(b.memory()[100 + length], 0);
    HAWSER_UNTIL(world_, a.sends.size() == received);
  }
}

// What is wrong with a READ or WRITE, as seen from what was granted: [1000, 2000) of the memory.
struct BadAccess {
  const char* name;
  int64_t offset;  // From the start of what was granted.
  uint32_t length;
};
constexpr BadAccess kBadAccesses[] = {
    {"one byte too far", 0, 1001},  {"one byte too early", -1, 10}, {"behind the end", 1000, 1},
    {"across the end", 999, 2},     {"before the start", -10, 10},  {"round the address space", -1001, 1000},
    {"in another page", 4096, 100},
};

TEST_P(ConfinedGrantTest, AReadOutsideItsGrantFailsTheRequesterAndChangesNothing) {
  for (const BadAccess& bad : kBadAccesses) {
    SCOPED_TRACE(bad.name);
    auto [a, b] = world_.Connect();
    FillPattern(a, 8);
    const std::vector<uint8_t> before = Snapshot(a);
    const Granted granted = b.Grant(b.At(1000, 1000), QueuePair::Access::kRead);
    ASSERT_THAT(b.Receive(3, b.At(0, 100)), IsOk());
    ASSERT_THAT(a.Read(1, a.At(0, bad.length), granted, bad.offset), IsOk());
    ASSERT_THAT(a.Send(2, a.At(0, 1)), IsOk());
    ExpectRefused(a, 0, 1);
    if (!shortcomings().requester_is_not_told) {
      HAWSER_UNTIL(world_, a.sends.size() == 2 && b.receives.size() == 1);
      EXPECT_THAT(a.sends[1], CompletionIs(2, kFlushed));
      EXPECT_THAT(b.receives[0], CompletionIs(3, kFlushed));
    }
    HAWSER_UNTIL(world_, b.receives.size() == 1);
    EXPECT_EQ(Snapshot(a), before);
    // A device may say after the flush that the connection has ended.
    HAWSER_UNTIL(world_, absl::IsFailedPrecondition(b.Send(9, b.At(0, 1))));
  }
}

TEST_P(ConfinedGrantTest, AWriteOutsideItsGrantFailsTheRequesterAndChangesNothing) {
  for (const BadAccess& bad : kBadAccesses) {
    SCOPED_TRACE(bad.name);
    auto [a, b] = world_.Connect();
    FillPattern(a, 9);
    FillPattern(b, 10);
    const std::vector<uint8_t> before = Snapshot(b);
    const Granted granted = b.Grant(b.At(1000, 1000), QueuePair::Access::kWrite);
    ASSERT_THAT(b.Receive(3, b.At(0, 100)), IsOk());
    ASSERT_THAT(a.Write(1, a.At(0, bad.length), granted, bad.offset), IsOk());
    ExpectRefused(a, 0, 1);
    HAWSER_UNTIL(world_, b.receives.size() == 1);
    EXPECT_THAT(b.receives[0], CompletionIs(3, kFlushed));
    EXPECT_EQ(Snapshot(b), before);
  }
}

TEST_P(BoundRkeyTest, AnRkeyOfAnotherQueuePairIsRefused) {
  auto [a, b] = world_.Connect();
  auto [c, d] = world_.Connect();
  const Granted granted = d.Grant(d.At(0, 1000), QueuePair::Access::kRead);  // For c, not for a.
  ASSERT_THAT(a.Read(1, a.At(0, 10), granted), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 1);
  EXPECT_THAT(a.sends[0], CompletionIs(1, CompletionStatus::kRemoteAccessError));
  ASSERT_THAT(c.Read(1, c.At(0, 10), granted), IsOk());
  HAWSER_UNTIL(world_, c.sends.size() == 1);
  EXPECT_THAT(c.sends[0], CompletionIs(1, kSuccess));
}

TEST_P(AccessContractTest, ARevokedRkeyIsRefused) {
  auto [a, b] = world_.Connect();
  const Granted revoked = b.Grant(b.At(0, 1000), QueuePair::Access::kWrite);
  ASSERT_THAT(a.Write(1, a.At(0, 10), revoked), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 1);
  b.Revoke(1, revoked.rkey);
  HAWSER_UNTIL(world_, b.revocations.size() == 1);
  EXPECT_THAT(b.revocations[0], CompletionIs(1, kSuccess));
  const Granted granted = b.Grant(b.At(0, 1000), QueuePair::Access::kWrite);
  EXPECT_NE(granted.rkey, revoked.rkey);
  ASSERT_THAT(a.Write(2, a.At(0, 10), granted), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 2);
  EXPECT_THAT(a.sends[1], CompletionIs(2, kSuccess));
  FillPattern(b, 11);
  const std::vector<uint8_t> before = Snapshot(b);
  ASSERT_THAT(a.Write(3, a.At(0, 10), revoked), IsOk());
  ExpectRefused(a, 2, 3);
  EXPECT_EQ(Snapshot(b), before);
}

TEST_P(AccessContractTest, AGrantIsForReadingOrForWritingNotForBoth) {
  {
    auto [a, b] = world_.Connect();
    const Granted granted = b.Grant(b.At(0, 1000), QueuePair::Access::kRead);
    ASSERT_THAT(a.Write(1, a.At(0, 10), granted), IsOk());
    ExpectRefused(a, 0, 1);
  }
  auto [a, b] = world_.Connect();
  const Granted granted = b.Grant(b.At(0, 1000), QueuePair::Access::kRead);
  ASSERT_THAT(a.Read(1, a.At(0, 10), {granted.address, 0}), IsOk());  // 0 is never an rkey.
  ExpectRefused(a, 0, 1);
}

// A NIC needs the address of the memory. Other fabrics give one that says nothing of it, and take no other.
TEST_P(AccessContractTest, OnlyANicTellsWhereMemoryIs) {
  constexpr uint32_t kBytes = 1000, kDistance = 8192;
  auto [a, b] = world_.Connect();
  const auto memory = reinterpret_cast<uint64_t>(b.memory());
  const Granted first = b.Grant(b.At(0, kBytes), QueuePair::Access::kRead);
  const Granted second = b.Grant(b.At(kDistance, kBytes), QueuePair::Access::kRead);
  if (GetParam().real_addresses) {
    EXPECT_EQ(first.address, memory);
    EXPECT_EQ(second.address, memory + kDistance);
    return;
  }
  for (const Granted& granted : {first, second}) {
    // Beyond what programs of x86-64 and arm64 usually have.
    EXPECT_GE(granted.address, uint64_t{1} << 48);
    EXPECT_LE(granted.address, ~uint64_t{0} - kBytes);
  }
  EXPECT_NE(second.address - first.address, kDistance);
  ASSERT_THAT(a.Read(1, a.At(0, kBytes), {memory, first.rkey}), IsOk());
  ExpectRefused(a, 0, 1);
}

// What a hostile peer can try for memory at `address`, of `lkey`. A guess that is wrong ends the connection.
std::vector<uint32_t> KeysToGuess(const FabricUnderTest& under_test, const uint8_t* address, uint32_t lkey) {
  std::vector<uint32_t> keys = {lkey, 1, 2};
  if (under_test.device_keys) {
    keys = under_test.device_keys(address);
    EXPECT_FALSE(keys.empty());
  }
  return keys;
}

TEST_P(AccessContractTest, MemoryThatWasNeverGrantedIsNotWrittenWhateverTheKey) {
  Endpoint& victim = world_.NewEndpoint(1);
  FillPattern(victim, 14);
  const std::vector<uint8_t> before = Snapshot(victim);
  for (uint32_t key : KeysToGuess(GetParam(), victim.memory(), victim.At(0, 1).lkey)) {
    // To the process that has it, over its own connection or another.
    auto [a, b] = world_.Connect();
    FillPattern(b, 15);
    const std::vector<uint8_t> others = Snapshot(b);
    ASSERT_THAT(a.Write(1, a.At(0, 10), {reinterpret_cast<uint64_t>(victim.memory()), key}), IsOk());
    ExpectRefused(a, 0, 1);
    EXPECT_EQ(Snapshot(victim), before);
    EXPECT_EQ(Snapshot(b), others);
  }
  auto [a, b] = world_.Connect();
  FillPattern(b, 16);
  const std::vector<uint8_t> own = Snapshot(b);
  const uint32_t key = KeysToGuess(GetParam(), b.memory(), b.At(0, 1).lkey).back();
  ASSERT_THAT(a.Write(1, a.At(0, 10), {reinterpret_cast<uint64_t>(b.memory()), key}), IsOk());
  ExpectRefused(a, 0, 1);
  EXPECT_EQ(Snapshot(b), own);
}

// On iWARP the peer learns the key of a READ's sink.
TEST_P(AccessContractTest, WhatWasReadIntoIsNotWrittenOnceItsReadHasCompleted) {
  for (bool is_open : {false, true}) {
    std::vector<uint32_t> keys;
    for (size_t i = 0; i == 0 || i < keys.size(); ++i) {
      auto [a, b] = world_.Connect();
      FillPattern(b, 17);
      const Granted granted = b.Grant(b.At(0, 2000), QueuePair::Access::kRead);
      if (is_open) a.qp().OpenSink(a.memory() + 100, 2000);
      ASSERT_THAT(a.Read(1, a.At(100, 1000), granted), IsOk());
      HAWSER_UNTIL(world_, a.sends.size() == 1);
      ASSERT_THAT(a.Read(2, a.At(1100, 1000), granted, 1000), IsOk());
      HAWSER_UNTIL(world_, a.sends.size() == 2);
      EXPECT_EQ(std::memcmp(a.memory() + 100, b.memory(), 2000), 0);
      if (is_open) a.qp().CloseSink(a.memory() + 100);
      keys = KeysToGuess(GetParam(), a.memory() + 100, a.At(0, 1).lkey);
      const std::vector<uint8_t> before = Snapshot(a);
      FillPattern(b, 18);
      ASSERT_THAT(b.Write(3, b.At(0, 10), {reinterpret_cast<uint64_t>(a.memory() + 100), keys[i]}), IsOk());
      ExpectRefused(b, 0, 3);
      EXPECT_EQ(Snapshot(a), before);
    }
  }
}

TEST_P(AccessContractTest, ReadsIntoAnOpenSinkBringTheirBytes) {
  constexpr uint32_t kBytes = 300'000, kPiece = 70'000;
  auto [a, b] = world_.Connect({.send_depth = 16}, kBytes + 100);
  FillPattern(b, 19);
  const Granted granted = b.Grant(b.At(0, kBytes), QueuePair::Access::kRead);
  uint64_t wr_id = 0;
  for (int round = 0; round < 2; ++round) {
    std::memset(a.memory(), 0, a.memory_bytes());
    a.qp().OpenSink(a.memory() + 50, kBytes);
    for (uint32_t at = 0; at < kBytes; at += kPiece) {
      ASSERT_THAT(a.Read(++wr_id, a.At(50 + at, std::min(kPiece, kBytes - at)), granted, at), IsOk());
      if (at == 2 * kPiece) HAWSER_UNTIL(world_, a.sends.size() == wr_id);
    }
    HAWSER_UNTIL(world_, a.sends.size() == wr_id);
    EXPECT_EQ(std::memcmp(a.memory() + 50, b.memory(), kBytes), 0);
    EXPECT_EQ(a.memory()[49], 0);
    EXPECT_EQ(a.memory()[50 + kBytes], 0);
    a.qp().CloseSink(a.memory() + 50);
  }
  a.qp().OpenSink(a.memory(), kBytes);
  ASSERT_THAT(a.Read(++wr_id, a.At(0, kBytes), granted), IsOk());
  world_.ExpectEverythingComesBack(a);
}

TEST_P(ConfinedGrantTest, TheAddressOfOneGrantWithTheRkeyOfAnotherIsRefused) {
  auto [a, b] = world_.Connect();
  const Granted first = b.Grant(b.At(0, 1000), QueuePair::Access::kRead);
  const Granted second = b.Grant(b.At(1000, 1000), QueuePair::Access::kRead);
  ASSERT_THAT(a.Read(1, a.At(0, 10), {first.address, second.rkey}), IsOk());
  ExpectRefused(a, 0, 1);
}

TEST_P(AccessContractTest, AsManyGrantsAsSendsArePossibleAtOnce) {
  auto [a, b] = world_.Connect({.send_depth = 24});
  std::vector<uint32_t> rkeys;
  for (uint32_t i = 0; i < 24; ++i) {
    rkeys.push_back(b.qp().Grant(b.At(i * 100, 100), QueuePair::Access::kRead).value().rkey);
  }
  EXPECT_THAT(rkeys, ::testing::Not(::testing::Contains(0u)));
  std::sort(rkeys.begin(), rkeys.end());
  const auto distinct = std::unique(rkeys.begin(), rkeys.end()) - rkeys.begin();
  EXPECT_EQ(distinct, GetParam().grants_are_shared ? 1 : 24);
  b.Revoke(1, rkeys[0]);
  HAWSER_UNTIL(world_, b.revocations.size() == 1);
  EXPECT_THAT(b.qp().Grant(b.At(0, 10), QueuePair::Access::kWrite), IsOk());
}

// What a program gives up that chooses this.
TEST_P(SharedGrantTest, WhatIsGrantedIsTheRegionForEverybodyAndForEver) {
  auto [a, b] = world_.Connect();
  auto [c, d] = world_.Connect();
  FillPattern(b, 20);
  const Granted granted = b.Grant(b.At(1000, 1000), QueuePair::Access::kRead);
  ASSERT_THAT(a.Read(1, a.At(0, 2000), granted, -1000), IsOk()) << "around the range";
  ASSERT_THAT(c.Read(1, c.At(0, 2000), granted), IsOk()) << "of another connection";
  HAWSER_UNTIL(world_, a.sends.size() == 1 && c.sends.size() == 1);
  EXPECT_THAT(a.sends[0], CompletionIs(1, kSuccess));
  EXPECT_THAT(c.sends[0], CompletionIs(1, kSuccess));
  EXPECT_EQ(std::memcmp(a.memory(), b.memory(), 2000), 0);
  EXPECT_EQ(std::memcmp(c.memory(), b.memory() + 1000, 2000), 0);
  b.Revoke(2, granted.rkey);
  HAWSER_UNTIL(world_, b.revocations.size() == 1);
  EXPECT_THAT(b.revocations[0], CompletionIs(2, kSuccess));
  FillPattern(b, 21);
  ASSERT_THAT(a.Read(3, a.At(0, 1000), granted), IsOk()) << "after its revocation";
  HAWSER_UNTIL(world_, a.sends.size() == 2);
  EXPECT_THAT(a.sends[1], CompletionIs(3, kSuccess));
  EXPECT_EQ(std::memcmp(a.memory(), b.memory() + 1000, 1000), 0);
}

TEST_P(AccessContractTest, WithoutAPeerNothingIsGranted) {
  Endpoint& idle = world_.NewEndpoint(0);
  EXPECT_THAT(idle.qp().Grant(idle.At(0, 10), QueuePair::Access::kRead).status(),
              HasCode(absl::StatusCode::kFailedPrecondition));
  auto [a, b] = world_.Connect();
  b.qp().Disconnect();
  EXPECT_THAT(b.qp().Grant(b.At(0, 10), QueuePair::Access::kRead).status(),
              HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_P(ConfinedGrantTest, AReadBeforeARefusedRequestSucceeds) {
  auto [a, b] = world_.Connect({}, 4 << 20);
  FillPattern(b, 12);
  const Granted granted = b.Grant(b.At(0, 3 << 20), QueuePair::Access::kRead);
  ASSERT_THAT(a.Read(1, a.At(0, 3 << 20), granted), IsOk());
  ASSERT_THAT(a.Read(2, a.At(0, 10), granted, 3 << 20), IsOk());
  ASSERT_THAT(a.Read(3, a.At(0, 10), granted), IsOk());
  HAWSER_UNTIL(world_, !a.sends.empty());
  const bool cut_off = shortcomings().refusals_overtake_reads && a.sends[0].status == kFlushed;
  if (!cut_off) {
    EXPECT_THAT(a.sends[0], CompletionIs(1, kSuccess));
  }
  ExpectRefused(a, 1, 2);
  if (shortcomings().requester_is_not_told) a.qp().Disconnect();
  HAWSER_UNTIL(world_, a.sends.size() == 3);
  EXPECT_THAT(a.sends[2], CompletionIs(3, kFlushed));
  EXPECT_TRUE(cut_off || std::memcmp(a.memory(), b.memory(), 3 << 20) == 0);
}

TEST_P(AccessContractTest, ARevocationTakesNoPlaceOfTheSendQueueAndComesBackAfterTheEndToo) {
  auto [a, b] = world_.Connect({.send_depth = 4});
  std::vector<uint32_t> rkeys;
  for (uint32_t i = 0; i < 4; ++i) {
    rkeys.push_back(b.qp().Grant(b.At(i * 100, 100), QueuePair::Access::kRead).value().rkey);
  }
  for (uint64_t i = 0; i < 4; ++i) ASSERT_THAT(a.Receive(i, a.At(1000 + 100 * i, 100)), IsOk());
  for (uint64_t i = 0; i < 4; ++i) ASSERT_THAT(b.Send(i, b.At(0, 100), /*signaled=*/i == 3), IsOk());
  b.Revoke(10, rkeys[0]);
  b.Revoke(11, rkeys[1]);
  HAWSER_UNTIL(world_, b.revocations.size() == 2 && b.sends.size() == 1);
  b.Revoke(12, rkeys[2]);
  b.qp().Disconnect();
  b.Revoke(13, rkeys[3]);
  b.sends_posted = 1;  // Those that were not signaled do not come back.
  world_.ExpectEverythingComesBack(b);
  std::vector<uint64_t> wr_ids;
  for (const Completion& completion : b.revocations) wr_ids.push_back(completion.wr_id);
  EXPECT_THAT(wr_ids, ::testing::UnorderedElementsAre(10, 11, 12, 13));
}

// A SEND of 8 bytes that ends `rkey`.
absl::Status SendThatEnds(Endpoint& from, uint64_t wr_id, uint32_t rkey) {
  const Sge sge = from.At(0, 8);
  const SendWorkRequest request = {.wr_id = wr_id, .signaled = true, .sges = {&sge, 1}, .rkey = rkey};
  ++from.sends_posted;
  return from.qp().PostSend({&request, 1});
}

class EndingSendTest : public FabricContract {
 protected:
  void SetUp() override {
    if (!world_.fabric().sends_end_grants()) GTEST_SKIP() << "Fabric::sends_end_grants()";
  }
};
HAWSER_INSTANTIATE(EndingSendTest, FabricsUnderTest());

TEST_P(EndingSendTest, WhatASendOfThePeerHasEndedThePeerCannotReadAndIsRevokedAsAnyOther) {
  auto [a, b] = world_.Connect();
  FillPattern(b, 22);
  const Granted one = b.Grant(b.At(0, 1000), QueuePair::Access::kRead);
  const Granted another = b.Grant(b.At(1000, 1000), QueuePair::Access::kRead);
  ASSERT_THAT(a.Read(1, a.At(100, 1000), one), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 1);
  ASSERT_THAT(b.Receive(1, b.At(5000, 100)), IsOk());
  ASSERT_THAT(SendThatEnds(a, 2, one.rkey), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 1 && a.sends.size() == 2);
  EXPECT_THAT(b.receives[0], CompletionIs(1, kSuccess));
  EXPECT_EQ(b.receives[0].byte_len, 8u);
  EXPECT_THAT(a.sends[1], CompletionIs(2, kSuccess));
  ASSERT_THAT(a.Read(3, a.At(100, 1000), another), IsOk()) << "of the other grant";
  HAWSER_UNTIL(world_, a.sends.size() == 3);
  EXPECT_THAT(a.sends[2], CompletionIs(3, kSuccess));
  EXPECT_EQ(std::memcmp(a.memory() + 100, b.memory() + 1000, 1000), 0);
  b.Revoke(4, one.rkey);
  b.Revoke(5, another.rkey);
  HAWSER_UNTIL(world_, b.revocations.size() == 2);
  for (const Completion& completion : b.revocations) EXPECT_EQ(completion.status, kSuccess);
  // The next grant of the same memory has a key of its own.
  const Granted next = b.Grant(b.At(0, 1000), QueuePair::Access::kRead);
  EXPECT_NE(next.rkey, one.rkey);
  ASSERT_THAT(a.Read(6, a.At(100, 1000), next), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 4);
  EXPECT_THAT(a.sends[3], CompletionIs(6, kSuccess));
  ASSERT_THAT(a.Read(7, a.At(100, 1000), one), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 5);
  EXPECT_NE(a.sends[4].status, kSuccess);
}

TEST_P(EndingSendTest, ASendThatEndsWhatIsNotGrantedAnyMoreEndsTheConnection) {
  for (bool revoked : {true, false}) {
    auto [a, b] = world_.Connect();
    const Granted granted = b.Grant(b.At(0, 1000), QueuePair::Access::kRead);
    for (uint64_t i = 0; i < 3; ++i) ASSERT_THAT(b.Receive(i, b.At(5000 + 100 * i, 100)), IsOk());
    if (revoked) {
      b.Revoke(4, granted.rkey);
      HAWSER_UNTIL(world_, b.revocations.size() == 1);
    } else {
      ASSERT_THAT(SendThatEnds(a, 1, granted.rkey), IsOk());
      HAWSER_UNTIL(world_, a.sends.size() == 1 && b.receives.size() == 1);
    }
    const size_t before = a.sends.size();
    ASSERT_THAT(SendThatEnds(a, 2, granted.rkey), IsOk());
    HAWSER_UNTIL(world_, a.sends.size() == before + 1);
    EXPECT_NE(a.sends[before].status, kSuccess);
    world_.ExpectEverythingComesBack(a);
    world_.ExpectEverythingComesBack(b);
  }
}

TEST_P(RevocationTest, WhatIsRevokedWhileItIsReadIsReadWholeOrNotAtAll) {
  auto [a, b] = world_.Connect({}, 16 << 20);
  FillPattern(b, 13);
  const std::vector<uint8_t> before = Snapshot(b);
  const Granted granted = b.Grant(b.At(0, 16 << 20), QueuePair::Access::kRead);
  ASSERT_THAT(a.Read(1, a.At(0, 16 << 20), granted), IsOk());
  world_.PollOnce();
  b.Revoke(1, granted.rkey);
  HAWSER_UNTIL(world_, b.revocations.size() == 1);
  std::memset(b.memory(), 0, b.memory_bytes());
  // Never a success with bytes from after the revocation.
  HAWSER_UNTIL(world_, a.sends.size() == 1 || a.news().ended());
  world_.ExpectEverythingComesBack(a);
  EXPECT_TRUE(a.sends[0].status != kSuccess || Snapshot(a) == before);
}

}  // namespace
}  // namespace hawser::fabric
