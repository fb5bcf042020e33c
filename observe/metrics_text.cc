#include "hawser/observe/metrics_text.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "hawser/base/peer_text.h"

namespace hawser::observe {
namespace {

constexpr size_t kShownBytes = 100;

// Each takes from the front of `rest` what its name says. False: that is not there.

void TakeBlanks(absl::string_view& rest) {
  while (absl::ConsumePrefix(&rest, " ") || absl::ConsumePrefix(&rest, "\t")) {
  }
}

bool TakeBlank(absl::string_view& rest) {
  const size_t before = rest.size();
  TakeBlanks(rest);
  return rest.size() < before;
}

bool TakeName(absl::string_view& rest, bool with_colons) {
  size_t length = 0;
  while (length < rest.size()) {
    const char c = rest[length];
    const bool is_letter =
        absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_' || (with_colons && c == ':');
    if (!is_letter && (length == 0 || !absl::ascii_isdigit(static_cast<unsigned char>(c)))) break;
    ++length;
  }
  rest.remove_prefix(length);
  return length > 0;
}

bool TakeQuoted(absl::string_view& rest) {
  if (!absl::ConsumePrefix(&rest, "\"")) return false;
  while (!rest.empty() && rest[0] != '"') {
    const size_t length = rest[0] == '\\' ? 2 : 1;
    if (rest.size() < length) return false;
    rest.remove_prefix(length);
  }
  return absl::ConsumePrefix(&rest, "\"");
}

bool TakeLabels(absl::string_view& rest) {
  if (!absl::ConsumePrefix(&rest, "{")) return true;  // There need not be any.
  for (TakeBlanks(rest); !absl::ConsumePrefix(&rest, "}"); TakeBlanks(rest)) {
    if (!TakeName(rest, /*with_colons=*/false)) return false;
    TakeBlanks(rest);
    if (!absl::ConsumePrefix(&rest, "=")) return false;
    TakeBlanks(rest);
    if (!TakeQuoted(rest)) return false;
    TakeBlanks(rest);
    if (!absl::ConsumePrefix(&rest, ",") && (rest.empty() || rest[0] != '}')) return false;
  }
  return true;
}

absl::string_view TakeWord(absl::string_view& rest) {
  const absl::string_view word = rest.substr(0, rest.find_first_of(" \t"));
  rest.remove_prefix(word.size());
  return word;
}

// # HELP name text, or # TYPE name type. Every other comment is as good as any.
bool IsComment(absl::string_view rest) {
  if (!TakeBlank(rest)) return true;
  const absl::string_view kind = TakeWord(rest);
  if ((kind != "HELP" && kind != "TYPE") || !TakeBlank(rest)) return true;
  if (!TakeName(rest, /*with_colons=*/true)) return false;
  if (kind == "HELP") return rest.empty() || TakeBlank(rest);
  if (!rest.empty())
    rest.remove_prefix(1);  // Exactly one blank: Prometheus takes a second one for a part of the type.
  return rest == "counter" || rest == "gauge" || rest == "histogram" || rest == "summary" ||
         rest == "untyped";
}

// What Prometheus reads with Go's strconv.ParseFloat(), in the decimal form: of what SimpleAtod() takes not
// the hexadecimal one, not what overflows, and no NaN with a sign, which is what printf() makes of 0.0 / 0.0
// on x86.
bool IsValue(absl::string_view word) {
  double value;
  if (!absl::SimpleAtod(word, &value) || word.find_first_of("xX") != word.npos) return false;
  const bool is_signed = word[0] == '+' || word[0] == '-';
  if (std::isnan(value)) return !is_signed;
  return !std::isinf(value) || absl::ascii_isalpha(static_cast<unsigned char>(word[is_signed ? 1 : 0]));
}

// Milliseconds; without a sign.
bool IsTimestamp(absl::string_view word) {
  int64_t ms;
  return absl::ascii_isdigit(static_cast<unsigned char>(word[0])) && absl::SimpleAtoi(word, &ms);
}

// name{label="value",...} value timestamp
bool IsSample(absl::string_view rest) {
  if (!TakeName(rest, /*with_colons=*/true)) return false;
  const bool has_blank = TakeBlank(rest);
  const bool has_labels = !rest.empty() && rest[0] == '{';
  if (!TakeLabels(rest)) return false;
  if (!TakeBlank(rest) && !has_blank && !has_labels) return false;
  // Both functions would take white space of other kinds, such as the \r of a line that ends in \r\n.
  if (rest.find_first_of("\r\v\f") != rest.npos) return false;
  if (!IsValue(TakeWord(rest))) return false;
  TakeBlanks(rest);
  if (!rest.empty() && !IsTimestamp(TakeWord(rest))) return false;
  TakeBlanks(rest);
  return rest.empty();
}

bool IsLine(absl::string_view line) {
  TakeBlanks(line);
  if (line.empty()) return true;
  return absl::ConsumePrefix(&line, "#") ? IsComment(line) : IsSample(line);
}

}  // namespace

std::string WhyNoMetrics(absl::string_view text) {
  for (size_t number = 1; !text.empty(); ++number) {
    const absl::string_view line = text.substr(0, text.find('\n'));
    if (!IsLine(line)) {
      return absl::StrCat("line ", number, " is no metric: ", EscapePeerText(line.substr(0, kShownBytes)));
    }
    text.remove_prefix(line.size());
    absl::ConsumePrefix(&text, "\n");
  }
  return "";
}

}  // namespace hawser::observe
