#ifndef HAWSER_BASE_JSON_WRITER_H_
#define HAWSER_BASE_JSON_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hawser {

// `text` in quotes, as JSON has it (RFC 8259), and as it may stand on a terminal: what EscapePeerText()
// (peer_text.h) escapes is \n, \u001b, \u202e and the like here, and each byte that is not UTF-8 is \ufffd.
// So the output is UTF-8, whatever a peer sent, and reads back as `text` if that is UTF-8.
std::string JsonString(absl::string_view text);

// Writes a JSON text from its beginning to its end:
//
//   JsonWriter json;
//   json.BeginObject();
//   json.Name("answered").Bool(true);
//   json.EndObject();
//   std::move(json).Take();   // {"answered": true}
//
// The caller begins and ends in pairs, and gives each value of an object a name; nothing checks that.
class JsonWriter {
 public:
  enum class Layout {
    kDense,  // No blank: {"a":1,"b":[2,3]}
    kLine,   // {"a": 1, "b": [2, 3]}
    kLines,  // A line for each value of an object, and of a list that does not begin with BeginLineList().
  };

  explicit JsonWriter(Layout layout = Layout::kLine) : layout_(layout) {}

  void BeginObject() { Begin('{'); }
  void EndObject() { End('}'); }
  void BeginList() { Begin('['); }
  void EndList() { End(']'); }
  // A list on one line in each layout. Its values are no objects and no lists.
  void BeginLineList() {
    Begin('[');
    in_line_list_ = true;
  }

  // The name of the value that comes next.
  JsonWriter& Name(absl::string_view name);

  void String(absl::string_view text) { Raw(JsonString(text)); }
  void Bool(bool value) { Raw(value ? "true" : "false"); }
  void Null() { Raw("null"); }
  // An integer of at most 32 bits, or one that is known to be below 2^53: a reader's numbers are doubles.
  template <typename Integer>
  void Number(Integer value) {
    static_assert(std::is_integral_v<Integer> && !std::is_same_v<Integer, bool>);
    Raw(absl::StrCat(value));
  }
  // Any integer of 64 bits, as a string: so Cap'n Proto's and Protobuf's JSON have it.
  void Number64(int64_t value) { Raw(absl::StrCat("\"", value, "\"")); }
  void Number64(uint64_t value) { Raw(absl::StrCat("\"", value, "\"")); }
  // A number with so many decimals; null if `value` is not finite, which JSON has no number for.
  void Decimal(double value, int decimals);
  // A value that is JSON already.
  void Raw(absl::string_view json) {
    BeforeValue();
    absl::StrAppend(&text_, json);
  }

  size_t size_bytes() const { return text_.size(); }
  std::string Take() && { return std::move(text_); }

 private:
  void Begin(char bracket) {
    BeforeValue();
    text_ += bracket;
    ++depth_;
    is_empty_ = true;
  }
  void End(char bracket) {
    --depth_;
    if (!is_empty_) NewLine();
    is_empty_ = in_line_list_ = false;
    text_ += bracket;
  }
  // The comma between values, unless the name of this one already had it.
  void BeforeValue();
  void NewLine() {
    if (layout_ != Layout::kLines || in_line_list_) return;
    text_ += '\n';
    text_.append(2 * depth_, ' ');
  }

  const Layout layout_;
  std::string text_;
  size_t depth_ = 0;       // Objects and lists that have begun.
  bool is_empty_ = true;   // Nothing is in the innermost of them yet.
  bool has_name_ = false;  // The next value's was written.
  bool in_line_list_ = false;
};

}  // namespace hawser

#endif  // HAWSER_BASE_JSON_WRITER_H_
