// There is no race, although the distribution's abseil is not compiled with ThreadSanitizer. With
// --config=tsan each of these tests fails if the sanitizer does not know the synchronisation of abseil's
// locks and statuses.

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

// The thread that releases the last copy frees what the other thread has read.
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
