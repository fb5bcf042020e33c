// Atomics over TCP: of peers that break the protocol, send them in pieces, or do not know them.
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/tests/transport/fabric/tcp_stage.h"
#include "hawser/transport/fabric/tcp/frame.h"
#include "hawser/transport/fabric/tcp/receive_queue.h"

namespace hawser::fabric {
namespace {

using ::testing::HasSubstr;

std::string Bytes(const FrameHeader& header) {
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header));
}
std::string Operand(uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A WRITE of `text` to `offset` in what is granted.
std::string WriteOf(absl::string_view text, const Granted& granted, uint64_t offset) {
  const FrameHeader header = {.kind = FrameKind::kWrite,
                              .length_bytes = static_cast<uint32_t>(text.size()),
                              .key = granted.rkey,
                              .address = granted.address + offset};
  return absl::StrCat(Bytes(header), text);
}

// Letters from `first` on.
std::string Letters(size_t length_bytes, char first = 'a') {
  std::string text(length_bytes, first);
  for (size_t i = 0; i < length_bytes; ++i) text[i] = static_cast<char>(first + i % 13);
  return text;
}

// The words of `now` of which this does not hold: it is as in `before`, or as in `after`.
size_t TornWords(absl::string_view now, absl::string_view before, absl::string_view after) {
  size_t torn = 0;
  for (size_t at = 0; at < now.size(); at += 8) {
    const absl::string_view word = now.substr(at, 8);
    torn += word != before.substr(at, 8) && word != after.substr(at, 8);
  }
  return torn;
}

// A peer that may send atomics, since both sides said in their greetings that they take them.
class AtomicPeerTest : public TcpFabricTest {
 protected:
  void SetUp() override {
    peer_.BecomePeerOf(b_, kTakenFrames);
    granted_ = b_.Grant(b_.At(1024, 64), QueuePair::Access::kAtomic);
  }
  void ExpectBrokenProtocol(absl::string_view how) {
    HAWSER_UNTIL(world_, b_.news().ended());
    EXPECT_THAT(b_.news().why, HasCode(absl::StatusCode::kDataLoss));
    EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr(std::string(how)));
    world_.ExpectEverythingComesBack(b_);
    EXPECT_EQ(b_.Text(1024, 64), std::string(64, '\0'));
  }
  FrameHeader Add(uint32_t length_bytes = 8) const {
    return {.kind = FrameKind::kFetchAdd,
            .length_bytes = length_bytes,
            .key = granted_.rkey,
            .address = granted_.address};
  }
  uint64_t Word(size_t offset) const {
    uint64_t word;
    std::memcpy(&word, b_.Text(offset, 8).data(), sizeof(word));
    return word;
  }
  // The `index`th answer that the peer has heard, if it has heard nothing but answers to atomics.
  void ExpectAnswer(size_t index, uint64_t before) {
    const size_t at = index * (sizeof(FrameHeader) + 8);
    peer_.HearBytes(at + sizeof(FrameHeader) + 8);
    const FrameHeader answer = peer_.FrameAt(at);
    EXPECT_EQ(answer.kind, FrameKind::kReadResponse);
    EXPECT_EQ(answer.key, index);
    EXPECT_EQ(answer.address, 0u);
    EXPECT_EQ(answer.length_bytes, 8u);
    EXPECT_GT(answer.acknowledged, index);
    EXPECT_EQ(peer_.heard().substr(at + sizeof(FrameHeader), 8), Operand(before));
  }

  Endpoint& b_ = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 4});
  Stranger peer_{world_};
  Granted granted_;
};

TEST_F(AtomicPeerTest, EachIsAnsweredWithWhatWasThere) {
  peer_.Say(Add(), Operand(5));
  ExpectAnswer(0, 0);
  FrameHeader swap = Add(16);
  swap.kind = FrameKind::kCompareSwap;
  peer_.Say(swap, Operand(5) + Operand(70));
  ExpectAnswer(1, 5);
  peer_.Say(swap, Operand(5) + Operand(1));
  ExpectAnswer(2, 70);
  EXPECT_EQ(Word(1024), 70u);
  EXPECT_FALSE(b_.news().ended());
}

TEST_F(AtomicPeerTest, OneThatComesByteByByteIsExecutedWithItsLast) {
  const std::string bytes = Bytes(Add()) + Operand(3);
  for (const char byte : bytes) {
    EXPECT_EQ(Word(1024), 0u);
    peer_.Say(std::string(1, byte));
    world_.PollSome(2);
  }
  ExpectAnswer(0, 0);
  EXPECT_EQ(Word(1024), 3u);
}

// From the middle of a word to the middle of another.
TEST_F(AtomicPeerTest, AWriteThatComesByteByByteChangesWholeWords) {
  const Granted granted = b_.Grant(b_.At(1024, 64), QueuePair::Access::kWrite);
  const std::string text = "abcdefghijklmnopqrstuvwxy";
  const std::string before = b_.Text(1024, 64);
  std::string after = before;
  after.replace(3, text.size(), text);
  peer_.Say(Bytes({.kind = FrameKind::kWrite,
                   .length_bytes = static_cast<uint32_t>(text.size()),
                   .key = granted.rkey,
                   .address = granted.address + 3}));
  for (size_t said = 0; said < text.size(); ++said) {
    peer_.Say(text.substr(said, 1));
    world_.PollSome(2);
    const std::string now = b_.Text(1024, 64);
    for (size_t word = 0; word < 64; word += 8) {
      const std::string is = now.substr(word, 8);
      EXPECT_TRUE(is == before.substr(word, 8) || is == after.substr(word, 8)) << said << ", " << word;
    }
  }
  HAWSER_UNTIL(world_, b_.Text(1024, 64) == after);
  EXPECT_FALSE(b_.news().ended());
}

// Most of it is beyond what is read at once, and the pieces end in words.
TEST_F(AtomicPeerTest, AWriteInPiecesArrivesWhole) {
  const Granted granted = b_.Grant(b_.At(2048, 1024), QueuePair::Access::kWrite);
  std::string text;
  for (int i = 0; i < 1013; ++i) text += static_cast<char>('a' + i % 26);
  const std::string bytes = Bytes({.kind = FrameKind::kWrite,
                                   .length_bytes = static_cast<uint32_t>(text.size()),
                                   .key = granted.rkey,
                                   .address = granted.address + 5}) +
                            text + Bytes(Add()) + Operand(3);
  for (size_t at = 0; at < bytes.size(); at += 37) {
    peer_.Say(bytes.substr(at, 37));
    world_.PollSome(2);
  }
  HAWSER_UNTIL(world_, Word(1024) == 3u);  // The atomic behind it.
  EXPECT_EQ(b_.Text(2048, 1024), std::string(5, '\0') + text + std::string(6, '\0'));
}

// With a READ under way the reader takes no more than a header behind what it knows of.
TEST_F(AtomicPeerTest, AWriteThatIsCutInsideAWordWhileAReadIsOutstanding) {
  const Granted granted = b_.Grant(b_.At(2048, 64), QueuePair::Access::kWrite);
  ASSERT_THAT(b_.Read(1, b_.At(512, 100), {.address = 4096, .rkey = 1}), IsOk());
  peer_.HearBytes(sizeof(FrameHeader));
  const std::string text = Letters(41);
  const std::string before = b_.Text(2048, 64);
  std::string after = before;
  after.replace(3, text.size(), text);
  const FrameHeader answer = {.kind = FrameKind::kReadResponse, .length_bytes = 100, .acknowledged = 1};
  const std::string bytes = WriteOf(text, granted, 3) + Bytes(answer) + Letters(100, 'n');
  for (size_t at = 0; at < bytes.size(); at += 5) {
    peer_.Say(bytes.substr(at, 5));
    world_.PollSome(2);
    EXPECT_EQ(TornWords(b_.Text(2048, 64), before, after), 0u) << at;
  }
  HAWSER_UNTIL(world_, b_.sends.size() == 1);
  EXPECT_THAT(b_.sends[0], CompletionIs(1, CompletionStatus::kSuccess));
  EXPECT_EQ(b_.Text(512, 100), Letters(100, 'n'));
  EXPECT_EQ(b_.Text(2048, 64), after);
  EXPECT_FALSE(b_.news().ended());
}

TEST_F(TcpFabricTest, AWriteThatIsCutInsideAWordBehindASendThatWaitsForAReceive) {
  Endpoint& b = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .sends_wait = true});
  Stranger peer(world_);
  peer.BecomePeerOf(b, kTakenFrames);
  const Granted granted = b.Grant(b.At(1024, 64), QueuePair::Access::kWrite);
  const std::string before = b.Text(1024, 64);
  const std::string bytes = WriteOf(Letters(41), granted, 3);
  std::string after = before;
  after.replace(3, 41, Letters(41));
  const size_t cut = sizeof(FrameHeader) + 31;  // 2 bytes into a word.
  peer.Say(Bytes({.kind = FrameKind::kSend, .length_bytes = 4}) + "look" + bytes.substr(0, cut));
  world_.PollSome(5);
  EXPECT_EQ(b.Text(1024, 64), before);
  ASSERT_THAT(b.Receive(1, b.At(0, 100)), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 1 && b.Text(1024, 32) == after.substr(0, 32));
  world_.PollSome(5);
  EXPECT_EQ(b.Text(1056, 32), before.substr(32));
  peer.Say(bytes.substr(cut, 3));
  world_.PollSome(5);
  EXPECT_EQ(b.Text(1056, 32), before.substr(32));
  peer.Say(bytes.substr(cut + 3));
  HAWSER_UNTIL(world_, b.Text(1024, 64) == after);
  EXPECT_EQ(b.Text(0, 4), "look");
  EXPECT_FALSE(b.news().ended());
}

// More than passes through staging at once.
TEST_F(TcpFabricTest, AWriteOfMoreThan64KiBToWhereNoWordBeginsChangesWholeWords) {
  constexpr size_t kBytes = 256 << 10;
  Endpoint& b = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8}, kBytes);
  Stranger peer(world_);
  peer.BecomePeerOf(b, kTakenFrames);
  const Granted granted = b.Grant(b.At(0, kBytes), QueuePair::Access::kWrite);
  const std::string text = Letters(200'001);
  const std::string before(kBytes, '\0');
  std::string after = before;
  after.replace(5, text.size(), text);
  const std::string bytes = WriteOf(text, granted, 5);
  for (size_t at = 0; at < bytes.size(); at += 30'011) {
    peer.Say(absl::string_view(bytes).substr(at, 30'011));
    for (int i = 0; i < 3; ++i) {
      world_.PollSome(1);
      EXPECT_EQ(TornWords(b.Text(0, kBytes), before, after), 0u) << at;
    }
  }
  HAWSER_UNTIL(world_, b.Text(0, kBytes) == after);
  EXPECT_FALSE(b.news().ended());
}

TEST_F(AtomicPeerTest, OperandsOfAnotherLength) {
  peer_.Say(Add(9), Operand(1) + "x");
  ExpectBrokenProtocol("it sent a payload for an atomic of 9 bytes");
}

TEST_F(AtomicPeerTest, ACompareAndSwapWithOneOperand) {
  FrameHeader swap = Add();
  swap.kind = FrameKind::kCompareSwap;
  peer_.Say(swap, Operand(0));
  ExpectBrokenProtocol("payload for an atomic of 8 bytes");
}

TEST_F(AtomicPeerTest, OneThatIsNotAlignedIsRefusedAndChangesNothing) {
  FrameHeader add = Add();
  add.address += 4;
  peer_.Say(add, Operand(1));
  peer_.HearBytes(sizeof(FrameHeader));
  EXPECT_EQ(peer_.FrameAt(0).kind, FrameKind::kNak);
  EXPECT_EQ(peer_.FrameAt(0).status, static_cast<uint8_t>(CompletionStatus::kRemoteInvalidRequest));
  HAWSER_UNTIL(world_, b_.news().ended());
  EXPECT_THAT(std::string(b_.news().why.message()), HasSubstr("which is no multiple of 8"));
  EXPECT_EQ(b_.Text(1024, 64), std::string(64, '\0'));
}

TEST_F(AtomicPeerTest, AnAtomicWithTheFlagOfASend) {
  FrameHeader add = Add();
  add.flags = kAckRequestedFlag;
  peer_.Say(add, Operand(1));
  ExpectBrokenProtocol("kind 10 with flags 1");
}

TEST_F(AtomicPeerTest, AnAtomicInPlaceOfAPushThatIsDue) {
  ASSERT_THAT(b_.Receive(1, b_.At(0, 100)), IsOk());
  peer_.Say(Bytes({.kind = FrameKind::kSend, .flags = kPushFollowsFlag, .length_bytes = 4}) + "look" +
            Bytes(Add()) + Operand(1));
  ExpectBrokenProtocol("another request in place of the push");
}

TEST_F(AtomicPeerTest, MoreThanTheReadDepthAreRefused) {
  std::string requests;  // In one piece, so that none is answered in between.
  for (int i = 0; i < 5; ++i) requests += Bytes(Add()) + Operand(1);
  peer_.Say(requests);
  constexpr size_t kAnswers = 4 * (sizeof(FrameHeader) + 8);
  peer_.HearBytes(kAnswers + sizeof(FrameHeader));
  for (size_t i = 0; i < 4; ++i) ExpectAnswer(i, i);
  EXPECT_EQ(peer_.FrameAt(kAnswers).kind, FrameKind::kNak);
  EXPECT_EQ(peer_.FrameAt(kAnswers).status, static_cast<uint8_t>(CompletionStatus::kRemoteInvalidRequest));
  EXPECT_EQ(Word(1024), 4u);
  HAWSER_UNTIL(world_, b_.news().ended());
}

TEST_F(AtomicPeerTest, ARevocationInTheMiddleOfOneEndsTheConnectionAndChangesNothing) {
  peer_.Say(Bytes(Add()) + Operand(1).substr(0, 5));
  world_.PollSome(5);
  b_.Revoke(7, granted_.rkey);
  HAWSER_UNTIL(world_, b_.revocations.size() == 1 && b_.news().ended());
  peer_.Say(Operand(1).substr(5));
  world_.PollSome(5);
  EXPECT_EQ(Word(1024), 0u);
}

TEST(TcpReceiveQueueTest, AnAtomicThatWasExecutedNeedsItsMemoryNoLonger) {
  TcpReceiveQueue queue({.read_depth = 2}, 7);
  alignas(8) uint8_t memory[16] = {};
  const Granted granted = queue.grants().Add({memory, 16, 1}, QueuePair::Access::kAtomic);
  const FrameHeader add = {
      .kind = FrameKind::kFetchAdd, .length_bytes = 8, .key = granted.rkey, .address = granted.address + 8};
  uint8_t* operands = nullptr;
  ASSERT_EQ(queue.BeginAtomic(add, &operands), TcpReceiveQueue::Verdict::kOk);
  std::memcpy(operands, Operand(3).data(), 8);
  EXPECT_FALSE(queue.has_answer());
  EXPECT_EQ(queue.executed(), 0u);
  queue.FinishAtomic(FrameKind::kFetchAdd);
  EXPECT_EQ(memory[8], 3);
  EXPECT_TRUE(queue.has_answer());
  EXPECT_EQ(queue.executed(), 1u);
  EXPECT_FALSE(queue.IsAnswering(granted.rkey));
}

TEST_F(AtomicPeerTest, AnAnswerToAnAtomicThatIsTooLong) {
  ASSERT_THAT(b_.FetchAdd(1, b_.At(512, 8), {.address = 4096, .rkey = 1}, 0, 1), IsOk());
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = 9, .acknowledged = 1}, "123456789");
  ExpectBrokenProtocol("with 9 bytes, where READ 0 at offset 0 with 8 to 8 bytes was due");
  EXPECT_EQ(b_.Text(512, 9), std::string(9, '\0'));
}

TEST_F(AtomicPeerTest, AnAtomicThatIsAcknowledgedAndNotAnsweredDoesNotComplete) {
  ASSERT_THAT(b_.FetchAdd(1, b_.At(512, 8), {.address = 4096, .rkey = 1}, 0, 1), IsOk());
  peer_.Say({.kind = FrameKind::kAck, .acknowledged = 1});
  world_.PollSome(20);
  EXPECT_TRUE(b_.sends.empty());
  peer_.Say({.kind = FrameKind::kReadResponse, .length_bytes = 8, .acknowledged = 1}, Operand(77));
  HAWSER_UNTIL(world_, b_.sends.size() == 1);
  EXPECT_THAT(b_.sends[0], CompletionIs(1, CompletionStatus::kSuccess));
  EXPECT_EQ(Word(512), 77u);
}

// A peer of an earlier version, whose greeting has no such flag.
TEST_F(TcpFabricTest, AnAtomicToAndFromAPeerThatDoesNotKnowThem) {
  Endpoint& b = world_.NewEndpoint(1, {.send_depth = 8, .receive_depth = 8, .read_depth = 4});
  Stranger peer(world_);
  peer.BecomePeerOf(b, kTakesPushes);
  EXPECT_FALSE(b.qp().takes_atomics());
  const Granted granted = b.Grant(b.At(0, 64), QueuePair::Access::kAtomic);
  const absl::Status status = b.FetchAdd(1, b.At(512, 8), {.address = 4096, .rkey = 1}, 0, 1);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()), HasSubstr("an atomic, which the peer does not take"));
  world_.PollSome(5);
  peer.Listen();
  EXPECT_EQ(peer.heard(), "");
  peer.Say({.kind = FrameKind::kFetchAdd, .length_bytes = 8, .key = granted.rkey, .address = granted.address},
           Operand(1));
  HAWSER_UNTIL(world_, b.news().ended());
  EXPECT_THAT(std::string(b.news().why.message()), HasSubstr("unknown kind 10"));
  EXPECT_EQ(b.Text(0, 8), std::string(8, '\0'));
}

}  // namespace
}  // namespace hawser::fabric
