// Clients that find values by READs, beside others that write them.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "examples/kv/client/lookup.h"
#include "examples/kv/shared_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/examples/kv/numbered_values.h"
#include "tests/examples/kv/one_sided_host.h"

namespace kv {
namespace {

using ::hawser::IsOk;

struct Key {
  std::string name;
  std::atomic<uint64_t> begun = 0;     // Changes that were sent,
  std::atomic<uint64_t> answered = 0;  // and those of them whose answer has come.
};

TEST(OneSidedTest, ReadersBesideWritersGetWholeValuesThatAreNotTooOld) {
  constexpr int kWriters = 2, kReaders = 2;
  constexpr uint64_t kChanges = 3000, kReads = 4000;
  const Host host(SharedTable::kMemoryMin);
  std::array<Key, 20> keys;
  for (size_t i = 0; i < keys.size(); ++i) keys[i].name = absl::StrCat("key", i);

  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      const KeyValueStub kv = host.Connect();
      std::mt19937_64 dice(w);
      for (uint64_t i = 0; i < kChanges; ++i) {
        Key& key = keys[dice() % (keys.size() / kWriters) * kWriters + w];  // It has one writer.
        const uint64_t number = ++key.begun;
        if (IsRemove(number)) {
          EXPECT_THAT(Remove(kv, key.name), IsOk());
        } else {
          EXPECT_THAT(Put(kv, key.name, ValueOf(key.name, number)), IsOk());
        }
        key.answered = number;
      }
    });
  }
  std::atomic<uint64_t> found = 0, absent = 0, elsewhere = 0;
  for (int r = 0; r < kReaders; ++r) {
    threads.emplace_back([&, r] {
      const KeyValueStub kv = host.Connect();
      std::shared_ptr<RemoteTable> table;
      std::mt19937_64 dice(100 + r);
      std::array<uint64_t, 20> seen = {};  // The revisions that it found last.
      for (uint64_t i = 0; i < kReads; ++i) {
        const size_t each = dice() % keys.size();
        Key& key = keys[each];
        const uint64_t answered = key.answered;
        const absl::StatusOr<Lookup> lookup = LookUp(kv, key.name, table);
        const uint64_t begun = key.begun;
        ASSERT_THAT(lookup, IsOk());
        if (lookup->is_elsewhere()) {
          ++elsewhere;
        } else if (absl::IsNotFound(lookup->status())) {
          ++absent;
          EXPECT_TRUE(MayBeAbsent(answered, begun)) << key.name << " " << answered << " " << begun;
        } else {
          ++found;
          ASSERT_THAT(lookup->status(), IsOk());
          const std::string value = Text(lookup->value());
          const uint64_t number = NumberIn(key.name, value);
          EXPECT_GE(number, std::max<uint64_t>(answered, 1)) << key.name << ": " << value.substr(0, 100);
          EXPECT_LE(number, begun);
          EXPECT_GE(lookup->revision(), seen[each]) << key.name;
          seen[each] = lookup->revision();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(found.load(), 0u);
  EXPECT_GT(absent.load(), 0u);
}

}  // namespace
}  // namespace kv
