#include "hawser/base/json_writer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "hawser/base/peer_text.h"

namespace hawser {
namespace {

// Characters that stand in JSON and on a terminal as they are.
bool IsPlain(char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

// The length that the first byte of a character says it has.
size_t BytesOf(uint8_t first) { return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4; }

// How `character`, which is UTF-8 and not plain, stands in a string.
std::string Escaped(absl::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (first == '"' || first == '\\') return absl::StrCat("\\", character);
  // JSON writes \n, \r, \t and \u202e as EscapePeerText() does, but not \x1b.
  const std::string escaped = EscapePeerText(character);
  const bool is_in_hex = escaped.size() > 1 && escaped[1] == 'x';
  return is_in_hex ? absl::StrFormat("\\u%04x", first) : escaped;
}

}  // namespace

std::string JsonString(absl::string_view text) {
  std::string quoted = "\"";
  quoted.reserve(text.size() + 2);
  while (!text.empty()) {
    const size_t plain = std::find_if_not(text.begin(), text.end(), IsPlain) - text.begin();
    quoted.append(text.data(), plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const absl::string_view character = text.substr(0, BytesOf(static_cast<uint8_t>(text[0])));
    if (IsUtf8(character)) {
      quoted += Escaped(character);
      text.remove_prefix(character.size());
    } else {
      quoted += "\\ufffd";
      text.remove_prefix(1);
    }
  }
  quoted += '"';
  return quoted;
}

JsonWriter& JsonWriter::Name(absl::string_view name) {
  BeforeValue();
  absl::StrAppend(&text_, JsonString(name), layout_ == Layout::kDense ? ":" : ": ");
  has_name_ = true;
  return *this;
}

void JsonWriter::Decimal(double value, int decimals) {
  std::isfinite(value) ? Raw(absl::StrFormat("%.*f", decimals, value)) : Null();
}

void JsonWriter::BeforeValue() {
  if (has_name_) {
    has_name_ = false;
    return;
  }
  if (depth_ == 0) return;
  const bool has_blank = layout_ == Layout::kLine || (layout_ == Layout::kLines && in_line_list_);
  if (!is_empty_) text_ += has_blank ? ", " : ",";
  is_empty_ = false;
  NewLine();
}

}  // namespace hawser
