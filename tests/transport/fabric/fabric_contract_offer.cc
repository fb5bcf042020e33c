// SENDs that are offered to the handler of the connection.
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/contract_suites.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// On every fabric: on one that offers nothing each SEND completes a receive.
class SendOrderTest : public FabricContract {
 protected:
  // Of 2,000 SENDs, of which the handler takes most that are offered, with so many receives.
  void ExpectOrder(QueuePairOptions options, uint32_t receives);
};
HAWSER_INSTANTIATE(SendOrderTest, WholeFabricsUnderTest());
class WaitingSendOrderTest : public SendOrderTest {};
HAWSER_INSTANTIATE(WaitingSendOrderTest, Where(&FabricUnderTest::sends_can_wait));
class OfferedSendTest : public FabricContract {
 protected:
  // Posts as many SENDs of `text`, one after the other, as it takes until one is offered. Those that are not
  // take receives of 512 bytes, which this posts.
  void SendUntilOneIsOffered(Endpoint& from, Endpoint& to, const std::string& text, const int& offers) {
    const int before = offers;
    for (uint32_t i = 0; offers == before && !HasFailure(); ++i) {
      const size_t received = to.receives.size();
      if (to.receives_posted == received) {
        ASSERT_THAT(to.Receive(received, to.At(received % 64 * 512, 512)), IsOk());
      }
      from.Fill(0, text);
      ASSERT_THAT(from.Send(i, from.At(0, static_cast<uint32_t>(text.size()))), IsOk());
      HAWSER_UNTIL(world_, offers > before || to.receives.size() > received);
    }
  }
};
HAWSER_INSTANTIATE(OfferedSendTest, Where(&FabricUnderTest::offers_sends));

TEST_P(OfferedSendTest, OneThatIsTakenCompletesNoReceiveAndSucceeds) {
  auto [a, b] = world_.Connect();
  std::vector<std::string> taken;
  int offers = 0;
  b.news().take_send = [&](absl::string_view message) {
    taken.emplace_back(message);
    ++offers;
    return true;
  };
  for (int i = 0; i < 20; ++i) SendUntilOneIsOffered(a, b, "hello", offers);
  HAWSER_UNTIL(world_, a.sends.size() == a.sends_posted);
  for (const Completion& send : a.sends) EXPECT_EQ(send.status, kSuccess);
  EXPECT_THAT(taken, Each("hello"));
  EXPECT_EQ(taken.size() + b.receives.size(), a.sends_posted);
  // What was posted and not completed is flushed.
  const size_t completed = b.receives.size();
  ASSERT_LT(completed, b.receives_posted);
  world_.ExpectEverythingComesBack(b);
  for (size_t i = completed; i < b.receives.size(); ++i) {
    EXPECT_THAT(b.receives[i], CompletionIs(i, kFlushed));
  }
}

TEST_P(OfferedSendTest, OneThatIsNotTakenCompletesAReceive) {
  auto [a, b] = world_.Connect();
  int offers = 0;
  b.news().take_send = [&](absl::string_view message) {
    EXPECT_EQ(message, "hello");
    ++offers;
    return false;
  };
  SendUntilOneIsOffered(a, b, "hello", offers);
  HAWSER_UNTIL(world_, b.receives.size() == a.sends_posted && a.sends.size() == a.sends_posted);
  const Completion& last = b.receives.back();
  EXPECT_THAT(last, CompletionIs(b.receives.size() - 1, kSuccess));
  EXPECT_EQ(last.byte_len, 5u);
  EXPECT_EQ(b.Text(last.wr_id % 64 * 512, 5), "hello");
}

TEST_P(OfferedSendTest, OneWithoutAReceiveIsNotOffered) {
  auto [a, b] = world_.Connect({.sends_wait = GetParam().sends_can_wait});
  int offers = 0;
  b.news().take_send = [&](absl::string_view) { return ++offers > 0; };
  a.Fill(0, "hello");
  ASSERT_THAT(a.Send(1, a.At(0, 5)), IsOk());
  world_.PollSome(50);
  EXPECT_EQ(offers, 0);
  ASSERT_THAT(b.Receive(0, b.At(100, 100)), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 1 && offers + b.receives.size() == 1);
  EXPECT_THAT(a.sends[0], CompletionIs(1, kSuccess));
}

TEST_P(OfferedSendTest, OneThatIsLongerThanItsReceiveIsRefusedAndNotOffered) {
  auto [a, b] = world_.Connect();
  int offers = 0;
  b.news().take_send = [&](absl::string_view) { return ++offers > 0; };
  ASSERT_THAT(b.Receive(0, b.At(0, 10)), IsOk());
  ASSERT_THAT(b.Receive(1, b.At(100, 100)), IsOk());
  ASSERT_THAT(a.Send(1, a.At(0, 11)), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 1 && b.receives.size() == 2);
  EXPECT_NE(a.sends[0].status, kSuccess);
  EXPECT_NE(b.receives[0].status, kSuccess);
  EXPECT_EQ(offers, 0);
}

TEST_P(OfferedSendTest, APollInWhichOneIsTakenReturnsNoReceives) {
  constexpr uint32_t kSends = 60, kTaken = 3;
  auto [a, b] = world_.Connect({.send_depth = kSends, .receive_depth = kSends + 1});
  int offers = 0;
  b.news().take_send = [&](absl::string_view) { return ++offers > 0; };
  SendUntilOneIsOffered(a, b, "hello", offers);  // From now on the first of those that come together is.
  HAWSER_UNTIL(world_, a.sends.size() == a.sends_posted);
  const size_t sent_before = a.sends.size(), received_before = b.receives.size();
  uint32_t taken_in_poll = 0, taken = 0;
  b.news().take_send = [&](absl::string_view) {
    if (taken_in_poll == kTaken) return false;
    ++taken;
    return ++taken_in_poll > 0;
  };
  for (uint32_t i = 0; i < kSends; ++i) {
    ASSERT_THAT(b.Receive(b.receives_posted, b.At(i * 100, 100)), IsOk());
    ASSERT_THAT(a.Send(a.sends_posted, a.At(0, 5)), IsOk());
  }
  const auto received = [&, &b = b] { return taken + b.receives.size() - received_before; };
  const auto poll = [&, &a = a, &b = b] {
    Completion completions[16];
    taken_in_poll = 0;
    const size_t count = world_.completion_queue(1).Poll(absl::MakeSpan(completions));
    EXPECT_TRUE(taken_in_poll == 0 || count == 0) << taken_in_poll << " and " << count;
    for (size_t i = 0; i < count; ++i) b.Take(completions[i]);
    const size_t sent = world_.completion_queue(0).Poll(absl::MakeSpan(completions));
    for (size_t i = 0; i < sent; ++i) a.Take(completions[i]);
  };
  const absl::Time give_up = absl::Now() + kPatience;
  while ((received() < kSends || a.sends.size() < sent_before + kSends) && absl::Now() < give_up) poll();
  EXPECT_EQ(received(), kSends);
  EXPECT_GT(taken, 0u);
}

TEST_P(OfferedSendTest, ReceivesOfThoseThatAreTakenKeepTheirOrder) {
  constexpr uint32_t kReceives = 16;
  auto [a, b] = world_.Connect();
  size_t taken = 0;
  b.news().take_send = [&](absl::string_view) { return ++taken > 0; };
  for (uint32_t i = 0; i < kReceives; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  for (uint32_t i = 0; i < kReceives / 2; ++i) ASSERT_THAT(a.Send(i, a.At(0, 5)), IsOk());
  HAWSER_UNTIL(world_, taken + b.receives.size() == kReceives / 2);
  const size_t completed = b.receives.size();
  world_.ExpectEverythingComesBack(b);
  for (size_t i = completed + 1; i < b.receives.size(); ++i) {
    EXPECT_LT(b.receives[i - 1].wr_id, b.receives[i].wr_id);
  }
}

TEST_P(OfferedSendTest, AHandlerThatPollsInsideEndsTheProcess) {
  // Otherwise the code below runs in a child made by fork(), which has nothing to poll.
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto [a, b] = world_.Connect();
  int offers = 0;
  b.news().take_send = [&](absl::string_view) {
    Completion completion;
    EXPECT_DEATH(world_.completion_queue(1).Poll({&completion, 1}), "inside Poll");
    return ++offers > 0;
  };
  SendUntilOneIsOffered(a, b, "hello", offers);
}

// What one side sends from inside acknowledges the SEND that was offered.
TEST_P(OfferedSendTest, EachSideMayAnswerFromInside) {
  constexpr int kRounds = 200;
  auto [a, b] = world_.Connect({.send_depth = 16, .receive_depth = 16});
  int offers_a = 0, offers_b = 0;
  const auto answer = [](Endpoint& endpoint, int& offers) {
    ++offers;
    const std::string text = absl::StrCat("answer ", offers);
    const bool copied =
        endpoint.qp().PostInline({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    if (copied) {
      endpoint.qp().RingDoorbell();
      return true;
    }
    endpoint.Fill(8000, text);
    EXPECT_THAT(endpoint.Send(offers, endpoint.At(8000, static_cast<uint32_t>(text.size()))), IsOk());
    return true;
  };
  a.news().take_send = [&, &a = a](absl::string_view) { return offers_a < kRounds && answer(a, offers_a); };
  b.news().take_send = [&, &b = b](absl::string_view) { return answer(b, offers_b); };
  size_t answered_a = 0, answered_b = 0;
  a.Fill(0, "begin");
  for (uint32_t i = 0; i < 8; ++i) {
    ASSERT_THAT(a.Receive(i, a.At(100 + i * 100, 100)), IsOk());
    ASSERT_THAT(b.Receive(i, b.At(100 + i * 100, 100)), IsOk());
  }
  ASSERT_THAT(a.Send(999, a.At(0, 5)), IsOk());
  // Those that were not offered are answered from outside.
  const auto answer_others = [&](Endpoint& endpoint, int& offers, size_t& answered) {
    for (; answered < endpoint.receives.size(); ++answered) {
      ASSERT_THAT(endpoint.receives[answered], CompletionIs(answered, kSuccess));
      const size_t next = endpoint.receives_posted;
      ASSERT_THAT(endpoint.Receive(next, endpoint.At(100 + next % 8 * 100, 100)), IsOk());
      answer(endpoint, offers);
    }
  };
  for (int i = 0; offers_a < kRounds && !HasFailure(); ++i) {
    const int before = offers_a;
    const auto look = [&, &a = a, &b = b] {
      answer_others(a, offers_a, answered_a);
      answer_others(b, offers_b, answered_b);
      return offers_a > before;
    };
    HAWSER_UNTIL(world_, look());
  }
  HAWSER_UNTIL(world_, a.sends.size() == a.sends_posted && b.sends.size() == b.sends_posted);
  EXPECT_THAT(a.sends[0], CompletionIs(999, kSuccess));
  EXPECT_THAT(a.news().told, ElementsAre("established"));
  EXPECT_THAT(b.news().told, ElementsAre("established"));
  EXPECT_LT(answered_b, static_cast<size_t>(kRounds / 2)) << "most are offered";
}

TEST_P(OfferedSendTest, TheConnectionMayEndInside) {
  auto [a, b] = world_.Connect();
  int offers = 0;
  b.news().take_send = [&, &b = b](absl::string_view) {
    b.qp().Disconnect();
    return ++offers > 0;
  };
  for (uint32_t i = 0; i < 8; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  for (uint32_t i = 0; i < 5; ++i) ASSERT_THAT(a.Send(i, a.At(0, 5), false), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 8 || (offers == 0 && b.receives.size() == 5));
  EXPECT_LE(offers, 1);
  world_.ExpectEverythingComesBack(b);
  HAWSER_UNTIL(world_, a.news().ended());
}

// The peer of the other one has sent what this side has not read, and is told the reason of the end.
TEST_P(OfferedSendTest, TheMessageStaysWhileAnotherConnectionEnds) {
  auto [a, b] = world_.Connect();
  auto [other_a, other_b] = world_.Connect();
  int offers = 0;
  const std::string text(300, 'm');
  b.news().take_send = [&, &other_a = other_a, &other_b = other_b](absl::string_view message) {
    if (++offers > 1) return true;
    std::memset(other_a.memory(), '?', 4000);
    EXPECT_THAT(other_a.Send(1, other_a.At(0, 4000)), IsOk());
    other_b.qp().DisconnectBecause("another connection ends");
    EXPECT_EQ(message, text);
    return true;
  };
  SendUntilOneIsOffered(a, b, text, offers);
  HAWSER_UNTIL(world_, other_a.news().ended());
  EXPECT_EQ(offers, 1);
}

void SendOrderTest::ExpectOrder(QueuePairOptions options, uint32_t receives) {
  constexpr uint32_t kDepth = 32, kSlot = 1024, kMessages = 2000;
  options.send_depth = options.receive_depth = kDepth;
  auto [a, b] = world_.Connect(options, 2 * kDepth * kSlot);
  std::vector<uint32_t> seen;
  size_t completed = 0, taken = 0;
  const auto number_of = [](absl::string_view message) {
    uint32_t number;
    std::memcpy(&number, message.data(), sizeof(number));
    return number;
  };
  // Of the Poll()s before.
  const auto look = [&, &b = b] {
    for (; completed < b.receives.size(); ++completed) {
      const uint64_t wr_id = b.receives[completed].wr_id;
      ASSERT_THAT(b.receives[completed].status, kSuccess);
      seen.push_back(number_of(b.Text(wr_id * kSlot, 4)));
      ASSERT_THAT(b.Receive(wr_id, b.At(wr_id * kSlot, kSlot)), IsOk());
    }
  };
  uint32_t dice = 1;
  b.news().take_send = [&](absl::string_view message) {
    look();
    dice = dice * 1664525 + 1013904223;
    if (dice >> 30 == 0) return false;
    seen.push_back(number_of(message));
    ++taken;
    return true;
  };
  for (uint32_t i = 0; i < receives; ++i) ASSERT_THAT(b.Receive(i, b.At(i * kSlot, kSlot)), IsOk());
  for (uint32_t sent = 0; seen.size() < kMessages && !HasFailure();) {
    for (; sent < kMessages && sent - a.sends.size() < kDepth && sent - seen.size() < kDepth; ++sent) {
      const uint64_t place = sent % kDepth * kSlot;
      std::memcpy(a.memory() + place, &sent, sizeof(sent));
      ASSERT_THAT(a.Send(sent, a.At(place, 8 + sent * 13 % 700)), IsOk());
    }
    const size_t before = seen.size(), sends_before = a.sends.size();
    const auto more = [&, &a = a] {
      look();
      return seen.size() > before || a.sends.size() > sends_before;
    };
    HAWSER_UNTIL(world_, more());
  }
  for (uint32_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], i);
  EXPECT_EQ(taken > 0, GetParam().offers_sends);
}

TEST_P(SendOrderTest, TakenOnesKeepTheirOrderWithThoseThatCompleteReceives) { ExpectOrder({}, 32); }

TEST_P(WaitingSendOrderTest, TakenOnesKeepTheirOrderWithThoseThatWait) {
  ExpectOrder({.sends_wait = true}, 3);
}

}  // namespace
}  // namespace hawser::fabric
