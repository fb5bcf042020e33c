// What the fabric over TCP costs: copies, system calls, memory, turns.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/heap.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/tests/transport/fabric/tcp_stage.h"

namespace hawser::fabric {
namespace {

using ::testing::HasSubstr;

constexpr CompletionStatus kSuccess = CompletionStatus::kSuccess;

TEST_F(TcpFabricTest, NoByteOfAReadIsCopied) {
  constexpr uint32_t kReads = 8, kBytes = 1 << 20;
  auto [a, b] =
      world_.Connect({.send_depth = 256, .receive_depth = 256, .read_depth = 4}, (kReads + 1) * kBytes);
  const Granted granted = b.Grant(b.At(0, kReads * kBytes), QueuePair::Access::kRead);
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_THAT(a.Receive(i, a.At(kReads * kBytes + i * 1000, 1000)), IsOk());
    ASSERT_THAT(b.Receive(i, b.At(kReads * kBytes + i * 1000, 1000)), IsOk());
  }
  for (uint64_t i = 0; i < kReads; ++i) {
    ASSERT_THAT(a.Read(i, a.At(i * kBytes, kBytes), granted, i * kBytes), IsOk());
  }
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_THAT(a.Send(100 + i, a.At(kReads * kBytes, 100)), IsOk());
    ASSERT_THAT(b.Send(100 + i, b.At(kReads * kBytes, 100)), IsOk());
    if (i % 8 == 0) world_.PollOnce();
  }
  HAWSER_UNTIL(world_, a.sends.size() == kReads + 200 && b.sends.size() == 200 && a.receives.size() == 200);
  EXPECT_EQ(counters_.read_bytes.load(), uint64_t{kReads} * kBytes);
  EXPECT_EQ(counters_.read_bytes_copied.load(), 0u);
}

// Posts READs of these lengths as one chain, from the beginning of the peer's memory to that of its own.
void PostReads(Endpoint& me, const Granted& granted, const std::vector<uint32_t>& lengths) {
  std::vector<Sge> sinks;
  sinks.reserve(lengths.size());
  std::vector<SendWorkRequest> chain;
  uint64_t at = 0;
  for (const uint32_t length : lengths) {
    sinks.push_back(me.At(at, length));
    chain.push_back({.wr_id = 1,
                     .opcode = Opcode::kRead,
                     .signaled = true,
                     .sges = {&sinks.back(), 1},
                     .remote_address = granted.address + at,
                     .rkey = granted.rkey});
    at += length;
  }
  ASSERT_THAT(me.qp().PostSend(chain), IsOk());
}

TEST_F(TcpFabricTest, SmallReadsThatArePostedTogetherLeaveAndAreAnsweredWithOneSystemCall) {
  constexpr uint32_t kReads = 16, kEach = 1000;
  auto [a, b] = world_.Connect({.send_depth = 64, .receive_depth = 4, .read_depth = kReads}, kReads * kEach);
  for (const auto access : {QueuePair::Access::kRead, QueuePair::Access::kReadRepeatedly}) {
    const Granted granted = b.Grant(b.At(0, kReads * kEach), access);
    for (size_t i = 0; i < kReads * kEach; ++i) b.memory()[i] = static_cast<uint8_t>(i * 2654435761 >> 24);
    std::memset(a.memory(), 0, kReads * kEach);
    counters_.send_calls = 0;
    PostReads(a, granted, std::vector<uint32_t>(kReads, kEach));
    EXPECT_EQ(counters_.send_calls.load(), 1u);
    Completion completions[2 * kReads];
    while (counters_.send_calls.load() < 2) b.completion_queue().Poll({completions, 1});
    counters_.receive_calls = 0;
    size_t done = 0;
    while (done < kReads) done += a.completion_queue().Poll(completions);
    EXPECT_EQ(counters_.send_calls.load(), 2u);
    EXPECT_LE(counters_.receive_calls.load(), 4u);  // One, if all is there at once.
    EXPECT_EQ(std::memcmp(a.memory(), b.memory(), kReads * kEach), 0);
  }
}

TEST_F(TcpFabricTest, OfLargeReadsAmongSmallOnesNothingIsCopied) {
  constexpr uint32_t kSmall = 3000, kLarge = 400'000;
  std::vector<uint32_t> lengths;
  for (int i = 0; i < 8; ++i) lengths.insert(lengths.end(), {kSmall, kSmall, kLarge, kSmall, kLarge, kLarge});
  constexpr uint32_t kBytes = 8 * (3 * kSmall + 3 * kLarge), kSends = 100;
  auto [a, b] = world_.Connect({.send_depth = 256, .receive_depth = 256, .read_depth = 16}, kBytes + 4096);
  const Granted granted = b.Grant(b.At(0, kBytes), QueuePair::Access::kRead);
  for (size_t i = 0; i < kBytes; ++i) b.memory()[i] = static_cast<uint8_t>(i * 2654435761 >> 24);
  for (uint64_t i = 0; i < kSends; ++i) ASSERT_THAT(a.Receive(i, a.At(kBytes, 4096)), IsOk());
  PostReads(a, granted, lengths);
  for (uint64_t i = 0; i < kSends; ++i) {
    ASSERT_THAT(b.Send(i, b.At(kBytes, 1 + i % 200)), IsOk());
    if (i % 4 == 0) world_.PollOnce();
  }
  HAWSER_UNTIL(world_, a.sends.size() == lengths.size() && a.receives.size() == kSends);
  EXPECT_EQ(std::memcmp(a.memory(), b.memory(), kBytes), 0);
  EXPECT_EQ(counters_.read_bytes.load(), kBytes);
  EXPECT_LE(counters_.read_bytes_copied.load(), 8u * 3 * kSmall);
}

TEST_F(TcpFabricTest, AChainLeavesInOneSystemCall) {
  auto [a, b] = world_.Connect({.send_depth = 64, .receive_depth = 64});
  for (uint64_t i = 0; i < 64; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 1000, 1000)), IsOk());
  std::vector<Sge> sges;
  for (int i = 0; i < 64; ++i)
    sges.push_back(a.At(i * 1000, i % 3 == 0 ? 900 : 60));  // Copied ones and others.
  std::vector<SendWorkRequest> chain;
  for (int i = 0; i < 64; ++i) chain.push_back({.wr_id = 1, .signaled = i == 63, .sges = {&sges[i], 1}});
  const uint64_t before = counters_.send_calls.load();
  ASSERT_THAT(a.qp().PostSend(chain), IsOk());
  EXPECT_EQ(counters_.send_calls.load() - before, 1u);
  HAWSER_UNTIL(world_, b.receives.size() == 64 && a.sends.size() == 1);
}

// One side's part of a round: sleeps until the message is there, takes it, answers it.
void TakeAndAnswer(Endpoint& me, uint64_t round) {
  Completion completions[8];
  size_t count = 0;
  while (count == 0) {
    me.completion_queue().Wait(absl::InfiniteDuration());
    count = me.completion_queue().Poll(absl::MakeSpan(completions));
  }
  const Sge buffer = me.At(1024, 64), message = me.At(0, 64);
  const ReceiveWorkRequest receive = {0, buffer};
  ASSERT_THAT(me.qp().PostReceive({&receive, 1}), IsOk());
  const SendWorkRequest send = {.wr_id = round, .signaled = round % 16 == 15, .sges = {&message, 1}};
  ASSERT_THAT(me.qp().PostSend({&send, 1}), IsOk());
}

TEST_F(TcpFabricTest, ARoundOfPingPongCostsThreeSystemCallsASide) {
  auto [a, b] = world_.Connect();
  for (Endpoint* side : {&a, &b}) {
    ASSERT_THAT(side->Receive(0, side->At(1024, 64)), IsOk());
    ASSERT_THAT(side->Receive(0, side->At(1024, 64)), IsOk());
  }
  ASSERT_THAT(a.Send(1, a.At(0, 64)), IsOk());
  constexpr uint64_t kRounds = 200;
  for (uint64_t round = 0; round < kRounds; ++round) {
    if (round == 10) {
      counters_.send_calls = 0;
      counters_.receive_calls = 0;
      counters_.epoll_calls = 0;
    }
    TakeAndAnswer(b, round);
    TakeAndAnswer(a, round);
  }
  // Acknowledgements included: they travel with the messages.
  EXPECT_EQ(counters_.send_calls.load(), 2 * (kRounds - 10));
  EXPECT_EQ(counters_.receive_calls.load(), 2 * (kRounds - 10));
  EXPECT_EQ(counters_.epoll_calls.load(), 2 * (kRounds - 10));
}

TEST_F(TcpFabricTest, SpinningOnOneConnectionIsOneSystemCallAPoll) {
  auto [a, b] = world_.Connect();
  world_.PollSome(100);
  counters_.receive_calls = 0;
  counters_.epoll_calls = 0;
  Completion completion;
  for (int i = 0; i < 320; ++i) a.completion_queue().Poll({&completion, 1});
  EXPECT_EQ(counters_.receive_calls.load() + counters_.epoll_calls.load(), 320u);
  EXPECT_EQ(counters_.epoll_calls.load(), 10u);  // For new connections, timers and the like.
}

// One side's part of a round of medium messages: likewise, and takes what was pushed behind it.
void TakePushAndAnswer(Endpoint& me, uint32_t bytes, const Granted& mine, const Granted& of_peer) {
  Completion completions[8];
  bool has_message = false, has_push = false;
  while (!has_message || !has_push) {
    if (!has_message) me.completion_queue().Wait(absl::InfiniteDuration());
    const size_t count = me.completion_queue().Poll(absl::MakeSpan(completions));
    for (size_t i = 0; i < count; ++i) {
      has_push |= completions[i].opcode == Opcode::kRead;
      if (completions[i].opcode != Opcode::kReceive) continue;
      has_message = true;
      ASSERT_TRUE(me.qp().TakePush(1, me.At(4096, bytes), of_peer.address, of_peer.rkey));
    }
  }
  const ReceiveWorkRequest receive = {0, me.At(1024, 64)};
  ASSERT_THAT(me.qp().PostReceive({&receive, 1}), IsOk());
  ASSERT_THAT(me.SendAndPush(2, me.At(0, 64), me.At(4096, bytes), mine), IsOk());
}

// Of `round`, in which each side sleeps, receives and answers: the system calls of both. The answer carries
// the acknowledgement of the push; a few leave by themselves when the kernel is late with what was sent.
void ExpectSystemCallsOfRounds(TcpFabricCounters& counters, uint64_t receives_a_side,
                               absl::FunctionRef<void()> round) {
  constexpr uint64_t kRounds = 190, kLate = 6;
  for (int i = 0; i < 10; ++i) round();  // Not counted.
  counters.send_calls = 0;
  counters.receive_calls = 0;
  counters.epoll_calls = 0;
  for (uint64_t i = 0; i < kRounds; ++i) round();
  EXPECT_LE(counters.send_calls.load(), 2 * kRounds + kLate);
  EXPECT_LE(counters.receive_calls.load(), 2 * receives_a_side * kRounds + kLate);
  EXPECT_EQ(counters.epoll_calls.load(), 2 * kRounds);
}

// A page of storage takes as many as a small message; a larger one takes one more to come to its place.
TEST_F(TcpFabricTest, ARoundOfPushesCostsThreeSystemCallsASideOrFour) {
  for (const uint32_t bytes : {8192u, 65536u}) {
    auto [a, b] = world_.Connect({}, 128 * 1024);
    const Granted of_a = a.Grant(a.At(4096, bytes), QueuePair::Access::kRead);
    const Granted of_b = b.Grant(b.At(4096, bytes), QueuePair::Access::kRead);
    for (Endpoint* side : {&a, &b}) {
      ASSERT_THAT(side->Receive(0, side->At(1024, 64)), IsOk());
      ASSERT_THAT(side->Receive(0, side->At(1024, 64)), IsOk());
    }
    ASSERT_THAT(a.Send(1, a.At(0, 64), /*signaled=*/false), IsOk());
    ASSERT_THAT(a.Push(2, a.At(4096, bytes), of_a), IsOk());
    SCOPED_TRACE(bytes);
    ExpectSystemCallsOfRounds(counters_, bytes == 8192 ? 1 : 2, [&, &a = a, &b = b] {
      TakePushAndAnswer(b, bytes, of_b, of_a);
      TakePushAndAnswer(a, bytes, of_a, of_b);
    });
    a.qp().Disconnect();
    b.qp().Disconnect();
    world_.PollSome(20);
  }
}

// One side's part of a round of medium messages that are offered: what is pushed is taken inside the offer.
void TakeOfferedPushAndAnswer(Endpoint& me, uint32_t bytes, const Granted& mine, const Granted& of_peer) {
  me.news().take_send = [&](absl::string_view) { return me.TakePush(1, me.At(4096, bytes), of_peer); };
  Completion completions[8];
  bool has_push = false, asleep = true;
  while (!has_push) {
    if (std::exchange(asleep, false)) me.completion_queue().Wait(absl::InfiniteDuration());
    const size_t count = me.completion_queue().Poll(absl::MakeSpan(completions));
    for (size_t i = 0; i < count; ++i) {
      ASSERT_NE(completions[i].opcode, Opcode::kReceive);
      has_push |= completions[i].opcode == Opcode::kRead;
    }
  }
  ASSERT_THAT(me.SendAndPush(2, me.At(0, 64), me.At(4096, bytes), mine), IsOk());
}

// What a call of a medium message costs at each side: to sleep, to receive, to answer. What one more system
// call would bring is copied up to 16 KiB; more comes straight to its place, with one more.
TEST_F(TcpFabricTest, ARoundOfOfferedPushesCostsThreeSystemCallsASideOrFour) {
  for (const uint32_t bytes : {4096u, 16384u, 65536u}) {
    auto [a, b] = world_.Connect({}, 128 * 1024);
    const Granted of_a = a.Grant(a.At(4096, bytes), QueuePair::Access::kRead);
    const Granted of_b = b.Grant(b.At(4096, bytes), QueuePair::Access::kRead);
    for (Endpoint* side : {&a, &b}) {
      ASSERT_THAT(side->Receive(0, side->At(1024, 64)), IsOk());
      ASSERT_THAT(side->Receive(0, side->At(1024, 64)), IsOk());
    }
    world_.PollSome(3);
    ASSERT_THAT(a.SendAndPush(2, a.At(0, 64), a.At(4096, bytes), of_a), IsOk());
    SCOPED_TRACE(bytes);
    ExpectSystemCallsOfRounds(counters_, bytes <= 16384 ? 1 : 2, [&, &a = a, &b = b] {
      TakeOfferedPushAndAnswer(b, bytes, of_b, of_a);
      TakeOfferedPushAndAnswer(a, bytes, of_a, of_b);
    });
    a.qp().Disconnect();
    b.qp().Disconnect();
    world_.PollSome(20);
  }
}

TEST_F(TcpFabricTest, APushThatIsDroppedBesideAReadCostsFewSystemCalls) {
  auto [a, b] = world_.Connect({}, 256 * 1024);
  const Granted granted = a.Grant(a.At(4096, 65536), QueuePair::Access::kRead);
  ASSERT_THAT(b.Receive(1, b.At(0, 64)), IsOk());
  // Is outstanding until a is polled.
  ASSERT_THAT(b.Read(1, b.At(4096, 4096), granted), IsOk());
  ASSERT_THAT(a.Send(1, a.At(0, 64)), IsOk());
  ASSERT_THAT(a.Push(2, a.At(4096, 65536), granted), IsOk());
  counters_.receive_calls = 0;
  Completion completions[4];
  for (int i = 0; i < 20; ++i) b.completion_queue().Poll(absl::MakeSpan(completions));
  EXPECT_LE(counters_.receive_calls.load(), 30u);
  HAWSER_UNTIL(world_, a.sends.size() == 2 && b.sends.size() == 1);
}

TEST_F(TcpFabricTest, AnAcknowledgementLeavesBeforeItsSideSleeps) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
  ASSERT_THAT(a.Send(1, a.At(0, 100)), IsOk());
  Completion completion;
  while (b.completion_queue().Poll({&completion, 1}) == 0) {
  }
  b.completion_queue().Wait(absl::InfiniteDuration());  // Returns: there is something for Poll() to do.
  b.completion_queue().Poll({&completion, 1});
  Completion done;
  size_t count = 0;
  while (count == 0) {
    a.completion_queue().Wait(absl::Seconds(20));
    count = a.completion_queue().Poll({&done, 1});
  }
  EXPECT_THAT(done, CompletionIs(1, kSuccess));
}

TEST_F(TcpFabricTest, TrafficAllocatesNothing) {
  auto [a, b] = world_.Connect({.send_depth = 32, .receive_depth = 32}, 1 << 20);
  const auto poll = [](Endpoint& side, size_t wanted) {
    Completion completions[32];
    for (size_t count = 0; count < wanted;) {
      const size_t n = side.completion_queue().Poll(absl::MakeSpan(completions));
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(completions[i].status, kSuccess);
      if (n == 0) side.completion_queue().Wait(absl::Milliseconds(1));
      count += n;
    }
  };
  const auto round = [&, &a = a, &b = b] {
    const absl::StatusOr<Granted> granted = b.qp().Grant(b.At(0, 500000), QueuePair::Access::kRead);
    for (uint64_t i = 0; i < 8; ++i) ASSERT_THAT(b.Receive(i, b.At(600000 + 1000 * i, 1000)), IsOk());
    for (uint64_t i = 0; i < 8; ++i) {
      ASSERT_THAT(a.Send(i, a.At(i, 100 + 100 * static_cast<uint32_t>(i)), i == 7), IsOk());
    }
    poll(b, 8);
    ASSERT_THAT(a.Read(9, a.At(0, 500000), *granted), IsOk());
    b.completion_queue().Wake();
    b.completion_queue().Wait(absl::InfiniteDuration());
    Completion none;
    for (int i = 0; i < 200; ++i) b.completion_queue().Poll({&none, 1});
    for (size_t done = 0; done < 2;) {
      Completion completions[4];
      done += a.completion_queue().Poll(absl::MakeSpan(completions));
      b.completion_queue().Poll({&none, 1});
    }
    b.qp().Revoke(granted->rkey, 1);
    while (b.completion_queue().Poll({&none, 1}) == 0) {
    }
  };
  round();  // The first may still fill this or that.
  const uint64_t before = HeapAllocations();
  for (int i = 0; i < 50; ++i) round();
  EXPECT_EQ(HeapAllocations() - before, 0u);
}

TEST_F(TcpFabricTest, AnIdleConnectionTakesLessThan8KiB) {
  NewsRecorder news;
  const uint64_t before = HeapAllocatedBytes();
  std::unique_ptr<QueuePair> qp =
      world_.fabric()
          .CreateQueuePair(world_.completion_queue(0),
                           {.send_depth = 24, .receive_depth = 12, .read_depth = 16}, news)
          .value();
  EXPECT_LT(HeapAllocatedBytes() - before, 8u * 1024);
}

// While memory is short a SEND may wait for seconds, on every connection: what is kept of it, and of what is
// behind it, is memory that no pool counts.
TEST_F(TcpFabricTest, AConnectionWhoseSendWaitsHoldsLittle) {
  for (const uint32_t receives : {0u, 1u, 4u}) {
    SCOPED_TRACE(receives);
    Endpoint& b = world_.NewEndpoint(1, {.receive_depth = 8, .sends_wait = true}, 32768);
    Stranger peer(world_);
    peer.BecomePeerOf(b);
    for (uint64_t i = 0; i < receives; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 4096, 4096)), IsOk());
    std::string said;
    constexpr uint64_t kMessages = 1500;
    while (said.size() < kMessages * (sizeof(FrameHeader) + 8)) {
      const FrameHeader header = {.kind = FrameKind::kSend, .length_bytes = 8};
      said.append(reinterpret_cast<const char*>(&header), sizeof(header)).append("8 bytes.");
    }
    b.receives.reserve(kMessages);
    const uint64_t before = HeapAllocatedBytes();
    peer.Say(said);
    HAWSER_UNTIL(world_, b.receives.size() == receives);
    world_.PollSome(3);
    EXPECT_LT(HeapAllocatedBytes() - before, 10 * 1024 + receives * 4200);
    // All of them come in the end, in order, and each once.
    for (uint64_t i = receives; i < kMessages; ++i) {
      ASSERT_THAT(b.Receive(i, b.At(0, 4096)), IsOk());
      HAWSER_UNTIL(world_, b.receives.size() == i + 1);
    }
    EXPECT_EQ(b.Text(0, 8), "8 bytes.");
    peer.Close();
    HAWSER_UNTIL(world_, b.news().ended());
  }
}

TEST_F(TcpFabricTest, ABusyConnectionLeavesTheOthersTheirTurn) {
  auto [a, b] = world_.Connect({.send_depth = 64, .receive_depth = 64}, 64 << 20);
  auto [c, d] = world_.Connect();
  for (uint64_t i = 0; i < 60; ++i) ASSERT_THAT(b.Receive(i, b.At(i << 20, 1 << 20)), IsOk());
  ASSERT_THAT(d.Receive(1, d.At(0, 100)), IsOk());
  for (uint64_t i = 0; i < 60; ++i) ASSERT_THAT(a.Send(i, a.At(i << 20, 1 << 20)), IsOk());
  world_.PollSome(2);
  ASSERT_THAT(c.Send(1, c.At(0, 100)), IsOk());
  // All live on the same two completion queues. A few polls are enough, however much a has to send.
  const size_t before = b.receives.size();
  HAWSER_UNTIL(world_, d.receives.size() == 1);
  EXPECT_LT(b.receives.size() - before, 20u);
  HAWSER_UNTIL(world_, b.receives.size() == 60 && a.sends.size() == 60);
}

TEST_F(TcpFabricTest, APeerThatWasNotReceivedFromIsRememberedWhenItLeaves) {
  auto [a, b] = world_.Connect();
  ASSERT_THAT(a.Send(1, a.At(0, 10)), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 1 && b.news().ended());
  EXPECT_THAT(a.sends[0], CompletionIs(1, CompletionStatus::kRnrRetryExceeded));
  EXPECT_THAT(std::string(b.news().why.message()),
              HasSubstr("after it was refused: its SEND found no posted receive for 20ms"));
}

TEST_F(TcpFabricTest, AReceiveInTimeLetsWaitingSendsIn) {
  FabricWorld patient(Tcp({.rnr_timeout = absl::Seconds(60)}));
  auto [a, b] = patient.Connect({.send_depth = 64, .receive_depth = 64});
  for (uint64_t i = 0; i < 64; ++i) {
    a.Fill(i * 100, absl::StrCat("message ", 100 + i));
    ASSERT_THAT(a.Send(i, a.At(i * 100, 11)), IsOk());
  }
  for (uint64_t i = 0; i < 64; ++i) {  // One at a time: each lets one in.
    patient.PollSome(3);
    ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
    HAWSER_UNTIL(patient, b.receives.size() == i + 1);
    EXPECT_EQ(b.Text(i * 100, 11), absl::StrCat("message ", 100 + i));
  }
  HAWSER_UNTIL(patient, a.sends.size() == 64);
}

}  // namespace
}  // namespace hawser::fabric
