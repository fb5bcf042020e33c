#ifndef HAWSER_CODEGEN_CAPABILITIES_H_
#define HAWSER_CODEGEN_CAPABILITIES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "hawser/codegen/nodes.h"

namespace hawser::codegen {

// Finds capabilities in data: fields of an interface type, however deep, in lists, groups and bound type
// parameters. An AnyPointer is taken for data: what a program puts there is not known here.
class CapabilitySearch {
 public:
  explicit CapabilitySearch(const Nodes& nodes) : nodes_(nodes) {}

  // "entries[].listener :Listener", the first one in a struct with its type parameters bound. Ends for
  // recursive types.
  std::optional<std::string> Find(uint64_t struct_id, capnp::schema::Brand::Reader brand);

 private:
  // Type parameters (scope, index) that are bound to something with a capability, and how one gets to it from
  // there. What the others are bound to does not matter, so there are finitely many for a struct: a recursive
  // generic type has infinitely many bindings.
  using Carriers = std::map<std::pair<uint64_t, uint16_t>, std::string>;
  using Key = std::pair<uint64_t, std::set<std::pair<uint64_t, uint16_t>>>;

  std::optional<std::string> InStruct(uint64_t id, const Carriers& carriers);
  std::optional<std::string> InFields(Node::Reader node, const Carriers& carriers);
  std::optional<std::string> InType(capnp::schema::Type::Reader type, const Carriers& carriers);
  Carriers Bind(capnp::schema::Brand::Reader brand, const Carriers& outer);

  const Nodes& nodes_;
  std::map<Key, std::string> found_;
  std::set<Key> visited_;  // In this round.
};

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_CAPABILITIES_H_
