#ifndef HAWSER_TESTS_TESTING_STATUS_MATCHERS_H_
#define HAWSER_TESTS_TESTING_STATUS_MATCHERS_H_

#include <ostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock-matchers.h"

namespace absl {

// GoogleTest prints a StatusOr with this. Otherwise it would print the bytes of the object.
template <typename T>
void PrintTo(const StatusOr<T>& result, std::ostream* out) {
  if (result.ok()) {
    *out << "OK, with a value";
  } else {
    *out << result.status();
  }
}

}  // namespace absl

// Matchers for an absl::Status or an absl::StatusOr of any type. A failure prints the name of the code and
// the message; EXPECT_TRUE(result.ok()) prints neither.
//   ASSERT_THAT(call.Wait(), IsOk());
//   EXPECT_THAT(call.Wait(), HasCode(absl::StatusCode::kUnavailable));
//   EXPECT_THAT(results, Each(AnyOf(IsOk(), HasCode(absl::StatusCode::kCancelled))));
namespace hawser {

// Written without MATCHER(), whose matchers take longer to compile and allocate memory, which tests that
// count allocations would count.
class IsOkMatcher {
 public:
  using is_gtest_matcher = void;

  bool MatchAndExplain(const absl::Status& status, std::ostream*) const { return status.ok(); }
  template <typename T>
  bool MatchAndExplain(const absl::StatusOr<T>& result, std::ostream*) const {
    return result.ok();
  }
  void DescribeTo(std::ostream* out) const { *out << "is OK"; }
  void DescribeNegationTo(std::ostream* out) const { *out << "is not OK"; }
};

class HasCodeMatcher {
 public:
  using is_gtest_matcher = void;

  explicit HasCodeMatcher(absl::StatusCode code) : code_(code) {}

  bool MatchAndExplain(const absl::Status& status, std::ostream*) const { return status.code() == code_; }
  template <typename T>
  bool MatchAndExplain(const absl::StatusOr<T>& result, std::ostream*) const {
    return result.status().code() == code_;
  }
  void DescribeTo(std::ostream* out) const { *out << "has the code " << code_; }
  void DescribeNegationTo(std::ostream* out) const { *out << "has a code other than " << code_; }

 private:
  absl::StatusCode code_;
};

inline IsOkMatcher IsOk() { return {}; }
inline HasCodeMatcher HasCode(absl::StatusCode code) { return HasCodeMatcher(code); }

}  // namespace hawser

#endif  // HAWSER_TESTS_TESTING_STATUS_MATCHERS_H_
