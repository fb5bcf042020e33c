// The table in memory of a test: READs word by word while it changes, in an order that a seed chooses.

#include "examples/kv/shared_table.h"

#include <endian.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "examples/kv/change_log.h"
#include "examples/kv/client/lookup.h"
#include "examples/kv/store.h"
#include "examples/kv/watch_hub.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/examples/kv/numbered_values.h"

namespace kv {
namespace {

using ::hawser::HasCode;
using ::hawser::IsOk;

struct TableInMemory {
  absl::Span<uint8_t> bytes() {
    return {reinterpret_cast<uint8_t*>(memory.data()), memory.size() * sizeof(uint64_t)};
  }

  void Put(const std::string& key, const std::string& value, uint64_t revision, bool replaces) {
    table.Put(key, {reinterpret_cast<const uint8_t*>(value.data()), value.size()}, revision, replaces);
  }

  // READs the words one after the other, beside a thread that may write them.
  Lookup LookUp(const std::string& key) {
    Lookup lookup({table.buckets(), SharedTable::kBucketBytes}, key);
    while (!lookup.done()) {
      for (size_t i = 0; i < lookup.cell().size(); i += sizeof(uint64_t)) {
        const uint64_t word = std::atomic_ref<uint64_t>(memory[(lookup.offset() + i) / sizeof(uint64_t)]);
        std::memcpy(lookup.cell().data() + i, &word, sizeof(word));
      }
      lookup.OnRead(absl::OkStatus());
    }
    return lookup;
  }

  std::vector<uint64_t> memory = std::vector<uint64_t>(SharedTable::kMemoryMin / sizeof(uint64_t));
  SharedTable table{bytes()};
};

TEST(OneSidedTest, AFullTableKeepsAKeyWhoseUpdateIsOfTheSameSize) {
  TableInMemory memory;
  constexpr size_t kSize = 50'000;
  uint64_t revision = 0;
  int keys = 0;
  const auto put = [&](int key, size_t size, bool replaces) {
    const auto fill = static_cast<char>('a' + ++revision % 26);
    memory.Put(absl::StrCat("key", key), std::string(size, fill), revision, replaces);
    return std::string(size, fill);
  };
  for (bool full = false; !full; ++keys) {
    put(keys, kSize, /*replaces=*/false);
    full = memory.LookUp(absl::StrCat("key", keys)).is_elsewhere();
  }
  ASSERT_GT(keys, 5);
  for (int key = 0; key < keys - 1; ++key) {
    for (const size_t size : {kSize, kSize, kSize + 4000}) {  // Their blocks are alike.
      const std::string value = put(key, size, /*replaces=*/true);
      const Lookup found = memory.LookUp(absl::StrCat("key", key));
      EXPECT_THAT(found.status(), IsOk());
      EXPECT_EQ(Text(found.value()), value);
      EXPECT_EQ(found.revision(), revision);
    }
  }
  // The last one is still elsewhere, and one whose value needs another block is so, too.
  EXPECT_TRUE(memory.LookUp(absl::StrCat("key", keys - 1)).is_elsewhere());
  put(0, 1000, /*replaces=*/true);
  EXPECT_TRUE(memory.LookUp("key0").is_elsewhere());
  put(keys - 1, kSize, /*replaces=*/true);  // It has the block of that one.
  EXPECT_THAT(memory.LookUp(absl::StrCat("key", keys - 1)).status(), IsOk());
}

// Clients may READ all of the memory, also what no bucket names.
TEST(OneSidedTest, WhatWasRemovedOrReplacedIsNotInTheMemory) {
  TableInMemory memory;
  const auto has = [&memory](char fill) {
    const uint64_t six = 0x0101'0101'0101 * static_cast<uint64_t>(fill);  // Of a value, in a word of a cell.
    return std::any_of(memory.memory.begin(), memory.memory.end(),
                       [six](uint64_t word) { return le64toh(word) >> 16 == six; });
  };
  for (const size_t size : {200, 9000, 50'000}) {
    memory.Put("key", std::string(size, 'a'), 1, /*replaces=*/false);
    EXPECT_TRUE(has('a'));
    memory.Put("key", std::string(size, 'b'), 2, /*replaces=*/true);
    EXPECT_FALSE(has('a')) << size;
    EXPECT_TRUE(has('b'));
    memory.table.Remove("key");
    EXPECT_FALSE(has('b')) << size;
  }
  // Where there is no other block, a shorter value takes that of the one before.
  int keys = 0;
  for (bool full = false; !full; ++keys) {
    memory.Put(absl::StrCat("key", keys), std::string(60'000, 'c'), 3, /*replaces=*/false);
    full = memory.LookUp(absl::StrCat("key", keys)).is_elsewhere();
  }
  memory.Put("key0", std::string(60'000, 'd'), 4, /*replaces=*/true);
  memory.Put("key0", std::string(50'000, 'e'), 5, /*replaces=*/true);
  EXPECT_FALSE(has('d'));
  EXPECT_EQ(Text(memory.LookUp("key0").value()), std::string(50'000, 'e'));
}

TEST(OneSidedTest, AWatcherFindsWhatItHearsOf) {
  constexpr uint64_t kChanges = 3000;
  TableInMemory memory;
  ChangeLog log(100 << 20);
  Store store(uint64_t{1} << 30, &log);
  store.PublishIn(&memory.table);
  WatchHub hub(&log);

  absl::Mutex mutex;
  std::deque<std::pair<ChangeLog::Batch, WatchHub::PushDone>> pushes;
  const auto peer = std::make_shared<int>(1);
  hub.AddPeer(peer, "tcp://10.0.0.1:1");
  ASSERT_THAT(hub.Watch(peer.get(), 1, "key", std::nullopt,
                        [&](const ChangeLog::Batch& batch, WatchHub::PushDone done, WatchHub::Soon) {
                          absl::MutexLock lock(&mutex);
                          pushes.emplace_back(batch, std::move(done));
                        }),
              IsOk());
  std::thread writer([&] {
    // It takes a while to write such a value.
    const auto bytes = std::make_shared<std::vector<uint8_t>>(SharedTable::kBlockMax - 100);
    const Value value = {{bytes->data(), bytes->size()}, bytes, bytes->size()};
    for (uint64_t i = 0; i < kChanges; ++i) {
      ASSERT_THAT(store.Put("key", value), IsOk());
      hub.Notify();
    }
  });
  uint64_t through = 0, found = 0;
  while (through < kChanges) {
    std::pair<ChangeLog::Batch, WatchHub::PushDone> push;
    {
      absl::MutexLock lock(&mutex);
      const auto has_push = [&] { return !pushes.empty(); };
      mutex.Await(absl::Condition(&has_push));
      push = std::move(pushes.front());
      pushes.pop_front();
    }
    through = push.first.through;
    const Lookup lookup = memory.LookUp("key");
    if (!lookup.is_elsewhere()) {
      ++found;
      EXPECT_THAT(lookup.status(), IsOk());
      EXPECT_GE(lookup.revision(), through);
    }
    push.second(WatchHub::PushEnd::kReceived);
  }
  writer.join();
  EXPECT_GT(found, 0u);
}

// A table, its keys, and an owner that changes one of them when it is told.
class TableOfSeed {
 public:
  explicit TableOfSeed(uint64_t seed) : dice_(seed) {}

  void Change() {
    const size_t i = dice_() % changes_.size();
    const std::string key = KeyOf(i);
    const uint64_t number = ++changes_[i];
    ++revision_;
    if (IsRemove(number)) return table_.Remove(key);
    const std::string value = ValueOf(key, number);
    table_.Put(key, {reinterpret_cast<const uint8_t*>(value.data()), value.size()}, revision_,
               number > 1 && !IsRemove(number - 1));
  }

  // A READ whose words are copied in any order, while the owner may change something.
  void Read(uint64_t offset, absl::Span<uint8_t> into) {
    std::vector<size_t> words(into.size() / 8);
    std::iota(words.begin(), words.end(), 0);
    if (dice_() % 2 == 0) std::shuffle(words.begin(), words.end(), dice_);
    const uint64_t calm = 1 + dice_() % (4 * words.size());
    for (const size_t word : words) {
      if (dice_() % calm == 0) Change();
      std::memcpy(into.data() + word * 8, bytes().data() + offset + word * 8, 8);
    }
  }

  static std::string KeyOf(size_t i) { return absl::StrCat("key", i); }
  uint64_t changes(size_t i) const { return changes_[i]; }
  uint64_t revision() const { return revision_; }
  std::mt19937_64& dice() { return dice_; }
  TableLayout layout() const { return {table_.buckets(), SharedTable::kBucketBytes}; }

 private:
  absl::Span<uint8_t> bytes() {
    return {reinterpret_cast<uint8_t*>(memory_.data()), memory_.size() * sizeof(uint64_t)};
  }

  std::mt19937_64 dice_;
  std::vector<uint64_t> memory_ = std::vector<uint64_t>(SharedTable::kMemoryMin / sizeof(uint64_t));
  SharedTable table_{bytes()};
  std::array<uint64_t, 12> changes_ = {};
  uint64_t revision_ = 0;
};

TEST(OneSidedTest, NoSeedFindsAValueThatIsTornMixedFreedOrTooOld) {
  int found = 0, again = 0, absent = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    TableOfSeed table(seed);
    std::array<uint64_t, 12> seen = {};  // The revision and the value that were found last.
    std::array<uint64_t, 12> seen_number = {};
    for (int i = 0; i < 30; ++i) table.Change();
    for (int i = 0; i < 20; ++i) {
      const size_t number = table.dice()() % 12;
      const std::string key = TableOfSeed::KeyOf(number);
      const uint64_t answered = table.changes(number);
      Lookup lookup(table.layout(), key);
      while (!lookup.done()) {
        for (uint64_t changes = table.dice()() % 10; changes > 0; --changes) table.Change();
        table.Read(lookup.offset(), lookup.cell());
        lookup.OnRead(absl::OkStatus());
      }
      if (lookup.reads() > 2) ++again;
      if (lookup.is_elsewhere()) continue;
      if (absl::IsNotFound(lookup.status())) {
        ++absent;
        EXPECT_TRUE(MayBeAbsent(answered, table.changes(number))) << "seed " << seed << ", " << key;
        continue;
      }
      ++found;
      ASSERT_THAT(lookup.status(), IsOk());
      const uint64_t got = NumberIn(key, Text(lookup.value()));
      EXPECT_GE(got, std::max<uint64_t>(answered, 1)) << "seed " << seed << ", " << key;
      EXPECT_LE(got, table.changes(number));
      EXPECT_LE(lookup.revision(), table.revision());
      EXPECT_GE(lookup.revision(), seen[number]) << "seed " << seed << ", " << key;
      EXPECT_EQ(lookup.revision() > seen[number], got > seen_number[number]);
      seen[number] = lookup.revision();
      seen_number[number] = got;
    }
  }
  EXPECT_GT(found, 1000);
  EXPECT_GT(absent, 100);
  EXPECT_GT(again, 100);
}

TEST(OneSidedTest, ABlockThatIsUsedAgainIsNotTakenForTheValue) {
  std::vector<uint64_t> memory(SharedTable::kMemoryMin / 8);
  const absl::Span<uint8_t> bytes(reinterpret_cast<uint8_t*>(memory.data()), SharedTable::kMemoryMin);
  SharedTable table(bytes);
  const std::string mine(1000, 'm'), other(1000, 'o');
  const auto put = [&](const std::string& key, const std::string& value, uint64_t revision) {
    table.Put(key, {reinterpret_cast<const uint8_t*>(value.data()), value.size()}, revision, false);
  };
  put("mine", mine, 1);
  Lookup lookup({table.buckets(), SharedTable::kBucketBytes}, "mine");
  const auto read = [&] {
    std::memcpy(lookup.cell().data(), bytes.data() + lookup.offset(), lookup.cell().size());
    lookup.OnRead(absl::OkStatus());
  };
  read();  // The bucket, which names a block.
  const uint64_t block = lookup.offset();
  table.Remove("mine");
  put("other", other, 3);
  read();  // That block, which the other key has.
  EXPECT_FALSE(lookup.done());
  EXPECT_NE(lookup.offset(), block);
  read();
  EXPECT_THAT(lookup.status(), HasCode(absl::StatusCode::kNotFound));
  EXPECT_EQ(lookup.reads(), 3);

  Lookup others({table.buckets(), SharedTable::kBucketBytes}, "other");
  std::memcpy(others.cell().data(), bytes.data() + others.offset(), others.cell().size());
  others.OnRead(absl::OkStatus());
  EXPECT_EQ(others.offset(), block);
}

}  // namespace
}  // namespace kv
