// What commands print, and keep for it.

#include "hawser/tools/hawser/command.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tools/hawser/health_watcher.h"

namespace hawser::tool {
namespace {

using health::ServingStatus;
using ::testing::HasSubstr;

TEST(CommandTest, ErrorsAreEscaped) {
  const absl::Status status = absl::NotFoundError("a\x1b[2J");
  EXPECT_EQ(ForPeople(status), "NOT_FOUND: a\\x1b[2J");
  EXPECT_THAT(ErrorAsJson(status), HasSubstr("a\\u001b[2J"));
}

TEST(HealthWatcherTest, ChangesThatAreNotPrintedYetHaveABound) {
  HealthWatcher watcher;
  watcher.OnChange(ServingStatus::SERVICE_UNKNOWN);
  for (size_t i = 0; i < HealthWatcher::kChangesMax; ++i) watcher.OnChange(ServingStatus::SERVING);
  const auto news = watcher.Wait(0);
  EXPECT_EQ(news.changes.size(), HealthWatcher::kChangesMax);
  EXPECT_EQ(news.changes.front(), ServingStatus::SERVING);
}

}  // namespace
}  // namespace hawser::tool
