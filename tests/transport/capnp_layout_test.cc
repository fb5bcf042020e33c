#include "hawser/transport/wire/capnp_layout.h"

#include <capnp/any.h>
#include <capnp/capability.h>
#include <capnp/orphan.h>
#include <kj/exception.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/memory/retired_memory.h"
#include "hawser/transport/wire/message.h"

// The same messages by both roads, on objects that are used again and again.
namespace hawser::transport {
namespace {

using Random = std::mt19937;
using Road = MessagePool::CapnpRoad;

constexpr unsigned kSeeds = 20, kMessages = 300;

// Tests that compare the roads have nothing to compare where both are the public one.
#define SKIP_UNLESS_KNOWN()                                                                        \
  if (!capnp_layout::Known()) {                                                                    \
    GTEST_SKIP() << "both roads are the public one with Cap'n Proto of version " << CAPNP_VERSION; \
  }

unsigned Below(Random& random, unsigned end) { return static_cast<unsigned>(random()) % end; }

std::shared_ptr<MessagePool> NewPool(Road road) {
  return MessagePool::Create(std::make_shared<BufferPool>(NewTestFabric(), BufferPoolOptions{64 << 20}),
                             road);
}

TEST(CapnpLayoutTest, TheLayoutOfAListedVersionIsKnown) {
  if (CAPNP_VERSION < capnp_layout::kVersionMin || CAPNP_VERSION > capnp_layout::kVersionMax) {
    GTEST_SKIP() << "messages use the public interface of version " << CAPNP_VERSION;
  }
  EXPECT_TRUE(capnp_layout::Known());
}

// ---- Building.

void Fill(capnp::AnyStruct::Builder content, Random& random, int depth);

void Fill(capnp::AnyPointer::Builder pointer, Random& random, int depth) {
  switch (Below(random, depth > 0 ? 7 : 4)) {
    case 0:
      return;
    case 1: {
      const unsigned size = Below(random, 8) == 0 ? Below(random, 6000) : Below(random, 60);
      for (uint8_t& byte : pointer.initAs<capnp::Data>(size)) byte = static_cast<uint8_t>(random());
      return;
    }
    case 2:
      return pointer.setAs<capnp::Text>(std::string(Below(random, 20), 'x'));
    case 3: {
      auto list = pointer.initAs<capnp::List<uint16_t>>(Below(random, 20));
      for (unsigned i = 0; i < list.size(); ++i) list.set(i, static_cast<uint16_t>(random()));
      return;
    }
    case 4:
      return Fill(pointer.initAsAnyStruct(static_cast<uint16_t>(Below(random, 4)),
                                          static_cast<uint16_t>(Below(random, 4))),
                  random, depth - 1);
    case 5: {
      auto list = pointer.initAsListOfAnyStruct(static_cast<uint16_t>(Below(random, 3)),
                                                static_cast<uint16_t>(Below(random, 3)), Below(random, 5));
      for (unsigned i = 0; i < list.size(); ++i) Fill(list[i], random, depth - 1);
      return;
    }
    default: {
      auto list = pointer.initAsAnyList(capnp::ElementSize::POINTER, Below(random, 5))
                      .as<capnp::List<capnp::AnyPointer>>();
      for (unsigned i = 0; i < list.size(); ++i) Fill(list[i], random, depth - 1);
    }
  }
}

void Fill(capnp::AnyStruct::Builder content, Random& random, int depth) {
  for (uint8_t& byte : content.getDataSection()) byte = static_cast<uint8_t>(random());
  auto pointers = content.getPointerSection();
  for (unsigned i = 0; i < pointers.size(); ++i) Fill(pointers[i], random, depth);
}

void Build(OutgoingMessage& message, Random& random) {
  const auto init_struct = [&] {
    const auto data = static_cast<uint16_t>(Below(random, 12) == 0 ? Below(random, 1000) : Below(random, 5));
    const auto pointers = static_cast<uint16_t>(Below(random, 5));
    Fill(capnp::AnyStruct::Builder(message.InitRootStruct({data, pointers})), random, 3);
  };
  const auto root = [&] { return message.builder().getRoot<capnp::AnyPointer>(); };
  switch (Below(random, 10)) {
    case 0:
      return;  // Nothing at all.
    case 1:
      Below(random, 2) == 0 ? void(root()) : void(message.builder());
      return;
    case 2:
      return Fill(root(), random, 3);
    case 3:
      init_struct();
      return init_struct();
    case 4: {
      Fill(root(), random, 2);
      return init_struct();
    }
    case 5: {
      init_struct();
      const std::vector<uint8_t> bytes(1 + Below(random, 100), 7);
      EXPECT_NE(message.AddSegment(bytes), 0);
      return;
    }
    case 6: {  // What an orphan leaves behind.
      message.InitRootStruct({0, 1});
      capnp::Orphan<capnp::Data> orphan =
          message.builder().getOrphanage().newOrphan<capnp::Data>(Below(random, 100));
      std::fill(orphan.get().begin(), orphan.get().end(), uint8_t{9});
      orphan.truncate(Below(random, 20));
      if (Below(random, 2) == 0) root().adopt(std::move(orphan));
      return;
    }
    default:
      init_struct();
      if (Below(random, 4) == 0) message.Finish();  // Building may go on.
      if (Below(random, 4) == 0) root().getAs<capnp::AnyStruct>();
  }
}

std::vector<std::string> Segments(OutgoingMessage& message) {
  std::vector<std::string> segments;
  for (const OutgoingMessage::Segment& segment : message.Finish()) {
    segments.emplace_back(reinterpret_cast<const char*>(segment.address), segment.length_bytes);
  }
  return segments;
}

// The first segment of a message that was built in its head.
capnp::word* FirstSegment(const OutgoingMessage& message) {
  return reinterpret_cast<capnp::word*>(message.body());
}

// The library's constructors would overwrite the first mark, and its functions would obey the second.
TEST(CapnpLayoutTest, TheFastRoadKeepsBuildersAndMakesRootsInPlace) {
  SKIP_UNLESS_KNOWN();
  using Members = capnp_layout::MessageBuilder;
  constexpr size_t kWordsLeft = offsetof(Members, arena) + offsetof(Members::BuilderArena, words_left);
  constexpr size_t kEnd = offsetof(Members, arena) + offsetof(Members::BuilderArena, segment) +
                          offsetof(Members::BuilderArena::SegmentBuilder, end);
  constexpr uint64_t kMark = 123456789;
  const std::shared_ptr<MessagePool> pool = NewPool(Road::kFast);
  OutgoingMessagePtr message = pool->NewOutgoing();
  capnp::MessageBuilder* const builder = &message->builder();
  capnp_layout::Store(builder, kWordsLeft, kMark);
  message.reset();

  message = pool->NewOutgoing();
  // The library would begin the struct here, a word behind the root.
  capnp_layout::Store(builder, kEnd, FirstSegment(*message) + 2);
  message->InitRootStruct({1, 0});
  ASSERT_EQ(&message->builder(), builder);
  EXPECT_EQ(capnp_layout::Load<uint64_t>(builder, kWordsLeft), kMark) << "the arena is another";
  EXPECT_EQ(Segments(*message),
            std::vector<std::string>{std::string("\0\0\0\0\1\0\0\0", 8) + std::string(8, 0)});
}

TEST(CapnpLayoutTest, ARootFillsTheFirstSegmentOrGoesToTheNext) {
  const std::shared_ptr<MessagePool> pools[] = {NewPool(Road::kPublic), NewPool(Road::kFast)};
  for (size_t words = kFirstSegmentWords - 2; words <= kFirstSegmentWords + 1; ++words) {
    for (const size_t pointers : {size_t{0}, size_t{1}, words / 2, words}) {
      std::vector<std::string> built[2];
      for (int road = 0; road < 2; ++road) {
        OutgoingMessagePtr message = pools[road]->NewOutgoing();
        capnp::AnyStruct::Builder root(message->InitRootStruct(
            {static_cast<uint16_t>(words - pointers), static_cast<uint16_t>(pointers)}));
        for (uint8_t& byte : root.getDataSection()) byte = 7;
        built[road] = Segments(*message);
        EXPECT_EQ(built[road].size(), words < kFirstSegmentWords ? 1u : 2u) << words << ", road " << road;
        // Its content goes to what is left of the first segment, or to the next.
        if (pointers != 0) root.getPointerSection()[0].setAs<capnp::Text>("x");
        if (pointers != 0) root.getPointerSection()[pointers - 1].setAs<capnp::Text>("y");
        for (const std::string& segment : Segments(*message)) built[road].push_back(segment);
        EXPECT_THAT(message->status(), IsOk());
      }
      EXPECT_EQ(built[0], built[1]) << words << ", of these pointers " << pointers;
    }
  }
}

TEST(CapnpLayoutTest, AMessageHasARootOfNullOnceItsBuilderWasAskedFor) {
  for (const Road road : {Road::kPublic, Road::kFast}) {
    const std::shared_ptr<MessagePool> pool = NewPool(road);
    for (int i = 0; i < 2; ++i) {
      OutgoingMessagePtr message = pool->NewOutgoing();
      EXPECT_TRUE(Segments(*message).empty());
      message->builder();
      EXPECT_EQ(Segments(*message), std::vector<std::string>{std::string(8, 0)});
    }
  }
}

// Its words would be sent with the next message, to another peer.
TEST(CapnpLayoutDeathTest, AnOrphanageIsNotUsedAfterItsMessage) {
  SKIP_UNLESS_KNOWN();
  if (!kOverwritesRetiredMemory) GTEST_SKIP() << "only debug builds check it";
  const std::shared_ptr<MessagePool> pool = NewPool(Road::kFast);
  OutgoingMessagePtr message = pool->NewOutgoing();
  capnp::Orphanage orphanage = message->builder().getOrphanage();
  message.reset();
  EXPECT_DEATH(
      {
        auto orphan = orphanage.newOrphan<capnp::List<uint64_t>>(3);
        pool->NewOutgoing();
      },
      "used after its message had ended: there are 4 words");
}

TEST(CapnpLayoutTest, BothRoadsBuildTheSameBytes) {
  SKIP_UNLESS_KNOWN();
  const std::shared_ptr<MessagePool> pools[] = {NewPool(Road::kPublic), NewPool(Road::kFast)};
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    Random random(seed);
    for (unsigned number = 0; number < kMessages; ++number) {
      const unsigned script = static_cast<unsigned>(random());
      std::vector<std::string> built[2];
      for (int road = 0; road < 2; ++road) {
        Random steps(script);
        OutgoingMessagePtr message = pools[road]->NewOutgoing();
        Build(*message, steps);
        built[road] = Segments(*message);
        EXPECT_THAT(message->status(), IsOk());
      }
      ASSERT_EQ(built[0], built[1]) << "seed " << seed << ", message " << number;
    }
  }
}

// A builder that is used again would have them still.
TEST(CapnpLayoutTest, CapabilitiesOfAMessageAreNotInTheNext) {
  const std::shared_ptr<MessagePool> pool = NewPool(Road::kFast);
  const auto capabilities = [](OutgoingMessage& message) {
    return capnp::_::PointerHelpers<capnp::AnyPointer>::getInternalBuilder(
               message.builder().getRoot<capnp::AnyPointer>())
        .getCapTable();
  };
  for (int i = 0; i < 3; ++i) {
    OutgoingMessagePtr message = pool->NewOutgoing();
    message->InitRootStruct({1, 1});
    EXPECT_EQ(capabilities(*message)->injectCap(kj::Own<capnp::ClientHook>()), 0u);
    EXPECT_EQ(Segments(*message).size(), 1u);
  }
}

// ---- Reading.

// All that can be reached, as text, and the exception in whose place the rest is missing.
class Walk {
 public:
  explicit Walk(std::string& text) : text_(text) {}

  void Pointer(capnp::AnyPointer::Reader pointer) {
    if (pointer.isNull()) {
      text_ += "null ";
    } else if (pointer.isStruct()) {
      Struct(pointer.getAs<capnp::AnyStruct>());
    } else if (pointer.isList()) {
      List(pointer.getAs<capnp::AnyList>());
    } else {
      text_ += "other ";
    }
  }

  void Struct(capnp::AnyStruct::Reader content) {
    absl::StrAppend(&text_, "(", Hex(content.getDataSection()), " ");
    for (const auto inner : content.getPointerSection()) Pointer(inner);
    text_ += ") ";
  }

 private:
  static std::string Hex(kj::ArrayPtr<const kj::byte> bytes) {
    return absl::BytesToHexString({reinterpret_cast<const char*>(bytes.begin()), bytes.size()});
  }

  void List(capnp::AnyList::Reader list) {
    absl::StrAppend(&text_, "[", list.size(), " ");
    switch (list.getElementSize()) {
      case capnp::ElementSize::POINTER:
        for (const auto inner : list.as<capnp::List<capnp::AnyPointer>>()) Pointer(inner);
        break;
      case capnp::ElementSize::INLINE_COMPOSITE:
        for (const auto content : list.as<capnp::List<capnp::AnyStruct>>()) Struct(content);
        break;
      default:
        text_ += Hex(list.getRawBytes());
    }
    text_ += "] ";
  }

  std::string& text_;
};

// Memory between two pages that cannot be touched.
class GuardedMemory {
 public:
  GuardedMemory() {
    memory_ = static_cast<uint8_t*>(
        mmap(nullptr, size_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory_ + page_, size_, PROT_READ | PROT_WRITE);
  }
  ~GuardedMemory() { munmap(memory_, size_ + 2 * page_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // A copy of `bytes` that begins `skip` bytes behind the first of these pages, or ends in front of the
  // second.
  const uint8_t* Copy(const std::string& bytes, bool at_end, size_t skip = 0) {
    uint8_t* const at = memory_ + page_ + (at_end ? size_ - bytes.size() : skip);
    memcpy(at, bytes.data(), bytes.size());
    return at;
  }
  size_t size() const { return size_; }

 private:
  const size_t page_ = static_cast<size_t>(getpagesize());
  const size_t size_ = 16 * page_;
  uint8_t* memory_;
};

struct Received {
  std::vector<std::string> segments;
  capnp::ReaderOptions limits;
  unsigned ways;  // How it is read, two bits for each time.
  bool at_end;
  size_t skip = 0;
};

std::string Read(MessagePool& pool, const Received& received) {
  static auto* const memory = new GuardedMemory[3];
  IncomingMessagePtr message = pool.NewIncoming();
  for (size_t i = 0; i < received.segments.size(); ++i) {
    const std::string& segment = received.segments[i];
    message->AddSegment(memory[i].Copy(segment, received.at_end, received.skip),
                        static_cast<uint32_t>(segment.size()));
  }
  std::string text;
  for (unsigned ways = received.ways; ways != 0; ways >>= 2) {
    try {
      if ((ways & 3) == 1) {
        Walk(text).Struct(capnp::AnyStruct::Reader(message->ReadRootStruct(received.limits)));
      } else if ((ways & 3) == 2) {
        Walk(text).Pointer(message->reader(received.limits).getRoot<capnp::AnyPointer>());
      } else if ((ways & 3) == 3) {
        // For the second time with other limits, which the first has set.
        Walk(text).Struct(capnp::AnyStruct::Reader(message->ReadRootStruct(capnp::ReaderOptions())));
      }
    } catch (const kj::Exception& exception) {
      absl::StrAppend(&text, "threw ", exception.getDescription().cStr(), "; ");
    }
  }
  return text;
}

// Bits, bytes and pointers that another program wrote.
void Spoil(std::string& bytes, Random& random) {
  const size_t words = bytes.size() / sizeof(capnp::word);
  for (unsigned count = Below(random, 4); words != 0 && count > 0; --count) {
    // Most of what can be wrong is wrong at the root.
    char* const word = &bytes[8 * (Below(random, 3) == 0 ? 0 : Below(random, static_cast<unsigned>(words)))];
    switch (Below(random, 4)) {
      case 0:
        word[Below(random, 8)] ^= static_cast<char>(1 << Below(random, 8));
        break;
      case 1:
        word[Below(random, 8)] = static_cast<char>(random());
        break;
      case 2: {  // A pointer near or at the end of what is there.
        const auto offset = static_cast<int32_t>(Below(random, static_cast<unsigned>(words) + 4)) - 3;
        const uint32_t low = static_cast<uint32_t>(offset) << 2 | Below(random, 4);
        StoreLittle32(reinterpret_cast<uint8_t*>(word), low);
        break;
      }
      default:
        StoreLittle16(reinterpret_cast<uint8_t*>(word) + 4 + 2 * Below(random, 2),
                      static_cast<uint16_t>(Below(random, static_cast<unsigned>(words) + 2)));
    }
  }
}

TEST(CapnpLayoutTest, TheFastRoadKeepsReadersAndReadsRootsInPlace) {
  SKIP_UNLESS_KNOWN();
  using Members = capnp_layout::MessageReader;
  constexpr size_t kArena = offsetof(Members, arena);
  constexpr size_t kWordsLeft = kArena + offsetof(Members::ReaderArena, words_left);
  constexpr size_t kLimiter =
      kArena + offsetof(Members::ReaderArena, segment) + offsetof(capnp_layout::SegmentReader, limiter);
  const uint64_t words[] = {uint64_t{1} << 32, 7};  // A struct of a word.
  const std::shared_ptr<MessagePool> pool = NewPool(Road::kFast);
  const auto receive = [&] {
    IncomingMessagePtr message = pool->NewIncoming();
    message->AddSegment(reinterpret_cast<const uint8_t*>(words), sizeof(words));
    return message;
  };
  IncomingMessagePtr message = receive();
  capnp::MessageReader* const reader = &message->reader({});
  const auto limiter = capnp_layout::Load<const void*>(reader, kLimiter);
  // A ReadLimiter: the library's constructors would put another in its place, and its functions would
  // decrement it.
  uint64_t counted_by_library = 1000;
  capnp_layout::Store<const void*>(reader, kLimiter, &counted_by_library);
  message.reset();

  message = receive();
  message->ReadRootStruct({.traversalLimitInWords = 100, .nestingLimit = 10});
  ASSERT_EQ(&message->reader({}), reader);
  EXPECT_EQ(capnp_layout::Load<const void*>(reader, kLimiter), &counted_by_library) << "the arena is another";
  EXPECT_EQ(counted_by_library, 1000u);
  EXPECT_EQ(capnp_layout::Load<uint64_t>(reader, kWordsLeft), 100 - 2 - 1u);
  capnp_layout::Store(reader, kLimiter, limiter);
}

TEST(CapnpLayoutTest, BothRoadsRefuseMisalignedAfterAlignedSegments) {
  for (const Road road : {Road::kPublic, Road::kFast}) {
    const std::shared_ptr<MessagePool> pool = NewPool(road);
    for (const unsigned ways : {1u, 2u}) {
      Received received = {{std::string("\0\0\0\0\1\0\0\0", 8) + std::string(8, 7)}, {}, ways, false};
      EXPECT_EQ(Read(*pool, received), "(0707070707070707 ) ");
      received.skip = 4;
      EXPECT_THAT(Read(*pool, received), testing::HasSubstr("unaligned"));
      received.skip = 0;
      received.segments[0] += "beyond";  // Not a whole word.
      EXPECT_EQ(Read(*pool, received), "(0707070707070707 ) ");
      received.segments[0].resize(12);
      EXPECT_THAT(Read(*pool, received), testing::HasSubstr("threw"));
    }
  }
}

TEST(CapnpLayoutTest, BothRoadsReadTheSame) {
  SKIP_UNLESS_KNOWN();
  const std::shared_ptr<MessagePool> pools[] = {NewPool(Road::kPublic), NewPool(Road::kFast)};
  unsigned read = 0, threw = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    Random random(seed);
    for (unsigned number = 0; number < 5 * kMessages; ++number) {
      Received received;
      {
        OutgoingMessagePtr message = pools[0]->NewOutgoing();
        Build(*message, random);
        received.segments = Segments(*message);
      }
      if (received.segments.size() > 3) continue;
      for (std::string& segment : received.segments) {
        if (Below(random, 2) == 0) Spoil(segment, random);
        if (Below(random, 8) == 0)
          segment.resize(Below(random, static_cast<unsigned>(segment.size()) + 1) & ~7u);
      }
      received.limits.traversalLimitInWords = Below(random, 2) == 0 ? Below(random, 40) : 4000;
      received.limits.nestingLimit = static_cast<int>(Below(random, 2) == 0 ? Below(random, 4) : 64);
      received.ways = 1 + Below(random, 255);
      received.at_end = Below(random, 2) == 0;
      const std::string by_public_road = Read(*pools[0], received);
      ASSERT_EQ(by_public_road, Read(*pools[1], received)) << "seed " << seed << ", message " << number;
      ++(by_public_road.find("threw ") == std::string::npos ? read : threw);
    }
  }
  EXPECT_GT(read, kSeeds * kMessages);
  EXPECT_GT(threw, kSeeds * kMessages / 2);
}

// All pointers to a root whose places are near the ends of a message, and all limits that matter to it.
TEST(CapnpLayoutTest, BothRoadsAgreeAtTheEdgesOfTheRoot) {
  SKIP_UNLESS_KNOWN();
  const std::shared_ptr<MessagePool> pools[] = {NewPool(Road::kPublic), NewPool(Road::kFast)};
  constexpr int kWords = 4;
  for (int offset = -3; offset <= kWords + 1; ++offset) {
    for (unsigned kind = 0; kind < 4; ++kind) {
      for (unsigned sizes = 0; sizes < 25; ++sizes) {
        std::string bytes(8 * kWords, '\0');
        auto* const pointer = reinterpret_cast<uint8_t*>(bytes.data());
        StoreLittle32(pointer, static_cast<uint32_t>(offset) << 2 | kind);
        StoreLittle16(pointer + 4, static_cast<uint16_t>(sizes % 5));
        StoreLittle16(pointer + 6, static_cast<uint16_t>(sizes / 5));
        for (unsigned limit = 0; limit < 10; ++limit) {
          for (int nesting = 0; nesting < 3; ++nesting) {
            capnp::ReaderOptions limits;
            limits.traversalLimitInWords = limit;
            limits.nestingLimit = nesting;
            const Received received = {{bytes}, limits, /*ways=*/1 | 1 << 2, /*at_end=*/true};
            ASSERT_EQ(Read(*pools[0], received), Read(*pools[1], received))
                << offset << " " << kind << " " << sizes << " " << limit << " " << nesting;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace hawser::transport
