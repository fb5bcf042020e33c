#include "hawser/codegen/cpp_names.h"

#include <kj/debug.h>

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hawser::codegen {

using capnp::schema::Brand;
using capnp::schema::Type;

std::string NamespaceOf(const Nodes& nodes, Node::Reader node) {
  return AnnotationText(nodes.FileOf(node).getAnnotations(), kCxxNamespace).value_or("");
}

std::string CppLocalName(const Nodes& nodes, Node::Reader node) {
  return AnnotationText(node.getAnnotations(), kCxxName).value_or(nodes.LocalName(node));
}

std::string CppMethodName(capnp::schema::Method::Reader method) {
  std::string name = AnnotationText(method.getAnnotations(), kCxxName).value_or(method.getName().cStr());
  if (!name.empty()) name[0] = absl::ascii_toupper(name[0]);
  return name;
}

std::string CppNames::InNamespaceOf(Node::Reader node, std::string name) const {
  std::string declared_in = NamespaceOf(nodes_, node);
  std::string first = name.substr(0, name.find_first_of(":<"));
  if (declared_in == in_namespace_ && !hidden_.count(first)) return name;
  return declared_in.empty() ? absl::StrCat("::", name) : absl::StrCat("::", declared_in, "::", name);
}

std::string CppNames::Of(Node::Reader node, Brand::Reader brand) const {
  std::string name;
  Node::Reader scope = node;
  for (; !scope.isFile(); scope = nodes_.Get(scope.getScopeId())) {
    std::string local = CppLocalName(nodes_, scope);
    if (scope.getParameters().size() > 0) absl::StrAppend(&local, Bindings(scope, brand));
    name = name.empty() ? local : absl::StrCat(local, "::", name);
  }
  return InNamespaceOf(scope, std::move(name));
}

std::string CppNames::Bindings(Node::Reader node, Brand::Reader brand) const {
  std::vector<std::string> bound;
  for (Brand::Scope::Reader scope : brand.getScopes()) {
    if (scope.getScopeId() != node.getId() || !scope.isBind()) continue;
    for (Brand::Binding::Reader binding : scope.getBind()) {
      bound.push_back(binding.isType() ? Type(binding.getType()) : "::capnp::AnyPointer");
    }
  }
  return absl::StrCat("<", absl::StrJoin(bound, ", "), ">");  // What is left out is AnyPointer.
}

std::string CppNames::Type(capnp::schema::Type::Reader type) const {
  switch (type.which()) {
    case Type::VOID:
      return "::capnp::Void";
    case Type::BOOL:
      return "bool";
    case Type::INT8:
      return "::int8_t";
    case Type::INT16:
      return "::int16_t";
    case Type::INT32:
      return "::int32_t";
    case Type::INT64:
      return "::int64_t";
    case Type::UINT8:
      return "::uint8_t";
    case Type::UINT16:
      return "::uint16_t";
    case Type::UINT32:
      return "::uint32_t";
    case Type::UINT64:
      return "::uint64_t";
    case Type::FLOAT32:
      return "float";
    case Type::FLOAT64:
      return "double";
    case Type::TEXT:
      return "::capnp::Text";
    case Type::DATA:
      return "::capnp::Data";
    case Type::LIST:
      return absl::StrCat("::capnp::List<", Type(type.getList().getElementType()), ">");
    case Type::ENUM:
      return Of(nodes_.Get(type.getEnum().getTypeId()), type.getEnum().getBrand());
    case Type::STRUCT:
      return Of(nodes_.Get(type.getStruct().getTypeId()), type.getStruct().getBrand());
    case Type::INTERFACE:
      return Of(nodes_.Get(type.getInterface().getTypeId()), type.getInterface().getBrand());
    case Type::ANY_POINTER:
      break;
  }
  // Type parameters do not come here: generic interfaces and methods are refused. capnpc-c++ gives AnyPointer
  // to AnyStruct and AnyList as well.
  return "::capnp::AnyPointer";
}

std::string CppNames::MethodStruct(Node::Reader interface, capnp::schema::Method::Reader method, uint64_t id,
                                   Brand::Reader brand, absl::string_view suffix) const {
  Node::Reader node = nodes_.Get(id);
  if (node.getScopeId() != 0) return Of(node, brand);
  return absl::StrCat(Of(interface), "::", CppMethodName(method), suffix);
}

std::string CppNames::Params(Node::Reader interface, capnp::schema::Method::Reader method) const {
  return MethodStruct(interface, method, method.getParamStructType(), method.getParamBrand(), "Params");
}

std::string CppNames::Results(Node::Reader interface, capnp::schema::Method::Reader method) const {
  return MethodStruct(interface, method, method.getResultStructType(), method.getResultBrand(), "Results");
}

std::string CppNames::Generated(Node::Reader interface, absl::string_view suffix) const {
  return InNamespaceOf(interface, GeneratedName(nodes_, interface, suffix));
}

std::string GeneratedName(const Nodes& nodes, Node::Reader interface, absl::string_view suffix) {
  std::string name(suffix);
  for (Node::Reader scope = interface; !scope.isFile(); scope = nodes.Get(scope.getScopeId())) {
    name = absl::StrCat(CppLocalName(nodes, scope), scope.getId() == interface.getId() ? "" : "_", name);
  }
  return name;
}

}  // namespace hawser::codegen
