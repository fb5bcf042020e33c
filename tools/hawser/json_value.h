#ifndef HAWSER_TOOLS_HAWSER_JSON_VALUE_H_
#define HAWSER_TOOLS_HAWSER_JSON_VALUE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hawser::tool {

inline constexpr int kJsonNestingMax = 64;
inline constexpr size_t kJsonBytesMax = 16 << 20;

// A JSON value (RFC 8259). Why not capnp::JsonValue, which capnp::JsonCodec makes: there a number is a
// double, so that large 64-bit integers are rounded; an error does not say where; and 0.9 decodes "\u00e4" to
// what is not UTF-8.
struct Json {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  // A string, in UTF-8 but for half a surrogate pair; a number as it was written; "true" or "false".
  std::string text;
  std::vector<std::string> names;  // An object's, in the order of the text; one may be there twice.
  std::vector<Json> values;        // An array's; or an object's, one for each name.
};

// `text`: one JSON value, UTF-8, of at most kJsonBytesMax bytes, nested at most kJsonNestingMax deep.
// InvalidArgument: "line 1, column 9: expected a value, found \"}\"". Columns count bytes.
absl::StatusOr<Json> ParseJson(absl::string_view text);

// Whether `text` is UTF-8 in its shortest form, without surrogates. `bad`: where the first byte is that is
// not.
bool IsUtf8(absl::string_view text, size_t* bad = nullptr);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_JSON_VALUE_H_
