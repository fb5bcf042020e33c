#include "examples/kv/store.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"

namespace kv {
namespace {

using ::hawser::HasCode;
using ::hawser::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMuch = 1 << 30;

Value MakeValue(size_t size_bytes, uint8_t fill) {
  auto bytes = std::make_shared<std::vector<uint8_t>>(size_bytes, fill);
  return {capnp::Data::Reader(bytes->data(), size_bytes), bytes, size_bytes};
}

std::vector<std::string> Keys(const Store::Page& page) {
  std::vector<std::string> keys;
  for (const Store::Page::Item& item : page.items) keys.push_back(item.key);
  return keys;
}

class StoreTest : public testing::Test {
 protected:
  ChangeLog changes_{1 << 20};
  Store store_{kMuch, &changes_};
};

TEST_F(StoreTest, WhatWasPutIsThere) {
  EXPECT_EQ(*store_.Put("a", MakeValue(3, 7)), 1u);
  absl::StatusOr<Entry> entry = store_.Get("a");
  ASSERT_THAT(entry, IsOk());
  EXPECT_EQ(entry->revision, 1u);
  EXPECT_THAT(std::vector<uint8_t>(entry->value.bytes.begin(), entry->value.bytes.end()),
              ElementsAre(7, 7, 7));
}

TEST_F(StoreTest, WhatIsNotThereIsNotFound) {
  EXPECT_THAT(store_.Get("a").status(), HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(store_.Remove("a").status(), HasCode(absl::StatusCode::kNotFound));
  EXPECT_EQ(store_.Get("tow").status().message(), "no key \"tow\"");
  EXPECT_EQ(changes_.last_revision(), 0u);
}

TEST_F(StoreTest, EachChangeIsLoggedUnderItsRevision) {
  ASSERT_THAT(store_.Put("a", MakeValue(3, 1)), IsOk());
  ASSERT_THAT(store_.Put("a", MakeValue(4, 2)), IsOk());
  EXPECT_EQ(*store_.Remove("a"), 3u);
  std::vector<Change> changes = changes_.Read(0, "", 100, 1000).changes;
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[1].size_bytes, 4u);
  EXPECT_EQ(changes[2].kind, Change::Kind::kRemove);
}

TEST_F(StoreTest, AReaderKeepsTheValueThatItGotThroughOverwriteAndRemove) {
  ASSERT_THAT(store_.Put("a", MakeValue(1000, 1)), IsOk());
  Entry old = *store_.Get("a");
  std::weak_ptr<const void> memory = old.value.owner;
  ASSERT_THAT(store_.Put("a", MakeValue(1000, 2)), IsOk());
  ASSERT_THAT(store_.Remove("a"), IsOk());
  EXPECT_EQ(old.value.bytes[999], 1);
  old = {};
  EXPECT_TRUE(memory.expired());
}

TEST_F(StoreTest, MemoryIsGivenBackByOverwriteAndRemove) {
  constexpr uint64_t kBeside = Store::kEntryBytes + 1;  // With a key of one byte.
  ASSERT_THAT(store_.Put("a", MakeValue(1000, 1)), IsOk());
  ASSERT_THAT(store_.Put("b", MakeValue(500, 1)), IsOk());
  EXPECT_EQ(store_.totals().memory_bytes, 1500 + 2 * kBeside);
  EXPECT_EQ(store_.totals().value_bytes, 1500u);
  ASSERT_THAT(store_.Put("a", MakeValue(10, 1)), IsOk());
  EXPECT_EQ(store_.totals().memory_bytes, 510 + 2 * kBeside);
  ASSERT_THAT(store_.Remove("b"), IsOk());
  EXPECT_EQ(store_.totals().memory_bytes, 10 + kBeside);
  EXPECT_EQ(store_.totals().value_bytes, 10u);
  EXPECT_EQ(store_.totals().keys, 1u);
}

TEST_F(StoreTest, APutBeyondTheMemoryIsRefusedAndChangesNothing) {
  constexpr uint64_t kBeside = Store::kEntryBytes + 1;
  Store store(1000 + kBeside, &changes_);
  ASSERT_THAT(store.Put("a", MakeValue(600, 1)), IsOk());
  absl::StatusOr<uint64_t> revision = store.Put("b", MakeValue(401, 2));
  EXPECT_THAT(revision.status(), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(revision.status().message(), HasSubstr(absl::StrCat(600 + kBeside, " of ", 1000 + kBeside)));
  EXPECT_THAT(store.Get("b").status(), HasCode(absl::StatusCode::kNotFound));
  EXPECT_EQ(changes_.last_revision(), 1u);
  EXPECT_THAT(store.Put("a", MakeValue(1000, 3)), IsOk());  // It takes the place of 600.
}

TEST_F(StoreTest, KeysOfEmptyValuesCountAgainstTheMemory) {
  Store store(64 << 10, &changes_);
  size_t taken = 0;
  while (taken < 1000 && store.Put(absl::StrCat(std::string(4000, 'k'), taken), {}).ok()) ++taken;
  EXPECT_EQ(taken, 15u);
}

TEST_F(StoreTest, APageEndsBeforeItsKeysAreTooMany) {
  for (char c = 'a'; c < 'f'; ++c) ASSERT_THAT(store_.Put(std::string(100, c), MakeValue(1000, 0)), IsOk());
  EXPECT_EQ(store_.List("", "", 100, 350, false).items.size(), 3u);
  EXPECT_EQ(store_.List("", "", 100, 350, false).next, std::string(100, 'd'));
}

TEST_F(StoreTest, KeysAreListedInOrderPageByPage) {
  for (const char* key : {"b/2", "a", "b/1", "b/3", "c"}) {
    ASSERT_THAT(store_.Put(key, MakeValue(1, 0)), IsOk());
  }
  Store::Page page = store_.List("b/", "", 2, kMuch, false);
  EXPECT_THAT(Keys(page), ElementsAre("b/1", "b/2"));
  EXPECT_EQ(page.next, "b/3");
  page = store_.List("b/", page.next, 2, kMuch, false);
  EXPECT_THAT(Keys(page), ElementsAre("b/3"));
  EXPECT_EQ(page.next, "");
  EXPECT_THAT(Keys(store_.List("", "", 100, kMuch, false)), ElementsAre("a", "b/1", "b/2", "b/3", "c"));
}

TEST_F(StoreTest, APageEndsBeforeItsValuesAreTooManyButHoldsOne) {
  for (const char* key : {"a", "b", "c"}) ASSERT_THAT(store_.Put(key, MakeValue(100, 0)), IsOk());
  EXPECT_THAT(Keys(store_.List("", "", 100, 202, true)), ElementsAre("a", "b"));
  EXPECT_THAT(Keys(store_.List("", "", 100, 10, true)), ElementsAre("a"));
}

TEST_F(StoreTest, ManyThreadsMayUseIt) {
  constexpr int kThreads = 4, kPuts = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < kPuts; ++i) {
        ASSERT_THAT(store_.Put("shared", MakeValue(64, static_cast<uint8_t>(t))), IsOk());
        absl::StatusOr<Entry> entry = store_.Get("shared");
        ASSERT_THAT(entry, IsOk());
        ASSERT_EQ(entry->value.bytes[0], entry->value.bytes[63]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(changes_.last_revision(), static_cast<uint64_t>(kThreads * kPuts));
}

}  // namespace
}  // namespace kv
