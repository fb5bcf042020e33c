#include "hawser/tools/hawser/value_text.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "hawser/tools/hawser/to_view.h"

namespace hawser::tool {
namespace {

using capnp::DynamicValue;
using capnp::schema::Type;
using capnp::schema::Value;

// As the schema language has it. Bytes, not characters, are escaped: it takes both.
void AppendQuoted(absl::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&out, "\\", std::string(1, c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
      out += c;
    } else {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  out += '"';
}

template <typename Float>
std::string FloatText(Float value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[64];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

class ValueWriter {
 public:
  explicit ValueWriter(size_t bytes_max) : bytes_max_(bytes_max), steps_left_(bytes_max) {}

  // False: as std::nullopt of ValueText().
  bool Write(capnp::Type type, const DynamicValue::Reader& value) {
    switch (value.getType()) {
      case DynamicValue::VOID:
        return Put("void");
      case DynamicValue::BOOL:
        return Put(value.as<bool>() ? "true" : "false");
      case DynamicValue::INT:
        return Put(absl::StrCat(value.as<int64_t>()));
      case DynamicValue::UINT:
        return Put(absl::StrCat(value.as<uint64_t>()));
      case DynamicValue::FLOAT:
        return Put(type.which() == Type::FLOAT32 ? FloatText(value.as<float>())
                                                 : FloatText(value.as<double>()));
      case DynamicValue::TEXT: {
        const auto text = value.as<capnp::Text>();
        if (!Fits(text.size())) return false;
        AppendQuoted({text.begin(), text.size()}, text_);
        return Fits(0);
      }
      case DynamicValue::DATA: {
        const auto data = value.as<capnp::Data>();
        if (!Fits(2 * data.size())) return false;
        text_ += "0x\"";
        for (const uint8_t byte : data) absl::StrAppendFormat(&text_, "%02x", byte);
        return Put("\"");
      }
      case DynamicValue::ENUM: {
        KJ_IF_MAYBE (enumerant, value.as<capnp::DynamicEnum>().getEnumerant()) {
          return Put(ToView(enumerant->getProto().getName()));
        }
        return false;
      }
      case DynamicValue::LIST:
        return List(value.as<capnp::DynamicList>());
      case DynamicValue::STRUCT:
        return Struct(value.as<capnp::DynamicStruct>());
      default:
        return false;
    }
  }

  std::string Take() && { return std::move(text_); }

 private:
  bool List(capnp::DynamicList::Reader list) {
    text_ += '[';
    for (uint32_t i = 0; i < list.size(); ++i) {
      if (!Step() || (i > 0 && !Put(", ")) || !Write(list.getSchema().getElementType(), list[i]))
        return false;
    }
    return Put("]");
  }

  bool Struct(capnp::DynamicStruct::Reader value) {
    text_ += '(';
    bool first = true;
    for (const auto field : value.getSchema().getNonUnionFields()) {
      if (!Step()) return false;
      if (value.has(field, capnp::HasMode::NON_DEFAULT) && !Field(value, field, first)) return false;
    }
    KJ_IF_MAYBE (chosen, value.which()) {
      if (value.has(*chosen, capnp::HasMode::NON_NULL) && !Field(value, *chosen, first)) return false;
    }
    return Put(")");
  }
  bool Field(capnp::DynamicStruct::Reader value, capnp::StructSchema::Field field, bool& first) {
    return (std::exchange(first, false) || Put(", ")) && Put(ToView(field.getProto().getName())) &&
           Put(" = ") && Write(field.getType(), value.get(field));
  }

  bool Put(absl::string_view text) {
    absl::StrAppend(&text_, text);
    return Fits(0);
  }
  bool Fits(size_t bytes) const { return text_.size() + bytes <= bytes_max_; }
  bool Step() {
    if (steps_left_ == 0) return false;
    --steps_left_;
    return true;
  }

  const size_t bytes_max_;
  size_t steps_left_;
  std::string text_;
};

template <typename Number>
std::string NumberText(Number number) {
  return number == 0
             ? ""
             : absl::StrCat(static_cast<std::conditional_t<(sizeof(number) < 4), int, Number>>(number));
}

}  // namespace

std::optional<std::string> ValueText(capnp::Type type, const DynamicValue::Reader& value, size_t bytes_max) {
  ValueWriter writer(bytes_max);
  if (!writer.Write(type, value)) return std::nullopt;
  return std::move(writer).Take();
}

std::optional<std::string> ValueText(capnp::Type type, Value::Reader value, size_t bytes_max) {
  switch (value.which()) {
    case Value::BOOL:
      return value.getBool() ? "true" : "";
    case Value::INT8:
      return NumberText(value.getInt8());
    case Value::INT16:
      return NumberText(value.getInt16());
    case Value::INT32:
      return NumberText(value.getInt32());
    case Value::INT64:
      return NumberText(value.getInt64());
    case Value::UINT8:
      return NumberText(value.getUint8());
    case Value::UINT16:
      return NumberText(value.getUint16());
    case Value::UINT32:
      return NumberText(value.getUint32());
    case Value::UINT64:
      return NumberText(value.getUint64());
    case Value::FLOAT32:
      return value.getFloat32() == 0 ? "" : FloatText(value.getFloat32());
    case Value::FLOAT64:
      return value.getFloat64() == 0 ? "" : FloatText(value.getFloat64());
    case Value::TEXT:
      if (!value.hasText()) return "";
      return ValueText(type, DynamicValue::Reader(value.getText()), bytes_max);
    case Value::DATA:
      if (!value.hasData()) return "";
      return ValueText(type, DynamicValue::Reader(value.getData()), bytes_max);
    case Value::ENUM:
      if (value.getEnum() == 0 || !type.isEnum()) return "";
      return ValueText(type, capnp::DynamicEnum(type.asEnum(), value.getEnum()), bytes_max);
    case Value::LIST:
      if (!value.hasList() || !type.isList()) return "";
      return ValueText(type, value.getList().getAs<capnp::DynamicList>(type.asList()), bytes_max);
    case Value::STRUCT:
      if (!value.hasStruct() || !type.isStruct()) return "";
      return ValueText(type, value.getStruct().getAs<capnp::DynamicStruct>(type.asStruct()), bytes_max);
    default:
      return "";
  }
}

std::string ZeroText(capnp::Type type) {
  if (type.isText() || type.isData()) return "\"\"";
  if (type.isList()) return "[]";
  if (type.isStruct()) return "()";
  if (type.isBool()) return "false";
  if (type.isVoid()) return "void";
  if (type.isEnum() && type.asEnum().getEnumerants().size() > 0) {
    return std::string(ToView(type.asEnum().getEnumerants()[0].getProto().getName()));
  }
  return "0";
}

}  // namespace hawser::tool
