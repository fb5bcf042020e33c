// Pushes over TCP: of peers that break the protocol, go away, or send them in pieces.
#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/tests/transport/fabric/tcp_stage.h"
#include "hawser/transport/fabric/tcp/frame.h"

namespace hawser::fabric {
namespace {

using ::testing::HasSubstr;

constexpr CompletionStatus kFlushed = CompletionStatus::kFlushed;

// A peer that may push, since both sides said in their greetings that they take pushes.
class PushingPeerTest : public TcpFabricTest {
 protected:
  void SetUp() override {
    peer_.BecomePeerOf(b_, kTakesPushes);
    for (uint64_t i = 0; i < 8; ++i) ASSERT_THAT(b_.Receive(i, b_.At(i * 100, 100)), IsOk());
  }
  void ExpectBrokenProtocol(absl::string_view how) {
    HAWSER_UNTIL(world_, b_.news().ended());
    EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr(std::string(how)));
    world_.ExpectEverythingComesBack(b_);
  }
  // What can be done only between one Poll() and the next is tried after each.
  template <typename Done>
  bool PollUntil(Done done) {
    for (const absl::Time end = absl::Now() + absl::Seconds(20); absl::Now() < end;) {
      world_.PollOnce();
      if (done()) return true;
    }
    return false;
  }

  // What the peer says that it has granted.
  static constexpr Granted kPushed = {.address = 4096, .rkey = 7};

  static std::string Frame(const FrameHeader& header, absl::string_view payload) {
    return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&header), sizeof(header)), payload);
  }
  static std::string Look(uint8_t flags = 0) {
    return Frame({.kind = FrameKind::kSend, .flags = flags, .length_bytes = 4}, "look");
  }
  static std::string LookOf(uint32_t length_bytes, uint8_t flags = 0) {
    return Frame({.kind = FrameKind::kSend, .flags = flags, .length_bytes = length_bytes},
                 std::string(length_bytes, 's'));
  }
  // Headers of four bytes that are right but for one field each.
  static std::vector<FrameHeader> WrongBits(FrameKind kind, uint8_t flags) {
    const FrameHeader right = {.kind = kind, .flags = flags, .length_bytes = 4, .key = 7, .address = 4096};
    std::vector<FrameHeader> wrong(3, right);
    wrong[0].flags |= 0x80;
    wrong[1].status = 1;
    wrong[2].reserved = 1;
    return wrong;
  }
  // `b` is established, and is offered nothing from now on.
  void ExpectNoOffer(Endpoint& b) {
    b.news().take_send = [](absl::string_view) {
      ADD_FAILURE() << "offered";
      return true;
    };
    world_.PollSome(3);
  }
  // Of kPushed.
  static std::string Push(absl::string_view bytes, uint8_t flags = 0) {
    return Frame({.kind = FrameKind::kPush,
                  .flags = flags,
                  .length_bytes = static_cast<uint32_t>(bytes.size()),
                  .key = kPushed.rkey,
                  .address = kPushed.address},
                 bytes);
  }
  static bool Take(Endpoint& b, uint64_t wr_id, const Sge& sink) { return b.TakePush(wr_id, sink, kPushed); }
  bool Take(uint64_t wr_id, const Sge& sink) { return Take(b_, wr_id, sink); }

  Endpoint& b_ = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 4}, 256 * 1024);
  Stranger peer_{world_};
};

TEST_F(PushingPeerTest, AnEmptyPush) {
  peer_.Say({.kind = FrameKind::kPush});
  ExpectBrokenProtocol("pushed 0 bytes");
}

TEST_F(PushingPeerTest, APushThatIsTooLong) {
  peer_.Say({.kind = FrameKind::kPush, .length_bytes = kPushBytesMax + 1});
  ExpectBrokenProtocol("pushed 135169 bytes");
}

TEST_F(PushingPeerTest, PushesOfWhatIsNotAskedForAreDropped) {
  const std::string bytes(kPushBytesMax, 'p');
  for (uint64_t i = 0; i < 100; ++i) {
    peer_.Say({.kind = FrameKind::kSend, .length_bytes = 4}, "look");
    peer_.Say({.kind = FrameKind::kPush, .length_bytes = kPushBytesMax, .key = 7}, bytes);
    HAWSER_UNTIL(world_, b_.receives.size() == i + 1);
    ASSERT_THAT(b_.Receive(8 + i, b_.At(0, 100)), IsOk());
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(b_.memory()[1000 + i], 0);
  EXPECT_FALSE(b_.news().ended());
}

TEST_F(PushingPeerTest, TwoPushesBehindOneSend) {
  peer_.Say({.kind = FrameKind::kSend, .length_bytes = 4}, "look");
  for (int i = 0; i < 2; ++i) peer_.Say({.kind = FrameKind::kPush, .length_bytes = 4, .key = 7}, "push");
  ExpectBrokenProtocol("twice behind one");
}

TEST_F(PushingPeerTest, APushBeforeTheFirstSend) {
  peer_.Say({.kind = FrameKind::kPush, .length_bytes = 4, .key = 7}, "push");
  ExpectBrokenProtocol("pushed before its first SEND");
}

TEST_F(PushingPeerTest, ALateByteOfAPushChangesNothingThatWasTaken) {
  const FrameHeader push = {.kind = FrameKind::kPush, .length_bytes = 4, .key = 7, .address = 4096};
  peer_.Say({.kind = FrameKind::kSend, .length_bytes = 4}, "look");
  peer_.Say(push, "true");
  ASSERT_TRUE(PollUntil([&] { return b_.TakePush(1, b_.At(1000, 4), kPushed); }));
  HAWSER_UNTIL(world_, b_.sends.size() == 1);
  peer_.Say({.kind = FrameKind::kSend, .length_bytes = 4}, "more");
  peer_.Say(push, "lies");
  HAWSER_UNTIL(world_, b_.receives.size() == 2);
  world_.PollSome(5);
  EXPECT_EQ(b_.Text(1000, 4), "true");
}

TEST_F(PushingPeerTest, APushThatIsCutByADisconnectComesBackFlushed) {
  peer_.Say({.kind = FrameKind::kSend, .length_bytes = 4}, "look");
  peer_.Say({.kind = FrameKind::kPush, .length_bytes = 60000, .key = 7, .address = 4096}, "the front of it");
  ASSERT_TRUE(PollUntil([&] { return b_.TakePush(1, b_.At(1000, 60000), kPushed); }));
  world_.PollSome(5);
  b_.qp().Disconnect();
  peer_.Say(std::string(59985, 'x'));
  world_.ExpectEverythingComesBack(b_);
  ASSERT_EQ(b_.sends.size(), 1u);
  EXPECT_THAT(b_.sends[0], CompletionIs(1, kFlushed));
  EXPECT_EQ(b_.memory()[1015], 0);
}

TEST_F(PushingPeerTest, WhatComesWhilePushesWaitIsNotForgotten) {
  auto [c, d] = world_.Connect();  // With another connection, a queue looks only at sockets that have news.
  const std::string send = Frame({.kind = FrameKind::kSend, .length_bytes = 4}, "look");
  const std::string push = Frame({.kind = FrameKind::kPush, .length_bytes = 4, .key = 7}, "push");
  peer_.Say(send + push + send + push);
  for (int i = 0; i < 3; ++i) b_.completion_queue().Poll({});  // Finds both, and has no room to tell of them.
  peer_.Say(send);
  for (int i = 0; i < 3; ++i) b_.completion_queue().Poll({});
  HAWSER_UNTIL(world_, b_.receives.size() == 3);
}

TEST_F(PushingPeerTest, APushMayComeByteByByte) {
  const FrameHeader send = {.kind = FrameKind::kSend, .length_bytes = 4};
  const FrameHeader push = {.kind = FrameKind::kPush, .length_bytes = 30, .key = 7, .address = 4096};
  std::string all(reinterpret_cast<const char*>(&send), sizeof(send));
  all += "look" + std::string(reinterpret_cast<const char*>(&push), sizeof(push)) + std::string(30, 'p');
  bool taken = false;
  for (const char byte : all) {
    peer_.Say(std::string(1, byte));
    for (int i = 0; i < 3; ++i) {
      world_.PollOnce();
      taken |= b_.TakePush(1, b_.At(1000, 30), kPushed);
    }
  }
  ASSERT_TRUE(taken);
  HAWSER_UNTIL(world_, b_.sends.size() == 1);
  EXPECT_EQ(b_.Text(1000, 30), std::string(30, 'p'));
  peer_.Say(send, "more");
  HAWSER_UNTIL(world_, b_.receives.size() == 2);
}

TEST_F(PushingPeerTest, APeerThatDiesInTheMiddleOfAPushThatWasTaken) {
  peer_.Say({.kind = FrameKind::kSend, .length_bytes = 4}, "look");
  peer_.Say({.kind = FrameKind::kPush, .length_bytes = 60000, .key = 7, .address = 4096}, "the front of it");
  ASSERT_TRUE(PollUntil([&] { return b_.TakePush(1, b_.At(1000, 60000), kPushed); }));
  world_.PollSome(5);
  EXPECT_TRUE(b_.sends.empty());
  peer_.Close();
  HAWSER_UNTIL(world_, b_.news().ended());
  world_.ExpectEverythingComesBack(b_);
  ASSERT_EQ(b_.sends.size(), 1u);
  EXPECT_THAT(b_.sends[0], CompletionIs(1, kFlushed));
}

TEST_F(PushingPeerTest, ASendThatAnnouncesAPushIsFoundWithIt) {
  const std::string push = Push("true");
  peer_.Say(Look(kPushFollowsFlag) + push.substr(0, sizeof(FrameHeader) - 1));
  world_.PollSome(20);
  EXPECT_TRUE(b_.receives.empty());
  peer_.Say(push.substr(sizeof(FrameHeader) - 1));
  HAWSER_UNTIL(world_, b_.receives.size() == 1);
  EXPECT_TRUE(Take(1, b_.At(1000, 4)));
  HAWSER_UNTIL(world_, b_.sends.size() == 1);
  EXPECT_EQ(b_.Text(1000, 4), "true");
}

// The handler takes the push inside the offer of its SEND, before all of its bytes have come.
TEST_F(PushingPeerTest, TheRestOfAPushThatWasOfferedGoesToItsPlace) {
  int offers = 0;
  b_.news().take_send = [&](absl::string_view) {
    EXPECT_EQ(Take(1, b_.At(1000, 60000)), offers == 0);
    return ++offers > 0;
  };
  world_.PollSome(3);  // The connection is established, and has no completions.
  const std::string bytes = std::string(20000, 'a') + std::string(40000, 'b');
  const std::string all = Look(kPushFollowsFlag) + Push(bytes, kAckRequestedFlag);
  peer_.Say(all.substr(0, 1000));
  HAWSER_UNTIL(world_, offers == 1);
  world_.PollSome(5);
  EXPECT_TRUE(b_.sends.empty());
  peer_.Say(all.substr(1000) + Look());
  HAWSER_UNTIL(world_, b_.sends.size() == 1 && offers == 2);
  EXPECT_THAT(b_.sends[0], CompletionIs(1, CompletionStatus::kSuccess));
  EXPECT_EQ(b_.Text(1000, 60000), bytes);
  peer_.HearBytes(sizeof(FrameHeader));
  EXPECT_GE(peer_.FrameAt(0).acknowledged, 2u);
}

TEST_F(PushingPeerTest, AConnectionThatEndsInsideAnOfferFlushesAPushThatIsNotThere) {
  int offers = 0;
  b_.news().take_send = [&](absl::string_view) {
    EXPECT_TRUE(Take(1, b_.At(1000, 60000)));
    b_.qp().Disconnect();
    return ++offers > 0;
  };
  world_.PollSome(3);
  peer_.Say((Look(kPushFollowsFlag) + Push(std::string(60000, 'p'))).substr(0, 1000));
  HAWSER_UNTIL(world_, offers == 1);
  world_.ExpectEverythingComesBack(b_);
  ASSERT_EQ(b_.sends.size(), 1u);
  EXPECT_THAT(b_.sends[0], CompletionIs(1, kFlushed));
}

TEST_F(PushingPeerTest, APushThatIsDroppedWithItsSendIsDroppedToItsEnd) {
  int offers = 0;
  b_.news().take_send = [&](absl::string_view message) {
    EXPECT_EQ(message, "look");
    return ++offers > 0;
  };
  world_.PollSome(3);
  const std::string all = Look(kPushFollowsFlag) + Push(std::string(60000, 'p'));
  peer_.Say(all.substr(0, 1000));
  HAWSER_UNTIL(world_, offers == 1);
  peer_.Say(all.substr(1000) + Look());
  HAWSER_UNTIL(world_, offers + b_.receives.size() == 2);
  EXPECT_FALSE(b_.news().ended());
  for (size_t i = 1000; i < 61000; ++i) ASSERT_EQ(b_.memory()[i], 0);
}

// ---- What is not right in either of the two frames is found as without an offer.

TEST_F(PushingPeerTest, ASendWithAPushThatIsNotRightIsNotOffered) {
  ExpectNoOffer(b_);
  peer_.Say(Look(kPushFollowsFlag) +
            Frame({.kind = FrameKind::kPush, .length_bytes = kPushBytesMax + 1, .key = 7}, "push"));
  ExpectBrokenProtocol("pushed 135169 bytes");
}

TEST_F(PushingPeerTest, ASendWithAnEmptyPushIsNotOffered) {
  ExpectNoOffer(b_);
  peer_.Say(Look(kPushFollowsFlag) + Push(""));
  ExpectBrokenProtocol("pushed 0 bytes");
}

TEST_F(PushingPeerTest, ASendWithAPushThatFindsNoReceiveIsNotOffered) {
  Endpoint& b = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 4}, 4096);
  Stranger peer(world_);
  peer.BecomePeerOf(b, kTakesPushes);
  ExpectNoOffer(b);
  peer.Say(Look(kPushFollowsFlag) + Push("push"));
  peer.HearBytes(sizeof(FrameHeader));
  EXPECT_EQ(peer.FrameAt(0).kind, FrameKind::kNak);
  EXPECT_EQ(peer.FrameAt(0).status, static_cast<uint8_t>(CompletionStatus::kRnrRetryExceeded));
}

TEST_F(PushingPeerTest, ASendWithAPushThatIsLongerThanItsReceiveIsNotOffered) {
  ExpectNoOffer(b_);
  peer_.Say(LookOf(101, kPushFollowsFlag) + Push("push"));
  HAWSER_UNTIL(world_, b_.news().ended());
  EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr("101 bytes met a posted receive of 100"));
}

TEST_F(PushingPeerTest, AnEmptySendWithAPushIsNotOffered) {
  ExpectNoOffer(b_);
  peer_.Say(LookOf(0, kPushFollowsFlag) + Push("push"));
  ExpectBrokenProtocol("SEND of 0 bytes");
}

// The copy to its receive does not matter then.
TEST_F(PushingPeerTest, ALongSendIsNotOfferedWithItsPush) {
  Endpoint& b = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 4}, 16 * 1024);
  Stranger peer(world_);
  peer.BecomePeerOf(b, kTakesPushes);
  for (uint64_t i = 0; i < 2; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 1000, 1000)), IsOk());
  std::vector<size_t> offered;
  b.news().take_send = [&](absl::string_view message) { return offered.push_back(message.size()), true; };
  world_.PollSome(3);
  peer.Say(LookOf(512, kPushFollowsFlag) + Push("push"));
  HAWSER_UNTIL(world_, offered.size() + b.receives.size() == 1);
  peer.Say(LookOf(513, kPushFollowsFlag) + Push("push"));
  HAWSER_UNTIL(world_, offered.size() + b.receives.size() == 2);
  EXPECT_EQ(offered, std::vector<size_t>{512});
}

TEST_F(PushingPeerTest, ASendOfWrongBitsIsNotOfferedWithItsPush) {
  for (const FrameHeader& wrong : WrongBits(FrameKind::kSend, kPushFollowsFlag)) {
    Endpoint& b = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 4}, 4096);
    Stranger peer(world_);
    peer.BecomePeerOf(b, kTakesPushes);
    ASSERT_THAT(b.Receive(0, b.At(0, 100)), IsOk());
    ExpectNoOffer(b);
    peer.Say(Frame(wrong, "look") + Push("push"));
    HAWSER_UNTIL(world_, b.news().ended());
    EXPECT_THAT(std::string(b.news().why.message()), HasSubstr("a frame of kind 1 with flags"));
  }
}

TEST_F(PushingPeerTest, ASendIsNotOfferedWithAPushOfWrongBits) {
  for (const FrameHeader& wrong : WrongBits(FrameKind::kPush, 0)) {
    Endpoint& b = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 4}, 4096);
    Stranger peer(world_);
    peer.BecomePeerOf(b, kTakesPushes);
    ASSERT_THAT(b.Receive(0, b.At(0, 100)), IsOk());
    ExpectNoOffer(b);
    peer.Say(Look(kPushFollowsFlag) + Frame(wrong, "push"));
    HAWSER_UNTIL(world_, b.news().ended());
    EXPECT_THAT(std::string(b.news().why.message()), HasSubstr("a frame of kind 8 with flags"));
  }
}

// The push acknowledges more than its SEND: one offer of both would drop that.
TEST_F(PushingPeerTest, WhatThePushOfASendAcknowledgesIsNotForgotten) {
  ASSERT_THAT(b_.Send(5, b_.At(0, 4)), IsOk());
  peer_.HearBytes(sizeof(FrameHeader) + 4);
  ExpectNoOffer(b_);
  FrameHeader push = {.kind = FrameKind::kPush, .length_bytes = 4, .acknowledged = 1, .key = kPushed.rkey};
  peer_.Say(Look(kPushFollowsFlag) + Frame(push, "push"));
  HAWSER_UNTIL(world_, b_.receives.size() == 1 && b_.sends.size() == 1);
  ASSERT_EQ(b_.sends.size(), 1u);
  EXPECT_THAT(b_.sends[0], CompletionIs(5, CompletionStatus::kSuccess));
}

TEST_F(PushingPeerTest, ASendIsNotOfferedWithAPushThatAcknowledgesLess) {
  ASSERT_THAT(b_.Send(5, b_.At(0, 4)), IsOk());
  peer_.HearBytes(sizeof(FrameHeader) + 4);
  ExpectNoOffer(b_);
  peer_.Say(Frame({.kind = FrameKind::kSend, .flags = kPushFollowsFlag, .length_bytes = 4, .acknowledged = 1},
                  "look") +
            Push("push"));
  ExpectBrokenProtocol("it acknowledged 0 requests of 1 that were sent, 1 of them acknowledged before");
}

TEST_F(PushingPeerTest, ASendWithAPushIsNotOfferedIfBothAcknowledgeWhatWasNotSent) {
  ExpectNoOffer(b_);
  peer_.Say(Frame({.kind = FrameKind::kSend, .flags = kPushFollowsFlag, .length_bytes = 4, .acknowledged = 3},
                  "look") +
            Frame({.kind = FrameKind::kPush, .length_bytes = 4, .acknowledged = 3, .key = 7}, "push"));
  ExpectBrokenProtocol("it acknowledged 3 requests of 0 that were sent");
}

TEST_F(PushingPeerTest, ASendIsNotOfferedWithItsPushBehindOneThatWaitsForItsPoll) {
  int offers = 0;
  b_.news().take_send = [&](absl::string_view) { return ++offers > 1; };
  world_.PollSome(3);
  peer_.Say(Look() + Look(kPushFollowsFlag) + Push("true"));
  HAWSER_UNTIL(world_, b_.receives.size() == 2);
  EXPECT_EQ(offers, 1);
  EXPECT_TRUE(Take(1, b_.At(1000, 4)));
}

TEST_F(PushingPeerTest, ASendWhoseAnnouncedPushNeverComesIsReceivedBeforeTheEnd) {
  peer_.Say(Look(kPushFollowsFlag));
  world_.PollSome(20);
  EXPECT_TRUE(b_.receives.empty());
  b_.news().on_disconnected = [&] { EXPECT_EQ(b_.receives.size(), 1u); };
  peer_.Close();
  HAWSER_UNTIL(world_, b_.news().ended());
  world_.ExpectEverythingComesBack(b_);
  EXPECT_THAT(b_.receives[0], CompletionIs(0, CompletionStatus::kSuccess));
}

TEST_F(PushingPeerTest, AnotherRequestInPlaceOfTheAnnouncedPush) {
  peer_.Say(Look(kPushFollowsFlag) + Look());
  ExpectBrokenProtocol("another request in place of the push that its SEND announced");
}

TEST_F(TcpFabricTest, APeerThatMayNotPushAnnouncesNone) {
  auto& b = world_.NewEndpoint(1);
  Stranger peer(world_);
  peer.BecomePeerOf(b);
  ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
  peer.Say({.kind = FrameKind::kSend, .flags = kPushFollowsFlag, .length_bytes = 4}, "look");
  HAWSER_UNTIL(world_, b.news().ended());
  EXPECT_THAT(std::string(b.news().why.message()), HasSubstr("flags 2"));
}

// What this side does to the connection between two Poll()s comes behind what had arrived.
TEST_F(PushingPeerTest, AllThatCameIsReceivedBeforeARevocationEndsTheConnection) {
  const Granted granted = b_.Grant(b_.At(4096, 200'000), QueuePair::Access::kRead);
  int small = 4096;  // So that the answer to the READ does not fit.
  setsockopt(peer_.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  for (int i = 0; i < 4; ++i) {
    peer_.Say({.kind = FrameKind::kReadRequest,
               .length_bytes = 200'000,
               .key = granted.rkey,
               .address = granted.address});
  }
  world_.PollSome(20);
  peer_.Say(Look(kPushFollowsFlag) + Push("push") + Look(kPushFollowsFlag));
  HAWSER_UNTIL(world_, b_.receives.size() == 1);
  b_.Revoke(7, granted.rkey);
  b_.news().on_disconnected = [&] { EXPECT_EQ(b_.receives.size(), 2u); };
  HAWSER_UNTIL(world_, b_.news().ended());
  EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr("revoked while"));
  world_.ExpectEverythingComesBack(b_);
}

// A push that is there completes before messages behind it are returned.
TEST_F(PushingPeerTest, APushDoesNotWaitForTheMessagesBehindIt) {
  peer_.Say(Look() + Push("true") + Look() + Look() + Look() + Look());
  std::string order;
  const auto poll_one = [&] {
    Completion completion;
    if (b_.completion_queue().Poll({&completion, 1}) == 0) return;
    order += completion.opcode == Opcode::kRead ? 'p' : 'm';
    b_.Take(completion);
    if (order == "m") {
      EXPECT_TRUE(Take(1, b_.At(1000, 4)));
    }
  };
  for (const absl::Time end = absl::Now() + absl::Seconds(20); order.size() < 6 && absl::Now() < end;)
    poll_one();
  EXPECT_EQ(order, "mpmmmm");
  EXPECT_EQ(b_.Text(1000, 4), "true");
}

TEST_F(PushingPeerTest, AWriteThatAnnouncesAPush) {
  peer_.Say(
      Frame({.kind = FrameKind::kWrite, .flags = kPushFollowsFlag, .length_bytes = 4, .key = 7}, "data"));
  ExpectBrokenProtocol("flags 2");
}

// What acknowledges something is looked at once, though it was read before it was its turn.
TEST_F(PushingPeerTest, AnAcknowledgementBehindAPush) {
  ASSERT_THAT(b_.Send(5, b_.At(0, 4)), IsOk());
  peer_.HearBytes(sizeof(FrameHeader) + 4);
  peer_.Say(Look() + Push("push") + Frame({.kind = FrameKind::kAck, .acknowledged = 1}, "") +
            Frame({.kind = FrameKind::kSend, .length_bytes = 4, .acknowledged = 1}, "more"));
  HAWSER_UNTIL(world_, b_.receives.size() == 2 && b_.sends.size() == 1);
  EXPECT_FALSE(b_.news().ended());
}

// Whether the end is found with them or by the next look depends on how much of them one look asks for.
TEST_F(PushingPeerTest, PushesOfAPeerThatHasGoneCanBeTaken) {
  auto [c, d] = world_.Connect();  // With another connection, a queue looks only at sockets that have news.
  for (size_t length = 9000; length < 10'400; ++length) {
    Endpoint& b = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 4}, 16 * 1024);
    Stranger peer(world_);
    peer.BecomePeerOf(b, kTakesPushes);
    for (uint64_t i = 0; i < 8; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
    const std::string second(length, '2');
    peer.Say(Look() + Push("one!") + Look() + Push(second));
    peer.Close();
    HAWSER_UNTIL(world_, b.receives.size() == 2);
    EXPECT_FALSE(b.news().ended());
    ASSERT_TRUE(Take(b, 1, b.At(1000, 4)) && Take(b, 2, b.At(2000, static_cast<uint32_t>(length))));
    HAWSER_UNTIL(world_, b.news().ended());
    world_.ExpectEverythingComesBack(b);
    ASSERT_EQ(b.sends.size(), 2u);
    for (const Completion& completion : b.sends) ASSERT_EQ(completion.status, CompletionStatus::kSuccess);
    ASSERT_EQ(b.Text(1000, 4), "one!");
    ASSERT_EQ(b.Text(2000, length), second);
    b.Destroy();
  }
}

// The peer does not read its socket, whose buffers take less.
TEST_F(PushingPeerTest, WhatAPeerTakesOfAPushIsProgress) {
  constexpr uint32_t kPushes = 128, kSend = 100;
  constexpr int64_t kWhole = int64_t{kPushes} * (2 * sizeof(FrameHeader) + kSend + kPushBytesMax);
  Endpoint& b = world_.NewEndpoint(1, {.send_depth = 2 * kPushes + 1, .receive_depth = 8, .read_depth = 16},
                                   kPushBytesMax);
  Stranger peer(world_);
  peer.BecomePeerOf(b, kTakesPushes);
  const Sge data = b.At(0, kPushBytesMax);
  const Granted granted = b.Grant(data, QueuePair::Access::kRead);
  for (uint32_t i = 0; i < kPushes; ++i) {
    ASSERT_THAT(b.SendAndPush(i, b.At(0, kSend), data, granted), IsOk());
  }
  HAWSER_UNTIL(world_, b.qp().progress().sent > 0);
  world_.PollSome();
  const int64_t full = b.qp().progress().sent;
  EXPECT_LT(full, kWhole) << "more than the buffers of sockets have";
  HAWSER_UNTIL(world_, (peer.Listen(), b.qp().progress().sent > full));
  HAWSER_UNTIL(world_, (peer.Listen(), b.qp().progress().sent == kWhole));
  ASSERT_THAT(b.Send(kPushes, b.At(0, kSend)), IsOk());
  world_.PollSome();
  EXPECT_LE(b.qp().progress().sent, kWhole) << "something else was sent";
}

TEST_F(PushingPeerTest, EachPartOfAPushThatWasTakenIsProgress) {
  peer_.Say(Look());
  peer_.Say({.kind = FrameKind::kPush, .length_bytes = 60000, .key = 7, .address = 4096}, "the front of it");
  ASSERT_TRUE(PollUntil([&] { return b_.TakePush(1, b_.At(1000, 60000), kPushed); }));
  world_.PollSome(5);
  const uint64_t arrived = b_.qp().progress().arrived;
  peer_.Say("more of it");
  HAWSER_UNTIL(world_, b_.qp().progress().arrived != arrived);
  EXPECT_TRUE(b_.sends.empty()) << "not all of it has come";
}

TEST_F(PushingPeerTest, ASendSaysThatItsPushFollows) {
  const Granted granted = b_.Grant(b_.At(4096, 10), QueuePair::Access::kRead);
  ASSERT_THAT(b_.SendAndPush(1, b_.At(0, 4), b_.At(4096, 10), granted), IsOk());
  peer_.HearBytes(2 * sizeof(FrameHeader) + 14);
  EXPECT_EQ(peer_.FrameAt(0).flags, kPushFollowsFlag);
  EXPECT_EQ(peer_.FrameAt(sizeof(FrameHeader) + 4).flags, kAckRequestedFlag);
}

// What is wrong ends the connection after the pushes before it.
TEST_F(PushingPeerTest, WhatBreaksTheProtocolBehindAPushThatIsTaken) {
  peer_.Say(Look() + Push("true") + Look() + Push(""));
  HAWSER_UNTIL(world_, !b_.receives.empty());
  EXPECT_TRUE(Take(1, b_.At(1000, 4)));
  HAWSER_UNTIL(world_, b_.sends.size() == 1);
  EXPECT_EQ(b_.Text(1000, 4), "true");
  ExpectBrokenProtocol("pushed 0 bytes");
}

// Each push wants an acknowledgement: the count is that of what has come, in the order of the requests.
TEST_F(PushingPeerTest, PushesAreAcknowledgedAsTheyCome) {
  const std::string second = Push(std::string(60000, '2'), kAckRequestedFlag);
  peer_.Say(Look() + Push("1", kAckRequestedFlag) + Look() + second.substr(0, 1000));
  HAWSER_UNTIL(world_, b_.receives.size() == 2);
  peer_.HearBytes(sizeof(FrameHeader));
  EXPECT_EQ(peer_.FrameAt(0).acknowledged, 3u);
  peer_.Say(second.substr(1000));
  peer_.HearBytes(2 * sizeof(FrameHeader));
  EXPECT_EQ(peer_.FrameAt(sizeof(FrameHeader)).acknowledged, 4u);
}

}  // namespace
}  // namespace hawser::fabric
