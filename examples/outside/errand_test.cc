// No race, although the distribution's abseil is not compiled with ThreadSanitizer: with --config=tsan each
// of these fails where the sanitizer does not learn what abseil's locks and statuses order.

#include "errand.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace {

TEST(ErrandTest, WaitComesAfterWhatWasDoneBeforeFinish) {
  Errand errand;
  std::string letter;
  std::thread carrier([&] {
    letter = "delivered";
    errand.Finish(absl::OkStatus());
  });
  EXPECT_TRUE(errand.Wait().ok());
  EXPECT_EQ(letter, "delivered");
  carrier.join();
}

// The thread that drops the last copy frees what the other has read.
TEST(ErrandTest, CopiesOfAnOutcomeEndInAnyThread) {
  const auto copy_and_drop = [](absl::Status* outcome) {
    const absl::Status copy = *outcome;
    *outcome = absl::OkStatus();
  };
  for (int i = 0; i < 100; ++i) {
    Errand errand;
    std::thread carrier([&] {
      absl::Status outcome = absl::UnavailableError("the house is empty");
      errand.Finish(outcome);
      copy_and_drop(&outcome);
    });
    absl::Status outcome = errand.Wait();
    EXPECT_EQ(outcome.code(), absl::StatusCode::kUnavailable);
    copy_and_drop(&outcome);
    carrier.join();
  }
}

}  // namespace
