#include "hawser/codegen/schema_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hawser::codegen {
namespace {

using capnp::schema::Brand;
using capnp::schema::Field;
using capnp::schema::Method;
using capnp::schema::Type;

// By Type::Which, up to DATA.
constexpr const char* kBuiltIn[] = {"Void",   "Bool",   "Int8",   "Int16",   "Int32",   "Int64", "UInt8",
                                    "UInt16", "UInt32", "UInt64", "Float32", "Float64", "Text",  "Data"};

std::string TypeText(const Nodes& nodes, Type::Reader type);

std::string NamedText(const Nodes& nodes, uint64_t id, Brand::Reader brand) {
  std::string text;
  for (Node::Reader node = nodes.Get(id); !node.isFile(); node = nodes.Get(node.getScopeId())) {
    std::vector<std::string> bound;
    for (Brand::Scope::Reader scope : brand.getScopes()) {
      if (scope.getScopeId() != node.getId() || !scope.isBind()) continue;
      for (Brand::Binding::Reader binding : scope.getBind()) {
        bound.push_back(binding.isType() ? TypeText(nodes, binding.getType()) : "AnyPointer");
      }
    }
    std::string name = nodes.LocalName(node);
    if (!bound.empty()) absl::StrAppend(&name, "(", absl::StrJoin(bound, ", "), ")");
    text = text.empty() ? name : absl::StrCat(name, ".", text);
  }
  return text;
}

std::string TypeText(const Nodes& nodes, Type::Reader type) {
  switch (type.which()) {
    case Type::LIST:
      return absl::StrCat("List(", TypeText(nodes, type.getList().getElementType()), ")");
    case Type::ENUM:
      return NamedText(nodes, type.getEnum().getTypeId(), type.getEnum().getBrand());
    case Type::STRUCT:
      return NamedText(nodes, type.getStruct().getTypeId(), type.getStruct().getBrand());
    case Type::INTERFACE:
      return NamedText(nodes, type.getInterface().getTypeId(), type.getInterface().getBrand());
    case Type::ANY_POINTER:
      if (!type.getAnyPointer().isUnconstrained()) return "AnyPointer";
      if (type.getAnyPointer().getUnconstrained().isStruct()) return "AnyStruct";
      if (type.getAnyPointer().getUnconstrained().isList()) return "AnyList";
      return "AnyPointer";
    default:
      return kBuiltIn[static_cast<size_t>(type.which())];
  }
}

std::string StructText(const Nodes& nodes, uint64_t id, Brand::Reader brand) {
  Node::Reader node = nodes.Get(id);
  if (node.getScopeId() != 0) return NamedText(nodes, id, brand);
  std::vector<Field::Reader> fields;
  for (Field::Reader field : node.getStruct().getFields()) fields.push_back(field);
  std::sort(fields.begin(), fields.end(),
            [](Field::Reader a, Field::Reader b) { return a.getCodeOrder() < b.getCodeOrder(); });
  std::vector<std::string> texts;
  for (Field::Reader field : fields) {
    texts.push_back(absl::StrCat(field.getName().cStr(), " :", TypeText(nodes, field.getSlot().getType())));
  }
  return absl::StrCat("(", absl::StrJoin(texts, ", "), ")");
}

}  // namespace

std::string MethodText(const Nodes& nodes, Method::Reader method, uint16_t ordinal) {
  return absl::StrCat(method.getName().cStr(), " @", ordinal, " ",
                      StructText(nodes, method.getParamStructType(), method.getParamBrand()), " -> ",
                      StructText(nodes, method.getResultStructType(), method.getResultBrand()),
                      HasAnnotation(method.getAnnotations(), kIdempotent) ? " $Hawser.idempotent;" : ";");
}

}  // namespace hawser::codegen
