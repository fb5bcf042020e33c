#ifndef HAWSER_BASE_OPTION_RANGE_H_
#define HAWSER_BASE_OPTION_RANGE_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// The checks of the options that a program gives. Each returns OK if `value` is from `least` to `most`, both
// included, else
// InvalidArgument: "ConnectionOptions::slots is 0: from 1 to 1024". NaN is in no range.
// `name` is "ConnectionOptions::slots". `note` follows in brackets: what to give instead.
namespace hawser {

absl::Status CheckOption(absl::string_view name, absl::Duration value, absl::Duration least,
                         absl::Duration most, absl::string_view note = "");
absl::Status CheckOption(absl::string_view name, double value, double least, double most,
                         absl::string_view note = "");
absl::Status CheckOption(absl::string_view name, int64_t value, int64_t least, int64_t most,
                         absl::string_view note = "");
absl::Status CheckOption(absl::string_view name, uint64_t value, uint64_t least, uint64_t most,
                         absl::string_view note = "");

// For an enumeration whose values are 0 to `last`, without gaps: a number that was cast to it may be none of
// them. `values` names them: "PollerOptions::mode is 7: from 0 to 2 (kAdaptive, kSpin, kSleep)".
template <typename Enum>
absl::Status CheckEnumOption(absl::string_view name, Enum value, Enum last, absl::string_view values) {
  return CheckOption(name, static_cast<int64_t>(value), int64_t{0}, static_cast<int64_t>(last), values);
}

// The first of them that is not OK.
template <typename... More>
absl::Status FirstError(absl::Status first, More... more) {
  ((first.ok() ? void(first = std::move(more)) : void()), ...);
  return first;
}

}  // namespace hawser

#endif  // HAWSER_BASE_OPTION_RANGE_H_
