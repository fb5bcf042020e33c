#include "hawser/tools/hawser/json_fit.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "hawser/base/peer_text.h"
#include "hawser/tools/hawser/json_value.h"
#include "hawser/tools/hawser/nearest.h"
#include "hawser/tools/hawser/to_view.h"
#include "hawser/tools/hawser/type_name.h"
#include "hawser/tools/hawser/whole_number.h"

namespace hawser::tool {
namespace {

using capnp::schema::Type;

// "the number 5", "the string \"tow\"", "an object": what was found.
std::string Found(const Json& json) {
  const absl::string_view text = json.text;
  const std::string shown = absl::StrCat(EscapePeerText(text.substr(0, 40)), text.size() > 40 ? "..." : "");
  switch (json.kind) {
    case Json::Kind::kNull:
      return "null";
    case Json::Kind::kBool:
      return json.text;
    case Json::Kind::kNumber:
      return absl::StrCat("the number ", shown);
    case Json::Kind::kString:
      return absl::StrCat("the string \"", shown, "\"");
    case Json::Kind::kArray:
      return absl::StrCat("an array of ", json.values.size());
    case Json::Kind::kObject:
      break;
  }
  return "an object";
}

bool IsPointer(capnp::Type type) {
  return type.isText() || type.isData() || type.isList() || type.isStruct() || type.isInterface() ||
         type.isAnyPointer();
}

// Where the value is: of the objects and arrays around it, from the outside in.
class Place {
 public:
  static Place Root() { return Place(""); }
  Place Field(absl::string_view name) const { return Place(absl::StrCat(path_, ".", EscapePeerText(name))); }
  Place Element(size_t index) const { return Place(absl::StrCat(path_, "[", index, "]")); }

  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("at ", path_.empty() ? "." : path_, ": ", what));
  }
  absl::Status Expected(absl::string_view what, const Json& found) const {
    return Error(absl::StrCat("expected ", what, ", found ", Found(found)));
  }

 private:
  explicit Place(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

struct Range {
  int64_t min;
  uint64_t max;
};

std::optional<Range> RangeOf(capnp::Type type) {
  switch (type.which()) {
    case Type::INT8:
      return Range{-128, 127};
    case Type::INT16:
      return Range{-32768, 32767};
    case Type::INT32:
      return Range{std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case Type::INT64:
      return Range{std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
    case Type::UINT8:
      return Range{0, 255};
    case Type::UINT16:
      return Range{0, 65535};
    case Type::UINT32:
      return Range{0, std::numeric_limits<uint32_t>::max()};
    case Type::UINT64:
      return Range{0, std::numeric_limits<uint64_t>::max()};
    default:
      return std::nullopt;
  }
}

absl::Status FillStruct(const Place& place, const Json& json, capnp::DynamicStruct::Builder into);
absl::Status FillList(const Place& place, const Json& json, capnp::DynamicList::Builder into);

absl::Status Integer(const Place& place, const Range& range, capnp::Type type, const Json& json,
                     std::optional<capnp::DynamicValue::Reader>& value) {
  std::optional<WholeNumber> number;
  if (json.kind == Json::Kind::kNumber) {
    number = ToWholeNumber(json.text);
  } else if (json.kind == Json::Kind::kString) {  // As JSON of others has integers of 64 bits.
    const absl::string_view digits = absl::StripPrefix(json.text, "-");
    if (!digits.empty() && std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit)) {
      number = ToWholeNumber(json.text);
    }
  }
  const uint64_t magnitude_max =
      number.has_value() && number->is_negative ? -static_cast<uint64_t>(range.min) : range.max;
  if (!number.has_value() || number->magnitude > magnitude_max) {
    return place.Expected(
        absl::StrCat("a whole number from ", range.min, " to ", range.max, " (", TypeName(type), ")"), json);
  }
  if (number->is_negative) {
    value.emplace(static_cast<int64_t>(-number->magnitude));
  } else {
    value.emplace(number->magnitude);
  }
  return absl::OkStatus();
}

// The nearest value of a type. nullopt: the number is above the greatest, or would be rounded to zero.
template <typename Float>
std::optional<Float> Nearest(const std::string& number) {
  Float nearest;
  // A conversion to double, and then to float, would round twice. The greatest float, as it is printed, is
  // above itself as a double.
  bool parsed;
  if constexpr (std::is_same_v<Float, float>) {
    parsed = absl::SimpleAtof(number, &nearest);
  } else {
    parsed = absl::SimpleAtod(number, &nearest);
  }
  if (!parsed || std::isinf(nearest)) return std::nullopt;
  const absl::string_view mantissa = absl::string_view(number).substr(0, number.find_first_of("eE"));
  if (nearest == 0 && mantissa.find_first_of("123456789") != mantissa.npos) return std::nullopt;
  return nearest;
}

absl::Status Float(const Place& place, capnp::Type type, const Json& json,
                   std::optional<capnp::DynamicValue::Reader>& value) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (json.kind == Json::Kind::kNumber) {
    if (type.which() == Type::FLOAT32) {
      if (const std::optional<float> number = Nearest<float>(json.text)) value.emplace(*number);
    } else {
      if (const std::optional<double> number = Nearest<double>(json.text)) value.emplace(*number);
    }
  } else if (json.kind == Json::Kind::kString) {
    if (json.text == "NaN") value.emplace(std::numeric_limits<double>::quiet_NaN());
    if (json.text == "Infinity") value.emplace(kInfinity);
    if (json.text == "-Infinity") value.emplace(-kInfinity);
  }
  if (value.has_value()) return absl::OkStatus();
  return place.Expected(
      absl::StrCat("a number of ", TypeName(type), ", or \"NaN\", \"Infinity\" or \"-Infinity\""), json);
}

absl::Status Enum(const Place& place, capnp::EnumSchema schema, const Json& json,
                  std::optional<capnp::DynamicValue::Reader>& value) {
  const bool is_string = json.kind == Json::Kind::kString;
  if (is_string) {
    KJ_IF_MAYBE (enumerant, schema.findEnumerantByName(kj::StringPtr(json.text.c_str(), json.text.size()))) {
      value.emplace(capnp::DynamicEnum(*enumerant));
    }
  }
  uint32_t number;
  if (json.kind == Json::Kind::kNumber && absl::SimpleAtoi(json.text, &number) && number < 65536) {
    value.emplace(capnp::DynamicEnum(schema, static_cast<uint16_t>(number)));
  }
  if (value.has_value()) return absl::OkStatus();
  std::vector<std::string> names;
  for (const auto enumerant : schema.getEnumerants()) {
    names.emplace_back(ToView(enumerant.getProto().getName()));
  }
  return place.Error(absl::StrCat("expected one of ", Listed(names), " (", TypeName(capnp::Type(schema)),
                                  "), found ", Found(json), is_string ? DidYouMean(json.text, names) : ""));
}

// The bytes of a Data, or of a Text that is not UTF-8: in `bytes`, or of `json` itself.
absl::StatusOr<absl::string_view> Bytes(const Place& place, absl::string_view expected, const Json& json,
                                        std::string& bytes) {
  if (json.kind == Json::Kind::kString) {
    if (!IsUtf8(json.text)) return place.Error("half of a surrogate pair (\\ud800 to \\udfff) is no text");
    return absl::string_view(json.text);
  }
  if (json.kind != Json::Kind::kObject || json.names.size() != 1 || json.names[0] != "base64" ||
      json.values[0].kind != Json::Kind::kString) {
    return place.Expected(expected, json);
  }
  if (!absl::Base64Unescape(json.values[0].text, &bytes)) {
    return place.Field("base64").Error("that is not base64 (RFC 4648, A-Z a-z 0-9 + / and = at the end)");
  }
  return absl::string_view(bytes);
}

// What is no struct and no list, in `value`. `bytes` owns it if need be.
absl::Status Scalar(const Place& place, capnp::Type type, const Json& json, std::string& bytes,
                    std::optional<capnp::DynamicValue::Reader>& value) {
  if (const std::optional<Range> range = RangeOf(type)) return Integer(place, *range, type, json, value);
  switch (type.which()) {
    case Type::VOID:
      if (json.kind != Json::Kind::kNull) return place.Expected("null (Void)", json);
      value.emplace(capnp::VOID);
      return absl::OkStatus();
    case Type::BOOL:
      if (json.kind != Json::Kind::kBool) return place.Expected("true or false (Bool)", json);
      value.emplace(json.text == "true");
      return absl::OkStatus();
    case Type::FLOAT32:
    case Type::FLOAT64:
      return Float(place, type, json, value);
    case Type::TEXT: {
      const absl::StatusOr<absl::string_view> text = Bytes(place, "a string (Text)", json, bytes);
      if (!text.ok()) return text.status();
      value.emplace(capnp::Text::Reader(text->data(), text->size()));
      return absl::OkStatus();
    }
    case Type::DATA: {
      const absl::StatusOr<absl::string_view> data =
          Bytes(place, "Data: a string, or {\"base64\": \"...\"} for bytes that are not UTF-8", json, bytes);
      if (!data.ok()) return data.status();
      value.emplace(capnp::Data::Reader(reinterpret_cast<const uint8_t*>(data->data()), data->size()));
      return absl::OkStatus();
    }
    case Type::ENUM:
      return Enum(place, type.asEnum(), json, value);
    default:
      return place.Error(
          absl::StrCat("a value of type ", TypeName(type), " cannot be given in JSON; leave it out"));
  }
}

absl::Status FillField(const Place& place, capnp::StructSchema::Field field, const Json& json,
                       capnp::DynamicStruct::Builder into) {
  const capnp::Type type = field.getType();
  if (field.getProto().isGroup()) {
    // A group of a union is chosen by init(), which clears it.
    const bool chosen = field.getProto().getDiscriminantValue() != capnp::schema::Field::NO_DISCRIMINANT;
    return FillStruct(place, json, (chosen ? into.init(field) : into.get(field)).as<capnp::DynamicStruct>());
  }
  if (json.kind == Json::Kind::kNull && IsPointer(type)) {
    into.clear(field);
    return absl::OkStatus();
  }
  if (type.isStruct()) {
    if (json.kind != Json::Kind::kObject)
      return place.Expected(absl::StrCat("an object (", TypeName(type), ")"), json);
    return FillStruct(place, json, into.init(field).as<capnp::DynamicStruct>());
  }
  if (type.isList()) {
    if (json.kind != Json::Kind::kArray)
      return place.Expected(absl::StrCat("an array (", TypeName(type), ")"), json);
    return FillList(place, json,
                    into.init(field, static_cast<uint32_t>(json.values.size())).as<capnp::DynamicList>());
  }
  std::string bytes;
  std::optional<capnp::DynamicValue::Reader> value;
  if (absl::Status status = Scalar(place, type, json, bytes, value); !status.ok()) return status;
  into.set(field, *value);
  return absl::OkStatus();
}

absl::Status FillStruct(const Place& place, const Json& json, capnp::DynamicStruct::Builder into) {
  const capnp::StructSchema schema = into.getSchema();
  if (json.kind != Json::Kind::kObject)
    return place.Expected(absl::StrCat("an object (", TypeName(capnp::Type(schema)), ")"), json);
  std::set<absl::string_view> seen;
  std::string chosen;  // The member of its union that is there.
  for (size_t i = 0; i < json.names.size(); ++i) {
    const std::string& name = json.names[i];
    if (!seen.insert(name).second) {
      return place.Error(absl::StrCat("the name \"", EscapePeerText(name), "\" is there twice"));
    }
    KJ_IF_MAYBE (field, schema.findFieldByName(kj::StringPtr(name.c_str(), name.size()))) {
      const Place inside = place.Field(name);
      if (field->getProto().getDiscriminantValue() != capnp::schema::Field::NO_DISCRIMINANT) {
        if (!chosen.empty()) {
          return place.Error(absl::StrCat("\"", chosen, "\" and \"", EscapePeerText(name),
                                          "\" are of one union: give one of them"));
        }
        chosen = EscapePeerText(name);
      }
      if (absl::Status status = FillField(inside, *field, json.values[i], into); !status.ok()) return status;
    } else {
      std::vector<std::string> names;
      for (const auto each : schema.getFields()) names.emplace_back(ToView(each.getProto().getName()));
      return place.Error(absl::StrCat("there is no field \"",
                                      EscapePeerText(absl::string_view(name).substr(0, 100)), "\"",
                                      DidYouMean(name, names, names.empty() ? "" : "."),
                                      names.empty()       ? "; "
                                      : names.size() == 1 ? " There is: "
                                                          : " There are: ",
                                      names.empty() ? "it has none" : Listed(names)));
    }
  }
  return absl::OkStatus();
}

absl::Status FillList(const Place& place, const Json& json, capnp::DynamicList::Builder into) {
  const capnp::Type type = into.getSchema().getElementType();
  const std::vector<Json>& array = json.values;
  for (uint32_t i = 0; i < array.size(); ++i) {
    const Place inside = place.Element(i);
    absl::Status status;
    if (array[i].kind == Json::Kind::kNull && IsPointer(type) && !type.isStruct()) {
      continue;  // As it is already. The elements of a list of structs are no pointers.
    }
    if (type.isStruct()) {
      status = FillStruct(inside, array[i], into[i].as<capnp::DynamicStruct>());
    } else if (type.isList()) {
      if (array[i].kind != Json::Kind::kArray)
        return inside.Expected(absl::StrCat("an array (", TypeName(type), ")"), array[i]);
      status = FillList(inside, array[i],
                        into.init(i, static_cast<uint32_t>(array[i].values.size())).as<capnp::DynamicList>());
    } else {
      std::string bytes;
      std::optional<capnp::DynamicValue::Reader> value;
      status = Scalar(inside, type, array[i], bytes, value);
      if (status.ok()) into.set(i, *value);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FillFromJson(absl::string_view text, capnp::DynamicStruct::Builder into) {
  const absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return json.status();
  try {
    return FillStruct(Place::Root(), *json, into);
  } catch (const kj::Exception& exception) {
    return absl::InvalidArgumentError(
        absl::StrCat("Cap'n Proto refuses it: ", EscapePeerText(ToView(exception.getDescription()))));
  }
}

}  // namespace hawser::tool
