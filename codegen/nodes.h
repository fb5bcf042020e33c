#ifndef HAWSER_CODEGEN_NODES_H_
#define HAWSER_CODEGEN_NODES_H_

#include <capnp/schema.capnp.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace hawser::codegen {

using capnp::schema::CodeGeneratorRequest;
using capnp::schema::Node;

// Everything that the schema compiler passes on, by id: files, types, and the comments on them.
// Lifetime: reads the request in place, which has to outlive it.
class Nodes {
 public:
  explicit Nodes(CodeGeneratorRequest::Reader request);

  // The node of an id that another node refers to. The compiler sends every node that is referred to, so a
  // CHECK otherwise.
  Node::Reader Get(uint64_t id) const;
  bool Has(uint64_t id) const { return by_id_.contains(id); }

  // The file that declares a node. For the parameter or result struct that the compiler made for a method it
  // is not known: such a struct has no scope.
  Node::Reader FileOf(Node::Reader node) const;

  // "Outer.Inner": the name within its file.
  std::string ScopedName(Node::Reader node) const;

  // "Inner"
  std::string LocalName(Node::Reader node) const;

  // The comment on a node, or on its method number `ordinal`: lines, each ended. Empty: none.
  std::string Comment(uint64_t id) const;
  std::string MethodComment(uint64_t interface_id, uint16_t ordinal) const;

  // Every node, in the compiler's order.
  capnp::List<Node>::Reader all() const { return all_; }

 private:
  capnp::List<Node>::Reader all_;
  absl::flat_hash_map<uint64_t, Node::Reader> by_id_;
  absl::flat_hash_map<uint64_t, Node::SourceInfo::Reader> comments_;
};

// Annotations: $Cxx.namespace and $Cxx.name of /capnp/c++.capnp, $Hawser.idempotent and $Hawser.renamedFrom
// of /hawser/annotations.capnp.
inline constexpr uint64_t kCxxNamespace = 0xb9c6f99ebf805f2c;
inline constexpr uint64_t kCxxName = 0xf264a779fef191ce;
inline constexpr uint64_t kIdempotent = 0xb3d1f6c0a5e27c94;
inline constexpr uint64_t kRenamedFrom = 0xc4f7a90d3be15826;

// The text of annotation `id`, if it is there.
std::optional<std::string> AnnotationText(capnp::List<capnp::schema::Annotation>::Reader annotations,
                                          uint64_t id);
bool HasAnnotation(capnp::List<capnp::schema::Annotation>::Reader annotations, uint64_t id);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_NODES_H_
