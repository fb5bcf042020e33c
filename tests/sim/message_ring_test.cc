// A ring of messages whose client WRITEs them over the simulated NIC, a few at a time, while the owner polls.
#include "hawser/rpc/message_ring.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "hawser/base/endian.h"
#include "hawser/tests/sim/dice.h"
#include "hawser/tests/sim/network.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/fabric.h"
#include "tests/rpc/ring_messages.h"

namespace hawser::sim {
namespace {

using fabric::CompletionIs;
using fabric::CompletionStatus;
using fabric::Endpoint;
using fabric::FabricWorld;
using fabric::Granted;
using Access = fabric::QueuePair::Access;

// 16 words: a message has up to 15 of them, so the ring is full, and begins anew, again and again.
constexpr uint32_t kRingBytes = RingLayout::kHeadBytes + RingLayout::kClaimBytes + 16 * 8;
constexpr uint64_t kMessages = 30;
constexpr uint64_t kSeeds = 100;
// WRITEs that are not complete.
constexpr size_t kInFlightMax = 6;

// Takes the next message if it is there.
using Receive = std::function<bool(std::string& message)>;

// What the client does, one step at a time.
class Client {
 public:
  Client(Endpoint& endpoint, const Granted& ring, uint64_t seed)
      : endpoint_(endpoint), ring_(ring), dice_(seed), writer_(*RingLayout::Of(kRingBytes)) {}

  // What it sends as its message `number`, from 0 on, if that is written.
  const std::string& sent(size_t number) const { return sent_.at(number); }

  void Step() {
    if (reads_head_) return LookAtHead();
    if (endpoint_.sends_posted - endpoint_.sends.size() >= kInFlightMax || sent_.size() == kMessages) return;
    if (next_.empty()) {
      const auto bytes = dice_.Between(1, static_cast<int64_t>(writer_.message_bytes_max()));
      next_ = MessageOf(dice_.Next(), static_cast<size_t>(bytes));
    }
    const absl::StatusOr<std::vector<RingWriter::Write>> writes = writer_.WritesOf(next_);
    if (!writes.ok()) {
      EXPECT_EQ(writes.status().code(), absl::StatusCode::kResourceExhausted);
      reads_head_ = true;
      head_ = endpoint_.sends_posted;
      EXPECT_THAT(endpoint_.Read(head_, endpoint_.At(0, RingLayout::kHeadBytes), ring_), IsOk());
      return;
    }
    for (const RingWriter::Write& write : *writes) {
      // A place of its own until it is complete.
      const size_t place = (1 + endpoint_.sends_posted % (2 * kInFlightMax)) * kRingBytes;
      std::copy(write.bytes.begin(), write.bytes.end(), endpoint_.memory() + place);
      EXPECT_THAT(endpoint_.Write(endpoint_.sends_posted,
                                  endpoint_.At(place, static_cast<uint32_t>(write.bytes.size())), ring_,
                                  static_cast<int64_t>(write.offset)),
                  IsOk());
    }
    writer_.OnPosted(next_.size());
    sent_.push_back(std::exchange(next_, {}));
  }

 private:
  void LookAtHead() {
    if (endpoint_.sends.size() <= head_) return;
    EXPECT_THAT(endpoint_.sends[head_], CompletionIs(head_, CompletionStatus::kSuccess));
    reads_head_ = false;
    const absl::Status read = writer_.OnHead({endpoint_.memory(), RingLayout::kHeadBytes});
    EXPECT_TRUE(read.ok() || absl::IsUnavailable(read)) << read;
  }

  Endpoint& endpoint_;
  const Granted ring_;
  Dice dice_;
  RingWriter writer_;
  std::string next_;
  std::vector<std::string> sent_;
  bool reads_head_ = false;
  size_t head_ = 0;  // Among the completions, when it reads that.
};

struct Outcome {
  uint64_t received = 0;  // Whole, and in order.
  uint64_t in_vain = 0;   // Polls that found no message.
  bool deceived = false;  // Then it has stopped.
};

// Sends kMessages with this seed to what `open` makes of the memory.
Outcome Try(uint64_t seed, const std::function<Receive(absl::Span<uint8_t> memory)>& open) {
  // A clock that moves so slowly that the owner sees each step of a WRITE.
  const auto network = std::make_shared<Network>(NetworkOptions{.seed = seed, .idle_poll_ns = 50});
  FabricWorld world({.name = "Sim",
                     .create = [&network] { return std::make_shared<SimFabric>(*network, 1); },
                     .listen_address = SimFabric::AddressOf(1)});
  auto pair = world.Connect();
  Endpoint& owner = pair.b;
  const Receive receive = open({owner.memory(), kRingBytes});
  Client client(pair.a, owner.Grant(owner.At(0, kRingBytes), Access::kReadRepeatedly | Access::kWrite), seed);
  Outcome outcome;
  const auto step = [&] {
    client.Step();
    std::string message;
    if (!receive(message)) {
      ++outcome.in_vain;
    } else if (message == client.sent(outcome.received)) {
      ++outcome.received;
    } else {
      outcome.deceived = true;
    }
  };
  HAWSER_UNTIL(world, (step(), outcome.received == kMessages || outcome.deceived));
  return outcome;
}

Receive OpenRing(absl::Span<uint8_t> memory) {
  const auto ring = std::make_shared<MessageRing>(*MessageRing::Create(memory));
  return [ring](std::string& message) {
    const absl::StatusOr<bool> received = ring->Receive(message);
    EXPECT_THAT(received.status(), IsOk());
    return received.ok() && *received;
  };
}

TEST(MessageRingSimTest, EachMessageIsReceivedWholeAndInOrder) {
  uint64_t in_vain = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Outcome outcome = Try(seed, OpenRing);
    EXPECT_EQ(outcome.received, kMessages) << "seed " << seed;
    EXPECT_FALSE(outcome.deceived) << "seed " << seed;
    in_vain += outcome.in_vain;
  }
  EXPECT_GT(in_vain, kSeeds) << "no poll came while a message was on its way";
}

// The same ring, but a message is taken to be there when its first and its last word are.
class NaiveRing {
 public:
  explicit NaiveRing(absl::Span<uint8_t> memory)
      : layout_(*RingLayout::Of(memory.size())), memory_(memory.data()) {
    EXPECT_THAT(MessageRing::Create(memory).status(), IsOk());
  }

  bool Receive(std::string& message) {
    uint64_t length, value;
    if (!layout_.Decode(taken_, Word(taken_), length)) return false;
    const uint64_t words = RingLayout::WordsOf(length);
    if (!layout_.Decode(taken_ + words - 1, Word(taken_ + words - 1), value)) return false;
    message.resize(length);
    for (uint64_t i = 1; i < words; ++i) {
      // Whatever lap its bytes are of.
      const uint64_t lap = layout_.Encode(taken_ + i, 0);
      EXPECT_TRUE(layout_.Decode(taken_ + i, (Word(taken_ + i) & 0x7f7f7f7f7f7f7f7f) | lap, value));
      uint8_t bytes[8];
      StoreLittle64(bytes, value);
      const uint64_t at = (i - 1) * RingLayout::kBytesInWord;
      std::memcpy(message.data() + at, bytes, std::min<uint64_t>(RingLayout::kBytesInWord, length - at));
    }
    taken_ += words;
    const auto head = RingLayout::EncodeHead({layout_.words(), taken_});
    std::memcpy(memory_, head.data(), RingLayout::kHeadBytes);
    return true;
  }

 private:
  uint64_t Word(uint64_t position) const { return LoadLittle64(memory_ + layout_.OffsetOf(position)); }

  const RingLayout layout_;
  uint8_t* const memory_;
  uint64_t taken_ = 0;
};

// Otherwise the seeds prove nothing: that the end of a message has arrived does not say that the rest has.
TEST(MessageRingSimTest, SomeSeedDeceivesARingThatLooksAtTheEndsOfAMessage) {
  bool deceived = false;
  for (uint64_t seed = 1; seed <= kSeeds && !deceived; ++seed) {
    deceived = Try(seed, [](absl::Span<uint8_t> memory) -> Receive {
                 const auto ring = std::make_shared<NaiveRing>(memory);
                 return [ring](std::string& message) { return ring->Receive(message); };
               }).deceived;
  }
  EXPECT_TRUE(deceived);
}

}  // namespace
}  // namespace hawser::sim
