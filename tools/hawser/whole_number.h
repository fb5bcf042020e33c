#ifndef HAWSER_TOOLS_HAWSER_WHOLE_NUMBER_H_
#define HAWSER_TOOLS_HAWSER_WHOLE_NUMBER_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace hawser::tool {

struct WholeNumber {
  bool is_negative = false;  // Never of zero.
  uint64_t magnitude = 0;
};

// The value of a JSON number (RFC 8259), which `text` has to be, if it is whole: "-5", "5.00", "12e3",
// "1.5e1". It is read digit by digit, because a double would round it. nullopt: it is not whole, or its
// magnitude is above 2^64 - 1.
std::optional<WholeNumber> ToWholeNumber(absl::string_view text);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_WHOLE_NUMBER_H_
