#include "hawser/tools/hawser/json_value.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hawser/base/peer_text.h"

namespace hawser::tool {
namespace {

// Adds `code` as UTF-8. Half of a surrogate pair becomes three bytes that are none.
void Append(uint32_t code, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

class Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text) {}

  absl::Status Whole(Json& json) {
    absl::Status status = Value(0, json);
    if (!status.ok()) return status;
    SkipSpace();
    return at_ == text_.size() ? absl::OkStatus() : Expected("the end, or one value only");
  }

 private:
  absl::Status Value(int depth, Json& json) {
    SkipSpace();
    switch (Next()) {
      case '{':
        json.kind = Json::Kind::kObject;
        return Members(depth, '}', json);
      case '[':
        json.kind = Json::Kind::kArray;
        return Members(depth, ']', json);
      case '"':
        json.kind = Json::Kind::kString;
        return String(json.text);
      case 't':
        return Word("true", Json::Kind::kBool, json);
      case 'f':
        return Word("false", Json::Kind::kBool, json);
      case 'n':
        return Word("null", Json::Kind::kNull, json);
      default:
        return Next() == '-' || absl::ascii_isdigit(static_cast<unsigned char>(Next())) ? Number(json)
                                                                                        : Expected("a value");
    }
  }

  // Reads the members of an object or an array.
  absl::Status Members(int depth, char end, Json& json) {
    if (depth >= kJsonNestingMax) {
      return Error(
          absl::StrCat("nested deeper than ", kJsonNestingMax, " levels, which is as deep as messages go"));
    }
    ++at_;
    SkipSpace();
    if (Take(end)) return absl::OkStatus();
    while (true) {
      if (end == '}') {
        SkipSpace();
        if (Next() != '"') return Expected("a name in quotes");
        if (absl::Status status = String(json.names.emplace_back()); !status.ok()) return status;
        SkipSpace();
        if (!Take(':')) return Expected("\":\" after the name");
      }
      if (absl::Status status = Value(depth + 1, json.values.emplace_back()); !status.ok()) return status;
      SkipSpace();
      if (Take(end)) return absl::OkStatus();
      if (!Take(',')) return Expected(absl::StrCat("\",\" or \"", std::string(1, end), "\""));
    }
  }

  absl::Status String(std::string& out) {
    const size_t start = at_++;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return absl::OkStatus();
      }
      if (static_cast<uint8_t>(c) < 0x20) {
        return Error("a control character in a string: write it as \\n, \\t or \\u00XX");
      }
      ++at_;
      if (c != '\\') {
        out += c;
      } else if (absl::Status status = Escape(out); !status.ok()) {
        return status;
      }
    }
    at_ = start;
    return Error("a string that does not end");
  }

  // Behind the backslash.
  absl::Status Escape(std::string& out) {
    constexpr absl::string_view kLetters = "\"\\/bfnrt";
    constexpr absl::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (!Take('u')) {
      const size_t letter = Next() == '\0' ? kLetters.npos : kLetters.find(Next());
      if (letter == kLetters.npos) return Expected("one of \" \\ / b f n r t u after a backslash");
      out += kMeanings[letter];
      ++at_;
      return absl::OkStatus();
    }
    uint32_t code;
    if (absl::Status status = FourDigits(code); !status.ok()) return status;
    if (code >= 0xd800 && code < 0xdc00 && absl::StartsWith(text_.substr(at_), "\\u")) {
      const size_t before = at_;
      uint32_t low;
      at_ += 2;
      if (absl::Status status = FourDigits(low); !status.ok()) return status;
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      } else {
        at_ = before;
      }
    }
    Append(code, out);
    return absl::OkStatus();
  }

  absl::Status FourDigits(uint32_t& code) {
    code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const auto digit = static_cast<unsigned char>(Next());
      if (!absl::ascii_isxdigit(digit)) return Expected("four hexadecimal digits");
      code = code << 4 | (absl::ascii_isdigit(digit) ? digit - '0' : absl::ascii_tolower(digit) - 'a' + 10);
    }
    return absl::OkStatus();
  }

  absl::Status Word(absl::string_view word, Json::Kind kind, Json& json) {
    if (!absl::StartsWith(text_.substr(at_), word)) return Expected(absl::StrCat("\"", word, "\""));
    at_ += word.size();
    json.kind = kind;
    json.text = std::string(word);
    return absl::OkStatus();
  }

  absl::Status Number(Json& json) {
    const size_t start = at_;
    Take('-');
    if (Take('0')) {
      if (absl::ascii_isdigit(static_cast<unsigned char>(Next())))
        return Error("a number that begins with 0");
    } else if (!Digits()) {
      return Expected("a digit");
    }
    if (Take('.') && !Digits()) return Expected("a digit");
    if (Take('e') || Take('E')) {
      if (!Take('+')) Take('-');
      if (!Digits()) return Expected("a digit");
    }
    json.kind = Json::Kind::kNumber;
    json.text = std::string(text_.substr(start, at_ - start));
    return absl::OkStatus();
  }
  bool Digits() {
    const size_t start = at_;
    while (absl::ascii_isdigit(static_cast<unsigned char>(Next()))) ++at_;
    return at_ > start;
  }

  void SkipSpace() {
    while (Next() == ' ' || Next() == '\n' || Next() == '\r' || Next() == '\t') ++at_;
  }
  char Next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(char c) {
    if (Next() != c) return false;
    ++at_;
    return true;
  }

  absl::Status Expected(absl::string_view what) const {
    const std::string found =
        at_ >= text_.size() ? "the end" : absl::StrCat("\"", EscapePeerText(text_.substr(at_, 1)), "\"");
    return Error(absl::StrCat("expected ", what, ", found ", found));
  }
  absl::Status Error(absl::string_view what) const {
    const absl::string_view before = text_.substr(0, std::min(at_, text_.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t line_start = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line, ", column ", before.size() - line_start + 1, ": ", what));
  }

  const absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace

bool IsUtf8(absl::string_view text, size_t* bad) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) {
      return at < text.size() ? static_cast<uint8_t>(text[at]) : uint8_t{0};
    };
    const uint8_t first = byte(i);
    const size_t bytes = first < 0x80   ? 1
                         : first < 0xc2 ? 0
                         : first < 0xe0 ? 2
                         : first < 0xf0 ? 3
                         : first < 0xf5 ? 4
                                        : 0;
    bool good = bytes > 0;
    for (size_t k = 1; good && k < bytes; ++k) good = (byte(i + k) & 0xc0) == 0x80;
    // The second byte of what would be longer than needed, a surrogate, or beyond U+10FFFF.
    if (good && first == 0xe0) good = byte(i + 1) >= 0xa0;
    if (good && first == 0xed) good = byte(i + 1) < 0xa0;
    if (good && first == 0xf0) good = byte(i + 1) >= 0x90;
    if (good && first == 0xf4) good = byte(i + 1) < 0x90;
    if (!good) {
      if (bad != nullptr) *bad = i;
      return false;
    }
    i += bytes;
  }
  return true;
}

absl::StatusOr<Json> ParseJson(absl::string_view text) {
  if (text.size() > kJsonBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("it has ", text.size(), " bytes, and ", kJsonBytesMax,
                                                   " is the most; give large payloads with --in=FIELD=FILE"));
  }
  size_t bad;
  if (!IsUtf8(text, &bad)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "byte %d (0x%02x) is not UTF-8; give other bytes with --in=FIELD=FILE, or as {\"base64\": "
        "\"...\"} where the schema has Data",
        bad, static_cast<uint8_t>(text[bad])));
  }
  Json json;
  if (absl::Status status = Parser(text).Whole(json); !status.ok()) return status;
  return json;
}

}  // namespace hawser::tool
