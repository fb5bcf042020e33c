#include "hawser/codegen/schema_text.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hawser::codegen {
namespace {

using capnp::schema::Brand;
using capnp::schema::Field;
using capnp::schema::Type;

// By Type::Which, up to DATA.
constexpr const char* kBuiltIn[] = {"Void",   "Bool",   "Int8",   "Int16",   "Int32",   "Int64", "UInt8",
                                    "UInt16", "UInt32", "UInt64", "Float32", "Float64", "Text",  "Data"};

// Types as they are written inside one interface or, without one, outside of all.
class TypeWriter {
 public:
  explicit TypeWriter(const Nodes& nodes) : nodes_(nodes) {}
  TypeWriter(const Nodes& nodes, Node::Reader interface) : nodes_(nodes) {
    for (; !interface.isFile(); interface = nodes.Get(interface.getScopeId()))
      scopes_.insert(interface.getId());
  }

  std::string Struct(uint64_t id, Brand::Reader brand) const {
    Node::Reader node = nodes_.Get(id);
    if (node.getScopeId() != 0) return Named(id, brand);
    std::vector<Field::Reader> fields;
    for (Field::Reader field : node.getStruct().getFields()) fields.push_back(field);
    std::sort(fields.begin(), fields.end(),
              [](Field::Reader a, Field::Reader b) { return a.getCodeOrder() < b.getCodeOrder(); });
    std::vector<std::string> texts;
    for (Field::Reader field : fields) {
      texts.push_back(absl::StrCat(field.getName().cStr(), " :", Of(field.getSlot().getType())));
    }
    return absl::StrCat("(", absl::StrJoin(texts, ", "), ")");
  }

  std::string Of(Type::Reader type) const {
    switch (type.which()) {
      case Type::LIST:
        return absl::StrCat("List(", Of(type.getList().getElementType()), ")");
      case Type::ENUM:
        return Named(type.getEnum().getTypeId(), type.getEnum().getBrand());
      case Type::STRUCT:
        return Named(type.getStruct().getTypeId(), type.getStruct().getBrand());
      case Type::INTERFACE:
        return Named(type.getInterface().getTypeId(), type.getInterface().getBrand());
      case Type::ANY_POINTER:
        if (type.getAnyPointer().isParameter()) {
          auto parameter = type.getAnyPointer().getParameter();
          return nodes_.Get(parameter.getScopeId())
              .getParameters()[parameter.getParameterIndex()]
              .getName()
              .cStr();
        }
        if (!type.getAnyPointer().isUnconstrained()) return "AnyPointer";
        if (type.getAnyPointer().getUnconstrained().isStruct()) return "AnyStruct";
        if (type.getAnyPointer().getUnconstrained().isList()) return "AnyList";
        return "AnyPointer";
      default:
        return kBuiltIn[static_cast<size_t>(type.which())];
    }
  }

 private:
  // Its name, with the scopes that it needs from there.
  std::string Named(uint64_t id, Brand::Reader brand) const {
    std::string text;
    Node::Reader node = nodes_.Get(id);
    do {
      std::vector<std::string> bound;
      for (Brand::Scope::Reader scope : brand.getScopes()) {
        if (scope.getScopeId() != node.getId() || !scope.isBind()) continue;
        for (Brand::Binding::Reader binding : scope.getBind()) {
          bound.push_back(binding.isType() ? Of(binding.getType()) : "AnyPointer");
        }
      }
      std::string name = nodes_.LocalName(node);
      if (!bound.empty()) absl::StrAppend(&name, "(", absl::StrJoin(bound, ", "), ")");
      text = text.empty() ? name : absl::StrCat(name, ".", text);
      node = nodes_.Get(node.getScopeId());
    } while (!node.isFile() && !scopes_.count(node.getId()));
    return text;
  }

  const Nodes& nodes_;
  std::set<uint64_t> scopes_;  // Around it, and itself: what they declare needs no prefix.
};

}  // namespace

std::string MethodText(const Nodes& nodes, Node::Reader interface, uint16_t ordinal) {
  auto method = interface.getInterface().getMethods()[ordinal];
  TypeWriter types(nodes, interface);
  return absl::StrCat(method.getName().cStr(), " @", ordinal, " ",
                      types.Struct(method.getParamStructType(), method.getParamBrand()), " -> ",
                      types.Struct(method.getResultStructType(), method.getResultBrand()),
                      HasAnnotation(method.getAnnotations(), kIdempotent) ? " $Hawser.idempotent;" : ";");
}

std::string TypeText(const Nodes& nodes, Type::Reader type) { return TypeWriter(nodes).Of(type); }

}  // namespace hawser::codegen
