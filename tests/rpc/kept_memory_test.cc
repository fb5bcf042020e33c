// What a handler keeps of its requests takes little more than its bytes, of registered memory as of the
// process's.

#include "tests/rpc/kept_memory.h"

#include <string.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

// A large page, a power of two, has 4 KiB for what came with it.
uint64_t MostFor(uint64_t bytes) {
  return bytes >= (512 << 10) && std::has_single_bit(bytes) ? bytes + 4096 : bytes + bytes / 4 + 512;
}

class Keeper : public ProbeServiceImpl {
 public:
  absl::Status Echo(ServerContext& context, probe::Probe::EchoParams::Reader request,
                    probe::Probe::EchoResults::Builder reply) override {
    KeptBytes value = context.KeepBytes(request.getData());
    absl::MutexLock lock(&mutex);
    if (returns) reply.adoptData(context.Attach(value.bytes, value.owner));
    if (keeps) kept.push_back(std::move(value));
    return absl::OkStatus();
  }

  absl::Mutex mutex;
  bool keeps = true, returns = false;
  std::vector<KeptBytes> kept;
};

class KeptMemoryTest : public ::testing::Test {
 protected:
  // Attached, as a store's client sends a page.
  absl::Status Send(size_t size_bytes) {
    absl::StatusOr<Buffer> buffer = channel_->AllocateBuffer(size_bytes);
    if (!buffer.ok()) return buffer.status();
    memset(buffer->data(), 'v', size_bytes);
    auto call = probe::ProbeStub(channel_).Echo();
    call.request().adoptData(call.Attach(*std::move(buffer)));
    return call.Send().Wait().status();
  }

  // Built in the message.
  absl::Status SendBuilt(size_t size_bytes) {
    auto call = probe::ProbeStub(channel_).Echo();
    memset(call.request().initData(static_cast<uint32_t>(size_bytes)).begin(), 'v', size_bytes);
    return call.Send().Wait().status();
  }

  Keeper keeper_;
  const Served served_{keeper_};
  const Server& server_ = served_.server;
  const std::shared_ptr<Channel>& channel_ = served_.channel;
};

TEST_F(KeptMemoryTest, ManyValuesOfEachSizeTakeAQuarterMoreAnd512Each) {
  constexpr uint64_t kConnection = 512 << 10;  // Receives, and messages that are kept for the next call.
  constexpr uint64_t kSlabs = 3 * (2 << 20);   // The last of each class is not full.
  for (size_t size : {1 << 10, 1500,      2 << 10,   3000,     3900,      4 << 10,  4600,     5632,
                      7000,    8 << 10,   12 << 10,  16 << 10, 20000,     32 << 10, 48 << 10, 64 << 10,
                      100'000, 128 << 10, 256 << 10, 262'100,  512 << 10, 1 << 20,  2 << 20,  5'000'000}) {
    const auto count = std::clamp<size_t>((size_t{24} << 20) / size, 4, 1000);
    // What the client and the pollers keep for the next call.
    keeper_.keeps = false;
    for (int i = 0; i < 50; ++i) ASSERT_THAT(Send(size), IsOk());
    keeper_.keeps = true;
    const uint64_t leased_before = server_.stats().leased_bytes, resident_before = ResidentBytes();
    for (size_t i = 0; i < count; ++i) ASSERT_THAT(i % 2 == 0 ? Send(size) : SendBuilt(size), IsOk());
    ASSERT_EQ(keeper_.kept.size(), count);
    uint64_t memory_bytes = 0;
    for (const KeptBytes& value : keeper_.kept) {
      memory_bytes += value.memory_bytes;
      EXPECT_LE(value.memory_bytes, MostFor(size)) << "for " << size;
      ASSERT_EQ(value.bytes.size(), size);
      EXPECT_EQ(value.bytes[0], 'v');
      EXPECT_EQ(value.bytes[size - 1], 'v');
    }
    EXPECT_LE(server_.stats().leased_bytes, leased_before + memory_bytes + kConnection) << "for " << size;
    if (kCountsResident) {
      EXPECT_LE(ResidentBytes(), resident_before + count * MostFor(size) + kSlabs + 4 * size)
          << "for " << size;
    }
    keeper_.kept.clear();
  }
}

// However large the page is.
TEST_F(KeptMemoryTest, ALargeValueTakesFourKiBMore) {
  for (const size_t size : {16 << 20, 64 << 20}) {
    constexpr size_t kCount = 3;
    keeper_.keeps = false;
    for (int i = 0; i < 3; ++i) ASSERT_THAT(Send(size), IsOk());
    keeper_.keeps = true;
    const uint64_t leased_before = server_.stats().leased_bytes, resident_before = ResidentBytes();
    for (size_t i = 0; i < kCount; ++i) ASSERT_THAT(Send(size), IsOk());
    ASSERT_EQ(keeper_.kept.size(), kCount);
    for (const KeptBytes& value : keeper_.kept) {
      EXPECT_EQ(value.memory_bytes, size + 4096);
      ASSERT_EQ(value.bytes.size(), size);
      EXPECT_EQ(value.bytes[size - 1], 'v');
    }
    // The receives of the connection, and messages that are kept for the next call.
    EXPECT_LE(server_.stats().leased_bytes, leased_before + kCount * (size + 4096) + (512 << 10));
    if (kCountsResident) {
      EXPECT_LE(ResidentBytes(), resident_before + kCount * size + size / 4) << "for " << size;
    }
    keeper_.kept.clear();
  }
}

// ---- The guide's table of what is kept

constexpr uint64_t kKiB = 1024;

// A figure of a cell such as "512 KiB, 1, 2, 4 MiB and so on" or "1, 2.25, 3 KiB".
struct Figure {
  double kib = 0;
  double rounding = 0.5;  // What it may differ from what it was rounded from.
};
std::vector<Figure> FiguresOf(absl::string_view cell) {
  std::vector<Figure> figures;
  size_t of_no_unit = 0;  // The first that has none yet.
  for (absl::string_view word : absl::StrSplit(cell, absl::ByAnyChar(" ,"), absl::SkipEmpty())) {
    double number = 0;
    if (absl::SimpleAtod(word, &number)) {
      const size_t dot = word.find('.');
      const auto decimals = dot == word.npos ? size_t{0} : word.size() - dot - 1;
      figures.push_back({number, 0.5 / std::pow(10, decimals)});
    } else if (word == "KiB" || word == "MiB") {
      for (; of_no_unit < figures.size(); ++of_no_unit) figures[of_no_unit].kib *= word == "MiB" ? 1024 : 1;
    }
  }
  return figures;
}

// The rows below "| value | takes | where |": their cells.
std::vector<std::vector<std::string>> RowsOfTheGuide() {
  std::ifstream guide(std::string(std::getenv("TEST_SRCDIR")) + "/hawser/docs/guide.md");
  std::vector<std::vector<std::string>> rows;
  bool is_in_table = false;
  for (std::string line; std::getline(guide, line);) {
    if (line == "| value | takes | where |") {
      is_in_table = true;
    } else if (is_in_table && !absl::StartsWith(line, "|")) {
      break;
    } else if (is_in_table && line != "|---|---|---|") {
      rows.push_back(absl::StrSplit(absl::StripSuffix(absl::StripPrefix(line, "| "), "|"), " |"));
    }
  }
  return rows;
}

TEST_F(KeptMemoryTest, EachRowOfTheGuideIsTrue) {
  const auto memory_bytes_of = [&](size_t size, bool is_built) -> uint64_t {
    keeper_.kept.clear();
    EXPECT_THAT(is_built ? SendBuilt(size) : Send(size), IsOk());
    return keeper_.kept.size() == 1 ? keeper_.kept[0].memory_bytes : 0;
  };
  size_t figures = 0;
  for (const std::vector<std::string>& row : RowsOfTheGuide()) {
    ASSERT_GE(row.size(), 2u) << row[0];
    std::vector<Figure> values = FiguresOf(row[0]), takes = FiguresOf(row[1]);
    const bool says_more = absl::StrContains(row[1], " more");
    for (size_t i = 0; i < values.size(); ++i) {
      const auto size = static_cast<size_t>(values[i].kib * static_cast<double>(kKiB));
      for (const bool is_built : {false, true}) {
        if (absl::StartsWith(row[0], "less than ")) {
          EXPECT_EQ(memory_bytes_of(size - 8, is_built), size - 8) << row[0];
        } else if (says_more) {
          EXPECT_EQ(memory_bytes_of(size, is_built),
                    size + static_cast<uint64_t>(takes.at(0).kib * static_cast<double>(kKiB)))
              << values[i].kib << " KiB";
        } else {
          ASSERT_EQ(values.size(), takes.size()) << row[0];
          const double kib = static_cast<double>(memory_bytes_of(size, is_built)) / static_cast<double>(kKiB);
          EXPECT_NEAR(kib, takes[i].kib, takes[i].rounding) << "for " << values[i].kib << " KiB";
        }
      }
      // And of the pool, which a value that is copied comes from.
      if (absl::StrContains(row.back(), "copied") && size >= kKiB &&
          !absl::StartsWith(row[0], "less than ")) {
        EXPECT_EQ(transport::BufferPool::CapacityOf(size), memory_bytes_of(size, false));
      }
      ++figures;
    }
  }
  EXPECT_GE(figures, 15u) << "the table has been read";
}

TEST(KeptBytesTest, WhatIsKeptOutlivesTheServer) {
  std::vector<KeptBytes> kept;
  {
    Keeper keeper;
    const Served served(keeper);
    ASSERT_NE(served.channel, nullptr);
    for (uint32_t size : {100, 2000, 5000}) {  // On the heap, copied, where it was received.
      auto call = probe::ProbeStub(served.channel).Echo();
      memset(call.request().initData(size).begin(), 'v', size);
      ASSERT_THAT(call.Send().Wait(), IsOk());
    }
    kept = std::move(keeper.kept);
  }
  ASSERT_EQ(kept.size(), 3u);
  for (const KeptBytes& value : kept) {
    EXPECT_TRUE(
        std::all_of(value.bytes.begin(), value.bytes.end(), [](uint8_t byte) { return byte == 'v'; }));
  }
}

TEST_F(KeptMemoryTest, AValueThatIsAPartOfItsMessageIsCopied) {
  auto call = probe::ProbeStub(channel_).Echo();
  absl::StatusOr<Buffer> ballast = channel_->AllocateBuffer(1 << 20);
  ASSERT_THAT(ballast, IsOk());
  memset(ballast->data(), 0, ballast->size_bytes());
  capnp::Orphan<capnp::Data> unused = call.Attach(*std::move(ballast));  // Sent, and not pointed to.
  const std::string value(10'001, 'v');
  call.request().setData(capnp::Data::Reader(reinterpret_cast<const uint8_t*>(value.data()), value.size()));
  const uint64_t before = server_.stats().leased_bytes;
  ASSERT_THAT(call.Send().Wait(), IsOk());
  ASSERT_EQ(keeper_.kept.size(), 1u);
  EXPECT_LE(keeper_.kept[0].memory_bytes, MostFor(value.size()));
  EXPECT_LT(server_.stats().leased_bytes, before + (512 << 10));
  EXPECT_EQ(std::string(keeper_.kept[0].bytes.asChars().begin(), value.size()), value);
}

TEST_F(KeptMemoryTest, NothingIsKeptOfAnEmptyValue) {
  ASSERT_THAT(SendBuilt(0), IsOk());
  ASSERT_EQ(keeper_.kept.size(), 1u);
  EXPECT_EQ(keeper_.kept[0].memory_bytes, 0u);
  EXPECT_EQ(keeper_.kept[0].owner, nullptr);
}

TEST_F(KeptMemoryTest, WhatIsKeptIsSentFromThereWhateverItsSize) {
  keeper_.returns = true;
  for (size_t size : {1, 1000, 1024, 1025, 3001, 4096, 5000, 100'000}) {
    auto call = probe::ProbeStub(channel_).Echo();
    memset(call.request().initData(static_cast<uint32_t>(size)).begin(), 'w', size);
    auto reply = call.Send().Wait();
    ASSERT_THAT(reply, IsOk());
    const capnp::Data::Reader data = (*reply)->getData();
    ASSERT_EQ(data.size(), size);
    EXPECT_TRUE(std::all_of(data.begin(), data.end(), [](uint8_t byte) { return byte == 'w'; }));
  }
}

// So nothing points to memory that it does not own.
TEST_F(KeptMemoryTest, WhatWasMovedFromHasNoBytes) {
  for (const uint32_t size : {100, 2000, 5000}) {
    keeper_.kept.clear();
    ASSERT_THAT(SendBuilt(size), IsOk());
    KeptBytes first = std::move(keeper_.kept[0]);
    const KeptBytes shared = first;
    KeptBytes second(std::move(first));
    EXPECT_EQ(second.bytes.begin(), shared.bytes.begin());
    EXPECT_EQ(second.owner, shared.owner);
    EXPECT_EQ(second.memory_bytes, shared.memory_bytes);
    KeptBytes third;
    third = std::move(second);
    EXPECT_EQ(third.bytes.begin(), shared.bytes.begin());
    for (const KeptBytes* moved : {&first, &second}) {
      EXPECT_EQ(moved->bytes.size(), 0u);
      EXPECT_EQ(moved->owner, nullptr);
      EXPECT_EQ(moved->memory_bytes, 0u);
    }
  }
}

}  // namespace
}  // namespace hawser
