#include "hawser/tests/transport/fabric/grant_cycles.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::fabric {
namespace {

using ::testing::ElementsAre;

constexpr CompletionStatus kSuccess = CompletionStatus::kSuccess;

constexpr size_t kMessageAt = 1000;  // Where a SEND is taken from, and received.
constexpr uint32_t kMessageBytes = 8;

void ReadGrant(FabricWorld& world, FabricWorld::Pair& pair, const Granted& granted, const std::string& text) {
  ASSERT_THAT(pair.a.Read(1, pair.a.At(0, static_cast<uint32_t>(text.size())), granted), IsOk());
  HAWSER_UNTIL(world, !pair.a.sends.empty());
  ASSERT_THAT(pair.a.sends, ElementsAre(CompletionIs(1, kSuccess)));
  EXPECT_EQ(pair.a.Text(0, text.size()), text);
  pair.a.sends.clear();
}

void EndGrant(FabricWorld& world, FabricWorld::Pair& pair, const Granted& granted) {
  ASSERT_THAT(pair.b.Receive(3, pair.b.At(kMessageAt, kMessageBytes)), IsOk());
  const Sge sge = pair.a.At(kMessageAt, kMessageBytes);
  const SendWorkRequest send = {.wr_id = 4, .signaled = true, .sges = {&sge, 1}, .rkey = granted.rkey};
  ++pair.a.sends_posted;
  ASSERT_THAT(pair.a.qp().PostSend({&send, 1}), IsOk());
  HAWSER_UNTIL(world, !pair.b.receives.empty() && !pair.a.sends.empty());
  ASSERT_THAT(pair.b.receives, ElementsAre(CompletionIs(3, kSuccess)));
  ASSERT_THAT(pair.a.sends, ElementsAre(CompletionIs(4, kSuccess)));
  pair.b.receives.clear();
  pair.a.sends.clear();
}

void RevokeGrant(FabricWorld& world, FabricWorld::Pair& pair, const Granted& granted) {
  pair.b.Revoke(2, granted.rkey);
  HAWSER_UNTIL(world, !pair.b.revocations.empty());
  ASSERT_THAT(pair.b.revocations, ElementsAre(CompletionIs(2, kSuccess)));
  pair.b.revocations.clear();
}

}  // namespace

std::string GrantCycles::ToString() const {
  return absl::StrCat(revoked + ended, " grants were made, used and revoked; a SEND of the peer has ended ",
                      ended, " of them (SEND_WITH_INV)");
}

GrantCycles CycleGrants(FabricWorld& world, int cycles) {
  FabricWorld::Pair pair = world.Connect();
  GrantCycles done;
  for (int cycle = 0; cycle < cycles; ++cycle) {
    SCOPED_TRACE(cycle);
    const std::string text = absl::StrCat("bytes of cycle ", cycle);
    pair.b.Fill(0, text);
    const Granted granted =
        pair.b.Grant(pair.b.At(0, static_cast<uint32_t>(text.size())), QueuePair::Access::kRead);
    ReadGrant(world, pair, granted, text);
    const bool ends = world.fabric().sends_end_grants() && cycle % 2 != 0;
    if (ends && !testing::Test::HasFailure()) EndGrant(world, pair, granted);
    if (testing::Test::HasFailure()) return done;
    RevokeGrant(world, pair, granted);
    if (testing::Test::HasFailure()) return done;
    ++(ends ? done.ended : done.revoked);
  }
  return done;
}

}  // namespace hawser::fabric
