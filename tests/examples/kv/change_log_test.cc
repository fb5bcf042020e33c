#include "examples/kv/change_log.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kv {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

constexpr size_t kAll = 1000000;

auto Revision(uint64_t revision) { return Field(&Change::revision, revision); }

void AppendPuts(ChangeLog& log, std::initializer_list<absl::string_view> keys) {
  for (absl::string_view key : keys) log.Append(Change::Kind::kPut, key, 1);
}

TEST(ChangeLogTest, RevisionsCountFromOne) {
  ChangeLog log(kAll);
  EXPECT_EQ(log.last_revision(), 0u);
  EXPECT_EQ(log.Append(Change::Kind::kPut, "a", 5), 1u);
  EXPECT_EQ(log.Append(Change::Kind::kRemove, "a", 0), 2u);
  EXPECT_EQ(log.last_revision(), 2u);
}

TEST(ChangeLogTest, AReaderGetsWhatCameAfterItsRevision) {
  ChangeLog log(kAll);
  AppendPuts(log, {"a", "b", "c"});
  EXPECT_THAT(log.Read(1, "", kAll, kAll).changes, ElementsAre(Revision(2), Revision(3)));
  EXPECT_THAT(log.Read(3, "", kAll, kAll).changes, IsEmpty());
}

TEST(ChangeLogTest, OnlyKeysWithThePrefixAreReadAndTheOthersAreReadPast) {
  ChangeLog log(kAll);
  AppendPuts(log, {"x/1", "y/1", "x/2", "y/2"});
  ChangeLog::Batch batch = log.Read(0, "x/", kAll, kAll);
  EXPECT_THAT(batch.changes, ElementsAre(Revision(1), Revision(3)));
  EXPECT_EQ(batch.through, 4u);
}

TEST(ChangeLogTest, AReaderGetsEverythingInPieces) {
  ChangeLog log(kAll);
  AppendPuts(log, {"x", "y", "x", "x", "y", "x", "x"});
  std::vector<uint64_t> revisions;
  uint64_t after = 0;
  while (after < log.last_revision()) {
    ChangeLog::Batch batch = log.Read(after, "x", 2, kAll);
    EXPECT_LE(batch.changes.size(), 2u);
    EXPECT_GT(batch.through, after);
    for (const Change& change : batch.changes) revisions.push_back(change.revision);
    after = batch.through;
  }
  EXPECT_THAT(revisions, ElementsAre(1, 3, 4, 6, 7));
}

TEST(ChangeLogTest, ABatchEndsOnceItsKeysFillTheBytes) {
  ChangeLog log(kAll);
  AppendPuts(log, {"12345", "12345", "12345"});
  EXPECT_EQ(log.Read(0, "", kAll, 6).changes.size(), 2u);
}

TEST(ChangeLogTest, WhoeverAsksForWhatIsForgottenHasLostIt) {
  ChangeLog log(1);  // Room for one change.
  AppendPuts(log, {"a", "b", "c"});
  ChangeLog::Batch batch = log.Read(1, "", kAll, kAll);
  EXPECT_TRUE(batch.lost);
  EXPECT_EQ(batch.through, 3u);
  EXPECT_FALSE(log.ReachesBackTo(1));
  EXPECT_TRUE(log.ReachesBackTo(2));
  EXPECT_THAT(log.Read(2, "", kAll, kAll).changes, ElementsAre(Revision(3)));
}

TEST(ChangeLogTest, ARevisionThatIsYetToComeIsNoPlaceToReadFrom) {
  ChangeLog log(kAll);
  AppendPuts(log, {"a"});
  EXPECT_FALSE(log.ReachesBackTo(2));
  EXPECT_TRUE(log.Read(2, "", kAll, kAll).lost);
}

}  // namespace
}  // namespace kv
