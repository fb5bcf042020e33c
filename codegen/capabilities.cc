#include "hawser/codegen/capabilities.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hawser::codegen {

using capnp::schema::Brand;
using capnp::schema::Field;
using capnp::schema::Type;

std::optional<std::string> CapabilitySearch::Find(uint64_t struct_id, Brand::Reader brand) {
  // A type that refers to itself is asked about while it is being searched, and the answer "nothing so far"
  // may be too early. So go round until a round finds nothing new.
  for (;;) {
    size_t known = found_.size();
    visited_.clear();
    std::optional<std::string> path = InStruct(struct_id, Bind(brand, {}));
    if (path || found_.size() == known) return path;
  }
}

std::optional<std::string> CapabilitySearch::InStruct(uint64_t id, const Carriers& carriers) {
  Key key{id, {}};
  for (const auto& [parameter, path] : carriers) key.second.insert(parameter);
  if (auto found = found_.find(key); found != found_.end()) return found->second;
  if (!visited_.insert(key).second) return std::nullopt;
  std::optional<std::string> path = InFields(nodes_.Get(id), carriers);
  if (path) found_[key] = *path;
  return path;
}

std::optional<std::string> CapabilitySearch::InFields(Node::Reader node, const Carriers& carriers) {
  for (Field::Reader field : node.getStruct().getFields()) {
    std::optional<std::string> path;
    if (field.isSlot()) {
      path = InType(field.getSlot().getType(), carriers);
    } else if ((path = InFields(nodes_.Get(field.getGroup().getTypeId()), carriers))) {
      path->insert(0, ".");
    }
    if (path) return absl::StrCat(field.getName().cStr(), *path);
  }
  return std::nullopt;
}

std::optional<std::string> CapabilitySearch::InType(Type::Reader type, const Carriers& carriers) {
  switch (type.which()) {
    case Type::INTERFACE:
      return absl::StrCat(" :", nodes_.ScopedName(nodes_.Get(type.getInterface().getTypeId())));
    case Type::LIST: {
      std::optional<std::string> path = InType(type.getList().getElementType(), carriers);
      if (path) path->insert(0, "[]");
      return path;
    }
    case Type::STRUCT: {
      auto target = type.getStruct();
      std::optional<std::string> path = InStruct(target.getTypeId(), Bind(target.getBrand(), carriers));
      if (path) path->insert(0, ".");
      return path;
    }
    case Type::ANY_POINTER: {
      auto pointer = type.getAnyPointer();
      if (pointer.isUnconstrained() && pointer.getUnconstrained().isCapability()) return " :Capability";
      if (!pointer.isParameter()) return std::nullopt;
      auto bound =
          carriers.find({pointer.getParameter().getScopeId(), pointer.getParameter().getParameterIndex()});
      return bound == carriers.end() ? std::nullopt : std::optional(bound->second);
    }
    default:
      return std::nullopt;
  }
}

CapabilitySearch::Carriers CapabilitySearch::Bind(Brand::Reader brand, const Carriers& outer) {
  Carriers bound;
  for (Brand::Scope::Reader scope : brand.getScopes()) {
    if (scope.isInherit()) {
      for (const auto& carrier : outer) {
        if (carrier.first.first == scope.getScopeId()) bound.insert(carrier);
      }
      continue;
    }
    uint16_t index = 0;
    for (Brand::Binding::Reader binding : scope.getBind()) {
      std::optional<std::string> path;
      if (binding.isType()) path = InType(binding.getType(), outer);
      if (path) bound[{scope.getScopeId(), index}] = *path;
      ++index;
    }
  }
  return bound;
}

}  // namespace hawser::codegen
