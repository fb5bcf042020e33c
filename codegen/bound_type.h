#ifndef HAWSER_CODEGEN_BOUND_TYPE_H_
#define HAWSER_CODEGEN_BOUND_TYPE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "hawser/codegen/nodes.h"

namespace hawser::codegen {

struct BoundType;

// What type parameters are bound to, by the id of the scope that declares them and their index there. Null:
// nothing is bound.
using Bindings = std::shared_ptr<const std::map<std::pair<uint64_t, uint16_t>, BoundType>>;

// A type as it is written in a generic struct, with what the struct's parameters are bound to.
struct BoundType {
  capnp::schema::Type::Reader type;
  Bindings bindings;
};

// Follows a type parameter to what it is bound to; a parameter that is left over is not bound.
BoundType Resolve(BoundType type);

// What the parameters of a type are bound to by its brand, which is written where `outer` holds.
Bindings Bind(capnp::schema::Brand::Reader brand, const Bindings& outer);

// Equal for equal types only.
std::string KeyOf(const BoundType& type);
std::string KeyOf(const Bindings& bindings);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_BOUND_TYPE_H_
