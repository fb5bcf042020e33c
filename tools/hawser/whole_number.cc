#include "hawser/tools/hawser/whole_number.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace hawser::tool {

std::optional<WholeNumber> ToWholeNumber(absl::string_view text) {
  constexpr size_t kDigitsMax = 20;  // 2^64 - 1 has so many.
  WholeNumber number;
  number.is_negative = absl::ConsumePrefix(&text, "-");
  const size_t e = text.find_first_of("eE");
  const absl::string_view mantissa = text.substr(0, e);
  const size_t point = mantissa.find('.');
  const absl::string_view fraction = point == mantissa.npos ? "" : mantissa.substr(point + 1);
  std::string digits = absl::StrCat(mantissa.substr(0, point), fraction);

  // digits x 10^zeros, without zeros at either end of `digits`.
  digits.erase(0, digits.find_first_not_of('0'));
  if (digits.empty()) return WholeNumber{};
  int64_t zeros = -static_cast<int64_t>(fraction.size());
  while (digits.back() == '0') {
    digits.pop_back();
    ++zeros;
  }
  if (e != text.npos) {
    int32_t
        exponent;  // Beyond it there is no text that could make up for the exponent: JSON has at most 16 MiB.
    if (!absl::SimpleAtoi(text.substr(e + 1), &exponent)) return std::nullopt;
    zeros += exponent;
  }
  if (zeros < 0 || digits.size() + static_cast<uint64_t>(zeros) > kDigitsMax) return std::nullopt;
  digits.append(static_cast<size_t>(zeros), '0');
  if (!absl::SimpleAtoi(digits, &number.magnitude)) return std::nullopt;
  return number;
}

}  // namespace hawser::tool
