// A ring of messages in memory: what arrives in whatever order, and what a peer may do to it.

#include "hawser/rpc/message_ring.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "hawser/base/endian.h"
#include "hawser/tests/sim/dice.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/ring_messages.h"

namespace hawser {
namespace {

using Write = RingWriter::Write;

// Memory that begins at a multiple of 8.
struct Memory {
  explicit Memory(size_t size_bytes, uint64_t word = 0) : words(size_bytes / 8, word) {}
  absl::Span<uint8_t> bytes() { return {reinterpret_cast<uint8_t*>(words.data()), words.size() * 8}; }
  std::vector<uint64_t> words;
};

// The WRITEs of the next message, as if they were posted.
std::vector<Write> Add(RingWriter& writer, const std::string& message) {
  absl::StatusOr<std::vector<Write>> writes = writer.WritesOf(message);
  EXPECT_THAT(writes.status(), IsOk());
  if (!writes.ok()) return {};
  writer.OnPosted(message.size());
  return *std::move(writes);
}

void Deliver(const std::vector<Write>& writes, absl::Span<uint8_t> memory) {
  for (const Write& write : writes) {
    std::copy(write.bytes.begin(), write.bytes.end(), memory.begin() + write.offset);
  }
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
constexpr uint64_t kStepsMax = 1000000;

TEST(MessageRingTest, NoMemoryIsNoRing) {
  const absl::Span<uint8_t> null(static_cast<uint8_t*>(nullptr), 4096);
  EXPECT_THAT(MessageRing::Create(null).status(), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST(MessageRingTest, MessagesArriveWholeInWhateverOrderBytesDo) {
  bool was_full = false, was_in_part = false;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    sim::Dice dice(seed);
    Memory memory(8 * static_cast<size_t>(dice.Between(8, 42)), 0x5a5a5a5a5a5a5a5a);
    const absl::Span<uint8_t> bytes = memory.bytes();
    absl::StatusOr<MessageRing> ring = MessageRing::Create(bytes);
    ASSERT_THAT(ring.status(), IsOk());
    RingWriter writer(*RingLayout::Of(bytes.size()));
    AnyOrder wire(dice, bytes);
    std::deque<std::string> expected;
    uint64_t sent = 0, taken = 0;
    for (uint64_t steps = 0; taken < kMessages; ++steps) {
      ASSERT_LT(steps, kStepsMax) << "seed " << seed;
      if (sent < kMessages && dice.Chance(0.2)) {
        const std::string message =
            MessageOf(seed * 1000 + sent,
                      static_cast<size_t>(dice.Between(0, static_cast<int64_t>(writer.message_bytes_max()))));
        absl::StatusOr<std::vector<Write>> writes = writer.WritesOf(message);
        if (absl::IsResourceExhausted(writes.status())) {
          was_full = true;
          EXPECT_THAT(writer.OnHead(bytes.first(RingLayout::kHeadBytes)), IsOk());
        } else {
          ASSERT_THAT(writes.status(), IsOk());
          writer.OnPosted(message.size());
          wire.Post(*writes);
          expected.push_back(message);
          ++sent;
        }
      }
      wire.Deliver();
      std::string message = "before";
      const absl::StatusOr<bool> came = ring->Receive(message);
      ASSERT_THAT(came.status(), IsOk()) << "seed " << seed;
      ASSERT_TRUE(*came || message == "before") << "seed " << seed;
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

// The test above can see such a mistake.
TEST(MessageRingTest, AByteBehindAMessageDoesNotProveItsArrival) {
  bool was_torn = false;
  for (uint64_t seed = 1; seed <= kSeeds && !was_torn; ++seed) {
    sim::Dice dice(seed);
    std::vector<uint8_t> memory(NaiveRing::kSlotBytes * NaiveRing::kSlots, 0);
    NaiveRing ring(memory.data());
    AnyOrder wire(dice, absl::MakeSpan(memory));
    uint64_t sent = 0;
    for (uint64_t steps = 0; ring.taken() < kMessages && !was_torn; ++steps) {
      ASSERT_LT(steps, kStepsMax) << "seed " << seed;
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

TEST(MessageRingTest, AHeadThatIsAMixtureGivesNoRoom) {
  RingWriter writer(*RingLayout::Of(80));  // Of 5 words.
  Add(writer, std::string(28, 'x'));
  EXPECT_THAT(writer.WritesOf("y").status(), HasCode(absl::StatusCode::kResourceExhausted));
  std::vector<uint8_t> head = BytesOf({5, 0});
  head[8] = 5;  // The checksum is that of the moment before.
  EXPECT_THAT(writer.OnHead(head), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(writer.WritesOf("y").status(), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(writer.OnHead(BytesOf({5, 5})), IsOk());
  EXPECT_THAT(writer.WritesOf("y").status(), IsOk());
}

// Each byte of the head is that of some moment during the READ, and both words may be cut at the same byte.
TEST(MessageRingTest, AHeadWhoseBytesAreReadAtAnyTimeIsNoOther) {
  uint64_t whole = 0, mixed = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    sim::Dice dice(seed);
    Memory memory(64 << 10);
    absl::StatusOr<MessageRing> ring = MessageRing::Create(memory.bytes());
    ASSERT_THAT(ring.status(), IsOk());
    const RingLayout layout = *RingLayout::Of(memory.bytes().size());
    RingWriter all(layout);
    std::vector<std::vector<uint8_t>> heads;
    std::vector<uint64_t> positions;
    uint64_t written = 0;
    const auto note = [&] {
      const absl::Span<uint8_t> head = memory.bytes().first(RingLayout::kHeadBytes);
      heads.emplace_back(head.begin(), head.end());
      positions.push_back(written);
    };
    note();
    for (int number = 0; number < 20; ++number) {
      const std::string message(static_cast<size_t>(dice.Between(0, 2000)), 'x');
      Deliver(Add(all, message), memory.bytes());
      written += RingLayout::WordsOf(message.size());
      std::string taken;
      ASSERT_TRUE(ring->Receive(taken).value_or(false));
      note();
    }
    for (int reads = 0; reads < 200; ++reads) {
      const bool cut_in_words = dice.Chance(0.5);
      const auto cut = static_cast<size_t>(dice.Between(0, 8));
      const auto any = [&] {
        return static_cast<size_t>(dice.Between(0, static_cast<int64_t>(heads.size()) - 1));
      };
      const size_t one = any(), other = any();
      std::vector<uint8_t> read(RingLayout::kHeadBytes);
      for (size_t i = 0; i < read.size(); ++i) {
        read[i] = heads[cut_in_words ? (i % 8 < cut ? one : other) : any()][i];
      }
      RingWriter writer = all;
      const absl::Status status = writer.OnHead(read);
      ++(status.ok() ? whole : mixed);
      if (!status.ok()) {
        ASSERT_THAT(status, HasCode(absl::StatusCode::kUnavailable)) << "seed " << seed;
      } else {
        ASSERT_NE(std::find(positions.begin(), positions.end(), writer.taken()), positions.end())
            << "seed " << seed << ": no head had " << writer.taken();
      }
    }
  }
  EXPECT_GT(whole, 100u);
  EXPECT_GT(mixed, 100u);
}

TEST(MessageRingTest, AServerThatTookWhatWasNotWrittenIsBroken) {
  RingWriter writer(*RingLayout::Of(80));
  EXPECT_THAT(writer.OnHead(BytesOf({5, 1})), HasCode(absl::StatusCode::kDataLoss));
  EXPECT_THAT(writer.OnHead(BytesOf({6, 0})), HasCode(absl::StatusCode::kDataLoss));
  EXPECT_THAT(writer.OnHead(BytesOf({5, 0})), IsOk());
}

TEST(MessageRingTest, AHeadOfAnotherSizeIsRefused) {
  RingWriter writer(*RingLayout::Of(80));
  std::vector<uint8_t> head = BytesOf({5, 0});
  head.push_back(0);
  EXPECT_THAT(writer.OnHead(head), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(writer.OnHead(absl::MakeSpan(head).first(8)), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(writer.OnFirstRead(head), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST(MessageRingTest, TheFirstReadShowsWhetherTheRingIsNew) {
  Memory memory(128);
  const RingLayout layout = *RingLayout::Of(128);
  const RingWriter second(layout);
  const auto first = [&] {
    std::vector<uint8_t> read(memory.bytes().begin(), memory.bytes().begin() + RingWriter::kFirstBytes);
    const auto claim = memory.bytes().subspan(layout.claim_offset(), RingLayout::kClaimBytes);
    read.insert(read.end(), claim.begin(), claim.end());
    return read;
  };
  EXPECT_THAT(second.OnFirstRead(first()), HasCode(absl::StatusCode::kFailedPrecondition));  // No ring.
  absl::StatusOr<MessageRing> ring = MessageRing::Create(memory.bytes());
  ASSERT_THAT(ring.status(), IsOk());
  EXPECT_THAT(second.OnFirstRead(first()), IsOk());
  EXPECT_THAT(RingWriter(*RingLayout::Of(120)).OnFirstRead(first()),
              HasCode(absl::StatusCode::kFailedPrecondition));
  for (const uint64_t word : {layout.claim_offset(), layout.claim_offset() + 8}) {
    memory.bytes()[word + 3] = 1;  // Another client claims it.
    EXPECT_THAT(second.OnFirstRead(first()), HasCode(absl::StatusCode::kFailedPrecondition));
    memory.bytes()[word + 3] = 0;
  }
  RingWriter writer(layout);
  const std::vector<Write> writes = Add(writer, "a message");
  // One byte of it, the last of the length, which is 0 but for the tag.
  memory.bytes()[writes[0].offset + 7] = writes[0].bytes[7];
  EXPECT_THAT(second.OnFirstRead(first()), HasCode(absl::StatusCode::kFailedPrecondition));
  Deliver(writes, memory.bytes());
  std::string message;
  ASSERT_TRUE(ring->Receive(message).value_or(false));
  EXPECT_THAT(second.OnFirstRead(first()), HasCode(absl::StatusCode::kFailedPrecondition));
}

// Clients that claim one ring, and the two words of it. Over iWARP the OK of a WRITE says nothing about the
// words: it arrives at any time up to the end of the client's next READ on the same connection, or, if that
// breaks meanwhile, at any time or never.
class Claims {
 public:
  explicit Claims(size_t clients) : clients_(clients) {
    for (size_t i = 0; i < clients; ++i) clients_[i].claim.emplace(2 * i + 1);
  }

  bool CanStep(size_t client) const {
    return clients_[client].claim.has_value() && clients_[client].claim->Next().has_value();
  }
  // `breaks`: the connection of a WRITE does, before the client's next step.
  void Step(size_t client, bool breaks = false) {
    Client& self = clients_[client];
    const RingClaim::Step step = *self.claim->Next();
    if (step.writes) {
      self.late[step.word] = breaks ? Late::kAnyTime : Late::kUntilRead;
    } else {
      for (size_t word = 0; word < 2; ++word) {
        if (self.late[word] == Late::kUntilRead) Arrive(client, word);
      }
    }
    ++self.steps;
    // One that has lost does nothing any more.
    if (!self.claim->OnDone(words_[step.word]).ok()) self.claim.reset();
  }
  bool Writes(size_t client) const { return clients_[client].claim->Next()->writes; }
  int winners() const {
    return static_cast<int>(std::count_if(clients_.begin(), clients_.end(), [](const Client& client) {
      return client.claim.has_value() && !client.claim->Next().has_value();
    }));
  }
  // In all that may follow from `begin`, in each order.
  static int MostWinners(const Claims& begin) {
    int most = 0;
    std::unordered_set<uint64_t> seen = {begin.Key()};
    std::vector<Claims> left = {begin};
    const auto add = [&](Claims after) {
      if (seen.insert(after.Key()).second) left.push_back(std::move(after));
    };
    while (!left.empty()) {
      const Claims now = std::move(left.back());
      left.pop_back();
      most = std::max(most, now.winners());
      for (size_t client = 0; client < now.clients_.size(); ++client) {
        for (size_t word = 0; word < 2; ++word) {
          if (now.clients_[client].late[word] == Late::kNo) continue;
          Claims after = now;
          after.Arrive(client, word);
          add(std::move(after));
        }
        if (!now.CanStep(client)) continue;
        for (const bool breaks : {false, true}) {
          if (breaks && !now.Writes(client)) continue;
          Claims after = now;
          after.Step(client, breaks);
          add(std::move(after));
        }
      }
    }
    return most;
  }

 private:
  // How long a WRITE may take that is under way.
  enum class Late : uint8_t { kNo, kUntilRead, kAnyTime };
  struct Client {
    std::optional<RingClaim> claim;
    uint8_t steps = 0;
    Late late[2] = {};
  };

  void Arrive(size_t client, size_t word) {
    clients_[client].late[word] = Late::kNo;
    words_[word] = 2 * client + 1;
  }
  // Other states have other ones.
  uint64_t Key() const {
    uint64_t key = words_[0] << 3 | words_[1];
    for (const Client& client : clients_) {
      key = key << 8 | uint64_t{client.claim.has_value()} << 7 | uint64_t{client.steps} << 4 |
            static_cast<uint64_t>(client.late[0]) << 2 | static_cast<uint64_t>(client.late[1]);
    }
    return key;
  }

  std::vector<Client> clients_;
  uint64_t words_[2] = {};
};

TEST(MessageRingTest, OfClientsThatBeginAtOnceOneAtMostGetsTheRing) {
  EXPECT_EQ(Claims::MostWinners(Claims(1)), 1);
  EXPECT_EQ(Claims::MostWinners(Claims(2)), 1);
  EXPECT_EQ(Claims::MostWinners(Claims(3)), 1);
}

TEST(MessageRingTest, AClientThatIsAloneGetsTheRing) {
  Claims claims(2);
  while (claims.CanStep(0)) claims.Step(0);
  EXPECT_EQ(claims.winners(), 1);
  while (claims.CanStep(1)) claims.Step(1);
  EXPECT_EQ(claims.winners(), 1);
}

TEST(MessageRingTest, AClaimWhoseWriteWasLostSaysSo) {
  for (const int lost : {1, 2}) {
    RingClaim claim(7);
    int writes = 0;
    uint64_t words[2] = {};
    absl::Status status;
    while (status.ok() && claim.Next().has_value()) {
      const RingClaim::Step step = *claim.Next();
      if (step.writes && ++writes != lost) words[step.word] = step.value;
      status = claim.OnDone(words[step.word]);
    }
    EXPECT_THAT(status, HasCode(absl::StatusCode::kAborted));
    EXPECT_EQ(writes, lost) << "it goes on though it is not known to have arrived";
  }
}

TEST(MessageRingTest, AMessageThatCannotBeEndsTheRing) {
  Memory memory(80);
  const absl::Span<uint8_t> bytes = memory.bytes();
  absl::StatusOr<MessageRing> ring = MessageRing::Create(bytes);
  ASSERT_THAT(ring.status(), IsOk());
  EXPECT_EQ(ring->message_bytes_max(), 28u);
  std::memset(bytes.data() + RingLayout::kHeadBytes, 0xff, 8);
  std::string message;
  EXPECT_THAT(ring->Receive(message).status(), HasCode(absl::StatusCode::kDataLoss));
  std::memset(bytes.data(), 0, bytes.size());
  EXPECT_THAT(ring->Receive(message).status(), HasCode(absl::StatusCode::kDataLoss));
}

// A client sends the length and the last word of the longest message, and never the rest.
TEST(MessageRingTest, AMessageThatNeverCompletesCostsNothing) {
  Memory memory(1 << 20);
  const RingLayout layout = *RingLayout::Of(memory.bytes().size());
  absl::StatusOr<MessageRing> ring = MessageRing::Create(memory.bytes());
  ASSERT_THAT(ring.status(), IsOk());
  const auto set = [&](uint64_t position, uint64_t value) {
    StoreLittle64(memory.bytes().data() + layout.OffsetOf(position), layout.Encode(position, value));
  };
  set(0, layout.message_bytes_max());
  set(layout.words() - 1, 0);
  std::string message = "before";
  const size_t capacity = message.capacity();
  for (int polls = 0; polls < 1000; ++polls) {
    const absl::StatusOr<bool> came = ring->Receive(message);
    ASSERT_THAT(came.status(), IsOk());
    ASSERT_FALSE(*came);
  }
  EXPECT_EQ(message, "before");
  EXPECT_EQ(message.capacity(), capacity);
}

// Words that have been seen are not looked at again until all are there. Nor is the length taken twice.
TEST(MessageRingTest, APollGoesOnWhereTheLastOneStopped) {
  Memory memory(256);
  absl::StatusOr<MessageRing> ring = MessageRing::Create(memory.bytes());
  ASSERT_THAT(ring.status(), IsOk());
  RingWriter writer(*RingLayout::Of(256));
  const std::vector<Write> writes = Add(writer, std::string(70, 'x'));
  ASSERT_EQ(writes.size(), 1u);
  std::vector<Write> part = writes;
  part[0].bytes.resize(5 * 8);
  Deliver(part, memory.bytes());
  std::string message = "before";
  ASSERT_FALSE(ring->Receive(message).value_or(true));
  // The client takes words back. The ring notices once the others have come.
  std::fill_n(memory.bytes().data() + RingLayout::kHeadBytes, 2 * 8, uint8_t{0});
  ASSERT_FALSE(ring->Receive(message).value_or(true));
  EXPECT_EQ(message, "before");
  std::copy(writes[0].bytes.begin() + 2 * 8, writes[0].bytes.end(),
            memory.bytes().begin() + RingLayout::kHeadBytes + 2 * 8);
  EXPECT_THAT(ring->Receive(message).status(), HasCode(absl::StatusCode::kDataLoss));
  Deliver(writes, memory.bytes());
  EXPECT_THAT(ring->Receive(message).status(), HasCode(absl::StatusCode::kDataLoss));
}

TEST(MessageRingTest, MemoryThatIsTooSmallOrAskewIsRefused) {
  Memory memory(64);
  uint8_t* const bytes = memory.bytes().data();
  EXPECT_THAT(MessageRing::Create({bytes, 55}).status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(MessageRing::Create({bytes + 1, 56}).status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(MessageRing::Create({bytes, 56}).status(), IsOk());
}

}  // namespace
}  // namespace hawser
