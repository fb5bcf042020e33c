#ifndef HAWSER_TOOLS_HAWSER_SCHEMAS_H_
#define HAWSER_TOOLS_HAWSER_SCHEMAS_H_

#include <capnp/message.h>
#include <capnp/schema-loader.h>
#include <capnp/schema.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hawser::tool {

inline constexpr size_t kSchemaNodesMax = 20'000;
// In the nodes. Each element of a list in them counts 32 bytes more, and each reference to a type 256: so
// what is kept of them, here and in the loader, is at most some 15 times as large, and it is made within
// seconds.
inline constexpr size_t kSchemaBytesMax = 16 << 20;

// The schemas that a server has sent, and which of them it serves. A server may lie. Checked here is what
// capnp::SchemaLoader does not check, and code that walks the schemas, builds messages of them or prints them
// relies on: what node_check.h says of each node, and what Check() says of all of them. Before Check() is OK,
// build and read no message of a schema.
// Thread: one at a time. Failure: a peer's schema that cannot be used is DataLoss; after that, drop the
//         object.
class Schemas {
 public:
  using Node = capnp::schema::Node;

  Schemas() = default;
  Schemas(const Schemas&) = delete;
  Schemas& operator=(const Schemas&) = delete;

  // Copies `node`, without the folder in its display name. Two with one id: the first counts.
  // ResourceExhausted: beyond one of the limits above. DataLoss: CheckNode() or Cap'n Proto refuses it.
  absl::Status Add(Node::Reader node);
  void Serve(uint64_t interface_id);
  // Call it after the last Add(). Checks:
  //  - scopes form trees of at most kScopeDepthMax levels;
  //  - each group is that of one field of the struct that is its scope, and is no larger than that, so groups
  //    form trees, too;
  //  - nothing else refers to a group: no field, element of a list, parameter, constant or nested node has
  //    one as its type;
  //  - what is served is there, and an interface.
  absl::Status Check() const;

  bool Has(uint64_t id) const { return nodes_.count(id) != 0; }
  // An empty node, of the kind FILE and with the id 0, if the server did not send it.
  Node::Reader Get(uint64_t id) const;
  // Throws kj::Exception: there is none.
  capnp::Schema SchemaOf(uint64_t id) const { return loader_->get(id); }
  const std::map<uint64_t, Node::Reader>& nodes() const { return nodes_; }

  // The interfaces that are served, by name. May throw kj::Exception, as all of capnp::Schema.
  std::vector<capnp::InterfaceSchema> services() const;
  // Its methods and those of the interfaces that it extends, each once.
  static std::vector<capnp::InterfaceSchema::Method> MethodsOf(capnp::InterfaceSchema interface);

  // "kv.capnp:KeyValue.get", or the end of that from a dot or colon on, such as "KeyValue.get".
  // NotFound: with what there is. InvalidArgument: several have a name that ends so. ResourceExhausted: the
  // services have more than 200,000 methods with those that they inherit.
  absl::StatusOr<capnp::InterfaceSchema::Method> FindMethod(absl::string_view name) const;
  // The id of an interface, struct, enum, constant or annotation, with the same rule.
  absl::StatusOr<uint64_t> FindNode(absl::string_view name) const;

  // Whether `name` is `full`, or the end of it behind a '.', ':' or '/'.
  static bool Names(absl::string_view name, absl::string_view full);
  // "kv.capnp:KeyValue.Entry": without the folder of the file.
  static std::string NameOfNode(Node::Reader node);

 private:
  bool IsGroup(uint64_t id) const;
  // Adds the groups of `node` to `groups`.
  absl::Status CheckGroups(Node::Reader node, std::set<uint64_t>& groups) const;

  std::map<uint64_t, Node::Reader> nodes_;  // In messages_.
  std::vector<std::unique_ptr<capnp::MallocMessageBuilder>> messages_;
  size_t bytes_ = 0;
  std::vector<uint64_t> served_;
  // Behind a pointer: its destructor may throw.
  std::unique_ptr<capnp::SchemaLoader> loader_ = std::make_unique<capnp::SchemaLoader>();
};

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_SCHEMAS_H_
