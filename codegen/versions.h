#ifndef HAWSER_CODEGEN_VERSIONS_H_
#define HAWSER_CODEGEN_VERSIONS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hawser/codegen/nodes.h"

namespace hawser::codegen {

// Two versions of a schema, and which type of the one is which of the other.
// Lifetime: reads both requests in place, which have to outlive it.
class Versions {
 public:
  // Types are the same if they have the same id, else, in the requested files, if they have the same name.
  Versions(CodeGeneratorRequest::Reader released, CodeGeneratorRequest::Reader next);

  const Nodes released;
  const Nodes next;

  // The next version of a type. A Reader of id 0: it has none.
  Node::Reader NextOf(Node::Reader released_node) const;

  // Whether one is the other's next version.
  bool Same(uint64_t released_id, uint64_t next_id) const;

  // The files that were requested, each with its next version. A file whose id is not among the next ones is
  // with the next file of its place in the list.
  struct Files {
    Node::Reader released;
    Node::Reader next;
  };
  const std::vector<Files>& files() const { return files_; }

  // The types that a file declares, in its order, those inside others after them.
  static std::vector<Node::Reader> TypesIn(const Nodes& nodes, Node::Reader file);

 private:
  std::vector<Files> files_;
  absl::flat_hash_map<uint64_t, uint64_t> next_ids_;  // By the released one, where they differ.
};

// A struct, an enum or an interface that a schema gives a name to. Groups are none, nor what the compiler
// makes of the parameters or results of a method.
bool IsNamedType(Node::Reader node);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_VERSIONS_H_
