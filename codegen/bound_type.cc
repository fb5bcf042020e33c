#include "hawser/codegen/bound_type.h"

#include "absl/strings/str_cat.h"

namespace hawser::codegen {

using capnp::schema::Brand;
using capnp::schema::Type;

BoundType Resolve(BoundType type) {
  while (type.bindings && type.type.isAnyPointer() && type.type.getAnyPointer().isParameter()) {
    auto parameter = type.type.getAnyPointer().getParameter();
    auto found = type.bindings->find({parameter.getScopeId(), parameter.getParameterIndex()});
    if (found == type.bindings->end()) break;
    BoundType bound = found->second;  // A copy: what it is part of may be deleted with `type`.
    type = std::move(bound);
  }
  return type;
}

Bindings Bind(Brand::Reader brand, const Bindings& outer) {
  std::map<std::pair<uint64_t, uint16_t>, BoundType> bound;
  for (Brand::Scope::Reader scope : brand.getScopes()) {
    if (scope.isInherit()) {
      if (!outer) continue;
      for (const auto& binding : *outer) {
        if (binding.first.first == scope.getScopeId()) bound.insert(binding);
      }
      continue;
    }
    uint16_t index = 0;
    for (Brand::Binding::Reader binding : scope.getBind()) {
      if (binding.isType()) bound[{scope.getScopeId(), index}] = Resolve({binding.getType(), outer});
      ++index;
    }
  }
  if (bound.empty()) return nullptr;
  return std::make_shared<const std::map<std::pair<uint64_t, uint16_t>, BoundType>>(std::move(bound));
}

std::string KeyOf(const Bindings& bindings) {
  std::string key = "(";
  if (bindings) {
    for (const auto& [parameter, type] : *bindings) {
      absl::StrAppend(&key, absl::Hex(parameter.first), ".", parameter.second, "=", KeyOf(type), ",");
    }
  }
  return absl::StrCat(key, ")");
}

std::string KeyOf(const BoundType& bound) {
  const auto [type, bindings] = Resolve(bound);
  std::string key = absl::StrCat(static_cast<int>(type.which()));
  switch (type.which()) {
    case Type::LIST:
      return absl::StrCat(key, "[", KeyOf({type.getList().getElementType(), bindings}), "]");
    case Type::ENUM:
      return absl::StrCat(key, ":", absl::Hex(type.getEnum().getTypeId()));
    case Type::INTERFACE:
      return absl::StrCat(key, ":", absl::Hex(type.getInterface().getTypeId()));
    case Type::STRUCT:
      return absl::StrCat(key, ":", absl::Hex(type.getStruct().getTypeId()),
                          KeyOf(Bind(type.getStruct().getBrand(), bindings)));
    case Type::ANY_POINTER: {
      auto pointer = type.getAnyPointer();
      if (pointer.isUnconstrained()) {
        return absl::StrCat(key, ":", static_cast<int>(pointer.getUnconstrained().which()));
      }
      if (!pointer.isParameter()) return key;
      return absl::StrCat(key, ":", absl::Hex(pointer.getParameter().getScopeId()), ".",
                          pointer.getParameter().getParameterIndex());
    }
    default:
      return key;
  }
}

}  // namespace hawser::codegen
