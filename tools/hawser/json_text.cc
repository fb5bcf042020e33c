#include "hawser/tools/hawser/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/json_writer.h"
#include "hawser/base/peer_text.h"
#include "hawser/tools/hawser/json_value.h"
#include "hawser/tools/hawser/to_view.h"

namespace hawser::tool {
namespace {

using capnp::DynamicValue;

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
  explicit Writer(const JsonTextOptions& options)
      : options_(options), json_(options.pretty ? JsonWriter::Layout::kLines : JsonWriter::Layout::kLine) {}

  void Struct(const LeftOut& left_out, capnp::DynamicStruct::Reader value) {
    json_.BeginObject();
    for (const auto field : value.getSchema().getNonUnionFields()) {
      if (full()) break;
      Field(left_out, value, field);
    }
    KJ_IF_MAYBE (chosen, value.which()) {
      Field(left_out, value, *chosen);
    }
    json_.EndObject();
  }

  bool full() const { return full_ || json_.size_bytes() + absent_bytes_ > options_.bytes_max; }
  std::string Take() && { return std::move(json_).Take(); }

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
    json_.Name(name);
    if (is_there) {
      Value(inside, field.getType(), value.get(field));
    } else {
      json_.Null();  // It is the member that is set.
    }
  }

  void Value(const LeftOut& left_out, capnp::Type type, const DynamicValue::Reader& value) {
    switch (value.getType()) {
      case DynamicValue::BOOL:
        json_.Bool(value.as<bool>());
        return;
      case DynamicValue::INT:
      case DynamicValue::UINT:
        Integer(type, value);
        return;
      case DynamicValue::FLOAT:
        json_.Raw(type.which() == capnp::schema::Type::FLOAT32 ? FloatText(value.as<float>())
                                                               : FloatText(value.as<double>()));
        return;
      case DynamicValue::TEXT: {
        const auto text = value.as<capnp::Text>();
        const absl::string_view bytes(text.begin(), text.size());
        if (Fits(bytes.size())) IsUtf8(bytes) ? json_.String(bytes) : Base64(bytes);
        return;
      }
      case DynamicValue::DATA:
        Data(value.as<capnp::Data>());
        return;
      case DynamicValue::LIST: {
        const auto list = value.as<capnp::DynamicList>();
        json_.BeginList();
        for (uint32_t i = 0; i < list.size() && !full(); ++i) {
          Value({}, list.getSchema().getElementType(), list[i]);
        }
        json_.EndList();
        return;
      }
      case DynamicValue::ENUM: {
        const auto number = value.as<capnp::DynamicEnum>();
        KJ_IF_MAYBE (enumerant, number.getEnumerant()) {
          json_.String(ToView(enumerant->getProto().getName()));
        } else {
          json_.Number(number.getRaw());
        }
        return;
      }
      case DynamicValue::STRUCT:
        Struct(left_out, value.as<capnp::DynamicStruct>());
        return;
      default:
        json_.Null();
    }
  }

  void Integer(capnp::Type type, const DynamicValue::Reader& value) {
    switch (type.which()) {
      case capnp::schema::Type::INT64:
        json_.Number64(value.as<int64_t>());
        return;
      case capnp::schema::Type::UINT64:
        json_.Number64(value.as<uint64_t>());
        return;
      default:
        json_.Number(value.as<int64_t>());
    }
  }

  void Data(capnp::Data::Reader value) {
    const absl::string_view bytes(reinterpret_cast<const char*>(value.begin()), value.size());
    if (!Fits(bytes.size())) return;
    if (!options_.base64_always && IsPlain(bytes)) {
      json_.String(bytes);
    } else {
      Base64(bytes);
    }
  }
  void Base64(absl::string_view bytes) {
    json_.Raw(absl::StrCat("{\"base64\": \"", absl::Base64Escape(bytes), "\"}"));
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
    if (json_.size_bytes() + bytes > options_.bytes_max) full_ = true;
    return !full_;
  }

  // An absent field takes as long as a few bytes of text, and a message may have very many: structs of no
  // size whose schema has thousands of fields.
  static constexpr size_t kAbsentBytes = 4;

  const JsonTextOptions& options_;
  JsonWriter json_;
  size_t absent_bytes_ = 0;
  bool full_ = false;
};

}  // namespace

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
