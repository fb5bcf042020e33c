#include "hawser/transport/wire/message.h"

#include <capnp/any.h>
#include <capnp/list.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/hoard.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kMiB = 1 << 20;

class MessageTest : public ::testing::TestWithParam<MessagePool::CapnpRoad> {
 protected:
  explicit MessageTest(size_t limit_bytes = size_t{1} << 30)
      : buffers(std::make_shared<BufferPool>(NewTestFabric(), BufferPoolOptions{limit_bytes})),
        pool(MessagePool::Create(buffers, GetParam())) {}

  static std::string Bytes(OutgoingMessage& message) {
    const capnp::Data::Builder data = Root(message).getAs<capnp::Data>();
    return std::string(reinterpret_cast<const char*>(data.begin()), data.size());
  }
  static capnp::AnyPointer::Builder Root(OutgoingMessage& message) {
    return message.builder().getRoot<capnp::AnyPointer>();
  }

  // The leases that are not kept for the next message.
  uint64_t Leases() {
    pool->Trim();
    return buffers->stats().leases;
  }

  std::shared_ptr<BufferPool> buffers;
  std::shared_ptr<MessagePool> pool;
};

TEST_P(MessageTest, ASmallOneIsOneSegmentBehindTheHeadroomOfItsHead) {
  OutgoingMessagePtr message = pool->NewOutgoing();
  Root(*message).initAs<capnp::Data>(100);
  const auto segments = message->Finish();
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].address, message->head().data() + kHeadroom);
  EXPECT_EQ(segments[0].length_bytes, 8 + 104u);
  EXPECT_EQ(segments[0].lkey, message->head().lkey());
  EXPECT_EQ(message->body_bytes(), 112u);
}

TEST_P(MessageTest, AnEmptyOneHasNoSegments) {
  OutgoingMessagePtr message = pool->NewOutgoing();
  EXPECT_TRUE(message->Finish().empty());
  EXPECT_EQ(message->body_bytes(), 0u);
}

TEST_P(MessageTest, EverySegmentLiesInRegisteredMemory) {
  OutgoingMessagePtr message = pool->NewOutgoing();
  auto list = Root(*message).initAs<capnp::List<capnp::Data>>(300);
  for (unsigned i = 0; i < 300; ++i) list.init(i, 10 * i);
  for (const OutgoingMessage::Segment& segment : message->Finish()) {
    EXPECT_EQ(buffers->FindRegion(segment.address, segment.length_bytes), segment.lkey);
    EXPECT_NE(segment.lkey, 0u);
  }
}

TEST_P(MessageTest, ALargeOneOfManySmallPartsHasFewSegments) {
  OutgoingMessagePtr message = pool->NewOutgoing();
  constexpr unsigned kParts = 4000;
  auto list = Root(*message).initAs<capnp::List<capnp::Data>>(kParts);
  for (unsigned i = 0; i < kParts; ++i) list.init(i, 50'000);
  EXPECT_LT(message->Finish().size(), 40u);
  EXPECT_GE(message->body_bytes(), 200'000'000u);
  EXPECT_THAT(message->status(), IsOk());
}

TEST_P(MessageTest, BuildingMayGoOnAfterItWasFinishedOnce) {
  OutgoingMessagePtr message = pool->NewOutgoing();
  auto list = Root(*message).initAs<capnp::List<capnp::Data>>(2);
  list.init(0, 8);
  const uint64_t before = (message->Finish(), message->body_bytes());
  list.init(1, 800);
  message->Finish();
  EXPECT_EQ(message->body_bytes(), before + 800);
}

// Cap'n Proto requires that its memory is zero.
TEST_P(MessageTest, WhatAMessageLeftBehindIsNotInTheNext) {
  for (int finish = 0; finish < 3; ++finish) {
    const uint8_t* head;
    {
      OutgoingMessagePtr message = pool->NewOutgoing();
      head = message->head().data();
      auto list = Root(*message).initAs<capnp::List<capnp::Data>>(3);
      memset(list.init(0, 500).begin(), 0xff, 500);
      if (finish >= 1) message->Finish();
      memset(list.init(1, 700).begin(), 0xff, 700);  // Building may continue after Finish().
      if (finish >= 2) message->Finish();
      memset(list.init(2, 20'000).begin(), 0xff, 20'000);
      // Shortens one, too.
      auto orphan = list.disown(0);
      orphan.truncate(8);
    }
    OutgoingMessagePtr next = pool->NewOutgoing();
    ASSERT_EQ(next->head().data(), head);
    for (size_t i = kHeadroom; i < kSmallBufferBytes; ++i) {
      ASSERT_EQ(head[i], 0) << "byte " << i << ", finished " << finish << " times";
    }
    capnp::Data::Builder large = Root(*next).initAs<capnp::Data>(20'000);
    for (uint8_t byte : large) ASSERT_EQ(byte, 0);
  }
}

TEST_P(MessageTest, AnEndedMessagesObjectServesTheNext) {
  const OutgoingMessage* first = pool->NewOutgoing().get();
  EXPECT_EQ(pool->NewOutgoing().get(), first);
  const IncomingMessage* incoming = pool->NewIncoming().get();
  EXPECT_EQ(pool->NewIncoming().get(), incoming);
  EXPECT_EQ(buffers->stats().registrations, 1u);
}

TEST_P(MessageTest, NoMoreThan256AreKept) {
  std::vector<OutgoingMessagePtr> many;
  for (int i = 0; i < 300; ++i) many.push_back(pool->NewOutgoing());
  many.clear();
  EXPECT_EQ(buffers->stats().leases, 256u);
  pool->Trim();
  EXPECT_EQ(buffers->stats().leases, 0u);
  for (int i = 0; i < 300; ++i) many.push_back(pool->NewOutgoing());
  many.clear();
  EXPECT_EQ(buffers->stats().leases, 256u) << "after Trim() it keeps as many again";
}

TEST_P(MessageTest, AnEnvelopeIsCopied) {
  OutgoingMessagePtr message = pool->NewOutgoing();
  {
    const std::vector<uint8_t> envelope(kEnvelopeMax, 9);
    message->SetEnvelope(envelope);
  }
  EXPECT_THAT(message->envelope(), ::testing::Each(9));
  EXPECT_EQ(message->envelope().size(), kEnvelopeMax);
  message.reset();
  EXPECT_TRUE(pool->NewOutgoing()->envelope().empty());
}

// ---- Payloads.

TEST_P(MessageTest, AnAddedSegmentKeepsItsNumberWhileTheBodyGrows) {
  OutgoingMessagePtr message = pool->NewOutgoing();
  const std::string bytes = "eleven bytes";
  const uint16_t number = message->AddSegment({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  ASSERT_NE(number, 0);
  auto list = Root(*message).initAs<capnp::List<capnp::Data>>(300);
  for (unsigned i = 0; i < 300; ++i) list.init(i, 10 * i);
  const auto segments = message->Finish();
  ASSERT_GT(segments.size(), size_t{number} + 1);
  const OutgoingMessage::Segment& added = segments[number];
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(added.address), added.length_bytes),
            bytes + std::string(-bytes.size() & 7, '\0'));
  EXPECT_EQ(buffers->FindRegion(added.address, added.length_bytes), added.lkey);
  message.reset();
  EXPECT_EQ(Leases(), 0u);
}

TEST_P(MessageTest, NoBytesAreNoAddedSegment) {
  OutgoingMessagePtr message = pool->NewOutgoing();
  EXPECT_EQ(message->AddSegment({}), 0);
  EXPECT_THAT(message->status(), IsOk());
}

class AttachTest : public MessageTest {
 protected:
  // An owner that records when it is released.
  std::shared_ptr<const void> Owner() {
    return std::shared_ptr<const void>(
        &let_go, [](const void* flag) { *static_cast<bool*>(const_cast<void*>(flag)) = true; });
  }
  bool let_go = false;
};

TEST_P(AttachTest, RegisteredMemoryIsReferredToInPlaceAndHeldUntilTheMessageGoes) {
  const Lease lease = *buffers->Acquire(10'000);
  OutgoingMessagePtr message = pool->NewOutgoing();
  Root(*message).adopt(message->Attach({lease.data(), 10'000}, Owner()));
  const auto segments = message->Finish();
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[1].address, lease.data());
  EXPECT_EQ(segments[1].lkey, lease.lkey());
  EXPECT_EQ(segments[1].length_bytes, 10'000u);
  EXPECT_FALSE(let_go);
  message.reset();
  EXPECT_TRUE(let_go);
}

TEST_P(AttachTest, ALengthThatIsNoWholeNumberOfWordsIsFilledUp) {
  const Lease lease = *buffers->Acquire(10'000);
  memset(lease.data(), 0, 10'000);
  OutgoingMessagePtr message = pool->NewOutgoing();
  Root(*message).adopt(message->Attach({lease.data(), 9'997}, Owner()));
  const auto segments = message->Finish();
  EXPECT_EQ(segments[1].address, lease.data());
  EXPECT_EQ(segments[1].length_bytes, 10'000u);
}

// The word crosses as a whole, and what is behind the value may be another one, for another peer.
TEST_P(AttachTest, AValueIsCopiedIfTheRestOfItsLastWordIsNotZero) {
  const Lease lease = *buffers->Acquire(10'000);
  for (size_t rest = 1; rest < 8; ++rest) {
    let_go = false;
    memset(lease.data(), 'v', 10'000 - rest);
    memset(lease.data() + 10'000 - rest, 0, rest);
    lease.data()[9'999] = 0xa5;
    OutgoingMessagePtr message = pool->NewOutgoing();
    Root(*message).adopt(message->Attach({lease.data(), 10'000 - rest}, Owner()));
    EXPECT_TRUE(let_go);
    EXPECT_EQ(Bytes(*message), std::string(10'000 - rest, 'v'));
    for (const OutgoingMessage::Segment& segment : message->Finish()) {
      EXPECT_EQ(std::count(segment.address, segment.address + segment.length_bytes, 0xa5), 0);
    }
  }
}

TEST_P(AttachTest, OtherMemoryIsCopiedAndReleasedAtOnce) {
  std::string mine(5000, 'm');
  OutgoingMessagePtr message = pool->NewOutgoing();
  Root(*message).adopt(
      message->Attach({reinterpret_cast<const uint8_t*>(mine.data()), mine.size()}, Owner()));
  EXPECT_TRUE(let_go);
  mine.assign(5000, 'x');
  EXPECT_EQ(Bytes(*message), std::string(5000, 'm'));
  for (const OutgoingMessage::Segment& segment : message->Finish()) EXPECT_NE(segment.lkey, 0u);
}

TEST_P(AttachTest, RegisteredMemoryThatIsNotAlignedIsCopied) {
  const Lease lease = *buffers->Acquire(10'000);
  memset(lease.data(), 'r', 10'000);
  OutgoingMessagePtr message = pool->NewOutgoing();
  Root(*message).adopt(message->Attach({lease.data() + 4, 5'000}, Owner()));
  EXPECT_TRUE(let_go);
  EXPECT_EQ(Bytes(*message), std::string(5000, 'r'));
}

TEST_P(AttachTest, WhatTheApplicationKeepsTooIsNotHeldByTheMessage) {
  const Lease lease = *buffers->Acquire(30'000);
  OutgoingMessagePtr message = pool->NewOutgoing();
  auto list = Root(*message).initAs<capnp::List<capnp::Data>>(3);
  const auto owner = [] { return std::make_shared<int>(0); };
  std::shared_ptr<int> kept = owner(), of_two = owner();
  list.adopt(0, message->Attach({lease.data(), 8'000}, kept));
  list.adopt(1, message->Attach({lease.data() + 8'000, 16'000}, of_two));
  list.adopt(2, message->Attach({lease.data() + 24'000, 800}, std::move(of_two)));
  message->Finish();
  EXPECT_EQ(message->held_bytes(), kSmallBufferBytes + 16'800);
  kept.reset();
  EXPECT_EQ(message->held_bytes(), kSmallBufferBytes + 24'800);
}

TEST_P(AttachTest, NoBytesAreNoSegment) {
  OutgoingMessagePtr message = pool->NewOutgoing();
  Root(*message).adopt(message->Attach({}, Owner()));
  EXPECT_TRUE(let_go);
  EXPECT_EQ(message->Finish().size(), 1u);
}

// ---- Without memory.

class ExhaustedTest : public MessageTest {
 protected:
  ExhaustedTest() : MessageTest(2 * kMiB), hoard(*buffers, kSmallBufferBytes) {}
  Hoard hoard;
};

TEST_P(ExhaustedTest, AMessageCanBeBuiltAllTheSameButSaysThatItCannotBeSent) {
  OutgoingMessagePtr message = pool->NewOutgoing();
  ASSERT_NE(message, nullptr);
  memset(Root(*message).initAs<capnp::Data>(100'000).begin(), 1, 100'000);
  EXPECT_EQ(Bytes(*message), std::string(100'000, 1));
  EXPECT_THAT(message->status(), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(message->status().message()), HasSubstr("BufferPoolOptions::limit_bytes"));
}

TEST_P(ExhaustedTest, OneThatGrowsBeyondWhatThereIsSaysSo) {
  hoard.Drop(1);
  OutgoingMessagePtr message = pool->NewOutgoing();
  Root(*message).initAs<capnp::Data>(100);
  EXPECT_THAT(message->status(), IsOk());
  Root(*message).initAs<capnp::Data>(10'000);
  EXPECT_THAT(message->status(), Not(IsOk()));
}

TEST_P(ExhaustedTest, ASegmentThatIsAddedWithoutMemoryIsSaid) {
  hoard.Drop(1);
  OutgoingMessagePtr message = pool->NewOutgoing();
  Root(*message).initAs<capnp::Data>(100);
  const uint8_t bytes[8] = {};
  EXPECT_EQ(message->AddSegment(bytes), 0);
  EXPECT_THAT(message->status(), HasCode(absl::StatusCode::kResourceExhausted));
}

TEST_P(ExhaustedTest, TheNextMessageAfterItIsGood) {
  pool->NewOutgoing().reset();
  hoard.DropAll();
  OutgoingMessagePtr message = pool->NewOutgoing();
  Root(*message).initAs<capnp::Data>(1000);
  EXPECT_THAT(message->status(), IsOk());
}

// ---- Lifetime.

TEST_P(MessageTest, AMessageOutlivesThePoolsHandle) {
  OutgoingMessagePtr outgoing = pool->NewOutgoing();
  IncomingMessagePtr incoming = pool->NewIncoming();
  pool.reset();
  buffers.reset();
  Root(*outgoing).initAs<capnp::Data>(10'000);
  EXPECT_THAT(outgoing->status(), IsOk());
  outgoing.reset();
  incoming.reset();
}

TEST_P(MessageTest, MessagesMayBeMadeAndEndedByManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        OutgoingMessagePtr message = pool->NewOutgoing();
        capnp::Data::Builder data = Root(*message).initAs<capnp::Data>(100 + 100 * (i % 50));
        for (uint8_t byte : data) ASSERT_EQ(byte, 0);
        memset(data.begin(), t, data.size());
        IncomingMessagePtr incoming = pool->NewIncoming();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Leases(), 0u);
}

TEST_P(MessageTest, AnIncomingOneReadsWhatItWasGivenInPlaceAndReturnsItsBuffers) {
  Lease buffer = *buffers->Acquire(4096);
  uint8_t* const at = buffer.data();
  memset(at, 0, 4096);
  at[0] = 1;           // A pointer to a list in the next word.
  at[4] = 2 | 5 << 3;  // The list has 5 bytes.
  memcpy(at + 8, "hello", 5);
  IncomingMessagePtr message = pool->NewIncoming();
  message->SetReceived(std::move(buffer), 16, {at, size_t{0}});
  message->AddSegment(at, 16);
  const capnp::Data::Reader data =
      message->reader(capnp::ReaderOptions()).getRoot<capnp::AnyPointer>().getAs<capnp::Data>();
  EXPECT_EQ(data.begin(), at + 8);
  EXPECT_EQ(data.size(), 5u);
  message.reset();
  EXPECT_EQ(Leases(), 0u);
}

TEST_P(MessageTest, AMalformedBodyThrowsWhereItIsReadAndNowhereElse) {
  Lease buffer = *buffers->Acquire(4096);
  uint8_t* const at = buffer.data();
  memset(at, 0xfd, 4096);
  IncomingMessagePtr message = pool->NewIncoming();
  message->SetReceived(std::move(buffer), 16, {at, size_t{0}});
  message->AddSegment(at, 16);
  capnp::MessageReader& reader = message->reader(capnp::ReaderOptions());
  EXPECT_ANY_THROW(reader.getRoot<capnp::AnyPointer>().getAs<capnp::Data>());
}

// ---- The cache of a thread.

TEST_P(MessageTest, WhatEndsOnAThreadWithACacheIsUsedAgainThereAndCountsAsFree) {
  MessageCache cache(*pool);
  cache.Enter();
  OutgoingMessage* const first = pool->NewOutgoing().get();  // The message ends at once.
  EXPECT_EQ(pool->NewOutgoing().get(), first);
  const uint8_t* const data = buffers->Acquire(4096)->data();
  EXPECT_EQ(buffers->Acquire(4096)->data(), data);
  cache.Leave();
  EXPECT_NE(pool->NewOutgoing().get(), first);
  EXPECT_NE(buffers->Acquire(4096)->data(), data);
  cache.Enter();
  EXPECT_EQ(Leases(), 0u);
  cache.Leave();
}

// Threads of the application make calls, which end on the poller.
TEST_P(MessageTest, WhatWasTakenElsewhereIsNotKeptByTheCacheInWhichItEnds) {
  MessageCache cache(*pool);
  OutgoingMessage* const first = pool->NewOutgoing().get();
  for (int i = 0; i < 100; ++i) {
    OutgoingMessagePtr message = pool->NewOutgoing();
    EXPECT_EQ(message.get(), first);
    cache.Enter();
    message.reset();
    cache.Leave();
  }
  EXPECT_EQ(buffers->stats().leases, 1u) << "there was one message at a time";
}

// The reverse: the poller keeps a message that it has taken, even if another thread had it before.
TEST_P(MessageTest, WhatWasTakenInACacheIsKeptThereWhoeverHadItBefore) {
  OutgoingMessage* const first = pool->NewOutgoing().get();
  MessageCache cache(*pool);
  cache.Enter();
  EXPECT_EQ(pool->NewOutgoing().get(), first);
  cache.Leave();
  EXPECT_NE(pool->NewOutgoing().get(), first);
  cache.Enter();
  EXPECT_EQ(pool->NewOutgoing().get(), first);
  cache.Leave();
}

TEST_P(MessageTest, ACacheTakesNothingOfAnotherPool) {
  const std::shared_ptr<MessagePool> other = MessagePool::Create(buffers);
  MessageCache cache(*pool);
  cache.Enter();
  OutgoingMessage* const foreign = other->NewOutgoing().get();
  EXPECT_NE(pool->NewOutgoing().get(), foreign);
  cache.Leave();
  EXPECT_EQ(other->NewOutgoing().get(), foreign);
}

TEST_P(MessageTest, TheCacheThatWasEnteredLastIsUsedUntilItIsLeft) {
  const std::shared_ptr<MessagePool> other = MessagePool::Create(buffers);
  MessageCache outer(*pool), inner(*other);
  outer.Enter();
  OutgoingMessage* const first = pool->NewOutgoing().get();
  inner.Enter();
  EXPECT_NE(pool->NewOutgoing().get(), first);
  inner.Leave();
  EXPECT_EQ(pool->NewOutgoing().get(), first);
  outer.Leave();
}

constexpr MessagePool::CapnpRoad kRoads[] = {MessagePool::CapnpRoad::kPublic, MessagePool::CapnpRoad::kFast};
INSTANTIATE_TEST_SUITE_P(Roads, MessageTest, ::testing::ValuesIn(kRoads));
INSTANTIATE_TEST_SUITE_P(Roads, AttachTest, ::testing::ValuesIn(kRoads));
INSTANTIATE_TEST_SUITE_P(Roads, ExhaustedTest, ::testing::ValuesIn(kRoads));

TEST(MessageCacheTest, NothingIsKeptBackFromOthersOfAPoolThatIsMoreThanHalfFull) {
  auto buffers = std::make_shared<BufferPool>(NewTestFabric(), BufferPoolOptions{4 * kMiB});
  const std::shared_ptr<MessagePool> pool = MessagePool::Create(buffers);
  MessageCache cache(*pool);
  cache.Enter();
  std::vector<Lease> leases;
  while (leases.size() < 100) leases.push_back(*buffers->Acquire(4096));
  leases.clear();  // Half of the pool is mapped. Caches keep some buffers.
  leases.push_back(*buffers->Acquire(16384));
  cache.Leave();
  std::thread([&] {
    for (int i = 0; i < 2 * 1024 / 4; ++i) leases.push_back(*buffers->Acquire(4096));
  }).join();
  cache.Enter();
  leases.clear();
  cache.Leave();
  EXPECT_EQ(buffers->stats().leases, 0u);
}

}  // namespace
}  // namespace hawser::transport
