// What the chaos test considers wrong, and what it does not.

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/chaos/contents.h"
#include "hawser/tests/chaos/ledger.h"
#include "hawser/tests/chaos/watch_check.h"

namespace hawser::chaos {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ContentsTest, ForeignTornAndCutBytesAreNoticed) {
  std::vector<uint8_t> bytes(1003);
  std::string why;
  FillContents("a", 7, bytes.data(), bytes.size());
  EXPECT_EQ(CheckContents("a", bytes.data(), bytes.size(), &why), 7u);
  EXPECT_EQ(CheckContents("b", bytes.data(), bytes.size(), &why), 0u);
  EXPECT_THAT(why, HasSubstr("another key"));
  EXPECT_EQ(CheckContents("a", bytes.data(), bytes.size() - 1, &why), 0u);
  EXPECT_THAT(why, HasSubstr("has come as 1002"));
  std::vector<uint8_t> other(bytes.size());
  FillContents("a", 8, other.data(), other.size());
  std::copy(other.begin() + 500, other.end(), bytes.begin() + 500);
  EXPECT_EQ(CheckContents("a", bytes.data(), bytes.size(), &why), 0u);
  EXPECT_THAT(why, HasSubstr("up to byte 500"));
}

struct KeyRecordTest : ::testing::Test {
  std::unique_ptr<KeyRecord> key = std::make_unique<KeyRecord>();
};

TEST_F(KeyRecordTest, WhatWasAcknowledgedIsThere) {
  EXPECT_THAT(key->NotFound(2), IsEmpty());
  const uint64_t put = key->Issue(2);
  EXPECT_THAT(key->Acknowledged(put, 10), IsEmpty());
  EXPECT_THAT(key->Found(2, put, 10), IsEmpty());
  EXPECT_THAT(key->NotFound(2), HasSubstr("lost"));
  EXPECT_THAT(key->NotFound(4), IsEmpty()) << "the server was killed";
}

TEST_F(KeyRecordTest, AnOlderPutIsStale) {
  const uint64_t first = key->Issue(2);
  EXPECT_THAT(key->Acknowledged(first, 10), IsEmpty());
  EXPECT_THAT(key->Acknowledged(key->Issue(2), 12), IsEmpty());
  EXPECT_THAT(key->Found(2, first, 10), HasSubstr("behind put 2"));
}

TEST_F(KeyRecordTest, APutThatWasNotAnsweredMayRunLateButOnce) {
  const uint64_t unanswered = key->Issue(2);
  const uint64_t put = key->Issue(2);
  EXPECT_THAT(key->Acknowledged(put, 10), IsEmpty());
  EXPECT_THAT(key->Found(2, unanswered, 11), IsEmpty());
  EXPECT_THAT(key->Found(2, put, 10), HasSubstr("behind put 1"));
  EXPECT_THAT(key->Found(2, unanswered, 12), HasSubstr("ran twice"));
}

TEST_F(KeyRecordTest, AnAcknowledgedPutRunsOnce) {
  const uint64_t put = key->Issue(2);
  EXPECT_THAT(key->Acknowledged(put, 10), IsEmpty());
  EXPECT_THAT(key->Found(2, put, 11), HasSubstr("ran twice"));
}

TEST_F(KeyRecordTest, WhatAnEarlierServerHadIsGone) {
  const uint64_t first = key->Issue(2);
  const uint64_t last = key->Issue(2);
  EXPECT_THAT(key->Found(4, last, 3), IsEmpty()) << "it may have been sent again";
  EXPECT_THAT(key->Found(4, first, 4), HasSubstr("an earlier server"));
  EXPECT_THAT(key->Found(4, last + 1, 5), HasSubstr("of 2 that were sent"));
}

TEST(WatchCheckTest, AGapIsWrongUnlessItIsSaid) {
  WatchCheck watch;
  EXPECT_THAT(watch.Take("put\ta\t5\t3"), IsEmpty());
  EXPECT_THAT(watch.Take("put\tb\t6\t4"), IsEmpty());
  EXPECT_THAT(watch.Take("delete\ta\t0\t5"), IsEmpty());
  EXPECT_EQ(watch.entries(), (std::map<std::string, WatchCheck::Entry>{{"b", {6, 4}}}));
  EXPECT_THAT(watch.Take("put\ta\t5\t5"), HasSubstr("behind revision 5"));
  EXPECT_THAT(watch.Take("put\ta\t5\t7"), HasSubstr("behind revision 5"));
  EXPECT_THAT(watch.Take("lost\t\t0\t2"), IsEmpty());
  EXPECT_THAT(watch.Take("have\tc\t1\t2"), IsEmpty());
  EXPECT_THAT(watch.Take("have\td\t1\t3"), HasSubstr("at revision 2"));
  EXPECT_THAT(watch.Take("put\td\t1\t3"), IsEmpty());
  EXPECT_EQ(watch.entries(), (std::map<std::string, WatchCheck::Entry>{{"c", {1, 2}}, {"d", {1, 3}}}));
  EXPECT_THAT(watch.Take("put\td"), HasSubstr("not a line"));
}

TEST(WatchCheckTest, APutOfAClientThatComesAgainRanTwice) {
  WatchCheck watch;
  EXPECT_THAT(watch.Take("lost\t\t0\t2"), IsEmpty());
  EXPECT_THAT(watch.Take("have\tc/1\t100\t2"), IsEmpty());
  EXPECT_THAT(watch.Take("put\tc/2\t100\t3"), IsEmpty());
  EXPECT_THAT(watch.Take("put\tc/1\t101\t4"), IsEmpty());
  EXPECT_THAT(watch.Take("put\tc/1\t100\t5"), HasSubstr("twice"));
  EXPECT_THAT(watch.Take("put\tpages/1\t16\t6"), IsEmpty());
  EXPECT_THAT(watch.Take("put\tpages/1\t16\t7"), IsEmpty());
}

}  // namespace
}  // namespace hawser::chaos
