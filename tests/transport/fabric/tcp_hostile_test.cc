// Peers of the fabric over TCP that break its protocol.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/tests/transport/fabric/tcp_stage.h"
#include "hawser/transport/fabric/tcp/frame.h"

namespace hawser::fabric {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr CompletionStatus kSuccess = CompletionStatus::kSuccess;
constexpr CompletionStatus kFlushed = CompletionStatus::kFlushed;

class HostilePeerTest : public TcpFabricTest {
 protected:
  HostilePeerTest() {
    peer_.BecomePeerOf(b_);
    EXPECT_THAT(b_.Receive(1, b_.At(0, 1000)), IsOk());
    readable_ = b_.Grant(b_.At(1000, 1000), QueuePair::Access::kRead);
    writable_ = b_.Grant(b_.At(2000, 1000), QueuePair::Access::kWrite);
  }

  void ExpectBrokenProtocol(absl::string_view how) {
    HAWSER_UNTIL(world_, b_.news().ended());
    EXPECT_THAT(b_.news().why, HasCode(absl::StatusCode::kDataLoss));
    EXPECT_THAT(std::string(b_.news().why.message()),
                StartsWith(absl::StrCat("peer ", b_.qp().peer_address().ToString(),
                                        " broke the fabric's protocol: ")));
    EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr(std::string(how)));
    world_.ExpectEverythingComesBack(b_);
    for (const Completion& receive : b_.receives) EXPECT_EQ(receive.status, kFlushed);
    peer_.HearUntilClosed();
  }

  Endpoint& b_ = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 4});
  Stranger peer_{world_};
  Granted readable_;
  Granted writable_;
};

TEST_F(HostilePeerTest, AFrameOfUnknownKind) {
  peer_.Say({.kind = static_cast<FrameKind>(77)});
  ExpectBrokenProtocol("unknown kind 77");
}

TEST_F(HostilePeerTest, AFrameWithAFlagThatIsNone) {
  peer_.Say({.kind = FrameKind::kAck, .flags = 2});
  ExpectBrokenProtocol("kind 5 with flags 2");
}

TEST_F(HostilePeerTest, AFrameThatIsNoSendOrWriteWithTheirFlag) {
  peer_.Say({.kind = FrameKind::kReadRequest,
             .flags = kAckRequestedFlag,
             .length_bytes = 1,
             .key = readable_.rkey,
             .address = readable_.address});
  ExpectBrokenProtocol("flags 1");
}

TEST_F(HostilePeerTest, AReadResponseWithTheFlagOfARequest) {
  ASSERT_THAT(b_.Read(1, b_.At(5000, 10), {.address = 4096, .rkey = 1}), IsOk());
  peer_.Say(
      {.kind = FrameKind::kReadResponse, .flags = kAckRequestedFlag, .length_bytes = 10, .acknowledged = 1},
      "0123456789");
  ExpectBrokenProtocol("flags 1");
}

TEST_F(HostilePeerTest, AFrameThatIsNoRefusalWithAStatus) {
  peer_.Say({.kind = FrameKind::kSend, .status = 2, .length_bytes = 1}, "x");
  ExpectBrokenProtocol("status 2");
}

TEST_F(HostilePeerTest, AFrameWithReservedBits) {
  peer_.Say({.kind = FrameKind::kSend, .reserved = 16, .length_bytes = 1}, "x");
  ExpectBrokenProtocol("flags 0, status 0 and reserved bits 16");
}

TEST_F(HostilePeerTest, AnAcknowledgementWithAPayload) {
  peer_.Say({.kind = FrameKind::kAck, .length_bytes = 3}, "abc");
  ExpectBrokenProtocol("kind 5, which has no payload, with one of 3 bytes");
}

TEST_F(HostilePeerTest, AnEmptyFarewell) {
  peer_.Say({.kind = FrameKind::kFarewell});
  ExpectBrokenProtocol("farewell of 0 bytes");
}

TEST_F(HostilePeerTest, AFarewellThatIsTooLong) {
  peer_.Say({.kind = FrameKind::kFarewell, .length_bytes = kFarewellBytesMax + 1},
            std::string(kFarewellBytesMax + 1, 'x'));
  ExpectBrokenProtocol("farewell of 257 bytes");
}

TEST_F(HostilePeerTest, ASecondFarewell) {
  peer_.Say({.kind = FrameKind::kFarewell, .length_bytes = 1}, "a");
  peer_.Say({.kind = FrameKind::kFarewell, .length_bytes = 1}, "b");
  ExpectBrokenProtocol("a second farewell");
}

TEST_F(HostilePeerTest, AFarewellIsToldEscapedWhenTheConnectionEnds) {
  const std::string text = "tired of \x1b[31myou\n";
  peer_.Say({.kind = FrameKind::kFarewell, .length_bytes = static_cast<uint32_t>(text.size())}, text);
  world_.PollSome();
  EXPECT_FALSE(b_.news().ended());
  peer_.Close();
  HAWSER_UNTIL(world_, b_.news().ended());
  EXPECT_THAT(b_.news().why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr("says why: tired of \\x1b[31myou\\n"));
  world_.ExpectEverythingComesBack(b_);
}

TEST_F(HostilePeerTest, AFarewellThatIsCutIsNotTold) {
  peer_.Say({.kind = FrameKind::kFarewell, .length_bytes = 10}, "tired");
  world_.PollSome();
  peer_.Close();
  HAWSER_UNTIL(world_, b_.news().ended());
  EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr("in the middle of a frame"));
  world_.ExpectEverythingComesBack(b_);
}

TEST_F(HostilePeerTest, AViolationIsToldToThePeerBehindNothingUnread) {
  for (int i = 0; i < 1000; ++i) peer_.Say({.kind = static_cast<FrameKind>(77)});
  ExpectBrokenProtocol("unknown kind 77");
  ASSERT_GE(peer_.heard().size(), sizeof(FrameHeader));
  const FrameHeader farewell = peer_.FrameAt(0);
  EXPECT_EQ(farewell.kind, FrameKind::kFarewell);
  EXPECT_EQ(peer_.heard().substr(sizeof(FrameHeader)), "it sent a frame of unknown kind 77");
  EXPECT_EQ(farewell.length_bytes, peer_.heard().size() - sizeof(FrameHeader));
}

TEST_F(HostilePeerTest, APushToASideThatDidNotSayThatItTakesThem) {
  peer_.Say({.kind = FrameKind::kPush, .length_bytes = 4}, "push");
  ExpectBrokenProtocol("pushed 4 bytes");
}

TEST_F(HostilePeerTest, AnEmptySend) {
  peer_.Say({.kind = FrameKind::kSend});
  ExpectBrokenProtocol("SEND of 0 bytes");
}

TEST_F(HostilePeerTest, AHugeSend) {
  peer_.Say({.kind = FrameKind::kSend, .length_bytes = ~0u});
  ExpectBrokenProtocol("SEND of 4294967295 bytes");
}

TEST_F(HostilePeerTest, AHugeWrite) {
  peer_.Say(
      {.kind = FrameKind::kWrite, .length_bytes = ~0u, .key = writable_.rkey, .address = writable_.address});
  ExpectBrokenProtocol("WRITE of 4294967295 bytes");
}

TEST_F(HostilePeerTest, AnEmptyRead) {
  peer_.Say({.kind = FrameKind::kReadRequest, .key = readable_.rkey, .address = readable_.address});
  ExpectBrokenProtocol("READ of 0 bytes");
}

TEST_F(HostilePeerTest, AnAcknowledgementOfWhatWasNeverSent) {
  peer_.Say({.kind = FrameKind::kAck, .acknowledged = 1});
  ExpectBrokenProtocol("acknowledged 1 requests of 0 that were sent");
}

TEST_F(HostilePeerTest, AnAcknowledgementOfNothingNew) {
  ASSERT_THAT(b_.Send(1, b_.At(0, 1)), IsOk());
  peer_.Say({.kind = FrameKind::kAck, .acknowledged = 1});
  HAWSER_UNTIL(world_, b_.sends.size() == 1);
  peer_.Say({.kind = FrameKind::kAck, .acknowledged = 1});
  ExpectBrokenProtocol("an acknowledgement frame that acknowledges nothing new");
}

TEST_F(HostilePeerTest, AnAcknowledgementThatGoesBack) {
  peer_.Say({.kind = FrameKind::kAck, .acknowledged = ~0u});
  ExpectBrokenProtocol("acknowledged 4294967295 requests of 0");
}

// As many more as there are numbers would make one that is not sent look acknowledged.
TEST_F(HostilePeerTest, APeerThatNeverAcknowledgesIsSentNoMoreCopies) {
  const uint8_t message[1] = {7};
  constexpr size_t kFrameBytes = sizeof(FrameHeader) + sizeof(message);
  size_t posted = 0;
  while (b_.qp().PostInline(message)) {
    ASSERT_LT(++posted, 20'000u);
    b_.qp().RingDoorbell();
    if (posted % 100 == 0) peer_.HearBytes(posted * kFrameBytes);
  }
  EXPECT_GE(posted, 1'000u);
  ASSERT_THAT(b_.Send(1, b_.At(0, 1)), IsOk());
  peer_.HearBytes((posted + 1) * kFrameBytes);
  EXPECT_FALSE(b_.qp().PostInline(message));
  EXPECT_TRUE(b_.sends.empty());
  peer_.Say({.kind = FrameKind::kAck, .acknowledged = static_cast<uint32_t>(posted + 1)});
  HAWSER_UNTIL(world_, b_.sends.size() == 1);
  EXPECT_TRUE(b_.qp().PostInline(message));
}

TEST_F(HostilePeerTest, ARefusalOfWhatWasNeverSent) {
  peer_.Say({.kind = FrameKind::kNak, .status = static_cast<uint8_t>(CompletionStatus::kRemoteAccessError)});
  ExpectBrokenProtocol("refused request 0");
}

TEST_F(HostilePeerTest, ARefusalWithAStatusThatMeansSuccess) {
  ASSERT_THAT(b_.Send(1, b_.At(0, 1)), IsOk());
  peer_.Say({.kind = FrameKind::kNak, .status = static_cast<uint8_t>(kSuccess)});
  ExpectBrokenProtocol("refused request 0 with status 0");
}

TEST_F(HostilePeerTest, AReadResponseThatNobodyAskedFor) {
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = 10}, "0123456789");
  ExpectBrokenProtocol("answered a READ (number 0, 10 bytes) when none was outstanding");
}

TEST_F(HostilePeerTest, AReadResponseLongerThanTheRead) {
  ASSERT_THAT(b_.Read(1, b_.At(5000, 10), {.address = 4096, .rkey = 1}), IsOk());
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = 11, .acknowledged = 1}, "0123456789a");
  ExpectBrokenProtocol(
      "READ 0 at offset 0 with 11 bytes, where READ 0 at offset 0 with 10 to 10 bytes was due");
  EXPECT_EQ(b_.Text(5000, 11), std::string(11, '\0'));
}

TEST_F(HostilePeerTest, ARefusalOfAReadThatIsAnsweredAlready) {
  ASSERT_THAT(b_.Read(1, b_.At(5000, 10), {.address = 4096, .rkey = 1}), IsOk());
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = 10}, "0123456789");
  peer_.Say({.kind = FrameKind::kNak, .status = static_cast<uint8_t>(CompletionStatus::kRemoteAccessError)});
  ExpectBrokenProtocol("answered READ 0 but acknowledged only 0 requests");
}

TEST_F(HostilePeerTest, AReadResponseInTinyFragments) {
  ASSERT_THAT(b_.Read(1, b_.At(5000, kReadFragmentMin + 1), {.address = 4096, .rkey = 1}), IsOk());
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = 1, .acknowledged = 1}, "0");
  ExpectBrokenProtocol("with 1 bytes, where READ 0 at offset 0 with 4096 to 4097 bytes was due");
}

TEST_F(HostilePeerTest, OnlyTheLastFragmentOfAReadMayBeShort) {
  ASSERT_THAT(b_.Read(1, b_.At(5000, kReadFragmentMin + 1), {.address = 4096, .rkey = 1}), IsOk());
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = kReadFragmentMin, .acknowledged = 1},
            std::string(kReadFragmentMin, 'r'));
  peer_.Say(
      {.kind = FrameKind::kReadResponse, .length_bytes = 1, .acknowledged = 1, .address = kReadFragmentMin},
      "!");
  HAWSER_UNTIL(world_, b_.sends.size() == 1);
  EXPECT_THAT(b_.sends, ElementsAre(CompletionIs(1, kSuccess)));
  EXPECT_EQ(b_.Text(5000, kReadFragmentMin + 1), std::string(kReadFragmentMin, 'r') + "!");
}

TEST_F(HostilePeerTest, AReadResponseAtAnotherOffset) {
  ASSERT_THAT(b_.Read(1, b_.At(5000, 10), {.address = 4096, .rkey = 1}), IsOk());
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = 5, .acknowledged = 1, .address = 5}, "01234");
  ExpectBrokenProtocol("at offset 5");
}

TEST_F(HostilePeerTest, AReadResponseToAnotherRead) {
  ASSERT_THAT(b_.Read(1, b_.At(5000, 10), {.address = 4096, .rkey = 1}), IsOk());
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = 5, .acknowledged = 1, .key = 1}, "01234");
  ExpectBrokenProtocol("answered READ 1");
}

TEST_F(HostilePeerTest, ARefusalThatJumpsOverAnOutstandingRead) {
  ASSERT_THAT(b_.Read(1, b_.At(5000, 10), {.address = 4096, .rkey = 1}), IsOk());
  ASSERT_THAT(b_.Send(2, b_.At(0, 1)), IsOk());
  peer_.Say({.kind = FrameKind::kNak,
             .status = static_cast<uint8_t>(CompletionStatus::kRnrRetryExceeded),
             .acknowledged = 1,
             .key = 1});
  ExpectBrokenProtocol("1 READs outstanding");
}

TEST_F(HostilePeerTest, MoreReadsThanAgreedAreAnsweredWithARefusal) {
  std::string requests;
  for (int i = 0; i < 5;
       ++i) {  // One more than read_depth, in one piece, so that none is answered in between.
    const FrameHeader read = {.kind = FrameKind::kReadRequest,
                              .length_bytes = 100,
                              .key = readable_.rkey,
                              .address = readable_.address};
    requests.append(reinterpret_cast<const char*>(&read), sizeof(read));
  }
  peer_.Say(requests);
  peer_.HearBytes(4 * (sizeof(FrameHeader) + 100) + sizeof(FrameHeader));
  const FrameHeader refusal = peer_.FrameAt(4 * (sizeof(FrameHeader) + 100));
  EXPECT_EQ(refusal.kind, FrameKind::kNak);
  EXPECT_EQ(refusal.status, static_cast<uint8_t>(CompletionStatus::kRemoteInvalidRequest));
  EXPECT_EQ(refusal.key, 4u);
  HAWSER_UNTIL(world_, b_.news().ended());
  EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr("more READs outstanding than the 4 agreed"));
  world_.ExpectEverythingComesBack(b_);
}

TEST_F(HostilePeerTest, AGrantIsReadFourTimesOverAtMost) {
  const FrameHeader whole = {.kind = FrameKind::kReadRequest,
                             .length_bytes = 1000,
                             .key = readable_.rkey,
                             .address = readable_.address};
  for (size_t i = 1; i <= 4; ++i) {
    peer_.Say(whole);
    peer_.HearBytes(i * (sizeof(FrameHeader) + 1000));
  }
  EXPECT_FALSE(b_.news().ended());
  FrameHeader byte = whole;
  byte.length_bytes = 1;
  peer_.Say(byte);
  HAWSER_UNTIL(world_, b_.news().ended());
  EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr("READ what it was granted 4 times over"));
  peer_.HearBytes(4 * (sizeof(FrameHeader) + 1000) + sizeof(FrameHeader));
  const FrameHeader refusal = peer_.FrameAt(4 * (sizeof(FrameHeader) + 1000));
  EXPECT_EQ(refusal.kind, FrameKind::kNak);
  EXPECT_EQ(refusal.status, static_cast<uint8_t>(CompletionStatus::kRemoteAccessError));
  world_.ExpectEverythingComesBack(b_);
}

TEST_F(HostilePeerTest, AConnectionThatEndsInTheMiddleOfAFrameSaysSo) {
  peer_.Say({.kind = FrameKind::kSend, .length_bytes = 100}, "only a part");
  world_.PollSome(5);
  peer_.Close();
  HAWSER_UNTIL(world_, b_.news().ended());
  EXPECT_THAT(b_.news().why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr("in the middle of a frame"));
  world_.ExpectEverythingComesBack(b_);
  EXPECT_THAT(b_.receives, ElementsAre(CompletionIs(1, kFlushed)));
}

TEST_F(HostilePeerTest, APeerThatDiesWhileItsSendWaitsForAReceive) {
  const FrameHeader send = {.kind = FrameKind::kSend, .length_bytes = 1};
  peer_.Say(send, "1");
  peer_.Say(send, "2");
  HAWSER_UNTIL(world_, b_.receives.size() == 1);
  world_.PollSome(5);
  const linger reset = {.l_onoff = 1, .l_linger = 0};
  setsockopt(peer_.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  peer_.Close();
  HAWSER_UNTIL(world_, b_.news().ended());
}

// While a READ is out, frames are read one by one, so that the payload of the READ is never copied. What that
// costs is bounded by turn, however much one peer has sent.
TEST_F(TcpFabricTest, APollMakesFewSystemCallsForOnePeer) {
  constexpr uint32_t kSends = 400;
  Endpoint& b = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = kSends, .read_depth = 4});
  Stranger peer(world_);
  peer.BecomePeerOf(b);
  for (uint64_t i = 0; i < kSends; ++i) ASSERT_THAT(b.Receive(i, b.At(i, 1)), IsOk());
  ASSERT_THAT(b.Read(1, b.At(1000, 100), {.address = 4096, .rkey = 1}), IsOk());
  const FrameHeader send = {.kind = FrameKind::kSend, .length_bytes = 1, .acknowledged = 1};
  std::string frames;
  for (uint32_t i = 0; i < kSends; ++i) {
    frames.append(reinterpret_cast<const char*>(&send), sizeof(send));
    frames += "x";
  }
  peer.Say(frames);
  uint64_t most = 0;
  while (b.receives.size() < kSends) {
    const uint64_t before = counters_.receive_calls.load();
    world_.PollOnce();
    most = std::max(most, counters_.receive_calls.load() - before);
    ASSERT_FALSE(b.news().ended()) << b.news().why;
  }
  EXPECT_LE(most, 33u);  // One of them may be of the other side's queue.
}

TEST_F(HostilePeerTest, FramesMayComeByteByByte) {
  const FrameHeader send = {.kind = FrameKind::kSend, .flags = kAckRequestedFlag, .length_bytes = 5};
  const FrameHeader write = {
      .kind = FrameKind::kWrite, .length_bytes = 5, .key = writable_.rkey, .address = writable_.address};
  std::string bytes(reinterpret_cast<const char*>(&write), sizeof(write));
  bytes += "write";
  bytes.append(reinterpret_cast<const char*>(&send), sizeof(send));
  bytes += "hello";
  for (char byte : bytes) {
    EXPECT_TRUE(b_.receives.empty());
    peer_.Say(std::string(1, byte));
    world_.PollSome(2);
  }
  HAWSER_UNTIL(world_, b_.receives.size() == 1);
  EXPECT_EQ(b_.Text(0, 5), "hello");
  EXPECT_EQ(b_.Text(2000, 5), "write");
  peer_.HearBytes(sizeof(FrameHeader));
  EXPECT_EQ(peer_.FrameAt(0).acknowledged, 2u);
}

// Frames that are nearly right, and rubbish: each ends its own connection or none, and touches only what was
// granted.
TEST_F(TcpFabricTest, RandomFramesHarmNobodyElse) {
  std::mt19937_64 random(7);
  auto [c, d] = world_.Connect();
  for (int round = 0; round < 300; ++round) {
    Endpoint& b = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 4}, 8192);
    Stranger peer(world_);
    peer.BecomePeerOf(b, kTakenFrames);
    for (uint64_t i = 0; i < 4; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 64, 64)), IsOk());
    const Granted grants[] = {b.Grant(b.At(1024, 1024), QueuePair::Access::kRead),
                              b.Grant(b.At(2048, 1024), QueuePair::Access::kWrite),
                              {.address = reinterpret_cast<uint64_t>(b.memory()), .rkey = 0},
                              {.address = random(), .rkey = static_cast<uint32_t>(random())}};
    ASSERT_THAT(b.Read(1, b.At(3072, 1024), {.address = 4096, .rkey = 1}), IsOk());
    ASSERT_THAT(b.Send(2, b.At(0, 10)), IsOk());
    std::string said;
    for (int i = 0; i < 8; ++i) {
      const uint32_t lengths[] = {0, 8, 16, 64, 65, 1024, static_cast<uint32_t>(random())};
      const Granted& grant = grants[random() % 4];
      const FrameHeader header = {
          .kind = static_cast<FrameKind>(random() % 11),
          .flags = static_cast<uint8_t>(random()),
          .status = static_cast<uint8_t>(random() % 10),
          .length_bytes = lengths[random() % 7],
          .acknowledged = static_cast<uint32_t>(random() % 4 == 0 ? random() : random() % 3),
          .key = random() % 4 == 0 ? grants[random() % 4].rkey : grant.rkey,
          // From 1024 bytes before what is granted to 2048 behind it.
          .address = grant.address + random() % 4096 - 1024};
      said.append(reinterpret_cast<const char*>(&header), sizeof(header));
      said.append(random() % 2 == 0 ? header.length_bytes % 2048 : random() % 100, 'x');
    }
    peer.Say(said);
    world_.PollSome(4);
    peer.Close();
    HAWSER_UNTIL(world_, b.news().ended() || b.sends.size() == b.sends_posted);
    world_.ExpectEverythingComesBack(b);
    EXPECT_EQ(b.Text(256, 768), std::string(768, '\0'));     // Between the receives and the grants,
    EXPECT_EQ(b.Text(1024, 1024), std::string(1024, '\0'));  // granted for reading only,
    EXPECT_EQ(b.Text(4096, 4096), std::string(4096, '\0'));  // and behind everything.
  }
  ASSERT_THAT(d.Receive(1, d.At(0, 100)), IsOk());
  ASSERT_THAT(c.Send(1, c.At(0, 100)), IsOk());
  HAWSER_UNTIL(world_, c.sends.size() == 1 && d.receives.size() == 1);
}

}  // namespace
}  // namespace hawser::fabric
