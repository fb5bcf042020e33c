#include "hawser/codegen/struct_layout.h"

#include <capnp/any.h>

#include <utility>

#include "absl/base/casts.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace hawser::codegen {
namespace {

using capnp::schema::Field;
using capnp::schema::Value;

void AddFields(const Nodes& nodes, Node::Reader node, const ValueField& around, StructLayout& layout) {
  for (Field::Reader field : node.getStruct().getFields()) {
    ValueField value = around;
    if (field.getDiscriminantValue() != Field::NO_DISCRIMINANT) {
      value.cases.push_back({node.getStruct().getDiscriminantOffset(), field.getDiscriminantValue()});
    }
    if (field.isGroup()) {
      value.groups.push_back(field);
      AddFields(nodes, nodes.Get(field.getGroup().getTypeId()), value, layout);
    } else {
      value.field = field;
      layout.emplace(field.getOrdinal().getExplicit(), std::move(value));
    }
  }
}

// Values of a list, a struct or AnyPointer.
bool SamePointer(capnp::AnyPointer::Reader a, capnp::AnyPointer::Reader b) {
  return a.isNull() || b.isNull() ? a.isNull() == b.isNull() : a == b;
}

// A reader cannot tell the one that is not there from an empty one.
bool IsEmptyList(capnp::AnyPointer::Reader pointer) {
  return pointer.isNull() || (pointer.isList() && pointer.getAs<capnp::AnyList>().size() == 0);
}

}  // namespace

StructLayout LayoutOf(const Nodes& nodes, Node::Reader node) {
  StructLayout layout;
  AddFields(nodes, node, {}, layout);
  return layout;
}

std::string ValueText(Value::Reader value) {
  switch (value.which()) {
    case Value::BOOL:
      return value.getBool() ? "true" : "false";
    case Value::INT8:
      return absl::StrCat(value.getInt8());
    case Value::INT16:
      return absl::StrCat(value.getInt16());
    case Value::INT32:
      return absl::StrCat(value.getInt32());
    case Value::INT64:
      return absl::StrCat(value.getInt64());
    case Value::UINT8:
      return absl::StrCat(value.getUint8());
    case Value::UINT16:
      return absl::StrCat(value.getUint16());
    case Value::UINT32:
      return absl::StrCat(value.getUint32());
    case Value::UINT64:
      return absl::StrCat(value.getUint64());
    case Value::FLOAT32:
      return absl::StrCat(value.getFloat32());
    case Value::FLOAT64:
      return absl::StrCat(value.getFloat64());
    case Value::ENUM:
      return absl::StrCat("enumerant @", value.getEnum());
    case Value::TEXT:
      return absl::StrCat("\"", absl::CHexEscape(value.getText().cStr()), "\"");
    default:
      return "";
  }
}

bool SameDefault(Field::Slot::Reader a, Field::Slot::Reader b) {
  Value::Reader left = a.getDefaultValue(), right = b.getDefaultValue();
  // Data and List(UInt8): the bytes of one would have to be compared with the elements of the other.
  if (left.which() != right.which()) return !a.getHadExplicitDefault() && !b.getHadExplicitDefault();
  switch (left.which()) {
    case Value::FLOAT32:  // By their bits, because a NaN is not equal to itself.
      return absl::bit_cast<uint32_t>(left.getFloat32()) == absl::bit_cast<uint32_t>(right.getFloat32());
    case Value::FLOAT64:
      return absl::bit_cast<uint64_t>(left.getFloat64()) == absl::bit_cast<uint64_t>(right.getFloat64());
    case Value::TEXT:
      return left.getText() == right.getText();
    case Value::DATA:
      return left.getData() == right.getData();
    case Value::LIST:
      return (IsEmptyList(left.getList()) && IsEmptyList(right.getList())) ||
             SamePointer(left.getList(), right.getList());
    case Value::STRUCT:
      return SamePointer(left.getStruct(), right.getStruct());
    case Value::ANY_POINTER:
      return SamePointer(left.getAnyPointer(), right.getAnyPointer());
    default:
      return ValueText(left) == ValueText(right);
  }
}

}  // namespace hawser::codegen
