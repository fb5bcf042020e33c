#include "hawser/tests/testing/status_matchers.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"

namespace hawser {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;
using ::testing::Pointee;

// It can neither be copied nor printed.
struct Opaque {
  std::unique_ptr<int> memory;
};

absl::StatusOr<Opaque> Made() { return Opaque{}; }
absl::StatusOr<Opaque> NotMade() { return absl::UnavailableError("no server at tcp://a:1"); }

// What EXPECT_THAT(value, matcher) prints when it fails.
template <typename T, typename Matcher>
std::string Failure(const T& value, const Matcher& matcher) {
  testing::TestPartResultArray results;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    EXPECT_THAT(value, matcher);
  }
  return results.size() == 1 ? results.GetTestPartResult(0).message() : "it did not fail once";
}

TEST(StatusMatchersTest, MatchAStatus) {
  const absl::Status error = absl::DataLossError("x");
  EXPECT_THAT(absl::OkStatus(), IsOk());
  EXPECT_THAT(absl::OkStatus(), HasCode(absl::StatusCode::kOk));
  EXPECT_THAT(error, Not(IsOk()));
  EXPECT_THAT(error, HasCode(absl::StatusCode::kDataLoss));
  EXPECT_THAT(error, Not(HasCode(absl::StatusCode::kUnavailable)));
}

TEST(StatusMatchersTest, MatchAStatusOrOfWhatCanOnlyBeMoved) {
  absl::StatusOr<Opaque> made = Made();
  absl::StatusOr<Opaque>& reference = made;
  EXPECT_THAT(made, IsOk());
  EXPECT_THAT(reference, HasCode(absl::StatusCode::kOk));
  EXPECT_THAT(std::move(made), IsOk());
  EXPECT_THAT(Made(), IsOk());
  EXPECT_THAT(NotMade(), Not(IsOk()));
  EXPECT_THAT(NotMade(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(NotMade().status(), HasCode(absl::StatusCode::kUnavailable));
}

TEST(StatusMatchersTest, AreMatchersOfWhatHoldsAStatus) {
  const std::optional<absl::Status> closed = absl::CancelledError();
  const std::vector<absl::StatusOr<int>> results = {1, absl::CancelledError()};
  EXPECT_THAT(closed, Optional(HasCode(absl::StatusCode::kCancelled)));
  EXPECT_THAT(&results[0], Pointee(IsOk()));
  EXPECT_THAT(results, Each(AnyOf(IsOk(), HasCode(absl::StatusCode::kCancelled))));
}

TEST(StatusMatchersTest, AFailureShowsTheCodeAndTheMessage) {
  EXPECT_THAT(Failure(absl::DataLossError("slot 40 of 32"), IsOk()),
              HasSubstr("Value of: value\nExpected: is OK\n  Actual: DATA_LOSS: slot 40 of 32"));
  EXPECT_THAT(Failure(absl::DataLossError("slot 40 of 32"), HasCode(absl::StatusCode::kUnavailable)),
              HasSubstr("Expected: has the code UNAVAILABLE\n  Actual: DATA_LOSS: slot 40 of 32"));
  EXPECT_THAT(Failure(NotMade(), IsOk()),
              HasSubstr("Expected: is OK\n  Actual: UNAVAILABLE: no server at tcp://a:1"));
  EXPECT_THAT(Failure(NotMade(), HasCode(absl::StatusCode::kNotFound)),
              HasSubstr("Expected: has the code NOT_FOUND\n  Actual: UNAVAILABLE: no server at tcp://a:1"));
}

TEST(StatusMatchersTest, AFailureShowsASuccess) {
  EXPECT_THAT(Failure(absl::OkStatus(), Not(IsOk())), HasSubstr("Expected: is not OK\n  Actual: OK"));
  EXPECT_THAT(Failure(Made(), Not(IsOk())), HasSubstr("Expected: is not OK\n  Actual: OK, with a value"));
  EXPECT_THAT(Failure(Made(), HasCode(absl::StatusCode::kAborted)),
              HasSubstr("Expected: has the code ABORTED\n  Actual: OK, with a value"));
  EXPECT_THAT(Failure(Made(), Not(HasCode(absl::StatusCode::kOk))),
              HasSubstr("Expected: has a code other than OK\n  Actual: OK, with a value"));
}

TEST(StatusMatchersTest, AFailureShowsEachResultOfAList) {
  const std::vector<absl::StatusOr<int>> results = {1, absl::AbortedError("why")};
  EXPECT_THAT(Failure(results, Each(IsOk())), HasSubstr("{ OK, with a value, ABORTED: why }"));
}

}  // namespace
}  // namespace hawser
