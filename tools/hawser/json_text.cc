#include "hawser/tools/hawser/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hawser/base/peer_text.h"
#include "hawser/tools/hawser/json_value.h"

namespace hawser::tool {
namespace {

using capnp::DynamicValue;

absl::string_view ToView(kj::StringPtr text) { return {text.begin(), text.size()}; }

// The shortest that reads back as the same value.
template <typename Float>
std::string FloatText(Float value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  char text[64];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return std::string(text, end);
}

// Fields that are left out, "b.c" of "a.b.c" in the struct or group a. An element of a list has none.
using LeftOut = std::vector<absl::string_view>;

class Writer {
 public:
  explicit Writer(const JsonTextOptions& options) : options_(options) {}

  void Struct(const LeftOut& left_out, capnp::DynamicStruct::Reader value) {
    Open('{');
    for (const auto field : value.getSchema().getNonUnionFields()) {
      if (full()) break;
      Field(left_out, value, field);
    }
    KJ_IF_MAYBE (chosen, value.which()) {
      Field(left_out, value, *chosen);
    }
    Close('}');
  }

  bool full() const { return full_ || text_.size() + absent_bytes_ > options_.bytes_max; }
  std::string Take() && { return std::move(text_); }

 private:
  void Field(const LeftOut& left_out, capnp::DynamicStruct::Reader value, capnp::StructSchema::Field field) {
    if (full()) return;
    if (!left_out.empty() &&
        std::find(left_out.begin(), left_out.end(), ToView(field.getProto().getName())) != left_out.end()) {
      return;
    }
    const bool is_there = value.has(field, capnp::HasMode::NON_NULL);
    const bool of_union = field.getProto().getDiscriminantValue() != capnp::schema::Field::NO_DISCRIMINANT;
    if (!is_there && !of_union) {
      absent_bytes_ += kAbsentBytes;
      return;
    }
    const absl::string_view name = ToView(field.getProto().getName());
    LeftOut inside;
    for (const absl::string_view path : left_out) {
      if (path.size() > name.size() && path[name.size()] == '.' && absl::StartsWith(path, name)) {
        inside.push_back(path.substr(name.size() + 1));
      }
    }
    Next();
    absl::StrAppend(&text_, JsonString(name), ": ");
    if (is_there) {
      Value(inside, field.getType(), value.get(field));
    } else {
      text_ += "null";  // It is the member that is set.
    }
  }

  void Value(const LeftOut& left_out, capnp::Type type, const DynamicValue::Reader& value) {
    switch (value.getType()) {
      case DynamicValue::BOOL:
        text_ += value.as<bool>() ? "true" : "false";
        return;
      case DynamicValue::INT:
      case DynamicValue::UINT:
        Integer(type, value);
        return;
      case DynamicValue::FLOAT:
        text_ += type.which() == capnp::schema::Type::FLOAT32 ? FloatText(value.as<float>())
                                                              : FloatText(value.as<double>());
        return;
      case DynamicValue::TEXT: {
        const auto text = value.as<capnp::Text>();
        const absl::string_view bytes(text.begin(), text.size());
        if (Fits(bytes.size())) text_ += IsUtf8(bytes) ? JsonString(bytes) : Base64(bytes);
        return;
      }
      case DynamicValue::DATA:
        Data(value.as<capnp::Data>());
        return;
      case DynamicValue::LIST: {
        const auto list = value.as<capnp::DynamicList>();
        Open('[');
        for (uint32_t i = 0; i < list.size() && !full(); ++i) {
          Next();
          Value({}, list.getSchema().getElementType(), list[i]);
        }
        Close(']');
        return;
      }
      case DynamicValue::ENUM: {
        const auto number = value.as<capnp::DynamicEnum>();
        KJ_IF_MAYBE (enumerant, number.getEnumerant()) {
          text_ += JsonString(ToView(enumerant->getProto().getName()));
        } else {
          absl::StrAppend(&text_, number.getRaw());
        }
        return;
      }
      case DynamicValue::STRUCT:
        Struct(left_out, value.as<capnp::DynamicStruct>());
        return;
      default:
        text_ += "null";
    }
  }

  void Integer(capnp::Type type, const DynamicValue::Reader& value) {
    switch (type.which()) {
      case capnp::schema::Type::INT64:
        absl::StrAppend(&text_, "\"", value.as<int64_t>(), "\"");
        return;
      case capnp::schema::Type::UINT64:
        absl::StrAppend(&text_, "\"", value.as<uint64_t>(), "\"");
        return;
      default:
        absl::StrAppend(&text_, value.as<int64_t>());
    }
  }

  void Data(capnp::Data::Reader value) {
    const absl::string_view bytes(reinterpret_cast<const char*>(value.begin()), value.size());
    if (!Fits(bytes.size())) return;
    if (!options_.base64_always && IsPlain(bytes)) {
      text_ += JsonString(bytes);
    } else {
      text_ += Base64(bytes);
    }
  }
  static std::string Base64(absl::string_view bytes) {
    return absl::StrCat("{\"base64\": \"", absl::Base64Escape(bytes), "\"}");
  }
  static bool IsPlain(absl::string_view bytes) {
    for (const char c : bytes) {
      const auto byte = static_cast<uint8_t>(c);
      if ((byte < 0x20 && c != '\n' && c != '\r' && c != '\t') || byte == 0x7f) return false;
    }
    return IsUtf8(bytes);
  }

  // Before a value of so many bytes, which may become longer, is copied.
  bool Fits(size_t bytes) {
    if (text_.size() + bytes > options_.bytes_max) full_ = true;
    return !full_;
  }

  void Open(char bracket) {
    text_ += bracket;
    ++depth_;
    empty_ = true;
  }
  // Before each member.
  void Next() {
    if (!empty_) text_ += options_.pretty ? "," : ", ";
    empty_ = false;
    Break();
  }
  void Close(char bracket) {
    --depth_;
    if (!empty_) Break();
    empty_ = false;
    text_ += bracket;
  }
  void Break() {
    if (options_.pretty) absl::StrAppend(&text_, "\n", std::string(2 * depth_, ' '));
  }

  // An absent field takes as long as a few bytes of text, and a message may have very many: structs of no
  // size whose schema has thousands of fields.
  static constexpr size_t kAbsentBytes = 4;

  const JsonTextOptions& options_;
  std::string text_;
  size_t absent_bytes_ = 0;
  size_t depth_ = 0;
  bool full_ = false;
  bool empty_ = true;  // Nothing is in the innermost bracket yet.
};

}  // namespace

std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  while (!text.empty()) {
    const char first = text[0];
    if (first == '"' || first == '\\') {
      out += '\\';
      out += first;
      text.remove_prefix(1);
      continue;
    }
    const auto lead = static_cast<uint8_t>(first);
    if (lead >= 0x20 && lead < 0x7f) {
      out += first;
      text.remove_prefix(1);
      continue;
    }
    const size_t bytes = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    const absl::string_view one = text.substr(0, bytes);
    if (!IsUtf8(one)) {
      out += "\\ufffd";
      text.remove_prefix(1);
      continue;
    }
    const std::string escaped = EscapePeerText(one);
    if (escaped == one) {
      out += escaped;
    } else if (lead < 0x80) {
      out += first == '\n' || first == '\r' || first == '\t' ? escaped : absl::StrFormat("\\u%04x", lead);
    } else {
      out += escaped;  // "\u202e": JSON writes it in the same way.
    }
    text.remove_prefix(bytes);
  }
  out += '"';
  return out;
}

absl::StatusOr<std::string> ToJson(capnp::DynamicStruct::Reader message, const JsonTextOptions& options) {
  Writer writer(options);
  writer.Struct({options.left_out.begin(), options.left_out.end()}, message);
  if (writer.full()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "as JSON it has more than ", options.bytes_max,
        " bytes, or very many fields that are absent; write large fields to files with --out=FIELD=FILE"));
  }
  return std::move(writer).Take();
}

}  // namespace hawser::tool
