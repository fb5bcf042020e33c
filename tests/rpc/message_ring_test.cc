// A ring of messages that a client WRITEs and the server polls.

#include "hawser/rpc/message_ring.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/tests/sim/dice.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "tests/rpc/memory_probe.rpc.h"

namespace hawser {
namespace {

using Write = RingWriter::Write;

std::string MessageOf(uint64_t number, size_t bytes) {
  sim::Dice dice(number);
  std::string message(bytes, '\0');
  for (char& each : message) each = static_cast<char>(dice.Next() >> 32);
  return message;
}

// What a NIC may do: the bytes of all WRITEs that were posted arrive in any order, one at a time.
class AnyOrder {
 public:
  AnyOrder(sim::Dice& dice, absl::Span<uint8_t> memory) : dice_(dice), memory_(memory) {}

  void Post(const std::vector<Write>& writes) {
    for (const Write& write : writes) {
      for (size_t i = 0; i < write.bytes.size(); ++i) {
        pending_.emplace_back(write.offset + i, write.bytes[i]);
      }
    }
  }
  bool idle() const { return pending_.empty(); }
  void Deliver() {
    if (pending_.empty()) return;
    auto& chosen = pending_[static_cast<size_t>(dice_.Between(0, static_cast<int64_t>(pending_.size()) - 1))];
    memory_[chosen.first] = chosen.second;
    chosen = pending_.back();
    pending_.pop_back();
  }

 private:
  sim::Dice& dice_;
  const absl::Span<uint8_t> memory_;
  std::vector<std::pair<uint64_t, uint8_t>> pending_;
};

// What seems good enough: the length, the message, and behind it a byte that says that it is there.
class NaiveRing {
 public:
  static constexpr size_t kSlotBytes = 64, kSlots = 8;

  explicit NaiveRing(uint8_t* memory) : memory_(memory) {}

  static std::vector<Write> Add(uint64_t number, absl::string_view message) {
    std::vector<uint8_t> slot(kSlotBytes, 0);
    slot[0] = static_cast<uint8_t>(message.size());
    std::copy(message.begin(), message.end(), slot.begin() + 1);
    slot[kSlotBytes - 1] = static_cast<uint8_t>(number / kSlots + 1);
    return {{number % kSlots * kSlotBytes, std::move(slot)}};
  }
  bool Receive(std::string& message) {
    const uint8_t* const slot = memory_ + taken_ % kSlots * kSlotBytes;
    if (slot[kSlotBytes - 1] != static_cast<uint8_t>(taken_ / kSlots + 1)) return false;
    message.assign(reinterpret_cast<const char*>(slot + 1), std::min<size_t>(slot[0], kSlotBytes - 2));
    ++taken_;
    return true;
  }
  uint64_t taken() const { return taken_; }

 private:
  uint8_t* const memory_;
  uint64_t taken_ = 0;
};

constexpr uint64_t kSeeds = 200;
constexpr uint64_t kMessages = 60;

TEST(MessageRingTest, EveryMessageComesWholeAndInOrderHoweverItsBytesArrive) {
  bool was_full = false, was_in_part = false;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    sim::Dice dice(seed);
    std::vector<uint64_t> memory(static_cast<size_t>(dice.Between(6, 40)), 0x5a5a5a5a5a5a5a5a);
    const absl::Span<uint8_t> bytes(reinterpret_cast<uint8_t*>(memory.data()), memory.size() * 8);
    absl::StatusOr<MessageRing> ring = MessageRing::Create(bytes);
    ASSERT_THAT(ring.status(), IsOk());
    RingWriter writer(*RingLayout::Of(bytes.size()));
    AnyOrder wire(dice, bytes);
    std::deque<std::string> expected;
    uint64_t sent = 0, taken = 0;
    while (taken < kMessages) {
      if (sent < kMessages && dice.Chance(0.2)) {
        const std::string message =
            MessageOf(seed * 1000 + sent,
                      static_cast<size_t>(dice.Between(0, static_cast<int64_t>(writer.message_bytes_max()))));
        absl::StatusOr<std::vector<Write>> writes = writer.Add(message);
        if (absl::IsResourceExhausted(writes.status())) {
          was_full = true;
          EXPECT_THAT(writer.OnHead(bytes.first(RingLayout::kHeadBytes)), IsOk());
        } else {
          ASSERT_THAT(writes.status(), IsOk());
          wire.Post(*writes);
          expected.push_back(message);
          ++sent;
        }
      }
      wire.Deliver();
      std::string message;
      const absl::StatusOr<bool> came = ring->Receive(message);
      ASSERT_THAT(came.status(), IsOk()) << "seed " << seed;
      was_in_part = was_in_part || (!*came && !expected.empty() && !wire.idle());
      if (!*came) continue;
      ASSERT_FALSE(expected.empty()) << "seed " << seed;
      ASSERT_EQ(message, expected.front()) << "seed " << seed << ", message " << taken;
      expected.pop_front();
      ++taken;
    }
  }
  EXPECT_TRUE(was_full && was_in_part);
}

// So the test above can see such a mistake.
TEST(MessageRingTest, AByteBehindTheMessageDoesNotSayThatItIsThere) {
  bool was_torn = false;
  for (uint64_t seed = 1; seed <= kSeeds && !was_torn; ++seed) {
    sim::Dice dice(seed);
    std::vector<uint8_t> memory(NaiveRing::kSlotBytes * NaiveRing::kSlots, 0);
    NaiveRing ring(memory.data());
    AnyOrder wire(dice, absl::MakeSpan(memory));
    uint64_t sent = 0;
    while (ring.taken() < kMessages && !was_torn) {
      if (sent < kMessages && sent < ring.taken() + NaiveRing::kSlots && dice.Chance(0.2)) {
        wire.Post(NaiveRing::Add(sent, MessageOf(sent, 40)));
        ++sent;
      }
      wire.Deliver();
      const uint64_t number = ring.taken();
      std::string message;
      was_torn = ring.Receive(message) && message != MessageOf(number, 40);
    }
  }
  EXPECT_TRUE(was_torn);
}

TEST(MessageRingTest, AHeadThatIsOfTwoMomentsGivesNoRoom) {
  RingWriter writer(*RingLayout::Of(64));
  ASSERT_THAT(writer.Add(std::string(30, 'x')).status(), IsOk());
  EXPECT_THAT(writer.Add("y").status(), HasCode(absl::StatusCode::kResourceExhausted));
  uint8_t head[RingLayout::kHeadBytes] = {};
  head[0] = 6;  // The other word is of the moment before.
  EXPECT_THAT(writer.OnHead(head), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(writer.Add("y").status(), HasCode(absl::StatusCode::kResourceExhausted));
  head[8] = 6;
  EXPECT_THAT(writer.OnHead(head), IsOk());
  EXPECT_THAT(writer.Add("y").status(), IsOk());
}

TEST(MessageRingTest, AServerThatHasTakenWhatWasNotWrittenIsBroken) {
  RingWriter writer(*RingLayout::Of(64));
  uint8_t head[RingLayout::kHeadBytes] = {};
  head[0] = head[8] = 1;
  EXPECT_THAT(writer.OnHead(head), HasCode(absl::StatusCode::kDataLoss));
}

TEST(MessageRingTest, AMessageThatCannotBeEndsTheRing) {
  std::vector<uint64_t> memory(8);
  const absl::Span<uint8_t> bytes(reinterpret_cast<uint8_t*>(memory.data()), 64);
  absl::StatusOr<MessageRing> ring = MessageRing::Create(bytes);
  ASSERT_THAT(ring.status(), IsOk());
  EXPECT_EQ(ring->message_bytes_max(), 35u);
  std::memset(bytes.data() + RingLayout::kHeadBytes, 0xff, 8);
  std::string message;
  EXPECT_THAT(ring->Receive(message).status(), HasCode(absl::StatusCode::kDataLoss));
  std::memset(bytes.data(), 0, bytes.size());
  EXPECT_THAT(ring->Receive(message).status(), HasCode(absl::StatusCode::kDataLoss));
}

TEST(MessageRingTest, MemoryThatIsTooSmallOrAskewIsRefused) {
  std::vector<uint64_t> memory(8);
  uint8_t* const bytes = reinterpret_cast<uint8_t*>(memory.data());
  EXPECT_THAT(MessageRing::Create({bytes, 31}).status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(MessageRing::Create({bytes + 1, 40}).status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(MessageRing::Create({bytes, 32}).status(), IsOk());
}

class GrantsAll final : public memory_probe::MemoryProbeService {
 public:
  absl::Status Grant(ServerContext& context, memory_probe::MemoryProbe::GrantParams::Reader,
                     memory_probe::MemoryProbe::GrantResults::Builder reply) override {
    return context.Grant(*memory, {.access = Access::kReadWrite}, reply.initTicket());
  }

  std::optional<SharedMemory> memory;
};

TEST(RemoteRingTest, MessagesCrossUntilTheServerHasTakenThemAndTheRingIsFullBefore) {
  GrantsAll service;
  Server server;
  ASSERT_THAT(server.AddService(&service), IsOk());
  const absl::StatusOr<std::string> uri = server.Listen(TestUri());
  ASSERT_THAT(uri.status(), IsOk());
  absl::StatusOr<SharedMemory> memory = server.Share(1024);
  ASSERT_THAT(memory.status(), IsOk());
  service.memory = *std::move(memory);
  absl::StatusOr<MessageRing> ring = MessageRing::Create(service.memory->bytes());
  ASSERT_THAT(ring.status(), IsOk());
  const auto channel = Channel::Connect(*uri);
  ASSERT_THAT(channel.status(), IsOk());
  const auto reply = memory_probe::MemoryProbeStub(*channel).Grant().Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  RemoteRing remote(RemoteMemory(*channel, (*reply)->getTicket()));
  uint64_t sent = 0, taken = 0;
  bool was_full = false;
  while (taken < 100) {
    const absl::Status status = sent < 100 ? remote.Send(MessageOf(sent, 100)) : absl::OkStatus();
    if (status.ok()) {
      sent = std::min<uint64_t>(sent + 1, 100);
    } else {
      ASSERT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
      was_full = true;
    }
    std::string message;
    // Half as often as messages come, until the ring is full.
    if (status.ok() && sent % 2 == 0 && sent < 100) continue;
    const absl::StatusOr<bool> came = ring->Receive(message);
    ASSERT_THAT(came.status(), IsOk());
    if (!*came) continue;
    EXPECT_EQ(message, MessageOf(taken, 100));
    ++taken;
  }
  EXPECT_TRUE(was_full);
  EXPECT_THAT(remote.Send(std::string(2000, 'x')), HasCode(absl::StatusCode::kInvalidArgument));
  ASSERT_THAT(service.memory->Revoke(), IsOk());
  const absl::Status ended = remote.Send("later");
  EXPECT_THAT(ended, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(remote.Send("again"), ended);
}

}  // namespace
}  // namespace hawser
