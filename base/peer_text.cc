#include "hawser/base/peer_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace hawser {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: the text does not begin with UTF-8.
};

// As RFC 3629 has it: in the shortest form, no surrogates, at most U+10FFFF. `text` is not empty.
Character FirstOf(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return {};
  uint32_t code = first & (0xff >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const uint32_t smallest = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
  if (code < smallest || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {code, bytes};
}

bool IsUnfit(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::string Escape(uint32_t code) {
  switch (code) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return code < 0x80 ? absl::StrFormat("\\x%02x", code) : absl::StrFormat("\\u%04x", code);
  }
}

}  // namespace

std::string EscapePeerText(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character next = FirstOf(text);
    if (next.bytes == 0) {
      out += absl::StrFormat("\\x%02x", static_cast<uint8_t>(text[0]));
    } else if (IsUnfit(next.code)) {
      out += Escape(next.code);
    } else {
      out.append(text.data(), next.bytes);
    }
    text.remove_prefix(std::max<size_t>(next.bytes, 1));
  }
  return out;
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const Character next = FirstOf(text);
    if (next.bytes == 0) return false;
    text.remove_prefix(next.bytes);
  }
  return true;
}

}  // namespace hawser
