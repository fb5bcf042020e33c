#include "hawser/base/option_range.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace hawser {
namespace {

std::string Text(absl::Duration value) { return absl::FormatDuration(value); }
template <typename Number>
std::string Text(Number value) {
  return absl::StrCat(value);
}

template <typename Value>
absl::Status Check(absl::string_view name, Value value, Value least, Value most, absl::string_view note) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", Text(value), ": from ", Text(least), " to ",
                                                 Text(most),
                                                 note.empty() ? "" : absl::StrCat(" (", note, ")")));
}

}  // namespace

absl::Status CheckOption(absl::string_view name, absl::Duration value, absl::Duration least,
                         absl::Duration most, absl::string_view note) {
  return Check(name, value, least, most, note);
}
absl::Status CheckOption(absl::string_view name, double value, double least, double most,
                         absl::string_view note) {
  return Check(name, value, least, most, note);
}
absl::Status CheckOption(absl::string_view name, int64_t value, int64_t least, int64_t most,
                         absl::string_view note) {
  return Check(name, value, least, most, note);
}
absl::Status CheckOption(absl::string_view name, uint64_t value, uint64_t least, uint64_t most,
                         absl::string_view note) {
  return Check(name, value, least, most, note);
}

}  // namespace hawser
