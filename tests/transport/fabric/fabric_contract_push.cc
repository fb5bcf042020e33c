// Pushes: what a peer may READ, sent ahead.
#include <cstdint>
#include <cstring>
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

class PushContractTest : public FabricContract {
 protected:
  static constexpr size_t kMemory = 1 << 20;
  static constexpr size_t kData = 4096;  // Where what is pushed is, and goes to.

  // `from` says "look", and pushes `length` bytes behind it. The last Poll() before this returns tells `to`
  // of them. Returns the grant.
  Granted Announce(Endpoint& from, Endpoint& to, uint32_t length) {
    const Granted granted = from.Grant(from.At(kData, length), QueuePair::Access::kRead);
    const size_t before = to.receives.size();
    EXPECT_THAT(to.Receive(before, to.At(0, 100)), IsOk());
    from.Fill(0, "look");
    EXPECT_THAT(from.Send(100 + before, from.At(0, 4), /*signaled=*/false), IsOk());
    EXPECT_THAT(from.Push(200 + before, from.At(kData, length), granted), IsOk());
    HAWSER_UNTIL(world_, to.receives.size() > before);
    return granted;
  }
};
HAWSER_INSTANTIATE(PushContractTest, Where(&FabricUnderTest::pushes));

TEST_P(PushContractTest, WhatIsTakenIsThereWithoutARead) {
  auto [a, b] = world_.Connect({}, kMemory);
  FillPattern(a, 1);
  for (const uint32_t length : {1u, 24u, 4096u, 8192u, 10000u, 65536u, 135168u}) {
    std::memset(b.memory(), 0, b.memory_bytes());
    const size_t before = b.sends.size();
    const Granted granted = Announce(a, b, length);
    ASSERT_TRUE(b.TakePush(7, b.At(kData, length), granted)) << length;
    HAWSER_UNTIL(world_, b.sends.size() > before);
    EXPECT_THAT(b.sends.back(), CompletionIs(7, kSuccess));
    EXPECT_EQ(b.sends.back().opcode, Opcode::kRead);
    EXPECT_EQ(std::memcmp(b.memory() + kData, a.memory() + kData, length), 0) << length;
    EXPECT_EQ(b.memory()[kData + length], 0) << length;
    FillPattern(a, length);
  }
  // Each push has completed, and with it the SEND before it.
  HAWSER_UNTIL(world_, a.sends.size() == 7);
}

TEST_P(PushContractTest, WhatIsNotTakenIsDroppedAndCanBeRead) {
  auto [a, b] = world_.Connect({}, kMemory);
  FillPattern(a, 2);
  for (const uint32_t length : {100u, 4096u, 65536u}) {
    const size_t before = b.sends.size();
    const Granted granted = Announce(a, b, length);
    world_.PollSome(3);
    EXPECT_FALSE(b.TakePush(7, b.At(kData, length), granted));
    ASSERT_THAT(b.Read(8, b.At(kData, length), granted), IsOk());
    HAWSER_UNTIL(world_, b.sends.size() > before);
    EXPECT_THAT(b.sends.back(), CompletionIs(8, kSuccess));
    EXPECT_EQ(std::memcmp(b.memory() + kData, a.memory() + kData, length), 0) << length;
  }
}

TEST_P(PushContractTest, OnlyWhatWasPushedCanBeTaken) {
  auto [a, b] = world_.Connect({}, kMemory);
  const Granted granted = Announce(a, b, 4096);
  EXPECT_FALSE(b.TakePush(7, b.At(kData, 4096), {granted.address, granted.rkey + 1}));
  EXPECT_FALSE(b.TakePush(7, b.At(kData, 4096), granted, 8));
  EXPECT_FALSE(b.TakePush(7, b.At(kData, 4095), granted));
  EXPECT_FALSE(b.TakePush(7, b.At(kData, 4097), granted));
  EXPECT_TRUE(b.TakePush(7, b.At(kData, 4096), granted));
  EXPECT_FALSE(b.TakePush(8, b.At(kData, 4096), granted)) << "twice";
  HAWSER_UNTIL(world_, b.sends.size() == 1);
}

// SENDs, each with its push, that are posted together are all found with their pushes, however few
// completions a Poll() has room for.
TEST_P(PushContractTest, ManyThatArePostedTogetherAreAllTaken) {
  constexpr uint32_t kCount = 12, kBytes = 4096 + 8;
  const auto offset = [](size_t i) { return kData + i * kBytes; };
  for (const size_t at_once : {1u, 5u, 64u}) {
    auto [a, b] = world_.Connect({.send_depth = 32, .receive_depth = 32}, kMemory);
    FillPattern(a, 5);
    const Granted granted = a.Grant(a.At(kData, kCount * kBytes), QueuePair::Access::kRead);
    std::vector<Sge> sges;
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_THAT(b.Receive(i, b.At(i * 8, 8)), IsOk());
      sges.push_back(a.At(0, 4));
      sges.push_back(a.At(offset(i), kBytes));
    }
    std::vector<SendWorkRequest> chain;
    for (const Sge& sge : sges) {
      const bool is_push = sge.length == kBytes;
      const size_t offset_in_grant = (chain.size() / 2) * kBytes;
      chain.push_back({.wr_id = chain.size(),
                       .opcode = is_push ? Opcode::kPush : Opcode::kSend,
                       .signaled = true,
                       .sges = {&sge, 1},
                       .remote_address = is_push ? granted.address + offset_in_grant : 0,
                       .rkey = is_push ? granted.rkey : 0});
    }
    ASSERT_THAT(a.qp().PostSend(chain), IsOk());
    std::vector<Completion> completions(at_once);
    size_t seen = 0;
    for (int left = 100'000; left > 0 && b.sends.size() < kCount; --left) {
      Completion of_a[64];
      for (size_t i = a.completion_queue().Poll(absl::MakeSpan(of_a)); i > 0; --i) a.Take(of_a[i - 1]);
      const size_t count = b.completion_queue().Poll(absl::MakeSpan(completions));
      for (size_t i = 0; i < count; ++i) b.Take(completions[i]);
      for (; seen < b.receives.size(); ++seen) {
        ASSERT_EQ(b.receives[seen].wr_id, seen);
        EXPECT_TRUE(b.TakePush(seen, b.At(offset(seen), kBytes), granted, seen * kBytes)) << seen;
      }
    }
    ASSERT_EQ(b.sends.size(), kCount) << at_once << " at once";
    EXPECT_EQ(std::memcmp(b.memory() + kData, a.memory() + kData, kCount * kBytes), 0);
  }
}

TEST_P(PushContractTest, WhatFollowsComesInOrder) {
  auto [a, b] = world_.Connect({}, kMemory);
  FillPattern(a, 3);
  for (uint64_t i = 1; i <= 20; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 8, 8)), IsOk());
  const Granted granted = a.Grant(a.At(kData, 65536), QueuePair::Access::kRead);
  for (uint64_t i = 1; i <= 20; ++i) {
    a.memory()[i] = static_cast<uint8_t>(i);
    ASSERT_THAT(a.Send(i, a.At(i, 1)), IsOk());
    if (i % 2 == 0) {
      ASSERT_THAT(a.Push(100 + i, a.At(kData, 65536), granted), IsOk());
    }
  }
  size_t seen = 0, taken = 0;
  for (int left = 10'000; left > 0 && (seen < 20 || b.sends.size() < taken); --left) {
    world_.PollOnce();
    for (; seen < b.receives.size(); ++seen) {
      ASSERT_EQ(b.memory()[(seen + 1) * 8], seen + 1);
      // Every other one that can be.
      if (seen % 4 == 1) taken += b.TakePush(50 + seen, b.At(kData, 65536), granted);
    }
  }
  EXPECT_EQ(seen, 20u);
  EXPECT_GT(taken, 0u);
  EXPECT_EQ(b.sends.size(), taken);
  HAWSER_UNTIL(world_, a.sends.size() == 30);
}

// A new push for each that has arrived: the answer has to get through between them.
TEST_P(PushContractTest, AReadIsAnsweredBesidePushesWithoutEnd) {
  constexpr uint32_t kPushed = 128 << 10, kRead = 768 << 10;
  constexpr uint64_t kAtOnce = 16;
  const uint64_t pushes_max = GetParam().emulated ? 100 : 400;
  auto [a, b] = world_.Connect({.send_depth = 2 * kAtOnce, .receive_depth = 2 * kAtOnce}, kMemory);
  FillPattern(a, 4);
  const Granted pushed = a.Grant(a.At(kData, kPushed), QueuePair::Access::kRead);
  const Granted read = a.Grant(a.At(kData, kRead), QueuePair::Access::kRead);
  uint64_t receives = 0, pushes = 0;
  const auto keep_going = [&, &a = a, &b = b] {
    for (; receives - b.receives.size() < 2 * kAtOnce; ++receives) {
      ASSERT_THAT(b.Receive(receives, b.At(0, 100)), IsOk());
    }
    for (; pushes < pushes_max && pushes - a.sends.size() < kAtOnce; ++pushes) {
      ASSERT_THAT(a.Send(pushes, a.At(0, 4), /*signaled=*/false), IsOk());
      ASSERT_THAT(a.Push(1000 + pushes, a.At(kData, kPushed), pushed), IsOk());
    }
  };
  keep_going();
  world_.PollSome(3);
  ASSERT_THAT(b.Read(1, b.At(kData, kRead), read), IsOk());
  HAWSER_UNTIL(world_, (keep_going(), b.sends.size() == 1));
  EXPECT_THAT(b.sends.back(), CompletionIs(1, kSuccess));
  EXPECT_EQ(std::memcmp(b.memory() + kData, a.memory() + kData, kRead), 0);
  // They share one stream of bytes.
  if (world_.fabric().scheme() == "tcp") {
    EXPECT_LE(pushes, 3 * kAtOnce);
  }
  HAWSER_UNTIL(world_, (keep_going(), a.sends.size() == pushes_max));
}

TEST_P(PushContractTest, OneThatIsTooLongIsRefused) {
  auto [a, b] = world_.Connect({}, kMemory);
  const uint32_t length = a.qp().push_bytes_max() + 1;
  const Granted granted = a.Grant(a.At(kData, length), QueuePair::Access::kRead);
  EXPECT_THAT(a.Push(1, a.At(kData, length), granted), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_P(PushContractTest, WhatWasTakenComesBackAtTheEnd) {
  for (const bool by_peer : {false, true}) {
    auto [a, b] = world_.Connect({}, kMemory);
    const Granted granted = Announce(a, b, 65536);
    ASSERT_TRUE(b.TakePush(7, b.At(kData, 65536), granted));
    (by_peer ? a : b).qp().Disconnect();
    if (by_peer) HAWSER_UNTIL(world_, b.news().ended());
    world_.ExpectEverythingComesBack(b);
    ASSERT_EQ(b.sends.size(), 1u);
  }
}

// Pushes that are offered with their SENDs.
class OfferedPushTest : public PushContractTest {
 protected:
  // `a` says "look", and pushes `length` bytes behind it, again and again until `b` is offered one. It grants
  // them once.
  Granted PushUntilOneIsOffered(Endpoint& a, Endpoint& b, uint32_t length, const int& offers) {
    const Granted granted = a.Grant(a.At(kData, length), QueuePair::Access::kRead);
    a.Fill(0, "look");
    granted_ = granted;
    for (const int before = offers; offers == before && !HasFailure();) {
      const size_t received = b.receives.size();
      if (b.receives_posted == received) {
        EXPECT_THAT(b.Receive(received, b.At(received % 8 * 100, 100)), IsOk());
      }
      EXPECT_THAT(a.SendAndPush(100, a.At(0, 4), a.At(kData, length), granted), IsOk());
      HAWSER_UNTIL(world_, offers > before || b.receives.size() > received);
    }
    return granted;
  }

  Granted granted_;  // Of what is on its way.
};
HAWSER_INSTANTIATE(OfferedPushTest, Where(&FabricUnderTest::offers_sends));

TEST_P(OfferedPushTest, APushIsTakenInsideTheOfferOfItsSend) {
  auto [a, b] = world_.Connect({}, kMemory);
  FillPattern(a, 6);
  for (const uint32_t length : {1u, 24u, 4096u, 10000u, 16384u, 65536u, 135168u}) {
    int offers = 0;
    b.news().take_send = [&, &b = b](absl::string_view message) {
      EXPECT_EQ(message, "look");
      EXPECT_FALSE(b.TakePush(7, b.At(kData, length + 1), granted_));
      EXPECT_TRUE(b.TakePush(7, b.At(kData, length), granted_)) << length;
      EXPECT_FALSE(b.TakePush(8, b.At(kData, length), granted_)) << "twice";
      return ++offers > 0;
    };
    std::memset(b.memory() + kData, 0, b.memory_bytes() - kData);
    const size_t before = b.sends.size();
    PushUntilOneIsOffered(a, b, length, offers);
    HAWSER_UNTIL(world_, b.sends.size() > before);
    ASSERT_EQ(offers, 1);
    EXPECT_THAT(b.sends.back(), CompletionIs(7, kSuccess));
    EXPECT_EQ(b.sends.back().opcode, Opcode::kRead);
    EXPECT_EQ(std::memcmp(b.memory() + kData, a.memory() + kData, length), 0) << length;
    EXPECT_EQ(b.memory()[kData + length], 0) << length;
  }
  HAWSER_UNTIL(world_, a.sends.size() == a.sends_posted / 2);  // Each push, and with it the SEND before it.
}

// SENDs, each with its push, that are posted together, and of which some are offered in one Poll().
TEST_P(OfferedPushTest, ManyThatArePostedTogetherAreAllTakenWithTheirSends) {
  constexpr uint32_t kCount = 12;
  for (const uint32_t bytes : {100u, 5000u, 40000u}) {
    auto [a, b] = world_.Connect({.send_depth = 64, .receive_depth = 64}, kMemory);
    FillPattern(a, 9);
    std::memset(b.memory(), 0, b.memory_bytes());
    const Granted granted = a.Grant(a.At(kData, kCount * bytes), QueuePair::Access::kRead);
    uint32_t offers = 0;
    const auto take = [&, &b = b](uint32_t number) {
      EXPECT_TRUE(b.TakePush(number, b.At(kData + number * bytes, bytes), granted, number * bytes)) << number;
    };
    b.news().take_send = [&](absl::string_view message) {
      take(static_cast<uint8_t>(message[0]));
      return ++offers > 0;
    };
    size_t seen = 0, rounds = 0;
    do {
      b.sends.clear();
      std::vector<Sge> sges;
      for (uint32_t i = 0; i < kCount; ++i) {
        const size_t receive = rounds * kCount + i;
        ASSERT_THAT(b.Receive(receive, b.At(receive % 64 * 8, 8)), IsOk());
        a.memory()[i * 8] = static_cast<uint8_t>(i);
        sges.push_back(a.At(i * 8, 1));
        sges.push_back(a.At(kData + i * bytes, bytes));
      }
      std::vector<SendWorkRequest> chain;
      for (uint32_t i = 0; i < 2 * kCount; ++i) {
        const bool is_push = i % 2 != 0;
        chain.push_back({.wr_id = i,
                         .opcode = is_push ? Opcode::kPush : Opcode::kSend,
                         .signaled = true,
                         .sges = {&sges[i], 1},
                         .remote_address = is_push ? granted.address + i / 2 * bytes : 0,
                         .rkey = is_push ? granted.rkey : 0});
      }
      ASSERT_THAT(a.qp().PostSend(chain), IsOk());
      const auto all_came = [&, &b = b] {
        for (; seen < b.receives.size(); ++seen) take(b.memory()[b.receives[seen].wr_id % 64 * 8]);
        return b.sends.size() == kCount;
      };
      HAWSER_UNTIL(world_, all_came());
      ++rounds;
      HAWSER_UNTIL(world_, a.sends.size() == rounds * 2 * kCount);
      ASSERT_EQ(std::memcmp(b.memory() + kData, a.memory() + kData, kCount * bytes), 0) << bytes;
    } while (offers == 0 && !HasFailure());
  }
}

TEST_P(OfferedPushTest, APushThatIsNotTakenWithItsSendIsDroppedAndCanBeRead) {
  auto [a, b] = world_.Connect({}, kMemory);
  FillPattern(a, 7);
  for (const uint32_t length : {100u, 4096u, 65536u}) {
    int offers = 0;
    b.news().take_send = [&](absl::string_view) { return ++offers > 0; };
    const size_t before = b.sends.size();
    const Granted granted = PushUntilOneIsOffered(a, b, length, offers);
    world_.PollSome(3);
    EXPECT_FALSE(b.TakePush(7, b.At(kData, length), granted));
    ASSERT_THAT(b.Read(8, b.At(kData, length), granted), IsOk());
    HAWSER_UNTIL(world_, b.sends.size() > before);
    EXPECT_THAT(b.sends.back(), CompletionIs(8, kSuccess));
    EXPECT_EQ(std::memcmp(b.memory() + kData, a.memory() + kData, length), 0) << length;
  }
}

TEST_P(OfferedPushTest, APushWhoseSendIsNotTakenIsTakenBehindIt) {
  auto [a, b] = world_.Connect({}, kMemory);
  FillPattern(a, 8);
  for (const uint32_t length : {100u, 4096u, 65536u}) {
    int offers = 0;
    b.news().take_send = [&](absl::string_view) { return ++offers == 0; };
    const size_t before = b.sends.size();
    const Granted granted = PushUntilOneIsOffered(a, b, length, offers);
    if (b.receives.size() < b.receives_posted) HAWSER_UNTIL(world_, b.receives.size() == b.receives_posted);
    ASSERT_TRUE(b.TakePush(7, b.At(kData, length), granted)) << length;
    HAWSER_UNTIL(world_, b.sends.size() > before);
    EXPECT_THAT(b.sends.back(), CompletionIs(7, kSuccess));
    EXPECT_EQ(std::memcmp(b.memory() + kData, a.memory() + kData, length), 0) << length;
  }
}

}  // namespace
}  // namespace hawser::fabric
