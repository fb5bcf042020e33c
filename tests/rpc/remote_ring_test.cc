// A ring of messages that a client WRITEs over a connection, and the server polls.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/message_ring.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/memory_probe.rpc.h"
#include "tests/rpc/ring_messages.h"

namespace hawser {
namespace {

constexpr uint64_t kStepsMax = 1000000;

class GrantsAll final : public memory_probe::MemoryProbeService {
 public:
  absl::Status Grant(ServerContext& context, memory_probe::MemoryProbe::GrantParams::Reader request,
                     memory_probe::MemoryProbe::GrantResults::Builder reply) override {
    GrantOptions options{.access = Access::kReadWrite};
    if (request.getLength() > 0) options.length = request.getLength();
    return context.Grant(*memory, options, reply.initTicket());
  }

  std::optional<SharedMemory> memory;
};

// A server with a ring, and clients of it.
class RemoteRingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(server_.AddService(&service_), IsOk());
    const absl::StatusOr<std::string> uri = server_.Listen(TestUri());
    ASSERT_THAT(uri.status(), IsOk());
    uri_ = *uri;
  }

  // Anew, if there is one.
  void ShareRing(size_t size_bytes) {
    absl::StatusOr<SharedMemory> memory = server_.Share(size_bytes);
    ASSERT_THAT(memory.status(), IsOk());
    service_.memory = *std::move(memory);
    absl::StatusOr<MessageRing> ring = MessageRing::Create(service_.memory->bytes());
    ASSERT_THAT(ring.status(), IsOk());
    ring_ = *std::move(ring);
  }

  void Connect(ChannelOptions options = {}) {
    const auto channel = Channel::Connect(uri_, std::move(options));
    ASSERT_THAT(channel.status(), IsOk());
    channel_ = *channel;
  }

  RemoteRing Reach(uint64_t length = 0) { return ReachThrough(channel_, length); }

  static RemoteRing ReachThrough(const std::shared_ptr<Channel>& channel, uint64_t length = 0) {
    auto call = memory_probe::MemoryProbeStub(channel).Grant();
    call.request().setLength(length);
    const auto reply = call.Send().Wait();
    EXPECT_THAT(reply.status(), IsOk());
    return RemoteRing(RemoteMemory(channel, (*reply)->getTicket()));
  }

  // Over iWARP a message may arrive after Send() has returned.
  std::string Next() {
    std::string message;
    const absl::Time until = absl::Now() + absl::Seconds(20);
    while (absl::Now() < until) {
      const absl::StatusOr<bool> came = ring_->Receive(message);
      if (!came.ok()) return came.status().ToString();
      if (*came) return message;
    }
    return "no message";
  }

  absl::Span<uint8_t> memory() { return service_.memory->bytes(); }

  GrantsAll service_;
  Server server_;
  std::string uri_;
  std::optional<MessageRing> ring_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(RemoteRingTest, MessagesCrossAndAFullRingWaitsForTheServer) {
  ShareRing(1024);
  Connect();
  RemoteRing remote = Reach();
  uint64_t sent = 0, taken = 0;
  bool was_full = false;
  for (uint64_t steps = 0; taken < 100; ++steps) {
    ASSERT_LT(steps, kStepsMax);
    const absl::Status status = sent < 100 ? remote.Send(MessageOf(sent, 100)) : absl::OkStatus();
    if (status.ok()) {
      sent = std::min<uint64_t>(sent + 1, 100);
    } else {
      ASSERT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
      was_full = true;
    }
    // Half as often as messages come, until the ring is full.
    if (status.ok() && sent % 2 == 0 && sent < 100) continue;
    ASSERT_EQ(Next(), MessageOf(taken, 100));
    ++taken;
  }
  EXPECT_TRUE(was_full);
  EXPECT_THAT(remote.Send(std::string(2000, 'x')), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(remote.ended(), IsOk());
}

TEST_F(RemoteRingTest, AfterItsEndARingIsMadeAnew) {
  ShareRing(1024);
  Connect();
  RemoteRing remote = Reach();
  ASSERT_THAT(remote.Send("one"), IsOk());
  ASSERT_EQ(Next(), "one");
  ASSERT_THAT(remote.Send("two"), IsOk());
  ASSERT_THAT(service_.memory->Revoke(), IsOk());
  EXPECT_EQ(Next(), "two");
  const absl::Status ended = remote.Send("later");
  EXPECT_THAT(ended, HasCode(absl::StatusCode::kAborted));
  EXPECT_EQ(remote.Send("again"), ended);
  EXPECT_EQ(remote.ended(), ended);
  ShareRing(1024);
  RemoteRing anew = Reach();
  ASSERT_THAT(anew.Send("three"), IsOk());
  EXPECT_EQ(Next(), "three");
}

TEST_F(RemoteRingTest, WhatWasMovedFromSaysSo) {
  ShareRing(1024);
  Connect();
  RemoteRing remote = Reach(), other = std::move(remote);
  EXPECT_EQ(remote.Send("one"), absl::FailedPreconditionError("the RemoteRing was moved from"));
  EXPECT_EQ(remote.ended(), remote.Send("one"));
  remote = std::move(other);
  ASSERT_THAT(remote.Send("one"), IsOk());
  MessageRing ring = *std::move(ring_);
  std::string message;
  EXPECT_EQ(ring_->Receive(message).status(),
            absl::FailedPreconditionError("the MessageRing was moved from"));
  ring_ = std::move(ring);
  EXPECT_EQ(Next(), "one");
}

TEST_F(RemoteRingTest, AUsedRingIsRefused) {
  ShareRing(1024);
  Connect();
  RemoteRing remote = Reach();
  ASSERT_THAT(remote.Send("one"), IsOk());
  if (!OverSiw()) {  // There it may be on its way.
    RemoteRing second = Reach();
    EXPECT_THAT(second.Send("other"), HasCode(absl::StatusCode::kFailedPrecondition));
  }
  EXPECT_EQ(Next(), "one");
  RemoteRing third = Reach();
  const absl::Status refused = third.Send("other");
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(third.ended(), refused);
  // The first one goes on.
  EXPECT_THAT(remote.Send("two"), IsOk());
  EXPECT_EQ(Next(), "two");
}

// Both may lose; never do both get it. Each has a connection of its own, so nothing orders their steps.
TEST_F(RemoteRingTest, OfTwoThatBeginAtOnceOneAtMostSends) {
  std::vector<std::shared_ptr<Channel>> channels;
  for (int i = 0; i < 2; ++i) {
    Connect();
    channels.push_back(channel_);
  }
  for (int round = 0; round < 20; ++round) {
    ShareRing(1024);
    std::vector<RemoteRing> rings;
    for (const auto& channel : channels) rings.push_back(ReachThrough(channel));
    std::atomic<int> sent{0}, refused{0};
    std::vector<std::thread> clients;
    for (RemoteRing& ring : rings) {
      clients.emplace_back([&] {
        const absl::Status status = ring.Send("mine");
        if (status.ok()) ++sent;
        if (absl::IsFailedPrecondition(status)) ++refused;
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_LE(sent, 1);
    EXPECT_EQ(sent + refused, 2);
  }
}

// Its random bytes are those that a test says.
class KnownNumbers final : public transport::Environment {
 public:
  static constexpr uint8_t kByte = 0x5b;

  void FillRandom(absl::Span<uint8_t> bytes) override {
    if (is_known) {
      std::fill(bytes.begin(), bytes.end(), kByte);
    } else {
      Environment::FillRandom(bytes);
    }
  }

  std::atomic<bool> is_known{false};
};

// Not from a pool of the process, which a child would have a copy of after fork().
TEST_F(RemoteRingTest, ItsNumberIsDrawnInTheEnvironmentOfItsChannel) {
  ShareRing(1024);
  static auto* const environment = new KnownNumbers;  // Outlives the runtime.
  auto runtime = transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/true, *environment);
  ASSERT_THAT(runtime.status(), IsOk());
  Connect({.runtime = *runtime});
  environment->is_known = true;
  RemoteRing remote = Reach();
  environment->is_known = false;
  ASSERT_THAT(remote.Send("mine"), IsOk());
  EXPECT_EQ(Next(), "mine");
  const auto claim = memory().subspan(RingLayout::Of(1024)->claim_offset(), RingLayout::kClaimBytes);
  EXPECT_EQ(std::vector<uint8_t>(claim.begin(), claim.end()),
            std::vector<uint8_t>(RingLayout::kClaimBytes, KnownNumbers::kByte));
}

TEST_F(RemoteRingTest, AGrantOfAPartOfTheRingIsRefused) {
  ShareRing(1024);
  Connect();
  RemoteRing remote = Reach(512);
  EXPECT_THAT(remote.Send("one"), HasCode(absl::StatusCode::kFailedPrecondition));
  std::string message;
  EXPECT_FALSE(ring_->Receive(message).value_or(true));
}

TEST_F(RemoteRingTest, MemoryThatIsNoRingIsRefused) {
  ShareRing(1024);
  std::fill(memory().begin(), memory().end(), uint8_t{0});
  Connect();
  EXPECT_THAT(Reach().Send("one"), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_F(RemoteRingTest, AHeadThatNoServerWritesEndsIt) {
  ShareRing(80);
  Connect();
  RemoteRing remote = Reach();
  ASSERT_THAT(remote.Send(std::string(28, 'x')), IsOk());
  ASSERT_EQ(Next(), std::string(28, 'x'));
  const std::vector<uint8_t> head(memory().begin(), memory().begin() + RingLayout::kHeadBytes);
  const std::vector<uint8_t> wrong = BytesOf({5, 6});
  std::copy(wrong.begin(), wrong.end(), memory().begin());
  const absl::Status ended = remote.Send("y");
  EXPECT_THAT(ended, HasCode(absl::StatusCode::kDataLoss));
  std::copy(head.begin(), head.end(), memory().begin());
  EXPECT_EQ(remote.Send("y"), ended);
}

TEST_F(RemoteRingTest, AHeadThatNeverIsWholeLeavesTheRingFull) {
  ShareRing(80);
  Connect();
  RemoteRing remote = Reach();
  ASSERT_THAT(remote.Send(std::string(28, 'x')), IsOk());
  ASSERT_EQ(Next(), std::string(28, 'x'));
  memory()[8] ^= 1;
  EXPECT_THAT(remote.Send("y"), HasCode(absl::StatusCode::kResourceExhausted));
  memory()[8] ^= 1;
  EXPECT_THAT(remote.Send("y"), IsOk());
  EXPECT_EQ(Next(), "y");
}

TEST_F(RemoteRingTest, ATimeoutThatIsOverBeforeTheWriteEndsNothing) {
  ShareRing(1024);
  Connect();
  RemoteRing remote = Reach();
  for (const char* message : {"one", "two"}) {
    EXPECT_THAT(remote.Send("late", {.timeout = absl::ZeroDuration()}),
                HasCode(absl::StatusCode::kDeadlineExceeded));
    ASSERT_THAT(remote.Send(message), IsOk());
    EXPECT_EQ(Next(), message);
  }
}

// A client whose pool has 4 MiB. A larger message is never posted.
class SmallPoolTest : public RemoteRingTest {
 protected:
  static constexpr size_t kRingBytes = 8 << 20;
  static constexpr size_t kTooMuch = 6 << 20;

  void SetUp() override {
    RemoteRingTest::SetUp();
    auto runtime = transport::Runtime::Create(TestScheme(), {.pool = {.limit_bytes = 4 << 20}});
    ASSERT_THAT(runtime.status(), IsOk());
    ShareRing(kRingBytes);
    Connect({.runtime = *runtime});
  }
};

TEST_F(SmallPoolTest, AMessageThatWasNotPostedEndsNothing) {
  RemoteRing remote = Reach();
  ASSERT_THAT(remote.Send("one"), IsOk());
  ASSERT_THAT(remote.Send(std::string(kTooMuch, 'x')), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(remote.ended(), IsOk());
  ASSERT_THAT(remote.Send("two"), IsOk());
  EXPECT_EQ(Next(), "one");
  EXPECT_EQ(Next(), "two");
}

TEST_F(SmallPoolTest, AMessageThatWasPostedInPartEndsTheRing) {
  RemoteRing remote = Reach();
  // Up to a few words before the end of the ring.
  uint64_t left = RingLayout::Of(kRingBytes)->words() - 4;
  while (left > 0) {
    const uint64_t words = std::min<uint64_t>(left, 100000);
    const std::string message((words - 1) * RingLayout::kBytesInWord, 'x');
    ASSERT_THAT(remote.Send(message), IsOk());
    ASSERT_TRUE(Next() == message);
    left -= words;
  }
  // The WRITE of the first 4 words is posted, and the one at the beginning of the ring is not.
  const absl::Status ended = remote.Send(std::string(kTooMuch, 'x'));
  EXPECT_THAT(ended, HasCode(absl::StatusCode::kAborted));
  EXPECT_EQ(remote.Send("one"), ended);
}

}  // namespace
}  // namespace hawser
