#include "hawser/codegen/cpp_identifiers.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "hawser/base/peer_text.h"

namespace hawser::codegen {
namespace {

// Sorted.
constexpr absl::string_view kKeywords[] = {
    "alignas",     "alignof",  "and",        "and_eq",    "asm",       "auto",         "bitand",
    "bitor",       "bool",     "break",      "case",      "catch",     "char",         "char16_t",
    "char32_t",    "char8_t",  "class",      "co_await",  "co_return", "co_yield",     "compl",
    "concept",     "const",    "const_cast", "consteval", "constexpr", "constinit",    "continue",
    "decltype",    "default",  "delete",     "do",        "double",    "dynamic_cast", "else",
    "enum",        "explicit", "export",     "extern",    "false",     "float",        "for",
    "friend",      "goto",     "if",         "inline",    "int",       "long",         "mutable",
    "namespace",   "new",      "noexcept",   "not",       "not_eq",    "nullptr",      "operator",
    "or",          "or_eq",    "private",    "protected", "public",    "register",     "reinterpret_cast",
    "requires",    "return",   "short",      "signed",    "sizeof",    "static",       "static_assert",
    "static_cast", "struct",   "switch",     "template",  "this",      "thread_local", "throw",
    "true",        "try",      "typedef",    "typeid",    "typename",  "union",        "unsigned",
    "using",       "virtual",  "void",       "volatile",  "wchar_t",   "while",        "xor",
    "xor_eq"};

}  // namespace

bool IsIdentifier(absl::string_view text) {
  const auto fits = [](char c) { return c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  return !text.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), fits);
}

bool IsKeyword(absl::string_view identifier) {
  return std::binary_search(std::begin(kKeywords), std::end(kKeywords), identifier);
}

bool IsDeclarable(absl::string_view text) { return IsIdentifier(text) && !IsKeyword(text); }

bool IsNamespace(absl::string_view text) {
  const std::vector<absl::string_view> names = absl::StrSplit(text, "::");
  return std::all_of(names.begin(), names.end(), IsDeclarable);
}

bool IsTakenNamespace(absl::string_view text) {
  for (const absl::string_view taken : {"absl", "hawser", "hawser::fabric", "hawser::internal",
                                        "hawser::observe", "hawser::tls", "hawser::transport", "kj"}) {
    if (text == taken) return true;
  }
  // Generated code says "std::move", which "acme::std" would hide.
  const std::vector<absl::string_view> names = absl::StrSplit(text, "::");
  return std::find(names.begin(), names.end(), "std") != names.end();
}

bool IsIncludable(absl::string_view path) {
  const auto control = [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); };
  return !path.empty() && IsUtf8(path) && path.find_first_of("\"\\<>") == path.npos &&
         std::none_of(path.begin(), path.end(), control) &&
         !absl::StrContains(path, "?\?");  // A trigraph, of which compilers warn.
}

}  // namespace hawser::codegen
