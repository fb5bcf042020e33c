// A cell whose value a READ brings whole, or not at all. The READs here have the freedom of a NIC's: the
// words of one are copied in any order, and the owner writes in between.

#include "hawser/rpc/versioned_cell.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/tests/testing/cell_outcome.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "tests/rpc/memory_probe.rpc.h"

namespace hawser {
namespace {

constexpr size_t kValueBytes = 100;
constexpr uint64_t kSeeds = 3000;

using Value = std::vector<uint8_t>;

// Each byte of a version's value tells it from those of the versions around it.
Value ValueOf(uint64_t version, size_t size = kValueBytes) {
  Value value(size);
  const uint64_t fill = version * 31 + version / 256 * 7 + version / 65536 * 13;
  for (size_t i = 0; i < size; ++i) value[i] = static_cast<uint8_t>(fill + i);
  return value;
}

// Memory that begins at a multiple of 8.
struct Memory {
  explicit Memory(size_t size_bytes) : words(size_bytes / 8) {}
  absl::Span<uint8_t> bytes() { return {reinterpret_cast<uint8_t*>(words.data()), words.size() * 8}; }
  std::vector<uint64_t> words;
};

// Copies `from` in units of `unit_bytes`, in an order that the seed chooses, and runs `owner` at places that
// it chooses as well.
Value ReadInAnyOrder(absl::Span<const uint8_t> from, size_t unit_bytes, uint64_t seed,
                     const std::function<void()>& owner) {
  std::mt19937_64 dice(seed);
  std::vector<size_t> units((from.size() + unit_bytes - 1) / unit_bytes);
  std::iota(units.begin(), units.end(), 0);
  // Some READs are in order, and some in the reverse one.
  if (seed % 4 == 1) std::reverse(units.begin(), units.end());
  if (seed % 4 > 1) std::shuffle(units.begin(), units.end(), dice);
  const uint64_t pause = dice() % (2 * units.size()) + 1;
  Value read(from.size());
  for (const size_t unit : units) {
    if (dice() % pause == 0) owner();
    const size_t at = unit * unit_bytes;
    std::memcpy(read.data() + at, from.data() + at, std::min(unit_bytes, from.size() - at));
  }
  return read;
}

// A layout of a value that changes, as its owner and its readers see it.
struct Layout {
  size_t cell_bytes;
  std::function<void(absl::Span<uint8_t> cell, const Value& value, uint64_t version)> write;
  std::function<std::optional<uint64_t>(absl::Span<const uint8_t> read, absl::Span<uint8_t> value)> decode;
};

Layout Versioned() {
  return {VersionedCell::CellBytes(kValueBytes),
          [](absl::Span<uint8_t> cell, const Value& value, uint64_t version) {
            const uint64_t before = version - 1;
            std::memcpy(cell.data(), &before, 8);
            EXPECT_EQ(VersionedCell(cell.first(VersionedCell::CellBytes(kValueBytes))).Write(value).value(),
                      version);
          },
          VersionedCell::Decode};
}

// What comes to mind first: the version before the value, and again behind it.
Layout HeadAndTail() {
  return {kValueBytes + 16,
          [](absl::Span<uint8_t> cell, const Value& value, uint64_t version) {
            std::memcpy(cell.data(), &version, 8);
            std::copy(value.begin(), value.end(), cell.data() + 8);
            std::memcpy(cell.data() + 8 + kValueBytes, &version, 8);
          },
          [](absl::Span<const uint8_t> read, absl::Span<uint8_t> value) -> std::optional<uint64_t> {
            uint64_t head, tail;
            std::memcpy(&head, read.data(), 8);
            std::memcpy(&tail, read.data() + 8 + kValueBytes, 8);
            std::copy_n(read.data() + 8, kValueBytes, value.data());
            return head == tail ? std::optional(head) : std::nullopt;
          }};
}

// A version in each cache line: good for a NIC that copies cache lines at once, which is promised nowhere.
Layout VersionPerCacheLine() {
  constexpr size_t kLines = 2;
  return {
      kLines * 64,
      [](absl::Span<uint8_t> cell, const Value& value, uint64_t version) {
        for (size_t line = 0; line < kLines; ++line) {
          std::memcpy(cell.data() + line * 64, &version, 8);
          const size_t at = line * 56;
          std::copy_n(value.data() + at, std::min<size_t>(56, kValueBytes - at), cell.data() + line * 64 + 8);
        }
      },
      [](absl::Span<const uint8_t> read, absl::Span<uint8_t> value) -> std::optional<uint64_t> {
        std::array<uint64_t, kLines> versions;
        for (size_t line = 0; line < kLines; ++line) {
          std::memcpy(&versions[line], read.data() + line * 64, 8);
          const size_t at = line * 56;
          std::copy_n(read.data() + line * 64 + 8, std::min<size_t>(56, kValueBytes - at), value.data() + at);
        }
        return versions[0] == versions[1] ? std::optional(versions[0]) : std::nullopt;
      }};
}

// Words that show 16 bits of the version, as in a VersionedCell, and a checksum that skips the value.
Layout ChecksumOfTheVersionAlone() {
  constexpr size_t kWords = (kValueBytes + 5) / 6;
  constexpr auto checksum = [](uint64_t version) { return version * 0x9e3779b97f4a7c15; };
  return {kWords * 8 + 16,
          [checksum](absl::Span<uint8_t> cell, const Value& value, uint64_t version) {
            std::memcpy(cell.data(), &version, 8);
            for (size_t i = 0; i < kWords; ++i) {
              uint8_t* const word = cell.data() + 8 + i * 8;
              std::memcpy(word, &version, 2);
              std::copy_n(value.data() + i * 6, std::min<size_t>(6, kValueBytes - i * 6), word + 2);
            }
            const uint64_t sum = checksum(version) << 16 | (version & 0xffff);
            std::memcpy(cell.data() + 8 + kWords * 8, &sum, 8);
          },
          [checksum](absl::Span<const uint8_t> read, absl::Span<uint8_t> value) -> std::optional<uint64_t> {
            uint64_t version, sum;
            std::memcpy(&version, read.data(), 8);
            for (size_t i = 0; i < kWords; ++i) {
              const uint8_t* const word = read.data() + 8 + i * 8;
              if (std::memcmp(word, read.data(), 2) != 0) return std::nullopt;
              std::copy_n(word + 2, std::min<size_t>(6, kValueBytes - i * 6), value.data() + i * 6);
            }
            std::memcpy(&sum, read.data() + 8 + kWords * 8, 8);
            return sum == (checksum(version) << 16 | (version & 0xffff)) ? std::optional(version)
                                                                         : std::nullopt;
          }};
}

// `step`: how far apart successive versions are. `unit_bytes`: what a READ copies at once.
CellOutcome Try(const Layout& layout, uint64_t step = 1, size_t unit_bytes = 8) {
  CellOutcome outcome;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Memory memory(layout.cell_bytes + 7);
    uint64_t version = 1;
    const auto write = [&] { layout.write(memory.bytes(), ValueOf(version), version); };
    write();
    const Value read = ReadInAnyOrder(memory.bytes().first(layout.cell_bytes), unit_bytes, seed,
                                      [&] { version += step, write(); });
    Value value(kValueBytes);
    const std::optional<uint64_t> decoded = layout.decode(read, absl::MakeSpan(value));
    outcome.Count(decoded, value, version, [](uint64_t each) { return ValueOf(each); });
  }
  return outcome;
}

TEST(VersionedCellTest, AReadIsOneVersionOrIsRefused) {
  const CellOutcome outcome = Try(Versioned());
  EXPECT_EQ(outcome.deceived, 0);
  EXPECT_GT(outcome.whole, 100);
  EXPECT_GT(outcome.refused, 100);
}

// Otherwise the test above proves nothing.
TEST(VersionedCellTest, OtherLayoutsAreDeceivedBySomeSeed) {
  EXPECT_GT(Try(HeadAndTail()).deceived, 0);
  EXPECT_GT(Try(VersionPerCacheLine()).deceived, 0);
}

TEST(VersionedCellTest, VersionsWithTheSameBitsInTheirWordsAreToldApart) {
  const CellOutcome outcome = Try(Versioned(), 65536);
  EXPECT_EQ(outcome.deceived, 0);
  EXPECT_GT(outcome.refused, 100);
  // Otherwise this proves nothing.
  EXPECT_EQ(Try(ChecksumOfTheVersionAlone()).deceived, 0);
  EXPECT_GT(Try(ChecksumOfTheVersionAlone(), 65536).deceived, 0);
}

// A smaller cell leaves the words behind its end as they were. A larger one of the same bits comes after it.
TEST(VersionedCellTest, WordsThatASmallerCellHasLeftAreNotTakenForALargerOnes) {
  Memory memory(VersionedCell::CellBytes(kValueBytes));
  const absl::Span<uint8_t> small = memory.bytes().first(VersionedCell::CellBytes(20));
  EXPECT_THAT(VersionedCell(memory.bytes()).Write(ValueOf(1)), IsOk());
  for (uint64_t version = 2; version <= 65536; ++version) {
    ASSERT_THAT(VersionedCell(small).Write(ValueOf(version, 20)), IsOk());
  }
  const Memory old = memory;
  EXPECT_EQ(VersionedCell(memory.bytes()).Write(ValueOf(65537)).value(), 65537u);
  for (size_t word = small.size() / 8; word < memory.words.size(); ++word) {
    Memory mixed = memory;
    EXPECT_EQ((mixed.words[word] ^ old.words[word]) & 0xffff, 0u);
    mixed.words[word] = old.words[word];
    Value value(kValueBytes);
    EXPECT_EQ(VersionedCell::Decode(mixed.bytes(), absl::MakeSpan(value)), std::nullopt) << word;
  }
}

// As over iWARP.
TEST(VersionedCellTest, TornWordsAreRefused) {
  for (const size_t unit_bytes : {1, 3, 5}) {
    const CellOutcome outcome = Try(Versioned(), 1, unit_bytes);
    EXPECT_EQ(outcome.deceived, 0);
    EXPECT_GT(outcome.refused, 100);
  }
}

// No matter what it holds: where words are whole, no luck is needed.
TEST(VersionedCellTest, AWordOfAnotherVersionIsRefusedEvenWithTheSameBytes) {
  const Value value = ValueOf(1);
  Memory old(VersionedCell::CellBytes(kValueBytes)), now(old.bytes().size());
  EXPECT_THAT(VersionedCell(old.bytes()).Write(value), IsOk());
  for (size_t word = 0; word < now.words.size(); ++word) {
    now = old;
    EXPECT_THAT(VersionedCell(now.bytes()).Write(value), IsOk());
    now.words[word] = old.words[word];
    Value read(kValueBytes);
    EXPECT_EQ(VersionedCell::Decode(now.bytes(), absl::MakeSpan(read)), std::nullopt) << word;
    EXPECT_EQ(VersionedCell(now.bytes()).Read(absl::MakeSpan(read)), std::nullopt) << word;
  }
}

TEST(VersionedCellTest, ValuesOfAllSizesAreReadWithTheirVersions) {
  for (size_t size = 0; size <= 40; ++size) {
    Memory memory(VersionedCell::CellBytes(size));
    EXPECT_GE(VersionedCell::ValueBytes(memory.bytes().size()), size);
    VersionedCell cell(memory.bytes());
    for (uint64_t version = 1; version <= 3; ++version) {
      EXPECT_THAT(cell.Write(ValueOf(version, size)), IsOk());
      EXPECT_EQ(cell.version(), version);
      Value remote(size), local(size);
      EXPECT_EQ(VersionedCell::Decode(memory.bytes(), absl::MakeSpan(remote)), version);
      EXPECT_EQ(cell.Read(absl::MakeSpan(local)), version);
      EXPECT_EQ(remote, ValueOf(version, size));
      EXPECT_EQ(local, remote);
    }
  }
}

TEST(VersionedCellTest, MemoryOfZerosIsVersionZeroOfZeros) {
  Memory memory(VersionedCell::CellBytes(kValueBytes));
  Value value(kValueBytes, 1);
  EXPECT_EQ(VersionedCell::Decode(memory.bytes(), absl::MakeSpan(value)), 0u);
  EXPECT_EQ(value, Value(kValueBytes));
}

TEST(VersionedCellTest, AShorterValueIsFilledUpWithZeros) {
  Memory memory(VersionedCell::CellBytes(20));
  VersionedCell cell(memory.bytes());
  EXPECT_THAT(cell.Write(Value(20, 1)), IsOk());
  EXPECT_THAT(cell.Write(Value(7, 2)), IsOk());
  Value expected(20);
  std::fill_n(expected.begin(), 7, 2);
  Value value(20);
  EXPECT_EQ(cell.Read(absl::MakeSpan(value)), 2u);
  EXPECT_EQ(value, expected);
  // Nor need a reader take all of it.
  Value part(7);
  EXPECT_EQ(VersionedCell::Decode(memory.bytes(), absl::MakeSpan(part)), 2u);
  EXPECT_EQ(part, Value(7, 2));
}

TEST(VersionedCellTest, AnotherCellOfTheSameMemoryGoesOnWithIt) {
  Memory memory(VersionedCell::CellBytes(kValueBytes));
  EXPECT_THAT(VersionedCell(memory.bytes()).Write(ValueOf(1)), IsOk());
  EXPECT_THAT(VersionedCell(memory.bytes()).Write(ValueOf(2)), IsOk());
  EXPECT_EQ(VersionedCell(memory.bytes()).version(), 2u);
}

TEST(VersionedCellTest, BytesThatAreNoSuchCellAreRefused) {
  Memory memory(VersionedCell::CellBytes(kValueBytes));
  EXPECT_THAT(VersionedCell(memory.bytes()).Write(ValueOf(1)), IsOk());
  for (size_t size = 0; size < memory.bytes().size(); ++size) {
    Value value(std::min(kValueBytes, VersionedCell::ValueBytes(size)));
    EXPECT_EQ(VersionedCell::Decode(memory.bytes().first(size), absl::MakeSpan(value)), std::nullopt) << size;
  }
  Value larger(VersionedCell::ValueBytes(memory.bytes().size()) + 1);
  EXPECT_EQ(VersionedCell::Decode(memory.bytes(), absl::MakeSpan(larger)), std::nullopt);
}

// A server writes what its clients send: their bytes may be more than the cell has room for.
TEST(VersionedCellTest, AValueThatIsTooLargeIsRefusedAndTheCellIsAsItWas) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{6}, kValueBytes}) {
    Memory memory(VersionedCell::CellBytes(size));
    VersionedCell cell(memory.bytes());
    const size_t room = VersionedCell::ValueBytes(memory.bytes().size());
    ASSERT_THAT(cell.Write(ValueOf(1, room)), IsOk());
    const Value before(memory.bytes().begin(), memory.bytes().end());
    for (const size_t beyond : {size_t{1}, size_t{6}, size_t{1} << 20}) {
      const absl::StatusOr<uint64_t> refused = cell.Write(Value(room + beyond, 2));
      EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
      EXPECT_EQ(refused.status().message(),
                absl::StrCat(room + beyond, " bytes into a VersionedCell for ", room));
    }
    EXPECT_EQ(Value(memory.bytes().begin(), memory.bytes().end()), before);
    EXPECT_EQ(cell.version(), 1u);
    EXPECT_EQ(cell.Write(ValueOf(2, room)).value(), 2u);
  }
}

TEST(VersionedCellDeathTest, MemoryThatIsNoCell) {
  Memory memory(VersionedCell::CellBytes(6));
  EXPECT_DEATH(VersionedCell(memory.bytes().subspan(1, 16)), "a VersionedCell of 16 bytes at");
  EXPECT_DEATH(VersionedCell(memory.bytes().first(8)), "a VersionedCell of 8 bytes at");
  EXPECT_DEATH(VersionedCell(memory.bytes().first(17)),
               "a VersionedCell of 17 bytes at .*: it must begin at a multiple of 8");
}

// Writes until it is destroyed.
class Writer {
 public:
  explicit Writer(absl::Span<uint8_t> memory)
      : thread_([this, memory] {
          VersionedCell cell(memory);
          while (!over_) EXPECT_THAT(cell.Write(ValueOf(cell.version() + 1)), IsOk());
        }) {}
  ~Writer() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

TEST(VersionedCellTest, AThreadReadsBesideTheWriter) {
  Memory memory(VersionedCell::CellBytes(kValueBytes));
  VersionedCell cell(memory.bytes());
  EXPECT_THAT(cell.Write(ValueOf(1)), IsOk());
  Writer writer(memory.bytes());
  uint64_t last = 0;
  for (int whole = 0; whole < 10'000;) {
    Value value(kValueBytes);
    const std::optional<uint64_t> version = cell.Read(absl::MakeSpan(value));
    if (!version.has_value()) continue;
    ++whole;
    EXPECT_EQ(value, ValueOf(*version));
    EXPECT_GE(*version, last);
    last = *version;
  }
}

class Granting final : public memory_probe::MemoryProbeService {
 public:
  absl::Status Grant(ServerContext& context, memory_probe::MemoryProbe::GrantParams::Reader,
                     memory_probe::MemoryProbe::GrantResults::Builder reply) override {
    return context.Grant(*memory, {.access = Access::kRead}, reply.initTicket());
  }
  std::optional<SharedMemory> memory;
};

TEST(VersionedCellTest, AClientReadsBesideTheWriter) {
  constexpr size_t kCellBytes = VersionedCell::CellBytes(kValueBytes);
  Granting granting;
  Server server;
  ASSERT_THAT(server.AddService(&granting), IsOk());
  const absl::StatusOr<std::string> uri = server.Listen(TestUri());
  ASSERT_THAT(uri.status(), IsOk());
  absl::StatusOr<SharedMemory> memory = server.Share(kCellBytes);
  ASSERT_THAT(memory.status(), IsOk());
  granting.memory.emplace(*std::move(memory));
  EXPECT_THAT(VersionedCell(granting.memory->bytes()).Write(ValueOf(1)), IsOk());

  const auto channel = Channel::Connect(*uri);
  ASSERT_THAT(channel.status(), IsOk());
  const auto granted = memory_probe::MemoryProbeStub(*channel).Grant().Send().Wait();
  ASSERT_THAT(granted.status(), IsOk());
  RemoteMemory remote(*channel, (*granted)->getTicket());
  const absl::StatusOr<Buffer> read = (*channel)->AllocateBuffer(kCellBytes);
  ASSERT_THAT(read.status(), IsOk());
  Writer writer(granting.memory->bytes());
  uint64_t last = 0;
  for (int whole = 0; whole < 500;) {
    ASSERT_THAT(remote.Read(0, {read->data(), kCellBytes}).Wait(), IsOk());
    Value value(kValueBytes);
    const auto version = VersionedCell::Decode({read->data(), kCellBytes}, absl::MakeSpan(value));
    if (!version.has_value()) continue;
    ++whole;
    EXPECT_EQ(value, ValueOf(*version));
    EXPECT_GE(*version, last);
    last = *version;
  }
}

}  // namespace
}  // namespace hawser
